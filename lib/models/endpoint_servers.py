"""What each kind of server takes and tells beyond the routes that all share.

Context. vLLM, SGLang, Ollama, llama.cpp and transformers all answer `/v1/chat/completions`, but they differ in how a JSON schema is asked
for, in whether a given text gets log-probabilities, in how tokens are counted, and in what they do unasked.

Intuition. A server's defaults are part of the reply. Most take sampling settings from the model's own generation settings: a penalty
on repeated words, for one, which changes greedy replies too. `neutral` are the fields that switch such things off, so that temperature 0
is the likeliest token and temperature 1 the model's own distribution, as in this suite's own engine.

How to read it. `SERVERS["vllm"].scores` is "ids": the server gives log-probabilities of a prompt's own tokens, and takes token ids.
An empty text says that a server cannot do it.

Not covered: Ollama's penalty and context length, which only its own routes and model files set (see docs/endpoints.md).
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec


class Tokenize(msgspec.Struct, frozen=True):
    """A server's own route that counts tokens: POST `path` under the root, the text in `field`, token ids in `answer`."""

    path: str
    field: str
    fields: dict[str, Any] = {}
    answer: str = "tokens"
    names_model: bool = True


class ServerKind(msgspec.Struct, frozen=True):
    """What is known of one kind of server.

    Attributes
    ----------
    title : str
        For people.
    start : str
        A command that starts one.
    schema : str
        How strict JSON is asked for: "json_schema" (OpenAI's form), "json_object" (the schema beside it), or "" (it cannot).
    scores : str
        How a given text gets log-probabilities, with `echo` on /completions: prompt as "ids" or "text", or "" (it cannot).
    neutral : dict
        Fields of every request that switch off what the model's or server's defaults would do to its distribution.
    sampled : dict
        Further fields above temperature 0.
    tokenize : Tokenize, optional
    lists_all : bool
        Whether a model that is not in its list cannot be asked.
    """

    title: str
    start: str
    schema: Literal["json_schema", "json_object", ""] = "json_schema"
    scores: Literal["ids", "text", ""] = ""
    neutral: dict[str, Any] = {}
    sampled: dict[str, Any] = {}
    tokenize: Tokenize | None = None
    lists_all: bool = True


_NO_TRUNCATION = {"top_k": -1, "min_p": 0.0, "repetition_penalty": 1.0}
_TOKENS = Tokenize("/tokenize", "prompt", {"add_special_tokens": False})

SERVERS: dict[str, ServerKind] = {
    "vllm": ServerKind("vLLM", "vllm serve MODEL", scores="ids", neutral=_NO_TRUNCATION, tokenize=_TOKENS),
    "sglang": ServerKind(
        "SGLang",
        "python -m sglang.launch_server --model-path MODEL",
        scores="ids",
        neutral=_NO_TRUNCATION,
        tokenize=_TOKENS,
    ),
    "ollama": ServerKind("Ollama", "ollama serve"),
    "llamacpp": ServerKind(
        "llama.cpp",
        "llama-server -m MODEL.gguf",
        neutral={"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0},
        tokenize=Tokenize("/tokenize", "content", {"add_special": False, "parse_special": False}, names_model=False),
    ),
    "llama-cpp-python": ServerKind(
        "llama-cpp-python",
        "python -m llama_cpp.server --model MODEL.gguf",
        schema="json_object",
        scores="text",
        neutral={"top_k": 0, "min_p": 0.0, "repeat_penalty": 1.0},
        tokenize=Tokenize("/extras/tokenize", "input"),
    ),
    "transformers": ServerKind(
        "transformers serve",
        "transformers serve MODEL",
        schema="",
        neutral={"frequency_penalty": 0.0},  # it becomes a repetition penalty of 1 + this, in place of the model's own
        sampled={"generation_config": '{"do_sample": true, "top_k": 0, "top_p": 1.0, "repetition_penalty": 1.0}'},
        lists_all=False,  # it loads what it is asked for
    ),
    "other": ServerKind("this server", "your server"),
}

OWNERS = {"vllm": "vllm", "sglang": "sglang", "llamacpp": "llamacpp", "me": "llama-cpp-python"}  # `owned_by` in /models
