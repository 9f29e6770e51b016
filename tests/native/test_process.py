# SPDX-License-Identifier: Apache-2.0
import os
import select
import subprocess
from collections.abc import Callable

CHILD = """
import os, sys, time
from pagetier.native.process import die_with_parent
die_with_parent(int(sys.argv[1]))
print("tied", flush=True)
time.sleep(60)
"""

# The grandchild holds the pipe to the test open: its end is the end of the grandchild.
PARENT = """
import os, subprocess, sys, time
subprocess.Popen([sys.executable, "-c", sys.argv[1], str(os.getpid())])
time.sleep(60)
"""


def test_a_child_dies_with_its_killed_parent(
    python: Callable[..., subprocess.Popen[str]],
) -> None:
    with python(PARENT, CHILD) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "tied\n"
        parent.kill()
        ready, _, _ = select.select([parent.stdout], [], [], 5)
        assert ready
        assert parent.stdout.read() == ""


def test_an_orphan_is_told(run_python: Callable[..., str]) -> None:
    program = """
import sys
from pagetier.native.process import die_with_parent
try:
    die_with_parent(int(sys.argv[1]))
except ProcessLookupError:
    print("orphan")
"""
    assert run_python(program, str(os.getpid() + 1)) == "orphan\n"
