# SPDX-License-Identifier: Apache-2.0
"""Generations of the multi-generational LRU, as kernels from 6.1 on print them."""

from pathlib import Path

import pytest

from pagetier.bench.kernel.lru_gen import (
    Generation,
    GenerationReader,
    MemcgGenerations,
    NodeGenerations,
    parse_lru_gen,
)
from pagetier.cgroups.errors import ParseError


def generation(seq: int, age_ms: int, anon: int, file: int, marks: str = "  ") -> str:
    """One line in the very format of lru_gen_seq_show."""
    return f" {seq:10} {age_ms:10} {anon:10}{marks[0]} {file:10}{marks[1]}\n"


PLAIN = (
    "memcg     1 /\n"
    " node     0\n"
    + generation(11, 60001, 12, 13)
    + generation(14, 15, 16, 17)
    + " node     1\n"
    + generation(18, 19, 20, 21)
    + "memcg    22 /user.slice/pagetier-ab-1\n"
    " node     0\n" + generation(23, 24, 25, 26) + "memcg    27 /other\n"
    " node     0\n" + generation(28, 29, 30, 31)
)
ROOT = MemcgGenerations(
    1,
    "/",
    (
        NodeGenerations(0, (Generation(11, 60001, 12, 13), Generation(14, 15, 16, 17))),
        NodeGenerations(1, (Generation(18, 19, 20, 21),)),
    ),
)
SCOPE = MemcgGenerations(
    22, "/user.slice/pagetier-ab-1", (NodeGenerations(0, (Generation(23, 24, 25, 26),)),)
)
OTHER = MemcgGenerations(27, "/other", (NodeGenerations(0, (Generation(28, 29, 30, 31),)),))


def test_every_number_from_its_place() -> None:
    assert parse_lru_gen(PLAIN) == (ROOT, SCOPE, OTHER)


def test_as_it_stands_in_a_snapshot() -> None:
    assert SCOPE.as_dict() == {
        "memcg": "/user.slice/pagetier-ab-1",
        "nodes": [
            {
                "node": 0,
                "generations": [{"seq": 23, "age_ms": 24, "anon_pages": 25, "file_pages": 26}],
            }
        ],
    }


def tiers(values: str) -> str:
    row = "".join(f" {0:10}{mark}" for mark in values)
    return "".join(f"            {tier:10}{row}\n" for tier in range(4))


def walks(marks: str) -> str:
    return " " * 22 + "".join(f" {7:10}{mark}" for mark in marks) + "\n"


# 6.1 marks nothing as ` ` and has six counts of page table walks, later kernels mark it as `x` and
# have four: just as many as a generation has columns.
@pytest.mark.parametrize("marks", ["      ", "LOYNFA", "xxxx", "tyfa", "    "])
def test_statistics_between_the_generations_are_passed_over(marks: str) -> None:
    text = (
        "memcg     1 /\n node     0\n"
        + generation(11, 12, 13, 14, marks="x ")
        + tiers("repRTx")
        + walks(marks)
        + generation(15, 16, 17, 18, marks=" x")
        + tiers("   rep")
        + walks(marks)
    )
    (memcg,) = parse_lru_gen(text)
    assert memcg.nodes[0].generations == (Generation(11, 12, 13, 14), Generation(15, 16, 17, 18))


def test_numbers_may_outgrow_their_columns() -> None:
    text = "memcg 123456789012 /\n node     0\n" + generation(10**12, 2**32 - 1, 10**11, 10**13)
    (memcg,) = parse_lru_gen(text)
    assert memcg.memcg_id == 123456789012
    assert memcg.nodes[0].generations == (Generation(10**12, 2**32 - 1, 10**11, 10**13),)


def test_kernel_without_memory_cgroups_has_the_root_alone() -> None:
    (memcg,) = parse_lru_gen("memcg     0 \n node     0\n" + generation(1, 2, 3, 4))
    assert (memcg.memcg_id, memcg.path) == (0, "/")


@pytest.mark.parametrize("path", ["/a b", "/x\x0by", "/memcg 1", "/a  b", "/\u2028"])
def test_names_of_cgroups_may_hold_all_but_a_newline(path: str) -> None:
    text = f"memcg     9 {path}\n node     0\n" + generation(1, 2, 3, 4)
    (memcg,) = parse_lru_gen(text)
    assert memcg.path == path


def test_what_is_not_wanted_is_not_looked_into() -> None:
    text = PLAIN + "memcg    40 /broken\n node     0\n what is this\n"
    assert parse_lru_gen(text, wanted=lambda path: path == "/other") == (OTHER,)
    assert parse_lru_gen("") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("memcg x /\n", r"lru_gen:1: memcg id is 'x'"),
        ("memcg \n", r"lru_gen:1: memcg id is ''"),
        (" node     0\n", r"lru_gen:1: 'node     0' stands before any memcg"),
        ("memcg     1 /\n node     y\n", r"lru_gen:2: node is 'y'"),
        (f"memcg     1 /\n{generation(1, 2, 3, 4)}", r"lru_gen:2: .* stands before any node"),
        ("memcg     1 /\n node     0\n 1 2 3\n", r"lru_gen:3: 3 columns, not generation, age_ms"),
        ("memcg     1 /\n node     0\n 1 2 3 4y\n", r"lru_gen:3: file_pages is '4y'"),
        ("memcg     1 /\n node     0\n 1 -2 3 4\n", r"lru_gen:3: age_ms is '-2'"),
    ],
)
def test_malformed(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_lru_gen(text)


def write(sys: Path, text: str) -> None:
    path = sys / "kernel/debug/lru_gen"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_reader_keeps_the_root_and_the_scope(tmp_path: Path) -> None:
    write(tmp_path, PLAIN)
    with GenerationReader(tmp_path, "pagetier-ab-1") as reader:
        assert reader.read() == (ROOT, SCOPE)
        write(tmp_path, PLAIN.replace(" 24 ", " 84 "))
        (_, later) = reader.read() or ()
    assert later.nodes[0].generations[0].age_ms == 84
    with GenerationReader(tmp_path, None) as reader:
        assert reader.read() == (ROOT,)


def test_kernel_that_does_not_show_them(tmp_path: Path) -> None:
    with GenerationReader(tmp_path, "pagetier-ab-1") as reader:
        assert reader.read() is None
