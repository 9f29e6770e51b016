# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as the harness uses it: repeatable, silent, its weights left in their mapping."""

import hashlib
import os
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.bench.engine.llama import Engine, Loading, Sampling
from pagetier.bench.engine.tap import RouterTap
from tests.capture.models import SMALL, domain_tokens
from tests.conftest import ROOT

pytestmark = pytest.mark.capture

LOADING = Loading(threads=2, context_tokens=256)
DRAWN = Sampling(1.0, seed=3)
PROMPT = domain_tokens(SMALL, 0, 5)


class DeafTap:
    """Reads nothing; what a test overrides happens inside a callback of the engine."""

    def wants(self, name: str) -> bool:
        return False

    def take(self, name: str, values: NDArray[np.generic]) -> None:
        pass

    def begin_prompt(self) -> None:
        pass

    def begin_decode(self) -> None:
        pass

    def end_decode(self) -> None:
        pass


def tokens(path: Path, sampling: Sampling = DRAWN, threads: int = 2, count: int = 24) -> list[int]:
    with Engine(path, Loading(threads=threads, context_tokens=256)) as engine:
        return engine.generate(PROMPT, count, sampling).tokens


def test_facts_are_the_models(small: Path, speaking: Path) -> None:
    with Engine(small, LOADING) as engine:
        facts = engine.facts
    assert (facts.architecture, facts.layers, facts.experts, facts.top_k) == ("qwen3moe", 6, 16, 4)
    assert (facts.vocabulary, facts.tokenizer, facts.backend) == (SMALL.vocabulary, False, "CPU")
    assert facts.engine.startswith("llama-cpp-python ") and facts.system_info.startswith("CPU")
    with Engine(speaking, LOADING) as engine:
        assert engine.facts.tokenizer


def test_any_shard_names_the_model(small: Path) -> None:
    second = small.with_name(small.name.replace("00001-of", "00002-of"))
    assert second.exists() and tokens(second) == tokens(small)


def test_a_request_has_a_token_more_than_decodes(small: Path) -> None:
    calls: list[int] = []
    with Engine(small, LOADING) as engine:
        made = engine.generate(PROMPT, 7, DRAWN, lambda: calls.append(1))
    assert len(made.tokens) == 8 and len(made.decode_ns) == 7 and len(calls) == 8
    assert made.prompt_ns > 0 and min(made.decode_ns) > 0


def test_equal_seeds_give_equal_tokens(small: Path) -> None:
    first = tokens(small)
    assert first == tokens(small)
    assert first != tokens(small, Sampling(1.0, seed=4))
    greedy = tokens(small, Sampling())
    assert greedy == tokens(small, Sampling(None, seed=9)) != first


def test_nothing_of_a_request_is_left_for_the_next(small: Path) -> None:
    with Engine(small, LOADING) as engine:
        first = engine.generate(PROMPT, 12, DRAWN).tokens
        engine.generate(domain_tokens(SMALL, 1, 9), 30, DRAWN)
        assert engine.generate(PROMPT, 12, DRAWN).tokens == first


def test_ways_of_loading_and_a_tap_change_no_token(small: Path) -> None:
    plain = tokens(small)
    for loading in (
        Loading(mmap=False, threads=2, context_tokens=256),
        Loading(mlock=True, threads=2, context_tokens=256),
        Loading(threads=1, context_tokens=256),
    ):
        with Engine(small, loading) as engine:
            assert engine.generate(PROMPT, 24, DRAWN).tokens == plain
    with Engine(small, LOADING, RouterTap(range(6), 4)) as engine:
        assert engine.generate(PROMPT, 24, DRAWN).tokens == plain


# In a process of its own: memory that others gave back would hide what the engine takes.
MEASURE = r"""
import re, sys
from pathlib import Path
from pagetier.bench.engine.llama import Engine, Loading, Sampling

def held():
    found = re.findall(r"^(Rss\w+|VmLck):\s+(\d+) kB", Path("/proc/self/status").read_text(), re.M)
    return {name: int(kilobytes) * 1024 for name, kilobytes in found}

model, mmap, mlock = sys.argv[1:]
before = held()
with Engine(Path(model), Loading(mmap == "True", mlock == "True", 1, 256)) as engine:
    engine.generate([1, 2, 3], 4, Sampling())
    after = held()
left = held()["VmLck"]
print([after[name] - before[name] for name in ("RssAnon", "RssFile", "VmLck")], left)
"""


@pytest.mark.parametrize(
    ("loading", "holds"),
    [
        (Loading(mmap=True), (False, True, False)),
        (Loading(mmap=True, mlock=True), (False, True, True)),
        (Loading(mmap=False), (True, False, False)),
    ],
)
def test_weights_lie_where_they_were_loaded(
    medium: Path, loading: Loading, holds: tuple[bool, bool, bool]
) -> None:
    """As anonymous memory, in the mapping of their file, locked: all of them or nearly nothing."""
    size = medium.stat().st_size
    words = [str(medium), str(loading.mmap), str(loading.mlock)]
    done = subprocess.run(
        [sys.executable, "-c", MEASURE, *words],
        env={**os.environ, "PYTHONPATH": str(ROOT / ".layout")},
        capture_output=True,
        text=True,
        check=True,
    )
    found = re.fullmatch(r"\[(-?\d+), (-?\d+), (-?\d+)\] 0\n", done.stdout)
    assert found is not None, done.stdout
    for held, expected in zip(map(int, found.groups()), holds, strict=True):
        # Repacking the smallest of the three stacks would take a fifth.
        assert held > 0.95 * size if expected else held < 0.12 * size


def test_weights_are_not_written(small: Path) -> None:
    before = hashlib.sha256(small.read_bytes()).hexdigest(), small.stat().st_mtime_ns
    tokens(small)
    assert before == (hashlib.sha256(small.read_bytes()).hexdigest(), small.stat().st_mtime_ns)


def test_text_is_tokenized(speaking: Path) -> None:
    with Engine(speaking, LOADING) as engine:
        ids = engine.tokenize("no")
    # The mark of a beginning, a space as SentencePiece writes it (three bytes), then the text.
    assert ids == [1, *(3 + byte for byte in "▁no".encode())]


def test_the_end_of_a_text_ends_the_request(speaking: Path) -> None:
    with Engine(speaking, Loading(threads=1, context_tokens=512)) as engine:
        made = [engine.generate([1, 70, 80], 400, Sampling(1.0, seed)) for seed in range(6)]
    ended = [one for one in made if len(one.decode_ns) < 400]
    assert ended
    for one in ended:
        assert one.tokens[-1] == 2 and 2 not in one.tokens[:-1]
        assert len(one.decode_ns) == len(one.tokens) - 1


def test_the_engine_keeps_silent(small: Path, capfd: pytest.CaptureFixture[str]) -> None:
    tokens(small)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize(
    ("prompt", "count", "message"),
    [
        ([], 4, "an empty prompt"),
        ([1] * 250, 7, "a prompt of 250 tokens and 7 more do not fit in a context of 256"),
        ([1, 320], 4, "the vocabulary 0..319"),
        ([1, -1], 4, "the vocabulary 0..319"),
    ],
)
def test_prompts_that_cannot_be_served(
    small: Path, prompt: list[int], count: int, message: str
) -> None:
    with Engine(small, LOADING) as engine, pytest.raises(InputError, match=re.escape(message)):
        engine.generate(prompt, count, DRAWN)


def test_a_model_without_a_tokenizer_takes_ids(small: Path) -> None:
    with Engine(small, LOADING) as engine, pytest.raises(InputError, match="has no tokenizer"):
        engine.tokenize("text")


def test_a_model_that_does_not_load_is_named(
    speaking: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "strange.gguf"
    # The header still reads; llama.cpp knows no such architecture.
    path.write_bytes(speaking.read_bytes().replace(b"qwen3moe", b"qwen9moe"))
    with pytest.raises(InputError, match=r"strange\.gguf: llama\.cpp cannot load it \(.*qwen9moe"):
        Engine(path, LOADING).__enter__()
    assert capfd.readouterr().err == ""


def test_what_a_tap_finds_wrong_ends_the_request(small: Path) -> None:
    class WrongTap(DeafTap):
        def wants(self, name: str) -> bool:
            return name == "ffn_moe_topk-2"

        def take(self, name: str, values: NDArray[np.generic]) -> None:
            raise CapabilityError(f"wrong {name}")

    with Engine(small, LOADING, WrongTap()) as engine:
        for _ in range(2):
            with pytest.raises(CapabilityError, match="wrong ffn_moe_topk-2"):
                engine.generate(PROMPT, 4, DRAWN)


def test_an_interrupt_within_a_callback_is_not_lost(small: Path) -> None:
    class Interrupted(DeafTap):
        decodes = 0
        fired = False

        def begin_decode(self) -> None:
            self.decodes += 1

        def wants(self, name: str) -> bool:
            if self.decodes == 3 and not self.fired:
                self.fired = True
                os.kill(os.getpid(), signal.SIGINT)
            return False

    before = signal.getsignal(signal.SIGINT)
    tap = Interrupted()
    with Engine(small, LOADING, tap) as engine:
        with pytest.raises(KeyboardInterrupt):
            engine.generate(PROMPT, 20, DRAWN)
        assert tap.decodes == 3
        assert signal.getsignal(signal.SIGINT) is before
        assert len(engine.generate(PROMPT, 5, DRAWN).tokens) == 6


def test_other_threads_may_listen(small: Path) -> None:
    made: list[int] = []

    def work() -> None:
        with Engine(small, LOADING, DeafTap()) as engine:
            made.extend(engine.generate(PROMPT, 24, DRAWN).tokens)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert made == tokens(small)
