"""Other engines as contenders of `python -m lib bench`: llama.cpp and vLLM, each with its own way to reuse prefixes.

Context. The suite's replay claims to be fast. Plain `generate` is a weak opponent; engines that people run for speed are better ones.

How it works. An engine continues token sequences greedily: `generate(encoded, new_tokens)` returns the new tokens of each prompt in the
order given, without the end token and what follows it. Prompts come as token ids, so that all contenders read the same input. Every call
starts with an empty cache and therefore costs the same; `tokens_read` says how many prompt tokens the last call computed.

- llama.cpp, through llama-cpp-python, on the GGUF file that the suite's weights were unpacked from: prompts in sorted order, the
  key-value cache cut back to what the next prompt shares with it, the rest evaluated, tokens decoded one by one. It computes on the
  4-bit blocks, so some outputs differ from those of the unpacked weights.
- vLLM with `enable_prefix_caching` on the unpacked weights: all prompts at once, on a CUDA device.

How to read the result. An engine that cannot run here is no error: `open_engines` returns one line with the reason and the way to mend it.

Not covered: installing them (neither is among the suite's dependencies), llama.cpp's parallel sequences, sampling, schemas.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import msgspec
import psutil

from lib.models.prefix_tree import common_prefix
from lib.models.weights import LoadedModel
from lib.runs.bench.contenders import Tokens
from lib.sources import SourceError, catalogue, locate

BATCH = 512  # prompt tokens that llama.cpp evaluates at a time
MEMORY_SHARE = 0.4  # of the device's memory for vLLM: the suite's own weights are on it too


class Engine(Protocol):
    """A contender; see the module header.

    Attributes
    ----------
    name : str
        For the table.
    tokens_read : int or None
        Prompt tokens that the last `generate` computed, padding included; None when the engine does not tell.
    rows_decoded : int or None
        Tokens it computed to continue them: one for each token that another follows, in every row of a batch.
    """

    name: str
    tokens_read: int | None
    rows_decoded: int | None

    def generate(self, encoded: Sequence[Sequence[int]], new_tokens: int) -> Tokens:
        """Return up to `new_tokens` greedy tokens a prompt, in the order given, up to the first end token."""
        ...

    def close(self) -> None:
        """Free the engine's memory."""
        ...


class EngineUnavailable(Exception):
    """An engine cannot run here; the message is one line with the reason and the fix."""


class Engines(msgspec.Struct, frozen=True):
    """The engines that can run here, and one line for each that cannot."""

    ready: tuple[Engine, ...]
    skipped: tuple[str, ...]


def open_engines(name: str, loaded: LoadedModel, ends: frozenset[int], longest: int) -> Engines:
    """Open every engine that can run here.

    Parameters
    ----------
    name : the model as the user named it: a name of data/sources.toml, a folder or a GGUF file
    loaded : the same model as the suite loaded it; tells device, dtype and the folder of the unpacked weights
    ends : token ids that end a reply
    longest : the most tokens of a prompt and its reply together
    """
    ready: list[Engine] = []
    skipped = []
    for engine, opener in (("llama.cpp", open_llamacpp), ("vLLM", open_vllm)):
        try:
            ready.append(opener(name, loaded, ends, longest))
        except EngineUnavailable as reason:
            skipped.append(str(reason))
        except Exception as error:  # noqa: BLE001 - a broken installation or a full card raises as it likes
            skipped.append(f"{engine}: does not open: {type(error).__name__}: {' '.join(str(error).split())[:300]}")
    return Engines(tuple(ready), tuple(skipped))


# -------------------------------------------------------------------------------------------------------------------------- llama.cpp


class LlamaCpp:
    """llama.cpp with one key-value cache, cut back to the shared prefix before each prompt.

    Parameters
    ----------
    llama : `llama_cpp.Llama`
    ends : token ids that end a reply
    """

    name = "llama.cpp, prefix reuse"

    def __init__(self, llama: Any, ends: frozenset[int]) -> None:
        self._llama = llama
        self._ends = ends
        self.tokens_read: int | None = 0
        self.rows_decoded: int | None = 0

    def generate(self, encoded: Sequence[Sequence[int]], new_tokens: int) -> Tokens:
        """See `Engine.generate`; in sorted order neighbours share the most, so that every node of the prefix tree is read once."""
        replies: dict[tuple[int, ...], tuple[int, ...]] = {}
        previous: tuple[int, ...] = ()
        read = 0
        self.rows_decoded = 0
        self._llama.reset()
        for prompt in sorted({tuple(tokens) for tokens in encoded}):
            # Never the whole prompt: what is the beginning of another comes before it. So there is a token to decode from.
            shared = common_prefix(previous, prompt)
            self._llama.n_tokens = shared  # `eval` drops what the cache holds behind this
            self._llama.eval(prompt[shared:])
            read += len(prompt) - shared
            replies[prompt] = self._decode(new_tokens)
            previous = prompt
        self.tokens_read = read
        return [replies[tuple(tokens)] for tokens in encoded]

    def _decode(self, new_tokens: int) -> tuple[int, ...]:
        new: list[int] = []
        while len(new) < new_tokens:
            if new:
                self._llama.eval(new[-1:])
                self.rows_decoded = (self.rows_decoded or 0) + 1
            token = int(self._llama.sample(temp=0.0))
            if token in self._ends:
                break
            new.append(token)
        return tuple(new)

    def close(self) -> None:
        """Free the model."""
        self._llama.close()


def open_llamacpp(name: str, loaded: LoadedModel, ends: frozenset[int], longest: int) -> LlamaCpp:
    """Open llama.cpp on the GGUF file of `name`; see `open_engines`.

    Raises
    ------
    EngineUnavailable
        When llama-cpp-python is not installed or built for another device, or the model is no GGUF file.
    """
    if importlib.util.find_spec("llama_cpp") is None:
        raise EngineUnavailable(
            "llama.cpp: not installed; `pip install -e '.[llamacpp]'` builds it (a C++ compiler, some ten minutes)"
        )
    gguf = gguf_of(name)
    if gguf is None:
        raise EngineUnavailable(f"llama.cpp: {name} is no GGUF file, and it reads no other; give the path of one")
    llama_cpp = importlib.import_module("llama_cpp")
    on_gpu = loaded.device.startswith("cuda")
    if on_gpu and not llama_cpp.llama_supports_gpu_offload():
        raise EngineUnavailable(
            "llama.cpp: built without the GPU that the suite runs on; build it with CMAKE_ARGS=-DGGML_CUDA=on, or "
            "compare on the CPU"
        )
    threads = physical_cores()
    llama = llama_cpp.Llama(
        str(gguf),
        n_ctx=longest,
        n_batch=BATCH,
        n_threads=threads,
        n_threads_batch=threads,
        n_gpu_layers=-1 if on_gpu else 0,
        flash_attn=on_gpu,  # on a CPU it is no faster
        verbose=False,
    )
    return LlamaCpp(llama, ends)


def gguf_of(name: str) -> Path | None:
    """Return the GGUF file that `name` means, if it is one and on this machine."""
    try:
        place = locate(name, fetch=False) if name in catalogue() else Path(name).expanduser()
    except SourceError:
        return None
    files = sorted(place.glob("*.gguf")) if place.is_dir() else [place]
    return files[0].resolve() if len(files) == 1 and files[0].suffix == ".gguf" and files[0].is_file() else None


def physical_cores() -> int:
    """Return the physical cores that this process may use: hyperthreads only slow matrix products down."""
    cores = psutil.cpu_count(logical=False) or os.cpu_count() or 1
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else cores
    return max(1, min(cores, allowed))


# ------------------------------------------------------------------------------------------------------------------------------- vLLM


class Vllm:
    """vLLM with automatic prefix caching, which shares whole blocks of tokens.

    Parameters
    ----------
    llm : `vllm.LLM`
    sampling : callable
        `vllm.SamplingParams`.
    ends : token ids that end a reply
    """

    name = "vLLM, prefix caching"

    def __init__(self, llm: Any, sampling: Any, ends: frozenset[int]) -> None:
        self._llm = llm
        self._sampling = sampling
        self._ends = ends
        self.tokens_read: int | None = 0
        self.rows_decoded: int | None = 0

    def generate(self, encoded: Sequence[Sequence[int]], new_tokens: int) -> Tokens:
        """See `Engine.generate`; all prompts are handed over at once, in sorted order, each distinct one once."""
        if self._llm.reset_prefix_cache() is False:
            raise RuntimeError("vLLM kept its prefix cache, so this call would cost less than the first; run again")
        distinct = sorted({tuple(tokens) for tokens in encoded})
        greedy = self._sampling(
            temperature=0.0, max_tokens=new_tokens, stop_token_ids=sorted(self._ends), detokenize=False
        )
        asked = [{"prompt_token_ids": list(tokens)} for tokens in distinct]
        outputs = self._llm.generate(asked, greedy, use_tqdm=False)
        cached = [output.num_cached_tokens for output in outputs]
        self.tokens_read = None if None in cached else sum(map(len, distinct)) - sum(cached)
        self.rows_decoded = sum(len(output.outputs[0].token_ids) - 1 for output in outputs)
        replies = {
            tokens: tuple(token for token in output.outputs[0].token_ids if token not in self._ends)
            for tokens, output in zip(distinct, outputs, strict=True)
        }
        return [replies[tuple(tokens)] for tokens in encoded]

    def close(self) -> None:
        """Drop the engine; its worker ends with the last reference."""
        del self._llm


def open_vllm(name: str, loaded: LoadedModel, ends: frozenset[int], longest: int) -> Vllm:
    """Open vLLM on the unpacked weights; see `open_engines`.

    Raises
    ------
    EngineUnavailable
        When the suite does not run on a CUDA device, or vLLM is not installed.
    """
    if not loaded.device.startswith("cuda"):
        raise EngineUnavailable(f"vLLM: compared on a CUDA device only, and {name} is on {loaded.device}")
    if importlib.util.find_spec("vllm") is None:
        raise EngineUnavailable(
            "vLLM: not installed; it pins a torch of its own, so put suite and `pip install vllm` into a second environment"
        )
    vllm = importlib.import_module("vllm")
    llm = vllm.LLM(
        model=str(loaded.model.name_or_path),
        dtype=loaded.dtype,
        enable_prefix_caching=True,
        max_model_len=longest,
        gpu_memory_utilization=MEMORY_SHARE,
        seed=0,
    )
    return Vllm(llm, vllm.SamplingParams, ends)
