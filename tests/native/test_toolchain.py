# SPDX-License-Identifier: Apache-2.0
"""The C test program under several compilers, sanitizers and a foreign processor."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NATIVE = ROOT / "native"
PROGRAM = ROOT / "tests" / "native" / "c" / "test_reader.c"
FLAGS = ("-std=c11", "-D_GNU_SOURCE", "-g", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread")

pytestmark = pytest.mark.toolchain


def build(compiler: str, target: Path, *flags: str) -> None:
    sources = [str(path) for path in sorted(NATIVE.glob("*.c")) if path.name != "_core.c"]
    command = [compiler, *FLAGS, *flags, f"-I{NATIVE}", "-Wl,--wrap=pread", *sources, str(PROGRAM)]
    subprocess.run([*command, "-o", str(target)], check=True)


def run(directory: Path, *command: str) -> None:
    done = subprocess.run(
        [*command, str(directory)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.endswith("passed\n")


@pytest.mark.parametrize("compiler", ["gcc", "clang"])
def test_plain(tool: Callable[[str], str], tmp_path: Path, disk_path: Path, compiler: str) -> None:
    build(tool(compiler), tmp_path / "test_reader")
    run(disk_path, str(tmp_path / "test_reader"))


def test_address_and_undefined_behaviour(
    tool: Callable[[str], str], tmp_path: Path, disk_path: Path
) -> None:
    sanitize = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
    build(tool("gcc"), tmp_path / "test_reader", *sanitize)
    run(disk_path, str(tmp_path / "test_reader"))


def test_races(tool: Callable[[str], str], tmp_path: Path, disk_path: Path) -> None:
    build(tool("gcc"), tmp_path / "test_reader", "-fsanitize=thread")
    # Without randomised addresses: older runtimes do not know the layouts of newer kernels.
    run(disk_path, tool("setarch"), "-R", str(tmp_path / "test_reader"))


def test_arm64(tool: Callable[[str], str], tmp_path: Path, disk_path: Path) -> None:
    build(tool("aarch64-linux-gnu-gcc"), tmp_path / "test_reader", "-static")
    run(disk_path, tool("qemu-aarch64-static"), str(tmp_path / "test_reader"))
