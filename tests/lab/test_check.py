# SPDX-License-Identifier: Apache-2.0
"""The operator's check on a kernel with cgroup v2 and MGLRU, in one boot."""

import shlex
import sys

import pytest

from tests.conftest import ROOT
from tests.lab.conftest import RunInGuest

pytestmark = pytest.mark.lab

LIVE = "tests/live/test_check_live.py"
TESTS = (
    "tests/lab/guest_check.py",
    f"{LIVE}::test_a_reader_behind_a_wall_is_healthy_and_its_misses_are_explained",
    f"{LIVE}::test_without_root_it_works_and_says_what_it_cannot_see",
)


def test_scenarios_of_the_check_in_a_guest(run_in_guest: RunInGuest) -> None:
    options = ("-p", "no:cacheprovider", "-q", "--tb=short", "-c", str(ROOT / "pyproject.toml"))
    pytest_command = (sys.executable, "-m", "pytest", *options, "--rootdir", str(ROOT))
    where = [str(ROOT / path) for path in TESTS]
    command = shlex.join([*pytest_command, *where])
    outcome = run_in_guest(["/bin/sh", "-c", f"cd {shlex.quote(str(ROOT))} && {command} >&2"])
    report = "\n".join(outcome.lines)
    assert outcome.ending.status == 0, report
    assert "passed" in outcome.lines[-1], report
    assert "skipped" not in outcome.lines[-1], report
