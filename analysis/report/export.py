# SPDX-License-Identifier: Apache-2.0
"""Cells, iterations and samples as files of columns, for tools of the reader's own.

CSV needs nothing and holds texts; Parquet needs pyarrow, keeps types and is many times smaller.
Rows are streamed; a file appears when it is whole.  A missing value is empty in CSV, null in
Parquet.  Bytes, pages and nanoseconds are as in the results; nothing is rounded.
"""

import csv
import importlib
import json
import os
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any

from pagetier.analysis.counters import number
from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.analysis.render import report_json
from pagetier.analysis.report.database import ITERATION_COLUMNS, iteration_rows, sample_rows
from pagetier.analysis.report.reading import Study

__all__ = ["FORMATS", "Columns", "datasets", "export"]

# The numbers of a snapshot that a timeline is drawn from, by their path.
_SAMPLED = (
    ("at_ns",),
    ("device", "sectors_read"),
    ("process", "read_bytes"),
    ("process", "vm_lck_bytes"),
    ("process", "vm_rss_bytes"),
    ("scope", "current_bytes"),
    ("scope", "file_bytes"),
    ("scope", "anon_bytes"),
    ("scope", "kernel_bytes"),
    ("scope", "refault_file_pages"),
    ("scope", "pgscan_pages"),
    ("scope", "pgsteal_pages"),
    ("balloon", "vm_lck_bytes"),
    ("vmstat", "pgscan_kswapd"),
    ("vmstat", "pgscan_direct"),
    ("vmstat", "pgsteal_kswapd"),
    ("vmstat", "pgsteal_direct"),
    ("vmstat", "workingset_refault_file"),
    ("meminfo", "MemFree"),
    ("meminfo", "MemAvailable"),
    ("meminfo", "Active(file)"),
    ("meminfo", "Inactive(file)"),
    ("meminfo", "Unevictable"),
    ("psi", "memory", "some_total_us"),
    ("psi", "memory", "full_total_us"),
    ("psi", "io", "some_total_us"),
)
_BATCH_ROWS = 1 << 16


@dataclass(frozen=True, slots=True)
class Columns:
    """A table to be written once: names with the type of their values, and the rows."""

    name: str
    types: Mapping[str, type]
    rows: Iterable[tuple[Any, ...]]


def export(study: Study, directory: Path, format_name: str) -> list[Path]:
    """Write all three tables; the files written.  CapabilityError where the format needs more."""
    write = FORMATS[format_name]
    written = []
    for table in datasets(study):
        path = directory / f"{table.name}.{format_name}"
        with _staged(path) as staged:
            write(staged, table)
        written.append(path)
    return written


def datasets(study: Study) -> Iterator[Columns]:
    """The three tables, cells first."""
    yield _cells(study)
    directory, ids = study.results.path, [cell.id for cell in study.results.cells]
    counted = dict.fromkeys(ITERATION_COLUMNS, int)
    yield Columns(
        "iterations", {"cell": str, "pass": str, **counted}, iteration_rows(directory, ids)
    )
    sampled = {".".join(path): int for path in _SAMPLED}
    rows = (
        (cell, name, *(number(snapshot, *path) for path in _SAMPLED))
        for cell, name, snapshot in sample_rows(directory, ids)
    )
    yield Columns("samples", {"cell": str, "pass": str, **sampled}, rows)


def _cells(study: Study) -> Columns:
    """One row per cell, rejected ones included: what ``report --json`` says of it, flat."""
    flat = [
        dict(_flat(found))
        for cell in study.results.cells
        for found in report_json(replace(study.results, cells=(cell,)))["cells"]
    ]
    names = list(dict.fromkeys(name for row in flat for name in row))
    types = {name: _type([row.get(name) for row in flat]) for name in names}
    rows = [tuple(_as(types[name], row.get(name)) for name in names) for row in flat]
    return Columns("cells", types, rows)


def _flat(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", json.dumps(value) if isinstance(value, list) else value


def _type(values: list[Any]) -> type:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {int}:
        return int
    return float if kinds and kinds <= {int, float} else str


def _as(kind: type, value: Any) -> Any:
    return None if value is None else kind(value)


# ---- formats ------------------------------------------------------------------------------------


def _write_csv(path: Path, table: Columns) -> None:
    with open(path, "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(table.types)
        writer.writerows(table.rows)


def _write_parquet(path: Path, table: Columns) -> None:
    try:
        arrow = importlib.import_module("pyarrow")
        parquet = importlib.import_module("pyarrow.parquet")
    except ImportError as error:
        raise CapabilityError(
            "Parquet needs pyarrow: pip install 'pagetier[parquet]', or export csv"
        ) from error
    kinds = {int: arrow.int64(), float: arrow.float64(), str: arrow.string()}
    schema = arrow.schema([(name, kinds[kind]) for name, kind in table.types.items()])
    rows = iter(table.rows)
    with parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while batch := list(islice(rows, _BATCH_ROWS)):
            columns = zip(*batch, strict=True)
            arrays = [
                arrow.array(values, kind.type) for values, kind in zip(columns, schema, strict=True)
            ]
            writer.write_table(arrow.Table.from_arrays(arrays, schema=schema))


FORMATS: Mapping[str, Callable[[Path, Columns], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
}
"""Writers by the ending of their files."""


@contextmanager
def _staged(path: Path) -> Iterator[Path]:
    """A file of another name that takes the place of `path` when it is whole."""
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        os.fchmod(descriptor, 0o644)
        os.close(descriptor)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}): free it or name another place"
        ) from error
    staged = Path(name)
    try:
        yield staged
        os.replace(staged, path)
    except OSError as error:
        raise InputError(
            f"{path}: cannot be written ({error.strerror}): free it or name another place"
        ) from error
    finally:
        staged.unlink(missing_ok=True)
