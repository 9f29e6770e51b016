# SPDX-License-Identifier: Apache-2.0
"""Kill -9 of the harness at random moments: nothing stays on the host, no finished cell is lost."""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagetier.bench.journal import state_dir
from pagetier.capacity.meminfo import read_meminfo
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots

KILLS = 30
LAYERS, EXPERTS, ITERATIONS = 4, 8, 40
CELLS = 4 * 8

pytestmark = pytest.mark.live


def campaign(folder: Path) -> Path:
    """Cells of about a second; a balloon of 2 GiB is well above what MemAvailable swings."""
    available_bytes = read_meminfo(Roots()).available_bytes
    assert available_bytes is not None
    path = folder / "kill.yaml"
    path.write_text(
        f"trace:\n  generate: {{layers: {LAYERS}, experts: {EXPERTS}, top_k: 2, "
        f"iterations: {ITERATIONS}}}\n"
        f"pool:\n  path: {folder}/pool\n"
        f"  create: {{layers: {LAYERS}, experts: {EXPERTS}, expert_bytes: 500001}}\n"
        "mechanisms: [wall, balloon]\n"
        f"capacities: [{available_bytes - (9 << 28)}, {available_bytes - (2 << 30)}]\n"
        "repetitions: 8\n"
        # Kills are tested here, not cells: other readers of a shared disk may not reject one.
        "limits: {foreign_share: 1, disagreement_share: 1}\n"
    )
    return path


def start(path: Path, results: Path) -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-m", "pagetier.bench.cli", "run", str(path), "-o", str(results)]
    return subprocess.Popen(
        [*command, "--resume", "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def children(pid: int) -> set[int]:
    found = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        found |= {int(child) for child in task.read_text().split()}
    return found


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def all_gone_within_1_s(pids: set[int]) -> bool:
    deadline = time.monotonic() + 1.0
    while any(alive(pid) for pid in pids):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def finished(results: Path) -> dict[str, tuple[int, int]]:
    """Iterations and passes of every stored cell."""
    if not (results / "results.db").exists():
        return {}
    db = sqlite3.connect(f"file:{results}/results.db?mode=ro", uri=True)
    try:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'cells'").fetchone():
            return {}
        return {
            cell: (
                db.execute("SELECT count(*) FROM iterations WHERE cell_id = ?", (cell,)).fetchone()[
                    0
                ],
                db.execute("SELECT count(*) FROM passes WHERE cell_id = ?", (cell,)).fetchone()[0],
            )
            for (cell,) in db.execute("SELECT id FROM cells").fetchall()
        }
    finally:
        db.close()


def left_scopes() -> list[Path]:
    support = detect(Roots())
    bases = [base for base in (support.base, support.io_base) if base is not None]
    return [path for base in bases for path in base.glob("pagetier-*")]


def test_thirty_kills_leave_nothing_and_lose_nothing(live: None, tmp_path: Path) -> None:
    path, results = campaign(tmp_path), tmp_path / "results"
    rng = random.Random(20)
    before = set(left_scopes())
    known: dict[str, tuple[int, int]] = {}
    killed = 0
    while killed < KILLS:
        harness = start(path, results)
        time.sleep(rng.uniform(0.2, 3.0))
        offspring = children(harness.pid)
        if harness.poll() is not None:  # the campaign was through: begin another one
            assert harness.returncode == 0
            results = tmp_path / f"results-{killed}"
            known = {}
            continue
        os.kill(harness.pid, signal.SIGKILL)
        harness.communicate()
        killed += 1
        assert all_gone_within_1_s(offspring), "a worker or balloon outlived its harness"
        now = finished(results)
        assert known.items() <= now.items(), "a finished cell was lost or changed"
        assert set(now.values()) <= {(2 * ITERATIONS, 2)}, "a half cell was stored"
        known = now
    last = start(path, results)
    output, _ = last.communicate(timeout=300)
    document = json.loads(output)
    assert [cell["reasons"] for cell in document["cells"] if cell["reasons"]] == []
    assert last.returncode == 0
    assert len(document["cells"]) == len(finished(results)) == CELLS
    assert known.items() <= finished(results).items()
    assert set(left_scopes()) <= before, "a scope was left"
    owners = [json.loads(path.read_text())["owner"] for path in state_dir().glob("*.json")]
    assert [owner for owner in owners if not alive(owner["pid"])] == [], "a journal was left"
