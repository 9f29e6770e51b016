# SPDX-License-Identifier: Apache-2.0
"""When a probed rate counts: the judgement on passes, apart from the device."""

import pytest

from pagetier.bench.probe import _not_cold, _not_warm, _Pass


def replayed(
    *, device: int = 1000, own: int | None = 1000, resident: int | None = 0, wall_ns: int = 500
) -> _Pass:
    return _Pass(
        bytes=1000,
        wall_ns=wall_ns,
        device_bytes=device,
        own_bytes=own,
        resident_before_bytes=resident,
    )


@pytest.mark.parametrize(
    ("cold", "problem"),
    [
        (replayed(), None),
        (replayed(own=990, device=990), None),
        (replayed(own=1900, device=5000), None),
        (replayed(resident=4096), "4096 bytes of the pool were cached before"),
        (replayed(resident=None), "unknown how much of the pool was cached before"),
        (replayed(own=989), "only 989 of 1000 bytes came from the device"),
        (replayed(own=None, device=0), "only 0 of 1000 bytes came from the device"),
        (replayed(device=0), "the device counted 0 of 1000 bytes: it does not account"),
    ],
)
def test_cold(cold: _Pass, problem: str | None) -> None:
    assert _not_cold(cold) == problem


@pytest.mark.parametrize(
    ("warm", "problem"),
    [
        (replayed(own=0, device=0, resident=1000), None),
        (replayed(own=10, device=5000), None),
        (replayed(own=11, device=11), "11 of 1000 bytes came from the device again"),
        (replayed(own=None, device=11), "11 of 1000 bytes came from the device again"),
    ],
)
def test_warm(warm: _Pass, problem: str | None) -> None:
    assert _not_warm(warm) == problem


def test_rate() -> None:
    assert replayed().rate(None) == 2e9
    assert replayed().rate("was warm") is None
    assert replayed(wall_ns=0).rate(None) is None
