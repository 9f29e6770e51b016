# SPDX-License-Identifier: Apache-2.0
"""Normal noise whose every bit depends on the seed alone.

numpy guarantees the raw stream of PCG64 and of SeedSequence from version to version, but not what
its Generator makes of it.  Each 16 bits of the raw stream select one of 65,536 quantiles of the
standard normal: mean 0, variance 1 within 1e-4, no value beyond 4.33.
"""

from functools import cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

__all__ = ["Noise", "quantile"]

Float32 = npt.NDArray[np.float32]


class Noise:
    """A stream of noise, independent of every stream with other `keys`."""

    def __init__(self, *keys: int) -> None:
        self._bits = np.random.PCG64(np.random.SeedSequence(keys))

    def normal(self, *shape: int) -> Float32:
        """Standard normal values."""
        return np.take(_quantiles(), self._words(shape))

    def uniform(self, *shape: int) -> Float32:
        """Values above 0 and below 1, 2**-16 apart."""
        return (self._words(shape) + np.float32(0.5)) / np.float32(1 << 16)

    def _words(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint16]:
        count = int(np.prod(shape))
        raw = self._bits.random_raw(-(-count // 4)).astype("<u8", copy=False)
        return raw.view("<u2")[:count].reshape(shape)


def quantile(shares: npt.NDArray[np.float64]) -> Float32:
    """The values below which these shares of the standard normal lie, to 1 in 65,536."""
    return _quantiles()[(shares * (1 << 16)).astype(np.int64)]


@cache
def _quantiles() -> Float32:
    normal = NormalDist()
    half = [normal.inv_cdf((place + 0.5) / (1 << 16)) for place in range(1 << 15)]
    upper = [-value for value in reversed(half)]
    return np.array(half + upper, dtype=np.float32)
