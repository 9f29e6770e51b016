# SPDX-License-Identifier: Apache-2.0
"""The multi-generational LRU: whether it is there and on, and the knob that switches it.

`enabled` is a mask: 0x1 the main switch, 0x2 accessed bits of leaf entries cleared in batches, 0x4
the same for non-leaf ones.  Writing `y` asks for all bits, and the kernel shows those that its
hardware can do: bit 0 is what counts (Documentation/admin-guide/mm/multigen_lru.rst).  No directory
means CONFIG_LRU_GEN is off, or a kernel before 6.1.  A switch moves all pages to other lists, in an
order that no reclaim would have made: the page cache is dropped after each.

Raises CapacityError, with a remedy, when the kernel or its mounts refuse, and when the mask does
not read back as asked for.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from pagetier.capacity.caches import drop_page_cache
from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.files import read_count, read_optional, write_value
from pagetier.cgroups.roots import Roots

__all__ = ["Mglru", "MglruKnob", "State", "parse_mask", "read_mglru", "restore"]

State = Literal["keep", "on", "off"]

MAIN_SWITCH = 0x1

_FOLDER = Path("kernel/mm/lru_gen")
_WORDS = {"on": "y", "off": "0"}
_BY_ROOT = "run as root on the host itself"
_REMEDIES = {
    errno.EROFS: "sysfs is mounted read-only, as in most containers: run on the host itself, or in "
    "a booted kernel with `pagetier lab run`",
    errno.EACCES: _BY_ROOT,
    errno.EPERM: _BY_ROOT,
}


@dataclass(frozen=True, slots=True)
class Mglru:
    """State of the multi-generational LRU; all but `available` is None where it is absent."""

    available: bool
    mask: int | None
    min_ttl_ms: int | None
    writable: bool | None

    @property
    def enabled(self) -> bool | None:
        """Whether the main switch is on; None where there is none."""
        return None if self.mask is None else bool(self.mask & MAIN_SWITCH)


def parse_mask(text: str, *, where: str = "/sys/kernel/mm/lru_gen/enabled") -> int:
    """The mask as the kernel prints it: hexadecimal with a 0x in front."""
    word = text.strip()
    try:
        if word.lower().startswith("0x"):
            return int(word, 16)
    except ValueError:
        pass
    raise ParseError(where, 1, f"mask is {word[:40]!r}, not a hexadecimal number such as 0x0007")


def read_mglru(sys: Path) -> Mglru:
    """What the running kernel says; `writable` is for this process, read-only mounts included."""
    enabled = sys / _FOLDER / "enabled"
    text = read_optional(enabled)
    if text is None:
        return Mglru(available=False, mask=None, min_ttl_ms=None, writable=None)
    return Mglru(
        available=True,
        mask=parse_mask(text, where=str(enabled)),
        min_ttl_ms=read_count(sys / _FOLDER / "min_ttl_ms"),
        writable=os.access(enabled, os.W_OK),
    )


class MglruKnob:
    """Switches the multi-generational LRU of the host for the length of a `with` block."""

    def __init__(self, roots: Roots) -> None:
        self._roots = roots
        self._path = roots.sys / _FOLDER / "enabled"

    def available(self) -> bool:
        """Whether this kernel has it; whether it may be switched only trying tells for sure."""
        return self.show().available

    def show(self) -> Mglru:
        """The state now."""
        return read_mglru(self._roots.sys)

    @contextmanager
    def apply(self, state: State) -> Iterator[Mglru]:
        """Switch and drop the page cache, also when the state was that already; undo on any exit.

        `keep` leaves everything as it is.  Yields the state as read back.
        """
        before = self.show()
        if state == "keep":
            yield before
            return
        mask = self._present(before)
        try:
            self._write(_WORDS[state])
            found = self.show()
            if found.enabled is not (state == "on"):
                raise CapacityError(f"{self._differs(found)} after `{state}` was asked for")
            drop_page_cache(self._roots)
            yield found
        finally:
            self.restore(mask)

    def restore(self, mask: int) -> bool:
        """Put a recorded mask back and drop the page cache; False when it was in force already."""
        if self._present(self.show()) == mask:
            return False
        self._write(f"{mask:#06x}")
        found = self.show()
        if found.mask != mask:
            raise CapacityError(f"{self._differs(found)} after {mask:#06x} was put back")
        drop_page_cache(self._roots)
        return True

    def _present(self, found: Mglru) -> int:
        if found.mask is None:
            raise CapacityError(
                f"{self._path.parent}: not in this kernel (before 6.1, or without CONFIG_LRU_GEN): "
                "leave `mglru: keep`, or run in a booted kernel with `pagetier lab run`"
            )
        return found.mask

    def _write(self, word: str) -> None:
        try:
            write_value(self._path, word)
        except CgroupError as error:
            number = error.errno or 0
            remedy = _REMEDIES.get(number, "look into the kernel log")
            raise CapacityError(
                f"{self._path}: cannot be switched: {os.strerror(number)}: {remedy}"
            ) from error

    def _differs(self, found: Mglru) -> str:
        mask = "nothing" if found.mask is None else f"{found.mask:#06x}"
        return f"{self._path}: reads {mask}; something else on this host switches it"


def restore(mask: int, roots: Roots) -> bool:
    """For the recovery after a crash: what `MglruKnob.restore` does."""
    return MglruKnob(roots).restore(mask)
