from __future__ import annotations

from collections.abc import Sequence

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks import Answer, Question, WorkloadError, grade, grade_all, load_questions
from lib.tasks.grader_check import check_questions
from lib.tasks.questions import build_questions, extract_answer, question_text
from lib.tasks.sandbox import Verdict

CHOICE = Question(
    id="c", family="mmlu", domain="choice", text="Which metal?", options=("iron", "tin", "lead", "zinc"), version="1"
)
AQUA = Question(id="a", family="aqua", domain="math", text="How much?", options=("1", "2", "3", "4", "5"), version="1")
MATH = Question(id="m", family="gsm8k", domain="math", text="How many?", version="1")
CODE = Question(id="p", family="humaneval", domain="code", text="def f():\n", entry_point="f", version="1")


def check_nothing_but_returns(items: Sequence[tuple[Question, Answer, str]]) -> list[Verdict]:
    return [Verdict(q.id, "passed" if "return 1" in raw else "failed", 0.1, "AssertionError") for q, _, raw in items]


def test_what_an_agent_is_shown() -> None:
    assert question_text(CHOICE) == "Which metal?\nA) iron\nB) tin\nC) lead\nD) zinc"
    assert question_text(MATH) == "How many?" and question_text(CODE) == "def f():\n"


def test_a_question_has_no_field_for_gold() -> None:
    """Schedulers and selectors see questions; nothing in them may tell the answer."""
    assert set(Question.__struct_fields__) == {
        *("id", "family", "domain", "text", "options", "subject", "entry_point", "version")
    }


def test_grades_say_what_was_read_and_why() -> None:
    right = grade(CHOICE, Answer("c", "B"), "The answer is B")
    assert (right.correct, right.extracted, right.gold, right.raw) == (True, "B", "B", "The answer is B")
    wrong = grade(CHOICE, Answer("c", "B"), "The answer is C")
    assert wrong.correct is False and "but gold is B" in wrong.reason
    unparsed = grade(CHOICE, Answer("c", "B"), "ANSWER: None of the above")
    assert (unparsed.correct, unparsed.extracted) == (False, None) and unparsed.reason.startswith("unparsed: ")
    assert grade(MATH, Answer("m", "27"), "It is 27.0.").correct is True
    assert grade(MATH, Answer("m", "0"), "").correct is False  # silence is not zero


def test_official_and_robust_differ_where_the_official_rule_errs() -> None:
    """Row 7 of the fault reports: "The answer is C" read as A."""
    gold = Answer("c", "C")
    assert grade(CHOICE, gold, "The answer is C").correct is True
    assert grade(CHOICE, gold, "The answer is C", "official").correct is False
    assert grade(CHOICE, gold, "The answer is C", "official").extracted == "A"
    assert grade(AQUA, Answer("a", "C"), "The answer is C", "official").correct is True
    pro = msgspec.structs.replace(CHOICE, family="mmlu_pro")
    assert grade(pro, gold, "H", "official").extracted == "H"  # ten letters, whatever is offered
    assert grade(MATH, Answer("m", "8"), "8.0 of them", "official").correct is True
    assert grade(MATH, Answer("m", "8"), "8 of 9", "official").extracted == "9"
    with pytest.raises(WorkloadError, match="extractor must be 'robust' or 'official'"):
        grade(CHOICE, gold, "C", "first")  # type: ignore[arg-type]


def test_missing_replies_and_code_nobody_runs_are_not_graded() -> None:
    """Row 13 of the fault reports: what could not be judged stays visible, so that it stays in the denominator."""
    items = [
        (CHOICE, Answer("c", "B"), None),
        (CODE, Answer("p", "return 1"), "```python\ndef f():\n    return 1\n```"),
    ]
    graded = grade_all(items)
    assert [one.correct for one in graded] == [None, None]
    assert "no reply" in graded[0].reason and "run_code" in graded[1].reason
    assert graded[1].extracted == "def f():\n    return 1"


def test_code_of_many_replies_runs_in_one_call() -> None:
    calls = []

    def run(items: Sequence[tuple[Question, Answer, str]]) -> list[Verdict]:
        calls.append(len(items))
        return check_nothing_but_returns(items)

    items: list[tuple[Question, Answer, str | None]] = [
        (CODE, Answer("p", "x"), "return 0"),
        (CHOICE, Answer("c", "B"), "B"),
        (CODE, Answer("p", "x"), None),
        (CODE, Answer("p", "x"), "return 1"),
    ]
    graded = grade_all(items, run_code=run)
    assert [one.correct for one in graded] == [False, True, None, True] and calls == [2]
    assert graded[0].reason == "failed: AssertionError"


def test_canonical_answers_for_a_vote() -> None:
    assert extract_answer(CHOICE, "The answer is (b)") is None
    assert extract_answer(CHOICE, "The answer is (B)") == "B"
    assert extract_answer(MATH, "The answer is 8,000.0") == extract_answer(MATH, "8000") == "8000"


def test_sets_are_checked_and_versioned() -> None:
    pairs = [(CHOICE, Answer("c", "B")), (MATH, Answer("m", "8"))]
    made = build_questions("made", pairs)
    assert made.version.startswith("1+") and len(made.version) == 14 and list(made.answers) == ["c", "m"]
    assert made == build_questions("made", pairs)
    assert made.version != build_questions("made", [(CHOICE, Answer("c", "C")), pairs[1]]).version
    assert made.version != build_questions("made", pairs[::-1]).version
    for broken, words in [
        ([], "no question"),
        ([pairs[0], pairs[0]], "'c' appears twice"),
        ([(CHOICE, Answer("m", "B"))], "gold of 'm' was given for 'c'"),
        ([(CHOICE, Answer("c", "E"))], "gold 'E' is none of A, B, C, D"),
        ([(MATH, Answer("m", "eight"))], "gold 'eight' is no number"),
    ]:
        with pytest.raises(WorkloadError, match=words):
            build_questions("made", broken)
    with pytest.raises(WorkloadError, match="gold of 'm' was given for question 'c'"):
        grade(CHOICE, Answer("m", "B"), "B")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"name": "mmlu-pro"}, "did you mean 'mmlu_pro'"),
        ({"name": "mmlu", "limit": 0}, "limit must be a whole number of at least 1"),
        ({"name": "mmlu", "limit": True}, "limit must be"),
        ({"name": "mmlu", "subset": "paper"}, "subset must be 'moc' or 'all'"),
    ],
)
def test_wrong_requests_say_what_would_work(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        load_questions(**arguments)  # type: ignore[arg-type]


def test_the_grader_check_sees_a_broken_grader() -> None:
    made = build_questions("made", [(CHOICE, Answer("c", "B")), (AQUA, Answer("a", "E")), (MATH, Answer("m", "-3"))])
    for extractor in ("robust", "official"):
        check = check_questions(made, extractor)  # type: ignore[arg-type]
        assert (check.tasks, check.gold_mean, check.wrong_mean, check.failures) == (3, 1.0, 0.0, ())
    code = build_questions("code", [(CODE, Answer("p", "    return 1", canonical="    return 1"))])
    assert check_questions(code, run_code=check_nothing_but_returns).failures == ()
    never = check_questions(code, run_code=lambda items: [Verdict(q.id, "failed", 0.1) for q, _, _ in items])
    assert never.gold_mean == 0.0 and never.failures
    with pytest.raises(ValueError, match="pass run_code"):
        check_questions(code)


@given(st.text(), st.sampled_from([CHOICE, AQUA, MATH]), st.sampled_from(["robust", "official"]))
def test_any_reply_is_graded_with_a_reason(raw: str, question: Question, extractor: str) -> None:
    gold = Answer(question.id, "1" if question is MATH else "A")
    graded = grade(question, gold, raw, extractor)  # type: ignore[arg-type]
    assert graded.reason and graded.raw == raw and isinstance(graded.correct, bool)
    assert not (graded.correct and graded.extracted is None)
