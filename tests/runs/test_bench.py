"""The comparison of replay engines, on a tiny random model."""

from __future__ import annotations

import pytest

from lib.runs import bench
from tests.models import tiny


def test_prompts_are_the_replay_of_one_task():
    prompts = bench.replay_prompts(4)
    assert len(prompts) == 2 * 4 + 2
    assert len({prompt.turns for prompt in prompts}) == len(prompts)
    assert all(prompt.schema is None for prompt in prompts)


@pytest.mark.parametrize("tokens, kept", [((5, 6, 2, 9), (5, 6)), ((2,), ()), ((5, 6), (5, 6)), ((), ())])
def test_what_follows_the_end_does_not_count(tokens, kept):
    assert bench.until_end(tokens, frozenset({2})) == kept


def test_contenders_agree_in_float32(tmp_path):
    """Same prompts, same weights: every contender decodes the same tokens, and the tree reads the fewest."""
    tiny.chat_model("llama", max_position_embeddings=16_384).save_pretrained(tmp_path)
    tiny.chat_tokenizer().save_pretrained(tmp_path)
    table = bench.compare(str(tmp_path), "float32", 2, 3, 1).set_index("contender")
    assert (table["same_outputs"] == table["prompts"]).all()
    assert table["tokens_read"].idxmin() == "prefix tree"
    assert table.loc["one at a time", "times_faster"] == pytest.approx(1.0)
