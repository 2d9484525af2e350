from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks import Gold, Score, Source, Task, WorkloadError, load_workload, score_reply, summarize_scores
from lib.tasks.grader_check import check_grader, gold_reply

PAGES = (
    Source(id="A", title="A", sentences=("A is red.", "A is old.", "A stands in B.")),
    Source(id="B", title="B", sentences=("B is small.", "B lies by the sea.")),
    Source(id="C", title="C", sentences=("C is blue.",)),
)


def make(
    kind: str, answer: Any, evidence: tuple[tuple[str, int | None], ...], label: str | None = None
) -> tuple[Task, Gold]:
    task = Task(id="t", family="made", kind=kind, query="?", sources=PAGES, version="1")  # type: ignore[arg-type]
    return task, Gold(task_id="t", label=label, answer=label if label else answer, evidence=evidence)


def score(pair: tuple[Task, Gold], reply: Any, **options: Any) -> Score:
    return score_reply(*pair, reply if isinstance(reply, str) else json.dumps(reply), **options)


CLAIM = make("verification", None, (("A", 0), ("A", 2)), "SUPPORT")
NEI = make("verification", None, (), "NOT_ENOUGH_INFO")
BRIDGE = make("bridge", "the sea", (("A", 2), ("B", 1)))
FANOUT = make("fanout", {"A": "red", "C": "blue"}, (("A", None), ("C", None)))


def test_utility_is_the_mean_of_task_and_evidence() -> None:
    result = score(
        CLAIM, {"label": "SUPPORT", "evidence": [{"doc": "A", "sentences": [0, 1]}, {"doc": "B", "sentences": [0]}]}
    )
    assert result.task_utility == 1.0 and result.evidence_utility == pytest.approx(0.4)
    assert result.utility == pytest.approx(0.7)
    assert result.evidence == (("A", 0), ("A", 1), ("B", 0))
    assert (result.label, result.answer, result.gold_answer) == ("SUPPORT", "SUPPORT", "SUPPORT")
    assert result.gold_evidence == (("A", 0), ("A", 2))
    assert "1 of 2 found, 3 cited" in result.reason and "label SUPPORT is right" in result.reason


def test_bridge_and_fanout_measures() -> None:
    result = score(
        BRIDGE, {"answer": "by the sea", "evidence": [{"title": "A", "sentence": 2}, {"title": "B", "sentence": 1}]}
    )
    assert result.task_utility == pytest.approx(2 / 3) and result.evidence_utility == 1.0
    result = score(FANOUT, {"answer": {"A": "red", "C": "green"}, "evidence": ["a", "C", "Nowhere"]})
    # Tokens of "A - red / C - green" after normalisation (the lone dash goes, and so does "a"): red c green against red c blue.
    assert result.task_utility == pytest.approx(2 / 3) and result.evidence_utility == pytest.approx(0.8)
    text = score(FANOUT, {"answer": "A: red; C: blue", "evidence": ["A", "C"]})
    assert text.utility == pytest.approx(0.5 + 0.5 * text.task_utility) and text.task_utility == 1.0


def test_yes_no_rule_holds_for_bridge_only() -> None:
    assert score(make("bridge", "yes", (("A", 0),)), {"answer": "yes it is", "evidence": []}).task_utility == 0.0
    assert score(
        make("fanout", True, (("A", None),)), {"answer": "yes it is", "evidence": []}
    ).task_utility == pytest.approx(0.5)


def test_invented_ids_are_false_positives() -> None:
    exact = score(CLAIM, {"label": "SUPPORT", "evidence": [{"doc": "A", "sentences": [0, 2]}]})
    padded = score(
        CLAIM, {"label": "SUPPORT", "evidence": [{"doc": "A", "sentences": [0, 2, 99]}, {"doc": "Z", "sentences": [0]}]}
    )
    assert exact.evidence_utility == 1.0 and padded.evidence_utility == pytest.approx(2 / 3)


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        ({"label": "MAYBE", "evidence": []}, "is none of"),
        ({"label": ["SUPPORT"], "evidence": []}, "is none of"),
        ({"label": None, "evidence": []}, "is none of"),
        ({"evidence": []}, "label missing"),
        ("I support this.", "no JSON object"),
        ("", "no JSON object"),
    ],
)
def test_an_invalid_label_is_wrong_with_a_reason_and_never_not_enough_info(reply: Any, words: str) -> None:
    """Cases 7 and 10: what names no label is unparsed, not a class."""
    for pair in (CLAIM, NEI):
        result = score(pair, reply)
        assert result.label is None and result.task_utility == 0.0 and words in result.reason


def test_silence_is_not_right_when_the_gold_is_empty() -> None:
    """Case 5: gold of nothing and a reply of nothing readable must not meet."""
    for raw in ("", "nonsense", "{}", '{"label": "NOT_ENOUGH_INFO"}', '{"label": "NOT_ENOUGH_INFO", "evidence": null}'):
        assert score(NEI, raw).evidence_utility == 0.0
    said = score(NEI, {"label": "NOT_ENOUGH_INFO", "evidence": []})
    assert said.utility == 1.0


def test_not_enough_info_rule() -> None:
    cited = {"label": "NOT_ENOUGH_INFO", "evidence": [{"doc": "A", "sentences": [0]}]}
    assert score(NEI, cited).evidence_utility == 0.0 and score(NEI, cited).utility == 0.5
    skipped = score(NEI, cited, nei_evidence="skip")
    assert skipped.evidence_utility is None and skipped.utility == 1.0
    assert score(CLAIM, cited, nei_evidence="skip").evidence_utility == pytest.approx(2 / 3)


def test_missing_answer_is_none_not_zero_or_empty() -> None:
    for pair in (BRIDGE, FANOUT):
        result = score(pair, {"evidence": []})
        assert result.answer is None and result.task_utility == 0.0 and "answer missing" in result.reason
    zero = score(make("bridge", "0", (("A", 0),)), {"answer": 0, "evidence": []})
    assert zero.answer == 0 and zero.task_utility == 1.0
    assert score(make("bridge", "0", (("A", 0),)), "").task_utility == 0.0


def test_repair_is_flagged_and_scored() -> None:
    result = score(CLAIM, '{"label": "SUPPORT", "evidence": [{"doc": "A", "sentences": [0, 2')
    assert result.repaired and result.utility == 1.0 and "repaired" in result.reason


def test_gold_of_another_task_is_refused() -> None:
    task, gold = CLAIM
    with pytest.raises(WorkloadError, match="was given for task"):
        score_reply(task, msgspec.structs.replace(gold, task_id="other"), "{}")


def test_headline_counts_every_item_asked() -> None:
    """Case 13: 100 items, 10 raise, 80 right."""
    right = score(CLAIM, {"label": "SUPPORT", "evidence": [{"doc": "A", "sentences": [0, 2]}]})
    wrong = score(CLAIM, {"label": "CONTRADICT", "evidence": []})
    scores = [msgspec.structs.replace(right if i < 80 else wrong, task_id=f"t{i}") for i in range(90)]
    for asked in (100, [f"t{i}" for i in range(100)]):
        summary = summarize_scores(scores, asked)
        assert (summary.asked, summary.scored) == (100, 90)
        assert summary.task_utility == pytest.approx(0.80) and summary.coverage == pytest.approx(0.90)
        assert summary.utility == pytest.approx(0.80) and summary.evidence_utility == pytest.approx(0.80)


def test_summary_leaves_unscored_evidence_out_and_counts_repairs() -> None:
    skipped = score(NEI, {"label": "NOT_ENOUGH_INFO", "evidence": []}, nei_evidence="skip")
    half = score(CLAIM, '{"label": "CONTRADICT", "evidence": [{"doc": "A", "sentences": [0, 2')
    none = score(CLAIM, "no")
    summary = summarize_scores([skipped, half, none], 4)
    assert summary.evidence_utility == pytest.approx(1 / 3) and summary.task_utility == pytest.approx(1 / 4)
    assert (summary.repaired, summary.unparsed) == (1, 1)
    assert summarize_scores([skipped], 1).evidence_utility is None
    assert summarize_scores([], 3).utility == 0.0


def test_summary_refuses_what_does_not_add_up() -> None:
    one = score(CLAIM, "{}")
    for scores, asked in (([one, one], 1), ([one, one], ["t", "u"]), ([one], ["u"]), ([], 0)):
        with pytest.raises(WorkloadError, match="summarize_scores"):
            summarize_scores(scores, asked)


@pytest.mark.parametrize("name", ["worlds_verification", "worlds_bridge", "worlds_fanout"])
def test_grader_on_the_whole_data_set(name: str) -> None:
    """Gold against gold is 1 on every task, a constant wrong reply 0 on every task."""
    check = check_grader(load_workload(name, redundancy=0.5))
    assert (check.tasks, check.gold_mean, check.wrong_mean, check.failures) == (400, 1.0, 0.0, ())


@pytest.mark.parametrize("label", ["SUPPORT", "CONTRADICT", "NOT_ENOUGH_INFO"])
def test_a_constant_label_earns_a_third(label: str) -> None:
    workload = load_workload("worlds_verification", limit=300)
    reply = json.dumps({"label": label, "evidence": []})
    scores = [score_reply(t, workload.gold[t.id], reply) for t in workload.tasks]
    assert summarize_scores(scores, 300).task_utility == pytest.approx(1 / 3)


@given(st.text(max_size=80))
def test_any_text_gets_a_storable_score_in_range(raw: str) -> None:
    for pair in (CLAIM, NEI, BRIDGE, FANOUT):
        result = score(pair, raw)
        assert 0.0 <= result.utility <= 1.0 and result.raw == raw and result.reason
        assert msgspec.json.decode(msgspec.json.encode(result), type=Score) == result


def test_gold_reply_is_what_the_prompt_asks_for() -> None:
    assert json.loads(gold_reply(*CLAIM)) == {"label": "SUPPORT", "evidence": [{"doc": "A", "sentences": [0, 2]}]}
    assert json.loads(gold_reply(*BRIDGE))["evidence"] == [{"title": "A", "sentence": 2}, {"title": "B", "sentence": 1}]
    assert json.loads(gold_reply(*FANOUT)) == {"answer": {"A": "red", "C": "blue"}, "evidence": ["A", "C"]}
