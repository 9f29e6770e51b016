# SPDX-License-Identifier: Apache-2.0
"""The byte ledger on the running kernel: quiet, beside another reader, and what readahead adds."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from pagetier.analysis.counters import device_read_bytes, process_read_bytes
from pagetier.analysis.facts import in_extent_bytes
from pagetier.analysis.results import read_results
from pagetier.bench.device import resolve
from pagetier.bench.journal import state_dir
from pagetier.cgroups.roots import Roots

pytestmark = [pytest.mark.live, pytest.mark.usefixtures("live")]

MIB = 1 << 20
MB = 10**6
TRACEFS = Path("/sys/kernel/tracing")
TRACE = {"layers": 8, "experts": 32, "top_k": 4, "iterations": 40, "seed": 3}
OTHER_READER = """
import mmap, os, sys, time
path, rate = sys.argv[1], float(sys.argv[2])
fd = os.open(path, os.O_RDONLY | os.O_DIRECT)
size, buffer = os.fstat(fd).st_size, mmap.mmap(-1, 1 << 18)
start, total = time.monotonic(), 0
while True:
    total += os.preadv(fd, [buffer], total % size)
    print(time.monotonic_ns(), total, flush=True)
    time.sleep(max(0, start + total / rate - time.monotonic()))
"""


def campaign(folder: Path, **extra: Any) -> dict[str, Any]:
    """256 experts of 1,000,001 B, no multiple of any page, under a wall of 100 MB."""
    return {
        "trace": {"generate": TRACE},
        "pool": {
            "path": str(folder / "pool"),
            "create": {"layers": 8, "experts": 32, "expert_bytes": MB + 1},
        },
        "mechanisms": ["wall"],
        "capacities": [100 * MB],
        "advice": "random",
        **extra,
    }


def measure(folder: Path, name: str, document: dict[str, Any]) -> list[dict[str, Any]]:
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps(document))
    program = [sys.executable, "-m", "pagetier.bench.cli", "run", str(path)]
    done = subprocess.run(
        [*program, "-o", str(folder / name), "--json"],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 1), done.stderr
    cells: list[dict[str, Any]] = json.loads(done.stdout)["cells"]
    return cells


def of_pass(cell: dict[str, Any], term: str) -> float:
    """A term of the ledger over the whole measured pass."""
    return float(cell["ledger"][term] * cell["iterations"])


def device_bytes(cell: dict[str, Any]) -> float:
    return float(cell["device_bytes_per_iteration"] * cell["iterations"])


def quiet(folder: Path) -> dict[str, Any]:
    """A cell beside which nobody else read; the disk is shared, so it is tried again."""
    for attempt in range(5):
        (cell,) = measure(folder, f"quiet{attempt}", campaign(folder))
        if abs(of_pass(cell, "foreign")) < 0.005 * device_bytes(cell):
            return cell
    pytest.fail("another process reads this disk all the time")


def test_a_quiet_replay_is_explained_and_its_sources_agree(tmp_path: Path) -> None:
    cell = quiet(tmp_path)
    device = device_bytes(cell)
    assert cell["ledger"]["obtained"]["foreign"].startswith("read_bytes of all other processes")
    assert abs(of_pass(cell, "residual")) <= 0.01 * device
    terms = ("first", "repeat", "over_read", "prefetch", "foreign", "residual")
    assert sum(of_pass(cell, term) for term in terms) == pytest.approx(device)
    known = [
        pair
        for pair in cell["ledger_evidence"]["agreement"]["measured"]
        if pair["share"] is not None
    ]
    assert len(known) >= 3
    assert all(abs(pair["share"]) <= 0.01 for pair in known), known
    # Two shared edge pages at most in each miss of an expert of 245 pages.
    exact = cell["page_exact"]["nominal_miss_bytes_per_iteration"]
    whole = cell["nominal_miss_bytes_per_iteration"]
    assert 1.0 < exact / whole < 1.01
    assert of_pass(cell, "first") == 0, "the warm-up pass reads all that the plan reads"
    # What reclaim takes from an extent while it is read is a refault, too, and over-read here.
    own = of_pass(cell, "repeat") + of_pass(cell, "over_read")
    # memory.stat may lag by 64 pages a CPU (mm/memcontrol.c, memcg_vmstats_needs_flush).
    lag = 64 * (os.cpu_count() or 1) * os.sysconf("SC_PAGE_SIZE")
    assert cell["ledger_evidence"]["refault_bytes"] <= own + lag


def test_a_second_reader_is_found_named_and_rejects_the_cell(tmp_path: Path) -> None:
    before = quiet(tmp_path)
    seconds = before["iteration_s"]["median"] * before["iterations"]
    rate = 0.25 * device_bytes(before) / max(seconds, 0.1)  # 20 % of all
    other = tmp_path / "other"
    with other.open("wb") as file:
        file.write(os.urandom(64 * MIB))
        file.flush()
        os.fsync(file.fileno())
    log = tmp_path / "reads"
    with log.open("w") as output, reading(other, rate, output):
        (cell,) = measure(tmp_path, "beside", campaign(tmp_path, limits={"foreign_share": 0.05}))
    measured = read_results(tmp_path / "beside").cells[0].passes["measured"]
    points = [tuple(map(int, line.split())) for line in log.read_text().splitlines()]
    read = total_at(points, measured.after["at_ns"]) - total_at(points, measured.before["at_ns"])
    assert read > 16 * MIB, "it must have read while the cell did"
    assert of_pass(cell, "foreign") == pytest.approx(read, rel=0.1)
    assert abs(of_pass(cell, "residual")) <= 0.01 * device_bytes(cell)
    assert cell["state"] == "rejected"
    (reason,) = [reason for reason in cell["reasons"] if reason.startswith("foreign ")]
    assert "python" in reason


@contextmanager
def reading(path: Path, rate: float, output: Any) -> Iterator[None]:
    argv = [sys.executable, "-c", OTHER_READER, str(path), str(rate)]
    with subprocess.Popen(argv, stdout=output) as process:
        try:
            yield
        finally:
            process.kill()


def total_at(points: list[tuple[int, ...]], at_ns: int) -> int:
    return max((total for when, total in points if when <= at_ns), default=0)


# ---- audit --------------------------------------------------------------------------------------


@pytest.fixture
def tracefs() -> Iterator[Path]:
    """The kernel's tracing; mounted for the test alone where it is not."""
    if (TRACEFS / "instances").is_dir():
        yield TRACEFS
        return
    subprocess.run(["mount", "-t", "tracefs", "tracefs", str(TRACEFS)], check=True)
    try:
        yield TRACEFS
    finally:
        subprocess.run(["umount", str(TRACEFS)], check=True)


def test_an_audit_counts_what_the_ledger_says_and_shows_what_is_kept(
    tmp_path: Path, tracefs: Path
) -> None:
    before = set((tracefs / "instances").iterdir())
    (cell,) = measure(tmp_path, "audit", campaign(tmp_path, audit=True))
    audit, trace = cell["audit"], cell["ledger_evidence"]["traced"]
    assert trace["problem"] is None
    assert trace["over_read"] == 0, "a file per expert, random advice"
    assert abs(trace["unexplained"]) <= 0.01 * trace["in_extent"]
    assert 0 <= trace["taken_while_reading"] <= 0.15 * trace["in_extent"]
    assert [point["iteration"] for point in audit["points"]] == [9, 19, 29, 39]
    for point in audit["points"]:
        assert 0.5 < point["overlap"] <= 1
        assert point["overlap_bytes"] + point["kept_instead_bytes"] == point["resident_bytes"]
        assert point["lru_bytes"] - point["overlap_bytes"] == point["missing_bytes"]
    assert "audited: its times are void" in cell["labels"]
    assert set((tracefs / "instances").iterdir()) == before


def test_a_dead_harness_leaves_no_instance(tmp_path: Path, tracefs: Path) -> None:
    document = campaign(tmp_path, audit=True, repetitions=20)
    path = tmp_path / "killed.yaml"
    path.write_text(json.dumps(document))
    program = [sys.executable, "-m", "pagetier.bench.cli", "run", str(path)]
    before = set((tracefs / "instances").iterdir())
    with subprocess.Popen([*program, "-o", str(tmp_path / "killed")]) as harness:
        deadline = time.monotonic() + 120
        while not set((tracefs / "instances").iterdir()) - before:
            assert time.monotonic() < deadline and harness.poll() is None
            time.sleep(0.01)
        harness.kill()
    measure(tmp_path, "after", campaign(tmp_path, repetitions=1))
    assert set((tracefs / "instances").iterdir()) == before
    assert not [
        path for path in state_dir().glob("*.json") if f'"pid": {harness.pid},' in path.read_text()
    ]


# ---- over-read ----------------------------------------------------------------------------------


def test_over_read_goes_with_advice_readahead_and_layout(
    tmp_path: Path, tool: Callable[[str], str]
) -> None:
    """A loop device of our own: every second of 64 experts of 2 MiB, behind a window of 128 KiB.

    All that is read past an expert's end is a gap that nobody asks for, and the warm-up pass reads
    each expert once from a cold pool: what is missed inside the extents is the same in every arm.
    """
    trace = write_odd(tmp_path / "odd.jsonl")
    with ExitStack() as undo:
        place, loop = own_disk(tmp_path, undo, tool)
        shape = {"layers": 1, "experts": 64, "expert_bytes": 2 * MIB}
        document = {
            "trace": str(trace),
            "pool": [
                {"path": str(place / layout), "create": {**shape, "layout": layout}}
                for layout in ("flat", "files")
            ],
            "mechanisms": ["wall"],
            "capacities": [24 * MB],
            "threads": 2,
            "advice": ["default", "random"],
            "read_ahead_kb": 128,
            "variations": [{"advice": ["default"], "read_ahead_kb": 2048}],
            "device": [loop],
        }
        cells = measure(tmp_path, "loop", document)
    shown = {(c["layout"], c["advice"], c["read_ahead_kb"]): c["id"] for c in cells}
    assert len(shown) == 6
    passes = {cell.id: cell.passes["warm-up"] for cell in read_results(tmp_path / "loop").cells}
    asked = 32 * 2 * MIB
    for key, cell_id in shown.items():
        cold = passes[cell_id]
        own, device = process_read_bytes(cold), device_read_bytes(cold)
        brought = in_extent_bytes(cold)
        assert own is not None and device is not None and brought is not None
        assert brought == pytest.approx(asked, rel=0.03), key
        assert abs(device - own) <= 0.01 * device, key
        odd = key == ("flat", "default", 128)
        over_read = (own - brought) / own
        assert over_read > 0.2 if odd else abs(over_read) < 0.01, (key, over_read)


def write_odd(path: Path) -> Path:
    """All experts of odd number once, no two that follow each other in the file."""
    header = {"format": "moe-route-trace", "version": 1, "model": "odd", "num_layers": 1}
    lines: list[dict[str, Any]] = [{**header, "num_experts": 64, "top_k": 4}]
    experts = [(22 * index + 1) % 64 for index in range(32)]
    for step in range(8):
        chosen = experts[4 * step : 4 * step + 4]
        lines.append({"req": "r", "step": step, "layer": 0, "experts": chosen})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def own_disk(folder: Path, undo: ExitStack, tool: Callable[[str], str]) -> tuple[Path, str]:
    """A file system on a loop device with direct I/O, undone in reverse."""

    def run(*argv: str) -> str:
        done = subprocess.run(
            [tool(argv[0]), *argv[1:]], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    image, place = folder / "image", folder / "mounted"
    with image.open("wb") as file:
        file.truncate(400 * MIB)
    loop = run("losetup", "--find", "--show", "--direct-io=on", str(image))
    undo.callback(run, "losetup", "--detach", loop)
    run("mkfs.ext4", "-q", loop)
    place.mkdir()
    run("mount", loop, str(place))
    undo.callback(run, "umount", str(place))
    return place, loop


def test_a_disk_named_on_the_command_line_is_kept_for_resume(tmp_path: Path) -> None:
    own = resolve(tmp_path, Roots())
    (tmp_path / "named.yaml").write_text(json.dumps(campaign(tmp_path, mechanisms=["none"])))
    out = tmp_path / "named"
    program = [sys.executable, "-m", "pagetier.bench.cli", "run"]
    first = [*program, str(tmp_path / "named.yaml"), "-o", str(out)]
    for disk in own.leaf_names:
        first += ["--device", disk]
    for command in (first, [*program, "-o", str(out), "--resume"]):
        done = subprocess.run(
            [*command, "--json"], capture_output=True, text=True, timeout=300, check=False
        )
        assert done.returncode in (0, 1), done.stderr
        report = json.loads(done.stdout)
        assert report["host"]["device"]["given"] is True
        assert report["campaign"]["device"] == list(own.leaf_names)
        assert "limit_reclaim_counters" in report["host"]
    doctor = [sys.executable, "-m", "pagetier.bench.cli", "doctor", "--json"]
    options = ["--pool", str(tmp_path / "pool"), "--device", own.leaf_names[0]]
    done = subprocess.run([*doctor, *options], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout)["device"]["given"] is True
