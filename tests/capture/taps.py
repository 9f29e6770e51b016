# SPDX-License-Identifier: Apache-2.0
"""A tap that keeps what tests compute with."""

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

__all__ = ["Array", "FullTap"]

Array = NDArray[np.generic]


@dataclass(slots=True)
class FullTap:
    """Keeps the tensors of these kinds, of all tokens: of each prompt, then of each decode."""

    kinds: tuple[str, ...]
    computed: list[dict[str, Array]] = field(default_factory=list)

    def wants(self, name: str) -> bool:
        return name.partition("-")[0] in self.kinds

    def take(self, name: str, values: Array) -> None:
        # The engine names views after the tensor they show; the first is the tensor.
        self.computed[-1].setdefault(name, values)

    def begin_prompt(self) -> None:
        self.computed.append({})

    def begin_decode(self) -> None:
        self.computed.append({})

    def end_decode(self) -> None:
        pass
