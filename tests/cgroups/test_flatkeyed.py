# SPDX-License-Identifier: Apache-2.0
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.cgroups.errors import ParseError
from pagetier.cgroups.flatkeyed import parse_flat_keyed

names = st.from_regex(r"[a-z_]{1,12}", fullmatch=True)
counts = st.integers(min_value=0, max_value=2**64 - 1)


@given(st.dictionaries(names, counts, min_size=1))
def test_every_name_keeps_its_own_value(values: dict[str, int]) -> None:
    text = "".join(f"{name} {value}\n" for name, value in values.items())
    assert parse_flat_keyed(text) == values


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "memory.stat: nothing in it"),
        ("\n\n", "memory.stat: nothing in it"),
        ("anon 1\nfile\n", "memory.stat:2: expected `name value`, found 'file'"),
        ("anon 1 2\n", "memory.stat:1: expected"),
        ("anon -1\n", "memory.stat:1: anon is '-1', not an unsigned number"),
        ("anon ٣\n", "memory.stat:1: anon is '"),
        ("anon 1\nanon 1\n", "memory.stat:2: anon appears twice"),
    ],
)
def test_malformed_text_names_its_line(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_flat_keyed(text, "memory.stat")
    assert str(caught.value).startswith(message)
