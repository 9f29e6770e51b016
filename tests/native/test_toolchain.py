# SPDX-License-Identifier: Apache-2.0
"""The C test programs under several compilers, sanitizers and a foreign processor."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
TESTS = ROOT / "tests" / "native" / "c"
PROGRAMS = ("test_reader", "test_routes", "test_tiers")
# Calls that the tests let fail: see fixture.h.
WRAPPED = ("pread", "preadv2", "posix_fadvise", "mlock", "open", "clock_gettime", "syscall")
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-g", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")

pytestmark = pytest.mark.toolchain


def build(compiler: str, directory: Path, *flags: str) -> list[Path]:
    """All programs, of objects that are compiled once."""
    sources = [path for path in sorted(NATIVE.glob("*.c")) if path.name != "_core.c"]
    command = [compiler, *FLAGS, *flags, f"-I{NATIVE}"]
    compile_only = [*command, "-c", *map(str, sources), str(TESTS / "fixture.c")]
    subprocess.run(compile_only, check=True, cwd=directory)
    objects = [str(path) for path in sorted(directory.glob("*.o"))]
    wraps = [f"-Wl,--wrap={call}" for call in WRAPPED]
    for program in PROGRAMS:
        made = ["-o", str(directory / program)]
        link = [*command, *wraps, str(TESTS / f"{program}.c"), *objects, *made]
        subprocess.run(link, check=True)
    return [directory / program for program in PROGRAMS]


def run(directory: Path, *command: str) -> None:
    done = subprocess.run(
        [*command, str(directory)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("passed\n")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_plain(tool: Callable[[str], str], tmp_path: Path, disk_path: Path, compiler: str) -> None:
    for program in build(tool(compiler), tmp_path):
        run(disk_path, str(program))


def test_address_and_undefined_behaviour(
    tool: Callable[[str], str], tmp_path: Path, disk_path: Path
) -> None:
    sanitize = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    for program in build(tool("gcc"), tmp_path, *sanitize):
        run(disk_path, str(program))


def test_races(tool: Callable[[str], str], tmp_path: Path, disk_path: Path) -> None:
    for program in build(tool("gcc"), tmp_path, "-fsanitize=thread"):
        # Without randomised addresses: older runtimes do not know the layouts of newer kernels.
        run(disk_path, tool("setarch"), "-R", str(program))


def test_arm64(tool: Callable[[str], str], tmp_path: Path, disk_path: Path) -> None:
    for program in build(tool("aarch64-linux-gnu-gcc"), tmp_path, "-static"):
        run(disk_path, tool("qemu-aarch64-static"), str(program))
