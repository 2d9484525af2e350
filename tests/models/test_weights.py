"""Loading weights: names, precision, identity, GGUF conversion, refusals. Tiny random models; two `real` ones at the end."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import lib.sources
from lib.fetch import SourceError
from lib.models import weights
from lib.models.weights import WeightsError, count_parameters, load_weights, refuse_sliding_window
from tests.hub_server import hub
from tests.models.tiny import PIECES, write_gguf, write_llama

COMMIT = "fedcba9876543210fedcba9876543210fedcba98"
IDS = torch.tensor([[1, 3, 4, 5, 6]])


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


def failure(*args: object, **options: object) -> str:
    with pytest.raises(SourceError) as caught:
        load_weights(*args, **options)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)
    return str(caught.value)


# ----------------------------------------------------------------------------------------------------------- folders and precision


def test_a_folder_loads_ready_for_inference(cache: Path, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    loaded = load_weights(folder, device="cpu")
    assert (loaded.name, loaded.dtype, loaded.device) == ("tiny", "float32", "cpu")
    assert loaded.n_parameters == count_parameters(folder) == sum(p.numel() for p in loaded.model.parameters())
    assert not loaded.model.training
    assert not any(parameter.requires_grad for parameter in loaded.model.parameters())
    assert loaded.tokenizer("the ferry left")["input_ids"] == [3, 4, 5]


def test_float32_is_the_upcast_of_the_bfloat16_weights(cache: Path, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny", dtype=torch.bfloat16)
    wide, narrow = load_weights(folder, exact=True, device="cpu"), load_weights(folder, dtype="bfloat16", device="cpu")
    assert (wide.dtype, narrow.dtype) == ("float32", "bfloat16")
    for (name, a), b in zip(wide.model.named_parameters(), narrow.model.parameters(), strict=True):
        assert torch.equal(a, b.float()), name


@pytest.mark.parametrize(
    ("device", "n_parameters", "able", "expected"),
    [
        ("cpu", 1_000_000_000, True, torch.float32),
        ("cpu", 1_000_000_001, True, torch.bfloat16),
        ("cpu", 1_000_000_001, False, torch.float32),
        ("cuda", 1_000, False, torch.bfloat16),
        ("cuda:1", 1_000, False, torch.bfloat16),
    ],
)
def test_automatic_precision(
    monkeypatch: pytest.MonkeyPatch, device: str, n_parameters: int, able: bool, expected: torch.dtype
) -> None:
    monkeypatch.setattr(weights, "cpu_has_bfloat16", lambda: able)
    assert weights._choose_dtype("auto", device, n_parameters) is expected
    fast = torch.bfloat16 if able or device != "cpu" else torch.float32
    assert weights._choose_dtype("fast", device, n_parameters) is fast
    assert weights._choose_dtype("float16", device, n_parameters) is torch.float16


def test_contradictory_and_unknown_precision(cache: Path, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    assert "drop one of the two" in failure(folder, exact=True, dtype="bfloat16")
    assert "'float64' is unknown" in failure(folder, dtype="float64")
    assert "device='tpu' is unknown" in failure(folder, device="tpu")
    assert load_weights(folder, exact=True, dtype=torch.float32, device="cpu").dtype == "float32"


def test_identity_follows_the_bytes_and_covers_every_shard(cache: Path, tmp_path: Path) -> None:
    one = load_weights(write_llama(tmp_path / "a", seed=1), device="cpu").sha256
    same = load_weights(write_llama(tmp_path / "b", seed=1), device="cpu").sha256
    other = load_weights(write_llama(tmp_path / "c", seed=2), device="cpu").sha256
    assert one == same != other
    folder = write_llama(tmp_path / "d", seed=1, shards=3)
    files = sorted(folder.glob("*.safetensors"))
    assert len(files) > 1
    whole = load_weights(folder, device="cpu")
    assert whole.n_parameters == load_weights(tmp_path / "a", device="cpu").n_parameters
    data = bytearray(files[-1].read_bytes())
    data[-1] ^= 1
    files[-1].write_bytes(data)
    assert load_weights(folder, device="cpu").sha256 != whole.sha256


# ----------------------------------------------------------------------------------------------------------- GGUF


def test_gguf_is_unpacked_once_and_its_numbers_are_right(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = write_gguf(tmp_path / "tiny.gguf")
    loaded = load_weights(tmp_path / "tiny.gguf", exact=True, device="cpu", log=lambda line: None)
    assert loaded.name == "tiny"
    assert loaded.sha256 == lib.sources.sha256_of(tmp_path / "tiny.gguf")
    for name, values in truth.items():
        stored = loaded.model.get_parameter(name)
        assert torch.equal(stored, torch.tensor(values).bfloat16().float()), name
    assert not hasattr(loaded.model.config, "quantization_config")
    assert loaded.tokenizer.convert_ids_to_tokens(list(range(len(PIECES)))) == PIECES
    assert loaded.tokenizer("thean")["input_ids"] == [7, 11]
    monkeypatch.setattr(weights, "_convert", None)  # a second load must not convert
    again = load_weights(tmp_path / "tiny.gguf", exact=True, device="cpu")
    with torch.inference_mode():
        assert torch.equal(again.model(IDS).logits, loaded.model(IDS).logits)


def test_a_folder_with_one_gguf_file_means_that_file(cache: Path, tmp_path: Path) -> None:
    folder = tmp_path / "own"
    folder.mkdir()
    write_gguf(folder / "tiny.gguf")
    assert load_weights(folder, device="cpu", log=lambda line: None).dtype == "float32"
    write_gguf(folder / "more.gguf", seed=1)
    assert "holds 2 .gguf files; give the path of one, such as more.gguf" in failure(folder)


def test_a_torn_gguf_file_is_one_line(cache: Path, tmp_path: Path) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    whole = (tmp_path / "tiny.gguf").read_bytes()
    (tmp_path / "torn.gguf").write_bytes(whole[: len(whole) // 2])
    (tmp_path / "text.gguf").write_bytes(b"not a model")
    for name in ("torn.gguf", "text.gguf"):
        assert "does not unpack" in failure(tmp_path / name, log=lambda line: None)
    assert list((cache / "converted").iterdir()) == []


def test_a_killed_conversion_leaves_no_half_model(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_gguf(tmp_path / "tiny.gguf")
    code = (
        "import os, sys, pathlib; from lib.models import weights\n"
        "class Dies(pathlib.PosixPath): pass\n"
        "def die(*_): os._exit(9)\n"
        "weights.os.replace = lambda a, b: die() if 'converted' in str(b) else os.rename(a, b)\n"
        "weights.load_weights(sys.argv[1], device='cpu')"
    )
    root = Path(weights.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", code, str(tmp_path / "tiny.gguf")], cwd=root, capture_output=True)
    assert done.returncode == 9, done.stderr.decode()[-500:]
    left = [path.name for path in (cache / "converted").iterdir()]
    assert left and all(name.startswith(".") for name in left), "only a scratch folder, which no load reads"
    load_weights(tmp_path / "tiny.gguf", device="cpu", log=lambda line: None)
    assert [path.name.startswith("tiny-") for path in (cache / "converted").iterdir()] == [True]


# ----------------------------------------------------------------------------------------------------------- refusals


def config(**fields: object) -> SimpleNamespace:
    made = SimpleNamespace(model_type="some", **fields)
    made.get_text_config = lambda: made
    return made


@pytest.mark.parametrize(
    "fields",
    [
        {"sliding_window": 4096},
        {"sliding_window": 4096, "use_sliding_window": True},
        {"sliding_window": 512, "layer_types": ["sliding_attention", "full_attention"]},
        {"sliding_window": None, "layer_types": ["chunked_attention"]},
    ],
)
def test_windowed_attention_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(WeightsError, match=r"model-x: some uses windowed attention .* choose a model"):
        refuse_sliding_window(config(**fields), "model-x")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"sliding_window": None},
        {"sliding_window": 4096, "use_sliding_window": False},
        {"sliding_window": 4096, "layer_types": ["full_attention", "full_attention"]},
    ],
)
def test_full_attention_passes(fields: dict[str, object]) -> None:
    refuse_sliding_window(config(**fields), "model-x")


def test_a_real_windowed_family_is_refused_before_its_weights_are_read(cache: Path, tmp_path: Path) -> None:
    from transformers import Gemma2Config, MistralConfig

    for windowed in (MistralConfig(sliding_window=64), Gemma2Config()):
        folder = tmp_path / windowed.model_type
        windowed.save_pretrained(folder)
        (folder / "model.safetensors").write_bytes(b"never parsed")
        assert f"{windowed.model_type} uses windowed attention" in failure(folder)


def test_names_that_mean_nothing(cache: Path, tmp_path: Path) -> None:
    assert "did you mean 'qwen-coder-0.5b'?" in failure("qwen-coder-05b")
    assert "not a model" in failure("worlds")
    assert "give revision=<full commit hash>, got None" in failure("owner/name")
    assert "got 'main'" in failure("owner/name", revision="main")
    assert "revision applies to hub ids only" in failure(str(tmp_path), revision=COMMIT)
    assert "revision applies to hub ids only" in failure("smollm2-135m", revision=COMMIT)


def test_pickled_and_missing_weights_are_refused(cache: Path, tmp_path: Path) -> None:
    (tmp_path / "pytorch_model.bin").write_bytes(b"pickle")
    assert "pickled weights are not read" in failure(tmp_path)
    assert "neither a folder nor a .gguf file" in failure(tmp_path / "pytorch_model.bin")


def test_code_in_a_folder_is_never_run(cache: Path, tmp_path: Path) -> None:
    folder = write_llama(tmp_path / "tiny")
    marker = tmp_path / "ran"
    (folder / "modeling_evil.py").write_text(f"open({str(marker)!r}, 'w').write('x')")
    settings = json.loads((folder / "config.json").read_text())
    settings.update(
        model_type="evil", auto_map={"AutoConfig": "modeling_evil.C", "AutoModelForCausalLM": "modeling_evil.M"}
    )
    (folder / "config.json").write_text(json.dumps(settings))
    assert "config.json" in failure(folder)
    assert not marker.exists()


# ----------------------------------------------------------------------------------------------------------- hub ids


def test_a_hub_id_at_a_commit(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from huggingface_hub import constants

    repo = write_llama(tmp_path / "repo")
    (repo / "modeling.py").write_text("raise SystemExit")
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    with hub({"models/owner/tiny": (COMMIT, repo)}) as (endpoint, asked):
        monkeypatch.setenv("HF_ENDPOINT", endpoint)
        loaded = load_weights("owner/tiny", revision=COMMIT, device="cpu", log=lambda line: None)
    assert loaded.name == f"owner/tiny@{COMMIT[:12]}"
    assert loaded.sha256 == load_weights(repo, device="cpu").sha256
    assert not any("modeling.py" in path for path in asked), "code is not even downloaded"
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")  # what is here stays usable without the hub
    assert load_weights("owner/tiny", revision=COMMIT, device="cpu").sha256 == loaded.sha256
    assert "switched off by HF_HUB_OFFLINE" in failure("owner/absent", revision=COMMIT)


# ----------------------------------------------------------------------------------------------------------- real models


@pytest.mark.real("smollm2-135m")
def test_smollm2_answers_through_its_chat_template() -> None:
    loaded = load_weights("smollm2-135m", device="cpu")
    assert loaded.sha256 == "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
    assert (loaded.dtype, loaded.n_parameters, loaded.tokenizer.eos_token_id) == ("float32", 134_515_008, 2)
    turns = [{"role": "user", "content": "What is the capital of France?"}]
    batch = loaded.tokenizer.apply_chat_template(
        turns, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    reply = loaded.model.generate(**batch, max_new_tokens=10, do_sample=False)[0, batch["input_ids"].shape[1] :]
    assert "Paris" in loaded.tokenizer.decode(reply)


@pytest.mark.real("qwen-coder-0.5b")
@pytest.mark.skipif(os.environ.get("LAB_REAL", "") in ("", "0"), reason="1.3 GB of weights: set LAB_REAL=1")
def test_qwen_keeps_its_special_tokens() -> None:
    loaded = load_weights("qwen-coder-0.5b", device="cpu")
    assert loaded.sha256 == "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32"
    assert loaded.n_parameters == 630_167_424
    assert loaded.tokenizer.eos_token_id == 151_645
    text = "Zoë's ferry — <b>07:10</b>\n\t漢字 😀"
    ids = loaded.tokenizer(text, add_special_tokens=False)["input_ids"]
    assert loaded.tokenizer.decode(ids) == text
