# SPDX-License-Identifier: Apache-2.0
"""The routed experts of a running engine, as they come: a growing trace file, or stdin.

Line 1 is the header of a ``moe-route-trace``, each other line a record; only its layer and experts
are looked at.  `poll` never waits: it takes what whole lines are there.  Memory is bounded: a line
longer than any record is refused, and of a file that was long before we came only the last part is
replayed, after its header.  A file that shrank was started anew.
"""

import os
import select
import stat
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from pagetier.analysis.errors import InputError
from pagetier.analysis.online import OnlineLru
from pagetier.analysis.traces.header import json_object, parse_header, short

__all__ = ["Feed", "read_record"]

_FLAGS = os.O_RDONLY | os.O_CLOEXEC
_MAX_LINE_BYTES = 1 << 22
# What is caught up with in one go; at 20 KB a record of the largest models, thousands of them.
_MOST_PER_POLL_BYTES = 32 << 20


def read_record(where: str, line: bytes, num_layers: int, num_experts: int) -> list[int]:
    """Global ids of the experts that a record routed to, in recorded order."""
    record = json_object(where, line)
    layer, experts = record.get("layer"), record.get("experts")
    if type(layer) is not int or not 0 <= layer < num_layers:
        raise InputError(f"{where}: layer is {short(layer)}: expected one of 0..{num_layers - 1}")
    if not isinstance(experts, list) or not all(
        type(expert) is int and 0 <= expert < num_experts for expert in experts
    ):
        raise InputError(
            f"{where}: experts are {short(experts)}: expected a list of ids 0..{num_experts - 1}"
        )
    return [layer * num_experts + expert for expert in experts]


class Feed:
    """Reads records into an LRU; a context manager that closes its file.  `-` is stdin."""

    def __init__(self, source: str, shape: tuple[int, int], expert_bytes: Sequence[int]) -> None:
        self._path = Path("stdin" if source == "-" else source)
        self._shape = shape
        self.lru = OnlineLru(expert_bytes)
        self.ended = False
        self._rest = b""
        self._line = 0
        try:
            self._fd = os.dup(sys.stdin.fileno()) if source == "-" else os.open(source, _FLAGS)
        except OSError as error:
            raise InputError(
                f"{source}: {error.strerror}: name a trace file that the engine writes"
            ) from error
        self._is_file = stat.S_ISREG(os.fstat(self._fd).st_mode)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)

    def poll(self) -> None:
        """Replay every record that is there by now."""
        self._look_for_a_new_start()
        left = _MOST_PER_POLL_BYTES
        while left > 0 and (piece := self._read(min(left, 1 << 18))):
            left -= len(piece)
            *lines, self._rest = (self._rest + piece).split(b"\n")
            for line in lines:
                self._take(line + b"\n")
                if self._line == 1 and self._skip_what_is_old():
                    break
            if len(self._rest) > _MAX_LINE_BYTES:
                raise InputError(
                    f"{self._path}:{self._line + 1}: the line is longer than {_MAX_LINE_BYTES} B, "
                    "as no record is"
                )

    def _read(self, most: int) -> bytes:
        # Not by O_NONBLOCK: that would also be set for whoever else has our stdin.
        if not self._is_file and not select.select([self._fd], [], [], 0)[0]:
            return b""
        piece = os.read(self._fd, most)
        self.ended = not piece and not self._is_file
        return piece

    def _take(self, line: bytes) -> None:
        self._line += 1
        where = f"{self._path}:{self._line}"
        if self._line > 1:
            self.lru.read(read_record(where, line, *self._shape))
            return
        header = parse_header(self._path, line)
        if (header.num_layers, header.num_experts) != self._shape:
            raise InputError(
                f"{where}: {header.num_layers} layers of {header.num_experts} experts, but the "
                f"pool has {self._shape[0]} of {self._shape[1]}: name the pool that is served"
            )

    def _skip_what_is_old(self) -> bool:
        """Go on near the end of a file that has grown long before we came."""
        if not self._is_file:
            return False
        start = os.fstat(self._fd).st_size - _MOST_PER_POLL_BYTES
        if start <= os.lseek(self._fd, 0, os.SEEK_CUR):
            return False
        # The line in whose middle that is has no beginning here: go on with the next one.
        piece = os.pread(self._fd, _MAX_LINE_BYTES, start)
        os.lseek(self._fd, start + piece.find(b"\n") + 1, os.SEEK_SET)
        self._rest = b""
        return True

    def _look_for_a_new_start(self) -> None:
        if self._is_file and os.fstat(self._fd).st_size < os.lseek(self._fd, 0, os.SEEK_CUR):
            os.lseek(self._fd, 0, os.SEEK_SET)
            self._rest, self._line = b"", 0
