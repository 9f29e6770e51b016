# SPDX-License-Identifier: Apache-2.0
"""Importing: the format is told by the file's first bytes, or by name."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Trace
from pagetier.analysis.traces.importers.assemble import assemble
from pagetier.analysis.traces.importers.big_moe import BIG_MOE
from pagetier.analysis.traces.importers.cache_lab import CACHE_LAB
from pagetier.analysis.traces.importers.colibri import ROUTE_TRACE
from pagetier.analysis.traces.importers.counts import detects_counts
from pagetier.analysis.traces.importers.cross import drop_synthetic
from pagetier.analysis.traces.importers.engine_jsonl import CANONICAL, ENGINE_JSONL
from pagetier.analysis.traces.importers.llama_cpp import LLAMA_CALLS, LLAMA_LOG, LLAMA_POSITIONS
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.responses import RESPONSES
from pagetier.analysis.traces.importers.sglang import RECORDER
from pagetier.analysis.traces.importers.source import Source
from pagetier.analysis.traces.importers.subset import join_requests
from pagetier.analysis.traces.importers.table import CSV_TABLE, JSONL_TABLE
from pagetier.analysis.traces.importers.tensor import NPY, NPZ

__all__ = ["FORMATS", "Imported", "import_files", "is_canonical"]

# The first that knows a file reads it: formats with a mark of their own stand before generic ones.
FORMATS = (
    CANONICAL,
    CACHE_LAB,
    RESPONSES,
    ROUTE_TRACE,
    BIG_MOE,
    LLAMA_CALLS,
    LLAMA_POSITIONS,
    RECORDER,
    NPZ,
    NPY,
    ENGINE_JSONL,
    JSONL_TABLE,
    CSV_TABLE,
    LLAMA_LOG,
)


@dataclass(frozen=True, slots=True)
class Imported:
    """A trace, the format it was in, and what was left out on the way."""

    trace: Trace
    format: str
    notes: tuple[str, ...]


def import_files(paths: Sequence[Path], options: ImportOptions) -> Imported:
    """One trace with the requests of all files, which are in one format and of one model."""
    traces, notes = [], []
    chosen: Format | None = None
    for path in paths:
        source = Source(path)
        found = _format_of(source, options.format)
        if chosen is not None and found is not chosen:
            raise source.error(f"is {found.name}, the files before are {chosen.name}")
        chosen = found
        trace, said = assemble(path, found.read(source, options), options)
        traces.append(trace)
        notes += [f"{path.name}: {note}" for note in said]
    if chosen is None:
        raise InputError("no file to import: name one or more")
    trace, said = drop_synthetic(join_requests(paths, traces))
    names = ", ".join(path.name for path in paths[:3]) + (" and more" if len(paths) > 3 else "")
    header = replace(trace.header, source=f"imported from {chosen.name}: {names}", phase="decode")
    return Imported(replace(trace, header=header), chosen.name, (*notes, *said))


def is_canonical(path: Path) -> bool:
    """Whether the file says of itself that it is a ``moe-route-trace``."""
    return CANONICAL.detects(Source(path))


def _format_of(source: Source, name: str | None) -> Format:
    if name is not None:
        named = [known for known in FORMATS if known.name == name]
        if not named:
            known = ", ".join(known.name for known in FORMATS)
            raise InputError(f"--format {name} is not known: it is one of {known}")
        return named[0]
    found = next((known for known in FORMATS if known.detects(source)), None)
    if found is not None:
        return found
    if detects_counts(source):
        raise source.error(
            "holds counts of experts, a table in which no order is left, and cannot be replayed:"
            " record the routes, or use it where a table of counts is asked for"
        )
    raise source.error(
        "is in no format that is known: name it with --format, or the keys or columns of a table"
        " with --columns"
    )
