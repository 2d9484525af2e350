from __future__ import annotations

import numpy as np
import pytest

from lib.moc import random_dag
from lib.moc.distill import ExtractiveDistiller, ReceiverDistiller
from lib.moc.study import (
    CodeRules,
    answers_of,
    distiller_of,
    embed_of,
    graph_of,
    graphs_of,
    load_sets,
    questions_of,
    run_arms,
)
from lib.tasks.questions import Answer, build_questions
from tests.moc.crew import Crew, choice, code

SETS = {
    "letters": build_questions("letters", [(choice(name), Answer(name, "A")) for name in ("q1", "q2")]),
    "code": build_questions("code", [(code("c1"), Answer("c1", "x"))]),
}


def test_sets_come_by_name_and_each_once() -> None:
    sets = load_sets(["arithmetic"], 5, seed=3)
    assert len(questions_of(sets)) == 5 and set(answers_of(sets)) == {one.id for one in questions_of(sets)}
    assert len(load_sets(["arithmetic"], 0)["arithmetic"].questions) > 100
    for names in ([], ["arithmetic", "arithmetic"]):
        with pytest.raises(ValueError, match="question_sets"):
            load_sets(names, 1)


def test_one_graph_is_the_seed_s_own_and_each_question_may_have_its_own() -> None:
    one, each = graphs_of(7, 0.5, 42, "one"), graphs_of(7, 0.5, 42)
    questions = [choice(f"q{index}") for index in range(6)]
    assert {one(question) for question in questions} == {random_dag(7, 0.5, 42)}
    assert len({each(question).edges for question in questions}) > 3
    assert [each(question) for question in questions] == [graphs_of(7, 0.5, 42)(question) for question in questions]
    assert graphs_of(7, 0.5, 43)(questions[0]) != each(questions[0])
    assert set(graph_of(each, SETS)) == {"q1", "q2", "c1"}
    with pytest.raises(ValueError, match="graphs"):
        graphs_of(7, 0.5, 1, "two")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="density"):
        graphs_of(7, 0.0, 1)


def test_words_in_common_make_texts_similar() -> None:
    vectors = embed_of("words")(["two red pears", "red pears, two", "a horse runs", "?"])
    assert np.allclose(vectors[0] @ vectors[1], 1) and vectors[0] @ vectors[2] < 0.5
    assert not vectors[3].any() and embed_of("words")([]).shape[0] == 0


def test_a_distiller_comes_by_name() -> None:
    agents, small = Crew(), Crew()
    opened: list[str] = []

    def opener(name: str) -> Crew:
        opened.append(name)
        return small

    embed = embed_of("words")
    assert isinstance(distiller_of("extractive", agents, embed, opened=opener), ExtractiveDistiller)
    own = distiller_of("receiver", agents, embed, 3, opened=opener)
    assert isinstance(own, ReceiverDistiller) and own.receiver is agents and own.count == 3 and not opened
    other = distiller_of("small", agents, embed, opened=opener)
    assert isinstance(other, ReceiverDistiller) and other.receiver is small and opened == ["small"]


def test_arms_are_run_on_the_same_graphs_and_code_has_its_own_cap() -> None:
    caps: list[int] = []

    class Watched(Crew):
        def reply(self, prompts, **options):  # type: ignore[no-untyped-def]
            caps.extend([options["max_tokens"]] * len(prompts))
            return super().reply(prompts, **options)

    dag_for = graphs_of(4, 0.7, 1)
    arms = ["single", "vanilla", "moc_flow"]
    runs = run_arms(Watched(), SETS, dag_for, arms, max_tokens=50, code_max_tokens=90)
    assert [(run.arm, run.question_id) for run in runs] == [(arm, name) for arm in arms for name in ("q1", "q2", "c1")]
    assert {run.dag for run in runs if run.question_id == "q1"} == {None, dag_for(SETS["letters"].questions[0])}
    assert sorted(set(caps)) == [50, 90] and caps.count(90) == 1 + 2 * 5


def test_without_consent_no_code_is_run() -> None:
    assert CodeRules(False).settings == {} and CodeRules(False).grader is None
    allowed = CodeRules(True)
    assert allowed.settings["reuse_passing_code"] and allowed.grader is not None
