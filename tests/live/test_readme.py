# SPDX-License-Identifier: Apache-2.0
"""Every command of the README works when pasted, and what it says of keys and files is so."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from pagetier.bench.campaign import Campaign
from pagetier.bench.campaign_file import load_campaign

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text()


def blocks(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", README, flags=re.DOTALL)


def make_targets() -> list[str]:
    return re.findall(r"^make (\S+)", "\n".join(blocks("sh")), flags=re.MULTILINE)


def test_make_targets_exist() -> None:
    targets = make_targets()
    assert {"run", "test", "test-capture", "fuzz", "lint", "perf"} == set(targets)
    for target in targets:
        subprocess.run(["make", "-n", target], cwd=ROOT, check=True, capture_output=True)


@pytest.mark.live
def test_commands_work_when_pasted(live: None, tmp_path: Path) -> None:
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    pasted = [block for block in blocks("sh") if block.startswith(". .venv/")]
    assert len(pasted) == 1
    script = tmp_path / "pasted.sh"
    # A cell may be rejected for what others read from a shared disk (exit 1): that is a finding.
    steps = [line for line in pasted[0].splitlines() if line]
    checked = [f"{step.partition(' #')[0]} || [ $? = 1 ]" for step in steps]
    script.write_text("set -eu\n" + "\n".join(checked) + "\n")
    done = subprocess.run(
        ["bash", str(script)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    assert (tmp_path / "results" / "results.db").exists()


def test_slow_and_rebooting_commands_are_spelled_right() -> None:
    """Booting is for the lab's tests; here the words and options must exist."""
    others = [
        line.partition(" #")[0].split()
        for block in blocks("sh")
        if not block.startswith((". .venv/", "make "))
        for line in block.splitlines()
    ]
    assert len(others) == 23
    for words in others:
        options = [word for word in words if word.startswith("-")]
        commands = [word for word in words[1:] if word.isalpha() and word.islower()][:2]
        shown = subprocess.run(
            [sys.executable, "-m", "pagetier.bench.cli", *commands, "--help"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        assert all(option in shown for option in options)
        assert all((ROOT / word).exists() for word in words if word.startswith("examples/"))


def test_the_campaign_shown_is_valid_and_shows_every_key(tmp_path: Path) -> None:
    (example,) = blocks("yaml")
    path = tmp_path / "c.yaml"
    path.write_text(example)
    campaign = load_campaign(path)
    assert campaign.limits.foreign_share == 0.05
    shown = set(re.findall(r"^(\w+):", example, flags=re.MULTILINE))
    assert shown == set(Campaign.model_fields)
