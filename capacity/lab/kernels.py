# SPDX-License-Identifier: Apache-2.0
"""Kernels that the lab can boot: found in its cache, or taken into it from an image and a tree.

A kernel is named by its version as a user says it (`6.12`) or by the path of its image; what is
stored carries its release, as `uname -r` will say.
"""

import json
import os
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.modules import (
    load_order,
    names,
    parse_builtin,
    parse_modules_dep,
    read_module,
)
from pagetier.cgroups.errors import ParseError

__all__ = ["Kernel", "cached_kernels", "find_kernel", "image_release", "import_kernel"]

_VERSION = re.compile(r"\d+\.\d+(\.\d+)?")
# The boot protocol's header (Documentation/arch/x86/boot.rst): magic, then a pointer to the release
# string, relative to the second sector.
_MAGIC_AT, _POINTER_AT, _SECTOR = 0x202, 0x20E, 0x200


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel ready to boot; `modules` are in load order."""

    name: str
    release: str
    vmlinuz: Path
    modules: tuple[Path, ...]


def image_release(image: bytes, source: str) -> str:
    """The release inside an x86 bzImage; raises ParseError for any other file."""
    if len(image) < _POINTER_AT + 2 or image[_MAGIC_AT : _MAGIC_AT + 4] != b"HdrS":
        raise ParseError(source, None, "not a bootable x86 kernel image (bzImage)")
    (pointer,) = struct.unpack_from("<H", image, _POINTER_AT)
    text = image[pointer + _SECTOR : pointer + _SECTOR + 256].split(b"\0")[0].decode("latin-1")
    if not text:
        raise ParseError(source, None, "the kernel image does not tell its release")
    return text.split()[0]


def cached_kernels(cache: Path) -> list[Kernel]:
    """Every kernel in the cache, the newest release first."""
    manifests = sorted((cache / "kernels").glob("*/kernel.json"))
    kernels = [_load(path.parent, path.parent.name) for path in manifests]
    return sorted(kernels, key=lambda kernel: release_key(kernel.release), reverse=True)


def find_kernel(name: str, cache: Path, modules: Path | None = None) -> Kernel:
    """The newest cached kernel of a version, or the image at a path, taken into the cache."""
    if _VERSION.fullmatch(name):
        for kernel in cached_kernels(cache):
            if kernel.release == name or kernel.release.startswith((f"{name}.", f"{name}-")):
                return Kernel(name, kernel.release, kernel.vmlinuz, kernel.modules)
        raise CapacityError(
            f"no kernel {name} in {cache}: run `pagetier lab setup --kernel {name}`"
        )
    return import_kernel(Path(name), modules, cache)


def import_kernel(image: Path, modules: Path | None, cache: Path) -> Kernel:
    """Take an image and the modules it needs; `modules` holds its modules.dep.

    Without `modules` the host's own tree of that release is used.
    """
    try:
        release = image_release(image.read_bytes(), str(image))
    except OSError as error:
        raise CapacityError(
            f"{image}: cannot read the kernel image: {error.strerror}; name a vmlinuz or a version"
        ) from None
    tree = modules or Path("/lib/modules") / release
    if not (tree / "modules.dep").exists():
        raise CapacityError(
            f"{tree}: no modules.dep for {image} there; name the folder of its modules with "
            "--modules, and run depmod on it"
        )
    with _staged(cache / "kernels" / release) as folder:
        _store(folder, image, release, tree)
    return _load(cache / "kernels" / release, release)


def release_key(release: str) -> tuple[int, ...]:
    """Orders releases by their numbers."""
    return tuple(int(number) for number in re.findall(r"\d+", release))


def _load(folder: Path, name: str) -> Kernel:
    document = json.loads((folder / "kernel.json").read_text())
    modules = tuple(folder / "modules" / module for module in document["modules"])
    return Kernel(name, document["release"], folder / "vmlinuz", modules)


def _store(folder: Path, image: Path, release: str, tree: Path) -> None:
    needs = parse_modules_dep((tree / "modules.dep").read_text(), str(tree / "modules.dep"))
    builtin = tree / "modules.builtin"
    order = load_order(needs, parse_builtin(builtin.read_text() if builtin.exists() else ""))
    (folder / "modules").mkdir()
    files = list(names(order))
    for path, file in zip(order, files, strict=True):
        (folder / "modules" / file).write_bytes(read_module(tree / path))
    shutil.copyfile(image, folder / "vmlinuz")
    manifest = {"release": release, "modules": files, "image": str(image), "tree": str(tree)}
    (folder / "kernel.json").write_text(json.dumps(manifest, indent=2))


@contextmanager
def _staged(folder: Path) -> Iterator[Path]:
    """A folder that appears whole at its place, or not at all."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    staged = Path(tempfile.mkdtemp(dir=folder.parent, prefix=".new-"))
    try:
        yield staged
        if folder.exists():
            os.rename(folder, staged / "old")
        os.rename(staged, folder)
        shutil.rmtree(folder / "old", ignore_errors=True)
    finally:
        if staged.exists():
            shutil.rmtree(staged)
