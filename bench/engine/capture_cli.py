# SPDX-License-Identifier: Apache-2.0
"""`pagetier trace capture`: the routing of your own model, from an engine that decodes with it.

Each domain is written when its last prompt is decoded, so that Ctrl-C keeps what is finished.
"""

import os
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any, Self

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from pagetier.analysis.errors import InputError
from pagetier.analysis.traces import trace_info, write_trace
from pagetier.bench.engine.capture import Capturing, Request, build_trace, write_tokens
from pagetier.bench.engine.llama import Loading
from pagetier.bench.engine.prompts import Prompt, by_domain, read_prompts
from pagetier.bench.engine.sampling import Sampling
from pagetier.bench.output import Json, print_verdict

__all__ = ["mount"]

ENGINES = ("llama.cpp",)

stderr = Console(stderr=True)


def mount(trace_app: typer.Typer) -> None:
    """Add the command to `pagetier trace`."""
    trace_app.command(
        "capture",
        epilog="Example: pagetier trace capture --model model.gguf --prompts p.jsonl -n 64 -o mine",
    )(_trace_capture)


def _trace_capture(
    model: Annotated[Path, typer.Option(help="A GGUF file, or the first of its shards.")],
    prompts: Annotated[
        Path,
        typer.Option(
            help='JSON Lines {"domain", "prompt"} or {"domain", "tokens"}, or text, one a line.'
        ),
    ],
    count: Annotated[int, typer.Option("-n", min=1, help="Most tokens to decode of each prompt.")],
    output: Annotated[
        Path, typer.Option("-o", "--output", help="Folder of the traces, one for each domain.")
    ],
    engine: Annotated[str, typer.Option(help=", ".join(ENGINES) + ".")] = ENGINES[0],
    threads: Annotated[
        int | None, typer.Option(min=1, help="Threads that compute.  Default: the CPUs.")
    ] = None,
    context: Annotated[
        int, typer.Option(min=8, help="Most tokens of a request: its prompt and -n.")
    ] = 4096,
    temperature: Annotated[
        float | None, typer.Option(help="Draw tokens at it.  Default: the likeliest, greedily.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Prompt i draws with seed + i.")] = 0,
    as_json: Json = False,
) -> None:
    """Capture the routing of each decoded token, one trace for each domain of the prompts."""
    if engine not in ENGINES:
        raise InputError(
            f"--engine {engine}: only {', '.join(ENGINES)} is captured here; for vLLM and SGLang "
            "see `pagetier trace import`"
        )
    if temperature is not None and not 0 < temperature < float("inf"):
        raise InputError(
            f"--temperature {temperature}: expected more than 0; leave it out for greedy"
        )
    asked_for = read_prompts(prompts)
    domains = by_domain(asked_for)
    loading = Loading(threads=threads or len(os.sched_getaffinity(0)), context_tokens=context)
    sampling = Sampling(temperature, seed)
    documents = []
    with Capturing(model, loading) as capturing, _Bar(len(asked_for), count) as bar:
        _make_folder(output)
        for domain, asked in domains.items():
            requests = _requests(capturing, asked, count, sampling, bar)
            if requests:
                documents.append(_write(output, domain, requests, capturing, sampling))
                bar.say(f"{documents[-1]['trace']} written")
    if not documents:
        raise InputError(f"{prompts}: the model ends its text after every prompt; write others")
    document = {"model": capturing.routed.name, "engine": engine, "traces": documents}
    print_verdict(document, "\n".join(map(_sentence, documents)), as_json)


def _sentence(document: dict[str, Any]) -> str:
    return (
        f"{document['trace']}: {document['requests']} requests, {document['iterations']} tokens, "
        f"{document['reads']} reads"
    )


def _requests(
    capturing: Capturing, prompts: Sequence[Prompt], count: int, sampling: Sampling, bar: "_Bar"
) -> list[Request]:
    """The requests of a domain that have a step; of the others it is said that they have none."""
    found = []
    for prompt in prompts:
        bar.start(prompt)
        drawn = replace(sampling, seed=sampling.seed + prompt.number)
        request = capturing.request(prompt, count, drawn, bar.advance)
        if request.steps:
            found.append(request)
        else:
            bar.say(f"prompt {prompt.number} left out: the model ends its text at once")
    return found


def _write(
    folder: Path,
    domain: str,
    requests: Sequence[Request],
    capturing: Capturing,
    sampling: Sampling,
) -> dict[str, Any]:
    """A domain's two files, and what is in them."""
    how = "greedy" if sampling.temperature is None else f"temperature {sampling.temperature:g}"
    source = f"{capturing.facts.engine}, {how}"
    trace = build_trace(capturing.routed, requests, domain, source)
    trace_path, tokens_path = folder / f"{domain}.jsonl.gz", folder / f"{domain}.tokens.jsonl"
    header = {"model": trace.header.model, "trace": trace_path.name, **asdict(sampling)}
    write_tokens(tokens_path, requests, {**header, **asdict(capturing.facts)})
    write_trace(trace, trace_path)
    paths = {"domain": domain, "trace": str(trace_path), "tokens": str(tokens_path)}
    return {**paths, **trace_info(trace)}


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(exist_ok=True)
    except OSError as error:
        raise InputError(
            f"{folder}: cannot be a folder of traces ({error.strerror}); name another place"
        ) from error


class _Bar:
    """Prompts and the tokens of the current one: a bar on a terminal, a line per prompt else."""

    def __init__(self, prompts: int, count: int) -> None:
        self._prompts, self._count = prompts, count
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            console=stderr,
            disable=not stderr.is_terminal,
        )
        self._task = self._bars.add_task("loading", total=prompts * count)

    def __enter__(self) -> Self:
        self._bars.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._bars.stop()

    def say(self, message: str) -> None:
        stderr.print(message, highlight=False, markup=False, soft_wrap=True)

    def start(self, prompt: Prompt) -> None:
        name = f"prompt {prompt.number + 1} of {self._prompts} ({prompt.domain})"
        self._bars.update(self._task, description=name, completed=prompt.number * self._count)
        if not stderr.is_terminal:
            self.say(name)

    def advance(self) -> None:
        self._bars.advance(self._task)
