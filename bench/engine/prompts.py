# SPDX-License-Identifier: Apache-2.0
"""Prompts of a file: JSON Lines with a domain each, or plain text with one prompt a line.

JSON Lines are ``{"domain": "code", "prompt": "text"}``, or ``"tokens": [ids]`` for a model without
a tokenizer.  A line of plain text is a prompt of the domain that the file is named after.
InputError with file and line for anything else.
"""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from pagetier.analysis.errors import InputError

__all__ = ["Prompt", "by_domain", "read_prompts"]

MAX_FILE_BYTES: Final = 64 << 20
# Domains name files.
_DOMAIN: Final = re.compile(r"[\w-][\w.-]{0,99}")
_FORMS: Final = '{"domain": "code", "prompt": "text"} or {"domain": "code", "tokens": [1, 2]}'


@dataclass(frozen=True, slots=True)
class Prompt:
    """A request's text, or its ids; `number` counts the prompts of the file."""

    number: int
    domain: str
    content: str | tuple[int, ...]


def read_prompts(path: Path) -> list[Prompt]:
    """The prompts of `path`, in order; never none."""
    lines = _lines(path)
    if not lines:
        raise InputError(f"{path}: holds no prompt; write one on each line")
    as_json = path.suffix == ".jsonl" or _is_prompt_object(lines[0][1])
    found = []
    for number, (line, text) in enumerate(lines):
        where = f"{path}:{line}"
        domain, content = _parsed(where, text) if as_json else (path.stem, text)
        if not _DOMAIN.fullmatch(domain):
            raise InputError(
                f"{where}: domain {domain[:40]!r} cannot name a file; use letters, digits, . _ -"
            )
        found.append(Prompt(number, domain, content))
    return found


def by_domain(prompts: list[Prompt]) -> dict[str, list[Prompt]]:
    """The prompts of each domain, in the order in which domains first appear."""
    found: dict[str, list[Prompt]] = {}
    for prompt in prompts:
        found.setdefault(prompt.domain, []).append(prompt)
    return found


def _lines(path: Path) -> list[tuple[int, str]]:
    """Lines that are not blank, with their numbers."""
    try:
        with open(path, "rb") as file:
            raw = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); name a file of prompts"
        ) from error
    if len(raw) > MAX_FILE_BYTES:
        raise InputError(f"{path}: has more than {MAX_FILE_BYTES >> 20} MiB; split it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise InputError(f"{path}:{line}: is no UTF-8; save the prompts as UTF-8") from error
    lines = enumerate(text.split("\n"), 1)
    return [(number, line.strip()) for number, line in lines if line.strip()]


def _is_prompt_object(line: str) -> bool:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and bool({"prompt", "tokens"} & value.keys())


def _parsed(where: str, line: str) -> tuple[str, str | tuple[int, ...]]:
    try:
        value = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: is no JSON ({error}); expected {_FORMS}") from error
    if not isinstance(value, dict) or not isinstance(value.get("domain"), str):
        raise InputError(f"{where}: names no domain; expected {_FORMS}")
    unknown = sorted(value.keys() - {"domain", "prompt", "tokens"})
    if unknown or ("prompt" in value) is ("tokens" in value):
        raise InputError(f"{where}: is no prompt of one kind; expected {_FORMS}")
    return value["domain"], _content(where, value)


def _content(where: str, value: dict[str, Any]) -> str | tuple[int, ...]:
    text, tokens = value.get("prompt"), value.get("tokens")
    if isinstance(text, str) and text:
        return text
    if isinstance(tokens, list) and {*map(type, tokens)} == {int}:
        return tuple(tokens)
    raise InputError(f"{where}: holds no text and no whole numbers; expected {_FORMS}")
