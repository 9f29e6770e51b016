# SPDX-License-Identifier: Apache-2.0
"""SGLang's expert distribution recorder, mode ``per_token``: a file of torch.save.

Each record is one forward pass: ids [layer, token, choice] padded with -1, the token positions, and
a mode (1 prefill, 2 decode).  There are no request ids: a request is followed through the batches
by its position, which grows by one, and its place in the batch.  Ids are physical copies and are
mapped to logical experts by the map in the file.  The other modes hold counts only.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces.columns import Int64
from pagetier.analysis.traces.importers.arrays import Array, as_ids
from pagetier.analysis.traces.importers.options import Format, ImportOptions
from pagetier.analysis.traces.importers.routes import Geometry, Routes, join, regular_routes
from pagetier.analysis.traces.importers.source import Source
from pagetier.analysis.traces.importers.torch_zip import Tensor, TorchFile, is_torch

__all__ = ["RECORDER", "physical_to_logical"]

_DECODE = 2
_PREFILL_MODES = (1, 4)  # extend, idle
_MAX_TOKENS = 1 << 24


def _read(source: Source, options: ImportOptions) -> Routes:
    with source.archive() as archive:
        file = TorchFile(source, archive)
        root = file.root
        records = root.get("records") if isinstance(root, dict) else None
        if not isinstance(records, list):
            raise source.error(
                "holds no records of the mode per_token: counts are a table, in which no order is"
                " left, and cannot be replayed"
            )
        followed = _Requests(source)
        skipped = 0
        for index, record in enumerate(records):
            skipped += not _add_pass(source, file, followed, index, record)
        if not followed.rows:
            raise source.error("no pass of decode is in the file: record some")
        mapping = physical_to_logical(source, file)
        routes = followed.routes(mapping)
    return routes.with_notes(*(f"{skipped} passes of prefill were left out",)[: bool(skipped)])


def _add_pass(
    source: Source, file: TorchFile, followed: "_Requests", index: int, record: Any
) -> bool:
    """Whether the pass was one of decode."""

    def fail(message: str) -> InputError:
        return source.error(f"record {index} {message}")

    fields = record if isinstance(record, dict) else {}
    mode, positions = fields.get("forward_mode"), fields.get("positions")
    ids = fields.get("topk_ids_of_layer")
    if not isinstance(ids, Tensor):
        raise fail("has no ids of tokens: counts cannot be replayed, record in mode per_token")
    if mode in _PREFILL_MODES:
        return False
    if mode != _DECODE:
        shown = mode if type(mode) is int else f"no number ({type(mode).__name__})"
        raise fail(f"is of mode {shown}: record without speculation and mixed batches")
    if not isinstance(positions, list) or not {*map(type, positions)} <= {int}:
        raise fail("has no token positions: record with a newer SGLang")
    chosen = as_ids(file.array(ids), "ltk", fail)
    if len(chosen) != len(positions):
        raise fail(f"has {len(positions)} positions for {len(chosen)} tokens")
    followed.add(index, positions, chosen)
    return True


class _Requests:
    """Requests, followed from batch to batch."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._batch: list[tuple[int, int]] = []  # request, its next position
        self.rows: list[list[tuple[int, Array]]] = []  # of each request: record, ids of a token

    def add(self, index: int, positions: Sequence[int], ids: Array) -> None:
        """One pass: token i of it is at positions[i] of its request."""
        waiting, batch = list(self._batch), []
        for position, row in zip(positions, ids, strict=True):
            at = next((i for i, (_, wanted) in enumerate(waiting) if wanted == position), None)
            if at is None:
                request = len(self.rows)
                self.rows.append([])
            else:
                request = waiting.pop(at)[0]
            self.rows[request].append((index, row))
            batch.append((request, position + 1))
        self._batch = batch

    def routes(self, mapping: Int64 | None) -> Routes:
        """All of them, one after another."""
        parts = [self._routes_of(number, rows, mapping) for number, rows in enumerate(self.rows)]
        routes = join(parts)
        if len(parts) == 1:
            return routes
        return routes.with_notes(f"{len(parts)} requests were told apart by their positions")

    def _routes_of(
        self, number: int, rows: list[tuple[int, Array]], mapping: Int64 | None
    ) -> Routes:
        first, like = rows[0]
        for index, row in rows:
            if row.shape != like.shape:
                raise self._source.error(
                    f"record {index} has ids of {_shown(row)}, record {first} of {_shown(like)}:"
                    " the file is damaged, or of several models"
                )
        ids = np.stack([row for _, row in rows])
        path = self._source.path
        if mapping is not None:
            if ids.shape[1] > len(mapping) or ids.max() >= mapping.shape[1]:
                raise self._source.error("ids are beyond last_physical_to_logical_map")
            logical = mapping[np.arange(ids.shape[1])[None, :, None], ids]
            ids = np.where(ids < 0, ids, logical)
        return regular_routes(
            ids,
            lambda position, layer: f"{path}: record {rows[position][0]}, layer {layer}",
            f"request-{number}",
            Geometry(top_k=_top_k(ids)),
        )


def _shown(ids: Array) -> str:
    layers, choices = ids.shape
    return f"{layers} layers x {choices} choices"


def _top_k(ids: Array) -> int | None:
    """Choices that were recorded: padding makes lists wider."""
    recorded = (ids >= 0).sum(axis=2)
    return int(recorded.max()) or None


def physical_to_logical(source: Source, file: TorchFile) -> Int64 | None:
    """The map of the run [layer, copy]; None when there is none."""
    tensor = file.root.get("last_physical_to_logical_map")
    if not isinstance(tensor, Tensor):
        return None
    mapping = file.array(tensor)
    if mapping.ndim != 2 or mapping.dtype.kind not in "iu" or not mapping.size:
        raise source.error("last_physical_to_logical_map is no table of whole numbers")
    if mapping.min() < 0 or mapping.max() >= 2**31:
        raise source.error("last_physical_to_logical_map holds numbers that are no ids")
    return mapping.astype(np.int64)


RECORDER = Format(
    name="sglang-recorder",
    description="SGLang expert distribution recorder, mode per_token (.pt)",
    detects=is_torch,
    read=_read,
)
