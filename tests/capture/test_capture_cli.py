# SPDX-License-Identifier: Apache-2.0
"""`pagetier trace capture`: a trace and its tokens for each domain, one sentence for failures."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pagetier.analysis.plans import build_plan
from pagetier.analysis.traces import Trace, read_trace
from pagetier.analysis.traces.facts import domain_jaccard, trace_facts
from pagetier.tiers.models.map import map_model
from tests.capture.conftest import Pagetier
from tests.capture.models import SMALL, domain_tokens

pytestmark = pytest.mark.capture

STEPS = 40


def write_prompts(path: Path, each: int = 3) -> Path:
    """Prompts of two domains, taking turns."""
    lines = [
        {"domain": name, "tokens": domain_tokens(SMALL, domain, 6, seed)}
        for seed in range(each)
        for domain, name in enumerate(("code", "prose"))
    ]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def read_tokens(path: Path) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    header, *requests = map(json.loads, path.read_text().splitlines())
    return header, requests


@pytest.fixture(scope="module")
def captured(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("captured")
    prompts = write_prompts(folder / "p.jsonl")
    capture(folder, small, prompts)
    return folder


def capture(folder: Path, model: Path, prompts: Path, *more: str) -> "dict[str, Any]":
    options = ["--model", str(model), "--prompts", str(prompts), "-n", str(STEPS)]
    drawn = ["--temperature", "1", "--seed", "5", "--threads", "1", "-o", "mine", "--json"]
    words = [sys.executable, "-m", "pagetier.bench.cli", "trace", "capture", *options, *drawn]
    done = subprocess.run([*words, *more], cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def traces_of(folder: Path) -> tuple[Trace, Trace]:
    return read_trace(folder / "mine/code.jsonl.gz"), read_trace(folder / "mine/prose.jsonl.gz")


def test_a_trace_and_its_tokens_for_each_domain(captured: Path) -> None:
    files = sorted(path.name for path in (captured / "mine").iterdir())
    names = ["code.jsonl.gz", "code.tokens.jsonl", "prose.jsonl.gz", "prose.tokens.jsonl"]
    assert files == names
    for domain, trace in zip(("code", "prose"), traces_of(captured), strict=True):
        header = trace.header
        assert (header.model, header.domain, header.phase) == ("small-moe", domain, "decode")
        assert (header.num_layers, header.num_experts, header.top_k) == (6, 16, 4)
        assert header.source is not None and header.source.endswith(", temperature 1")
        assert trace.num_records == 3 * STEPS * 6 and trace.weights is not None
        assert trace.requests == ((0, 2, 4) if domain == "code" else (1, 3, 5))
        described, requests = read_tokens(captured / f"mine/{domain}.tokens.jsonl")
        assert (described["trace"], described["seed"]) == (f"{domain}.jsonl.gz", 5)
        assert [one["req"] for one in requests] == list(trace.requests)
        assert all(len(one["tokens"]) == STEPS + 1 for one in requests)
    assert requests[0]["prompt"] == domain_tokens(SMALL, 1, 6, 0)


def test_routing_moves_and_differs_between_domains(captured: Path) -> None:
    code, prose = traces_of(captured)
    for trace in (code, prose):
        reuse = trace_facts(trace, reuse=[1, 8])["reuse"]
        assert 0.3 < reuse["1"] < 0.7 < reuse["8"]
    pair = domain_jaccard({"code": code, "prose": prose}, top=4)["pairs"][0]
    assert pair["mean"] < 0.7


def test_weights_are_those_of_float32_and_sum_to_one(captured: Path) -> None:
    trace, _ = traces_of(captured)
    assert trace.weights is not None
    weights = trace.weights.reshape(-1, 4)
    np.testing.assert_allclose(weights.sum(axis=1), 1, atol=1e-6)
    assert (np.diff(weights, axis=1) <= 0).all(), "the likeliest expert stands first"
    narrow = weights.astype(np.float32)
    np.testing.assert_array_equal(narrow.astype(np.str_).astype(np.float64), weights)


def test_the_same_capture_gives_the_same_bytes(captured: Path, small: Path, tmp_path: Path) -> None:
    document = capture(tmp_path, small, captured / "p.jsonl", "--context", "64")
    for name in ("code.jsonl.gz", "prose.tokens.jsonl"):
        first, second = (folder / "mine" / name for folder in (captured, tmp_path))
        assert first.read_bytes() == second.read_bytes()
    counts = {key: document["traces"][1][key] for key in ("domain", "trace", "iterations")}
    assert counts == {"domain": "prose", "trace": "mine/prose.jsonl.gz", "iterations": 3 * STEPS}
    assert (document["model"], document["engine"]) == ("small-moe", "llama.cpp")


def test_a_prompt_draws_with_a_seed_of_its_own(small: Path, tmp_path: Path, captured: Path) -> None:
    line = json.dumps({"domain": "one", "tokens": domain_tokens(SMALL, 0, 6)})
    (tmp_path / "p.jsonl").write_text(f"{line}\n\n{line}\n")
    capture(tmp_path, small, tmp_path / "p.jsonl")
    _, (first, second) = read_tokens(tmp_path / "mine/one.tokens.jsonl")
    assert first["prompt"] == second["prompt"] and first["tokens"] != second["tokens"]
    _, requests = read_tokens(captured / "mine/code.tokens.jsonl")
    assert requests[0]["tokens"] == first["tokens"]


def test_the_trace_fits_the_pool_of_the_model(captured: Path, small: Path, tmp_path: Path) -> None:
    pool = map_model(small, tmp_path / "pool")
    trace, _ = traces_of(captured)
    plan = build_plan(trace)
    assert (pool.num_layers, pool.num_experts) == (plan.num_layers, plan.num_experts)
    assert set(pool.expert_sizes) == {56_832}


def test_lines_of_text_are_prompts(speaking: Path, tmp_path: Path, pagetier: Pagetier) -> None:
    (tmp_path / "words.txt").write_text("int main(void) {\n\nOnce upon a time\n")
    options = ["--prompts", "words.txt", "-n", "3", "-o", "mine"]
    done = pagetier(tmp_path, "trace", "capture", "--model", speaking, *options)
    assert (done.returncode, done.stdout) == (
        0,
        "mine/words.jsonl.gz: 2 requests, 6 tokens, 144 reads\n",
    )
    assert "prompt 2 of 2 (words)" in done.stderr
    described, requests = read_tokens(tmp_path / "mine/words.tokens.jsonl")
    assert described["temperature"] is None
    # The mark of a beginning, then bytes; SentencePiece writes a space as this character.
    text = "▁Once▁upon▁a▁time".encode()
    assert requests[1]["prompt"] == [1, *(3 + byte for byte in text)]
    source = read_trace(tmp_path / "mine/words.jsonl.gz").header.source
    assert source is not None and source.endswith(", greedy")


def test_a_text_that_ends_at_once_is_left_out_and_said(
    speaking: Path, tmp_path: Path, pagetier: Pagetier
) -> None:
    """One of 320 tokens ends a text; of 400 draws with seeds of their own some are it."""
    line = json.dumps({"domain": "d", "tokens": [70]})
    (tmp_path / "p.jsonl").write_text("\n".join([line] * 400))
    options = ["--prompts", "p.jsonl", "-n", "1", "--temperature", "1", "-o", "mine"]
    options += ["--threads", "1"]
    done = pagetier(tmp_path, "trace", "capture", "--model", speaking, *options)
    assert done.returncode == 0
    assert "left out: the model ends its text at once" in done.stderr
    left_out = done.stderr.count("left out")
    assert f"{400 - left_out} requests" in done.stdout


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--prompts", "none.jsonl"], "none.jsonl: cannot be read (No such file or directory)"),
        (["--prompts", "text.txt"], "has no tokenizer; give prompts as ids"),
        (["--prompts", "p.jsonl", "--engine", "vllm"], "see `pagetier trace import`"),
        (["--prompts", "p.jsonl", "--temperature", "0"], "--temperature 0.0: expected more than 0"),
        (["--prompts", "p.jsonl", "--context", "9"], "do not fit in a context of 9"),
        (["--prompts", "p.jsonl", "--model", "none.gguf"], "none.gguf: is missing"),
        (["--prompts", "p.jsonl", "-o", "p.jsonl"], "p.jsonl: cannot be a folder of traces"),
    ],
)
def test_what_fails_is_one_sentence(
    small: Path, tmp_path: Path, pagetier: Pagetier, options: list[str], message: str
) -> None:
    write_prompts(tmp_path / "p.jsonl", each=1)
    (tmp_path / "text.txt").write_text("words\n")
    defaults = ["--model", str(small), "-n", "4", "-o", "mine", "--threads", "1"]
    done = pagetier(tmp_path, "trace", "capture", *defaults, *options)
    assert done.returncode == 2
    last = done.stderr.splitlines()[-1]
    assert last.startswith("pagetier: ") and message in last
    assert "Traceback" not in done.stderr
    mine = tmp_path / "mine"
    assert not mine.exists() or not any(mine.iterdir())


def test_an_interrupt_keeps_whole_domains_alone(small: Path, tmp_path: Path) -> None:
    lines = [{"domain": "short", "tokens": domain_tokens(SMALL, 0, 4)}]
    lines += [{"domain": "long", "tokens": domain_tokens(SMALL, 1, 4)}] * 400
    (tmp_path / "p.jsonl").write_text("\n".join(map(json.dumps, lines)))
    options = ["--model", str(small), "--prompts", "p.jsonl", "-n", "60", "-o", "mine"]
    process = subprocess.Popen(
        [sys.executable, "-m", "pagetier.bench.cli", "trace", "capture", *options],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        text=True,
    )
    short = tmp_path / "mine" / "short.jsonl.gz"
    give_up = time.monotonic() + 60
    while not short.exists() and time.monotonic() < give_up:
        time.sleep(0.02)
    time.sleep(0.3)
    os.kill(process.pid, signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    files = sorted(path.name for path in (tmp_path / "mine").iterdir())
    assert files == ["short.jsonl.gz", "short.tokens.jsonl"]
    assert read_trace(short).num_records == 60 * SMALL.layers
