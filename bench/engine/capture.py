# SPDX-License-Identifier: Apache-2.0
"""Traces of a model's own routing: requests decoded by an engine, its routers listened to.

A trace keeps what routed: ids and weights.  The token ids of prompt and answer go into a file of
their own beside it (JSON Lines): traces are passed on to others, prompts often may not be, and
whatever reads, merges or converts traces would lose fields that the format does not know.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from pagetier.analysis.errors import InputError
from pagetier.analysis.files import replace_file
from pagetier.analysis.traces import Trace, TraceHeader
from pagetier.analysis.traces.columns import Float64, starts_of
from pagetier.bench.engine.llama import Engine, Loading, ModelFacts
from pagetier.bench.engine.prompts import Prompt
from pagetier.bench.engine.sampling import Sampling
from pagetier.bench.engine.tap import RouterTap, Routes
from pagetier.tiers.models.geometry import read_geometry
from pagetier.tiers.models.gguf import read_gguf

__all__ = ["Capturing", "Request", "RoutedModel", "build_trace", "write_tokens"]

TOKENS_FORMAT, TOKENS_VERSION = "moe-route-tokens", 1


@dataclass(frozen=True, slots=True)
class RoutedModel:
    """The routed geometry of a GGUF; `layers` are the model's numbers of the layers of a trace."""

    name: str
    layers: tuple[int, ...]
    num_experts: int
    top_k: int

    @classmethod
    def read(cls, path: Path) -> "RoutedModel":
        """From the headers alone; a ModelError for a file that has no experts."""
        model = read_gguf(path)
        geometry = read_geometry(model)
        if model.top_k is None:
            raise InputError(
                f"{model.source}: has no number of experts that a token uses in every layer "
                "(expert_used_count); convert the model again, unless its layers use different "
                "numbers: those cannot be captured"
            )
        name = model.name or path.stem
        return cls(name, geometry.layers, geometry.num_experts, model.top_k)


@dataclass(frozen=True, slots=True, eq=False)
class Request:
    """A served prompt: its ids, one more token than there are steps, and what each step chose."""

    number: int
    prompt: list[int]
    tokens: list[int]
    routes: Routes

    @property
    def steps(self) -> int:
        """Decoded tokens."""
        return len(self.routes.experts)


class Capturing:
    """A model, loaded within a `with` block, and a tap on its routers."""

    def __init__(self, model: Path, loading: Loading) -> None:
        self.routed = RoutedModel.read(model)
        self._tap = RouterTap(self.routed.layers, self.routed.top_k)
        self._engine = Engine(model, loading, self._tap)

    def __enter__(self) -> Self:
        self._engine.__enter__()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._engine.close()

    @property
    def facts(self) -> ModelFacts:
        """What the engine says of the model and of itself."""
        return self._engine.facts

    def request(
        self,
        prompt: Prompt,
        count: int,
        sampling: Sampling,
        after_token: Callable[[], None] | None = None,
    ) -> Request:
        """Decode at most `count` tokens after `prompt`."""
        content = prompt.content
        ids = self._engine.tokenize(content) if isinstance(content, str) else list(content)
        generation = self._engine.generate(ids, count, sampling, after_token)
        return Request(prompt.number, ids, generation.tokens, self._tap.routes())


def build_trace(model: RoutedModel, requests: Sequence[Request], domain: str, source: str) -> Trace:
    """The trace of requests of a domain, one after the other; each has a step at least."""
    layers = len(model.layers)
    steps = np.array([request.steps for request in requests])
    records = int(steps.sum()) * layers
    experts = np.concatenate([request.routes.experts.reshape(-1) for request in requests])
    header = TraceHeader(
        model=model.name,
        num_layers=layers,
        num_experts=model.num_experts,
        top_k=model.top_k,
        source=source,
        phase="decode",
        domain=domain,
    )
    step = np.concatenate([np.arange(count) for count in steps])
    return Trace(
        header=header,
        requests=tuple(request.number for request in requests),
        request=np.repeat(np.arange(len(requests)), steps * layers).astype(np.int32),
        step=np.repeat(step, layers).astype(np.int32),
        layer=np.tile(np.arange(layers), records // layers).astype(np.int32),
        record_start=starts_of(np.full(records, model.top_k)),
        experts=experts.astype(np.uint32),
        weights=_weights(requests),
        sha256=None,
    )


def _weights(requests: Sequence[Request]) -> Float64 | None:
    found = [request.routes.weights for request in requests]
    if any(weights is None for weights in found):
        return None
    joined = np.concatenate([weights.reshape(-1) for weights in found if weights is not None])
    # By way of the shortest decimals that name a float32: half the size of a trace, and no loss.
    return joined.astype(np.str_).astype(np.float64)


def write_tokens(path: Path, requests: Sequence[Request], header: dict[str, object]) -> None:
    """The ids of prompts and answers, one request a line after a line of `header`."""
    lines: list[dict[str, object]] = [
        {"format": TOKENS_FORMAT, "version": TOKENS_VERSION, **header}
    ]
    lines += [{"req": one.number, "prompt": one.prompt, "tokens": one.tokens} for one in requests]
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    replace_file(path, text.encode())
