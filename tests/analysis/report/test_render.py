# SPDX-License-Identifier: Apache-2.0
import json

from pagetier.analysis.derive import Spread
from pagetier.analysis.report import formats
from pagetier.analysis.report.render import section_json, section_markdown, section_text
from pagetier.analysis.report.section import (
    Column,
    Figure,
    FigurePoint,
    Section,
    Series,
    Table,
)
from pagetier.analysis.stats import paired_ratio

COLUMNS = (
    Column("name", "name"),
    Column("bytes", "device bytes", formats.size),
    Column("share", "share", formats.percent),
    Column("time", "s/it", formats.spread_of(formats.three_digits)),
)
ROWS = (
    ("a|b", 2_000_000, None, Spread(1.5, 1.0, 2.0, 3)),
    ("c\nd", 2_000_000, None, None),
)
POINT = FigurePoint(1, 2.0, 1.0, 3.0, 3)
FIGURE = Figure("f", "F", "x", "y", "log", (Series("s", "measured", (POINT,)),), "capacity")
SECTION = Section(
    key="made",
    title="Made up",
    prose=("One sentence | another.",),
    tables=(Table("Numbers", COLUMNS, ROWS),),
    figures=(FIGURE,),
    blocks=("as | it is",),
)


def test_text_puts_what_is_shared_above_and_leaves_out_what_is_not_there() -> None:
    assert section_text(SECTION).splitlines() == [
        "Made up",
        "=======",
        "",
        "One sentence | another.",
        "",
        "Numbers (all: device bytes 2.00 MB):",
        "name  s/it",
        "----  ---------",
        "a|b   1.5 [1-2]",
        "c d   n/a",
        "",
        "as | it is",
    ]


def test_markdown_cannot_be_broken_by_a_name() -> None:
    assert section_markdown(SECTION).splitlines() == [
        "## Made up",
        "",
        "One sentence \\| another.",
        "",
        "![F](figures/f.svg)",
        "",
        "Numbers (all: device bytes 2.00 MB):",
        "",
        "| name | s/it |",
        "|---|---|",
        "| a\\|b | 1.5 [1-2] |",
        "| c d | n/a |",
        "",
        "```",
        "as | it is",
        "```",
    ]


def test_json_has_every_value_under_its_key() -> None:
    found = json.loads(json.dumps(section_json(SECTION)))
    (table,) = found["tables"]
    assert table["rows"][0] == {
        "name": "a|b",
        "bytes": 2_000_000,
        "share": None,
        "time": {"median": 1.5, "min": 1.0, "max": 2.0, "count": 3},
    }
    assert found["figures"][0]["series"][0]["points"][0]["y"] == 2.0


def test_a_single_row_stays_whole() -> None:
    section = Section("k", "T", tables=(Table("One", COLUMNS, ROWS[:1]),))
    assert "name  device bytes  s/it" in section_text(section)


def test_a_wide_table_is_broken_between_words() -> None:
    columns = tuple(Column(f"k{n}", f"column {n}") for n in range(6))
    rows = tuple(tuple(f"{'word ' * 12}{n}-{at}" for n in range(6)) for at in (1, 2))
    lines = section_text(Section("k", "T", tables=(Table("Wide", columns, rows),))).splitlines()
    assert max(map(len, lines)) <= 160
    assert all(word in ("word", *"123456-") or "-" in word for word in lines[-1].split())


def test_missing_values_and_single_values_say_so() -> None:
    assert formats.percent(None) == formats.size(None) == formats.ratio(None) == "n/a"
    spread = formats.spread_of(formats.three_digits)
    assert spread(Spread(2.0, 2.0, 2.0, 1)) == "2 (n=1)"
    assert formats.ratio(paired_ratio([2.0], [1.0])) == "2.000x, undecided (n=1)"
    assert formats.capacity(None) == "no limit"


def test_a_ratio_shows_its_range_and_its_interval() -> None:
    found = paired_ratio([1.1, 1.2, 1.3, 1.4, 1.5, 1.6], [1.0] * 6)
    text = formats.ratio(found)
    assert text.startswith("1.350x [1.100-1.600], 95% interval 1.")
    assert text.endswith(", higher")
