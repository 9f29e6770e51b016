# SPDX-License-Identifier: Apache-2.0
"""The process that lives inside a cell's scope and replays the plan; nothing else runs there.

It is started as ``python -m pagetier.bench.worker JOB_DIR HARNESS_PID``, loads its job, touches its
buffers and says ``ready``.  Then it takes one JSON command per line on stdin and answers with JSON
lines on stdout, so that warm-up and measured pass happen in one process and one scope, and the
harness can take its snapshots between them from outside.

Imports stay few: what this process loads is charged to the budget under test.
"""

import json
import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from pagetier.analysis.plans import Plan, load_plan, save_plan
from pagetier.native.errors import ReplayError
from pagetier.native.process import die_with_parent
from pagetier.native.reader import ExtentTable, PassResult, Progress, Reader

__all__ = ["write_job"]


def write_job(directory: Path, plan: Plan, table: ExtentTable, options: dict[str, Any]) -> None:
    """Write what a worker needs into `directory`; `options` are keyword arguments of Reader."""
    save_plan(plan, directory / "plan.npz")
    np.save(directory / "extents.npy", table.extents, allow_pickle=False)
    np.save(directory / "expert_start.npy", table.expert_start, allow_pickle=False)
    job = {"paths": list(table.paths), "options": options}
    (directory / "job.json").write_text(json.dumps(job))


def _load_table(directory: Path, paths: list[str]) -> ExtentTable:
    return ExtentTable(
        tuple(paths),
        np.load(directory / "extents.npy", allow_pickle=False),
        np.load(directory / "expert_start.npy", allow_pickle=False),
    )


def _say(**event: Any) -> None:
    print(json.dumps(event), flush=True)


def _report_progress(progress: Progress) -> None:
    _say(
        event="progress",
        reads=progress.reads,
        bytes=progress.bytes,
        iterations=progress.iterations,
    )


def _as_list(array: "np.ndarray[Any, Any] | None") -> list[int] | None:
    return None if array is None else [int(value) for value in array]


def _report_pass(result: PassResult) -> None:
    buckets = np.flatnonzero(result.latency_histogram)
    _say(
        event="pass",
        start_ns=result.start_ns,
        user_ns=result.user_ns,
        system_ns=result.system_ns,
        verified_reads=result.verified_reads,
        latency_histogram=[[int(b), int(result.latency_histogram[b])] for b in buckets],
        end_ns=_as_list(result.iteration_end_ns),
        wall_ns=_as_list(result.iteration_wall_ns),
        bytes=_as_list(result.iteration_bytes),
        reads=_as_list(result.iteration_reads),
        first_bytes=_as_list(result.iteration_first_bytes),
        repeat_bytes=_as_list(result.iteration_repeat_bytes),
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


def _serve(reader: Reader, plan: Plan) -> None:
    """One replay per command until the harness closes the pipe."""
    for line in sys.stdin:
        command = json.loads(line)
        result = reader.replay(
            plan,
            verify_every=command["verify_every"],
            content_seed=command["content_seed"],
            on_progress=_report_progress,
        )
        _report_pass(result)


def _on_terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def main(arguments: list[str]) -> int:
    """Serve one job; exit 0 when the harness is done, 1 after a reported error."""
    directory, harness_pid = Path(arguments[0]), int(arguments[1])
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        die_with_parent(harness_pid)
    except ProcessLookupError:
        return 1
    job = json.loads((directory / "job.json").read_text())
    plan = load_plan(directory / "plan.npz")
    try:
        with Reader(_load_table(directory, job["paths"]), **job["options"]) as reader:
            _say(
                event="ready",
                pid=os.getpid(),
                residency=reader.residency,
                kept_open_files=reader.kept_open_files,
            )
            _serve(reader, plan)
    except ReplayError as error:
        _report_error(error)
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
