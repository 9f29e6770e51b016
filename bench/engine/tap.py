# SPDX-License-Identifier: Apache-2.0
"""The router's choices of each decoded token, as llama.cpp computes them.

llama.cpp names the tensors of layer 3 ``ffn_moe_topk-3`` (ids, likeliest first) and
``ffn_moe_weights-3`` (what the experts' outputs are multiplied by), the latter again after each
step that changes them (llm_graph_context::build_moe_ffn in llama-graph.cpp).  The prompt is
computed by the same graph, many tokens at once, and is no part of a trace.

Of GroveMoE a layer routes twice under one name: to its experts, then with the same router to its
chunk experts, which are no part of a pool.  The first choice of a layer is the one that counts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import CapabilityError

__all__ = ["RouterTap", "Routes"]

CHOICE: Final = "ffn_moe_topk"
# In the order in which they are computed: the last one of a choice counts.
WEIGHTS: Final = (
    "ffn_moe_weights",
    "ffn_moe_weights_softmax",
    "ffn_moe_weights_norm",
    "ffn_moe_weights_scaled",
)


@dataclass(frozen=True, slots=True, eq=False)
class Routes:
    """Ids and weights of a request, [steps, layers, k]; no weights where the engine has none."""

    experts: NDArray[np.int32]
    weights: NDArray[np.float32] | None


class RouterTap:
    """Collects the choices of `layers`, the model's own numbers, in the order of a trace."""

    def __init__(self, layers: Sequence[int], top_k: int) -> None:
        self._top_k = top_k
        self._layers = tuple(layers)
        self._choices = {f"{CHOICE}-{layer}": at for at, layer in enumerate(layers)}
        self._weighings = {
            f"{what}-{layer}": at for at, layer in enumerate(layers) for what in WEIGHTS
        }
        self._decoding = False
        self._step: dict[int, NDArray[np.generic]] = {}
        self._step_weights: dict[int, NDArray[np.generic]] = {}
        self._chose_again: set[int] = set()
        self._experts: list[NDArray[np.generic]] = []
        self._weights: list[NDArray[np.generic]] = []

    def wants(self, name: str) -> bool:
        """The routers' tensors, while a token is decoded."""
        return self._decoding and (name in self._choices or name in self._weighings)

    def take(self, name: str, values: NDArray[np.generic]) -> None:
        """One layer's ids or weights."""
        if name not in self._choices:
            layer = self._weighings[name]
            if layer not in self._chose_again:
                self._step_weights[layer] = self._row(name, values)
            return
        layer = self._choices[name]
        if layer in self._step:
            self._chose_again.add(layer)
        else:
            self._step[layer] = self._row(name, values)

    def _row(self, name: str, values: NDArray[np.generic]) -> NDArray[np.generic]:
        if values.size != self._top_k:
            raise CapabilityError(
                f"{name} has {values.size} elements where a token has {self._top_k} experts: this "
                "llama.cpp routes in a way that this pagetier does not know; install "
                "llama-cpp-python 0.3.36"
            )
        return values.reshape(-1)

    def begin_prompt(self) -> None:
        """A new request: what was collected of the last one is forgotten."""
        self._decoding = False
        self._experts.clear()
        self._weights.clear()

    def begin_decode(self) -> None:
        """The next choices are of one token."""
        self._decoding = True
        self._step.clear()
        self._step_weights.clear()
        self._chose_again.clear()

    def end_decode(self) -> None:
        """All layers have chosen; CapabilityError for one that was not seen."""
        self._decoding = False
        missing = [layer for at, layer in enumerate(self._layers) if at not in self._step]
        if missing:
            raise CapabilityError(
                f"llama.cpp computed no {CHOICE}-{missing[0]}: the router of that layer has "
                "another name in this version; install llama-cpp-python 0.3.36"
            )
        places = range(len(self._layers))
        self._experts.append(np.stack([self._step[at] for at in places]))
        if len(self._step_weights) == len(self._layers):
            self._weights.append(np.stack([self._step_weights[at] for at in places]))

    def routes(self) -> Routes:
        """What the last request chose."""
        shape = (len(self._experts), len(self._layers), self._top_k)
        experts = np.array(self._experts, dtype=np.int32).reshape(shape)
        if len(self._weights) != len(self._experts):
            return Routes(experts, None)
        return Routes(experts, np.array(self._weights, dtype=np.float32).reshape(shape))
