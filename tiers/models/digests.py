# SPDX-License-Identifier: Apache-2.0
"""What the experts of a mapped pool contained when they were first read: one XXH64 each, cached.

Nobody can compute what a model's weights should be, so what was read once is what they must be from
then on.  The cache lies beside ``pool.json`` and belongs to one state of the weight files (inode,
size and time of each): for any other it is empty.
"""

import io
import zipfile
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.tiers.filesystem import explain, open_regular
from pagetier.tiers.models.pool import MappedPool

__all__ = ["CACHE_NAME", "Digests", "load_digests", "save_digests"]

CACHE_NAME: Final = "digests.npz"
# Room for the names and headers of an archive of three arrays.
_ARCHIVE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Digests:
    """By expert: the hash of its extents one after the other, and whether it is known."""

    value: NDArray[np.uint64]
    known: NDArray[np.bool_]

    @classmethod
    def none(cls, experts: int) -> "Digests":
        """Nothing is known yet."""
        return cls(np.zeros(experts, dtype=np.uint64), np.zeros(experts, dtype=np.bool_))


def load_digests(pool: MappedPool) -> Digests:
    """The cache of this very state of the weight files; InputError for a file that is no cache."""
    total = pool.total_experts
    with pool.opened() as root_fd:
        try:
            fd = open_regular(root_fd, CACHE_NAME)
        except FileNotFoundError:
            return Digests.none(total)
        except OSError as error:
            raise InputError(f"{pool.root / CACHE_NAME}: {explain(error)}") from error
        with open(fd, "rb") as file:
            raw = file.read(9 * total + len(pool.digest) * 4 + _ARCHIVE_BYTES)
            whole = not file.read(1)
    found = _parsed(raw, total) if whole else None
    if found is None:
        raise InputError(
            f"{pool.root / CACHE_NAME}: holds no digests of this pool; remove it, and the next "
            "`pagetier pool check` makes it again"
        )
    digest, digests = found
    return digests if digest == pool.digest else Digests.none(total)


def save_digests(pool: MappedPool, digests: Digests) -> None:
    """Write the cache, whole or not at all."""
    buffer = io.BytesIO()
    np.savez(buffer, pool=np.array(pool.digest), value=digests.value, known=digests.known)
    replace_file(pool.root / CACHE_NAME, buffer.getvalue())


def _parsed(raw: bytes, experts: int) -> tuple[str, Digests] | None:
    try:
        with np.load(io.BytesIO(raw), allow_pickle=False) as archive:
            digest, value, known = archive["pool"], archive["value"], archive["known"]
    except (ValueError, KeyError, EOFError, TypeError, OSError, zipfile.BadZipFile):
        return None
    if digest.dtype.kind != "U" or (value.dtype, known.dtype) != (np.uint64, np.bool_):
        return None
    if value.shape != (experts,) or known.shape != (experts,):
        # Of another geometry: the model was mapped anew.
        return "", Digests.none(experts)
    return str(digest), Digests(value, known)
