# SPDX-License-Identifier: Apache-2.0
"""A synthetic trace with the two habits of real routers: popular experts, and recent ones.

Each layer has its own Zipf popularity over its experts; each selection repeats, with probability
`reuse`, one of the previous token's experts of that layer.  It stands in where no recorded trace
is at hand; it is not calibrated to any model.
"""

import hashlib
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import Trace, TraceHeader, encode_trace

__all__ = ["default_trace"]

Float64 = npt.NDArray[np.float64]


def default_trace(
    layers: int,
    experts: int,
    top_k: int,
    iterations: int,
    seed: int,
    zipf: float = 1.0,
    reuse: float = 0.4,
) -> Trace:
    """One request of `iterations` steps; the same arguments give the same trace on any machine."""
    _check(layers, experts, top_k, iterations, seed, zipf, reuse)
    selected = _select(layers, experts, top_k, iterations, seed, zipf, reuse)
    records = iterations * layers
    header = TraceHeader(
        model=f"synthetic {layers}x{experts} top-{top_k}",
        num_layers=layers,
        num_experts=experts,
        top_k=top_k,
        source=f"generated: zipf {zipf}, reuse {reuse}, seed {seed}",
        phase="decode",
    )
    trace = Trace(
        header=header,
        requests=("synthetic:0",),
        request=np.zeros(records, dtype=np.int32),
        step=np.repeat(np.arange(iterations, dtype=np.int32), layers),
        layer=np.tile(np.arange(layers, dtype=np.int32), iterations),
        record_start=np.arange(0, (records + 1) * top_k, top_k, dtype=np.uint64),
        experts=selected.reshape(-1),
        weights=None,
        sha256=None,
    )
    return replace(trace, sha256=hashlib.sha256(encode_trace(trace)).hexdigest())


def _check(
    layers: int, experts: int, top_k: int, iterations: int, seed: int, zipf: float, reuse: float
) -> None:
    if min(layers, experts, iterations) < 1 or not 1 <= top_k <= experts:
        raise InputError(
            f"{layers} layers, {experts} experts, top-{top_k}, {iterations} iterations: each must"
            " be 1 or more, and top-k at most the number of experts"
        )
    if not 0 <= reuse <= 1 or not 0 <= zipf <= 10 or seed < 0:
        raise InputError(
            f"zipf {zipf}, reuse {reuse}, seed {seed}: zipf is 0..10, reuse 0..1, seed >= 0"
        )


def _select(
    layers: int, experts: int, top_k: int, iterations: int, seed: int, zipf: float, reuse: float
) -> npt.NDArray[np.uint32]:
    """Shape (iterations, layers, top_k): distinct ids, the strongest first, as routers do."""
    # PCG64 and random() alone: their stream is fixed, that of other Generator methods may change.
    random = np.random.Generator(np.random.PCG64(seed))
    rank = np.argsort(random.random((layers, experts)), axis=1).argsort(axis=1)
    popularity = (rank + 1.0) ** -zipf
    selected = np.empty((iterations, layers, top_k), dtype=np.uint32)
    for iteration in range(iterations):
        # The k smallest of Exp(1)/p are k draws from p without replacement (exponential race).
        race = -np.log1p(-random.random((layers, experts))) / popularity
        favoured = race
        if iteration:
            repeats = random.random((layers, top_k)) < reuse
            favoured = _favour(race, selected[iteration - 1], repeats)
        chosen = np.argsort(favoured, axis=1, kind="stable")[:, :top_k]
        strength = np.argsort(np.take_along_axis(race, chosen, axis=1), axis=1, kind="stable")
        selected[iteration] = np.take_along_axis(chosen, strength, axis=1)
    return selected


def _favour(
    race: Float64, previous: npt.NDArray[np.uint32], repeats: npt.NDArray[np.bool_]
) -> Float64:
    """The race with those of the previous token's experts that repeat moved to the front."""
    favoured = race.copy()
    times = np.take_along_axis(race, previous.astype(np.int64), axis=1)
    np.put_along_axis(favoured, previous.astype(np.int64), np.where(repeats, -1.0, times), axis=1)
    return favoured
