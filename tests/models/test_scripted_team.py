"""The rule-made team: it calculates, errs by role, listens, decides and merges, and leaves other prompts alone."""

from __future__ import annotations

import msgspec
import pytest

from lib.moc.distill_prompts import STYLES, distill_prompt, message_lines
from lib.moc.prompts import Shown, decision_block, decision_prompt, single_prompt, worker_block, worker_prompt
from lib.moc.roles import roles_of
from lib.models import Prompt, open_receiver
from lib.models.receiver import Turn
from lib.models.scripted import lexical_script
from lib.models.scripted_team import team_script, trusting_script
from lib.tasks import Question, load_questions
from lib.tasks.questions import extract_answer

STORIES = load_questions("arithmetic", 40)
ROLES = roles_of("math", 4)
STORY = Question(
    id="s", family="arithmetic", domain="math", text="Ada has 20 pears. Ada buys 5 more. How many pears are there now?"
)


def said(*answers: str) -> list[Shown]:
    return [
        Shown((str(agent),), ("Inspector",), f"So it is.\nThe answer is {one}") for agent, one in enumerate(answers)
    ]


def worker(question: Question, shown: list[Shown], role: int = 0) -> str:
    return team_script(worker_prompt(question, ROLES[role], worker_block(question, shown)))


def test_the_receiver_called_scripted_plays_teams() -> None:
    (reply,) = open_receiver("scripted").reply([single_prompt(STORY)])
    assert extract_answer(STORY, reply.text) == "25"


def test_roles_err_on_different_stories_and_more_are_right_than_wrong() -> None:
    right = [
        [extract_answer(story, worker(story, [], role)) == STORIES.answers[story.id].answer for role in range(4)]
        for story in STORIES.questions
    ]
    shares = [sum(column) / len(right) for column in zip(*right, strict=True)]
    assert all(0.5 < share < 1 for share in shares), shares
    assert any(0 < sum(row) < 4 for row in right)


def test_a_worker_follows_a_majority_and_keeps_its_own_answer_in_a_tie() -> None:
    assert extract_answer(STORY, worker(STORY, said("31", "31"))) == "31"
    assert extract_answer(STORY, worker(STORY, said("31", "32"))) == "25"
    assert extract_answer(STORY, worker(STORY, said("31", "25"))) == "25"


def test_merged_headers_are_heard_as_one() -> None:
    merged = [Shown(("0", "3"), ("Inspector", "Inspector"), "Both get it.\nThe answer is 31")]
    assert "Agent 0 & Agent 3, Agent 0 said 31" in worker(STORY, [*merged, *said("31")])


def test_the_decision_agent_takes_what_most_said_and_the_first_in_a_tie() -> None:
    decided = [
        extract_answer(STORY, team_script(decision_prompt(STORY, decision_block(said(*answers)))))
        for answers in (("31", "32", "32"), ("31", "32"), ("7",))
    ]
    assert decided == ["32", "31", "7"]


def test_a_letter_is_one_of_the_options_and_code_keeps_its_signature() -> None:
    choice = msgspec.structs.replace(STORY, domain="choice", text="Which one?", options=("red", "blue", "green"))
    answers = {extract_answer(choice, team_script(worker_prompt(choice, role, ""))) for role in roles_of("choice", 7)}
    assert answers <= {"A", "B", "C"} and len(answers) > 1
    code = msgspec.structs.replace(STORY, domain="code", text="def add(a, b):\n    '''Add.'''\n", entry_point="add")
    assert "def add(a, b):" in team_script(worker_prompt(code, roles_of("code", 3)[2], ""))
    heard = [Shown(("2",), ("Bug fixer",), "```python\ndef add(a, b):\n    return a + b\n```")]
    assert "return a + b" in team_script(decision_prompt(code, decision_block(heard)))


@pytest.mark.parametrize("style", STYLES)
def test_a_merge_keeps_the_length_and_words_of_both(style: str) -> None:
    first, second = (
        "one two three four five six seven eight",
        "nine ten eleven twelve thirteen fourteen fifteen sixteen",
    )
    messages = (message_lines("AGENT_1", ["0"], ["r"], first), message_lines("AGENT_2", ["1"], ["r"], second))
    merged = team_script(distill_prompt(messages, style, 45, 7)).split()
    assert len(merged) <= 7
    assert set(merged) & set(first.split()) and set(merged) & set(second.split())
    assert set(merged) <= set(first.split()) | set(second.split())


def test_other_prompts_are_answered_as_before() -> None:
    other = Prompt(
        (Turn("system", "Answer from the packets."), Turn("user", "Question: who?\nSource A - Claim: it was Ada"))
    )
    assert team_script(other) == lexical_script(other)


def test_some_trusting_workers_believe_the_last_they_hear_and_the_others_answer_as_before() -> None:
    believers = set()
    for story in STORIES.questions:
        for role in ROLES:
            prompt = worker_prompt(story, role, worker_block(story, said("1", "7")))
            reply, usual = trusting_script(prompt), team_script(prompt)
            if reply == usual:
                continue
            assert extract_answer(story, reply) == "7" and "Agent 1" in reply
            believers.add((story.id, role.name))
    assert 0.3 < len(believers) / (len(ROLES) * len(STORIES.questions)) < 0.7
    decision = decision_prompt(STORY, decision_block(said("1", "7")))
    assert trusting_script(decision) == team_script(decision)
    alone = worker_prompt(STORY, ROLES[0], "")
    assert trusting_script(alone) == team_script(alone)
