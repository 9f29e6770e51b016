# SPDX-License-Identifier: Apache-2.0
"""The latency of single reads: of each arm the share of reads that took at most so long.

From the reader's histograms: 32 buckets per octave of nanoseconds.  The repetitions of an arm are
one line (the median share) in a band of their least and greatest.
"""

import numpy as np
import numpy.typing as npt

from pagetier.analysis.report import formats
from pagetier.analysis.report.arms import Arm, arm_names
from pagetier.analysis.report.section import Figure, FigurePoint, Panel, Series

__all__ = ["bucket_end_ns", "latency_figure"]

Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

_SUB_BUCKETS = 32
# A line of a figure is not finer than this.
_STEPS = 80
# More lines would not be told apart, and more panels are a wall.
MAX_LINES, MAX_PANELS = 6, 4


def latency_figure(arms: list[Arm]) -> Figure | None:
    """None where no pass has a histogram."""
    kept = [(arm, found) for arm in arms if (found := _histograms(arm))]
    limits = list(dict.fromkeys(arm.capacity_bytes for arm, _ in kept))[:MAX_PANELS]
    name = arm_names((arm for arm, _ in kept), "capacity_bytes")
    series: list[Series] = []
    for limit in limits:
        of_limit = [(arm, found) for arm, found in kept if arm.capacity_bytes == limit]
        for arm, found in of_limit[:MAX_LINES]:
            label = f"{name(arm)}, n={len(found)}"
            series.append(Series(label, "measured", _points(found), _panel(limit)))
    if not series:
        return None
    return Figure(
        key="latency",
        title="Latency of reads",
        x="latency of a read",
        y="share of reads",
        scale="log",
        series=tuple(series),
        form="latency",
        unit="share",
        note="The band is the least and the greatest share of n repetitions;"
        f" {len(series)} of {len(kept)} arms.",
        panels=tuple(Panel(_panel(limit), "share of reads", "share") for limit in limits),
    )


def _panel(limit: int | None) -> str:
    return f"C = {formats.capacity(limit)}"


def bucket_end_ns(bucket: Int64) -> Float64:
    """The least latency that is above all of a bucket."""
    octave = np.maximum(0, bucket // _SUB_BUCKETS - 1)
    ends: Float64 = ((bucket - octave * _SUB_BUCKETS + 1) * 2.0**octave).astype(np.float64)
    return ends


def _histograms(arm: Arm) -> list[Int64]:
    return [point.latency for point in arm.points if point.latency is not None]


def _points(histograms: list[Int64]) -> tuple[FigurePoint, ...]:
    least = min(int(h[:, 0].min()) for h in histograms)
    most = max(int(h[:, 0].max()) for h in histograms)
    buckets = np.arange(least, most + 1, max(1, (most - least) // _STEPS), dtype=np.int64)
    buckets = np.append(buckets[buckets < most], most)
    shares = np.array([_shares(histogram, buckets) for histogram in histograms])
    ends = bucket_end_ns(buckets) / 1e9
    rows = zip(ends, np.median(shares, axis=0), shares.min(axis=0), shares.max(axis=0), strict=True)
    n = len(histograms)
    return tuple(FigurePoint(float(x), float(y), float(a), float(b), n) for x, y, a, b in rows)


def _shares(histogram: Int64, buckets: Int64) -> Float64:
    counted = np.cumsum(histogram[:, 1])
    upto = np.searchsorted(histogram[:, 0], buckets, side="right")
    shares: Float64 = np.concatenate(([0], counted))[upto] / counted[-1]
    return shares
