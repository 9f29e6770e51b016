# SPDX-License-Identifier: Apache-2.0
"""The minimal reporting block of trace-driven expert caching, filled from trace, simulation, run.

A field that these cannot answer says so; none is left out and none is guessed.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from pathlib import PurePath

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import arms_of
from pagetier.analysis.report.beside import Beside, offline_at
from pagetier.analysis.report.budget import bytes_per_token
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.workload import Workload

__all__ = ["Field", "block_fields", "block_text"]

_PROMPTS = "cannot be answered: a router trace holds no prompts"
_OUTPUTS = "cannot be answered: a router trace holds no tokens"
_WIDTH = 36


@dataclass(frozen=True, slots=True)
class Field:
    """One line of the block; `known` is False where the value says why there is none."""

    group: str
    name: str
    value: str
    known: bool


def block_fields(study: Study, beside: Beside) -> list[Field]:
    """Every field in the order of the block."""
    work = Workload.of(study, beside)
    return [
        *_fields("Execution model", _execution()),
        *_fields("Workload", _workload(work)),
        *_fields("Regime", _regime(work)),
        *_fields("Regime", _static(study)),
        *_fields("Oracle", _oracle(study, beside)),
    ]


def block_text(fields: list[Field]) -> str:
    """The block as it is pasted: names dotted to one column, groups apart."""
    parts = []
    for group, members in groupby(fields, key=lambda field: field.group):
        lines = [f"  {f'{field.name} '.ljust(_WIDTH, '.')} {field.value}" for field in members]
        parts.append("\n".join([group, *lines]))
    return "\n\n".join(parts)


_Answer = tuple[str, str | None, str]  # name, value, what to say without one


def _fields(group: str, answers: Iterator[_Answer]) -> Iterator[Field]:
    for name, value, otherwise in answers:
        yield Field(group, name, otherwise if value is None else value, value is not None)


def _execution() -> Iterator[_Answer]:
    yield "event unit", "per-access, on the device and in the simulated LRU alike", ""
    yield "retention decision", "immediate: the kernel's; simulated: at each access", ""
    yield "intra-event order (if immediate)", "as recorded by the router", ""
    yield "conformance trace", "yes: pagetier simulate --conformance", ""


def _workload(work: Workload) -> Iterator[_Answer]:
    iterations, requests = work.count("iterations"), work.count("requests")
    recorded = None if iterations is None else f"{iterations} over {requests} requests"
    yield "templates per category", None, _PROMPTS
    yield "distinct prompt heads / finals", None, _PROMPTS
    yield "chat template applied", None, _PROMPTS
    yield "decode steps recorded", recorded, "cannot be answered: no trace facts in the results"
    yield "position-locked cohorts", "no: requests are served one after another", ""
    yield "unique generated sequences", None, _OUTPUTS
    yield "positional token agreement", None, _OUTPUTS
    yield "expert Jaccard | low-text-overlap", None, _OUTPUTS
    yield "effect stable across position bands", "n/a: no categories are compared", ""


def _regime(work: Workload) -> Iterator[_Answer]:
    shape = [work.count(key) for key in ("num_experts", "top_k", "num_layers")]
    known = None if None in shape else " / ".join(map(str, shape))
    absent = "cannot be answered: no trace facts in the results"
    uncut = "cannot be answered: no cell has a limit on memory"
    yield "experts N, top-k, layers", known, absent
    yield "residency fraction rho", work.residency, uncut
    yield "cache scope", "global: one page cache for all layers", ""
    yield "union per layer-step", work.union_per_layer, absent
    yield "capacity per layer", work.capacity_per_layer, uncut
    yield "r(s,l) = union / capacity", work.pressure, "needs the trace: give it with --trace"
    yield "concurrency", "B = 1", ""
    yield "service discipline", "requests one after another, each step an iteration", ""
    yield "miss denominator", "pre-dedup: every read of an expert", ""
    yield "dedup credited to policy", "no: nothing is shared at B = 1", ""


def _static(study: Study) -> Iterator[_Answer]:
    tables = {
        str(arm.spec["arena"].get("table"))
        for arm in arms_of(study)
        if isinstance(arm.spec.get("arena"), dict)
    }
    names = ", ".join(
        "same trace (oracle)" if table == "oracle" else f"table {PurePath(table).name}"
        for table in sorted(tables)
    )
    rule = "the most read experts of all layers, until the arena is full"
    yield "static fit source", names or "n/a", ""
    yield "static quota rule", rule if tables else "n/a", ""
    yield "initial pinned load counted", "no: it is reported apart" if tables else "n/a", ""


def _oracle(study: Study, beside: Beside) -> Iterator[_Answer]:
    arms = [arm for arm in arms_of(study) if arm.capacity_bytes is not None]
    bounds = {
        arm.capacity_bytes: offline_at(beside.simulation, arm.capacity_bytes or 0) for arm in arms
    }
    found = {c: bound for c, bound in bounds.items() if bound is not None}
    shares = {
        c: f"{share:.2%} / {1 - share:.2%}"
        for c, bound in found.items()
        if (share := bound.admission_share) is not None
    }
    remedy = "needs pagetier simulate --json, with --simulation"
    yield "offline bound reported", "yes" if found else "no", ""
    yield "forced-admission decomposition", _each(shares), remedy
    yield (
        "absolute bytes per output token",
        _per_token(study),
        "cannot be answered: the trace does not say how many tokens were accepted",
    )
    yield (
        "bandwidth budget assumed",
        None,
        "none: no service rate is assumed; pagetier size --target-tokens-per-second sets one",
    )


def _each(values: dict[int | None, str]) -> str | None:
    return "; ".join(f"{formats.size(c)}: {text}" for c, text in values.items()) or None


def _per_token(study: Study) -> str | None:
    figure = bytes_per_token(lambda facts: facts.device_bytes)
    values = [value for arm in arms_of(study) if (value := arm.median(figure)) is not None]
    if not values:
        return None
    low, high = formats.size(min(values)), formats.size(max(values))
    return f"{low} to {high} from the device over {len(values)} arms"
