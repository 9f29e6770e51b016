# SPDX-License-Identifier: Apache-2.0
"""llama.cpp as an engine that can be measured: one model, one request at a time.

Times are in nanoseconds of CLOCK_MONOTONIC.  Weights stay in the mapping of their file: layers are
neither offloaded nor repacked for the CPU (`use_extra_bufts`), which would copy them into anonymous
memory.  There is no warm-up run.

With mmap llama.cpp reads the whole file once while it loads (MAP_POPULATE, then MADV_WILLNEED), and
declares it sequential before (llama-mmap.cpp, seen with strace): from then on faults in the mapping
read ahead up to twice the device's window (POSIX_FADV_SEQUENTIAL in mm/fadvise.c).

Without the package every use is a CapabilityError that names it; a model that cannot be loaded, and
a prompt that does not fit, are InputErrors.
"""

import ctypes
import functools
import os
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from pagetier.analysis.errors import CapabilityError, InputError
from pagetier.bench.engine.interrupts import held_interrupts
from pagetier.bench.engine.library import library
from pagetier.bench.engine.sampling import Chooser, Sampling
from pagetier.bench.engine.watch import Tap, Watch
from pagetier.tiers.models.gguf import read_gguf

__all__ = ["Engine", "Generation", "Loading", "ModelFacts", "Sampling", "Tap"]

MAX_BATCH: Final = 512


@dataclass(frozen=True, slots=True)
class Loading:
    """How weights come into memory, the threads that compute, and the most tokens of a request."""

    mmap: bool = True
    mlock: bool = False
    threads: int = 1
    context_tokens: int = 2048


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """The loaded model by the engine's account; `backend` names its devices, ``CPU`` alone here.

    `experts` and `top_k` are None for a model without experts.
    """

    architecture: str
    layers: int
    experts: int | None
    top_k: int | None
    vocabulary: int
    tokenizer: bool
    backend: str
    engine: str
    system_info: str


@dataclass(frozen=True, slots=True)
class Generation:
    """What a request gave: the token chosen after the prompt, and one more after each decode.

    Decode i computes on tokens[i] and chooses tokens[i + 1] in decode_ns[i], so that there is one
    token more than there are decodes.
    """

    tokens: list[int]
    prompt_ns: int
    decode_ns: list[int]


class Engine:
    """A model, loaded within a `with` block."""

    def __init__(self, model: Path, loading: Loading, tap: Tap | None = None) -> None:
        self._path = Path(read_gguf(model).source)
        self._loading = loading
        self._library = library()
        self._model: Any = None
        self._context: Any = None
        self._watch = None if tap is None else Watch(self._library, tap)

    def __enter__(self) -> Self:
        self._library.forget_error()
        try:
            self._model = self._load()
            self._context = self._open()
            self._require_decoder()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    def close(self) -> None:
        """Give the model's memory back; may be called again."""
        if self._context is not None:
            self._library.api.llama_free(self._context)
        if self._model is not None:
            self._library.api.llama_model_free(self._model)
        self._context = self._model = None

    @functools.cached_property
    def facts(self) -> ModelFacts:
        """What the engine says of the model and of itself."""
        api = self._library.api
        architecture = self._field("general.architecture") or "unknown"
        experts = self._field(f"{architecture}.expert_count")
        top_k = self._field(f"{architecture}.expert_used_count")
        return ModelFacts(
            architecture=architecture,
            layers=api.llama_model_n_layer(self._model),
            experts=None if experts is None else int(experts),
            top_k=None if top_k is None else int(top_k),
            vocabulary=api.llama_vocab_n_tokens(self._vocabulary),
            tokenizer=api.llama_vocab_type(self._vocabulary) != api.LLAMA_VOCAB_TYPE_NONE,
            backend=self._library.backend(),
            engine=f"llama-cpp-python {api.__version__}",
            system_info=api.llama_print_system_info().decode().strip(),
        )

    def tokenize(self, text: str) -> list[int]:
        """Ids of a prompt, with the marks that the model wants around it."""
        if not self.facts.tokenizer:
            raise InputError(
                f'{self._path}: has no tokenizer; give prompts as ids: {{"tokens": [1, 2, 3]}}'
            )
        raw = text.encode()
        wanted = -self._tokens(raw, (ctypes.c_int32 * 0)())
        ids = (ctypes.c_int32 * max(wanted, 0))()
        if not ids or self._tokens(raw, ids) != wanted:
            raise InputError(f"{self._path}: its tokenizer makes no tokens of {text[:40]!r}")
        return list(ids)

    def generate(
        self,
        prompt: Sequence[int],
        count: int,
        sampling: Sampling,
        after_token: Callable[[], None] | None = None,
    ) -> Generation:
        """Forget all requests, compute the prompt, then decode `count` tokens one by one.

        Ends earlier where the model ends its text.  `after_token` is called after the prompt and
        after each decode, outside their times.
        """
        self._require_fits(prompt, count)
        choose = Chooser(sampling)
        api = self._library.api
        api.llama_memory_clear(api.llama_get_memory(self._context), True)
        with nullcontext(_nothing) if self._watch is None else held_interrupts() as interrupt:
            start = time.monotonic_ns()
            tokens = [choose(self._prompt(prompt))]
            generation = Generation(tokens, time.monotonic_ns() - start, [])
            while True:
                interrupt()
                if after_token is not None:
                    after_token()
                ended = api.llama_vocab_is_eog(self._vocabulary, tokens[-1])
                if ended or len(generation.decode_ns) == count:
                    return generation
                start = time.monotonic_ns()
                tokens.append(choose(self._decode(tokens[-1])))
                generation.decode_ns.append(time.monotonic_ns() - start)

    def _tokens(self, text: bytes, into: "ctypes.Array[ctypes.c_int32]") -> int:
        """How many were written, or minus as many as there are where they do not fit."""
        return int(
            self._library.api.llama_tokenize(
                self._vocabulary, text, len(text), into, len(into), True, True
            )
        )

    def _load(self) -> Any:
        api = self._library.api
        params = api.llama_model_default_params()
        params.n_gpu_layers = 0
        params.load_mode = {
            (False, False): api.LLAMA_LOAD_MODE_NONE,
            (True, False): api.LLAMA_LOAD_MODE_MMAP,
            (False, True): api.LLAMA_LOAD_MODE_MLOCK,
            (True, True): api.LLAMA_LOAD_MODE_MMAP_MLOCK,
        }[self._loading.mmap, self._loading.mlock]
        params.lazy_mode = api.LLAMA_LAZY_MODE_OFF
        params.use_extra_bufts = False
        model = api.llama_model_load_from_file(os.fsencode(self._path), params)
        if not model:
            raise InputError(
                f"{self._path}: llama.cpp cannot load it{self._library.reason()}; is it a whole "
                "model of an architecture that this llama.cpp knows?"
            )
        return model

    def _open(self) -> Any:
        api = self._library.api
        params = api.llama_context_default_params()
        params.n_ctx = self._loading.context_tokens
        params.n_batch = params.n_ubatch = min(self._loading.context_tokens, MAX_BATCH)
        params.n_seq_max = 1
        params.n_threads = params.n_threads_batch = self._loading.threads
        params.offload_kqv = params.op_offload = False
        params.no_perf = True
        if self._watch is not None:
            params.cb_eval = self._watch.callback
        context = api.llama_init_from_model(self._model, params)
        if not context:
            raise CapabilityError(
                f"{self._path}: llama.cpp cannot make a context of "
                f"{self._loading.context_tokens} tokens{self._library.reason()}; ask for fewer"
            )
        return context

    def _require_decoder(self) -> None:
        """llama.cpp computes tokens of others too, each of them as if no other had come before."""
        api = self._library.api
        if api.llama_get_memory(self._context) and not api.llama_model_is_diffusion(self._model):
            return
        raise InputError(
            f"{self._path}: is a model of architecture {self.facts.architecture}, which does not "
            "write one token after the other: there is nothing to decode; name a model that does"
        )

    @property
    def _vocabulary(self) -> Any:
        return self._library.api.llama_model_get_vocab(self._model)

    def _field(self, key: str) -> str | None:
        buffer = ctypes.create_string_buffer(256)
        length = self._library.api.llama_model_meta_val_str(
            self._model, key.encode(), buffer, len(buffer)
        )
        return None if length < 0 else buffer.value.decode()

    def _require_fits(self, prompt: Sequence[int], count: int) -> None:
        if len(prompt) == 0:
            raise InputError(f"{self._path}: an empty prompt gives no request; write one")
        if len(prompt) + count > self._loading.context_tokens:
            raise InputError(
                f"{self._path}: a prompt of {len(prompt)} tokens and {count} more do not fit in a "
                f"context of {self._loading.context_tokens}; shorten the prompt or ask for fewer"
            )
        if not 0 <= min(prompt) <= max(prompt) < self.facts.vocabulary:
            raise InputError(
                f"{self._path}: a prompt has id {max(prompt)} or {min(prompt)} and the vocabulary "
                f"0..{self.facts.vocabulary - 1}; use the ids of this model"
            )

    def _prompt(self, prompt: Sequence[int]) -> NDArray[np.float32]:
        if self._watch is not None:
            self._watch.tap.begin_prompt()
        step = min(self._loading.context_tokens, MAX_BATCH)
        for first in range(0, len(prompt), step):
            self._compute(prompt[first : first + step])
        return self._logits()

    def _decode(self, token: int) -> NDArray[np.float32]:
        if self._watch is not None:
            self._watch.tap.begin_decode()
        self._compute([token])
        if self._watch is not None:
            self._watch.tap.end_decode()
        return self._logits()

    def _compute(self, tokens: Sequence[int]) -> None:
        api = self._library.api
        ids = (ctypes.c_int32 * len(tokens))(*tokens)
        status = api.llama_decode(self._context, api.llama_batch_get_one(ids, len(tokens)))
        if self._watch is not None:
            self._watch.raise_problem()
        if status != 0:
            raise CapabilityError(
                f"{self._path}: llama.cpp stopped with status {status} while it computed"
                f"{self._library.reason()}; ask for fewer tokens"
            )

    def _logits(self) -> NDArray[np.float32]:
        pointer = self._library.api.llama_get_logits_ith(self._context, -1)
        return np.ctypeslib.as_array(pointer, (self.facts.vocabulary,))


def _nothing() -> None:
    """Where nothing calls back, Ctrl-C needs no care."""
