# SPDX-License-Identifier: Apache-2.0
"""The live tests of walls, balloons and scopes once more, in one boot, on cgroup v2."""

import shlex
import sys

import pytest

from tests.conftest import ROOT
from tests.lab.conftest import RunInGuest

pytestmark = pytest.mark.lab

MODULES = (
    "tests/lab/guest_cells.py",
    "tests/live/test_cgroups_live.py",
    "tests/live/test_capacity_live.py",
)


def test_live_tests_pass_in_a_guest(run_in_guest: RunInGuest) -> None:
    assert all((ROOT / path).exists() for path in MODULES)
    options = ("-p", "no:cacheprovider", "-q", "--tb=short", "-c", str(ROOT / "pyproject.toml"))
    pytest_command = (sys.executable, "-m", "pytest", *options, "--rootdir", str(ROOT))
    where = [str(ROOT / path) for path in MODULES]
    command = shlex.join([*pytest_command, *where])
    outcome = run_in_guest(["/bin/sh", "-c", f"cd {shlex.quote(str(ROOT))} && {command} >&2"])
    report = "\n".join(outcome.lines)
    assert outcome.ending.status == 0, report
    summary = outcome.lines[-1]
    assert "passed" in summary, report
    assert "skipped" not in summary, report
