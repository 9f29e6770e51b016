# SPDX-License-Identifier: Apache-2.0
"""The page in a real browser: no complaint, every figure visible, nothing clipped."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.analysis.report.browser import Browser

NARROW, WIDE = 400, 1400

# Widths of the page, boxes of its figures, and whatever is wider inside than its box lets show.
MEASURE = """
JSON.stringify({
  page: [document.documentElement.scrollWidth, document.documentElement.clientWidth],
  figures: [...document.querySelectorAll('figure svg')].map(svg => {
    const box = svg.getBoundingClientRect();
    return {width: box.width, height: box.height, left: box.left, right: box.right,
      ink: [...svg.querySelectorAll('path, use')].some(
        part => part.getBoundingClientRect().width > 1)};
  }),
  clipped: [...document.querySelectorAll('body *')].filter(part => !part.closest('svg')
    && getComputedStyle(part).display !== 'inline'
    && !['auto', 'scroll'].includes(getComputedStyle(part).overflowX)
    && part.scrollWidth > part.clientWidth + 1).map(part => part.outerHTML.slice(0, 80)),
  paper: getComputedStyle(document.documentElement).backgroundColor,
  ink: getComputedStyle(document.body).color,
  drawn: getComputedStyle(document.querySelector('figure svg [style*="--ink"]')).fill
})
"""


@pytest.fixture(scope="module")
def browser(
    tool: Callable[[str], str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Browser]:
    """Debian's chromium."""
    with Browser.started(tool("chromium"), tmp_path_factory.mktemp("profile")) as started:
        yield started


@pytest.fixture
def opened(browser: Browser, page: str, tmp_path: Path) -> Callable[[int, str], dict[str, Any]]:
    """The page opened at a width and on a paper, and what it measures."""
    file = tmp_path / "report.html"
    file.write_text(page)

    def measured(width: int, scheme: str) -> dict[str, Any]:
        browser.open(file, width, scheme)
        found: dict[str, Any] = json.loads(browser.value(MEASURE))
        return found

    return measured


@pytest.mark.parametrize("width", [NARROW, WIDE])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_of_it_is_seen(
    browser: Browser, opened: Callable[[int, str], dict[str, Any]], width: int, scheme: str
) -> None:
    found = opened(width, scheme)
    assert browser.complaints == []
    whole, visible = found["page"]
    assert whole <= visible <= width
    assert found["clipped"] == []
    assert len(found["figures"]) >= 5
    for figure in found["figures"]:
        assert figure["width"] > 300 and figure["height"] > 60 and figure["ink"]
        assert figure["left"] >= 0 and figure["right"] <= width


def test_dark_paper_has_light_ink(opened: Callable[[int, str], dict[str, Any]]) -> None:
    light, dark = opened(WIDE, "light"), opened(WIDE, "dark")
    assert (light["paper"], dark["paper"]) == ("rgb(255, 255, 255)", "rgb(23, 23, 26)")
    assert light["ink"] == "rgb(28, 28, 30)" and dark["ink"] == "rgb(236, 236, 240)"
    assert light["drawn"] != dark["drawn"]


def test_it_prints(browser: Browser, opened: Callable[[int, str], dict[str, Any]]) -> None:
    opened(WIDE, "dark")
    assert browser.pdf().startswith(b"%PDF-")
    assert browser.complaints == []
