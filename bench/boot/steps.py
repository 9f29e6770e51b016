# SPDX-License-Identifier: Apache-2.0
"""What to do for the next boot of a campaign, exactly for this host, and how to undo it.

The steps lie in the results directory as `boot-steps.txt`, beside the plan.  People edit boot
files, this never does: it only looks at which are there.
"""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pagetier.analysis.files import replace_file
from pagetier.analysis.results import read_cell_ids
from pagetier.analysis.units import format_bytes
from pagetier.bench.boot.loader import Loader, detect_loader
from pagetier.bench.boot.plan import BootPlan, Profile, has_plan, load_plan
from pagetier.bench.kernel.text import read_line
from pagetier.capacity.boot import read_boot_profile
from pagetier.cgroups.roots import Roots

__all__ = ["STEPS_FILE", "BootHost", "plan_text", "status", "steps_of_next_boot"]

STEPS_FILE = "boot-steps.txt"


@dataclass(frozen=True, slots=True)
class BootHost:
    """The running kernel and the file system with its boot files, which is only looked at."""

    roots: Roots
    root: Path = Path("/")

    def loader(self) -> Loader:
        """What this host boots with."""
        release = read_line(self.roots.proc / "sys/kernel/osrelease")
        return detect_loader(self.root, release)

    def command_line(self) -> str:
        """Of the running kernel."""
        return read_line(self.roots.proc / "cmdline") or ""


def plan_text(directory: Path, host: BootHost) -> str:
    """What to do next, for people; also kept in the results directory."""
    plan = load_plan(directory)
    text = _next_steps(directory, plan, host)
    replace_file(directory / STEPS_FILE, text.encode())
    return text


def steps_of_next_boot(directory: Path, host: BootHost) -> str | None:
    """After a run on the normal boot; None when its campaign has no boots."""
    if not has_plan(directory) or read_boot_profile(host.roots) is not None:
        return None
    return plan_text(directory, host)


def status(directory: Path, host: BootHost) -> dict[str, Any]:
    """One JSON object: the boots with their cells measured, the running one, the next one."""
    plan, finished = load_plan(directory), read_cell_ids(directory)
    boot, upcoming = read_boot_profile(host.roots), plan.upcoming(finished)
    return {
        "directory": str(directory),
        "boot_loader": host.loader().name,
        "booted": "normal" if boot is None else _name(plan.find(boot), "not of this plan"),
        "next": _name(upcoming, "normal"),
        "done": upcoming is None and boot is None,
        "boots": [
            {
                "arguments": profile.arguments,
                "capacity_bytes": profile.capacity_bytes,
                "mem_bytes": profile.mem_bytes,
                "cells": len(profile.cells),
                "measured": len(finished.intersection(profile.cells)),
            }
            for profile in plan.profiles
        ],
    }


def _name(profile: Profile | None, otherwise: str) -> str:
    return otherwise if profile is None else profile.name


# ---- steps for people ---------------------------------------------------------------------------


def _next_steps(directory: Path, plan: BootPlan, host: BootHost) -> str:
    boot = read_boot_profile(host.roots)
    upcoming = plan.upcoming(read_cell_ids(directory))
    if upcoming is None and boot is None:
        lines = ["Every boot is measured and this is the normal one: nothing is left to do."]
    elif upcoming is None:
        lines = [
            "Every boot is measured: the last one is the normal one.",
            *_undo(host.loader()),
            *_go_on(directory, plan),
        ]
    elif upcoming == plan.find(boot):
        lines = [
            f"This is the boot {_title(plan, upcoming)}: measure its cells.",
            *_go_on(directory, plan),
        ]
    else:
        lines = _boot(directory, plan, upcoming, host)
    return "\n".join(lines) + "\n"


def _title(plan: BootPlan, profile: Profile) -> str:
    number = plan.profiles.index(profile) + 1
    capacity = format_bytes(profile.capacity_bytes)
    return f"{number} of {len(plan.profiles)}, {profile.name} for a capacity of {capacity}"


def _boot(directory: Path, plan: BootPlan, profile: Profile, host: BootHost) -> list[str]:
    loader = host.loader()
    return [
        f"Next: boot {_title(plan, profile)} ({len(profile.cells)} cells), by {loader.name}.",
        *_reserved(host),
        "",
        f"Add {profile.arguments} to the kernel's command line and reboot:",
        *_indented(*loader.add(profile.arguments), "sudo systemctl reboot"),
        *_go_on(directory, plan),
        "",
        "To give up the boots that are left, or when the last one is measured:",
        *_undo(loader),
        f"({loader.rescue.format(argument=profile.arguments)})",
    ]


def _go_on(directory: Path, plan: BootPlan) -> list[str]:
    command = f"sudo pagetier boot resume {shlex.quote(str(directory.absolute()))}"
    return ["", "Then:", *_indented(f"cd {shlex.quote(plan.folder)}", command)]


def _undo(loader: Loader) -> list[str]:
    return _indented(*loader.remove, "sudo systemctl reboot")


def _indented(*commands: str) -> list[str]:
    return [f"    {command}" for command in commands]


def _reserved(host: BootHost) -> list[str]:
    """What else the command line takes out of the memory that is left."""
    taking = ("crashkernel=", "hugepages=", "memmap=", "cma=")
    words = [word for word in host.command_line().split() if word.startswith(taking)]
    if not words:
        return []
    return [
        f"Mind {', '.join(words)} on the command line: it takes its share of the memory that is "
        "left, and the capacity is then smaller; what is really available is recorded."
    ]
