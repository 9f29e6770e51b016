# SPDX-License-Identifier: Apache-2.0
"""The byte ledger and the audit on a kernel with cgroup v2 and MGLRU, in one boot."""

import shlex
import sys

import pytest

from tests.conftest import ROOT
from tests.lab.conftest import RunInGuest

pytestmark = pytest.mark.lab


def test_ledger_and_audit_in_a_guest(run_in_guest: RunInGuest) -> None:
    options = ("-p", "no:cacheprovider", "-q", "-s", "--tb=short")
    pytest_command = (sys.executable, "-m", "pytest", *options, "-c", str(ROOT / "pyproject.toml"))
    guest = (str(ROOT / "tests/lab/guest_ledger.py"), "--rootdir", str(ROOT))
    command = shlex.join([*pytest_command, *guest])
    outcome = run_in_guest(["/bin/sh", "-c", f"cd {shlex.quote(str(ROOT))} && {command} >&2"])
    report = "\n".join(outcome.lines)
    assert outcome.ending.status == 0, report
    assert "passed" in outcome.lines[-1], report
    assert "skipped" not in outcome.lines[-1], report
    print(report)
