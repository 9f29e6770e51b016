# SPDX-License-Identifier: Apache-2.0
import re
from collections.abc import Callable
from html.parser import HTMLParser
from itertools import pairwise
from typing import Any

import pytest

from pagetier.analysis.report.html import Page, html_page
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Figure, Section, Table
from pagetier.analysis.results import Cell

MakeCell = Callable[..., Cell]
MakeStudy = Callable[..., Study]
PageOf = Callable[..., str]
GB = 10**9
HOSTILE = "</td><script>alert(1)</script><img src=x onerror='a()'>\"&amp; {{ }}"

# Elements without an end tag in HTML.
VOID = {"meta", "br", "hr", "img", "link", "input"}


class Reader(HTMLParser):
    """The elements of a page, and whether they are well nested."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    def of(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_it_is_one_page_with_a_language_headings_and_a_summary(page: str) -> None:
    found = Reader(page)
    assert found.of("html") == [{"lang": "en"}]
    assert {"charset": "utf-8"} in found.of("meta")
    levels = [int(tag[1]) for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert "Summary" in found.texts


def test_nothing_is_fetched_and_nothing_runs(page: str) -> None:
    found = Reader(page)
    tags = {tag for tag, _ in found.tags}
    assert not tags & {"script", "link", "img", "iframe", "object", "embed", "form", "base"}
    for _, attributes in found.tags:
        assert not [name for name in attributes if name.startswith("on")]
        for name in ("href", "src", "xlink:href"):
            assert (attributes.get(name) or "#").startswith("#")
    (policy,) = [meta for meta in found.of("meta") if "http-equiv" in meta]
    assert "default-src 'none'" in str(policy["content"])
    # But for the names of the formats, which nobody fetches.
    addresses = set(re.findall(r"https?://[^\s\"'<)]+", page))
    assert addresses <= {"http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"}


def test_every_figure_is_described_and_every_name_is_there_once(page: str) -> None:
    found = Reader(page)
    pictures = [svg for svg in found.of("svg") if svg.get("role") == "img"]
    assert len(pictures) == len(found.of("figure")) >= 4
    for svg in pictures:
        assert len(str(svg["aria-label"])) > 40
        # The parser gives names in lower case.
        assert svg["viewbox"] and "width" not in svg
    names = [attributes["id"] for _, attributes in found.tags if "id" in attributes]
    assert len(names) == len(set(names))
    for _, attributes in found.tags:
        for value in attributes.values():
            for used in re.findall(r"url\(#([^)]+)\)", value or ""):
                assert used in names
    for link in found.of("a"):
        assert str(link["href"])[1:] in names


def test_tables_scroll_inside_themselves_and_have_headers(page: str) -> None:
    found = Reader(page)
    boxes = [div for div in found.of("div") if div.get("class") == "table"]
    assert len(boxes) == len(found.of("table")) == len(found.of("caption"))
    assert all(box["tabindex"] == "0" and box["aria-label"] for box in boxes)
    assert {th["scope"] for th in found.of("th")} == {"col"}


def test_pictures_take_the_colours_of_the_page(page: str) -> None:
    body = page[page.index("<main>") :]
    assert "var(--ink)" in body and "var(--paper)" in body
    assert not re.search("#1c1c1e|#6b6b70|#dcdce1|#fffffe", body)
    assert "prefers-color-scheme: dark" in page and "@media print" in page


def test_texts_of_results_are_texts(
    make_cell: MakeCell, make_study: MakeStudy, page_of: PageOf
) -> None:
    cells = [
        make_cell(pool=f"/x/{name}{HOSTILE}", capacity_bytes=c * GB, state=state, repetition=1)
        for name in ("one", "two")
        for c, state in ((100, "kept"), (200, "kept"), (300, "rejected"))
    ]
    study = make_study(cells, name=HOSTILE, host={"device": {"name": HOSTILE, "model": HOSTILE}})
    page = page_of(study, title=HOSTILE)
    found = Reader(page)
    assert not {tag for tag, _ in found.tags} & {"script", "img"}
    assert not [a for _, a in found.tags if any(name.startswith("on") for name in a)]
    assert "alert(1)" in "".join(found.texts)


def test_a_table_is_shown_as_the_other_formats_show_it() -> None:
    table = Table("Made <up>", (Column("a", "A"), Column("b", "B&C")), (("x", 1), ("y", 1)))
    page = html_page(Page("t", (), None, [Section("k", "T", tables=(table,))], {}))
    assert "<caption>Made &lt;up&gt; (all: B&amp;C 1)</caption>" in page
    assert "<td>x</td>" in page and "<td>1</td>" not in page


def test_equal_results_are_equal_pages(
    cells: list[Cell], make_study: MakeStudy, page_of: PageOf
) -> None:
    study = make_study(cells)
    assert page_of(study) == page_of(study)


def test_what_is_no_svg_is_refused() -> None:
    figure: Any = Figure("f", "F", "x", "y", "log", (), "bars")
    section = Section("k", "T", figures=(figure,))
    with pytest.raises(ValueError, match="f: not an SVG file"):
        html_page(Page("t", (), None, [section], {"f": b"<html>"}))
