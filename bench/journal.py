# SPDX-License-Identifier: Apache-2.0
"""What this harness has made on the host, written down before it is made.

One JSON file per running harness, under a state directory that outlives it.  A harness that dies
by kill -9 leaves its file; the next start undoes exactly what the file names, the last thing first:
scopes by their token and path, balloons and guests by pid and start time, the MGLRU by the mask it
had, a readahead window by its device and size.  Nothing is ever searched for by name.
"""

import contextlib
import fcntl
import json
import os
import secrets
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

from pagetier.analysis.errors import CapabilityError
from pagetier.analysis.files import replace_file
from pagetier.bench.readahead import restore_read_ahead
from pagetier.bench.tracing import remove_instance
from pagetier.capacity.balloon import reap
from pagetier.capacity.lab.machine import reap_guest
from pagetier.capacity.mglru import restore
from pagetier.cgroups.detect import detect
from pagetier.cgroups.procstat import read_start_ticks
from pagetier.cgroups.roots import Roots
from pagetier.cgroups.scope import remove_stale, stale_scopes

__all__ = ["Journal", "only_one", "recover", "state_dir"]

Value = str | int | list[str]


def state_dir() -> Path:
    """Where journals live: the same for every harness of this user on this boot."""
    if os.geteuid() == 0:
        return Path("/run/pagetier")
    return Path(os.environ.get("XDG_RUNTIME_DIR", f"/tmp/pagetier-{os.geteuid()}")) / "pagetier"


HALF_WRITTEN_AGE_S = 60.0


class Journal:
    """The open journal of this harness; a context manager at whose end nothing may be left."""

    def __init__(self, directory: Path, roots: Roots) -> None:
        self.token = secrets.token_hex(4)
        self._directory = directory
        self._roots = roots
        self._path = directory / f"{self.token}.json"
        self._entries: list[dict[str, Value]] = []
        self._scopes = 0
        self._owner = {
            "pid": os.getpid(),
            "start_ticks": read_start_ticks(roots, os.getpid()),
            "boot_id": _boot_id(roots),
        }

    def __enter__(self) -> Self:
        self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._write()
        return self

    def __exit__(self, *exc_info: object) -> None:
        """Undo what an error left on record; what cannot be undone stays for the next start."""
        for entry in reversed(self._entries):
            _undo(entry, self.token, self._roots)
        self._path.unlink(missing_ok=True)

    def next_scope_name(self) -> str:
        """A name no other harness can have: it carries this journal's token."""
        self._scopes += 1
        return f"pagetier-{self.token}-{self._scopes}"

    @contextlib.contextmanager
    def entry(self, **fields: Value) -> Iterator[None]:
        """Note a thing for as long as it exists on the host."""
        self._entries.append(fields)
        self._write()
        yield
        # Not in a finally: after an error it is not known here whether the thing is gone.
        self._entries.remove(fields)
        self._write()

    def _write(self) -> None:
        document = {"token": self.token, "owner": self._owner, "entries": self._entries}
        replace_file(self._path, json.dumps(document).encode())


def _boot_id(roots: Roots) -> str:
    return (roots.proc / "sys/kernel/random/boot_id").read_text().strip()


@contextlib.contextmanager
def only_one(directory: Path) -> Iterator[None]:
    """Two campaigns on one host would be each other's foreign traffic: the second is refused."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    with (directory / "lock").open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise CapabilityError(
                f"{directory / 'lock'}: another campaign is running on this host and would share "
                "its device and memory; wait for it to end"
            ) from None
        yield


def recover(directory: Path, roots: Roots) -> list[str]:
    """Undo what dead harnesses left on this host; says what was undone, one line each."""
    done: list[str] = []
    for path in sorted(directory.glob("*.json")):
        document = json.loads(path.read_text())
        if _is_alive(document["owner"], roots):
            continue
        if document["owner"]["boot_id"] == _boot_id(roots):
            for entry in reversed(document["entries"]):
                done += _undo(entry, document["token"], roots)
        path.unlink()
    _remove_half_written(directory)
    return done


def _remove_half_written(directory: Path) -> None:
    """Files that a kill -9 caught between writing and renaming; a living write takes far less."""
    for path in directory.glob(".*.json.*"):
        with contextlib.suppress(FileNotFoundError):
            if time.time() - path.stat().st_mtime > HALF_WRITTEN_AGE_S:
                path.unlink()


def _is_alive(owner: dict[str, int | str], roots: Roots) -> bool:
    if owner["boot_id"] != _boot_id(roots):
        return False
    return read_start_ticks(roots, int(owner["pid"])) == owner["start_ticks"]


def _undo(entry: dict[str, Any], token: str, roots: Roots) -> list[str]:
    match entry["kind"]:
        case "scope":
            # A systemd scope has no path before its process runs: the token finds it.
            named = {Path(path) for path in entry["paths"]}
            named |= set(stale_scopes(detect(roots), token))
            left = [path for path in sorted(named) if path.exists()]
            for path in left:
                remove_stale(path, token)
            return [f"removed the scope {path} of a harness that died" for path in left]
        case "balloon":
            killed = reap(entry["pid"], entry["start_ticks"], roots)
            return [f"ended the balloon {entry['pid']} of a harness that died"] if killed else []
        case "guest":
            killed = reap_guest(entry["pid"], entry["start_ticks"], roots)
            return [f"ended the guest {entry['pid']} of a harness that died"] if killed else []
        case "mglru":
            mask = entry["mask"]
            done = restore(mask, roots)
            return [f"put the MGLRU mask {mask:#06x} of before a dead harness back"] if done else []
        case "read_ahead":
            bdi, before_kb = entry["bdi"], entry["kb"]
            done = restore_read_ahead(bdi, before_kb, roots)
            return [f"put read_ahead_kb {before_kb} of {bdi} before a dead harness back"] * done
        case "tracing":
            path = Path(entry["path"])
            done = remove_instance(path, token)
            return [f"removed the tracing instance {path} of a harness that died"] * done
        case kind:
            raise CapabilityError(
                f"a journal of a newer pagetier names '{kind}', which this one cannot undo; "
                "run the newer one once"
            )
