# SPDX-License-Identifier: Apache-2.0
"""Time and memory of synthetic traces, their facts and their union, on one core.

Each domain of kimi-k3 is drawn in full; medians with extremes over its rounds.  Peak memory is that
of the whole process, the interpreter and its libraries included.  Exit status 1 when a bar is
missed.
"""

import argparse
import json
import os
import resource
import statistics
import sys
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from pagetier.analysis.synth import draw_domain, load_spec
from pagetier.analysis.traces.facts import trace_facts
from pagetier.analysis.traces.merge import lockstep

DOMAIN_BAR_S = 30.0
PEAK_BAR_BYTES = 500_000_000


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    rounds = parser.parse_args().rounds
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    spec = load_spec("kimi-k3")
    assert spec.parameters is not None
    parameters = spec.parameters
    traces, seconds = {}, {}
    for domain in spec.domains:
        draw = partial(draw_domain, spec, parameters, domain, 0)
        traces[domain], seconds[domain] = _timed(draw, rounds)
    _, seconds["facts of prose"] = _timed(lambda: trace_facts(traces["prose"]), rounds)
    _, seconds["union of four"] = _timed(lambda: lockstep(list(traces.values())), rounds)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    missed = [name for name in spec.domains if statistics.median(seconds[name]) > DOMAIN_BAR_S]
    if peak > PEAK_BAR_BYTES:
        missed.append("peak memory")
    document = {
        "reads": {name: trace.num_reads for name, trace in traces.items()},
        "seconds": {name: _spread(values) for name, values in seconds.items()},
        "peak_bytes": peak,
        "missed": missed,
    }
    print(json.dumps(document, indent=2))
    return 1 if missed else 0


def _timed(work: Callable[[], Any], rounds: int) -> tuple[Any, list[float]]:
    seconds = []
    for _ in range(rounds):
        start = time.perf_counter()
        result = work()
        seconds.append(time.perf_counter() - start)
    return result, seconds


def _spread(values: list[float]) -> dict[str, float]:
    median = statistics.median(values)
    return {"median": round(median, 3), "min": round(min(values), 3), "max": round(max(values), 3)}


if __name__ == "__main__":
    sys.exit(main())
