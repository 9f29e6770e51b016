# SPDX-License-Identifier: Apache-2.0
"""What a prompt asks for: each expert of a layer once for a batch, and none of it in the trace."""

import numpy as np

from pagetier.bench.engine.prompt_tap import PromptTap
from pagetier.bench.engine.tap import CHOICE

LAYERS, EXPERTS, TOP_K = (1, 2), 8, 2


def ids(*rows: list[int]) -> "np.ndarray[tuple[int, int], np.dtype[np.int32]]":
    return np.array(rows, dtype=np.int32)


def token(tap: PromptTap, *choices: list[int]) -> None:
    tap.begin_decode()
    for layer, chosen in zip(LAYERS, choices, strict=True):
        tap.take(f"{CHOICE}-{layer}", ids(chosen))
    tap.end_decode()


def test_a_prompt_reads_the_union_of_its_tokens() -> None:
    tap = PromptTap(LAYERS, EXPERTS, TOP_K)
    tap.begin_prompt()
    assert tap.wants(f"{CHOICE}-1") and not tap.wants("ffn_moe_weights-1")
    tap.take(f"{CHOICE}-1", ids([7, 2], [2, 5], [5, 7]))
    tap.take(f"{CHOICE}-2", ids([3, 0]))
    token(tap, [1, 2], [3, 4])
    plan = tap.prompt_plan()
    assert plan.experts.tolist() == [2, 5, 7, EXPERTS + 0, EXPERTS + 3]
    assert plan.record_start.tolist() == [0, 3, 5]
    assert plan.iteration_start.tolist() == [0, 2]
    assert tap.routes().experts.tolist() == [[[1, 2], [3, 4]]]


def test_batches_read_again_and_a_new_prompt_starts_anew() -> None:
    tap = PromptTap(LAYERS, EXPERTS, TOP_K)
    tap.begin_prompt()
    for _ in range(2):
        tap.take(f"{CHOICE}-1", ids([1, 0]))
        tap.take(f"{CHOICE}-2", ids([1, 0]))
    assert tap.prompt_plan().experts.tolist() == [0, 1, 8, 9, 0, 1, 8, 9]
    token(tap, [1, 2], [3, 4])
    tap.begin_prompt()
    tap.take(f"{CHOICE}-1", ids([6, 4]))
    assert tap.prompt_plan().experts.tolist() == [4, 6]
    assert len(tap.routes().experts) == 0


def test_of_a_decoded_token_it_wants_what_a_router_says() -> None:
    tap = PromptTap(LAYERS, EXPERTS, TOP_K)
    tap.begin_prompt()
    tap.begin_decode()
    assert tap.wants("ffn_moe_weights-2") and tap.wants(f"{CHOICE}-2")
    assert not tap.wants(f"{CHOICE}-3")
