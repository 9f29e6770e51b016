# SPDX-License-Identifier: Apache-2.0
"""Debian's kernels and its static busybox, taken into the lab's cache without installing them.

A version such as `6.12` is resolved to a package by the meta-packages, else to the newest image of
that version on offer; the -cloud- and -rt- flavours are left out (the first lacks 9p).
"""

import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.lab.kernels import Kernel, cached_kernels, import_kernel, release_key
from pagetier.capacity.lab.programs import SEARCH, find_program

__all__ = ["fetch_busybox", "fetch_kernel", "parse_depends", "pick_image"]

Say = Callable[[str], None]


def parse_depends(text: str) -> list[str]:
    """Names after `Depends:` in the answer of `apt-cache depends`."""
    return re.findall(r"^\s*\|?Depends: ([^\s<]+)$", text, re.MULTILINE)


def pick_image(version: str, offered: list[str]) -> str | None:
    """The newest plain image package of a version among package names."""
    pattern = re.compile(rf"linux-image-({re.escape(version)}[.-][0-9][0-9a-z.+-]*)-amd64")
    found = [
        name
        for name in offered
        if (match := pattern.fullmatch(name)) and not re.search("cloud|rt", match[1])
    ]
    return max(found, key=release_key, default=None)


def fetch_kernel(version: str, cache: Path, say: Say) -> Kernel:
    """The kernel of a version, from the archive into the cache unless it is there."""
    package = _resolve(version)
    release = package.removeprefix("linux-image-")
    for kernel in cached_kernels(cache):
        if kernel.release == release:
            say(f"kernel {version}: {release} is there")
            return kernel
    say(f"kernel {version}: fetching {package}")
    with _unpacked(package, cache) as tree:
        say(f"kernel {version}: indexing its modules")
        _run("depmod", "-b", str(tree), release)
        modules = next(
            path
            for base in ("lib", "usr/lib")
            if (path := tree / base / "modules" / release).is_dir()
        )
        return import_kernel(tree / "boot" / f"vmlinuz-{release}", modules, cache)


def fetch_busybox(cache: Path, say: Say) -> Path:
    """The static busybox that is a guest's first userland."""
    path = cache / "busybox"
    if path.exists():
        say("busybox: is there")
        return path
    say("busybox: fetching busybox-static")
    with _unpacked("busybox-static", cache) as tree:
        found = next(p for name in ("bin", "usr/bin") if (p := tree / name / "busybox").exists())
        os.replace(found, path)
    return path


def _resolve(version: str) -> str:
    for meta in (f"linux-image-{version}-amd64", "linux-image-amd64"):
        image = pick_image(version, parse_depends(_run("apt-cache", "depends", meta, allowed=100)))
        if image is not None:
            return image
    image = pick_image(version, _run("apt-cache", "pkgnames", f"linux-image-{version}").split())
    if image is None:
        raise CapacityError(
            f"apt offers no linux-image-{version} package: run `apt-get update`, or boot a kernel "
            "of your own with --kernel PATH"
        )
    return image


@contextmanager
def _unpacked(package: str, cache: Path) -> Iterator[Path]:
    """The content of a package, in a folder of the cache that is gone afterwards."""
    cache.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=cache, prefix=".unpack-") as folder:
        # apt's own sandbox user may not write here, and says so at length.
        user = ("-o", "APT::Sandbox::User=root") if os.geteuid() == 0 else ()
        _run("apt-get", "-q", *user, "download", package, cwd=Path(folder))
        (archive,) = Path(folder).glob("*.deb")
        _run("dpkg", "-x", str(archive), str(Path(folder) / "tree"))
        yield Path(folder) / "tree"


def _run(*argv: str, allowed: int = 0, cwd: Path | None = None) -> str:
    """stdout of a program; CapacityError with its last words for a status over `allowed`."""
    if find_program(argv[0]) is None:
        raise CapacityError(
            f"{argv[0]} is not installed, without which no kernel can be fetched: install it, or "
            "boot a kernel of your own with --kernel PATH"
        )
    done = subprocess.run(
        argv,
        cwd=cwd,
        env={**os.environ, "LC_ALL": "C", "PATH": SEARCH},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode > allowed:
        lines = done.stderr.strip().splitlines()
        detail = lines[-1] if lines else "it said nothing"
        raise CapacityError(
            f"`{' '.join(argv)}` ended with status {done.returncode}: {detail}; see that the "
            "archive can be reached and the disk has room"
        )
    return done.stdout
