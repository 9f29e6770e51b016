# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the architectures that llama.cpp routes in ways of their own."""

import gguf

from tests.capture import blocks, fields
from tests.capture.tiny import Architecture

__all__ = ["ARCHITECTURES", "NO_DECODERS"]

Q = gguf.GGMLQuantizationType

ARCHITECTURES = {
    "llama": Architecture(
        arch="llama",
        blocks=({**blocks.ATTENTION, **blocks.FFN_NORM},) * 3,
        routed=(0, 1, 2),
        add_fields=fields.plain,
        normed=True,
    ),
    "qwen2moe": Architecture(
        arch="qwen2moe",
        blocks=(blocks.QWEN2MOE,) * 3,
        routed=(0, 1, 2),
        add_fields=fields.with_shared,
    ),
    "olmoe": Architecture(
        arch="olmoe",
        blocks=(blocks.OLMOE,) * 3,
        routed=(0, 1, 2),
        add_fields=fields.plain,
    ),
    "deepseek2": Architecture(
        arch="deepseek2",
        blocks=({**blocks.LATENT, **blocks.FFN_NORM, **blocks.DENSE_FFN}, *(blocks.DEEPSEEK2,) * 3),
        routed=(1, 2, 3),
        add_fields=fields.deepseek2,
        gating="sigmoid",
        normed=True,
        scale=2.5,
        groups=(4, 2),
        # What some converters merge.
        types={"gate_up": Q.Q8_0, "down": Q.Q5_0},
    ),
    "gpt-oss": Architecture(
        arch="gpt-oss",
        blocks=(blocks.GPT_OSS,) * 4,
        routed=(0, 1, 2, 3),
        add_fields=fields.gpt_oss,
        gating="chosen",
        norm="post_attention_norm.weight",
        router_bias=True,
        expert_biases=True,
        types=dict.fromkeys(("gate", "up", "down"), Q.MXFP4),
        last_alone=False,
    ),
    "glm4moe": Architecture(
        arch="glm4moe",
        blocks=(
            {**blocks.ATTENTION, **blocks.ATTENTION_BIASES, **blocks.POST_NORM, **blocks.DENSE_FFN},
            *(blocks.GLM4MOE,) * 2,
            {**blocks.GLM4MOE, **blocks.NEXT_TOKEN},
        ),
        routed=(1, 2),
        add_fields=fields.leading_dense,
        gating="sigmoid",
        normed=True,
        norm="post_attention_norm.weight",
        further=1,
    ),
    "bailingmoe2": Architecture(
        arch="bailingmoe2",
        blocks=(
            {**blocks.MERGED, **blocks.DENSE_FFN},
            *({**blocks.MERGED, **blocks.EQUAL_SHARED, **blocks.PROBABILITY_BIAS},) * 2,
        ),
        routed=(1, 2),
        add_fields=fields.leading_dense,
        gating="sigmoid",
        normed=True,
        scale=2.5,
        groups=(4, 2),
        residual="sa_out",
    ),
    "ernie4_5-moe": Architecture(
        arch="ernie4_5-moe",
        blocks=(
            {**blocks.ATTENTION, **blocks.FFN_NORM, **blocks.DENSE_FFN},
            *(
                {
                    **blocks.ATTENTION,
                    **blocks.FFN_NORM,
                    **blocks.SHARED_EXPERT,
                    **blocks.PROBABILITY_BIAS,
                },
            )
            * 2,
        ),
        routed=(1, 2),
        add_fields=fields.ernie4_5_moe,
        normed=True,
    ),
    "granitemoe": Architecture(
        arch="granitemoe",
        blocks=({**blocks.ATTENTION, **blocks.FFN_NORM, **blocks.SHARED_EXPERT},) * 3,
        routed=(0, 1, 2),
        add_fields=fields.granitemoe,
        normed=True,
    ),
    "llama4": Architecture(
        arch="llama4",
        blocks=({**blocks.ATTENTION, **blocks.FFN_NORM, **blocks.DENSE_FFN}, blocks.LLAMA4) * 2,
        routed=(1, 3),
        add_fields=fields.llama4,
        top_k=1,
        gating="sigmoid",
    ),
    "qwen3next": Architecture(
        arch="qwen3next",
        blocks=(
            {**blocks.DELTA_NET, **blocks.QWEN3NEXT_FFN},
            {**blocks.GATED, **blocks.QWEN3NEXT_FFN},
        )
        * 2,
        routed=(0, 1, 2, 3),
        add_fields=fields.qwen3next,
        normed=True,
        norm="post_attention_norm.weight",
        residual="attn_residual",
        last_alone=False,
    ),
    "nemotron_h_moe": Architecture(
        arch="nemotron_h_moe",
        blocks=(blocks.MAMBA, blocks.ATTENTION, blocks.NEMOTRON_FFN) * 2,
        routed=(2, 5),
        add_fields=fields.nemotron_h_moe,
        gating="sigmoid",
        normed=True,
        scale=2.5,
        norm=None,
        residual="attn_norm",
        types={"up": Q.Q8_0, "down": Q.Q5_0},
        last_alone=False,
    ),
    "deepseek4": Architecture(
        arch="deepseek4",
        blocks=(
            {**blocks.DEEPSEEK4, **blocks.TABLE},
            {**blocks.DEEPSEEK4, **blocks.INDEXED, **blocks.PROBABILITY_BIAS},
            {**blocks.DEEPSEEK4, **blocks.COMPRESSOR, **blocks.PROBABILITY_BIAS},
        ),
        routed=(0, 1, 2),
        add_fields=fields.deepseek4,
        gating="sqrtsoftplus",
        normed=True,
        scale=1.5,
        residual="hc_ffn_pre",
        ends=blocks.STREAM_ENDS,
        last_alone=False,
    ),
    "grovemoe": Architecture(
        arch="grovemoe",
        blocks=({**blocks.ATTENTION, **blocks.HEAD_NORMS, **blocks.FFN_NORM, **blocks.CHUNKS},) * 3,
        routed=(0, 1, 2),
        add_fields=fields.grovemoe,
        normed=True,
    ),
}

# They have experts, and no token follows from the ones before it.
NO_DECODERS = {
    "nomic-bert-moe": Architecture(
        arch="nomic-bert-moe",
        blocks=(
            {
                **blocks.BERT,
                "ffn_up.weight": (blocks.INNER, blocks.HIDDEN),
                "ffn_down.weight": (blocks.HIDDEN, blocks.INNER),
            },
            blocks.BERT,
        ),
        routed=(1,),
        add_fields=fields.nomic_bert_moe,
        types={"up": Q.Q8_0, "down": Q.Q5_0},
        ends=blocks.BERT_ENDS,
    ),
    "llada-moe": Architecture(
        arch="llada-moe",
        blocks=({**blocks.ATTENTION, **blocks.HEAD_NORMS, **blocks.FFN_NORM},) * 2,
        routed=(0, 1),
        add_fields=fields.sized,
    ),
}
