# SPDX-License-Identifier: Apache-2.0
"""Kernels in the cache: taken from an image and a tree, and found again by version."""

import os
import struct
from pathlib import Path

import pytest

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.kernels import (
    cached_kernels,
    find_kernel,
    image_release,
    import_kernel,
)
from pagetier.capacity.lab.modules import REQUIRED
from pagetier.cgroups.errors import ParseError


def image(release: str) -> bytes:
    """The part of a bzImage that tells its release."""
    data = bytearray(4096)
    data[0x202:0x206] = b"HdrS"
    struct.pack_into("<H", data, 0x20E, 0x300)
    text = f"{release} (builder@host) #1 SMP\0".encode()
    data[0x500 : 0x500 + len(text)] = text
    return bytes(data)


def take(folder: Path, release: str, cache: Path) -> None:
    tree = folder / release
    tree.mkdir(parents=True)
    (tree / "modules.dep").write_text("".join(f"kernel/{name}.ko:\n" for name in REQUIRED))
    (tree / "kernel").mkdir()
    for name in REQUIRED:
        (tree / "kernel" / f"{name}.ko").write_bytes(name.encode())
    path = folder / f"vmlinuz-{release}"
    path.write_bytes(image(release))
    import_kernel(path, tree, cache)


def test_the_release_is_read_from_the_image() -> None:
    assert image_release(image("6.12.117+deb12-amd64"), "x") == "6.12.117+deb12-amd64"


@pytest.mark.parametrize("data", [b"", b"\x7fELF" + bytes(4096), image("")[:0x500] + bytes(512)])
def test_another_file_is_no_image(data: bytes) -> None:
    with pytest.raises(ParseError, match="somewhere"):
        image_release(data, "somewhere")


def test_a_version_finds_its_newest_release_and_no_other(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    for release in ("6.12.9-amd64", "6.12.117+deb12-amd64", "6.1.0-57-amd64"):
        take(tmp_path / "from", release, cache)
    assert find_kernel("6.12", cache).release == "6.12.117+deb12-amd64"
    assert find_kernel("6.1", cache).release == "6.1.0-57-amd64"
    assert find_kernel("6.12.9", cache).release == "6.12.9-amd64"
    assert cached_kernels(cache)[0].release == "6.12.117+deb12-amd64"
    with pytest.raises(CapacityError, match=r"no kernel 6\.6 .*lab setup --kernel 6\.6"):
        find_kernel("6.6", cache)


def test_a_kernel_is_taken_whole_and_again(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    take(tmp_path / "a", "6.12.1-amd64", cache)
    take(tmp_path / "b", "6.12.1-amd64", cache)
    kernel = find_kernel("6.12", cache)
    assert [path.read_bytes().decode() for path in kernel.modules] == list(REQUIRED)
    assert kernel.vmlinuz.read_bytes() == image("6.12.1-amd64")
    assert os.listdir(cache / "kernels") == ["6.12.1-amd64"]


def test_an_image_by_path_needs_its_modules(tmp_path: Path) -> None:
    path = tmp_path / "vmlinuz"
    path.write_bytes(image("9.9.9-none"))
    with pytest.raises(CapacityError, match=r"no modules\.dep .*--modules"):
        find_kernel(str(path), tmp_path / "cache")
    with pytest.raises(CapacityError, match="cannot read the kernel image"):
        find_kernel(str(tmp_path / "absent"), tmp_path / "cache")
    assert cached_kernels(tmp_path / "cache") == []
