# SPDX-License-Identifier: Apache-2.0
"""Verifies a pool: every file there, of its size, and every byte of every expert right.

Reads the whole pool, from the device where it is not cached, and drops each expert from the page
cache behind itself.  What is right is computed for a pool that was made; in a mapped one it is what
was read the first time.
"""

import os
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from pagetier.analysis.errors import InputError
from pagetier.native import content
from pagetier.native.residency import resident_pages
from pagetier.tiers.filesystem import explain, opened_regular
from pagetier.tiers.models.pool import MappedPool
from pagetier.tiers.models.verify import verify_mapped
from pagetier.tiers.pool import FLAT_NAME, Pool, UniformPool
from pagetier.tiers.workers import Claims, ProgressCallback, run_threads

__all__ = ["BadExpert", "check_pool"]

MAX_THREADS = 4

Complaint = tuple[int | None, str]


@dataclass(frozen=True, slots=True)
class BadExpert:
    """What is wrong with an expert; `offset` is where in its file, None when the file is."""

    layer: int
    expert: int
    file: Path
    offset: int | None
    what: str

    def __str__(self) -> str:
        where = self.file if self.offset is None else f"{self.file}, byte {self.offset}"
        return f"{where}: layer {self.layer} expert {self.expert}: {self.what}"


def check_pool(pool: Pool, on_progress: ProgressCallback | None = None) -> BadExpert | None:
    """The bad expert of the lowest number, or None; InputError when the pool may not be read."""
    if isinstance(pool, MappedPool):
        return _check_mapped(pool, on_progress)
    assert isinstance(pool, UniformPool)
    return _check_made(pool, on_progress)


def _check_mapped(pool: MappedPool, on_progress: ProgressCallback | None) -> BadExpert | None:
    wrong = verify_mapped(pool, on_progress)
    if wrong is None:
        return None
    layer, index = divmod(wrong.expert, pool.num_experts)
    return BadExpert(layer, index, Path(wrong.path), wrong.offset, wrong.what)


def _check_made(pool: UniformPool, on_progress: ProgressCallback | None) -> BadExpert | None:
    check = _Check(pool, on_progress)
    threads = max(2, min(MAX_THREADS, os.cpu_count() or 1))
    with pool.opened() as root_fd:
        run_threads(lambda: check.work(root_fd), threads, check.tick, check.stop)
        if check.first_bad is None:
            _forget_shared_pages(pool, root_fd)
    return check.first_bad


class _Check:
    def __init__(self, pool: UniformPool, on_progress: ProgressCallback | None) -> None:
        self.first_bad: BadExpert | None = None
        self._pool = pool
        self._on_progress = on_progress
        self._claims = Claims(pool.total_experts)
        # To the end of the file, where the expert has it for itself.
        self._drop_bytes = 0 if pool.layout == "files" else pool.expert_bytes
        self._lock = threading.Lock()
        self._checked = 0
        self._lowest = pool.total_experts

    def work(self, root_fd: int) -> None:
        # Numbers are handed out in ascending order and finished once handed out, so all below the
        # lowest bad one have been looked at, whichever thread found it.
        for expert in self._claims:
            bad = self._look(root_fd, expert)
            with self._lock:
                self._checked += 1
                if bad is not None and expert < self._lowest:
                    self._lowest, self.first_bad = expert, bad
                    self._claims.end_before(expert)

    def tick(self) -> None:
        if self._on_progress is not None:
            self._on_progress(self._checked * self._pool.expert_bytes, self._pool.total_bytes)

    def stop(self) -> None:
        self._claims.end_before(0)

    def _look(self, root_fd: int, expert: int) -> BadExpert | None:
        name, start = self._pool.locate(expert)
        try:
            with opened_regular(root_fd, name) as fd:
                complaint = self._complaint(fd, expert, start)
                # Only whole pages go: an edge page may be in use for a neighbour.
                os.posix_fadvise(fd, start, self._drop_bytes, os.POSIX_FADV_DONTNEED)
        except PermissionError as error:
            raise InputError(f"{self._pool.root / name}: {explain(error)}") from error
        except OSError as error:
            complaint = (None, explain(error))
        if complaint is None:
            return None
        layer, index = divmod(expert, self._pool.num_experts)
        return BadExpert(layer, index, self._pool.root / name, *complaint)

    def _complaint(self, fd: int, expert: int, start: int) -> Complaint | None:
        pool = self._pool
        size_bytes = os.fstat(fd).st_size
        if size_bytes < start + pool.expert_bytes:
            return size_bytes, f"the file ends at byte {size_bytes} of {pool.file_bytes}"
        if size_bytes > pool.file_bytes and start + pool.expert_bytes == pool.file_bytes:
            return pool.file_bytes, f"the file has {size_bytes} bytes and not {pool.file_bytes}"
        wrong = content.verify(fd, start, pool.expert_bytes, pool.seed, expert)
        if wrong is None:
            return None
        return start + wrong, f"byte {wrong} of the expert is not what seed {pool.seed} gives"


def _forget_shared_pages(pool: UniformPool, root_fd: int) -> None:
    """Drops the pages of a flat pool that lie in two experts, or were read ahead.

    Readahead still in flight stays cached, so there is a second and a third look.
    """
    if pool.layout != "flat":
        return
    with pool.opened_file(root_fd, FLAT_NAME) as fd:
        for pause_s in (0.0, 0.02, 0.1, 0.5):
            time.sleep(pause_s)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            if not resident_pages(fd, 0, pool.file_bytes):
                return
