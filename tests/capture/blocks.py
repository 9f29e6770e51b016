# SPDX-License-Identifier: Apache-2.0
"""What blocks of the architectures have, by name and shape: all but routers and routed experts."""

from collections.abc import Mapping
from types import MappingProxyType

Shapes = Mapping[str, tuple[int, ...]]

VOCABULARY = 320
HIDDEN, HEADS, HEAD, DENSE, SHARED = 64, 4, 16, 64, 32
EXPERTS, TOP_K, INNER = 16, 4, 96
# Ranks of multi-head latent attention, and the parts of a head with and without positions.
QUERY_RANK, KEY_RANK, ROTARY, PLAIN = 32, 32, HEAD, 16
# Of recurrent layers: states, the heads that read them, and the tokens that a convolution sees.
STATE, KEY_HEADS, VALUE_HEADS, KERNEL = 16, 2, 4, 4

ATTENTION: Shapes = MappingProxyType(
    {
        "attn_norm.weight": (HIDDEN,),
        "attn_q.weight": (HEADS * HEAD, HIDDEN),
        "attn_k.weight": (HEADS * HEAD, HIDDEN),
        "attn_v.weight": (HEADS * HEAD, HIDDEN),
        "attn_output.weight": (HIDDEN, HEADS * HEAD),
    }
)
HEAD_NORMS: Shapes = {"attn_q_norm.weight": (HEAD,), "attn_k_norm.weight": (HEAD,)}
ATTENTION_BIASES: Shapes = {f"attn_{one}.bias": (HEADS * HEAD,) for one in "qkv"}
FFN_NORM: Shapes = {"ffn_norm.weight": (HIDDEN,)}
POST_NORM: Shapes = {"post_attention_norm.weight": (HIDDEN,)}
LATENT: Shapes = {
    "attn_norm.weight": (HIDDEN,),
    "attn_q_a.weight": (QUERY_RANK, HIDDEN),
    "attn_q_a_norm.weight": (QUERY_RANK,),
    "attn_q_b.weight": (HEADS * (PLAIN + ROTARY), QUERY_RANK),
    "attn_kv_a_mqa.weight": (KEY_RANK + ROTARY, HIDDEN),
    "attn_kv_a_norm.weight": (KEY_RANK,),
    "attn_k_b.weight": (HEADS, KEY_RANK, PLAIN),
    "attn_v_b.weight": (HEADS, HEAD, KEY_RANK),
    "attn_output.weight": (HIDDEN, HEADS * HEAD),
}
GATED: Shapes = {**ATTENTION, **HEAD_NORMS, "attn_q.weight": (2 * HEADS * HEAD, HIDDEN)}
DELTA_NET: Shapes = {
    "attn_norm.weight": (HIDDEN,),
    "attn_qkv.weight": (STATE * (2 * KEY_HEADS + VALUE_HEADS), HIDDEN),
    "attn_gate.weight": (STATE * VALUE_HEADS, HIDDEN),
    "ssm_conv1d.weight": (STATE * (2 * KEY_HEADS + VALUE_HEADS), KERNEL),
    "ssm_dt.bias": (VALUE_HEADS,),
    "ssm_a": (VALUE_HEADS,),
    "ssm_ba.weight": (2 * VALUE_HEADS, HIDDEN),
    "ssm_norm.weight": (STATE,),
    "ssm_out.weight": (HIDDEN, STATE * VALUE_HEADS),
}
# Mamba 2: gates, states' inputs and outputs of both groups, and a step per head.
MAMBA: Shapes = {
    "attn_norm.weight": (HIDDEN,),
    "ssm_in.weight": (2 * HIDDEN + 2 * KEY_HEADS * STATE + HEADS, HIDDEN),
    "ssm_conv1d.weight": (HIDDEN + 2 * KEY_HEADS * STATE, KERNEL),
    "ssm_conv1d.bias": (HIDDEN + 2 * KEY_HEADS * STATE,),
    "ssm_dt.bias": (HEADS,),
    "ssm_a": (HEADS, 1),
    "ssm_d": (HEADS, 1),
    "ssm_norm.weight": (KEY_HEADS, HIDDEN // KEY_HEADS),
    "ssm_out.weight": (HIDDEN, HIDDEN),
}
# Low ranks on both sides of attention, and four streams of a residual that are mixed before and
# after each half of a layer.
STREAMS, OUTPUT_GROUPS = 4, 2
MIXING: Shapes = {
    f"hc_{half}_{what}.weight": shape
    for half in ("attn", "ffn")
    for what, shape in (
        ("fn", (STREAMS * (STREAMS + 2), STREAMS * HIDDEN)),
        ("base", (STREAMS * (STREAMS + 2),)),
        ("scale", (3,)),
    )
}
LOW_RANK: Shapes = {
    "attn_norm.weight": (HIDDEN,),
    "attn_sinks.weight": (HEADS,),
    "attn_q_a.weight": (QUERY_RANK, HIDDEN),
    "attn_q_a_norm.weight": (QUERY_RANK,),
    "attn_q_b.weight": (HEADS * HEAD, QUERY_RANK),
    "attn_kv.weight": (HEAD, HIDDEN),
    "attn_kv_a_norm.weight": (HEAD,),
    "attn_output_a.weight": (OUTPUT_GROUPS * KEY_RANK, HEADS * HEAD // OUTPUT_GROUPS),
    "attn_output_b.weight": (HIDDEN, OUTPUT_GROUPS * KEY_RANK),
}
# What a compressor of 4 or of 128 tokens has, and the indexer of the former.
INDEX = 64
COMPRESSOR: Shapes = {
    "attn_compressor_kv.weight": (HEAD, HIDDEN),
    "attn_compressor_gate.weight": (HEAD, HIDDEN),
    "attn_compressor_ape.weight": (128, HEAD),
    "attn_compressor_norm.weight": (HEAD,),
}
INDEXED: Shapes = {
    "attn_compressor_kv.weight": (2 * HEAD, HIDDEN),
    "attn_compressor_gate.weight": (2 * HEAD, HIDDEN),
    "attn_compressor_ape.weight": (4, 2 * HEAD),
    "attn_compressor_norm.weight": (HEAD,),
    "indexer.proj.weight": (HEADS, HIDDEN),
    "indexer.attn_q_b.weight": (HEADS * INDEX, QUERY_RANK),
    "indexer_compressor_kv.weight": (2 * INDEX, HIDDEN),
    "indexer_compressor_gate.weight": (2 * INDEX, HIDDEN),
    "indexer_compressor_ape.weight": (4, 2 * INDEX),
    "indexer_compressor_norm.weight": (INDEX,),
}
SHARED_EXPERT: Shapes = {
    "ffn_gate_shexp.weight": (SHARED, HIDDEN),
    "ffn_up_shexp.weight": (SHARED, HIDDEN),
    "ffn_down_shexp.weight": (HIDDEN, SHARED),
}
# A shared expert of the size of a routed one.
EQUAL_SHARED: Shapes = {
    "ffn_gate_shexp.weight": (INNER, HIDDEN),
    "ffn_up_shexp.weight": (INNER, HIDDEN),
    "ffn_down_shexp.weight": (HIDDEN, INNER),
}
DENSE_FFN: Shapes = {
    "ffn_gate.weight": (DENSE, HIDDEN),
    "ffn_up.weight": (DENSE, HIDDEN),
    "ffn_down.weight": (HIDDEN, DENSE),
}
CHUNKS: Shapes = {
    "ffn_gate_chexps.weight": (EXPERTS // 2, SHARED, HIDDEN),
    "ffn_up_chexps.weight": (EXPERTS // 2, SHARED, HIDDEN),
    "ffn_down_chexps.weight": (EXPERTS // 2, HIDDEN, SHARED),
}
# The experts of each token of the vocabulary, whatever its router says.
TABLE: Shapes = {"ffn_gate_tid2eid.weight": (VOCABULARY, TOP_K)}
PROBABILITY_BIAS: Shapes = {"exp_probs_b.bias": (EXPERTS,)}
NEXT_TOKEN: Shapes = {
    "nextn.eh_proj.weight": (HIDDEN, 2 * HIDDEN),
    "nextn.enorm.weight": (HIDDEN,),
    "nextn.hnorm.weight": (HIDDEN,),
}
ENDS: Shapes = MappingProxyType(
    {
        "token_embd.weight": (VOCABULARY, HIDDEN),
        "output_norm.weight": (HIDDEN,),
        "output.weight": (VOCABULARY, HIDDEN),
    }
)

QWEN2MOE: Shapes = {
    **ATTENTION,
    **ATTENTION_BIASES,
    **FFN_NORM,
    **SHARED_EXPERT,
    "ffn_gate_inp_shexp.weight": (HIDDEN,),
}
OLMOE: Shapes = {
    **ATTENTION,
    **FFN_NORM,
    "attn_q_norm.weight": (HIDDEN,),
    "attn_k_norm.weight": (HIDDEN,),
}
DEEPSEEK2: Shapes = {**LATENT, **FFN_NORM, **EQUAL_SHARED, **PROBABILITY_BIAS}
GPT_OSS: Shapes = {
    **ATTENTION,
    **ATTENTION_BIASES,
    **POST_NORM,
    "attn_output.bias": (HIDDEN,),
    "attn_sinks.weight": (HEADS,),
}
GLM4MOE: Shapes = {
    **ATTENTION,
    **ATTENTION_BIASES,
    **POST_NORM,
    **EQUAL_SHARED,
    **PROBABILITY_BIAS,
}
QWEN3NEXT_FFN: Shapes = {
    **POST_NORM,
    **SHARED_EXPERT,
    "ffn_gate_inp_shexp.weight": (HIDDEN,),
}
NEMOTRON_FFN: Shapes = {
    "attn_norm.weight": (HIDDEN,),
    "ffn_up_shexp.weight": (SHARED, HIDDEN),
    "ffn_down_shexp.weight": (HIDDEN, SHARED),
    **PROBABILITY_BIAS,
}
DEEPSEEK4: Shapes = {**LOW_RANK, **MIXING, **FFN_NORM, **EQUAL_SHARED}
LLAMA4: Shapes = {**ATTENTION, **FFN_NORM, **EQUAL_SHARED}

MERGED: Shapes = {
    "attn_norm.weight": (HIDDEN,),
    "attn_qkv.weight": (3 * HEADS * HEAD, HIDDEN),
    "attn_output.weight": (HIDDEN, HEADS * HEAD),
    **HEAD_NORMS,
    **FFN_NORM,
}
BERT: Shapes = {
    **{name: shape for name, shape in ATTENTION.items() if name != "attn_norm.weight"},
    "attn_output_norm.weight": (HIDDEN,),
    "attn_output_norm.bias": (HIDDEN,),
    "layer_output_norm.weight": (HIDDEN,),
    "layer_output_norm.bias": (HIDDEN,),
}
BERT_DENSE: Shapes = {
    **BERT,
    "ffn_up.weight": (INNER, HIDDEN),
    "ffn_down.weight": (HIDDEN, INNER),
}
BERT_ENDS: Shapes = {
    "token_embd.weight": (VOCABULARY, HIDDEN),
    "token_embd_norm.weight": (HIDDEN,),
    "token_embd_norm.bias": (HIDDEN,),
}
STREAM_ENDS: Shapes = {
    **ENDS,
    "output_hc_fn.weight": (STREAMS, STREAMS * HIDDEN),
    "output_hc_base.weight": (STREAMS,),
    "output_hc_scale.weight": (1,),
}
