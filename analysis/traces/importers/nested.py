# SPDX-License-Identifier: Apache-2.0
"""JSON documents whose nested lists of expert ids stay text until they are asked for.

As Python objects such lists take ten times the room of their numbers.  So they are cut out before
the document is parsed, and parsed some positions at a time.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

__all__ = ["Document", "NestedText", "parse"]

# A key in quotes is no part of a text, where quotes are escaped; behind it nothing but lists of
# whole numbers.
_LISTS = re.compile(rb'(?<!\\)"(?:prompt_)?routed_experts"\s*:\s*(\[[][0-9,\s-]*\])')
_END_OF_A_POSITION = re.compile(rb"\]\s*\]\s*(?=,)")
_PIECE_BYTES = 1 << 18
# In the place of what was cut out: text that the document has nowhere.
_MARK = "\0"
_MARK_IN_JSON = b"\\u0000"


@dataclass(frozen=True, slots=True)
class NestedText:
    """Lists of whole numbers in a document.  All may raise JSONDecodeError or RecursionError."""

    content: bytes | bytearray
    start: int
    end: int

    def items(self) -> Iterator[Any]:
        """The items of the outermost list, where they are lists of lists.

        Other lists may be cut at a place where they cannot be parsed.
        """
        at, opening = self.start + 1, b"["
        while True:
            found = _END_OF_A_POSITION.search(self.content, at + _PIECE_BYTES, self.end - 1)
            stop = self.end - 1 if found is None else found.end()
            items = json.loads(opening + bytes(self.content[at:stop]) + b"]")
            yield from items[len(opening) - 1 :]
            if found is None:
                return
            # What follows starts with the comma.
            at, opening = stop, b"[0"

    def whole(self) -> list[Any]:
        """All of it at once."""
        value: list[Any] = json.loads(self.content[self.start : self.end])
        return value


@dataclass(frozen=True, slots=True)
class Document:
    """A document, and the lists that were cut out of it."""

    value: Any
    lists: dict[str, NestedText]

    def lists_of(self, value: object) -> object:
        """What stands at a place of the document: its lists, if they were cut out there."""
        return self.lists.get(value, value) if isinstance(value, str) else value


def parse(content: bytes | bytearray) -> Document:
    """The document; ValueError or RecursionError when the rest of it is no JSON."""
    lists: dict[str, NestedText] = {}
    rest = bytearray()
    at = 0
    for found in _LISTS.finditer(content) if _MARK_IN_JSON not in content else ():
        start, end = found.span(1)
        # Ends at something else than a number or a list: for the parser to say what.
        if content.count(b"[", start, end) != content.count(b"]", start, end):
            continue
        mark = f"{_MARK}{len(lists)}"
        lists[mark] = NestedText(content, start, end)
        rest += content[at:start] + json.dumps(mark).encode()
        at = end
    if not lists:
        return Document(json.loads(content), lists)
    rest += content[at:]
    return Document(json.loads(rest), lists)
