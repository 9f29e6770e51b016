# SPDX-License-Identifier: Apache-2.0
"""Lists of ids that stay text: what json.loads would have made of them, and its errors."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.importers import ImportOptions, import_files, nested
from pagetier.analysis.traces.importers.nested import NestedText, parse

Write = Callable[[str, str], Path]

OPTIONS = ImportOptions(num_experts=64)


def as_parsed(text: str) -> object:
    """The value of the document with what was cut out put back."""
    document = parse(text.encode())

    def back(part: object) -> object:
        part = document.lists_of(part)
        if isinstance(part, NestedText):
            return part.whole()
        if isinstance(part, list):
            return [back(item) for item in part]
        return {k: back(item) for k, item in part.items()} if isinstance(part, dict) else part

    return back(document.value)


numbers = st.integers(-1, 2**31)
routes = st.lists(st.lists(st.lists(numbers, max_size=3), max_size=3), max_size=5)
leaves = st.none() | st.booleans() | numbers | st.floats(allow_nan=False) | st.text(max_size=4)
others = st.recursive(leaves, lambda inner: st.lists(inner, max_size=3), max_leaves=6)
keys = st.sampled_from(["routed_experts", "prompt_routed_experts", "text", '"routed_experts": [[['])
documents = st.recursive(
    st.dictionaries(keys, routes | others, max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner | routes, max_size=3),
    max_leaves=5,
)


@given(documents, st.sampled_from([None, 0, 3]), st.booleans())
def test_nothing_of_a_document_is_lost(value: object, indent: int | None, ascii_: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_)
    assert as_parsed(text) == value


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(routes, st.sampled_from([None, 0, 3]), st.integers(0, 40))
def test_lists_of_lists_are_parsed_piece_by_piece(
    monkeypatch: pytest.MonkeyPatch, value: Any, indent: int | None, piece_bytes: int
) -> None:
    monkeypatch.setattr(nested, "_PIECE_BYTES", piece_bytes)
    [text] = parse(json.dumps({"routed_experts": value}, indent=indent).encode()).lists.values()
    assert list(text.items()) == text.whole() == value


def test_only_lists_of_whole_numbers_are_cut_out() -> None:
    for value in ("[[[1, 2]], [[1.5, 3]]]", "[[[1]], null]", '[[["1"]]]', '"AAAA"', "7"):
        assert not parse(f'{{"routed_experts": {value}}}'.encode()).lists
    assert not parse(b'{"text": "\\"routed_experts\\": [[[1]]]"}').lists
    assert not parse(b'{"no \\"routed_experts": [[[1]]]}').lists
    assert not parse(b'{"text": "\\u00000", "routed_experts": [[[1]]]}').lists


@pytest.mark.parametrize("value", ["[[[1]]],[[[2]]]", "[[[1]],]", "[[[01]]]", "[[[1 2]]]", "[-]"])
def test_what_is_cut_out_has_to_be_json(write: Write, value: str) -> None:
    path = write("f.json", f'{{"choices": [{{"routed_experts": {value}}}]}}')
    with pytest.raises(InputError, match=r"choices\[0\]: routed_experts is not JSON"):
        import_files([path], OPTIONS)


def test_lists_too_deep(write: Write) -> None:
    path = write("f.json", '{"routed_experts": ' + "[" * 90_000 + "]" * 90_000 + "}")
    with pytest.raises(InputError, match="routed_experts is nested too deep to be routes"):
        import_files([path], OPTIONS)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("[1, 2]", r"\[0\] is no list of layers"),
        ("[[1, 2]]", r"\[0\]\[0\] is no list of whole numbers"),
        ("[[[[1, 2]], [[3, 4]]], [[[5, 6]]]]", r"\[0\]\[0\] is no list of whole numbers"),
        ("[[], []]", "is empty"),
    ],
)
def test_lists_of_another_depth(
    monkeypatch: pytest.MonkeyPatch, write: Write, value: str, message: str
) -> None:
    monkeypatch.setattr(nested, "_PIECE_BYTES", 1)
    path = write("f.json", f'{{"choices": [{{"routed_experts": {value}}}]}}')
    with pytest.raises(InputError, match=message):
        import_files([path], OPTIONS)
