# SPDX-License-Identifier: Apache-2.0
"""What each architecture's metadata says, beside the fields that all have."""

import gguf

from tests.capture.blocks import (
    DENSE,
    HEAD,
    HEADS,
    HIDDEN,
    INDEX,
    INNER,
    KERNEL,
    KEY_HEADS,
    KEY_RANK,
    OUTPUT_GROUPS,
    PLAIN,
    QUERY_RANK,
    ROTARY,
    SHARED,
    STATE,
    STREAMS,
    VALUE_HEADS,
)

Writer = gguf.GGUFWriter


def plain(writer: Writer) -> None:
    """Experts of the size that dense layers would have."""
    writer.add_feed_forward_length(INNER)


def sized(writer: Writer) -> None:
    writer.add_feed_forward_length(DENSE)
    writer.add_expert_feed_forward_length(INNER)


def with_shared(writer: Writer) -> None:
    sized(writer)
    writer.add_expert_shared_feed_forward_length(SHARED)


def deepseek2(writer: Writer) -> None:
    sized(writer)
    writer.add_leading_dense_block_count(1)
    writer.add_q_lora_rank(QUERY_RANK)
    writer.add_kv_lora_rank(KEY_RANK)
    writer.add_key_length(KEY_RANK + ROTARY)
    writer.add_value_length(KEY_RANK)
    writer.add_key_length_mla(PLAIN + ROTARY)
    writer.add_value_length_mla(HEAD)
    writer.add_head_count_kv(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_norm(True)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def gpt_oss(writer: Writer) -> None:
    sized(writer)
    writer.add_sliding_window(8)


def leading_dense(writer: Writer) -> None:
    sized(writer)
    writer.add_leading_dense_block_count(1)
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_norm(True)
    writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)


def granitemoe(writer: Writer) -> None:
    writer.add_feed_forward_length(INNER)
    writer.add_expert_shared_feed_forward_length(SHARED)
    writer.add_logit_scale(2.0)
    writer.add_residual_scale(0.5)
    writer.add_embedding_scale(3.0)


def ernie4_5_moe(writer: Writer) -> None:
    with_shared(writer)
    writer.add_leading_dense_block_count(1)
    writer.add_interleave_moe_layer_step(1)


def llama4(writer: Writer) -> None:
    sized(writer)
    writer.add_interleave_moe_layer_step(2)


def qwen3next(writer: Writer) -> None:
    with_shared(writer)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_full_attention_interval(2)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(STATE * VALUE_HEADS)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(VALUE_HEADS)
    writer.add_ssm_group_count(KEY_HEADS)


def nemotron_h_moe(writer: Writer) -> None:
    writer.add_feed_forward_length([0, 0, INNER] * 2)
    writer.add_head_count_kv([0, HEADS, 0] * 2)
    writer.add_expert_feed_forward_length(INNER)
    writer.add_expert_shared_feed_forward_length(SHARED)
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_norm(True)
    writer.add_layer_norm_eps(1e-6)
    writer.add_ssm_conv_kernel(KERNEL)
    writer.add_ssm_inner_size(HIDDEN)
    writer.add_ssm_state_size(STATE)
    writer.add_ssm_time_step_rank(HEADS)
    writer.add_ssm_group_count(KEY_HEADS)


def deepseek4(writer: Writer) -> None:
    sized(writer)
    # As it was converted at first: with this field, and without the block.
    writer.add_nextn_predict_layers(1)
    writer.add_head_count_kv(1)
    writer.add_key_length(HEAD)
    writer.add_value_length(HEAD)
    writer.add_q_lora_rank(QUERY_RANK)
    writer.add_sliding_window(8)
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_norm(True)
    # LLAMA_EXPERT_GATING_FUNC_TYPE_SQRT_SOFTPLUS
    writer.add_uint32("deepseek4.expert_gating_func", 4)
    writer.add_float32("deepseek4.swiglu_clamp_exp", 10.0)
    for name, count in {
        "attention.indexer.head_count": HEADS,
        "attention.indexer.key_length": INDEX,
        "attention.indexer.top_k": 8,
        "attention.output_group_count": OUTPUT_GROUPS,
        "attention.output_lora_rank": KEY_RANK,
        "hyper_connection.count": STREAMS,
        "hyper_connection.sinkhorn_iterations": 2,
        "hash_layer_count": 1,
    }.items():
        writer.add_uint32(f"deepseek4.{name}", count)
    writer.add_float32("deepseek4.hyper_connection.epsilon", 1e-6)
    writer.add_float32("deepseek4.attention.compress_rope_freq_base", 1e4)
    writer.add_array("deepseek4.attention.compress_ratios", [0, 4, 128])


def grovemoe(writer: Writer) -> None:
    sized(writer)
    writer.add_expert_chunk_feed_forward_length(SHARED)
    writer.add_experts_per_group(2)
    writer.add_expert_group_scale(0.05)


def nomic_bert_moe(writer: Writer) -> None:
    writer.add_feed_forward_length(INNER)
    writer.add_moe_every_n_layers(2)
    writer.add_layer_norm_eps(1e-6)
    writer.add_token_type_count(1)
    writer.add_causal_attention(False)
