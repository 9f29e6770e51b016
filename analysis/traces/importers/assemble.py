# SPDX-License-Identifier: Apache-2.0
"""From the routes of a file to a trace: prefill cut, numbers made canonical, rules applied.

Nothing is mended silently: what is left out by rule is said in a note, and what breaks a rule is an
InputError, unless `repair` is asked for, which then says what it did.
"""

from pathlib import Path

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Int32, Trace, TraceHeader, starts_of
from pagetier.analysis.traces.header import MAX_INT32
from pagetier.analysis.traces.importers.iterations import steps_of
from pagetier.analysis.traces.importers.layers import map_layers, map_physical
from pagetier.analysis.traces.importers.options import ImportOptions
from pagetier.analysis.traces.importers.prefill import drop_prefill
from pagetier.analysis.traces.importers.repair import drop_broken_iterations
from pagetier.analysis.traces.importers.routes import Routes
from pagetier.analysis.traces.importers.unrecorded import drop_unrecorded
from pagetier.analysis.traces.rules import View, first_problem

__all__ = ["assemble"]


def assemble(path: Path, routes: Routes, options: ImportOptions) -> tuple[Trace, tuple[str, ...]]:
    """The trace in `routes`, whose file is `path`, and what was left out of it."""
    routes = map_layers(path, routes, options.layers)
    _require_records(path, routes)
    routes = drop_unrecorded(routes)
    routes = map_physical(path, routes, options.physical_map)
    _require_records(path, routes)
    top_k = options.top_k or routes.geometry.top_k or int(routes.width.min())
    routes = drop_prefill(path, routes, top_k, options)
    _require_records(path, routes)
    header = _header(path, routes, top_k, options)
    if options.repair:
        routes = drop_broken_iterations(routes, header)
        _require_records(path, routes)
    return _checked(path, routes, header), routes.notes


def _require_records(path: Path, routes: Routes) -> None:
    if not len(routes):
        said = f" ({'; '.join(routes.notes)})" if routes.notes else ""
        raise InputError(f"{path}: no decode records are in the file{said}: record some")


def _header(path: Path, routes: Routes, top_k: int, options: ImportOptions) -> TraceHeader:
    num_layers = routes.geometry.num_layers or int(routes.layer.max()) + 1
    num_experts = options.num_experts or routes.geometry.num_experts
    if num_experts is None:
        raise InputError(
            f"{path}: the file does not say how many experts a layer has: give --num-experts"
            f" (the highest id is {routes.experts.max()})"
        )
    if not 1 <= top_k <= num_experts or num_experts * num_layers > MAX_INT32:
        raise InputError(
            f"{path}: {num_layers} layers of {num_experts} experts, top-{top_k}, is no model: check"
            " --num-experts, --top-k and --layers"
        )
    return TraceHeader(
        model=options.model or routes.geometry.model or path.name.partition(".")[0] or "unknown",
        num_layers=num_layers,
        num_experts=num_experts,
        top_k=top_k,
        domain=options.domain,
    )


def _checked(path: Path, routes: Routes, header: TraceHeader) -> Trace:
    names, request = _as_first_seen(routes)
    view = View(
        header=header,
        names=names,
        request=request,
        step=steps_of(routes),
        layer=routes.layer,
        record_start=starts_of(routes.width),
        experts=routes.experts.view(np.uint32),
    )
    problem = first_problem(view)
    if problem is not None:
        raise InputError(f"{routes.where(problem.record)}: {problem.message}")
    last = int(view.layer[-1])
    if last != header.num_layers - 1:
        raise InputError(
            f"{routes.where(len(routes) - 1)}: the file ends after layer {last} of"
            f" 0..{header.num_layers - 1}: it was cut; --repair leaves the last step out"
        )
    return view.trace(routes.weights, None)


def _as_first_seen(routes: Routes) -> tuple[tuple[str | int, ...], Int32]:
    """Names and numbers of the requests that are left, numbered as they first appear."""
    numbers, first = np.unique(routes.request, return_index=True)
    order = np.argsort(first)
    names = tuple(routes.names[number] for number in numbers[order].tolist())
    if np.array_equal(numbers[order], np.arange(len(routes.names))):
        return names, routes.request
    renumbered = np.zeros(len(routes.names), np.int32)
    renumbered[numbers[order]] = np.arange(len(numbers), dtype=np.int32)
    return names, renumbered[routes.request]
