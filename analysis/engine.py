# SPDX-License-Identifier: Apache-2.0
"""What a decoding engine's cells must show, and how its arms are compared.

A cell of an engine is one process that decodes a request twice under one limit; its output is a
list of token ids.  Rules here stand beside those of `verdict`.  Two arms are compared pair by pair:
the same request, limit and round.  A pair counts only when both cells are kept, their ids are the
same and so is their backend.

Keys read here: spec {arm, prompt, domain, mechanism, capacity_bytes, repetition, engine {backend}};
facts.engine {backend, tokens, weights_bytes, experts_bytes, anon_bytes, load_device_bytes}; of each
pass result.tokens.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from pagetier.analysis.counters import number, process_read_bytes, series
from pagetier.analysis.naming import mapping
from pagetier.analysis.results import Cell
from pagetier.analysis.units import format_bytes

__all__ = [
    "MMAP_ARMS",
    "REPLAY",
    "Pair",
    "degenerate",
    "engine_reasons",
    "is_decoded",
    "output_sha256",
    "pairs_of",
]

REPLAY = "replay"
"""The arm that no engine runs: its captured routing, read by pagetier."""

MMAP_ARMS = ("mmap", "no-admission", "mlock")
"""Arms whose weights stay in the mapping of their file."""

# Fewer tokens prove neither variety nor the lack of it.
_LEAST_TOKENS = 8
_LEAST_DISTINCT_SHARE = 0.1
# Of what a token asks for, some may be resident still: pages in flight, edges of other tensors.
_NOT_ADMITTED_SHARE = 0.9


def is_decoded(cell: Cell) -> bool:
    """Whether an engine ran in it: its passes are decoded tokens and not a replay."""
    return cell.spec.get("arm") not in (None, REPLAY)


def output_sha256(tokens: Sequence[int]) -> str:
    """Digest of token ids in their order: of their decimals with a space between."""
    return hashlib.sha256(" ".join(map(str, tokens)).encode()).hexdigest()


def degenerate(tokens: Sequence[int]) -> str | None:
    """Why an output is no text: one token fills more than half of it in one run, or fewer than a
    tenth of its tokens differ.  None of a good one, and of fewer than 8 tokens."""
    if len(tokens) < _LEAST_TOKENS:
        return None
    run = max(len(list(same)) for _, same in groupby(tokens))
    if 2 * run > len(tokens):
        return f"one token fills {run} of {len(tokens)} places in a row"
    distinct = len(set(tokens))
    if distinct < _LEAST_DISTINCT_SHARE * len(tokens):
        return f"its {len(tokens)} tokens are {distinct} different ones"
    return None


# ---- one cell -----------------------------------------------------------------------------------


def engine_reasons(cell: Cell) -> Iterator[str]:
    """Why a cell of an engine does not measure the arm that it names; nothing for other cells."""
    if not is_decoded(cell):
        return
    yield from _other_backend(cell)
    yield from _not_loaded_cold(cell)
    yield from _output_differs(cell)
    yield from _weights_copied(cell)
    yield from _lock_missing(cell)
    yield from _admitted(cell)


def _other_backend(cell: Cell) -> Iterator[str]:
    found = mapping(cell.facts.get("engine")).get("backend")
    wanted = mapping(cell.spec.get("engine")).get("backend")
    if cell.passes and found != wanted:
        yield f"the engine's backend is {found}, {wanted} was expected"


def _not_loaded_cold(cell: Cell) -> Iterator[str]:
    read = number(cell.facts, "engine", "load_device_bytes")
    if cell.passes and not read:
        shown = "unknown" if read is None else f"{read} B"
        yield (
            f"the device's count while the engine loaded a cold model is {shown}: this is not its"
            " device, or its block accounting (queue/iostats) is off"
        )


def _output_differs(cell: Cell) -> Iterator[str]:
    """From the output of the run whose routing was captured, which the demand is counted from."""
    wanted = mapping(cell.facts.get("engine")).get("tokens")
    for replay in cell.passes.values():
        found = replay.result.get("tokens")
        if found != wanted:
            yield f"the {replay.name} pass decoded {_first_difference(wanted, found)}"
    why = degenerate(wanted) if isinstance(wanted, list) else "it was not recorded"
    if cell.passes and why is not None:
        yield f"the output is degenerate: {why}"


def _first_difference(wanted: Any, found: Any) -> str:
    if not isinstance(wanted, list) or not isinstance(found, list):
        return "tokens that were not recorded"
    pairs = enumerate(zip(wanted, found, strict=False))
    for place, (before, after) in pairs:
        if before != after:
            return f"token {after} at place {place}, where the captured run has {before}"
    return f"{len(found)} tokens, the captured run {len(wanted)}"


def _weights_copied(cell: Cell) -> Iterator[str]:
    anon = number(cell.facts, "engine", "anon_bytes")
    experts = number(cell.facts, "engine", "experts_bytes")
    if cell.spec.get("arm") not in MMAP_ARMS or anon is None or experts is None:
        return
    if anon >= experts:
        yield (
            f"the process holds {format_bytes(anon)} of anonymous memory beside a mapping with"
            f" {format_bytes(experts)} of experts: the engine copied its weights"
        )


def _lock_missing(cell: Cell) -> Iterator[str]:
    wanted = number(cell.facts, "engine", "weights_bytes")
    if cell.spec.get("arm") != "mlock" or wanted is None:
        return
    for replay in cell.passes.values():
        found = [number(shot, "process", "vm_lck_bytes") for shot in series(replay)]
        least = min((value for value in found if value is not None), default=None)
        if least is None or least < wanted:
            shown = "unknown" if least is None else format_bytes(least)
            yield (
                f"VmLck of the engine is {shown} in the {replay.name} pass, its weights are"
                f" {format_bytes(wanted)}"
            )


def _admitted(cell: Cell) -> Iterator[str]:
    measured = cell.passes.get("measured")
    if cell.spec.get("arm") != "no-admission" or measured is None:
        return
    read, demand = process_read_bytes(measured), sum(row.bytes for row in measured.iterations)
    if read is not None and read < _NOT_ADMITTED_SHARE * demand:
        yield (
            f"{format_bytes(read)} were read of the {format_bytes(demand)} that the tokens asked"
            " for: what was dropped after each token was in memory again"
        )


# ---- two arms -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class Pair:
    """An arm beside the first arm: the same request, limit and round.

    `problems` are why it counts in nothing; empty of a pair that does.  `identical` is whether both
    decoded the same ids, None where one of them decoded nothing.
    """

    arm: str
    first: Cell | None
    second: Cell
    identical: bool | None
    problems: tuple[str, ...]


def pairs_of(cells: Sequence[Cell], first_arm: str) -> list[Pair]:
    """Every cell of another arm that an engine decoded in, with its partner of `first_arm`."""
    partners = {_place(cell): cell for cell in cells if cell.spec.get("arm") == first_arm}
    return [
        _pair(partners.get(_place(cell)), cell)
        for cell in cells
        if is_decoded(cell) and cell.spec.get("arm") != first_arm
    ]


def _place(cell: Cell) -> tuple[Any, ...]:
    keys = ("prompt", "mechanism", "capacity_bytes", "repetition")
    return tuple(cell.spec.get(key) for key in keys)


def _pair(first: Cell | None, second: Cell) -> Pair:
    arm = str(second.spec.get("arm"))
    if first is None:
        return Pair(arm, None, second, None, ("its partner was not measured",))
    identical = _identical(first, second)
    problems = [
        f"the cell of {cell.spec.get('arm')} is rejected"
        for cell in (first, second)
        if cell.state != "kept"
    ]
    if identical is not True:
        problems.append("the outputs differ" if identical is False else "an output is missing")
    backends = {mapping(cell.facts.get("engine")).get("backend") for cell in (first, second)}
    if len(backends) > 1:
        problems.append(f"the backends are {' and '.join(sorted(map(str, backends)))}")
    return Pair(arm, first, second, identical, tuple(problems))


def _identical(first: Cell, second: Cell) -> bool | None:
    outputs = [_output(cell) for cell in (first, second)]
    return None if None in outputs else outputs[0] == outputs[1]


def _output(cell: Cell) -> Any:
    measured = cell.passes.get("measured")
    return None if measured is None else measured.result.get("tokens")
