# SPDX-License-Identifier: Apache-2.0
"""File pages by generation of the MGLRU over a measured pass, from the timeline's samples.

A sample may hold `lru_gen`: memory cgroups with their nodes and generations, as `/sys/kernel/debug/
lru_gen` lists them.  The scope's own are shown, else those of the root.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from pagetier.analysis.counters import number, series
from pagetier.analysis.naming import mapping
from pagetier.analysis.report.reading import Point
from pagetier.analysis.report.section import Figure, FigurePoint, Panel, Series
from pagetier.analysis.report.timeline import MAX_BINS, Clock
from pagetier.analysis.results import Pass

__all__ = ["generations_figure"]

# The kernel keeps two to four generations (MIN_NR_GENS, MAX_NR_GENS in include/linux/mmzone.h).
_NAMES = ("youngest", "second", "third", "oldest of four")


def generations_figure(point: Point) -> Figure | None:
    """None where fewer than two samples have generations, or none of them has a page."""
    replay = point.cell.passes["measured"]
    clock = Clock.of(replay)
    samples = list(_samples(replay))
    if clock is None or len(samples) < 2 or not any(sum(pages) for _, pages in samples):
        return None
    step = -(-len(samples) // MAX_BINS)
    samples = samples[::step]
    at = clock.iteration_at(np.array([at_ns for at_ns, _ in samples], np.float64))
    return Figure(
        key="generations",
        title="Generations",
        x="iteration of the measured pass",
        y="file pages by generation",
        scale="linear",
        series=tuple(
            Series(
                name,
                "measured",
                tuple(
                    FigurePoint(float(x), *(float(pages[rank]),) * 3, 1)
                    for x, (_, pages) in zip(at, samples, strict=True)
                ),
                "pages",
            )
            for rank, name in enumerate(_NAMES)
        ),
        form="generations",
        note="One cell (n=1). Pages of one generation move to the next as new ones are opened.",
        panels=(Panel("pages", "file pages", "count"),),
    )


def _samples(replay: Pass) -> Iterator[tuple[int, list[int]]]:
    """Time and file pages of each generation from the youngest, over all nodes."""
    for snapshot in series(replay):
        at_ns = number(snapshot, "at_ns")
        nodes = _nodes(snapshot.get("lru_gen"))
        if at_ns is None or not nodes:
            continue
        pages = [0] * len(_NAMES)
        for node in nodes:
            for rank, generation in enumerate(reversed(_list(node, "generations"))):
                pages[min(rank, len(pages) - 1)] += number(mapping(generation), "file_pages") or 0
        yield at_ns, pages


def _nodes(memcgs: Any) -> list[Any]:
    found = [mapping(memcg) for memcg in memcgs] if isinstance(memcgs, list) else []
    # Below the root there is the scope alone: a reader names the ones it wants.
    found.sort(key=lambda memcg: memcg.get("memcg") == "/")
    return _list(found[0], "nodes") if found else []


def _list(value: Any, key: str) -> list[Any]:
    found = mapping(value).get(key)
    return found if isinstance(found, list) else []
