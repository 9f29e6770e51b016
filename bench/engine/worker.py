# SPDX-License-Identifier: Apache-2.0
"""The process in a cell's scope in which the engine decodes; nothing else runs there.

It is started as ``python -m pagetier.bench.engine.worker JOB_DIR HARNESS_PID``, loads the model,
decodes one token so that every buffer is touched, and says ``ready``.  For each ``prompt`` that it
is asked for it computes the prompt, says ``prompted`` and waits; told to ``decode``, it decodes the
request and says ``pass``: so the harness can take its snapshots around the decoding alone.
"""

import contextlib
import json
import os
import resource
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from pagetier.analysis.errors import PagetierError
from pagetier.bench.engine.admission import Dropper
from pagetier.bench.engine.llama import Engine, Loading, Sampling
from pagetier.capacity.procstatus import read_status
from pagetier.cgroups.roots import Roots
from pagetier.native.process import die_with_parent

__all__ = ["DecodeJob", "say", "serve_job", "write_decode_job"]


@dataclass(frozen=True, slots=True)
class DecodeJob:
    """What is decoded and how; `dropped` are the extents by file that no token leaves behind."""

    model: str
    loading: Loading
    prompt: list[int]
    count: int
    sampling: Sampling
    dropped: dict[str, list[tuple[int, int]]]


def write_decode_job(directory: Path, job: DecodeJob) -> None:
    """Write what a worker needs into `directory`."""
    loading, sampling = job.loading, job.sampling
    document = {
        "model": job.model,
        "loading": {
            "mmap": loading.mmap,
            "mlock": loading.mlock,
            "threads": loading.threads,
            "context_tokens": loading.context_tokens,
        },
        "prompt": job.prompt,
        "count": job.count,
        "sampling": {"temperature": sampling.temperature, "seed": sampling.seed},
        "dropped": job.dropped,
    }
    (directory / "job.json").write_text(json.dumps(document))


def _read_decode_job(directory: Path) -> DecodeJob:
    document = json.loads((directory / "job.json").read_text())
    return DecodeJob(
        model=document["model"],
        loading=Loading(**document["loading"]),
        prompt=document["prompt"],
        count=document["count"],
        sampling=Sampling(**document["sampling"]),
        dropped={
            path: [(offset, length) for offset, length in extents]
            for path, extents in document["dropped"].items()
        },
    )


def say(**event: Any) -> None:
    """One line to the harness."""
    print(json.dumps(event), flush=True)


@dataclass(slots=True)
class _Request:
    """One request as it runs: a pause after the prompt, then the end of each token."""

    drop: Callable[[], None] | None
    start_ns: int = 0
    end_ns: list[int] = field(default_factory=list)
    drop_ns: int = 0
    usage: tuple[float, float] = (0.0, 0.0)
    prompted: bool = False

    def after_token(self) -> None:
        now_ns = time.monotonic_ns()
        if self.drop is not None:
            self.drop()
            self.drop_ns += time.monotonic_ns() - now_ns
        if self.prompted:
            self.end_ns.append(now_ns)
            say(event="progress", reads=len(self.end_ns), bytes=0, iterations=len(self.end_ns))
            return
        self.prompted = True
        say(event="prompted")
        if _command() != "decode":
            raise KeyboardInterrupt  # the harness is gone
        self.drop_ns = 0
        self.usage = _usage()
        self.start_ns = time.monotonic_ns()


def _command() -> str | None:
    line = sys.stdin.readline()
    return json.loads(line)["do"] if line else None


def _usage() -> tuple[float, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime, used.ru_stime


def _serve(engine: Engine, job: DecodeJob, drop: Callable[[], None] | None) -> None:
    while _command() == "prompt":
        request = _Request(drop)
        found = engine.generate(job.prompt, job.count, job.sampling, request.after_token)
        user_s, system_s = _usage()
        say(
            event="pass",
            start_ns=request.start_ns,
            end_ns=request.end_ns,
            wall_ns=found.decode_ns,
            prompt_ns=found.prompt_ns,
            drop_ns=request.drop_ns,
            tokens=found.tokens,
            user_ns=round((user_s - request.usage[0]) * 1e9),
            system_ns=round((system_s - request.usage[1]) * 1e9),
        )


def _run(directory: Path) -> None:
    job = _read_decode_job(directory)
    start_ns = time.monotonic_ns()
    with Engine(Path(job.model), job.loading) as engine, contextlib.ExitStack() as stack:
        load_ns = time.monotonic_ns() - start_ns
        drop = None
        if job.dropped:
            files = {Path(path): extents for path, extents in job.dropped.items()}
            drop = stack.enter_context(Dropper(files))
        engine.generate(job.prompt, 1, job.sampling)
        if drop is not None:
            drop()
        status = read_status(Roots(), os.getpid())
        say(
            event="ready",
            pid=os.getpid(),
            load_ns=load_ns,
            backend=engine.facts.backend,
            engine=engine.facts.engine,
            system_info=engine.facts.system_info,
            locked_bytes=None if status is None else status.vm_lck_bytes,
        )
        _serve(engine, job, drop)


def _on_terminate(_signal: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def serve_job(arguments: list[str], run: Callable[[Path], None]) -> int:
    """Serve one job; exit 0 when the harness is done, 1 after a reported error."""
    directory, harness_pid = Path(arguments[0]), int(arguments[1])
    signal.signal(signal.SIGTERM, _on_terminate)
    try:
        die_with_parent(harness_pid)
    except ProcessLookupError:
        return 1
    try:
        run(directory)
    except PagetierError as error:
        say(event="error", message=str(error))
        return 1
    except KeyboardInterrupt:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(serve_job(sys.argv[1:], _run))
