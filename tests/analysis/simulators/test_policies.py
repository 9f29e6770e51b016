# SPDX-License-Identifier: Apache-2.0
"""Every policy against a cache that is written to be read, on small random traces, under every
contract; and what must hold between policies."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from pagetier.analysis.simulators import POLICIES, Budget, Contract, Events, prepare, simulate
from pagetier.analysis.simulators.contract import Scope, Start, Warm

Oracle = Callable[..., list[bool]]

NATIVE = POLICIES[2:]
ONE_SIZE = tuple(policy for policy in NATIVE if policy != "arc")
KINDS = (
    Contract("event"),
    Contract("access", "recorded"),
    Contract("access", "ascending"),
    Contract("access", "random"),
)
SCOPES: tuple[Scope, ...] = ("per-layer", "global")
WARMS: tuple[Warm, ...] = ("nothing", "pass", 0.6, 0.25)
# Small ones often: an event that does not fit is where definitions part.
BUDGETS = st.one_of(st.integers(1, 3), st.integers(0, 12))
STARTS: tuple[Start, ...] = ("once", "per-request")


@dataclass(frozen=True)
class Small:
    """A trace as lists: requests of iterations of events, an event a layer and its experts."""

    layers: int
    experts: int
    iterations: tuple[tuple[int, tuple[tuple[int, tuple[int, ...]], ...]], ...]

    def events(self) -> Events:
        flat = [event for _, events in self.iterations for event in events]
        ids = [layer * self.experts + expert for layer, experts in flat for expert in experts]
        return Events(
            experts=np.array(ids, dtype=np.uint32),
            event_start=np.cumsum([0, *(len(e) for _, e in flat)]).astype(np.uint64),
            iteration_start=np.cumsum([0, *(len(e) for _, e in self.iterations)]).astype(np.uint64),
            request=np.array([request for request, _ in self.iterations], dtype=np.int64),
            num_layers=self.layers,
            num_experts=self.experts,
        )


@st.composite
def small_traces(draw: st.DrawFn) -> Small:
    layers, experts = draw(st.integers(1, 3)), draw(st.integers(1, 7))
    width = st.lists(st.integers(0, experts - 1), max_size=experts).map(tuple)
    event = st.tuples(st.integers(0, layers - 1), width)
    events = st.lists(event, max_size=6).map(tuple)
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=3))
    requests = [request for request, length in enumerate(lengths) for _ in range(length)]
    return Small(layers, experts, tuple((request, draw(events)) for request in requests))


@st.composite
def contracts(draw: st.DrawFn) -> Contract:
    return replace(
        draw(st.sampled_from(KINDS)),
        scope=draw(st.sampled_from(SCOPES)),
        warm=draw(st.sampled_from(WARMS)),
        start=draw(st.sampled_from(STARTS)),
        seed=draw(st.integers(0, 3)),
    )


@dataclass(frozen=True)
class Access:
    """One expert's use: when, in which cache, and whether it is scored, as what."""

    expert: int
    event: int
    iteration: int
    run: int


def accesses(trace: Small, contract: Contract) -> Iterator[Access]:
    """In replay order, from the definitions of the contract."""
    drawn = np.random.default_rng(contract.seed)
    rank = ranks(trace, contract)
    orders = []
    for _, events in trace.iterations:
        for layer, experts in events:
            ids = [layer * trace.experts + expert for expert in experts]
            if contract.replay == "event":
                ids = sorted(set(ids), key=rank)
            elif contract.order == "ascending":
                ids = sorted(ids)
            elif contract.order == "random":
                places = drawn.random(len(ids)).tolist()
                ids = [ids[at] for at in sorted(range(len(ids)), key=lambda at: places[at])]
            orders.append(ids)
    event = 0
    for a_pass in range(2 if contract.warm == "pass" else 1):
        place = iter(orders)
        for iteration, (request, events) in enumerate(trace.iterations):
            for _ in events:
                for expert in next(place):
                    number = a_pass * len(trace.iterations) + iteration
                    yield Access(expert, event, number, request)
                event += 1


def ranks(trace: Small, contract: Contract) -> Callable[[int], int]:
    ranking = np.random.default_rng(contract.seed).permutation(trace.layers * trace.experts)
    return lambda expert: int(ranking[expert])


def scored_iterations(trace: Small, contract: Contract) -> list[int]:
    count = len(trace.iterations)
    if contract.warm == "pass":
        return list(range(count, 2 * count))
    if contract.warm == "nothing":
        return list(range(count))
    runs: dict[int, list[int]] = defaultdict(list)
    for number, (request, _) in enumerate(trace.iterations):
        runs[request if contract.start == "per-request" else 0].append(number)
    share = Fraction(str(contract.warm))
    return sorted(number for run in runs.values() for number in run[int(share * len(run)) :])


def expected(
    oracle: Oracle,
    trace: Small,
    contract: Contract,
    policy: str,
    capacity: Callable[[int], int],
    size: Callable[[int], int] = lambda expert: 1,
) -> list[int]:
    """Misses of each scored iteration; `capacity` is asked for a layer, -1 = all layers."""
    scored = {number: at for at, number in enumerate(scored_iterations(trace, contract))}
    caches: dict[tuple[int, int], list[tuple[int, Access]]] = defaultdict(list)
    for time, access in enumerate(accesses(trace, contract)):
        layer = access.expert // trace.experts if contract.scope == "per-layer" else -1
        run = access.run if contract.start == "per-request" else 0
        caches[run, layer].append((time, access))
    misses = [0] * len(scored)
    for (_, layer), uses in caches.items():
        groups: dict[int, list[Access]] = defaultdict(list)
        for time, access in uses:
            groups[access.event if contract.replay == "event" else time].append(access)
        found = oracle(
            policy,
            [([a.expert for a in use], time, use[0].iteration) for time, use in groups.items()],
            capacity(layer),
            events=contract.replay == "event",
            size=size,
            rank=ranks(trace, contract),
        )
        for (_, access), hit in zip(uses, found, strict=True):
            if not hit and access.iteration in scored:
                misses[scored[access.iteration]] += 1
    return misses


@pytest.mark.parametrize("policy", NATIVE)
@settings(max_examples=200, deadline=None)
@given(trace=small_traces(), contract=contracts(), experts=BUDGETS)
def test_equals_the_oracle(
    oracle: Oracle, policy: str, trace: Small, contract: Contract, experts: int
) -> None:
    outcome = simulate(prepare(trace.events(), contract), policy, Budget("experts", experts))
    wanted = expected(oracle, trace, contract, policy, lambda layer: experts)
    assert outcome.misses_by_iteration.tolist() == wanted
    assert outcome.misses == sum(wanted)


@pytest.mark.parametrize("policy", NATIVE)
@settings(max_examples=40, deadline=None)
@given(trace=small_traces(), contract=contracts(), percent=st.integers(0, 100))
def test_a_fraction_gives_the_lowest_layers_what_is_left(
    oracle: Oracle, policy: str, trace: Small, contract: Contract, percent: int
) -> None:
    total = int(Fraction(percent, 100) * trace.layers * trace.experts + Fraction(1, 2))

    def quota(layer: int) -> int:
        return total if layer < 0 else total // trace.layers + (layer < total % trace.layers)

    budget = Budget("fraction", Fraction(percent, 100))
    outcome = simulate(prepare(trace.events(), contract), policy, budget)
    wanted = expected(oracle, trace, contract, policy, quota)
    assert outcome.misses_by_iteration.tolist() == wanted
    assert outcome.capacity.experts == total


@pytest.mark.parametrize("policy", ONE_SIZE)
@settings(max_examples=80, deadline=None)
@given(
    trace=small_traces(),
    contract=contracts(),
    size_of=st.lists(st.integers(1, 9), min_size=21, max_size=21),
    total=st.integers(0, 60),
)
def test_bytes_with_sizes_that_differ(
    oracle: Oracle, policy: str, trace: Small, contract: Contract, size_of: list[int], total: int
) -> None:
    sizes = np.array(size_of[: trace.layers * trace.experts], dtype=np.int64)
    by_layer = sizes.reshape(trace.layers, -1)
    # Layers of one size each get quotas of whole experts: another test's.
    assume(contract.scope == "global" or np.any(by_layer.min(axis=1) != by_layer.max(axis=1)))

    def quota(layer: int) -> int:
        return total if layer < 0 else total // trace.layers + (layer < total % trace.layers)

    prepared = prepare(trace.events(), contract)
    outcome = simulate(prepared, policy, Budget("bytes", total), sizes)
    wanted = expected(oracle, trace, contract, policy, quota, lambda expert: size_of[expert])
    assert outcome.misses_by_iteration.tolist() == wanted
    assert outcome.capacity.bytes == total


@pytest.mark.parametrize(("policy", "hits"), [("belady", 1), ("belady-forced", 0), ("lru", 0)])
def test_newcomers_that_do_not_fit_displace_all_but_themselves(policy: str, hits: int) -> None:
    # One place: 0 is used sooner than 1 and 2, which are forced in together.
    events = tuple((0, experts) for experts in ((0,), (1, 2), (0,), (1,)))
    trace = Small(1, 3, ((0, events),))
    outcome = simulate(prepare(trace.events(), Contract()), policy, Budget("experts", 1))
    assert outcome.hits == hits


# ---- Laws ---------------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(trace=small_traces(), contract=contracts(), experts=st.integers(0, 12))
def test_belady_is_never_beaten(trace: Small, contract: Contract, experts: int) -> None:
    # The optimum is that of a whole replay, not of a scored part of it.
    prepared = prepare(trace.events(), replace(contract, warm="nothing", start="once"))
    outcomes = {
        policy: simulate(prepared, policy, Budget("experts", experts)) for policy in POLICIES
    }
    # A static set is loaded before the first access: it may save as many misses.
    loads = {policy: len(outcome.initial_load) for policy, outcome in outcomes.items()}
    misses = {policy: outcome.misses + loads[policy] for policy, outcome in outcomes.items()}
    assert misses["belady"] == min(misses.values())


@settings(max_examples=200, deadline=None)
@given(trace=small_traces(), contract=contracts(), experts=st.integers(0, 12))
def test_least_stale_is_lru_without_prefetch(
    trace: Small, contract: Contract, experts: int
) -> None:
    prepared, budget = prepare(trace.events(), contract), Budget("experts", experts)
    least_stale, lru = (simulate(prepared, name, budget) for name in ("least-stale", "lru"))
    assert np.array_equal(least_stale.hit, lru.hit)


@settings(max_examples=200, deadline=None)
@given(trace=small_traces(), contract=contracts(), experts=st.integers(0, 12))
@pytest.mark.parametrize("policy", ["lru", "belady"])
def test_a_larger_cache_holds_what_a_smaller_one_does(
    policy: str, trace: Small, contract: Contract, experts: int
) -> None:
    prepared = prepare(trace.events(), contract)
    small, large = (
        simulate(prepared, policy, Budget("experts", size)).hit for size in (experts, experts + 1)
    )
    assert np.all(small <= large)


@settings(deadline=None)
@given(trace=small_traces(), contract=contracts())
@pytest.mark.parametrize("policy", NATIVE)
def test_a_cache_of_everything_misses_first_uses_only(
    policy: str, trace: Small, contract: Contract
) -> None:
    contract = replace(contract, warm="nothing", start="once")
    prepared = prepare(trace.events(), contract)
    misses = simulate(prepared, policy, Budget("experts", 2**62)).misses
    assert misses == len(np.unique(prepared.stream.objects))


@settings(deadline=None)
@given(trace=small_traces(), contract=contracts())
@pytest.mark.parametrize("policy", POLICIES)
def test_a_cache_of_nothing_never_hits(policy: str, trace: Small, contract: Contract) -> None:
    outcome = simulate(prepare(trace.events(), contract), policy, Budget("experts", 0))
    assert outcome.hits == 0
