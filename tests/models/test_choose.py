"""One name for any receiver."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from lib.fetch import SourceError
from lib.models import Prompt, ScriptedReceiver, Turn, open_receiver
from lib.models.random_models import chat_model, chat_tokenizer
from lib.models.transformers_receiver import TransformersReceiver


def test_scripted_costs_no_import_of_torch() -> None:
    code = (
        "import sys; from lib.models import open_receiver; open_receiver('scripted'); sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
    assert isinstance(open_receiver("scripted"), ScriptedReceiver)


def test_a_folder_opens_with_the_precision_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "tiny"
    chat_model("qwen3").save_pretrained(folder)
    chat_tokenizer().save_pretrained(folder)
    narrow = open_receiver(str(folder), dtype="bfloat16", device="cpu")
    wide = open_receiver(str(folder), exact=True, device="cpu")
    assert isinstance(narrow, TransformersReceiver) and isinstance(wide, TransformersReceiver)
    assert (narrow.name, narrow.loaded.dtype, wide.loaded.dtype) == ("tiny", "bfloat16", "float32")
    assert narrow.fingerprint != wide.fingerprint
    again = open_receiver(str(folder), exact=True, device="cpu")
    assert again.fingerprint == wide.fingerprint
    prompt = Prompt((Turn("user", "the ferry"),))
    assert again.reply([prompt], max_tokens=5)[0].token_ids == wide.reply([prompt], max_tokens=5)[0].token_ids


def test_unknown_names_are_answered_with_a_near_one() -> None:
    with pytest.raises(SourceError, match="qwen-coder-0.6b: .* did you mean 'qwen-coder-0.5b'"):
        open_receiver("qwen-coder-0.6b")


def test_each_scripted_name_has_its_own_rules_and_fingerprint() -> None:
    names = ("scripted", "scripted-skimming")
    receivers = [open_receiver(name) for name in names]
    assert [receiver.name for receiver in receivers] == list(names)
    assert receivers[0].fingerprint == ScriptedReceiver().fingerprint != receivers[1].fingerprint
