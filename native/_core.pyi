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
    def buffer(self, cdata: CData) -> CData: ...
    def unpack(self, cdata: CData, length: int) -> CData: ...
    def from_buffer(
        self, cdecl: str, python_buffer: object, require_writable: bool = False
    ) -> CData: ...

ffi: _FFI

class _Lib:
    PT_HISTOGRAM_BUCKETS: int
    PT_NONE: int
    PT_ARENA_SLOT_BYTES: int
    PT_PREAD: int
    PT_MMAP: int
    PT_POPULATE: int
    PT_DIRECT: int
    PT_DONTCACHE: int
    PT_DROP_BEHIND: int
    PT_BARRIER_RECORD: int
    PT_BARRIER_ITERATION: int
    PT_BARRIER_NONE: int
    PT_ADVICE_DEFAULT: int
    PT_ADVICE_RANDOM: int
    PT_ADVICE_SEQUENTIAL: int
    PT_RESIDENCY_OFF: int
    PT_RESIDENCY_CACHESTAT: int
    PT_RESIDENCY_MINCORE: int
    PT_DELIVERY_ADVICE: int
    PT_DELIVERY_BLOCKING: int
    PT_READS: int
    PT_BYTES: int
    PT_FIRST_BYTES: int
    PT_REPEAT_BYTES: int
    PT_RESIDENT_BYTES: int
    PT_OVER_READ_BYTES: int
    PT_ARENA_READS: int
    PT_ARENA_BYTES: int
    PT_HINT_SUBMITTED: int
    PT_HINT_OVERWRITTEN: int
    PT_HINT_COMPLETED: int
    PT_HINT_FAILED: int
    PT_HINT_BYTES: int
    PT_HINT_RESIDENT_BEFORE: int
    PT_HINT_RESIDENT_AFTER: int
    PT_HINT_BROUGHT_BYTES: int
    PT_HINT_RACED_BYTES: int
    PT_HINT_LOST_BYTES: int
    PT_HINT_USED_BYTES: int
    PT_HINT_EVICTED_BYTES: int
    PT_COLUMNS: int
    PT_ROUTES_STAMPS: int

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
    def pt_histogram_bucket(self, value: int) -> int: ...
    def pt_page_bytes(self) -> int: ...
    def pt_pages_touched(self, offset: int, length: int) -> int: ...
    def pt_cachestat_pages(self, fd: int, offset: int, length: int) -> int: ...
    def pt_mincore_trusted(self, fd: int) -> int: ...
    def pt_mincore_pages(self, fd: int, offset: int, length: int) -> int: ...
    def pt_mincore_mapped_pages(self, address: CData, length: int) -> int: ...
    def pt_arena_open(
        self,
        pool: CData,
        experts: CData,
        num_experts: int,
        huge_pages: int,
        arena: CData,
        fault: CData,
    ) -> int: ...
    def pt_arena_lock(self, arena: CData, fault: CData) -> int: ...
    def pt_arena_preload(self, arena: CData, preload: CData, fault: CData) -> int: ...
    def pt_arena_bytes(self, arena: CData) -> int: ...
    def pt_arena_progress(self, arena: CData) -> int: ...
    def pt_arena_cancel(self, arena: CData) -> None: ...
    def pt_arena_close(self, arena: CData) -> None: ...
    def pt_digest(self, bytes: CData, length: int, seed: int) -> int: ...
    def pt_reader_descriptors(
        self, pool: CData, options: CData, descriptors: CData, fault: CData
    ) -> int: ...
    def pt_reader_kept_files(self, reader: CData) -> int: ...
    def pt_reader_open(
        self, pool: CData, options: CData, arena: CData, reader: CData, fault: CData
    ) -> int: ...
    def pt_reader_replay(
        self, reader: CData, plan: CData, hints: CData, result: CData, fault: CData
    ) -> int: ...
    def pt_reader_progress(self, reader: CData, progress: CData) -> None: ...
    def pt_reader_cancel(self, reader: CData) -> None: ...
    def pt_reader_close(self, reader: CData) -> None: ...
    def pt_routes_parse(self, text: CData, length: int, keys: CData, columns: CData) -> int: ...
    def pt_routes_distinct(
        self, experts: CData, starts: CData, records: int, stamps: CData
    ) -> int: ...
    def pt_sim_run(self, policy: int, stream: CData, hit: CData) -> int: ...
    def pt_sim_lru_distances(self, stream: CData, distance: CData) -> int: ...
    def pt_sim_belady_distances(self, stream: CData, distance: CData) -> int: ...

lib: _Lib
