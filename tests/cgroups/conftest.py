# SPDX-License-Identifier: Apache-2.0
"""A temporary directory that behaves like procfs and cgroupfs as far as scopes can tell."""

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest

from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.roots import Roots

PAGE = 4096
V1_UNLIMITED = (2**63 - 1) // PAGE * PAGE

V2_FILES = {
    "memory.max": "max\n",
    "memory.swap.max": "max\n",
    "memory.current": "102400\n",
    "memory.peak": "204800\n",
    "memory.events": "low 1\nhigh 2\nmax 3\noom 4\noom_kill 5\noom_group_kill 6\n",
    "memory.stat": "anon 11\nfile 12\nkernel 13\nworkingset_refault_anon 14\n"
    "workingset_refault_file 15\npgscan 16\npgsteal 17\nslab 99\n",
    "memory.pressure": "some avg10=0.00 avg60=0.00 avg300=0.00 total=21\n"
    "full avg10=0.00 avg60=0.00 avg300=0.00 total=22\n",
}
V1_FILES = {
    "memory.limit_in_bytes": f"{V1_UNLIMITED}\n",
    "memory.memsw.limit_in_bytes": f"{V1_UNLIMITED}\n",
    "memory.swappiness": "60\n",
    "memory.usage_in_bytes": "102401\n",
    "memory.max_usage_in_bytes": "204801\n",
    "memory.kmem.usage_in_bytes": "33\n",
    "memory.failcnt": "44\n",
    "memory.memsw.failcnt": "600\n",
    "memory.oom_control": "oom_kill_disable 0\nunder_oom 0\noom_kill 45\n",
    "memory.stat": "cache 1\nrss 2\nworkingset_refault_anon 3\nworkingset_refault_file 4\n"
    f"hierarchical_memory_limit {V1_UNLIMITED}\ntotal_cache 51\ntotal_rss 52\n"
    "total_workingset_refault_anon 53\ntotal_workingset_refault_file 54\n",
}


class FakeKernel:
    """Three roots, and the few kernel rules about writes, mkdir and rmdir that scopes rely on."""

    def __init__(self, directory: Path) -> None:
        self.roots = Roots(directory / "proc", directory / "sys", directory / "cgroup")
        self.v1_files = dict(V1_FILES)
        self.v2_files = dict(V2_FILES)
        self.writes: list[tuple[str, str]] = []
        self.busy_writes = 0
        self._mkdir, self._rmdir = Path.mkdir, Path.rmdir
        for name in ("proc/self", "proc/1", "sys", "cgroup"):
            os.makedirs(directory / name)

    def processes(self, mountinfo: str, cgroup: str, pid_1: str = "init") -> None:
        """/proc as seen by us."""
        self.fill(
            self.roots.proc,
            {"self/mountinfo": mountinfo, "self/cgroup": cgroup, "1/comm": f"{pid_1}\n"},
        )

    def process(self, pid: int, cgroup: str, state: str = "S") -> None:
        """/proc/<pid> of one more process."""
        stat = f"{pid} (a (b) c) {state} {' '.join(map(str, range(4, 53)))}\n"
        self.fill(self.roots.proc, {f"{pid}/cgroup": cgroup, f"{pid}/stat": stat})

    def v2(
        self,
        path: str,
        controllers: str,
        subtree: str = "",
        procs: Iterable[int] = (),
        *,
        kind: str | None = "domain",
    ) -> Path:
        """A v2 cgroup; `kind` None makes it the real root, which has no cgroup.type."""
        files = {
            "cgroup.controllers": f"{controllers}\n",
            "cgroup.subtree_control": f"{subtree}\n",
            "cgroup.procs": "".join(f"{pid}\n" for pid in procs),
        }
        if kind is not None:
            files["cgroup.type"] = f"{kind}\n"
        return self.fill(self.roots.cgroup / path, files)

    def v1(self, path: str, **limits: int) -> Path:
        """A cgroup of the v1 memory hierarchy."""
        files = {"cgroup.procs": "", **self.v1_files}
        for name, value in limits.items():
            files[f"memory.{name}"] = f"{value}\n"
        return self.fill(self.roots.cgroup / path, files)

    def fill(self, directory: Path, files: dict[str, str]) -> Path:
        for name, text in files.items():
            os.makedirs((directory / name).parent, exist_ok=True)
            (directory / name).write_text(text)
        return directory

    def write(self, path: Path, value: str) -> None:
        """Stands for files.write_value."""
        relative = str(path.relative_to(self.roots.cgroup))
        if not path.exists():
            raise CgroupError(f"no {relative}", errno=errno.ENOENT)
        if self.busy_writes:
            self.busy_writes -= 1
            raise CgroupError(f"busy {relative}", errno=errno.EBUSY)
        self.writes.append((relative, value))
        path.write_text(self._effect(path, value) + "\n")

    def _effect(self, path: Path, value: str) -> str:
        if path.name == "cgroup.subtree_control":
            words = set(path.read_text().split())
            words = words | {value[1:]} if value[0] == "+" else words - {value[1:]}
            return " ".join(sorted(words))
        if value == "-1":
            return str(V1_UNLIMITED)
        if path.name.endswith("limit_in_bytes"):
            self._check_v1_order(path, int(value))
        if path.name in ("memory.max", "memory.limit_in_bytes", "memory.memsw.limit_in_bytes"):
            return value if value == "max" else str(int(value) // PAGE * PAGE)
        return value

    @staticmethod
    def _check_v1_order(path: Path, limit: int) -> None:
        memory = path.parent / "memory.limit_in_bytes"
        both = path.parent / "memory.memsw.limit_in_bytes"
        if not both.exists():
            return
        low = limit if path == memory else int(memory.read_text())
        high = limit if path == both else int(both.read_text())
        if low > high:
            raise CgroupError("memory over memory plus swap", errno=errno.EINVAL)

    def mkdir(
        self, path: Path, mode: int = 0o777, parents: bool = False, exist_ok: bool = False
    ) -> None:
        """A new directory gets the files that its parent's controllers give it."""
        self._mkdir(path, mode, parents, exist_ok)
        control = path.parent / "cgroup.subtree_control"
        if control.exists():
            files = self.v2_files if "memory" in control.read_text().split() else {}
            self.fill(path, {"cgroup.procs": "", "cgroup.type": "domain\n", **files})
        elif (path.parent / "memory.limit_in_bytes").exists():
            self.fill(path, {"cgroup.procs": "", **self.v1_files})

    def rmdir(self, path: Path) -> None:
        """Control files do not count; child cgroups do."""
        if path.exists():
            for child in path.iterdir():
                if child.is_file():
                    child.unlink()
        self._rmdir(path)


def fake_method(function: Callable[..., None]) -> Callable[..., None]:
    """A plain function, which as a class attribute is given the path itself."""
    return lambda path, *arguments, **options: function(path, *arguments, **options)


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeKernel:
    """A fake kernel that the modules under test write to."""
    fake = FakeKernel(tmp_path / "fake")
    for module in ("v1", "v2"):
        monkeypatch.setattr(f"pagetier.cgroups.{module}.write_value", fake.write)
    monkeypatch.setattr(Path, "mkdir", fake_method(fake.mkdir))
    monkeypatch.setattr(Path, "rmdir", fake_method(fake.rmdir))
    return fake
