# SPDX-License-Identifier: Apache-2.0
"""The untimed run before an engine's cells: what each prompt decodes to, and what it routes to.

One process loads the model with its routers listened to and decodes every prompt; its traces and
token ids are kept in ``routing/`` of the results.  Cells must decode the same ids, so that the
routing of each is known without slowing it down.
"""

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any

from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.analysis.plans import Plan, build_plan, load_plan, save_plan
from pagetier.analysis.traces import read_trace, write_trace
from pagetier.bench.driver import Driver, WorkerFailure
from pagetier.bench.engine.campaign import EngineOptions
from pagetier.bench.engine.capture import Request, RoutedModel, build_trace, write_tokens
from pagetier.bench.engine.llama import Engine, Loading, Sampling
from pagetier.bench.engine.prompt_tap import PromptTap
from pagetier.bench.engine.prompts import Prompt
from pagetier.bench.engine.worker import say, serve_job

__all__ = ["Reference", "load_references", "make_references", "sampling_of"]

MODULE = "pagetier.bench.engine.reference"
LOAD_TIMEOUT_S = 3600.0
TOKENS_NAME = "tokens.jsonl"


@dataclass(frozen=True, slots=True, eq=False)
class Reference:
    """A prompt's ids and the ids decoded after it; the reads of decoding, and those of the prompt,
    in one iteration."""

    prompt: list[int]
    tokens: list[int]
    plan: Plan
    prompt_plan: Plan


def sampling_of(options: EngineOptions, prompt: Prompt) -> Sampling:
    """How the tokens after a prompt are chosen."""
    return Sampling(options.temperature, options.seed + prompt.number)


def make_references(
    folder: Path, options: EngineOptions, prompts: Sequence[Prompt], model_digest: str
) -> None:
    """Fill `folder`; CapabilityError when the engine fails."""
    folder.mkdir(exist_ok=True)
    (folder / TOKENS_NAME).unlink(missing_ok=True)
    job = {**_asked(options, prompts), "identity": _identity(options, prompts, model_digest)}
    (folder / "job.json").write_text(json.dumps(job))
    try:
        with Driver(folder, None, MODULE, "capture") as worker:
            worker.wait_ready(LOAD_TIMEOUT_S)
            worker.ask({"do": "capture"}, "captured")
    except WorkerFailure as error:
        raise CapabilityError(str(error)) from error
    finally:
        for name in ("job.json", "worker.err"):
            (folder / name).unlink(missing_ok=True)


def _asked(options: EngineOptions, prompts: Sequence[Prompt]) -> dict[str, Any]:
    return {"options": options.model_dump(), "prompts": [asdict(prompt) for prompt in prompts]}


def _identity(options: EngineOptions, prompts: Sequence[Prompt], model_digest: str) -> str:
    """Of all that decides over tokens and routing."""
    text = json.dumps([_asked(options, prompts), model_digest], sort_keys=True)
    return sha256(text.encode()).hexdigest()


def load_references(
    folder: Path, options: EngineOptions, prompts: Sequence[Prompt], model_digest: str
) -> dict[int, Reference] | None:
    """What `make_references` left, by the number of the prompt.

    None where it did not finish, or was asked for something else.
    """
    path = folder / TOKENS_NAME
    if not path.exists():
        return None
    try:
        header, *lines = map(json.loads, path.read_text().splitlines())
        if header["identity"] != _identity(options, prompts, model_digest):
            return None
        found = {line["req"]: (line["prompt"], line["tokens"]) for line in lines}
        return {
            prompt.number: _reference(folder, prompt, *found[prompt.number]) for prompt in prompts
        }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"{path}: is not what a capture wrote ({error}); start a new results directory"
        ) from error


def _reference(folder: Path, prompt: Prompt, ids: list[int], tokens: list[int]) -> Reference:
    plan = build_plan(read_trace(_trace_path(folder, prompt)))
    return Reference(ids, tokens, plan, load_plan(_prompt_path(folder, prompt)))


def _trace_path(folder: Path, prompt: Prompt) -> Path:
    return folder / f"prompt-{prompt.number}.jsonl.gz"


def _prompt_path(folder: Path, prompt: Prompt) -> Path:
    return folder / f"prompt-{prompt.number}.prompt.npz"


def _run(folder: Path) -> None:
    job = json.loads((folder / "job.json").read_text())
    options = EngineOptions(**job["options"])
    prompts = [_prompt(**fields) for fields in job["prompts"]]
    loading = Loading(threads=options.threads, context_tokens=options.context)
    model = RoutedModel.read(Path(options.model))
    tap = PromptTap(model.layers, model.num_experts, model.top_k)
    with Engine(Path(options.model), loading, tap) as engine:
        say(event="ready")
        sys.stdin.readline()
        requests = [_captured(engine, tap, model, folder, options, prompt) for prompt in prompts]
        facts = asdict(engine.facts)
        header = {"model": options.model, "identity": job["identity"], **facts}
    # Last, for it says that all is there.
    write_tokens(folder / TOKENS_NAME, requests, header)
    say(event="captured")


def _prompt(number: int, domain: str, content: str | list[int]) -> Prompt:
    return Prompt(number, domain, content if isinstance(content, str) else tuple(content))


def _captured(
    engine: Engine,
    tap: PromptTap,
    model: RoutedModel,
    folder: Path,
    options: EngineOptions,
    prompt: Prompt,
) -> Request:
    """Decode a prompt, and write what routed it."""
    done = prompt.number * (options.tokens + 1)

    def after_token() -> None:
        nonlocal done
        done += 1
        say(event="progress", reads=done, bytes=0, iterations=done)

    content = prompt.content
    ids = engine.tokenize(content) if isinstance(content, str) else list(content)
    found = engine.generate(ids, options.tokens, sampling_of(options, prompt), after_token)
    request = Request(prompt.number, ids, found.tokens, tap.routes())
    if request.steps == 0:
        raise InputError(
            f"prompt {prompt.number} of {options.prompts}: the model ends its text at once; leave "
            "the prompt out"
        )
    trace = build_trace(model, [request], prompt.domain, engine.facts.engine)
    write_trace(trace, _trace_path(folder, prompt))
    save_plan(tap.prompt_plan(), _prompt_path(folder, prompt))
    return request


if __name__ == "__main__":
    sys.exit(serve_job(sys.argv[1:], _run))
