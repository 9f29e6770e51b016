# SPDX-License-Identifier: Apache-2.0
"""What the routers of the architectures choose, computed by numpy in float64."""

from collections.abc import Callable

import gguf
import numpy as np
from numpy.typing import NDArray

from tests.capture.tiny import Architecture

__all__ = ["Floats", "Ids", "Tensors", "route", "values"]

# What float32 sums of these sizes can differ by, of the numbers that are ranked.
ROUNDING = 3e-5
Floats = NDArray[np.float64]
Ids = NDArray[np.int64]
Tensors = dict[str, gguf.ReaderTensor]


def values(tensors: Tensors, name: str) -> Floats:
    return np.array(tensors[name].data, dtype=np.float64)


def route(
    one: Architecture, tensors: Tensors, layer: int, inputs: Floats, tokens: list[int]
) -> tuple[Ids, Floats]:
    """Ids and weights of the k experts of each row of `inputs`."""
    logits = inputs @ values(tensors, f"blk.{layer}.ffn_gate_inp.weight").T
    if (bias := f"blk.{layer}.ffn_gate_inp.bias") in tensors:
        logits = logits + values(tensors, bias)
    scores = SCORES[one.gating](logits)
    ranked = scores
    if (bias := f"blk.{layer}.exp_probs_b.bias") in tensors:
        ranked = ranked + values(tensors, bias)
    if one.groups is not None:
        ranked = within_best_groups(ranked, *one.groups)
    if (table := f"blk.{layer}.ffn_gate_tid2eid.weight") in tensors:
        ids = np.array(tensors[table].data, dtype=np.int64)[tokens]
    else:
        ids = best(ranked, one.top_k)
    weights = np.take_along_axis(scores, ids, axis=1)
    if one.gating == "chosen":
        weights = softmax(weights)
    if one.normed:
        weights = weights / weights.sum(axis=1, keepdims=True)
    return ids, weights * one.scale


def softmax(logits: Floats) -> Floats:
    powers = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Floats = powers / powers.sum(axis=1, keepdims=True)
    return shares


def sigmoid(logits: Floats) -> Floats:
    shares: Floats = 1 / (1 + np.exp(-logits))
    return shares


SCORES: dict[str, Callable[[Floats], Floats]] = {
    "softmax": softmax,
    "sigmoid": sigmoid,
    "sqrtsoftplus": lambda logits: np.sqrt(np.log1p(np.exp(logits))),
    # The softmax of the k chosen alone.
    "chosen": lambda logits: logits,
}


def within_best_groups(ranked: Floats, count: int, used: int) -> Floats:
    """-inf for all but the experts of the groups whose two best have the largest sums."""
    groups = ranked.reshape(len(ranked), count, -1)
    kept = best(np.sort(groups, axis=2)[:, :, -2:].sum(axis=2), used)
    masked = np.full_like(groups, -np.inf)
    np.put_along_axis(masked, kept[:, :, None], np.take_along_axis(groups, kept[:, :, None], 1), 1)
    return masked.reshape(ranked.shape)


def best(ranked: Floats, count: int) -> Ids:
    order = np.argsort(-ranked, axis=1)
    sorted_values = np.take_along_axis(ranked, order, axis=1)[:, : count + 1]
    gaps = sorted_values[:, :-1] - sorted_values[:, 1:]
    assert (gaps > ROUNDING * np.abs(sorted_values[:, :-1])).all(), "a tie: choose another prompt"
    return order[:, :count]
