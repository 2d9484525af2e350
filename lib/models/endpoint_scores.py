"""Log-likelihoods of given texts behind a server.

Context. `Receiver.score` asks how likely each option is as the start of the reply. A chat route cannot say that: it gives
log-probabilities of what it chose, not of what it is given. /completions with `echo` gives those of the prompt's own tokens.

Intuition. Prompt and option are framed here, by the model's own chat template, and sent as one prompt; the log-probabilities of
its last tokens, the option's, are added up. vLLM and SGLang take the token ids themselves, so these are exactly those of the local
engine. llama-cpp-python takes text; where option and prompt would share a token there, it is refused.

How to read it. Nats, as from a local model; precision and kernels of the server are its own.

Not covered: Ollama, llama.cpp's own server and transformers serve, which give no log-probabilities of a given text (refused by name);
tokenizers that start with a token of their own, on llama-cpp-python.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lib.models.endpoint_settings import EndpointError
from lib.models.receiver import Prompt, Reply, options_per_prompt

if TYPE_CHECKING:
    from lib.models.endpoint_receiver import EndpointReceiver


class NoLogProbabilitiesError(NotImplementedError):
    """A server that cannot score a given text."""


def score(
    receiver: EndpointReceiver, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]
) -> np.ndarray:
    """Return log-likelihoods in nats, shape (n_prompts, n_options); see `EndpointReceiver.score`."""
    choices = options_per_prompt(len(prompts), options)
    form = receiver.kind.scores
    if not form or receiver.encoder is None:
        lacking = (
            f"{receiver.kind.title} gives no log-probabilities of a given text; use vLLM or SGLang, or a local model"
            if not form
            else "log-probabilities of a given text need the model's tokenizer; add #tokenizer=<folder, GGUF file or hub id>"
        )
        raise NoLogProbabilitiesError(
            f"{receiver.name}: {lacking}. They are needed by the calibration of verdicts (verification workloads) and by gains and "
            "probes of coordination; replay, policies and communication schemes need none"
        )
    pairs = [(prompt, option) for prompt, row in zip(prompts, choices, strict=True) for option in row]
    # Tokenised before the requests run side by side: a tokenizer's switch for special tokens is one for all threads.
    build = _as_ids if form == "ids" else _as_text
    asked = [build(receiver, prompt, option) for prompt, option in pairs]
    values = receiver.side_by_side(lambda one: _sum(receiver, *one), asked)
    return np.array(values, dtype=float).reshape(len(prompts), len(choices[0]) if choices else 0)


def _as_ids(receiver: EndpointReceiver, prompt: Prompt, option: str) -> tuple[list[int], int]:
    """Return the token ids of prompt and option, and how many are the option's."""
    assert receiver.encoder is not None
    tokens = list(receiver.encoder.encode_text(option))
    return receiver.encoder.encode(prompt) + tokens, len(tokens)


def _as_text(receiver: EndpointReceiver, prompt: Prompt, option: str) -> tuple[str, int]:
    """Return the text of prompt and option, and how many of its tokens there are the option's."""
    assert receiver.encoder is not None
    if (forged := receiver.forged(prompt)) is not None:
        raise EndpointError(f"{receiver.name}: {forged}")
    turns = [{"role": turn.role, "content": turn.text} for turn in prompt.turns]
    framed = str(receiver.encoder.tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True))
    before, whole = receiver.tokens_there(framed), receiver.tokens_there(framed + option)
    if whole[: len(before)] != before:
        raise EndpointError(f"{receiver.name}: option {option!r} shares a token with the end of the prompt there")
    return framed + option, len(whole) - len(before)


def _sum(receiver: EndpointReceiver, prompt: list[int] | str, count: int) -> float:
    """Return the summed log-probabilities of the last `count` tokens of a prompt."""
    if not count:
        raise ValueError("an option has no tokens; every option needs at least one")
    fields = {"max_tokens": 1, "temperature": 0.0, "echo": True, "logprobs": 1}
    answer = receiver.ask({"prompt": prompt}, fields)
    if isinstance(answer, Reply):
        raise _refusal(receiver, answer.error or "")
    try:
        value = json.loads(answer)
        told: list[Any] = value["choices"][0]["logprobs"]["token_logprobs"]
        new = value["usage"]["completion_tokens"]
        wanted = [float(number) for number in told[len(told) - new - count : len(told) - new]]
    except (ValueError, TypeError, KeyError, IndexError):
        raise _refusal(receiver, "its answer holds no log-probabilities of the prompt") from None
    if len(wanted) != count:
        raise _refusal(receiver, f"its answer holds {len(told)} log-probabilities")
    return sum(wanted)


def _refusal(receiver: EndpointReceiver, reason: str) -> NoLogProbabilitiesError:
    hint = "; start it with --logits_all true" if "logits_all" in reason else ""
    return NoLogProbabilitiesError(f"{receiver.name}: no log-probabilities of a given text: {reason}{hint}")
