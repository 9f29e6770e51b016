# SPDX-License-Identifier: Apache-2.0
"""The boots of a campaign on a real host, one after the other: `pagetier boot resume`.

A run measures what it can, plans the boots that its other cells need and stops.  After each reboot
the cells of that boot are measured and the next one is named; the last is the normal one.
"""

from pathlib import Path

from rich.console import Console

from pagetier.analysis.errors import InputError
from pagetier.analysis.results import read_cell_ids
from pagetier.bench.boot.plan import BootPlan, Profile, load_plan, save_plan
from pagetier.bench.boot.steps import STEPS_FILE, BootHost, plan_text
from pagetier.bench.inputs import RunRequest
from pagetier.bench.run import run_campaign
from pagetier.capacity.meminfo import read_meminfo

__all__ = ["resume_boot"]


def resume_boot(directory: Path, host: BootHost, console: Console) -> bool:
    """Measure the cells of the running boot; True when that was cut short.

    Raises InputError when this is not a boot of the plan.
    """
    plan = load_plan(directory)
    profile = plan.booted(host.roots)
    if profile is not None:
        _check_available(directory, plan, profile, host)
    elif plan.upcoming(read_cell_ids(directory)) is not None:
        raise InputError(
            f"{host.roots.proc / 'cmdline'}: this is the normal boot, without mem=: the steps to "
            f"the next one are in {directory / STEPS_FILE}"
        )
    request = RunRequest(campaign=None, output=directory, trace=None, pool=None, resume=True)
    _, interrupted = run_campaign(request, console)
    return interrupted


def _check_available(directory: Path, plan: BootPlan, profile: Profile, host: BootHost) -> None:
    """A boot that leaves too little or too much is planned again, before a cell is lost to it."""
    available_bytes = read_meminfo(host.roots).available_bytes
    if available_bytes is None:
        return
    corrected = plan.corrected(profile, available_bytes)
    if corrected is None:
        return
    save_plan(directory, corrected)
    plan_text(directory, host)
    raise InputError(
        f"{host.roots.proc / 'meminfo'}: {profile.name} leaves {available_bytes} bytes, too far "
        f"from the {profile.capacity_bytes} asked for: mem= is corrected in the plan, boot again "
        f"by the steps in {directory / STEPS_FILE}"
    )
