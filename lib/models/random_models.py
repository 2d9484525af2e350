"""Random models and a tokenizer made on the spot: all that a check of the engine needs where no weights can be fetched.

What a random model says is senseless, but whether two ways to compute it agree shows all the same. The tokenizer is a byte-level BPE with
special tokens, a normaliser and a chat template, so that it has the corners of a real one.

Not covered: saying anything about language.
"""

from __future__ import annotations

from typing import Any

import torch

from lib.models.weights import LoadedModel

BOS, START, END = "<|begin|>", "<|turn|>", "<|end|>"  # of the chat tokenizer, ids 0, 1, 2
TOOL = "<tool>"  # added but not special, as Qwen's `<tool_call>`
VOCABULARY = 384  # width of the chat models' logits: wider than the tokenizer, as in Qwen
CHATML = (
    "{% for message in messages %}<|turn|>{{ message['role'] }}\n{{ message['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|turn|>assistant\n{% endif %}"
)
_TEXT = [
    "the ferry left the harbour at noon and nobody saw it leave",
    'user assistant system {"answer": "none", "evidence": [0, 1, 2]}',
    "Source A - Claim: the tower has 148 steps. Question: which river flows past the mill?",
]


def chat_tokenizer(template: str | None = CHATML, *, adds_bos: bool = False) -> Any:
    """Return a byte-level BPE tokenizer with special tokens, a normaliser (NFC) and a chat template."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
    from transformers import PreTrainedTokenizerFast

    inner = Tokenizer(models.BPE())
    inner.normalizer = normalizers.NFC()
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    inner.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    inner.train_from_iterator(
        _TEXT,
        trainers.BpeTrainer(
            vocab_size=340, special_tokens=[BOS, START, END], initial_alphabet=alphabet, show_progress=False
        ),
    )
    if adds_bos:
        inner.post_processor = processors.TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    inner.add_tokens([AddedToken(TOOL, special=False, normalized=False)])
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=inner, bos_token=BOS, eos_token=END, pad_token=END)
    tokenizer.chat_template = template
    return tokenizer


def chat_config(family: str, **changes: Any) -> Any:
    """Return the configuration of a three-layer model with grouped heads, of "llama", "qwen2", "qwen3" or "mistral"."""
    from transformers import LlamaConfig, MistralConfig, Qwen2Config, Qwen3Config

    kinds = {"llama": LlamaConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config, "mistral": MistralConfig}
    settings: dict[str, Any] = {
        "vocab_size": VOCABULARY,
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "initializer_range": 0.25,  # far from uniform: the next token hangs on what was read
        "bos_token_id": 0,
        "eos_token_id": 2,
        "pad_token_id": 2,
    }
    if family == "qwen3":
        settings["head_dim"] = 12  # not hidden_size / heads
    if family == "mistral":
        settings["sliding_window"] = None
    return kinds[family](**{**settings, **changes})


def chat_model(family: str, *, seed: int = 0, dtype: torch.dtype = torch.float32, **changes: Any) -> Any:
    """Return a random model; the same arguments give the same numbers."""
    from transformers import AutoModelForCausalLM

    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_config(chat_config(family, **changes)).to(dtype).eval()
    for values in model.parameters():
        if values.dim() == 1:  # biases start at 0 and norms at 1, which would hide a mistake in them
            values.data += 0.2 * torch.randn_like(values)
    return model.requires_grad_(False)


def loaded_chat(
    family: str,
    *,
    device: str = "cpu",
    ends: int = 1,
    template: str = CHATML,
    dtype: torch.dtype = torch.float32,
    **changes: Any,
) -> LoadedModel:
    """Return a random model with its tokenizer as if it had been loaded.

    `ends` is how many tokens end a reply: with dozens of them, replies end at many lengths. Other options go to `chat_model`.
    """
    model = chat_model(family, dtype=dtype, **changes).to(device)
    model.generation_config.eos_token_id = end_tokens(ends)
    return LoadedModel(
        model=model,
        tokenizer=chat_tokenizer(template),
        name=f"tiny-{family}",
        sha256="0" * 64,
        dtype=str(dtype).removeprefix("torch."),
        device=device,
        n_parameters=sum(values.numel() for values in model.parameters()),
    )


def end_tokens(ends: int) -> list[int]:
    """Return the ids that end a reply: the tokenizer's own, then single characters."""
    return [2, *range(40, 39 + ends)]
