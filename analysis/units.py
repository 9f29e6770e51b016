# SPDX-License-Identifier: Apache-2.0
"""Byte counts as people write them.

KB, MB, GB and TB are powers of 1000; KiB, MiB, GiB and TiB are powers of 1024.  A bare K, M, G or T
is refused: it is 1024 to systemd and 1000 to a disk vendor, and the difference at 256 G is 18 GB.
Arithmetic is exact (Decimal); a bad text raises InputError.
"""

import re
from decimal import Decimal

from pagetier.analysis.errors import InputError

__all__ = ["format_bytes", "parse_bytes"]

_DECIMAL = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_BINARY = {"KIB": 2**10, "MIB": 2**20, "GIB": 2**30, "TIB": 2**40}
_FACTORS = {"": 1, **_DECIMAL, **_BINARY}
# The digits are bounded, for a Decimal rounds silently beyond 28 of them.
_SIZE = re.compile(r"([0-9]{1,16})(?:\.([0-9]{1,9}))?\s*([A-Za-z]*)", re.ASCII)
_MAX_BYTES = 2**63 - 1


def parse_bytes(size: str | int) -> int:
    """Bytes in `size`: a plain number, or one with a unit such as ``7.5 GB`` or ``500 MiB``."""
    if isinstance(size, bool):
        raise InputError(f"{size} is not a size: write bytes or a unit, such as 500 MB")
    if isinstance(size, int):
        return _checked(Decimal(size), str(size))
    match = _SIZE.fullmatch(size.strip())
    if match is None:
        raise InputError(f"{size!r} is not a size: write bytes or a unit, such as 500 MB or 2 GiB")
    whole, fraction, unit = match[1], match[2] or "0", match[3]
    return _checked(Decimal(f"{whole}.{fraction}") * _factor(unit, size), repr(size))


def _factor(unit: str, size: str) -> int:
    factor = _FACTORS.get(unit.upper())
    if factor is not None:
        return factor
    if unit.upper() in {"K", "M", "G", "T"}:
        letter = unit.upper()
        raise InputError(
            f"{size!r} is ambiguous: write {letter}B for powers of 1000, {letter}iB for 1024"
        )
    raise InputError(f"{size!r} has the unknown unit {unit!r}: use B, KB, MB, GB, TB, KiB ... TiB")


def _checked(count: Decimal, shown: str) -> int:
    if count < 0:
        raise InputError(f"{shown} is negative: a size is 0 or more bytes")
    if count != int(count):
        raise InputError(f"{shown} is not a whole number of bytes")
    if count > _MAX_BYTES:
        raise InputError(f"{shown} is larger than any file or memory can be (2^63 - 1 bytes)")
    return int(count)


def format_bytes(count: float) -> str:
    """`count` bytes in decimal units with three significant digits: ``13.2 MB``."""
    if abs(count) < 1000:
        return f"{count:.0f} B"
    for unit, factor in reversed(_DECIMAL.items()):
        # 999.5 KB and above would round to 1000 KB: they belong to the next unit.
        if abs(count) >= Decimal("0.9995") * factor:
            return f"{_three_digits(count / factor)} {unit}"
    raise AssertionError("the smallest unit is one byte")


def _three_digits(value: float) -> str:
    magnitude = len(str(int(abs(float(f"{value:.3g}")))))
    return f"{value:.{max(0, 3 - magnitude)}f}"
