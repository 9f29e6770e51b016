# SPDX-License-Identifier: Apache-2.0
"""The next token, chosen from logits alone: equal logits and an equal seed give equal ids.

The engine's own samplers are left out, for what they keep between calls differs between runs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import InputError

__all__ = ["Chooser", "Sampling"]


@dataclass(frozen=True, slots=True)
class Sampling:
    """`temperature` of the softmax that is drawn from with `seed`; None takes the likeliest."""

    temperature: float | None = None
    seed: int = 0


class Chooser:
    """Draws one token after the other; a new one starts again from the seed."""

    def __init__(self, sampling: Sampling) -> None:
        self._temperature = sampling.temperature
        self._random = np.random.default_rng(sampling.seed)

    def __call__(self, logits: NDArray[np.float32]) -> int:
        """The chosen id; of equal logits the lowest.  InputError when a logit is no number."""
        wide = logits.astype(np.float64)
        if not np.isfinite(wide).all():
            raise InputError(
                "the model computes logits that are not finite: its weights are damaged, or its "
                "conversion is wrong; download or convert it again"
            )
        if self._temperature is None:
            return int(wide.argmax())
        weights = np.exp((wide - wide.max()) / self._temperature)
        ends = np.cumsum(weights)
        # A draw at the very end may round up to the whole sum.
        place = np.searchsorted(ends, self._random.random() * ends[-1], side="right")
        return min(int(place), len(ends) - 1)
