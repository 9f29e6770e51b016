# SPDX-License-Identifier: Apache-2.0
"""Files of prompts: two forms, and a line for everything that is neither."""

import json
import re
from pathlib import Path

import pytest

from pagetier.analysis.errors import InputError
from pagetier.bench.engine import prompts
from pagetier.bench.engine.prompts import Prompt, by_domain, read_prompts


def write(path: Path, text: str) -> Path:
    path.write_text(text)
    return path


def test_json_lines_have_a_domain_each(tmp_path: Path) -> None:
    lines = [
        '{"domain": "code", "prompt": "int main"}',
        "",
        '{"domain": "prose", "tokens": [3, 1, 3]}',
        '  {"domain": "code", "tokens": [0]}  ',
    ]
    found = read_prompts(write(tmp_path / "p.jsonl", "\n".join(lines)))
    assert found == [
        Prompt(0, "code", "int main"),
        Prompt(1, "prose", (3, 1, 3)),
        Prompt(2, "code", (0,)),
    ]
    assert by_domain(found) == {"code": [found[0], found[2]], "prose": [found[1]]}


def test_text_has_the_domain_of_its_file(tmp_path: Path) -> None:
    path = write(tmp_path / "my-words.txt", "\ufeffOnce\r\n\n{not json}\n")
    assert read_prompts(path) == [
        Prompt(0, "my-words", "Once"),
        Prompt(1, "my-words", "{not json}"),
    ]


def test_json_lines_are_known_by_their_first_line(tmp_path: Path) -> None:
    path = write(tmp_path / "p.txt", '{"domain": "a", "prompt": "b"}\n')
    assert read_prompts(path) == [Prompt(0, "a", "b")]


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("nonsense", "is no JSON"),
        ("[" * 100_000, "is no JSON"),
        ("[1]", "names no domain"),
        ('{"prompt": "x"}', "names no domain"),
        ('{"domain": "a"}', "is no prompt of one kind"),
        ('{"domain": "a", "prompt": "x", "tokens": [1]}', "is no prompt of one kind"),
        ('{"domain": "a", "promt": "x"}', "is no prompt of one kind"),
        ('{"domain": "a", "prompt": ""}', "holds no text"),
        ('{"domain": "a", "prompt": null}', "holds no text"),
        ('{"domain": "a", "tokens": []}', "no whole numbers"),
        ('{"domain": "a", "tokens": [1, true]}', "no whole numbers"),
        ('{"domain": "a", "tokens": [1.5]}', "no whole numbers"),
        ('{"domain": "../x", "prompt": "x"}', "cannot name a file"),
        ('{"domain": ".x", "prompt": "x"}', "cannot name a file"),
        ('{"domain": "", "prompt": "x"}', "cannot name a file"),
    ],
)
def test_what_is_no_prompt_is_named_by_its_line(tmp_path: Path, line: str, message: str) -> None:
    good = '{"domain": "code", "prompt": "x"}'
    path = write(tmp_path / "p.jsonl", f"{good}\n\n{line}\n")
    with pytest.raises(InputError, match=f"{re.escape(str(path))}:3: .*{re.escape(message)}"):
        read_prompts(path)


def test_a_file_must_hold_prompts_of_a_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="holds no prompt"):
        read_prompts(write(tmp_path / "p.txt", "\n \n"))
    with pytest.raises(InputError, match=r"cannot be read \(Is a directory\)"):
        read_prompts(tmp_path)
    latin = tmp_path / "latin.txt"
    latin.write_bytes(b"ok\n\xe9\n")
    with pytest.raises(InputError, match=r"latin\.txt:2: is no UTF-8"):
        read_prompts(latin)
    monkeypatch.setattr(prompts, "MAX_FILE_BYTES", 10)
    with pytest.raises(InputError, match="has more than"):
        read_prompts(write(tmp_path / "p.txt", json.dumps("x" * 20)))
