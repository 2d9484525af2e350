from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.moc.prompts import (
    END,
    FENCE,
    Shown,
    answer_kind,
    compose,
    decision_block,
    decision_prompt,
    fenced,
    prompts_hash,
    single_prompt,
    task_line,
    worker_block,
    worker_prompt,
)
from lib.moc.roles import ROLES, roles_of
from lib.tasks.questions import Question
from tests.moc.crew import choice, code, number, shown

aqua = Question(id="a", family="aqua", domain="math", text="Which sum?", options=("1", "2", "3", "4", "5"))
hostile = st.lists(
    st.sampled_from(["<", "<<<", "\uff1c", "\n", "\r", "\u2028", "Agent 2, Critic", END, " ", "x", "The task is: "]),
    max_size=12,
).map("".join)


def say(agent: int, text: str, role: str = "Critic") -> Shown:
    return Shown((str(agent),), (role,), text)


@given(st.lists(hostile, min_size=1, max_size=5))
def test_no_message_forges_a_header_or_ends_the_block(texts: list[str]) -> None:
    block = compose([say(agent, text) for agent, text in enumerate(texts)], "Lead.")
    lines = block.split("\n")
    headers = [line for line in lines if line.startswith(FENCE)]
    assert headers == [*(f"{FENCE} Agent {agent}, Critic" for agent in range(len(texts))), END]
    assert block.count(FENCE) == len(texts) + 2  # each header, the end, and where the lead-in names the sign
    assert lines[-1] == END


@given(hostile)
def test_a_question_cannot_forge_a_header_either(text: str) -> None:
    assert FENCE not in task_line(choice("q1", text))


@given(st.text())
def test_fencing_changes_nothing_else(text: str) -> None:
    safe = fenced(text)
    assert fenced(safe) == safe
    if "<" not in text and "\uff1c" not in text and "\ufe64" not in text:
        assert safe == text.strip()


def test_code_keeps_its_prompt_signs_and_indentation() -> None:
    text = 'def f():\n    """\n    >>> f() << 2\n    4\n    """\n    return 1'
    assert fenced(text) == text


def test_block_reads_back_in_order_with_merged_sources_named() -> None:
    texts = [say(3, "far\n\nand on"), Shown(("1", "4"), ("Doctor", "Lawyer"), "both"), say(0, "near")]
    prompt = worker_prompt(choice("q"), ROLES["choice"][0], worker_block(choice("q"), texts))
    assert shown(prompt) == [
        ("Agent 3, Critic", "far\n\nand on"),
        ("Agent 1 & Agent 4, Doctor & Lawyer", "both"),
        ("Agent 0, Critic", "near"),
    ]


def test_texts_are_separated_by_a_blank_line() -> None:
    block = compose([say(0, "one"), say(1, "two")], "Lead.")
    assert block.split("\n\n")[1:] == [f"{FENCE} Agent 0, Critic\none", f"{FENCE} Agent 1, Critic\ntwo", END]


def test_an_agent_that_hears_nobody_gets_no_block() -> None:
    role = ROLES["choice"][1]
    assert worker_block(choice("q"), []) == ""
    prompt = worker_prompt(choice("q"), role, "")
    assert [turn.role for turn in prompt.turns] == ["system", "user"]
    assert prompt.turns[1].text == task_line(choice("q"))


@pytest.mark.parametrize(
    ("question", "kind", "opening"),
    [
        (choice("q"), "letter", "The task is:"),
        (number("q"), "number", "Q:"),
        (aqua, "letter", "Q:"),
        (code("q"), "code", "The task is:\ndef add"),
    ],
)
def test_kind_and_header_of_a_question(question: Question, kind: str, opening: str) -> None:
    assert answer_kind(question) == kind
    assert task_line(question).startswith(opening)


@pytest.mark.parametrize("question", [choice("q"), number("q"), aqua])
def test_every_prompt_that_is_graded_asks_for_the_last_line(question: Question) -> None:
    prompts = [worker_prompt(question, role, "") for role in ROLES[question.domain]]
    prompts += [single_prompt(question), decision_prompt(question, decision_block([say(0, "x")]))]
    for prompt in prompts:
        assert "The answer is X" in prompt.turns[0].text
        wanted = "letter" if question.options else "number"
        assert wanted in prompt.turns[0].text


def test_code_roles_answer_with_code_or_with_notes() -> None:
    systems = {role.name: worker_prompt(code("q"), role, "").turns[0].text for role in ROLES["code"]}
    with_code = {name for name, text in systems.items() if "fenced Python block" in text}
    assert with_code == {"Programming expert", "Bug fixer"}
    assert all("50 words" in text for name, text in systems.items() if name not in with_code)
    assert "passed the examples" in decision_prompt(code("q"), "").turns[0].text


def test_only_the_decision_on_a_number_has_a_worked_example() -> None:
    block = decision_block([say(0, "x")])
    assert [
        len(decision_prompt(question, block).turns) for question in (choice("q"), aqua, code("q"), number("q"))
    ] == [2, 2, 2, 4]
    roles = [turn.role for turn in decision_prompt(number("q"), block).turns]
    assert roles == ["system", "user", "assistant", "user"]


def test_the_programming_expert_programs_only_where_programs_run_and_a_number_is_asked() -> None:
    roles = {role.name: role for role in ROLES["math"]}
    expert, solver = roles["Programming expert"], roles["Math solver"]
    assert "prints the number" in worker_prompt(number("q"), expert, "", programs=True).turns[0].text
    for prompt in (
        worker_prompt(number("q"), expert, ""),
        worker_prompt(number("q"), solver, "", programs=True),
        worker_prompt(aqua, expert, "", programs=True),
    ):
        assert "prints the number" not in prompt.turns[0].text


def test_steps_are_asked_for_on_request() -> None:
    role = ROLES["choice"][0]
    assert "step by step" not in worker_prompt(choice("q"), role, "").turns[0].text
    assert "step by step" in worker_prompt(choice("q"), role, "", cot=True).turns[0].text
    assert "step by step" in single_prompt(choice("q"), cot=True).turns[0].text


def test_system_turns_stay_short() -> None:
    for domain, question in (("choice", choice("q")), ("math", number("q")), ("code", code("q"))):
        for role in ROLES[domain]:
            assert len(worker_prompt(question, role, "").turns[0].text.split()) < 85
        assert len(decision_prompt(question, "").turns[0].text.split()) < 60


def test_roles_are_dealt_by_index_from_the_start() -> None:
    assert [role.name for role in roles_of("math", 7)] == [role.name for role in ROLES["math"]] + [
        role.name for role in ROLES["math"][:3]
    ]
    assert [len(ROLES[domain]) for domain in ("choice", "math", "code")] == [9, 4, 5]
    assert roles_of("choice", 7) == ROLES["choice"][:7]
    with pytest.raises(ValueError, match="'law'.*choice, math, code"):
        roles_of("law", 3)
    with pytest.raises(ValueError, match="at least 1 agent"):
        roles_of("math", 0)


def test_hash_follows_the_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = prompts_hash()
    assert prompts_hash() == before
    monkeypatch.setattr("lib.moc.prompts._OWN", "Believe everybody.")
    assert prompts_hash() != before
