# SPDX-License-Identifier: Apache-2.0
"""Dropping the page cache: by a process of its own, on fake files and on a pipe nobody reads."""

import os
from pathlib import Path

import pytest

from pagetier.capacity.caches import drop_page_cache
from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.roots import Roots


def roots_of(folder: Path) -> tuple[Roots, Path]:
    path = folder / "sys/vm/drop_caches"
    path.parent.mkdir(parents=True)
    return Roots(proc=folder), path


def test_clean_pages_alone(tmp_path: Path) -> None:
    roots, path = roots_of(tmp_path)
    path.write_text("0\n")
    drop_page_cache(roots)
    assert path.read_text()[0] == "1"


def test_refusal_names_file_reason_and_remedy(tmp_path: Path) -> None:
    roots, path = roots_of(tmp_path)
    with pytest.raises(
        CapacityError, match=f"^{path}: .*: No such file or directory: mount procfs"
    ):
        drop_page_cache(roots)


def test_a_kernel_that_does_not_come_back_is_not_waited_for(tmp_path: Path) -> None:
    roots, path = roots_of(tmp_path)
    os.mkfifo(path)  # opening it blocks, for nobody reads
    with pytest.raises(CapacityError, match=r"took more than 0\.5 s"):
        drop_page_cache(roots, timeout_s=0.5)
