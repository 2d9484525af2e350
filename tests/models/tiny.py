"""Tiny random models, in memory or on disk, for tests that need a real model of the library but no download."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from lib.models.random_models import (
    loaded_chat,
)
from lib.models.transformers_receiver import TransformersReceiver

PIECES = ["<unk>", "<s>", "</s>", "t", "h", "e", "th", "the", "a", "n", "o", "an"]  # of the byte-level GGUF tokenizer
WORDS = ["<unk>", "<s>", "</s>", "the", "ferry", "left", "at", "noon", "and", "nobody", "saw", "it"]


def chat_receiver(family: str, **options: Any) -> TransformersReceiver:
    """Return a receiver with a random model; options that `TransformersReceiver` does not know go to `loaded_chat`."""
    own = {key: options.pop(key) for key in ("max_slots", "max_row_tokens", "pack") if key in options}
    return TransformersReceiver(loaded=loaded_chat(family, **options), **own)


def write_tokenizer(folder: Path) -> None:
    """Write a word-level tokenizer of `WORDS`."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="<unk>"))
    inner.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=inner, unk_token="<unk>", bos_token="<s>", eos_token="</s>", pad_token="</s>"
    ).save_pretrained(folder)


def write_llama(folder: Path, *, dtype: torch.dtype = torch.float32, seed: int = 0, shards: int = 1) -> Path:
    """Write a Llama of some ten thousand random numbers and its tokenizer; returns `folder`."""
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = LlamaForCausalLM(config).to(dtype)
    model.save_pretrained(folder, max_shard_size="1GB" if shards == 1 else "15KB")
    write_tokenizer(folder)
    return folder


def write_gguf(path: Path, seed: int = 0) -> dict[str, np.ndarray]:
    """Write a Qwen2 of random numbers as GGUF, one matrix in 8-bit blocks; returns the tensors by their transformers names."""
    import gguf

    rng = np.random.default_rng(seed)
    width, inner, heads, kv_heads, vocabulary = 32, 64, 4, 2, len(PIECES)
    kv = width // heads * kv_heads
    block = {
        "attn_norm.weight": ("input_layernorm.weight", (width,)),
        "ffn_norm.weight": ("post_attention_layernorm.weight", (width,)),
        "attn_q.weight": ("self_attn.q_proj.weight", (width, width)),
        "attn_q.bias": ("self_attn.q_proj.bias", (width,)),
        "attn_k.weight": ("self_attn.k_proj.weight", (kv, width)),
        "attn_k.bias": ("self_attn.k_proj.bias", (kv,)),
        "attn_v.weight": ("self_attn.v_proj.weight", (kv, width)),
        "attn_v.bias": ("self_attn.v_proj.bias", (kv,)),
        "attn_output.weight": ("self_attn.o_proj.weight", (width, width)),
        "ffn_gate.weight": ("mlp.gate_proj.weight", (inner, width)),
        "ffn_up.weight": ("mlp.up_proj.weight", (inner, width)),
        "ffn_down.weight": ("mlp.down_proj.weight", (width, inner)),
    }
    names = {f"blk.0.{key}": (f"model.layers.0.{name}", shape) for key, (name, shape) in block.items()}
    names["token_embd.weight"] = ("model.embed_tokens.weight", (vocabulary, width))
    names["output_norm.weight"] = ("model.norm.weight", (width,))
    names["output.weight"] = ("lm_head.weight", (vocabulary, width))

    writer = gguf.GGUFWriter(str(path), "qwen2")
    writer.add_name("tiny")
    writer.add_context_length(128)
    writer.add_embedding_length(width)
    writer.add_block_count(1)
    writer.add_feed_forward_length(inner)
    writer.add_head_count(heads)
    writer.add_head_count_kv(kv_heads)
    writer.add_layer_norm_rms_eps(1e-6)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(vocabulary)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(PIECES)
    writer.add_token_types([3, 3, 3] + [1] * (vocabulary - 3))  # 3: control, 1: normal
    writer.add_token_merges(["t h", "th e", "a n"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    written: dict[str, np.ndarray] = {}
    for key, (name, shape) in names.items():
        values = rng.standard_normal(shape).astype(np.float32) * 0.2
        if key.endswith("ffn_up.weight"):
            packed = gguf.quants.quantize(values, gguf.GGMLQuantizationType.Q8_0)
            writer.add_tensor(key, packed, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
            values = gguf.quants.dequantize(packed, gguf.GGMLQuantizationType.Q8_0)
        else:
            writer.add_tensor(key, values)
        written[name] = values
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return written
