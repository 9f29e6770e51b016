# SPDX-License-Identifier: Apache-2.0
"""The process that lives inside a cell's scope and replays the plan; nothing else runs there.

It is started as ``python -m pagetier.bench.worker JOB_DIR HARNESS_PID``, loads its job, locks spine
and arena, preloads the arena, touches its buffers and says ``ready``.  Then it takes one JSON
command per line on stdin and answers with JSON lines on stdout, so that warm-up and measured pass
happen in one process and one scope, and the harness can take its snapshots between them from
outside.

Imports stay few: what this process loads is charged to the budget under test.
"""

import contextlib
import json
import os
import signal
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from pagetier.analysis.hints import HintPlan
from pagetier.analysis.plans import Plan, Uint32, Uint64, load_plan, save_plan
from pagetier.bench.audited import Hints, audited_replay
from pagetier.bench.pass_event import pass_event
from pagetier.capacity.procstatus import read_status
from pagetier.cgroups.roots import Roots
from pagetier.native.arena import Arena
from pagetier.native.errors import ReplayError
from pagetier.native.hints import HintDelivery
from pagetier.native.process import die_with_parent
from pagetier.native.reader import ExtentTable, Progress, Reader
from pagetier.tiers.spine import locked_spine

__all__ = ["TierJob", "write_job", "write_prompt"]


@dataclass(frozen=True, slots=True, eq=False)
class TierJob:
    """What the worker holds and hints beside its replay; `delivery` is keyword arguments of
    HintDelivery."""

    arena: Uint32 = field(default_factory=lambda: np.zeros(0, dtype=np.uint32))
    spine_bytes: int = 0
    hints: HintPlan | None = None
    delivery: dict[str, Any] | None = None


_NOTHING = TierJob()
_DIGESTS, _IDENTITIES = "expert_digests.npy", "identities.npy"
_PROMPT = "prompt.npz"


def write_job(
    directory: Path,
    plan: Plan,
    table: ExtentTable,
    options: dict[str, Any],
    tier: TierJob = _NOTHING,
    digests: Uint64 | None = None,
) -> None:
    """Write what a worker needs into `directory`; `options` are keyword arguments of Reader.

    `digests` of the experts are what the content is compared with; without them it is a seed's.
    """
    save_plan(plan, directory / "plan.npz")
    np.save(directory / "extents.npy", table.extents, allow_pickle=False)
    np.save(directory / "expert_start.npy", table.expert_start, allow_pickle=False)
    np.save(directory / "arena.npy", tier.arena, allow_pickle=False)
    if table.identities is not None:
        np.save(directory / _IDENTITIES, table.identities, allow_pickle=False)
    if digests is not None:
        np.save(directory / _DIGESTS, digests, allow_pickle=False)
    if tier.hints is not None:
        np.save(directory / "hint_experts.npy", tier.hints.experts, allow_pickle=False)
        np.save(directory / "hint_start.npy", tier.hints.record_start, allow_pickle=False)
    job = {
        "paths": list(table.paths),
        "options": options,
        "spine_bytes": tier.spine_bytes,
        "delivery": tier.delivery,
    }
    (directory / "job.json").write_text(json.dumps(job))


def write_prompt(directory: Path, prompt: Plan) -> None:
    """What the worker reads when it is asked for a prompt: before a pass, and no part of it."""
    save_plan(prompt, directory / _PROMPT)


def _load_hints(directory: Path) -> Hints:
    return Hints(
        np.load(directory / "hint_start.npy", allow_pickle=False),
        np.load(directory / "hint_experts.npy", allow_pickle=False),
    )


def _load_table(directory: Path, paths: list[str]) -> ExtentTable:
    return ExtentTable(
        tuple(paths),
        np.load(directory / "extents.npy", allow_pickle=False),
        np.load(directory / "expert_start.npy", allow_pickle=False),
        _load_if_there(directory / _IDENTITIES),
    )


def _load_if_there(path: Path) -> Uint64 | None:
    return np.load(path, allow_pickle=False) if path.exists() else None


def _say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def _report_progress(progress: Progress) -> None:
    _say(
        event="progress",
        reads=progress.reads,
        bytes=progress.bytes,
        iterations=progress.iterations,
    )


def _report_error(error: ReplayError) -> None:
    _say(
        event="error",
        message=str(error),
        errno=error.errno,
        call=error.call,
        path=error.filename,
        offset=error.offset,
    )


def _report_held(held_bytes: int) -> None:
    """Locking and preloading are progress, too: they may take longer than any silence may last."""
    _say(event="progress", reads=held_bytes, bytes=held_bytes, iterations=0)


def _own_locked_bytes() -> int | None:
    status = read_status(Roots(), os.getpid())
    return None if status is None else status.vm_lck_bytes


@contextlib.contextmanager
def _arena(directory: Path, table: ExtentTable) -> Iterator[Arena | None]:
    """The experts to hold, locked and loaded; None when there are none."""
    experts = np.load(directory / "arena.npy", allow_pickle=False)
    if len(experts) == 0:
        yield None
        return
    with Arena(table, experts, vm_lck_bytes=_own_locked_bytes, on_progress=_report_held) as arena:
        arena.preload(on_progress=_report_held)
        yield arena


def _preload(arena: Arena | None) -> dict[str, Any] | None:
    if arena is None or arena.preloaded is None:
        return None
    preloaded = arena.preloaded
    return {**asdict(preloaded), "way": preloaded.way, "region_bytes": arena.region_bytes}


def _serve(
    reader: Reader,
    table: ExtentTable,
    plan: Plan,
    hints: Hints | None,
    digests: Uint64 | None,
    prompt: Plan | None,
) -> None:
    """One replay per command until the harness closes the pipe."""
    for line in sys.stdin:
        command = json.loads(line)
        if prompt is not None and command.get("prompt"):
            reader.replay(prompt, on_progress=_report_progress)
            _say(event="prompted")
            continue
        if command["audit"]:
            _say(**audited_replay(reader, table, plan, hints, command["audit"], _report_progress))
            continue
        result = reader.replay(
            plan,
            hints=hints,
            verify_every=command["verify_every"],
            content_seed=command["content_seed"],
            expert_digests=digests,
            hash_content=command["hash_content"],
            on_progress=_report_progress,
        )
        _say(**pass_event(result))


def _on_terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _run(directory: Path, job: dict[str, Any]) -> None:
    plan, table = load_plan(directory / "plan.npz"), _load_table(directory, job["paths"])
    delivery = None if job["delivery"] is None else HintDelivery(**job["delivery"])
    hints = None if delivery is None else _load_hints(directory)
    digests = _load_if_there(directory / _DIGESTS)
    prompt = load_plan(directory / _PROMPT) if (directory / _PROMPT).exists() else None
    with (
        locked_spine(job["spine_bytes"], _own_locked_bytes),
        _arena(directory, table) as arena,
        Reader(table, **job["options"], arena=arena, hints=delivery) as reader,
    ):
        _say(
            event="ready",
            pid=os.getpid(),
            residency=reader.residency,
            kept_open_files=reader.kept_open_files,
            locked_bytes=_own_locked_bytes(),
            preload=_preload(arena),
        )
        _serve(reader, table, plan, hints, digests, prompt)


def main(arguments: list[str]) -> int:
    """Serve one job; exit 0 when the harness is done, 1 after a reported error."""
    directory, harness_pid = Path(arguments[0]), int(arguments[1])
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        die_with_parent(harness_pid)
    except ProcessLookupError:
        return 1
    job = json.loads((directory / "job.json").read_text())
    try:
        _run(directory, job)
    except ReplayError as error:
        _report_error(error)
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
