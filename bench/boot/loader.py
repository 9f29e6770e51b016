# SPDX-License-Identifier: Apache-2.0
"""How words get onto this host's kernel command line, and off it again: text for people.

The boot loader is told by the files that are there, below an injected root; nothing is written and
no program is run.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Loader", "detect_loader"]

_SBIN = ("usr/sbin", "usr/bin", "sbin", "bin")
_DROP_IN = "/etc/default/grub.d/99-pagetier.cfg"
_SYSTEMD_BOOT = ("boot", "efi", "boot/efi")
_IN_MENU = (
    "should the host not come up: press e on its entry in the boot menu and delete {argument} from "
    "the kernel's line"
)


@dataclass(frozen=True, slots=True)
class Loader:
    """A boot loader by name; `add` and `remove` are commands, or what to do where none is safe."""

    name: str
    add: Callable[[str], tuple[str, ...]]
    remove: tuple[str, ...]
    rescue: str = _IN_MENU


def detect_loader(root: Path, kernel_release: str | None) -> Loader:
    """What this host boots with; the generic one when nothing known is found."""
    for found in (_grubby, _update_grub, _kernel_install, _loader_entry, _grub_mkconfig):
        loader = found(root, kernel_release)
        if loader is not None:
            return loader
    return Loader(
        name="unknown boot loader",
        add=lambda argument: (
            f"add {argument} to the kernel's command line where your boot loader keeps it",
        ),
        remove=("take the mem= and pagetier.capacity= words off the kernel's command line again",),
    )


def _program(root: Path, *names: str) -> str | None:
    for name in names:
        if any((root / folder / name).exists() for folder in _SBIN):
            return name
    return None


def _grubby(root: Path, _: str | None) -> Loader | None:
    """Fedora, RHEL and their kin; it knows GRUB with and without loader entries, and zipl."""
    if _program(root, "grubby") is None:
        return None
    remove = 'sudo grubby --update-kernel=ALL --remove-args="mem pagetier.capacity"'
    return Loader(
        name="grubby",
        add=lambda argument: (remove, f'sudo grubby --update-kernel=ALL --args="{argument}"'),
        remove=(remove,),
    )


def _update_grub(root: Path, _: str | None) -> Loader | None:
    """Debian, Ubuntu and their kin, whose grub-mkconfig reads /etc/default/grub.d."""
    if _program(root, "update-grub") is None or not (root / "etc/default/grub").exists():
        return None
    return Loader(
        name="GRUB with update-grub",
        add=lambda argument: (
            "sudo mkdir -p /etc/default/grub.d",
            f"echo 'GRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX {argument}\"' | sudo tee {_DROP_IN}",
            "sudo update-grub",
        ),
        remove=(f"sudo rm -f {_DROP_IN}", "sudo update-grub"),
    )


def _kernel_install(root: Path, kernel_release: str | None) -> Loader | None:
    """systemd-boot whose entries kernel-install writes anew from /etc/kernel/cmdline."""
    cmdline = root / "etc/kernel/cmdline"
    if _entries_folder(root) is None or not cmdline.exists() or kernel_release is None:
        return None
    images = (f"lib/modules/{kernel_release}/vmlinuz", f"boot/vmlinuz-{kernel_release}")
    image = next((path for path in images if (root / path).exists()), images[0])
    install = f"sudo kernel-install add {kernel_release} /{image}"
    kept, file = "/etc/kernel/cmdline.pagetier", "/etc/kernel/cmdline"
    return Loader(
        name="systemd-boot with /etc/kernel/cmdline",
        add=lambda argument: (
            f"sudo cp --no-clobber {file} {kept}",
            f"sed '1s/$/ {argument}/' {kept} | sudo tee {file}",
            install,
        ),
        remove=(f"sudo mv {kept} {file}", install),
    )


def _loader_entry(root: Path, kernel_release: str | None) -> Loader | None:
    """systemd-boot: an entry of our own beside the normal one, booted once."""
    folder = _entries_folder(root)
    if folder is None:
        return None
    entries = sorted(path.name for path in folder.glob("*.conf") if path.name != "pagetier.conf")
    running = [name for name in entries if kernel_release is not None and kernel_release in name]
    source = (running or entries or ["YOUR-ENTRY.conf"])[0]
    place = f"/{folder.relative_to(root)}"
    ours = f"{place}/pagetier.conf"
    return Loader(
        name="systemd-boot",
        add=lambda argument: (
            f"sed '/^options/s/$/ {argument}/; s/^title.*/title pagetier/' {place}/{source} "
            f"| sudo tee {ours}",
            "sudo bootctl set-oneshot pagetier.conf",
        ),
        remove=(f"sudo rm -f {ours}",),
        rescue="should the host not come up: switch it off and on, the entry is booted only once",
    )


def _entries_folder(root: Path) -> Path | None:
    for place in _SYSTEMD_BOOT:
        folder = root / place / "loader"
        # RHEL's GRUB keeps entries of the same kind, but has no loader.conf.
        if (folder / "loader.conf").exists() and (folder / "entries").is_dir():
            return folder / "entries"
    return None


def _grub_mkconfig(root: Path, _: str | None) -> Loader | None:
    """GRUB elsewhere: its defaults are one file, which only its owner should edit."""
    program = _program(root, "grub-mkconfig", "grub2-mkconfig")
    if program is None or not (root / "etc/default/grub").exists():
        return None
    folder = "grub2" if program == "grub2-mkconfig" else "grub"
    make = f"sudo {program} -o /boot/{folder}/grub.cfg"
    return Loader(
        name=f"GRUB with {program}",
        add=lambda argument: (
            f"in /etc/default/grub, append {argument} inside the quotes of GRUB_CMDLINE_LINUX",
            make,
        ),
        remove=(
            "in /etc/default/grub, take mem= and pagetier.capacity= out of GRUB_CMDLINE_LINUX",
            make,
        ),
    )
