# SPDX-License-Identifier: Apache-2.0
"""The journal: recovery undoes what dead harnesses name, and touches nothing else."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from pagetier.analysis.errors import CapabilityError
from pagetier.bench import journal as journal_module
from pagetier.bench.journal import Journal, only_one, recover
from pagetier.capacity.errors import CapacityError
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.roots import Roots

ROOTS = Roots()


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


def write_journal(
    folder: Path, token: str, entries: list[dict[str, object]], **owner: object
) -> None:
    who = {"pid": 2**22 - 1, "start_ticks": 1, "boot_id": boot_id(), **owner}
    document = {"token": token, "owner": who, "entries": entries}
    (folder / f"{token}.json").write_text(json.dumps(document))


def test_journal_names_things_while_they_exist(tmp_path: Path) -> None:
    with Journal(tmp_path, ROOTS) as journal:
        path = tmp_path / f"{journal.token}.json"
        with journal.entry(kind="scope", paths=["/a"]):
            (entry,) = json.loads(path.read_text())["entries"]
            assert entry == {"kind": "scope", "paths": ["/a"]}
        assert json.loads(path.read_text())["entries"] == []
    assert list(tmp_path.iterdir()) == []


def test_what_an_error_left_is_undone_at_the_end(tmp_path: Path) -> None:
    with Journal(tmp_path, ROOTS) as journal:
        scope = tmp_path / journal.next_scope_name()
        scope.mkdir()
        with pytest.raises(OSError, match="busy"), journal.entry(kind="scope", paths=[str(scope)]):
            raise OSError("busy")
        assert json.loads((tmp_path / f"{journal.token}.json").read_text())["entries"]
        assert scope.exists()
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_undone_stays_on_record(tmp_path: Path) -> None:
    with pytest.raises(CgroupError), Journal(tmp_path, ROOTS) as journal:
        stranger = tmp_path / "not-a-scope-of-ours"
        stranger.mkdir()
        with contextlib.suppress(OSError), journal.entry(kind="scope", paths=[str(stranger)]):
            raise OSError("busy")
    assert (tmp_path / f"{journal.token}.json").exists() and stranger.exists()


def test_names_carry_the_token_and_never_repeat(tmp_path: Path) -> None:
    journal, other = Journal(tmp_path, ROOTS), Journal(tmp_path, ROOTS)
    names = [journal.next_scope_name(), journal.next_scope_name(), other.next_scope_name()]
    assert len(set(names)) == 3
    assert names[0].startswith(f"pagetier-{journal.token}-")


def test_recovery_removes_a_dead_harness_scope(tmp_path: Path) -> None:
    scope = tmp_path / "pagetier-abc-1"
    scope.mkdir()
    write_journal(tmp_path, "abc", [{"kind": "scope", "paths": [str(scope)]}])
    (line,) = recover(tmp_path, ROOTS)
    assert str(scope) in line
    assert not scope.exists() and not (tmp_path / "abc.json").exists()


def test_recovery_leaves_a_living_harness_alone(tmp_path: Path) -> None:
    with Journal(tmp_path, ROOTS) as journal:
        scope = tmp_path / journal.next_scope_name()
        scope.mkdir()
        with journal.entry(kind="scope", paths=[str(scope)]):
            assert recover(tmp_path, ROOTS) == []
            assert scope.exists()


def test_a_recycled_pid_is_not_the_owner(tmp_path: Path) -> None:
    scope = tmp_path / "pagetier-abc-1"
    scope.mkdir()
    entries: list[dict[str, object]] = [{"kind": "scope", "paths": [str(scope)]}]
    write_journal(tmp_path, "abc", entries, pid=os.getpid(), start_ticks=1)
    assert len(recover(tmp_path, ROOTS)) == 1


def test_another_boot_left_nothing_to_undo(tmp_path: Path) -> None:
    scope = tmp_path / "pagetier-abc-1"
    scope.mkdir()
    entries: list[dict[str, object]] = [{"kind": "scope", "paths": [str(scope)]}]
    write_journal(tmp_path, "abc", entries, boot_id="another")
    assert recover(tmp_path, ROOTS) == []
    assert scope.exists() and not (tmp_path / "abc.json").exists()


def test_recovery_never_kills_a_process_that_is_no_balloon(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as innocent:
        entry: dict[str, object] = {"kind": "balloon", "pid": innocent.pid, "start_ticks": 1}
        write_journal(tmp_path, "abc", [entry])
        assert recover(tmp_path, ROOTS) == []
        assert innocent.poll() is None
        innocent.communicate(b"\n")


def test_recovery_puts_the_oldest_mglru_mask_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_back: list[int] = []

    def restore(mask: int, roots: Roots) -> bool:
        put_back.append(mask)
        return mask != 0

    monkeypatch.setattr(journal_module, "restore", restore)
    write_journal(tmp_path, "abc", [{"kind": "mglru", "mask": 7}, {"kind": "mglru", "mask": 0}])
    assert recover(tmp_path, ROOTS) == ["put the MGLRU mask 0x0007 of before a dead harness back"]
    assert put_back == [0, 7]
    assert not (tmp_path / "abc.json").exists()


def test_a_mask_that_cannot_be_put_back_stays_on_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(mask: int, roots: Roots) -> bool:
        raise CapacityError("read-only")

    monkeypatch.setattr(journal_module, "restore", refuse)
    write_journal(tmp_path, "abc", [{"kind": "mglru", "mask": 7}])
    with pytest.raises(CapacityError, match="read-only"):
        recover(tmp_path, ROOTS)
    assert (tmp_path / "abc.json").exists()


def test_an_entry_of_a_newer_version_is_kept_and_named(tmp_path: Path) -> None:
    write_journal(tmp_path, "abc", [{"kind": "hypnosis"}])
    with pytest.raises(CapabilityError, match="newer pagetier names 'hypnosis'"):
        recover(tmp_path, ROOTS)
    assert (tmp_path / "abc.json").exists()


def test_only_one_campaign_at_a_time(tmp_path: Path) -> None:
    with (
        only_one(tmp_path),
        pytest.raises(CapabilityError, match="another campaign is running"),
        only_one(tmp_path),
    ):
        pass
    with only_one(tmp_path):
        pass


def test_half_written_journals_are_cleared_when_old(tmp_path: Path) -> None:
    old, young = tmp_path / ".a.json.x1", tmp_path / ".b.json.x2"
    for path in (old, young):
        path.write_text("{")
    os.utime(old, (1, 1))
    assert recover(tmp_path, ROOTS) == []
    assert (old.exists(), young.exists()) == (False, True)
