# SPDX-License-Identifier: Apache-2.0
"""The parser in C and the full JSON parser take the same records and refuse the same ones."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.records import RecordColumns
from pagetier.native.routes import RouteKeys, RouteParser, first_repeated

KEYS = RouteKeys("layer", "experts", "req", "phase", "step", "weights")
Outcome = tuple[Any, ...]


class FullParser(RecordColumns):
    """Sends every line through the full JSON parser."""

    def _add_plain(self, lines: memoryview) -> int:
        return 0


def outcome(block: bytes, keys: RouteKeys, plain: bool) -> Outcome:
    """The columns, or the message; without `plain` every line goes through the full parser."""
    columns = RecordColumns(Path("f"), keys, 1) if plain else FullParser(Path("f"), keys, 1)
    try:
        columns.add_block(block)
    except InputError as error:
        return str(error), len(columns)
    weights = columns.weights
    return (
        columns.request.names,
        columns.request.numbers.tolist(),
        columns.phase.names,
        columns.phase.numbers.tolist(),
        columns.step.tolist(),
        columns.layer.tolist(),
        columns.width.tolist(),
        columns.experts.tolist(),
        None if weights is None else weights.tolist(),
    )


def same(block: bytes, keys: RouteKeys = KEYS) -> Outcome:
    fast = outcome(block, keys, plain=True)
    assert fast == outcome(block, keys, plain=False)
    return fast


def record(**changes: Any) -> dict[str, Any]:
    plain = {"req": "a", "phase": "decode", "step": 0, "layer": 1, "experts": [3, 5]}
    return {**plain, "weights": [0.75, 0.25], **changes}


FIRST = json.dumps(record()).encode() + b"\n"

LINES = [
    b'{"req":"b","phase":"decode","step":1,"layer":0,"experts":[1,2],"weights":[0.5,0.5]}',
    b' { "weights" : [ 1 , 0 ] , "experts" : [ 7 ] , "x" : null , "req" : 4 } ',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1e-3,2.5E+1]} \r',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":1.5e3}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":"\xc3\xa4"}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":[1,{}]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":truely}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":01}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":1.}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":-}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5],"t":"a\tb"}',
    b'{"req":"\\u0062","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]}',
    b'{"r\\u0065q":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]}',
    b'{"req":"b","req":"c","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[9],"experts":[1,2],"weights":[1,2]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[01,2],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[-1,-0],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[999999999,1000000000],"weights":[1,2]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[2147483648,1],"weights":[1,2]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1.0,2],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2,],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1 2],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[],"weights":[]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[-0.0,1]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[-1,1]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1e400,1]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[NaN,1]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":null}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2]}',
    b'{"req":null,"phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]}',
    b'{"req":"b","phase":true,"step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":-1,"layer":0,"experts":[1,2],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1e0,"layer":0,"experts":[1,2],"weights":[1,0.5]}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]}}',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]',
    b'{"req":"b","phase":"p","step":1,"layer":0,"experts":[1,2],"weights":[1,0.5]} x',
    b'{,"req":"b"}',
    b"",
    b"{}",
    b"\x00",
]


@pytest.mark.parametrize("line", LINES)
@pytest.mark.parametrize("end", [b"\n", b"\n" + FIRST, b""])
def test_both_parsers_agree_on_a_line(line: bytes, end: bytes) -> None:
    same(FIRST + FIRST + line + end)
    same(line + end)


def test_plain_records_are_taken_by_the_parser_in_c() -> None:
    block = FIRST * 10
    parsed = RouteParser(KEYS).parse(block)
    assert (parsed.taken_bytes, len(parsed.width)) == (len(block), 10)
    assert [(change.record, change.token) for change in parsed.requests] == [(0, b'"a"')]
    assert RouteParser(KEYS).parse(FIRST + b"{}\n" + FIRST).taken_bytes == len(FIRST)


def test_more_records_and_reads_than_one_parse_holds() -> None:
    wide = json.dumps(record(experts=[*range(3000)], weights=[0.5] * 3000)).encode() + b"\n"
    found = same(FIRST * 40_000 + wide * 100)
    assert len(found[6]) == 40_100
    assert len(found[7]) == 80_000 + 300_000


def test_a_record_wider_than_the_columns() -> None:
    wide = json.dumps(record(experts=[7] * 300_000, weights=[0.5] * 300_000)).encode()
    assert same(FIRST + wide + b"\n" + FIRST)[6] == [2, 300_000, 2]


VALUES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 12), st.integers(), st.floats(), st.text(max_size=4)
)
RECORDS = st.fixed_dictionaries(
    {},
    optional={
        "req": st.one_of(st.sampled_from(["a", "b", 3]), VALUES),
        "phase": st.one_of(st.sampled_from(["p", "d"]), VALUES),
        "step": st.one_of(st.integers(0, 9), VALUES),
        "layer": st.one_of(st.integers(0, 9), VALUES),
        "experts": st.one_of(st.lists(st.integers(0, 9), max_size=4), VALUES, st.lists(VALUES)),
        "weights": st.one_of(st.lists(st.floats(0, 1), max_size=4), VALUES, st.lists(VALUES)),
        "other": VALUES,
    },
)


@settings(deadline=None, max_examples=300)
@given(st.lists(RECORDS, max_size=4), st.booleans(), st.sampled_from([None, 1]))
def test_both_parsers_agree_on_any_record(
    items: list[dict[str, Any]], ascii_only: bool, indent: int | None
) -> None:
    texts = [json.dumps(item, ensure_ascii=ascii_only, indent=indent) for item in items]
    lines = [text.replace("\n", " ").encode("utf-8", "surrogatepass") for text in texts]
    same(FIRST + b"\n".join(lines))


@settings(deadline=None, max_examples=300)
@given(st.data())
def test_both_parsers_agree_on_any_mutation(data: st.DataObject) -> None:
    block = bytearray(FIRST * 3)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(len(FIRST), len(block) - 1))
        block[at] = data.draw(st.sampled_from(list(b'0123456789-+.eE,:[]{}" \n\t\\x\xc3')))
    same(bytes(block))


@settings(deadline=None, max_examples=200)
@given(st.floats(0, 1e300), st.integers(1, 25))
def test_weights_are_rounded_as_everywhere(weight: float, digits: int) -> None:
    for text in (repr(weight), f"{weight:.{digits}e}", f"{weight % 1:.{digits}f}"):
        line = FIRST.replace(b"0.75", text.encode())
        found = same(FIRST + line)
        assert found[8][2] == float(text)
    assert math.isfinite(weight)


@given(st.lists(st.lists(st.sampled_from([0, 1, 2, 3, 65536, 65537, 131072]), max_size=5)))
def test_the_first_repeated_id(rows: list[list[int]]) -> None:
    """Ids that differ by a multiple of 65,536 share a slot of the check."""
    flat = [expert for row in rows for expert in row]
    starts = np.cumsum([0, *map(len, rows)]).astype(np.uint64)
    expected, at = None, 0
    for row in rows:
        for place, expert in enumerate(row):
            if expected is None and expert in row[:place]:
                expected = at + place
        at += len(row)
    assert first_repeated(np.array(flat, np.uint32), starts) == expected
