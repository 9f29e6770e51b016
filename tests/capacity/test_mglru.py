# SPDX-License-Identifier: Apache-2.0
"""The MGLRU knob on a fake kernel: what is written, read back, recorded, restored and refused."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from pagetier.capacity import mglru
from pagetier.capacity.errors import CapacityError
from pagetier.capacity.mglru import Mglru, MglruKnob, State, parse_mask, read_mglru, restore
from pagetier.cgroups.errors import CgroupError, ParseError
from pagetier.cgroups.files import write_value
from pagetier.cgroups.roots import Roots

ALL_BITS = 0x7


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


class Kernel:
    """enabled_store and enabled_show of mm/vmscan.c over plain files."""

    def __init__(self, folder: Path, text: str) -> None:
        self.roots = Roots(folder / "proc", folder / "sys", folder / "cgroup")
        self.enabled = self.roots.sys / "kernel/mm/lru_gen/enabled"
        self.drop_caches = self.roots.proc / "sys/vm/drop_caches"
        self.hardware = ALL_BITS
        self.written: list[str] = []
        write(self.enabled, text)
        write(self.enabled.with_name("min_ttl_ms"), "13\n")
        write(self.drop_caches, "0\n")

    @property
    def mask(self) -> int | None:
        return read_mglru(self.roots.sys).mask

    def store(self, path: Path, value: str) -> None:
        assert path == self.enabled
        self.written.append(value)
        wanted = ALL_BITS if value == "y" else int(value, 0)
        write(path, f"{wanted & self.hardware:#06x}\n")

    def drops(self) -> bool:
        """Whether the cache was dropped since the last question."""
        dropped = self.drop_caches.read_text() != "0\n"
        self.drop_caches.write_text("0\n")
        return dropped


Boot = Callable[[str], Kernel]


@pytest.fixture
def boot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Boot:
    def start(text: str) -> Kernel:
        kernel = Kernel(tmp_path, text)
        monkeypatch.setattr(mglru, "write_value", kernel.store)
        return kernel

    return start


@pytest.mark.parametrize(
    ("text", "mask", "enabled"),
    [("0x0000\n", 0, False), ("0x0007\n", 7, True), ("0x0005\n", 5, True), ("0x0006\n", 6, False)],
)
def test_on_is_the_first_bit(boot: Boot, text: str, mask: int, enabled: bool) -> None:
    found = read_mglru(boot(text).roots.sys)
    assert found == Mglru(available=True, mask=mask, min_ttl_ms=13, writable=True)
    assert found.enabled is enabled


def test_absent(tmp_path: Path) -> None:
    found = read_mglru(tmp_path)
    assert found == Mglru(available=False, mask=None, min_ttl_ms=None, writable=None)
    assert found.enabled is None


def test_kernel_without_min_ttl(boot: Boot) -> None:
    kernel = boot("0x0007\n")
    kernel.enabled.with_name("min_ttl_ms").unlink()
    assert read_mglru(kernel.roots.sys).min_ttl_ms is None


@pytest.mark.parametrize("text", ["", "7\n", "y\n", "0x\n", "0xzz\n"])
def test_malformed_mask(text: str) -> None:
    with pytest.raises(ParseError, match=r"lru_gen/enabled:1: mask is "):
        parse_mask(text)


@pytest.mark.parametrize(
    ("text", "state", "during"),
    [
        ("0x0007\n", "off", 0),
        ("0x0005\n", "off", 0),
        ("0x0000\n", "on", 7),
        ("0x0005\n", "on", 7),
        ("0x0006\n", "on", 7),
        ("0x0007\n", "on", 7),
        ("0x0000\n", "off", 0),
    ],
)
def test_switched_within_the_block_and_back_after_it(
    boot: Boot, text: str, state: State, during: int
) -> None:
    kernel = boot(text)
    before = kernel.mask
    with MglruKnob(kernel.roots).apply(state) as found:
        assert found.mask == kernel.mask == during
        assert found.min_ttl_ms == 13
        assert kernel.drops()
    assert kernel.mask == before
    assert kernel.drops() is (before != during)


def test_keep_touches_nothing(boot: Boot) -> None:
    kernel = boot("0x0005\n")
    with MglruKnob(kernel.roots).apply("keep") as found:
        assert found.mask == 5
    assert kernel.written == []
    assert not kernel.drops()


def test_keep_works_without_mglru(tmp_path: Path) -> None:
    knob = MglruKnob(Roots(tmp_path, tmp_path, tmp_path))
    assert not knob.available()
    with knob.apply("keep") as found:
        assert found.mask is None


def test_restored_when_the_block_fails(boot: Boot) -> None:
    kernel = boot("0x0005\n")
    with pytest.raises(KeyboardInterrupt), MglruKnob(kernel.roots).apply("off"):
        raise KeyboardInterrupt
    assert kernel.mask == 5


def test_hardware_without_all_bits_is_still_on(boot: Boot) -> None:
    kernel = boot("0x0000\n")
    kernel.hardware = 0x1
    with MglruKnob(kernel.roots).apply("on") as found:
        assert found.mask == 1
    assert kernel.mask == 0


@pytest.mark.parametrize("state", ["on", "off"])
def test_absent_is_explained(tmp_path: Path, state: State) -> None:
    knob = MglruKnob(Roots(tmp_path, tmp_path, tmp_path))
    with (
        pytest.raises(CapacityError, match=r"lru_gen: not in this kernel .*CONFIG_LRU_GEN.*keep"),
        knob.apply(state),
    ):
        pass


@pytest.mark.parametrize(
    ("number", "message"),
    [
        (errno.EROFS, "Read-only file system: sysfs is mounted read-only, as in most containers"),
        (errno.EACCES, "Permission denied: run as root"),
        (errno.EPERM, "Operation not permitted: run as root"),
        (errno.EINVAL, "Invalid argument: look into the kernel log"),
    ],
)
def test_refusal_is_explained(
    boot: Boot, monkeypatch: pytest.MonkeyPatch, number: int, message: str
) -> None:
    kernel = boot("0x0007\n")

    def refuse(path: Path, value: str) -> None:
        raise CgroupError(f"cannot write {value!r} to {path}", errno=number)

    monkeypatch.setattr(mglru, "write_value", refuse)
    with (
        pytest.raises(CapacityError, match=f"^{kernel.enabled}: cannot be switched: {message}"),
        MglruKnob(kernel.roots).apply("off"),
    ):
        pass
    assert kernel.mask == 7
    assert not kernel.drops()


def test_the_true_writer_names_what_the_kernel_said(tmp_path: Path) -> None:
    with pytest.raises(CgroupError) as caught:
        write_value(tmp_path / "absent", "y")
    assert caught.value.errno == errno.ENOENT


@pytest.mark.parametrize(("state", "hardware", "reads"), [("on", 0x6, "0x0006")])
def test_read_back_differs(boot: Boot, state: State, hardware: int, reads: str) -> None:
    kernel = boot("0x0000\n")
    kernel.hardware = hardware
    with (
        pytest.raises(CapacityError, match=rf"enabled: reads {reads}; .* after `on` was asked for"),
        MglruKnob(kernel.roots).apply(state),
    ):
        pass
    assert kernel.mask == 0


def test_off_that_does_not_stick(boot: Boot, monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = boot("0x0007\n")
    monkeypatch.setattr(mglru, "write_value", lambda *_: None)
    with (
        pytest.raises(CapacityError, match=r"reads 0x0007; .* after `off` was asked for"),
        MglruKnob(kernel.roots).apply("off"),
    ):
        pass


def test_mask_that_cannot_be_put_back(boot: Boot) -> None:
    kernel = boot("0x0007\n")

    def lose_bits() -> None:
        with MglruKnob(kernel.roots).apply("off"):
            kernel.hardware = 0x1

    with pytest.raises(CapacityError, match=r"reads 0x0001; .* after 0x0007 was put back"):
        lose_bits()


def test_cache_that_cannot_be_dropped_voids_the_switch(boot: Boot) -> None:
    kernel = boot("0x0000\n")
    kernel.drop_caches.unlink()
    with (
        pytest.raises(CapacityError, match=r"sys/vm/drop_caches: the page cache cannot be dropped"),
        MglruKnob(kernel.roots).apply("on"),
    ):
        pass
    assert kernel.mask == 0


def test_recovery_puts_the_recorded_mask_back_once(boot: Boot) -> None:
    kernel = boot("0x0000\n")
    assert restore(5, kernel.roots)
    assert kernel.mask == 5
    assert kernel.drops()
    assert not restore(5, kernel.roots)
    assert kernel.written == ["0x0005"]
    assert not kernel.drops()


def test_writable_is_false_for_a_mount_or_user_that_may_not(
    boot: Boot, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = boot("0x0007\n")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert read_mglru(kernel.roots.sys).writable is False
