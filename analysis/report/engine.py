# SPDX-License-Identifier: Apache-2.0
"""What an engine's decoding cost under each way of holding its weights, and whether a replay of its
routing reads what it read.

Every figure is of the decoded tokens of the measured request: loading and the prompt are in none.
Ratios are of pairs that count (`pagetier.analysis.engine`); a pair that does not is listed with its
reason.  Bytes are per token.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from pagetier.analysis.derive import derive_cell
from pagetier.analysis.engine import REPLAY, Pair, pairs_of
from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import (
    Arm,
    FigureOf,
    arms_of,
    device_bytes,
    mean_of,
    nominal_bytes,
    ratio_of,
    tokens_seconds,
)
from pagetier.analysis.report.capacity import EMULATED
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Section, Table
from pagetier.analysis.results import Cell
from pagetier.analysis.stats import Ratio, paired_ratio

__all__ = ["engine_section", "is_engine_study"]

_PLACE = (
    Column("mechanism", "mechanism"),
    Column("capacity_bytes", "C", formats.capacity),
    Column("prompt", "prompt"),
    Column("domain", "domain"),
)
_ARMS = (
    *_PLACE,
    Column("arm", "arm"),
    Column("n", "n"),
    Column("pairs", "pairs that count"),
    Column("identical", "identical output"),
    Column("s_per_token", "s/token median [min-max]", formats.spread_of(formats.three_digits)),
    Column("time_ratio", "time / first arm [min-max]", formats.ratio),
    Column("demand_bytes", "demand", formats.size),
    Column("device_bytes", "device", formats.spread_of(formats.size)),
    Column("own_bytes", "own reads", formats.spread_of(formats.size)),
    Column("nominal_bytes", "nominal (simulated)", formats.size),
    Column("labels", "remarks"),
)
_CHECK = (
    *_PLACE,
    Column("n", "n"),
    Column("ratio", "replay / engine, own reads [min-max]", formats.ratio),
    Column("device_ratio", "replay / engine, device [min-max]", formats.ratio),
    Column("engine_bytes", "engine: own reads", formats.spread_of(formats.size)),
    Column("replay_bytes", "replay: own reads", formats.spread_of(formats.size)),
    Column("first", "replay: first", formats.size),
    Column("repeat", "replay: repeat", formats.size),
    Column("over_read", "replay: over-read", formats.size),
    Column("nominal_bytes", "nominal (simulated)", formats.size),
)
_PROBLEMS = (*_PLACE, Column("arm", "arm"), Column("round", "round"), Column("why", "why"))

_PROSE = (
    "Bytes are per decoded token of the measured request, which follows a warm-up of the same"
    " request in the same process; loading and the prompt are in no figure. device: for anyone; own"
    " reads: read_bytes of the cell's process. demand and nominal are of the routing captured in an"
    " untimed run with the same output; nominal is an exact LRU of whole experts of C less the"
    " spine, after warm-up and prompt, and every read without admission.",
    "A pair counts when both cells are kept and decoded the same ids on the same backend. Times are"
    " of the decoding itself: what dropping pages took is not in them.",
)
_CHECK_PROSE = (
    "The check replays the captured routing, prompts included, on the mapped model with one thread,"
    " as many bytes locked as the spine has, and twice the readahead window (llama.cpp declares its"
    " file sequential). An engine's reads cannot be split, for nobody looks at residency before"
    " its faults; those of the replay can: repeat is what had been evicted, over-read what a fault"
    " read around its page. Where the two differ, several threads of the engine fault in several"
    " places of an expert at once, and each reads around its own: compare with threads: 1. And an"
    " engine touches only some rows of the embedding, which is wholly locked in the replay.",
)


def is_engine_study(study: Study) -> bool:
    """Whether an engine decoded in its cells."""
    return any(cell.spec.get("arm") is not None for cell in study.results.cells)


def engine_section(study: Study) -> Section | None:
    """None of a campaign without an engine."""
    if not is_engine_study(study):
        return None
    arms = arms_of(study)
    first = _first_arm(study)
    pairs = pairs_of(study.results.cells, first)
    checks = tuple(_checks(arms))
    tables = (
        Table("Arms of the engine", _ARMS, tuple(_arm_rows(study, arms, pairs))),
        Table("A replay of the same routing", _CHECK, checks),
        Table("Pairs that do not count", _PROBLEMS, tuple(_problems(pairs))),
    )
    prose = (*_PROSE, *(_CHECK_PROSE if checks else ()))
    return Section(
        key="engine",
        title=f"An engine's decoding: every arm beside {first}",
        prose=prose if study.times_count else (EMULATED, *prose),
        tables=tuple(table for table in tables if table.rows),
    )


def _first_arm(study: Study) -> str:
    arms = study.results.campaign.get("arms")
    return str(arms[0]) if isinstance(arms, list) and arms else "mmap"


def _place(arm: Arm) -> tuple[Any, ...]:
    return tuple(arm.spec.get(key) for key in ("mechanism", "capacity_bytes", "prompt", "domain"))


def _arm_rows(study: Study, arms: list[Arm], pairs: list[Pair]) -> Iterator[tuple[Any, ...]]:
    for arm in sorted(arms, key=lambda arm: (_order(arm), str(arm.spec.get("arm")))):
        if arm.spec.get("arm") == REPLAY:
            continue
        own = [pair for pair in pairs if pair.second.id in {cell.id for cell in arm.cells}]
        yield (
            *_place(arm),
            arm.spec.get("arm"),
            arm.n,
            _counted(own),
            _identical(own),
            arm.spread(tokens_seconds) if study.times_count else None,
            _time_ratio(own) if study.times_count else None,
            arm.median(mean_of(lambda facts: facts.demand_bytes)),
            arm.spread(device_bytes),
            arm.spread(_own_bytes),
            arm.median(nominal_bytes),
            "; ".join(arm.labels) or None,
        )


def _order(arm: Arm) -> tuple[Any, ...]:
    mechanism, capacity, prompt, _ = _place(arm)
    return mechanism != "none", str(mechanism), -(capacity or 0), prompt


_own_bytes: FigureOf = mean_of(lambda facts: facts.process_bytes)


def _counted(pairs: list[Pair]) -> str | None:
    """None of the first arm, which is in every pair."""
    return f"{sum(not pair.problems for pair in pairs)} of {len(pairs)}" if pairs else None


def _identical(pairs: list[Pair]) -> bool | None:
    known = [pair.identical for pair in pairs]
    if not known or None in known:
        return None
    return all(known)


def _time_ratio(pairs: list[Pair]) -> Ratio | None:
    """Decoding time of the second arm of a pair over that of the first."""
    good = [(pair.first, pair.second) for pair in pairs if not pair.problems]
    seconds = [(_seconds(first), _seconds(second)) for first, second in good if first is not None]
    known = [(a, b) for a, b in seconds if a is not None and b is not None]
    return paired_ratio([b for _, b in known], [a for a, _ in known])


def _seconds(cell: Cell) -> float | None:
    return tokens_seconds(derive_cell(cell))


# ---- the check ----------------------------------------------------------------------------------


def _checks(arms: list[Arm]) -> Iterator[tuple[Any, ...]]:
    """Each replay beside the engine's plain mmap of the same prompt and limit."""
    plain = {_place(arm): arm for arm in arms if arm.spec.get("arm") == "mmap"}
    for replay in sorted((arm for arm in arms if arm.spec.get("arm") == REPLAY), key=_order):
        engine = plain.get(_place(replay))
        if engine is None:
            continue
        yield (
            *_place(replay),
            min(engine.n, replay.n),
            ratio_of(replay, engine, _own_bytes),
            ratio_of(replay, engine, device_bytes),
            engine.spread(_own_bytes),
            replay.spread(_own_bytes),
            replay.median(mean_of(lambda facts: facts.ledger.first)),
            replay.median(mean_of(lambda facts: facts.ledger.repeat)),
            replay.median(mean_of(lambda facts: facts.ledger.over_read)),
            replay.median(nominal_bytes),
        )


def _problems(pairs: Iterable[Pair]) -> Iterator[tuple[Any, ...]]:
    for pair in pairs:
        if pair.problems:
            spec = pair.second.spec
            place = (
                spec.get(key) for key in ("mechanism", "capacity_bytes", "prompt", "domain", "arm")
            )
            yield (*place, spec.get("repetition"), "; ".join(pair.problems))
