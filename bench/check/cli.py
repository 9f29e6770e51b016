# SPDX-License-Identifier: Apache-2.0
"""`pagetier check`: the operator's question, is reclaim amplifying my reads?

Exit codes: 0 healthy; 1 suspect or amplifying; 2 unknown, or cannot run; 130 interrupted.
"""

import itertools
import json
import sys
import tempfile
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.live import Live

from pagetier.analysis.errors import InputError
from pagetier.analysis.units import parse_bytes
from pagetier.bench.check import view
from pagetier.bench.check.host import Subject
from pagetier.bench.check.run import Look, looks
from pagetier.bench.check.selftest import try_limit_counters
from pagetier.bench.journal import state_dir
from pagetier.bench.output import Json, print_json
from pagetier.bench.signals import terminate_like_interrupt
from pagetier.cgroups.roots import Roots

__all__ = ["check"]

HEALTHY, FINDING, CANNOT_TELL = 0, 1, 2
_STATUS = {"healthy": HEALTHY, "suspect": FINDING, "amplifying": FINDING, "unknown": CANNOT_TELL}

stdout = Console()


def check(
    watch: Annotated[
        bool, typer.Option("--watch", help="Go on until Ctrl-C: a live view, or lines in a log.")
    ] = False,
    interval: Annotated[float, typer.Option(min=0.1, help="Seconds between two looks.")] = 2.0,
    count: Annotated[
        int | None, typer.Option(min=1, help="With --watch: end after so many intervals.")
    ] = None,
    pool: Annotated[Path | None, typer.Option(help="The pool whose disks are looked at.")] = None,
    device: Annotated[
        list[str] | None,
        typer.Option(help="Its disk, where that cannot be found out; repeatable."),
    ] = None,
    cgroup: Annotated[
        str | None, typer.Option(help="The reader's cgroup, such as /system.slice/engine.service.")
    ] = None,
    pid: Annotated[int | None, typer.Option(min=1, help="The reader, by its process id.")] = None,
    feed: Annotated[
        str | None,
        typer.Option(help="A growing trace of the routed experts, - for stdin: computed misses."),
    ] = None,
    capacity: Annotated[
        str | None, typer.Option(help="Of the computed LRU (default: the resident file pages).")
    ] = None,
    textfile: Annotated[
        Path | None, typer.Option(help="Write Prometheus metrics here, for node_exporter.")
    ] = None,
    self_test: Annotated[
        bool,
        typer.Option(
            "--self-test", help="First try which counters include limit reclaim (32 MiB of disk)."
        ),
    ] = False,
    as_json: Json = False,
) -> None:
    """Is reclaim amplifying reads on this host?"""
    subject = Subject(
        pool=pool,
        device=tuple(device or ()),
        cgroup=cgroup,
        pid=pid,
        feed=feed,
        capacity_bytes=None if capacity is None else parse_bytes(capacity),
    )
    if device and pool is None:
        raise InputError("--device names the disk of a pool: name the pool with --pool")
    if self_test:
        place = Path(tempfile.gettempdir()) if pool is None else pool.resolve().parent
        try_limit_counters(state_dir(), place, Roots())
    found = looks(Look(subject, interval, textfile, state_dir()), Roots())
    with terminate_like_interrupt():
        document = _watch(found, count, as_json) if watch else _once(found, as_json)
    raise typer.Exit(_STATUS[document["state"]])


def _once(found: Iterator[dict[str, Any]], as_json: bool) -> dict[str, Any]:
    document = next(found)
    if as_json:
        print_json(document)
    else:
        view.page(stdout, document)
    return document


def _watch(found: Iterator[dict[str, Any]], count: int | None, as_json: bool) -> dict[str, Any]:
    """Every interval until the last one, whose document it returns; endless without a count."""
    limited = itertools.islice(found, count)
    if as_json:
        return _last(limited, lambda document: print(json.dumps(document), flush=True))
    if not sys.stdout.isatty():
        return _last(limited, lambda document: print(view.line(document, _now()), flush=True))
    with Live(console=stdout, auto_refresh=False, transient=False) as screen:
        return _last(
            limited,
            lambda document: screen.update(view.live(document, _now()), refresh=True),
        )


def _last(documents: Iterator[dict[str, Any]], show: Any) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for document in documents:
        show(document)
    return document


def _now() -> str:
    return f"{datetime.now():%Y-%m-%d %H:%M:%S}"
