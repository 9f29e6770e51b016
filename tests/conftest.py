# SPDX-License-Identifier: Apache-2.0
"""Gates of the tests that need more than Python: a live host, a toolchain, real traces.

A missing capability skips such a test with its reason; with PAGETIER_REQUIRE_LIVE=1 (as on CI) it
fails instead, so that a green run there cannot hide a test that never ran.
"""

import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# A shared machine may stop for a second between two lines: no example is judged by its time.
settings.register_profile("pagetier", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("pagetier")

ROOT = Path(__file__).resolve().parent.parent
TRACES = ROOT.parent / "shared" / "traces"


def require(condition: bool, reason: str) -> None:
    """Go on, skip for `reason`, or fail for it where skipping is not allowed."""
    if condition:
        return
    if os.environ.get("PAGETIER_REQUIRE_LIVE") == "1":
        pytest.fail(f"this run may not skip: {reason}")
    # Without root, a compiler or an emulator every other test still runs; CI never comes here.
    pytest.skip(reason)


@pytest.fixture(scope="session")
def live() -> None:
    """Root on a kernel with a memory cgroup that scopes can be made in."""
    from pagetier.cgroups.detect import detect
    from pagetier.cgroups.roots import Roots

    require(os.geteuid() == 0, "needs root")
    support = detect(Roots())
    require(support.base is not None, support.problem or "no memory cgroup")


@pytest.fixture(scope="session")
def tool() -> Callable[[str], str]:
    """Path of a program the test needs: a compiler, an emulator, a peer."""

    def find(name: str) -> str:
        path = shutil.which(name)
        require(path is not None, f"{name} is not installed")
        assert path is not None
        return path

    return find


@pytest.fixture(scope="session")
def traces() -> Path:
    """Folder of real router traces, kept beside the checkout and never in it."""
    if not TRACES.is_dir():
        # Recorded by others: they may be measured with, and are not ours to ship.
        pytest.skip(f"real router traces are not part of this repository: none in {TRACES}")
    return TRACES
