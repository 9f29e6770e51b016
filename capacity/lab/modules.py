# SPDX-License-Identifier: Apache-2.0
"""Which modules a guest needs to see its disk and the host's files, and the order to load them in.

A distribution's kernel has nearly everything as modules.  `modules.dep` (depmod(8)) names for each
module what must be loaded before it; `modules.builtin` names what needs no loading.  Modules are
kept decompressed, so that the smallest insmod can load them.
"""

import gzip
import lzma
import subprocess
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath

from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.errors import ParseError

__all__ = ["load_order", "module_name", "parse_builtin", "parse_modules_dep", "read_module"]

REQUIRED = ("virtio_pci", "virtio_blk", "9pnet_virtio", "9p", "ext4", "nvme")
# What only some kernels have or need: ext4 asks for a checksum by name (6.1), and a guest without
# a source of randomness may block a program's start.
OPTIONAL = ("crc32c_generic", "crc32c_intel", "virtio_rng")

_SUFFIXES = (".ko", ".ko.xz", ".ko.gz", ".ko.zst")


def module_name(path: str) -> str | None:
    """`virtio_blk` for `kernel/drivers/block/virtio-blk.ko.xz`; None for what is no module."""
    name = PurePosixPath(path).name
    for suffix in _SUFFIXES:
        if name.endswith(suffix):
            return name.removesuffix(suffix).replace("-", "_")
    return None


def parse_modules_dep(text: str, source: str = "modules.dep") -> dict[str, tuple[str, ...]]:
    """Path of each module to the paths it needs; the last needed is to be loaded first."""
    table: dict[str, tuple[str, ...]] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        path, colon, needs = line.partition(":")
        if not colon or module_name(path) is None:
            raise ParseError(source, number, f"not `module: needed modules`: {line[:80]!r}")
        table[path] = tuple(needs.split())
    return table


def parse_builtin(text: str) -> set[str]:
    """Names of the modules that are part of the kernel image."""
    return {name for line in text.splitlines() if (name := module_name(line)) is not None}


def load_order(needs: Mapping[str, tuple[str, ...]], builtin: Collection[str]) -> list[str]:
    """Paths of every module to load, each after what it needs.

    Raises CapacityError naming a required module that this kernel has in neither form.
    """
    by_name = {module_name(path): path for path in needs}
    order: dict[str, None] = {}
    for name in (*OPTIONAL, *REQUIRED):
        path = by_name.get(name)
        if path is not None:
            order |= dict.fromkeys((*reversed(needs[path]), path))
        elif name in REQUIRED and name not in builtin:
            raise CapacityError(
                f"the kernel has no module {name}, without which a guest cannot see its disk or "
                "the host's files: use a distribution's general kernel, not its cloud flavour"
            )
    return list(order)


def read_module(path: Path) -> bytes:
    """The module itself, decompressed."""
    match path.suffix:
        case ".xz":
            return lzma.decompress(path.read_bytes())
        case ".gz":
            return gzip.decompress(path.read_bytes())
        case ".zst":
            return _zstd(path)
        case _:
            return path.read_bytes()


def _zstd(path: Path) -> bytes:
    try:
        return subprocess.run(["zstd", "-dcq", str(path)], capture_output=True, check=True).stdout
    except (FileNotFoundError, subprocess.CalledProcessError):
        raise CapacityError(f"{path}: cannot be decompressed: install zstd") from None


def names(order: Collection[str]) -> Iterator[str]:
    """File names for an initramfs, numbered in load order."""
    for number, path in enumerate(order):
        yield f"{number:02d}-{module_name(path)}.ko"
