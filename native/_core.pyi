# SPDX-License-Identifier: Apache-2.0
"""Types of the extension that build_core.py makes; the C headers document the functions."""

from typing import Any

# Pointers and structures of C, whose fields cffi checks when they are used.
CData = Any

class _FFI:
    NULL: CData
    def new(self, cdecl: str, init: object = None) -> CData: ...
    def cast(self, cdecl: str, source: CData) -> CData: ...
    def string(self, cdata: CData) -> bytes: ...
    def from_buffer(
        self, cdecl: str, python_buffer: object, require_writable: bool = False
    ) -> CData: ...

ffi: _FFI

class _Lib:
    PT_HISTOGRAM_BUCKETS: int
    PT_NONE: int
    PT_PREAD: int
    PT_MMAP: int
    PT_BARRIER_RECORD: int
    PT_BARRIER_ITERATION: int
    PT_BARRIER_NONE: int
    PT_ADVICE_DEFAULT: int
    PT_ADVICE_RANDOM: int
    PT_ADVICE_SEQUENTIAL: int
    PT_RESIDENCY_OFF: int
    PT_RESIDENCY_CACHESTAT: int
    PT_RESIDENCY_MINCORE: int

    def pt_content_fill(
        self, buffer: CData, length: int, seed: int, expert: int, offset: int
    ) -> None: ...
    def pt_content_mismatch(
        self, buffer: CData, length: int, seed: int, expert: int, offset: int
    ) -> int: ...
    def pt_content_write(
        self,
        fd: int,
        file_offset: int,
        length: int,
        seed: int,
        expert: int,
        written: CData,
        cancel: CData,
    ) -> int: ...
    def pt_content_verify(
        self, fd: int, file_offset: int, length: int, seed: int, expert: int, mismatch: CData
    ) -> int: ...
    def pt_die_with_parent(self, expected_parent: int) -> int: ...
    def pt_page_bytes(self) -> int: ...
    def pt_pages_touched(self, offset: int, length: int) -> int: ...
    def pt_cachestat_pages(self, fd: int, offset: int, length: int) -> int: ...
    def pt_mincore_trusted(self, fd: int) -> int: ...
    def pt_mincore_pages(self, fd: int, offset: int, length: int) -> int: ...
    def pt_mincore_mapped_pages(self, address: CData, length: int) -> int: ...
    def pt_reader_open(self, pool: CData, options: CData, reader: CData, fault: CData) -> int: ...
    def pt_reader_replay(self, reader: CData, plan: CData, result: CData, fault: CData) -> int: ...
    def pt_reader_progress(self, reader: CData, progress: CData) -> None: ...
    def pt_reader_cancel(self, reader: CData) -> None: ...
    def pt_reader_close(self, reader: CData) -> None: ...

lib: _Lib
