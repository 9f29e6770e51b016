# SPDX-License-Identifier: Apache-2.0
"""Modes that kernel and file system have or lack: asked of both, and nothing is left behind."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from pagetier.tiers.support import mode_problem


def refuse(monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    def refused(*_: Any) -> Any:
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(os, name, refused)


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_what_the_kernel_refuses_is_a_problem_with_a_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    refuse(monkeypatch, "preadv", code)
    problem = mode_problem("dontcache", tmp_path)
    assert problem is not None and "no RWF_DONTCACHE here" in problem
    assert problem.startswith(f"{tmp_path}: ")
    refuse(monkeypatch, "open", code)
    problem = mode_problem("direct", tmp_path)
    assert problem is not None and "no O_DIRECT" in problem


def test_what_cannot_be_asked_is_no_problem_yet(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert mode_problem("direct", tmp_path / "absent") is None
    refuse(monkeypatch, "open", errno.EACCES)
    assert mode_problem("dontcache", tmp_path) is None


@pytest.mark.parametrize("mode", ["pread", "drop-behind", "mmap"])
def test_other_modes_need_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    refuse(monkeypatch, "open", errno.EINVAL)
    assert mode_problem(mode, tmp_path) is None


def test_asking_leaves_nothing(tmp_path: Path) -> None:
    file = tmp_path / "f"
    file.write_bytes(b"x" * 5000)
    for mode in ("direct", "dontcache"):
        assert mode_problem(mode, tmp_path) == mode_problem(mode, tmp_path)
        mode_problem(mode, file)
    assert list(tmp_path.iterdir()) == [file]
    assert file.read_bytes() == b"x" * 5000
