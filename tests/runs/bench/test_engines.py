"""Other engines in the comparison: what they reuse, what they return, and why they are left out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.models.chat import ChatEncoder
from lib.models.prefix_tree import build_tree
from lib.models.receiver import Prompt, Turn
from lib.models.weights import LoadedModel, load_weights
from lib.runs.bench import engines as module
from lib.runs.bench.engines import EngineUnavailable, LlamaCpp, Vllm, gguf_of, open_engines, open_llamacpp, open_vllm
from lib.seeds import seed_of
from tests.models.strategies import token_sets

END = 1


def next_token(context: Sequence[int]) -> int:
    """Return what the fake engines say next: it depends on every token of the context; 1 in 6 ends the reply."""
    return 1 + seed_of("next", list(context)) % 6


def expected(prompt: Sequence[int], new_tokens: int) -> tuple[int, ...]:
    context = list(prompt)
    while len(context) < len(prompt) + new_tokens and (token := next_token(context)) != END:
        context.append(token)
    return tuple(context[len(prompt) :])


class FakeLlama:
    """`llama_cpp.Llama` as far as it is used: a cache whose valid length is `n_tokens`, filled by `eval`."""

    def __init__(self) -> None:
        self.cache = [99] * 1000  # of some earlier call
        self.n_tokens = 7
        self.evaluated = 0
        self.fresh = self.closed = False

    def reset(self) -> None:
        self.n_tokens, self.fresh = 0, False

    def eval(self, tokens: Sequence[int]) -> None:
        assert len(tokens) > 0
        self.cache[self.n_tokens :] = tokens
        self.n_tokens += len(tokens)
        self.evaluated += len(tokens)
        self.fresh = True

    def sample(self, temp: float) -> int:
        assert temp == 0.0 and self.fresh, "logits belong to the last evaluation"
        return next_token(self.cache[: self.n_tokens])

    def close(self) -> None:
        self.closed = True


@given(token_sets(), st.integers(0, 5))
def test_llamacpp_reuses_the_longest_common_prefix_and_nothing_else(prompts: list[list[int]], new_tokens: int) -> None:
    llama = FakeLlama()
    engine = LlamaCpp(llama, frozenset({END}))
    costs = []
    for _ in range(2):  # the second call finds a full cache and must not profit from it
        before = llama.evaluated
        assert engine.generate(prompts, new_tokens) == [expected(prompt, new_tokens) for prompt in prompts]
        decoded = sum(max(0, min(len(reply) + 1, new_tokens) - 1) for reply in replies_of(prompts, new_tokens))
        costs.append(llama.evaluated - before - decoded)
        assert engine.tokens_read == costs[-1]
    assert costs == 2 * [len(build_tree(prompts))]


def replies_of(prompts: Sequence[Sequence[int]], new_tokens: int) -> list[tuple[int, ...]]:
    return [expected(prompt, new_tokens) for prompt in {tuple(prompt) for prompt in prompts}]


def test_llamacpp_reads_what_is_new_by_hand() -> None:
    llama = FakeLlama()
    engine = LlamaCpp(llama, frozenset({END}))
    engine.generate([[5, 6, 7, 9], [5, 6, 7, 8], [5, 6], [4], [5, 6, 7, 9]], 1)
    # sorted: 4 | 5 6 | .. 7 8 | ... 9; the repetition costs nothing
    assert engine.tokens_read == llama.evaluated == 1 + 2 + 2 + 1
    engine.close()
    assert llama.closed


class FakeLlm:
    """`vllm.LLM` as far as it is used; its cache shares whole blocks of two tokens."""

    def __init__(self, *, tells: bool = True, resets: bool = True) -> None:
        self.tells, self.resets = tells, resets
        self.blocks: set[tuple[int, ...]] = set()

    def reset_prefix_cache(self) -> bool:
        if self.resets:
            self.blocks.clear()
        return self.resets

    def generate(self, prompts: list[dict[str, list[int]]], sampling: SimpleNamespace, use_tqdm: bool) -> list[object]:
        assert (sampling.temperature, sampling.stop_token_ids, use_tqdm) == (0.0, [END], False)
        outputs = []
        for prompt in prompts:
            ids = prompt["prompt_token_ids"]
            starts = [tuple(ids[:stop]) for stop in range(2, len(ids), 2)]
            cached = 2 * sum(start in self.blocks for start in starts) if self.tells else None
            self.blocks |= set(starts)
            reply = expected(ids, sampling.max_tokens)
            ended = len(reply) < sampling.max_tokens
            said = SimpleNamespace(token_ids=[*reply, *([END] if ended else [])])
            outputs.append(SimpleNamespace(outputs=[said], num_cached_tokens=cached))
        return outputs


@given(token_sets(), st.integers(1, 5))
def test_vllm_keeps_order_drops_the_end_token_and_starts_afresh(prompts: list[list[int]], new_tokens: int) -> None:
    engine = Vllm(FakeLlm(), SimpleNamespace, frozenset({END}))
    read = []
    for _ in range(2):
        assert engine.generate(prompts, new_tokens) == [expected(prompt, new_tokens) for prompt in prompts]
        read.append(engine.tokens_read)
    assert read[0] == read[1] is not None
    assert len(build_tree(prompts)) <= read[0] <= sum(map(len, {tuple(prompt) for prompt in prompts}))


def test_vllm_says_nothing_where_it_knows_nothing() -> None:
    silent = Vllm(FakeLlm(tells=False), SimpleNamespace, frozenset({END}))
    silent.generate([[3, 4]], 1)
    assert silent.tokens_read is None
    with pytest.raises(RuntimeError, match="kept its prefix cache"):
        Vllm(FakeLlm(resets=False), SimpleNamespace, frozenset({END})).generate([[3, 4]], 1)


# --------------------------------------------------------------------------------------------------------------------- who can run here

ON_CPU = LoadedModel(None, None, "m", "0" * 64, "float32", "cpu", 0)
ON_GPU = replace(ON_CPU, device="cuda:0")


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF")
    return path


def installed(monkeypatch: pytest.MonkeyPatch, **modules: object) -> None:
    """Let exactly these modules be installed."""
    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: modules.get(name))
    monkeypatch.setattr(module.importlib, "import_module", modules.__getitem__)


def test_what_is_not_installed_is_one_line_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, gguf: Path
) -> None:
    installed(monkeypatch)
    engines = open_engines(str(gguf), ON_GPU, frozenset({END}), 100)
    assert engines.ready == ()
    assert [line.split(":")[0] for line in engines.skipped] == ["llama.cpp", "vLLM"]
    assert all("not installed" in line and "pip install" in line and "\n" not in line for line in engines.skipped)


def test_an_engine_that_does_not_open_is_one_line_too(monkeypatch: pytest.MonkeyPatch, gguf: Path) -> None:
    """A library that is missing beside the package, a model it cannot read, a card that is full."""

    def broken(*given: object, **settings: object) -> None:
        raise OSError("libllama.so:\ncannot open shared object file")

    installed(monkeypatch, llama_cpp=SimpleNamespace(Llama=broken, llama_supports_gpu_offload=lambda: True))
    engines = open_engines(str(gguf), ON_CPU, frozenset({END}), 100)
    assert engines.ready == ()
    assert engines.skipped[0] == "llama.cpp: does not open: OSError: libllama.so: cannot open shared object file"


def test_engines_that_are_here_are_opened_with_their_settings(monkeypatch: pytest.MonkeyPatch, gguf: Path) -> None:
    asked: dict[str, dict[str, object]] = {}

    def llama(path: str, **settings: object) -> FakeLlama:
        asked["llama"] = {"path": path, **settings}
        return FakeLlama()

    def llm(**settings: object) -> FakeLlm:
        asked["vllm"] = settings
        return FakeLlm()

    installed(
        monkeypatch,
        llama_cpp=SimpleNamespace(Llama=llama, llama_supports_gpu_offload=lambda: True),
        vllm=SimpleNamespace(LLM=llm, SamplingParams=SimpleNamespace),
    )
    monkeypatch.setattr(module, "physical_cores", lambda: 3)
    loaded = replace(ON_GPU, model=SimpleNamespace(name_or_path="/folder"), dtype="bfloat16")
    engines = open_engines(str(gguf), loaded, frozenset({END}), 100)
    assert engines.skipped == ()
    for engine in engines.ready:
        assert engine.generate([[3, 4, 5], [3, 4]], 3) == [expected([3, 4, 5], 3), expected([3, 4], 3)]
    assert asked["llama"]["path"] == str(gguf)
    assert {name: asked["llama"][name] for name in ("n_ctx", "n_batch", "n_threads", "n_gpu_layers")} == {
        "n_ctx": 100,
        "n_batch": 512,
        "n_threads": 3,
        "n_gpu_layers": -1,
    }
    assert {name: asked["vllm"][name] for name in ("model", "dtype", "enable_prefix_caching", "max_model_len")} == {
        "model": "/folder",
        "dtype": "bfloat16",
        "enable_prefix_caching": True,
        "max_model_len": 100,
    }


def test_engines_that_do_not_fit_the_run_say_why(monkeypatch: pytest.MonkeyPatch, gguf: Path, tmp_path: Path) -> None:
    here = SimpleNamespace(llama_supports_gpu_offload=lambda: False)
    installed(monkeypatch, llama_cpp=here, vllm=here)
    with pytest.raises(EngineUnavailable, match="is no GGUF file"):
        open_llamacpp(str(tmp_path / "folder"), ON_CPU, frozenset(), 100)
    with pytest.raises(EngineUnavailable, match="built without the GPU"):
        open_llamacpp(str(gguf), ON_GPU, frozenset(), 100)
    with pytest.raises(EngineUnavailable, match="on a CUDA device only, and m is on cpu"):
        open_vllm("m", ON_CPU, frozenset(), 100)


def test_the_gguf_file_is_found_by_name_folder_or_path(
    tmp_path: Path, gguf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gguf_of(str(gguf)) == gguf_of(str(tmp_path)) == gguf
    (tmp_path / "second.gguf").write_bytes(b"GGUF")
    assert gguf_of(str(tmp_path)) is None, "two files: which one is meant?"
    assert gguf_of(str(tmp_path / "missing.gguf")) is None
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "empty"))
    monkeypatch.setenv("LAB_MODELS", str(tmp_path / "none"))
    assert gguf_of("smollm2-135m") is None, "named but not fetched: nothing is downloaded for a comparison"


@pytest.mark.real("smollm2-135m")
def test_llamacpp_itself_says_the_same_with_and_without_reuse() -> None:
    pytest.importorskip("llama_cpp", reason="the extra `llamacpp` is not installed")
    loaded = load_weights("smollm2-135m", device="cpu", dtype="float32")
    encoder = ChatEncoder(loaded.tokenizer, loaded.name)
    opening = Turn("system", "You answer questions about capital cities, shortly and correctly.")
    asked = [f"What is the capital of {country}?" for country in ("France", "Germany", "Italy", "Norway")]
    encoded = [encoder.encode(Prompt((opening, Turn("user", text)))) for text in asked]
    ends = frozenset({encoder.tokenizer.eos_token_id})
    engine = open_llamacpp("smollm2-135m", loaded, ends, 12 + max(map(len, encoded)))
    try:
        apart = []
        for prompt in encoded:
            apart += engine.generate([prompt], 12)
            assert engine.tokens_read == len(prompt)
        assert engine.generate(encoded, 12) == apart
        assert engine.tokens_read == len(build_tree(encoded)) < sum(map(len, encoded)) / 2
    finally:
        engine.close()
    said = [encoder.tokenizer.decode(reply) for reply in apart]
    assert "Paris" in said[0] and "Berlin" in said[1]
