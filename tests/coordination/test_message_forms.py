"""Forms of what was said: a receiver's own answer is probed, nothing knows what is right, all replies are charged."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import lib.coordination.message_forms as module
from lib.coordination.actions import ACTIONS, signal_parts
from lib.coordination.crossfit import crossfit
from lib.coordination.message_forms import FORMS, answer_surprisals, form_overhead, form_signals, own_answer
from lib.coordination.probes import NoLogProbabilities
from lib.models.receiver import Prompt, Turn
from tests.coordination.sure import Mute

PROMPTS = [Prompt((Turn("user", text),)) for text in "abc"]


class Costly(Mute):
    """Every character costs a tenth of a nat."""

    def score(self, prompts: Sequence[Prompt], options: Sequence[str] | Sequence[Sequence[str]]) -> np.ndarray:
        self.options = options
        return np.array([[-0.1 * len(option) for option in row] for row in options])


def forms(tasks: int = 6) -> pd.DataFrame:
    rows = []
    for task in range(tasks):
        needs = task % 2
        rows += [
            (f"t{task}", "bridge", "skip", 2.0, 100, 10),
            (f"t{task}", "bridge", "compress", 0.5 if needs else 2.5, 200, 10),
            (f"t{task}", "bridge", "raw", 1.0 if needs else None, 400, 10),
        ]
    return pd.DataFrame(rows, columns=list(FORMS))


@pytest.mark.parametrize(
    ("reply", "answer"),
    [
        ('{"evidence":[{"title":"A","sentence":1}],"answer":"tin ore"}', 'tin ore"'),
        ('{"answer": "a \\"quoted\\" word" }', 'a \\"quoted\\" word"'),
        ('{"answer":""}', '"'),
        ('{"answer":7}', None),
        ("tin", None),
        ('{"evidence":[],"answer":"cut off', None),
    ],
)
def test_the_answer_is_the_last_string_of_a_reply(reply: str, answer: str | None) -> None:
    found = own_answer(reply)
    assert (found[1] if found else None) == answer
    assert found is None or reply.rstrip().removesuffix("}").rstrip() == "".join(found)


def test_nats_are_those_of_the_answer_alone_and_one_call_serves_all() -> None:
    receiver = Costly()
    found = answer_surprisals(receiver, PROMPTS, ['{"answer":"tin"}', "no object", '{"a":1,"answer":"iron"}'])
    assert found == [pytest.approx(0.4), None, pytest.approx(0.5)], "the word and its quote"
    assert len(receiver.options) == 2
    assert answer_surprisals(Mute(), PROMPTS[:1], ["nothing"]) == [None], "nothing to score asks nobody"
    with pytest.raises(NoLogProbabilities, match="log-probabilities"):
        answer_surprisals(Mute(), PROMPTS[:1], ['{"answer":"tin"}'])
    with pytest.raises(ValueError, match="2 prompts for 1 replies"):
        answer_surprisals(receiver, PROMPTS[:2], ["x"])


def test_gain_is_what_a_form_adds_to_sureness_and_what_was_not_run_has_none() -> None:
    signals = form_signals(forms())
    parts = signal_parts(signals)
    assert parts["gain"][1].tolist()[:3] == [0.0, 1.5, 1.0] and parts["gain"][0].tolist()[:2] == [0.0, 0.0]
    assert np.isnan(parts["gain"][0, 2]), "not measured"
    assert np.isnan(parts["gain"][:, 3:]).all(), "not run"
    assert parts["cost"][0].tolist() == [100.0, 200.0, 400.0, 0.0, 0.0]
    assert len(signals) == 6 * len(ACTIONS) and (signals["step_id"] == signals["instance_id"]).all()


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2), st.floats(0, 9))
def test_a_less_sure_receiver_never_counts_as_a_gain(place: int, more: float) -> None:
    table = forms(1)
    table["surprisal"] = [1.0, 1.0, 1.0]
    table.loc[place, "surprisal"] = 1.0 + more
    gains = form_signals(table)["gain"].dropna()
    assert (gains >= 0).all() and (place == 0 or (gains == 0).all())


def test_the_selector_runs_over_forms_and_pays_for_every_reply() -> None:
    table = forms()
    table["surprisal"] = table["surprisal"].fillna(3.0)
    overhead = form_overhead(table)
    assert overhead["t0", "skip"] == 620.0 and overhead["t0", "raw"] == 320.0
    needs = table["task_id"].str[1:].astype(int) % 2 == 1
    hit = np.where(table["action"] == "skip", ~needs, np.where(table["action"] == "compress", needs, 1.0)).astype(float)
    outcomes = pd.DataFrame({"step_id": table["task_id"], "instance_id": table["task_id"], "regime": "bridge"})
    outcomes = outcomes.assign(action=table["action"], hit=hit, tokens=(table["read"] + table["written"]).astype(float))
    steps = crossfit(form_signals(table), outcomes, folds=2, overhead=overhead, gate=None).steps.set_index("policy")
    assert (
        steps.loc["selector", "action"].tolist() == ["skip", "compress"] * 3 or steps.loc["selector", "hit"].eq(1).all()
    )
    assert steps.loc["selector", "decision_tokens"].eq(730.0).all(), "three replies, whatever was chosen"


def test_forms_that_cannot_be() -> None:
    table = forms(1)
    with pytest.raises(ValueError, match="lacks the columns"):
        form_signals(table.drop(columns="read"))
    with pytest.raises(ValueError, match="unknown actions"):
        form_signals(table.assign(action="shout"))
    with pytest.raises(ValueError, match="twice"):
        form_overhead(pd.concat([table, table]))
    with pytest.raises(ValueError, match="has no skip"):
        form_signals(table[table["action"] != "skip"])


def test_nothing_here_can_see_an_outcome() -> None:
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)}
    words |= {node.arg for node in ast.walk(tree) if isinstance(node, ast.arg)}
    assert not {word for word in words if "gold" in word.lower() or "outcome" in word or word.startswith("hit")}
    assert not {"hit", "utility", "gold"} & set(FORMS)
    assert not {"gold", "outcomes"} & set(inspect.signature(form_signals).parameters)
    extra = forms().assign(hit=1.0, utility=0.5, gold="tin")
    pd.testing.assert_frame_equal(form_signals(extra), form_signals(forms()))
    changed = extra.assign(hit=0.0, utility=0.0, gold="iron")
    pd.testing.assert_frame_equal(form_signals(extra), form_signals(changed))
