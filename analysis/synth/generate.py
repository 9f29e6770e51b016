# SPDX-License-Identifier: Apache-2.0
"""Makes a `moe-route-trace` of one domain of a synthetic model."""

import numpy as np
import numpy.typing as npt

from pagetier.analysis.errors import InputError
from pagetier.analysis.synth.parameters import Parameters
from pagetier.analysis.synth.router import Stream, select
from pagetier.analysis.synth.schedule import Pass, Schedule, passes, plan_schedule
from pagetier.analysis.synth.spec import Domain, ModelSpec
from pagetier.analysis.traces import Trace, TraceHeader
from pagetier.analysis.traces.columns import starts_of

__all__ = ["draw_accepted", "draw_domain"]

# A trace is made in memory: about 12 bytes a read.
MAX_READS = 1 << 27


def draw_domain(
    spec: ModelSpec,
    parameters: Parameters,
    domain: str,
    seed: int,
    *,
    iterations: int | None = None,
    depths: npt.NDArray[np.float64] | None = None,
    gain: float | None = None,
) -> Trace:
    """One request of `domain`; the same arguments give the same trace.

    `depths` takes the place of the model's layers, `gain` of the domain's, and `iterations` of its
    number; accepted and failed drafts keep their share.
    """
    schedule = _schedule(spec.domains[domain], iterations)
    return _draw(spec, parameters, domain, seed, schedule, depths, gain)


def draw_accepted(
    spec: ModelSpec,
    parameters: Parameters,
    domain: str,
    seed: int,
    *,
    iterations: int | None = None,
    depths: npt.NDArray[np.float64] | None = None,
    gain: float | None = None,
) -> Trace | None:
    """The accepted tokens of what `draw_domain` makes of the same arguments, one an iteration.

    None where that is nothing else already.
    """
    schedule = _schedule(spec.domains[domain], iterations)
    alone = plan_schedule(schedule.tokens, 0, 0)
    if alone == schedule:
        return None
    return _draw(spec, parameters, domain, seed, alone, depths, gain)


def _draw(
    spec: ModelSpec,
    parameters: Parameters,
    domain: str,
    seed: int,
    schedule: Schedule,
    depths: npt.NDArray[np.float64] | None,
    gain: float | None,
) -> Trace:
    depths = spec.depths if depths is None else depths
    iterations = len(schedule.kinds)
    if iterations * len(depths) * spec.top_k > MAX_READS:
        raise InputError(f"{iterations} iterations are more than {MAX_READS} reads: ask for fewer")
    stream = Stream(
        seed=seed,
        domain=list(spec.domains).index(domain),
        group=spec.group_number(domain),
        gain=spec.domains[domain].gain if gain is None else gain,
        tokens=schedule.tokens,
    )
    selections = select(parameters, stream, depths, spec.experts, spec.top_k, schedule.draft_after)
    header = TraceHeader(
        model=spec.model,
        num_layers=len(depths),
        num_experts=spec.experts,
        top_k=spec.top_k,
        source=f"synthetic, seed {seed}; {spec.source or 'targets of a file'}",
        phase="decode",
        domain=domain,
    )
    return _assemble(header, passes(schedule, selections))


def _schedule(entry: Domain, iterations: int | None) -> Schedule:
    iterations = entry.iterations if iterations is None else iterations
    scale = iterations / entry.iterations
    accepts = round(entry.accepts * scale)
    return plan_schedule(iterations, accepts, round(entry.fallbacks * scale))


def _assemble(header: TraceHeader, issued: list[Pass]) -> Trace:
    layers = header.num_layers
    records = len(issued) * layers
    width = np.concatenate([np.count_nonzero(one.experts >= 0, axis=1) for one in issued])
    return Trace(
        header=header,
        requests=(f"{header.domain}:0",),
        request=np.zeros(records, dtype=np.int32),
        step=np.repeat(np.array([one.step for one in issued], dtype=np.int32), layers),
        layer=np.tile(np.arange(layers, dtype=np.int32), len(issued)),
        record_start=starts_of(width),
        experts=np.concatenate([one.experts[one.experts >= 0] for one in issued]).astype(np.uint32),
        weights=None,
        sha256=None,
    )
