# SPDX-License-Identifier: Apache-2.0
"""Campaigns for real: a wall that binds, an interruption, a user without privileges."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pagetier.bench.journal import state_dir
from pagetier.cgroups.detect import detect
from pagetier.cgroups.roots import Roots

pytestmark = pytest.mark.live

LAYERS, EXPERTS, TOP_K, ITERATIONS, EXPERT_BYTES = 8, 16, 2, 40, 500_001
CAPACITY_BYTES = 24_000_000  # three iterations' demand, of a 64 MB pool
NOBODY = 65534


def write_campaign(folder: Path, **extra: object) -> Path:
    path = folder / "c.yaml"
    document: dict[str, object] = {
        "trace": {
            "generate": {
                "layers": LAYERS,
                "experts": EXPERTS,
                "top_k": TOP_K,
                "iterations": ITERATIONS,
                "seed": 3,
            }
        },
        "pool": {
            "path": str(folder / "pool"),
            "create": {"layers": LAYERS, "experts": EXPERTS, "expert_bytes": EXPERT_BYTES},
        },
        "mechanisms": ["wall"],
        "capacities": [CAPACITY_BYTES],
        # Other readers of a shared disk may not decide over these tests.
        "limits": {"foreign_share": 1, "disagreement_share": 1},
        **extra,
    }
    path.write_text(json.dumps(document))  # JSON is YAML
    return path


def command(path: Path, results: Path, *options: str) -> list[str]:
    program = [sys.executable, "-m", "pagetier.bench.cli", "run", str(path), "-o", str(results)]
    return [*program, "--json", *options]


def run(path: Path, results: Path, *options: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        command(path, results, *options), capture_output=True, text=True, timeout=300, check=False
    )


def scopes() -> set[Path]:
    support = detect(Roots())
    bases = [base for base in (support.base, support.io_base) if base is not None]
    return {path for base in bases for path in base.glob("pagetier-*")}


@pytest.mark.parametrize("read", ["pread", "mmap"])
def test_wall_cell_is_enforced_and_accounted(live: None, tmp_path: Path, read: str) -> None:
    before = scopes()
    done = run(write_campaign(tmp_path, read=read, advice=["random"]), tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert (cell["state"], cell["reasons"]) == ("kept", [])
    assert not [label for label in cell["labels"] if "not binding" in label]
    enforced = cell["enforced"]
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    limit_bytes = CAPACITY_BYTES + enforced["headroom_bytes"]
    assert enforced["limit_bytes"] == -(-limit_bytes // page_bytes) * page_bytes
    demand = LAYERS * TOP_K * EXPERT_BYTES
    assert cell["demand_bytes_per_iteration"] == demand
    assert 0.6 * CAPACITY_BYTES < cell["effective_capacity_bytes"] < enforced["limit_bytes"]
    # A small cache of few experts: the kernel's LRU is no exact LRU, but bytes must be near it.
    assert 0.8 < cell["in_extent_amplification"] < 1.25
    assert abs(cell["over_read_share"]) < 0.05
    ledger = cell["ledger"]
    assert ledger["first"] + ledger["repeat"] + ledger["over_read"] > 0.9 * ledger["repeat"]
    assert scopes() <= before


def test_none_cell_reads_nothing_when_warm(live: None, tmp_path: Path) -> None:
    path = write_campaign(tmp_path, mechanisms=["none"], capacities=[])
    done = run(path, tmp_path / "out")
    assert done.returncode == 0, done.stdout + done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["ledger"]["first"] == cell["ledger"]["repeat"] == 0
    assert cell["served_fraction"] == 1
    assert cell["amplification"] is None, "0 / 0 is no number"


def test_interrupt_ends_cleanly_and_resume_finishes(live: None, tmp_path: Path) -> None:
    before = scopes()
    path, results = write_campaign(tmp_path, repetitions=6), tmp_path / "out"
    harness = subprocess.Popen(
        command(path, results), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    log = results / "log.txt"
    while not log.exists() or log.read_text().count("  kept") < 2:
        assert harness.poll() is None
        time.sleep(0.02)
    time.sleep(0.5)  # into the third cell
    harness.send_signal(signal.SIGINT)
    output, errors = harness.communicate(timeout=30)
    assert harness.returncode == 130, errors
    finished = {cell["id"] for cell in json.loads(output)["cells"]}
    assert 2 <= len(finished) < 6
    assert scopes() <= before
    owners = [json.loads(path.read_text())["owner"] for path in state_dir().glob("*.json")]
    assert harness.pid not in [owner["pid"] for owner in owners]
    again = run(path, results, "--resume")
    assert again.returncode == 0, again.stderr
    assert finished < {cell["id"] for cell in json.loads(again.stdout)["cells"]}
    assert len(json.loads(again.stdout)["cells"]) == 6


def test_resume_refuses_another_campaign(live: None, tmp_path: Path) -> None:
    results = tmp_path / "out"
    assert run(write_campaign(tmp_path), results).returncode == 0
    assert run(write_campaign(tmp_path), results).returncode == 2, "results are never overwritten"
    changed = run(write_campaign(tmp_path, seed=5), results, "--resume")
    assert changed.returncode == 2
    assert "cannot resume: campaign_sha256" in changed.stderr


def test_a_corrupt_pool_rejects_the_cell_by_name(live: None, tmp_path: Path) -> None:
    path = write_campaign(tmp_path)
    assert run(path, tmp_path / "good").returncode == 0
    for data in (tmp_path / "pool").rglob("*.bin"):
        with data.open("r+b") as file:
            file.write(b"\0" * 64)
    done = run(path, tmp_path / "bad")
    assert done.returncode == 1
    (cell,) = json.loads(done.stdout)["cells"]
    assert cell["state"] == "rejected"
    assert "content is not what the pool was filled with" in cell["reasons"][0]


def test_a_user_without_privileges_measures_what_is_possible(live: None, tmp_path: Path) -> None:
    """Wall cells are named with their remedy; `none` cells run."""
    home = tmp_path / "home"
    home.mkdir()
    path = write_campaign(home, mechanisms=["none", "wall"])
    for folder in (tmp_path, *tmp_path.parents):
        if folder.stat().st_mode & 0o005 != 0o005:
            folder.chmod(0o755)
    for item in (home, path):
        os.chown(item, NOBODY, NOBODY)
    setpriv = shutil.which("setpriv")
    assert setpriv is not None
    done = subprocess.run(
        [
            setpriv,
            f"--reuid={NOBODY}",
            f"--regid={NOBODY}",
            "--clear-groups",
            # Only to reach an interpreter in root's home; it gives no right over the cgroups.
            "--inh-caps=-all,+dac_read_search",
            "--ambient-caps=-all,+dac_read_search",
            *command(path, home / "out"),
        ],
        cwd=home,
        env={**os.environ, "XDG_RUNTIME_DIR": str(home)},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "not run: page-cache, wall 24.0 MB" in done.stderr
    (cell,) = json.loads(done.stdout)["cells"]
    assert (cell["mechanism"], cell["state"]) == ("none", "kept")
