# SPDX-License-Identifier: Apache-2.0
"""Caches written to be read, not to be fast: lists, sets, and a sort for every decision.

Written from the policies' definitions, without a look at the C.  `resident` is what the cache
holds; `event` is told the experts of an event in ascending order of rank, `access` one expert.
Everything is counted in sizes, so that a cache of experts is one of experts of size 1.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Protocol

import pytest

NEVER = 10**12


@dataclass
class Setting:
    """What a policy may know: sizes, ranks, and for Belady the uses still to come."""

    capacity: int
    size: Callable[[int], int]
    rank: Callable[[int], int]
    # When an expert is used: (group, place in the group), ascending.
    uses: dict[int, list[tuple[int, int]]] = field(default_factory=dict)

    def next_use(self, expert: int, now: int) -> tuple[int, int]:
        return next((use for use in self.uses[expert] if use[0] > now), (NEVER, 0))


class Cache(Protocol):
    """One cold cache."""

    resident: set[int]

    def event(self, experts: Sequence[int], now: int, time: int, cycle: int) -> None: ...
    def access(self, expert: int, now: int, time: int, cycle: int) -> None: ...


class Keyed:
    """Keeps those with the greatest keys: under events of residents and members together, under
    accesses the newcomer is in and the least of the others go."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.resident: set[int] = set()
        self.count: dict[int, int] = {}
        self.last: dict[int, int] = {}
        self.last_time: dict[int, int] = {}
        self.last_cycle: dict[int, int] = {}

    def key(self, expert: int, now: int, time: int, cycle: int) -> tuple[object, ...]:
        raise NotImplementedError

    def note(self, expert: int, now: int, time: int, cycle: int) -> None:
        self.count[expert] = self.count.get(expert, 0) + 1
        self.last[expert] = now
        self.last_time[expert] = time
        self.last_cycle[expert] = cycle

    def shrink(self, room: int, now: int, time: int, cycle: int) -> None:
        def key(expert: int) -> tuple[object, ...]:
            return (*self.key(expert, now, time, cycle), self.setting.rank(expert))

        while sum(self.setting.size(expert) for expert in self.resident) > room:
            self.resident.remove(min(self.resident, key=key))

    def event(self, experts: Sequence[int], now: int, time: int, cycle: int) -> None:
        for expert in experts:
            self.note(expert, now, time, cycle)
            if self.setting.size(expert) <= self.setting.capacity:
                self.resident.add(expert)
        self.shrink(self.setting.capacity, now, time, cycle)

    def access(self, expert: int, now: int, time: int, cycle: int) -> None:
        size = self.setting.size(expert)
        if expert not in self.resident and size <= self.setting.capacity:
            self.shrink(self.setting.capacity - size, now - 1, time - 1, cycle)
            self.resident.add(expert)
        self.note(expert, now, time, cycle)


class Lru(Keyed):
    def key(self, expert: int, now: int, time: int, cycle: int) -> tuple[object, ...]:
        return (self.last[expert],)


class Lfu(Keyed):
    def key(self, expert: int, now: int, time: int, cycle: int) -> tuple[object, ...]:
        return (self.count[expert], self.last[expert])


class Lfru(Keyed):
    def key(self, expert: int, now: int, time: int, cycle: int) -> tuple[object, ...]:
        return (Fraction(self.count[expert], time - self.last_time[expert] + 1),)


class LeastStale(Keyed):
    def key(self, expert: int, now: int, time: int, cycle: int) -> tuple[object, ...]:
        return (self.last_cycle[expert] == cycle, self.last[expert])


class Belady:
    """Whatever is used sooner stays, the newcomer included."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.resident: set[int] = set()

    def shrink(self, among: set[int], room: int, now: int) -> None:
        while sum(self.setting.size(expert) for expert in self.resident) > room:
            last = max(among & self.resident, key=lambda e: self.setting.next_use(e, now))
            self.resident.remove(last)

    def fitting(self, experts: Sequence[int]) -> set[int]:
        return {e for e in experts if self.setting.size(e) <= self.setting.capacity}

    def event(self, experts: Sequence[int], now: int, time: int, cycle: int) -> None:
        self.resident |= self.fitting(experts)
        self.shrink(self.resident, self.setting.capacity, now)

    def access(self, expert: int, now: int, time: int, cycle: int) -> None:
        self.event([expert], now, time, cycle)


class BeladyForced(Belady):
    """The newcomers stay, as many as fit; whatever else is used sooner stays beside them."""

    def event(self, experts: Sequence[int], now: int, time: int, cycle: int) -> None:
        new = self.fitting(experts) - self.resident
        self.resident |= new
        if sum(self.setting.size(expert) for expert in new) <= self.setting.capacity:
            self.shrink(self.resident - new, self.setting.capacity, now)
        else:
            self.resident = new
            self.shrink(self.resident, self.setting.capacity, now)


class OneByOne:
    """Policies that know hits and newcomers: an event's hits first, then its newcomers in turn."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.resident: set[int] = set()

    def touch(self, expert: int) -> None:
        raise NotImplementedError

    def admit(self, expert: int) -> None:
        raise NotImplementedError

    def event(self, experts: Sequence[int], now: int, time: int, cycle: int) -> None:
        hits = [expert for expert in experts if expert in self.resident]
        for expert in hits:
            self.touch(expert)
        for expert in experts:
            if expert not in hits and self.setting.size(expert) <= self.setting.capacity:
                self.admit(expert)

    def access(self, expert: int, now: int, time: int, cycle: int) -> None:
        self.event([expert], now, time, cycle)

    def used(self, queue: Sequence[int]) -> int:
        return sum(self.setting.size(expert) for expert in queue)


class LfuInCache(OneByOne):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.order: list[int] = []  # least recently used first
        self.count: dict[int, int] = {}

    def touch(self, expert: int) -> None:
        self.order.remove(expert)
        self.order.append(expert)
        self.count[expert] += 1

    def admit(self, expert: int) -> None:
        while self.used(self.order) + self.setting.size(expert) > self.setting.capacity:
            victim = min(self.order, key=lambda e: (self.count[e], self.order.index(e)))
            self.order.remove(victim)
        self.order.append(expert)
        self.count[expert] = 1
        self.resident = set(self.order)


class Sieve(OneByOne):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.queue: list[int] = []  # oldest first
        self.visited: set[int] = set()
        self.hand: int | None = None

    def touch(self, expert: int) -> None:
        self.visited.add(expert)

    def admit(self, expert: int) -> None:
        while self.used(self.queue) + self.setting.size(expert) > self.setting.capacity:
            at = 0 if self.hand is None else self.queue.index(self.hand)
            while self.queue[at] in self.visited:
                self.visited.remove(self.queue[at])
                at = (at + 1) % len(self.queue)
            self.hand = self.queue[at + 1] if at + 1 < len(self.queue) else None
            del self.queue[at]
        self.queue.append(expert)
        self.resident = set(self.queue)


class S3Fifo(OneByOne):
    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.small: list[int] = []
        self.main: list[int] = []
        self.ghost: list[int] = []
        self.freq: dict[int, int] = {}
        self.has_evicted = False

    def touch(self, expert: int) -> None:
        self.freq[expert] = min(self.freq[expert] + 1, 3)

    def admit(self, expert: int) -> None:
        size, capacity = self.setting.size(expert), self.setting.capacity
        remembered = expert in self.ghost
        if remembered:
            self.ghost.remove(expert)
        while self.used(self.small + self.main) + size > capacity:
            self.evict()
        full = self.used(self.small) >= capacity // 10
        to_main = remembered or (full and not self.has_evicted)
        (self.main if to_main else self.small).append(expert)
        self.freq[expert] = 0
        self.resident = set(self.small + self.main)

    def evict(self) -> None:
        self.has_evicted = True
        capacity = self.setting.capacity
        if self.used(self.main) > capacity - capacity // 10 or not self.small:
            while self.freq[self.main[0]]:
                expert = self.main.pop(0)
                self.freq[expert] -= 1
                self.main.append(expert)
            self.main.pop(0)
            return
        while self.small:
            expert = self.small.pop(0)
            if self.freq[expert] < 2:
                self.remember(expert)
                return
            self.freq[expert] = 0
            self.main.append(expert)

    def remember(self, expert: int) -> None:
        room = self.setting.capacity * 9 // 10
        if self.setting.size(expert) > room:
            return
        while self.used(self.ghost) + self.setting.size(expert) > room:
            self.ghost.pop(0)
        self.ghost.append(expert)


class Arc(OneByOne):
    """Figure 4 of the paper; lists with the least recently used first."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting)
        self.t1: list[int] = []
        self.t2: list[int] = []
        self.b1: list[int] = []
        self.b2: list[int] = []
        self.p = 0.0

    def touch(self, expert: int) -> None:
        (self.t1 if expert in self.t1 else self.t2).remove(expert)
        self.t2.append(expert)

    def replace(self, expert: int) -> None:
        above = len(self.t1) > self.p or (expert in self.b2 and len(self.t1) == self.p)
        if self.t1 and (above or not self.t2):
            self.b1.append(self.t1.pop(0))
        else:
            self.b2.append(self.t2.pop(0))

    def admit(self, expert: int) -> None:
        c = self.setting.capacity
        full = len(self.t1) + len(self.t2) == c
        if expert in self.b1:
            self.p = min(float(c), self.p + max(len(self.b2) / len(self.b1), 1.0))
            self.replace(expert) if full else None
            self.b1.remove(expert)
            self.t2.append(expert)
        elif expert in self.b2:
            self.p = max(0.0, self.p - max(len(self.b1) / len(self.b2), 1.0))
            self.replace(expert) if full else None
            self.b2.remove(expert)
            self.t2.append(expert)
        else:
            self.admit_unknown(expert, c, full)
        self.resident = set(self.t1 + self.t2)

    def admit_unknown(self, expert: int, c: int, full: bool) -> None:
        if len(self.t1) + len(self.b1) == c:
            if len(self.t1) < c:
                self.b1.pop(0)
                self.replace(expert)
            else:
                self.t1.pop(0)
        elif full:
            if len(self.t1) + len(self.t2) + len(self.b1) + len(self.b2) == 2 * c:
                self.b2.pop(0)
            self.replace(expert)
        self.t1.append(expert)


CACHES: dict[str, Callable[[Setting], Cache]] = {
    "lru": Lru,
    "lfu": Lfu,
    "lfu-in-cache": LfuInCache,
    "lfru": Lfru,
    "least-stale": LeastStale,
    "belady": Belady,
    "belady-forced": BeladyForced,
    "arc": Arc,
    "s3-fifo": S3Fifo,
    "sieve": Sieve,
}


# An event, or one access: its experts, when it is, and its generation.
Group = tuple[Sequence[int], int, int]
Oracle = Callable[..., list[bool]]


def replay(
    policy: str,
    groups: Sequence[Group],
    capacity: int,
    *,
    events: bool,
    size: Callable[[int], int] = lambda expert: 1,
    rank: Callable[[int], int] = lambda expert: expert,
) -> list[bool]:
    """Hits of a cold cache, expert by expert; without `events` every group is one expert."""
    setting = Setting(capacity, size, rank)
    for now, (experts, _, _) in enumerate(groups):
        for place, expert in enumerate(experts):
            setting.uses.setdefault(expert, []).append((now, place))
    cache = CACHES[policy](setting)
    hits: list[bool] = []
    for now, (experts, time, cycle) in enumerate(groups):
        hits += [expert in cache.resident for expert in experts]
        if events:
            cache.event(experts, now, time, cycle)
        else:
            cache.access(experts[0], now, time, cycle)
    return hits


@pytest.fixture(scope="session")
def oracle() -> Oracle:
    return replay
