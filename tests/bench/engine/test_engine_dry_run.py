# SPDX-License-Identifier: Apache-2.0
"""What a dry run says of an engine's campaign, from the model's headers and without the engine."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pagetier.bench.inputs import RunRequest
from pagetier.bench.run import dry_run
from tests.capture.models import SMALL, domain_tokens, write_small


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    write_small(tmp_path / "small.gguf")
    lines = [{"domain": name, "tokens": domain_tokens(SMALL, 0, 4)} for name in ("prose", "code")]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    document = {
        "engine": {
            "model": str(first_shard(tmp_path)),
            "prompts": str(tmp_path / "p.jsonl"),
            "tokens": 5,
        },
        "arms": ["mmap", "no-admission", "mlock", "replay"],
        "mechanisms": ["wall", "none"],
        "capacities": ["20 MB", "1 MB", "8 MB"],
        "pairs": 2,
    }
    (tmp_path / "c.yaml").write_text(json.dumps(document))
    return tmp_path


def first_shard(folder: Path) -> Path:
    return min(folder.glob("small*.gguf"))


def document_of(folder: Path) -> dict[str, Any]:
    return dry_run(RunRequest(folder / "c.yaml", None, None, None, False))


def test_cells_and_what_is_left_out(folder: Path) -> None:
    before = sorted(path.name for path in folder.iterdir())
    document = document_of(folder)
    refused = {item["cell"]: item["reason"] for item in document["refused"]}
    spine = document["spine_bytes"]
    assert 1_000_000 < spine < 8_000_000 < document["weights_bytes"] < 20_000_000
    # Below its spine C leaves no room for an expert, and below its weights none for a lock.
    assert sorted(refused) == [
        "mlock, wall 1.00 MB",
        "mlock, wall 20.0 MB",
        "mlock, wall 8.00 MB",
        "mmap, wall 1.00 MB",
        "no-admission, wall 1.00 MB",
        "replay, wall 1.00 MB",
    ]
    assert "OOM kill" in refused["mlock, wall 20.0 MB"]
    arms_run = 3 + 3 + 4  # 20 MB, 8 MB, no limit
    assert len(document["cells"]) == 2 * 2 * arms_run
    top_k, layers = SMALL.top_k, SMALL.layers
    expert = document["experts_bytes"] // (layers * SMALL.experts)
    assert {row["demand_bytes_at_most"] for row in document["cells"]} == {
        2 * 5 * layers * top_k * expert
    }
    assert sorted(path.name for path in folder.iterdir()) == before


def test_the_command_line_shows_it(folder: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pagetier.bench.cli", "run", str(folder / "c.yaml"), "--dry-run"],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "no-admission, wall 20.0 MB, prompt 1 (code), round 2" in done.stdout
    assert "refused: mlock, wall 8.00 MB: mlock needs" in done.stdout
