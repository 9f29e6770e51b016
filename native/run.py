# SPDX-License-Identifier: Apache-2.0
"""One replay in C: its arguments, alive for as long as the call, and its outcome."""

import numpy as np
from numpy.typing import NDArray

from pagetier.native._core import ffi, lib
from pagetier.native.extents import PlanArrays
from pagetier.native.hints import HintArrays
from pagetier.native.passes import HintCounts, HintFailure, PassResult
from pagetier.native.seam import Call, CData, indices, pointer, text

__all__ = ["Run"]


class Run:
    """One call of pt_reader_replay."""

    def __init__(self, reader: CData, plan: PlanArrays, hints: HintArrays | None) -> None:
        self.fault: CData = ffi.new("struct pt_fault *")
        self._keep_alive: list[NDArray[np.generic]] = []
        self._plan = self._make_plan(plan)
        self._hints = ffi.NULL if hints is None else self._make_hints(hints)
        self._pass: CData = ffi.new("struct pt_pass *")
        iterations = int(self._plan.num_iterations)
        self._ends = np.zeros(iterations, dtype=np.int64)
        self._histogram = np.zeros(lib.PT_HISTOGRAM_BUCKETS, dtype=np.int64)
        self._sums = np.zeros((lib.PT_COLUMNS, iterations), dtype=np.int64)
        self._pass.iteration_end_ns = _counters(self._ends)
        self._pass.latency_histogram = _counters(self._histogram)
        self._pass.sums = _counters(self._sums.reshape(-1))
        self.call = Call(
            "pagetier-replay",
            lambda: int(
                lib.pt_reader_replay(reader, self._plan, self._hints, self._pass, self.fault)
            ),
        )

    def check_content(self, every: int, seed: int, hashed: bool) -> None:
        """Ask for the content of every n-th read to be compared, and of every read to be hashed."""
        self._pass.verify_every = every
        self._pass.content_seed = seed
        self._pass.hash_content = int(hashed)

    def compare_digests(self, digests: NDArray[np.uint64], experts: int) -> None:
        """Compare with the digest of each of so many experts, and not with what the seed gives."""
        digest = indices("expert_digests", digests, np.uint64)
        if len(digest) != experts:
            raise ValueError(f"expert_digests must have one of each expert, {experts}")
        self._pass.expert_digest = pointer("uint64_t[]", digest)
        self._keep_alive.append(digest)

    def pass_result(
        self, *, residency: bool, direct: bool, arena: bool, paths: tuple[str, ...]
    ) -> PassResult:
        """What was counted; None for what this kind of reader does not measure."""
        absent_known = residency or direct
        return PassResult(
            start_ns=int(self._pass.start_ns),
            iteration_end_ns=self._ends,
            iteration_bytes=self._sums[lib.PT_BYTES],
            iteration_reads=self._sums[lib.PT_READS],
            iteration_first_bytes=self._column(lib.PT_FIRST_BYTES, absent_known),
            iteration_repeat_bytes=self._column(lib.PT_REPEAT_BYTES, absent_known),
            latency_histogram=self._histogram,
            user_ns=int(self._pass.user_ns),
            system_ns=int(self._pass.system_ns),
            verified_reads=int(self._pass.verified_reads),
            iteration_resident_bytes=self._column(lib.PT_RESIDENT_BYTES, residency),
            iteration_over_read_bytes=self._column(lib.PT_OVER_READ_BYTES, direct),
            iteration_arena_reads=self._column(lib.PT_ARENA_READS, arena),
            iteration_arena_bytes=self._column(lib.PT_ARENA_BYTES, arena),
            content_hash=int(self._pass.content_hash) if self._pass.hash_content else None,
            hints=None if self._hints == ffi.NULL else self._hint_counts(residency, paths),
        )

    def _make_plan(self, plan: PlanArrays) -> CData:
        experts = indices("experts", plan.experts, np.uint32)
        records = indices("record_start", plan.record_start, np.uint64, at_least=1)
        iterations = indices("iteration_start", plan.iteration_start, np.uint64, at_least=1)
        made: CData = ffi.new("struct pt_plan *")
        made.experts = pointer("uint32_t[]", experts)
        made.num_reads = len(experts)
        made.record_start = pointer("uint64_t[]", records)
        made.num_records = len(records) - 1
        made.iteration_start = pointer("uint64_t[]", iterations)
        made.num_iterations = len(iterations) - 1
        self._keep_alive += [experts, records, iterations]
        return made

    def _make_hints(self, hints: HintArrays) -> CData:
        start = indices("hint_start", hints.hint_start, np.uint64, at_least=1)
        experts = indices("hint_experts", hints.hint_experts, np.uint32)
        records = int(self._plan.num_records)
        if len(start) != records + 1:
            raise ValueError(
                f"hint_start must have {records + 1} entries for {records} records, not "
                f"{len(start)}"
            )
        made: CData = ffi.new("struct pt_hints *")
        made.start = pointer("uint64_t[]", start)
        made.experts = pointer("uint32_t[]", experts)
        made.num_experts = len(experts)
        self._keep_alive += [start, experts]
        return made

    def _column(self, column: int, measured: bool) -> NDArray[np.int64] | None:
        return self._sums[column] if measured else None

    def _hint_counts(self, residency: bool, paths: tuple[str, ...]) -> HintCounts:
        return HintCounts(
            submitted=self._sums[lib.PT_HINT_SUBMITTED],
            overwritten=self._sums[lib.PT_HINT_OVERWRITTEN],
            completed=self._sums[lib.PT_HINT_COMPLETED],
            failed=self._sums[lib.PT_HINT_FAILED],
            hinted_bytes=self._sums[lib.PT_HINT_BYTES],
            resident_before_bytes=self._column(lib.PT_HINT_RESIDENT_BEFORE, residency),
            resident_after_bytes=self._column(lib.PT_HINT_RESIDENT_AFTER, residency),
            brought_bytes=self._column(lib.PT_HINT_BROUGHT_BYTES, residency),
            raced_bytes=self._column(lib.PT_HINT_RACED_BYTES, residency),
            lost_bytes=self._column(lib.PT_HINT_LOST_BYTES, residency),
            used_bytes=self._column(lib.PT_HINT_USED_BYTES, residency),
            evicted_bytes=self._column(lib.PT_HINT_EVICTED_BYTES, residency),
            unused_bytes=int(self._pass.hint_unused_bytes) if residency else None,
            first_failure=self._first_failure(paths),
            busy_ns=int(self._pass.hint_busy_ns),
            user_ns=int(self._pass.hint_user_ns),
            system_ns=int(self._pass.hint_system_ns),
        )

    def _first_failure(self, paths: tuple[str, ...]) -> HintFailure | None:
        if self._pass.hint_result == 0:
            return None
        fault = self._pass.hint_fault
        return HintFailure(
            errno=-int(self._pass.hint_result),
            call=text(fault.call),
            path=paths[fault.file],
            offset=int(fault.offset),
            expert=int(fault.expert),
        )


def _counters(array: NDArray[np.int64]) -> CData:
    return ffi.cast("uint64_t *", pointer("int64_t[]", array))
