# SPDX-License-Identifier: Apache-2.0
"""A kernel named by its path, the other release, an emulated NVMe disk, a wall that would kill."""

import json
import shutil
from pathlib import Path

import pytest
from rich.console import Console

from pagetier.analysis.results import Pass, read_results
from pagetier.bench.lab.run import LabRequest, run_lab
from pagetier.capacity.lab.cache import cache_dir
from pagetier.capacity.lab.kernels import Kernel, find_kernel

pytestmark = pytest.mark.lab

EXPERT_BYTES, ITERATIONS = 500_001, 10
TOUCHED_BYTES = 4 * 2 * EXPERT_BYTES  # by the first iteration alone


def campaign(folder: Path) -> Path:
    path = folder / "small.yaml"
    trace = {"generate": {"layers": 4, "experts": 8, "top_k": 2, "iterations": ITERATIONS}}
    made = {"layers": 4, "experts": 8, "expert_bytes": EXPERT_BYTES}
    document = {
        "trace": trace,
        "pool": {"path": "small-pool", "create": made},
        "mechanisms": ["wall"],
        "capacities": ["64 MB"],
        # Far less than the worker itself holds: the kernel could only kill.
        "variations": [{"capacities": ["1 MB"], "headroom": "4 MB"}],
        "advice": "random",
    }
    path.write_text(json.dumps(document))
    return path


def tree(kernel: Kernel, folder: Path) -> Path:
    """The cached modules as a distribution lays them out: each needs those loaded before it."""
    (folder / "kernel").mkdir(parents=True)
    lines, before = [], list[str]()
    for module in kernel.modules:
        name = f"kernel/{module.name.partition('-')[2]}"
        shutil.copy(module, folder / name)
        lines.append(f"{name}: {' '.join(reversed(before))}")
        before.append(name)
    (folder / "modules.dep").write_text("\n".join(lines) + "\n")
    return folder


def test_a_kernel_by_path_on_an_nvme_disk(
    lab: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kernel = find_kernel("6.1", cache_dir())
    image, modules = tmp_path / "vmlinuz", tree(kernel, tmp_path / "modules")
    shutil.copy(kernel.vmlinuz, image)
    cache = tmp_path / "cache"  # a kernel named by its path is taken into it
    cache.mkdir()
    shutil.copy(cache_dir() / "busybox", cache)
    monkeypatch.setattr("pagetier.bench.lab.run.cache_dir", lambda: cache)
    request = LabRequest(
        campaign=campaign(tmp_path),
        output=tmp_path / "out",
        kernels=(str(image),),
        modules=modules,
        memory_bytes=1 << 30,
        cpus=2,
        disk_kind="nvme",
        disk_bytes=None,
        silence_s=300.0,
        resume=False,
    )
    (run,), interrupted = run_lab(request, Console(stderr=True))
    assert not interrupted
    assert run.release == kernel.release
    results = read_results(run.directory)
    assert results.host["kernel"] == kernel.release
    assert results.host["guest"]["disk"] == "nvme"
    assert results.host["device"]["name"].startswith("nvme")
    tight, wide = sorted(results.cells, key=lambda cell: cell.spec["capacity_bytes"])
    assert tight.state == "rejected"
    assert "bytes that cannot be reclaimed, and the wall would be 5001216" in tight.reasons[0]
    # The other cell is measured all the same; what it warmed up with came from this disk.
    assert (wide.state, wide.reasons) == ("kept", ())
    assert device_bytes(wide.passes["warm-up"]) >= TOUCHED_BYTES
    assert device_bytes(wide.passes["measured"]) == 0


def device_bytes(replay: Pass) -> int:
    sectors: int = replay.after["device"]["sectors_read"] - replay.before["device"]["sectors_read"]
    return sectors * 512
