# SPDX-License-Identifier: Apache-2.0
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagetier.capacity.errors import CapacityError
from pagetier.capacity.none import Unlimited
from pagetier.capacity.wall import Wall, wall_limit
from pagetier.cgroups.errors import CgroupError
from pagetier.cgroups.psi import Pressure
from pagetier.cgroups.scope import Events, Limits, MemoryState

MIB = 2**20
GB = 10**9
STATE = MemoryState(
    current_bytes=100 * MIB,
    peak_bytes=None,
    anon_bytes=7 * MIB,
    file_bytes=90 * MIB,
    kernel_bytes=3 * MIB,
    refault_file_pages=None,
    pgscan_pages=None,
    pgsteal_pages=None,
    raw={},
)


class FakeScope:
    """A scope in memory that obeys."""

    name = "pagetier-t0-1"
    version = "v2"
    path = Path("/cg/pagetier-t0-1")

    def __init__(self) -> None:
        self.state = STATE
        self.counts = Events(oom=0, oom_kill=0, max=0)
        self.limit = Limits(None, None, True)
        self.ancestor: int | None = None
        self.alive = True
        self.calls: list[str] = []

    def directories(self) -> tuple[Path, ...]:
        return (self.path,)

    def create(self) -> None: ...

    def command(self, argv: Sequence[str]) -> list[str]:
        return list(argv)

    def attach(self, pid: int, timeout_s: float = 10.0) -> None: ...

    def set_limit(self, memory_bytes: int) -> None:
        self.calls.append(f"set {memory_bytes}")
        self.limit = Limits(memory_bytes, 0, True)

    def clear_limit(self) -> None:
        self.calls.append("clear")
        self.limit = Limits(None, None, True)

    def exists(self) -> bool:
        return self.alive

    def limits(self) -> Limits:
        return self.limit

    def memory(self) -> MemoryState:
        return self.state

    def events(self) -> Events:
        return self.counts

    def pressure(self) -> Pressure | None:
        return None

    def io(self) -> dict[str, int] | None:
        return None

    def pids(self) -> list[int]:
        return []

    def remove(self) -> None: ...

    def ancestor_limit_bytes(self) -> int | None:
        return self.ancestor


@pytest.fixture
def scope() -> FakeScope:
    return FakeScope()


def test_the_paper_s_wall_in_bytes() -> None:
    assert wall_limit(256 * GB, 6 * 2**30, 4096) == 262_442_450_944


@given(st.integers(1, 2**48), st.integers(0, 2**40), st.sampled_from([4096, 16384, 65536]))
def test_limit_is_the_next_whole_page(capacity: int, headroom: int, page: int) -> None:
    limit = wall_limit(capacity, headroom, page)
    assert limit % page == 0
    assert 0 <= limit - (capacity + headroom) < page


def test_capacity_and_headroom_must_make_sense() -> None:
    with pytest.raises(CapacityError, match="capacity is 0"):
        wall_limit(0, 0, 4096)
    with pytest.raises(CapacityError, match="headroom is -1"):
        Wall(-1)


def test_fixed_headroom(scope: FakeScope) -> None:
    with Wall(64 * MIB).enforce(128 * MIB, scope) as enforcement:
        enforced = enforcement.enforced
        assert enforced.mechanism == "wall"
        assert enforced.capacity_bytes == 128 * MIB
        assert enforced.headroom_bytes == 64 * MIB
        assert enforced.limit_bytes == 192 * MIB
        assert enforced.swap_limit_bytes == 0
        assert enforced.locked_bytes is None
        assert enforced.facts["headroom_source"] == "fixed"
        assert enforcement.problems() == []
    assert scope.calls == [f"set {192 * MIB}", "clear"]


def test_auto_headroom_is_anon_and_kernel_but_never_file(scope: FakeScope) -> None:
    with Wall("auto", settle_s=0).enforce(128 * MIB, scope) as enforcement:
        assert enforcement.enforced.headroom_bytes == 10 * MIB
        assert enforcement.enforced.limit_bytes == 138 * MIB
        assert enforcement.enforced.facts["headroom_source"] == "auto"
        assert enforcement.enforced.facts["file_bytes"] == 90 * MIB


def test_auto_headroom_without_kernel_accounting(scope: FakeScope) -> None:
    scope.state = replace(STATE, kernel_bytes=None)
    with Wall("auto", settle_s=0).enforce(128 * MIB, scope) as enforcement:
        assert enforcement.enforced.headroom_bytes == 7 * MIB
        assert enforcement.enforced.facts["kernel_bytes"] is None


def test_auto_waits_for_the_counters_and_fixed_does_not(
    scope: FakeScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses: list[float] = []
    monkeypatch.setattr("pagetier.capacity.wall.time.sleep", pauses.append)
    with Wall(0).enforce(128 * MIB, scope):
        assert pauses == []
    with Wall("auto").enforce(128 * MIB, scope):
        assert pauses == [2.5]


def test_the_limit_is_taken_away_whatever_happens_inside(scope: FakeScope) -> None:
    with pytest.raises(KeyboardInterrupt), Wall(0).enforce(128 * MIB, scope):
        raise KeyboardInterrupt
    assert scope.calls[-1] == "clear"


def test_a_scope_that_went_away_is_not_cleared(scope: FakeScope) -> None:
    with Wall(0).enforce(128 * MIB, scope) as enforcement:
        scope.alive = False
        assert enforcement.problems() == ["scope pagetier-t0-1 is gone: something else removed it"]
    assert "clear" not in scope.calls


def test_a_changed_limit_is_a_problem(scope: FakeScope) -> None:
    with Wall(0).enforce(128 * MIB, scope) as enforcement:
        scope.limit = Limits(1, None, True)
        assert enforcement.problems() == [
            f"memory limit is 1, was {128 * MIB} when the wall went up",
            "swap limit is None, was 0 when the wall went up",
        ]


def test_oom_inside_the_wall_is_a_problem_and_older_events_are_not(scope: FakeScope) -> None:
    scope.counts = Events(oom=4, oom_kill=3, max=9)
    with Wall(0).enforce(128 * MIB, scope) as enforcement:
        scope.counts = Events(oom=4, oom_kill=3, max=99)
        assert enforcement.problems() == []
        scope.counts = Events(oom=6, oom_kill=4, max=99)
        assert [problem.split(":")[0] for problem in enforcement.problems()] == [
            "oom went from 4 to 6",
            "oom_kill went from 3 to 4",
        ]


def test_events_that_the_kernel_does_not_count_are_no_problem(scope: FakeScope) -> None:
    scope.counts = Events(oom=None, oom_kill=3, max=None)
    with Wall(0).enforce(128 * MIB, scope) as enforcement:
        assert enforcement.problems() == []


def test_a_scope_that_cannot_be_read_is_a_problem(
    scope: FakeScope, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> Events:
        raise CgroupError("no such device")

    with Wall(0).enforce(128 * MIB, scope) as enforcement:
        monkeypatch.setattr(scope, "events", fail)
        assert enforcement.problems() == [
            "scope pagetier-t0-1 cannot be read any more: no such device"
        ]


def test_refuses_a_wall_above_an_ancestor_s_limit(scope: FakeScope) -> None:
    scope.ancestor = 128 * MIB
    with Wall(0).enforce(128 * MIB, scope):
        pass
    with (
        pytest.raises(CapacityError, match=f"limited to {128 * MIB} bytes"),
        Wall(MIB).enforce(128 * MIB, scope),
    ):
        pass
    assert scope.calls == [f"set {128 * MIB}", "clear"]


@pytest.mark.parametrize(
    ("state", "held"),
    [
        (replace(STATE, anon_bytes=125 * MIB), 128),
        (replace(STATE, anon_bytes=100 * MIB, raw={"shmem": 25 * MIB}), 128),
        (replace(STATE, anon_bytes=100 * MIB, raw={"shmem": 1, "total_shmem": 25 * MIB}), 128),
    ],
)
def test_refuses_a_wall_that_what_is_held_already_fills(
    scope: FakeScope, state: MemoryState, held: int
) -> None:
    scope.state = state
    with (
        pytest.raises(CapacityError, match=f"holds {held * MIB} bytes that cannot be reclaimed"),
        Wall(0).enforce(128 * MIB, scope),
    ):
        pass
    assert scope.calls == []
    with Wall(4096).enforce(128 * MIB, scope):
        pass


def test_reclaimable_slab_does_not_fill_a_wall(scope: FakeScope) -> None:
    scope.state = replace(STATE, anon_bytes=125 * MIB, raw={"slab_reclaimable": 2 * MIB})
    with Wall(0).enforce(128 * MIB, scope):
        pass


def test_needs_a_capacity_and_a_scope(scope: FakeScope) -> None:
    for capacity, target in ((None, scope), (MIB, None)):
        with (
            pytest.raises(CapacityError, match="a wall needs a capacity and a scope"),
            Wall(0).enforce(capacity, target),
        ):
            pass


def test_none_enforces_nothing(scope: FakeScope) -> None:
    with Unlimited().enforce(5, scope) as enforcement:
        enforced = enforcement.enforced
        assert (enforced.mechanism, enforced.capacity_bytes) == ("none", 5)
        assert (enforced.limit_bytes, enforced.locked_bytes, enforced.facts) == (None, None, {})
        assert enforcement.problems() == []
    assert scope.calls == []
