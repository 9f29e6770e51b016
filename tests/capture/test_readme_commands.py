# SPDX-License-Identifier: Apache-2.0
"""The five commands of the README from a model to a report, as they are written there."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.capture.models import write_small
from tests.conftest import ROOT

pytestmark = [pytest.mark.capture, pytest.mark.live]


def five_commands() -> list[str]:
    blocks = re.findall(r"```sh\n(.*?)```", (ROOT / "README.md").read_text(), flags=re.DOTALL)
    (found,) = [block for block in blocks if block.startswith("pagetier trace capture")]
    return [line.partition(" #")[0].strip() for line in found.splitlines()]


def test_five_commands_from_a_model_to_a_report(live: None, engine: None, tmp_path: Path) -> None:
    (tmp_path / "bin").symlink_to(Path(sys.executable).parent)
    write_small(tmp_path / "model.gguf", tensors_per_shard=0, tokenizer=True)
    (tmp_path / "prompts.txt").write_text("int main(void)\nOnce upon a time\n")
    commands = five_commands()
    words = [command.split()[1] for command in commands]
    assert words == ["trace", "pool", "trace", "run", "report"]
    # A cell may be rejected for what others read from a shared disk (exit 1): that is a finding.
    script = "\n".join(f"{command} || [ $? = 1 ]" for command in commands)
    done = subprocess.run(
        ["bash", "-euc", f'PATH="$PWD/bin:$PATH"\n{script}'],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    assert "Traceback" not in done.stderr
    reported = subprocess.run(
        [tmp_path / "bin" / "pagetier", "report", "mine/results", "--json"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    cells = json.loads(reported.stdout)["cells"]
    assert cells and all(cell["demand_bytes_per_iteration"] == 6 * 4 * 56_832 for cell in cells)
    assert any(cell["state"] == "kept" for cell in cells)
