"""Without its weights a model is known by the same names, and a plan counts the trees that it then reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from lib.models.random_models import chat_model, chat_tokenizer
from lib.models.receiver import Prompt, Turn
from lib.models.transformers_receiver import TransformersReceiver
from lib.models.unloaded import Guessed, Unloaded, Words, open_unloaded, weights_are_here
from lib.runs.planned import PlannedReceiver
from lib.runs.tally import Ledger

PROMPTS = [
    Prompt((Turn("system", "Answer."), Turn("user", "What is left?"))),
    Prompt((Turn("system", "Answer."), Turn("user", "What is right?")), bias=(("yes", 1.0),)),
    Prompt((Turn("user", "Say yes."),), schema={"type": "object", "properties": {"a": {"const": "x"}}}),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    chat_model("llama").save_pretrained(tmp_path / "tiny")
    chat_tokenizer().save_pretrained(tmp_path / "tiny")
    return tmp_path / "tiny"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_names_are_those_of_the_loaded_receiver(folder: Path, dtype: str) -> None:
    loaded, unloaded = (kind(str(folder), dtype=dtype, device="cpu") for kind in (TransformersReceiver, Unloaded))
    assert unloaded.fingerprint == loaded.fingerprint
    assert (unloaded.name, unloaded.context) == (loaded.name, loaded.context)
    for prompt in PROMPTS:
        assert unloaded.prompt_key(prompt) == loaded.prompt_key(prompt)
        assert unloaded.ids(prompt) == loaded.encoder.encode(prompt)
    assert [len(unloaded.text_ids("two words"))] == loaded.count_tokens(["two words"])


def test_a_plan_counts_the_tokens_that_the_engine_reads(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    loaded, ledger = TransformersReceiver(str(folder), device="cpu"), Ledger()
    read: list[int] = []
    original = loaded.runner.read

    def counted(tree: object, wanted: object) -> object:
        read.append(len(tree))  # type: ignore[arg-type]
        return original(tree, wanted)  # type: ignore[arg-type]

    monkeypatch.setattr(loaded.runner, "read", counted)
    free = PROMPTS[:1] * 2 + [Prompt((Turn("system", "Answer."), Turn("user", f"What is {n}?"))) for n in range(5)]
    loaded.reply(free, max_tokens=3)
    loaded.score(free[:2], ["yes", "never"])
    planned = PlannedReceiver(Unloaded(str(folder), device="cpu"), ledger)
    planned.reply(free, max_tokens=3)
    planned.score(free[:2], ["yes", "never"])
    assert ledger.tallies[loaded.name].tree == sum(read)
    assert ledger.tallies[loaded.name].computed == 6 + 2


def test_a_prompt_that_does_not_fit_gets_the_same_error_reply(folder: Path) -> None:
    loaded, ledger = TransformersReceiver(str(folder), device="cpu"), Ledger()
    planned = PlannedReceiver(Unloaded(str(folder), device="cpu"), ledger)
    for receiver in (loaded, planned):
        (reply,) = receiver.reply(PROMPTS[:1], max_tokens=loaded.context)
        assert reply.finish == "error" and "exceed the model's context" in str(reply.error)
    assert ledger.tallies[loaded.name].cut == 1 and ledger.tallies[loaded.name].tree == 0


def test_who_is_not_here_is_guessed(folder: Path) -> None:
    assert isinstance(open_unloaded("owner/model", revision="0" * 40), Guessed)
    endpoint = open_unloaded("endpoint:http://127.0.0.1:1/v1#big-model")
    assert isinstance(endpoint, Guessed) and endpoint.name == "big-model"
    assert isinstance(open_unloaded("scripted"), Words)
    assert weights_are_here(str(folder)) and not weights_are_here(str(folder / "none"))
