# SPDX-License-Identifier: Apache-2.0
"""The choices of the routers while a prompt is computed, beside those of each decoded token.

A batch of a prompt's tokens asks for each expert once per layer, whoever of them chose it: these
are the reads between two decodings.  They are in no trace, which holds decoded tokens alone.
"""

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.plans import Plan
from pagetier.bench.engine.tap import CHOICE, RouterTap, Routes

__all__ = ["PromptTap"]


class PromptTap:
    """A `RouterTap` that also keeps what the last prompt asked for."""

    def __init__(self, layers: Sequence[int], num_experts: int, top_k: int) -> None:
        self._router = RouterTap(layers, top_k)
        self._num_experts: Final = num_experts
        self._num_layers: Final = len(layers)
        self._layer_of: Final = {f"{CHOICE}-{layer}": at for at, layer in enumerate(layers)}
        self._in_prompt = False
        self._last: int | None = None
        self._asked: list[NDArray[np.uint32]] = []

    def wants(self, name: str) -> bool:
        """The ids, and of a decoded token what else a router says."""
        return name in self._layer_of if self._in_prompt else self._router.wants(name)

    def take(self, name: str, values: NDArray[np.generic]) -> None:
        """One layer's, of a batch of the prompt or of one token."""
        if not self._in_prompt:
            self._router.take(name, values)
            return
        layer = self._layer_of[name]
        if self._chose_again(layer):
            return
        first = layer * self._num_experts
        # The engine goes through the experts of a batch by their number.
        self._asked.append((np.unique(values) + first).astype(np.uint32))

    def _chose_again(self, layer: int) -> bool:
        """As `RouterTap` tells; of one layer alone, the next choice is that of another batch."""
        last, self._last = self._last, layer
        return last == layer and self._num_layers > 1

    def begin_prompt(self) -> None:
        """A new request: what was kept of the last one is forgotten."""
        self._in_prompt = True
        self._last = None
        self._asked.clear()
        self._router.begin_prompt()

    def begin_decode(self) -> None:
        """The next choices are of one token."""
        self._in_prompt = False
        self._router.begin_decode()

    def end_decode(self) -> None:
        """All layers have chosen."""
        self._router.end_decode()

    def routes(self) -> Routes:
        """What the last request's decoded tokens chose."""
        return self._router.routes()

    def prompt_plan(self) -> Plan:
        """What its prompt read, in one iteration: a record per layer and batch."""
        ends = np.cumsum([0, *(len(experts) for experts in self._asked)])
        return Plan(
            experts=np.concatenate(self._asked),
            record_start=ends.astype(np.uint64),
            iteration_start=np.array([0, len(self._asked)], dtype=np.uint64),
            num_layers=self._num_layers,
            num_experts=self._num_experts,
        )
