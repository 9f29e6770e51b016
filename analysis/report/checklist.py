# SPDX-License-Identifier: Apache-2.0
"""The reporting checklist, items A1 to D4: stated, not applicable, or missing, each with what.

It asks for choices to be stated, not for particular ones.  A campaign here replays on a real
system, so that the items on modelled replay are about its simulated yardstick.
"""

from collections.abc import Callable, Iterator

from pagetier.analysis.report.arms import arms_of
from pagetier.analysis.report.beside import Beside
from pagetier.analysis.report.block import Field, block_fields, block_text
from pagetier.analysis.report.reading import Study
from pagetier.analysis.report.section import Column, Section, Table

__all__ = ["Item", "checklist_items", "checklist_section"]

_COLUMNS = (
    Column("item", "item"),
    Column("asks", "asks for"),
    Column("status", "status"),
    Column("answer", "answer"),
)

STATED, NOT_APPLICABLE, MISSING = "stated", "not applicable", "missing"
Item = tuple[str, str, str, str]
_Of = Callable[..., Item]


def checklist_section(study: Study, beside: Beside) -> Section:
    """The block to paste, then every item."""
    fields = block_fields(study, beside)
    items = tuple(checklist_items(study, fields))
    missing = [item for item, _, status, _ in items if status == MISSING]
    told = f"Missing: {', '.join(missing)}." if missing else "Nothing is missing."
    return Section(
        key="checklist",
        title="Reporting checklist",
        prose=(f"{len(items)} items of a checklist for trace-driven expert caching. {told}",),
        tables=(Table("Items", _COLUMNS, items),),
        blocks=(block_text(fields),),
    )


def checklist_items(study: Study, fields: list[Field]) -> Iterator[Item]:
    """Every item in its order; what the block answers is taken from there."""
    by_name = {field.name: field for field in fields}

    def of(item: str, asks: str, *names: str) -> Item:
        found = [by_name[name] for name in names]
        status = STATED if all(field.known for field in found) else MISSING
        return item, asks, status, "; ".join(dict.fromkeys(field.value for field in found))

    yield from _execution(of)
    yield from _workload(of)
    yield from _regime(study, of)
    yield from _oracle(study, of)


def _execution(of: _Of) -> Iterator[Item]:
    yield of("A1", "the execution unit", "event unit")
    yield of("A2", "whether retention waits for the event's end", "retention decision")
    yield of("A3", "the order inside an event", "intra-event order (if immediate)")
    yield of("A4", "a small trace to check the replay with", "conformance trace")


def _workload(of: _Of) -> Iterator[Item]:
    yield of("B1", "templates, heads and final lines per category", "templates per category")
    yield of("B2", "whether the chat template was applied", "chat template applied")
    yield of("B3", "decode steps recorded", "decode steps recorded")
    yield of("B4", "whether requests are position-locked", "position-locked cohorts")
    yield of(
        "B5",
        "token agreement and unique sequences",
        "positional token agreement",
        "unique generated sequences",
    )
    yield of("B6", "overlap where texts barely overlap", "expert Jaccard | low-text-overlap")
    compares = "no categories of a workload are compared"
    yield "B7", "stability across decode positions", NOT_APPLICABLE, compares
    yield "B8", "a matched-pair control", NOT_APPLICABLE, compares


def _regime(study: Study, of: _Of) -> Iterator[Item]:
    yield of(
        "C1",
        "the union's distribution, capacity per layer and r",
        "union per layer-step",
        "capacity per layer",
        "r(s,l) = union / capacity",
    )
    yield of("C2", "the cache's scope", "cache scope")
    yield of("C3", "the miss denominator", "miss denominator")
    yield of("C4", "whether deduplication is credited", "dedup credited to policy")
    yield of("C5", "the service discipline", "service discipline", "concurrency")
    asks = "of every static baseline its fit, quota and initial load"
    if any(arm.spec.get("arena") is not None for arm in arms_of(study)):
        names = "static fit source", "static quota rule", "initial pinned load counted"
        yield of("C6", asks, *names)
    else:
        yield "C6", asks, NOT_APPLICABLE, "no cell has a static table"
    yield "C7", "models compared at equal r, not batch size", NOT_APPLICABLE, "one model"


def _oracle(study: Study, of: _Of) -> Iterator[Item]:
    yield of(
        "D1",
        "bytes per output token with a bandwidth budget",
        "absolute bytes per output token",
        "bandwidth budget assumed",
    )
    yield of("D2", "the gap's forced-admission decomposition", "forced-admission decomposition")
    yield (
        "D3",
        "no best-of-N batch as a scheduling gain",
        NOT_APPLICABLE,
        "no schedule is searched",
    )
    rejected = sum(cell.state == "rejected" for cell in study.results.cells)
    yield (
        "D4",
        "the scope of every negative result",
        STATED,
        f"each figure stands beside its cell's specification; {rejected} rejected cells are listed",
    )
