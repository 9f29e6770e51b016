# SPDX-License-Identifier: Apache-2.0
"""Looking on while an engine computes: what a tap is, and the callback that serves it."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import PagetierError
from pagetier.bench.engine.library import Library

__all__ = ["Tap", "Watch"]


class Tap(Protocol):
    """Looks at tensors while the engine computes; a PagetierError of `take` ends the request."""

    def wants(self, name: str) -> bool:
        """Whether a tensor of this name is to be read."""
        ...

    def take(self, name: str, values: NDArray[np.generic]) -> None:
        """Its values, slowest axis first."""
        ...

    def begin_prompt(self) -> None:
        """What follows belongs to the prompt."""
        ...

    def begin_decode(self) -> None:
        """What follows belongs to one decoded token."""
        ...

    def end_decode(self) -> None:
        """The token is decoded."""
        ...


class Watch:
    """Between the engine's callback and a tap; no exception may pass through the engine."""

    def __init__(self, library: Library, tap: Tap) -> None:
        self.tap = tap
        self._reader = library.reader
        self._problem: PagetierError | None = None
        self.callback = library.api.ggml_backend_sched_eval_callback(self._call)

    def raise_problem(self) -> None:
        """What went wrong in the callbacks of a computation."""
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem

    def _call(self, tensor: int, ask: bool, _data: int | None) -> bool:
        """Asked whether a tensor is wanted, then called with it; False ends the computation."""
        name = self._reader.name(tensor)
        if ask:
            return self._problem is None and self.tap.wants(name)
        try:
            self.tap.take(name, self._reader.read(tensor))
        except PagetierError as error:
            self._problem = error
        return self._problem is None
