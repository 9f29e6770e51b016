# SPDX-License-Identifier: Apache-2.0
"""Boot loaders by the files of fake roots, and the exact steps for each."""

import subprocess
from pathlib import Path

import pytest

from pagetier.bench.boot.loader import detect_loader

RELEASE = "6.12.9-amd64"


def touch(root: Path, *paths: str) -> None:
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text("")


DEBIAN = ("usr/sbin/update-grub", "usr/sbin/grub-mkconfig", "etc/default/grub")
FEDORA = ("usr/bin/grubby", "usr/sbin/grub2-mkconfig", "etc/default/grub", "boot/loader/entries/a")
ARCH = ("boot/loader/loader.conf", f"boot/loader/entries/{RELEASE}.conf")


def test_debian(tmp_path: Path) -> None:
    touch(tmp_path, *DEBIAN)
    loader = detect_loader(tmp_path, RELEASE)
    assert loader.name == "GRUB with update-grub"
    assert loader.add("mem=7M") == (
        "sudo mkdir -p /etc/default/grub.d",
        "echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX mem=7M\"' "
        "| sudo tee /etc/default/grub.d/99-pagetier.cfg",
        "sudo update-grub",
    )
    assert loader.remove == ("sudo rm -f /etc/default/grub.d/99-pagetier.cfg", "sudo update-grub")


def test_the_drop_in_adds_to_what_grub_has(tmp_path: Path) -> None:
    touch(tmp_path, *DEBIAN)
    _, line, _ = detect_loader(tmp_path, RELEASE).add("mem=7M")
    drop_in = subprocess.run(
        ["sh", "-c", line.partition(" | ")[0]], capture_output=True, text=True, check=True
    ).stdout
    script = f'GRUB_CMDLINE_LINUX="quiet"\n{drop_in}\nprintf %s "$GRUB_CMDLINE_LINUX"'
    made = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=True)
    assert made.stdout == "quiet mem=7M"


def test_fedora_by_grubby(tmp_path: Path) -> None:
    touch(tmp_path, *FEDORA)
    loader = detect_loader(tmp_path, RELEASE)
    assert loader.name == "grubby"
    assert loader.add("mem=7M") == (
        'sudo grubby --update-kernel=ALL --remove-args="mem pagetier.capacity"',
        'sudo grubby --update-kernel=ALL --args="mem=7M"',
    )
    assert loader.remove == (
        'sudo grubby --update-kernel=ALL --remove-args="mem pagetier.capacity"',
    )


def test_systemd_boot_with_an_entry_of_our_own(tmp_path: Path) -> None:
    touch(tmp_path, *ARCH, "boot/loader/entries/0-old.conf", "boot/loader/entries/pagetier.conf")
    loader = detect_loader(tmp_path, RELEASE)
    make, once = loader.add("mem=7M")
    assert f"/boot/loader/entries/{RELEASE}.conf" in make
    assert once == "sudo bootctl set-oneshot pagetier.conf"
    assert loader.remove == ("sudo rm -f /boot/loader/entries/pagetier.conf",)
    assert "only once" in loader.rescue


def test_the_entry_of_our_own_has_the_words_more(tmp_path: Path) -> None:
    touch(tmp_path, *ARCH)
    entry = tmp_path / f"boot/loader/entries/{RELEASE}.conf"
    entry.write_text("title Linux\nlinux /vmlinuz\noptions root=/dev/sda2 ro\n")
    make = detect_loader(tmp_path, RELEASE).add("mem=7M")[0].partition(" | ")[0]
    command = make.replace("/boot/loader", f"{tmp_path}/boot/loader")
    made = subprocess.run(["sh", "-c", command], capture_output=True, text=True, check=True)
    assert made.stdout == "title pagetier\nlinux /vmlinuz\noptions root=/dev/sda2 ro mem=7M\n"


@pytest.mark.parametrize("image", [f"boot/vmlinuz-{RELEASE}", f"lib/modules/{RELEASE}/vmlinuz"])
def test_systemd_boot_with_kernel_install(tmp_path: Path, image: str) -> None:
    touch(tmp_path, *ARCH, "etc/kernel/cmdline", image)
    loader = detect_loader(tmp_path, RELEASE)
    keep, change, install = loader.add("mem=7M")
    assert keep == "sudo cp --no-clobber /etc/kernel/cmdline /etc/kernel/cmdline.pagetier"
    assert change.startswith("sed '1s/$/ mem=7M/' /etc/kernel/cmdline.pagetier |")
    assert install == f"sudo kernel-install add {RELEASE} /{image}"
    assert loader.remove == ("sudo mv /etc/kernel/cmdline.pagetier /etc/kernel/cmdline", install)


@pytest.mark.parametrize(
    ("program", "folder"), [("grub-mkconfig", "grub"), ("grub2-mkconfig", "grub2")]
)
def test_grub_without_helpers(tmp_path: Path, program: str, folder: str) -> None:
    touch(tmp_path, f"usr/sbin/{program}", "etc/default/grub")
    loader = detect_loader(tmp_path, RELEASE)
    edit, make = loader.add("mem=7M")
    assert edit.startswith("in /etc/default/grub, append mem=7M")
    assert make == f"sudo {program} -o /boot/{folder}/grub.cfg"


def test_nothing_known(tmp_path: Path) -> None:
    loader = detect_loader(tmp_path, None)
    assert loader.name == "unknown boot loader"
    assert "mem=7M" in loader.add("mem=7M")[0]
    assert loader.remove


def test_no_boot_file_is_written(tmp_path: Path) -> None:
    touch(tmp_path, *DEBIAN, *FEDORA, *ARCH, "etc/kernel/cmdline")
    before = {path: path.stat() for path in tmp_path.rglob("*")}
    detect_loader(tmp_path, RELEASE).add("mem=7M")
    assert {path: path.stat() for path in tmp_path.rglob("*")} == before
