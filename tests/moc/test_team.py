from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lib.moc.adaptive_hops import HopRule
from lib.moc.arms import ARMS, arm_of
from lib.moc.dag import Dag, chain_dag, dag_of, full_dag, random_dag
from lib.moc.distill import Candidate, ExtractiveDistiller, Item
from lib.moc.flow import k_order_flow, message_budget
from lib.moc.prompts import fenced
from lib.moc.record import AgentMessage, TeamRun
from lib.moc.roles import roles_of
from lib.moc.team import run_teams, wave_levels
from lib.models import Prompt, Reply, ScriptedReceiver
from lib.tasks.code_answer import run_examples
from lib.tasks.questions import Question
from tests.moc.crew import Crew, believer, block_of, choice, code, number, shown, speaker
from tests.moc.embedding import count_words, hash_embed

_EDGES = ((0, 5), (1, 0), (1, 2), (1, 3), (1, 6), (2, 6), (3, 4), (4, 2), (4, 5), (6, 0), (6, 5))
CASE = Dag(7, (1, 3, 4, 2, 6, 0, 5), _EDGES)  # spec 8.1


class Spy(ExtractiveDistiller):
    """Counts how many pairs each call merges."""

    def __init__(self) -> None:
        super().__init__(hash_embed, count_words)
        self.calls: list[int] = []

    def candidates(self, pairs: Sequence[tuple[Item, Item]], caps: Sequence[int]) -> list[list[Candidate]]:
        self.calls.append(len(pairs))
        return super().candidates(pairs, caps)


def run(
    arm: str, questions: Sequence[Question], dag: Dag, crew: ScriptedReceiver | None = None, **options: object
) -> list[TeamRun]:
    merging = {"embed": hash_embed, "distiller": Spy()} if arm == "moc" else {}
    return run_teams(crew or Crew(), questions, lambda _: dag, arm, **{**merging, **options})  # type: ignore[arg-type]


def prompts(arm: str, questions: Sequence[Question], dag: Dag, **options: object) -> list[Prompt]:
    crew = Crew(talker)
    run(arm, questions, dag, crew, **options)
    return crew.prompts


def talker(prompt: Prompt) -> str:
    """Say one's role, whom one heard, and some words of one's own, long enough to be worth merging."""
    heard = " ".join(header.split(",")[0] for header, _ in shown(prompt)) or "nobody"
    words = " ".join(f"{speaker(prompt).lower()} word{index}." for index in range(6))
    return f"I am the {speaker(prompt)} and heard {heard}. {words}\nThe answer is A"


# ---------------------------------------------------------------------------------------------------------------- waves


def test_levels_are_longest_paths() -> None:
    assert wave_levels(dag_of(5, [(0, 1), (1, 2), (0, 2), (3, 2)])) == [0, 1, 2, 0, 0]
    assert wave_levels(chain_dag(4)) == [0, 1, 2, 3]


def test_a_wave_of_all_questions_is_one_call() -> None:
    star = dag_of(5, [(0, 4), (1, 4), (2, 4), (3, 4)])
    dags = {"q1": star, "q2": chain_dag(3), "q3": dag_of(2, [])}
    crew = Crew()
    runs = run_teams(crew, [choice(name) for name in dags], lambda question: dags[question.id], "vanilla")
    # star: 4 then 1; chain: 1, 1, 1; two isolated agents: 2; and the three decisions together
    assert [len(batch) for batch in crew.batches] == [4 + 1 + 2, 1 + 1, 1, 3]
    assert [one.question_id for one in runs] == ["q1", "q2", "q3"]
    assert [message.wave for message in runs[0].messages] == [0, 0, 0, 0, 1]
    assert runs[1].decision.wave == 3


@given(st.integers(1, 7), st.floats(0.05, 1.0), st.integers(0, 9), st.sampled_from(["vanilla", "moc_flow", "moc"]))
@settings(max_examples=25, deadline=None)
def test_everyone_speaks_once_after_those_it_hears(n: int, density: float, seed: int, arm: str) -> None:
    dag = random_dag(n, density, seed)
    (one,) = run(arm, [choice("q")], dag, Crew(talker), k=2)
    assert [message.agent for message in one.messages] == list(range(n))
    assert [message.role for message in one.messages] == [role.name for role in roles_of("choice", n)]
    for message in one.messages:
        assert message.parents == dag.parents(message.agent)
        assert message.hops == k_order_flow(dag, message.agent, 1 if arm == "vanilla" else 2)
        assert all(one.messages[source].wave < message.wave for source, _ in message.hops)
        # every source stands in exactly one text that was shown
        told = [source for delivery in message.deliveries for source in delivery.sources]
        assert sorted(told) == sorted(source for source, _ in message.hops)
        said = sum(one.messages[source].text_tokens for source, _ in message.hops)
        shown_tokens = sum(delivery.tokens for delivery in message.deliveries)
        if arm == "moc":
            assert len(message.deliveries) <= message_budget(len(message.hops), 2)
            assert shown_tokens <= said
        else:
            assert shown_tokens == said and len(message.deliveries) == len(message.hops)


def test_questions_do_not_change_each_other() -> None:
    questions = [choice("q1"), number("q2"), choice("q3")]
    together = Counter(prompt.turns for prompt in prompts("moc", questions, CASE))
    alone = Counter(prompt.turns for one in questions for prompt in prompts("moc", [one], CASE))
    assert together == alone


# ---------------------------------------------------------------------------------------------------------------- what is heard


def heard(crew: Crew, agent_role: str) -> list[tuple[str, str]]:
    return next(shown(prompt) for prompt in crew.prompts if speaker(prompt) == agent_role)


def test_worked_case_order_and_merge() -> None:
    """Spec 8.1: target 5 at K = 2 hears [1, 3, 2, 4, 6, 0]; six messages, budget five, so one merge."""
    crew = Crew(talker)
    (flow,) = run("moc_flow", [choice("q")], CASE, crew, k=2)
    role = roles_of("choice", 7)[5].name
    assert [header.split(",")[0] for header, _ in heard(crew, role)] == [f"Agent {i}" for i in (1, 3, 2, 4, 6, 0)]
    crew = Crew(talker)
    (bfs,) = run("moc_flow", [choice("q")], CASE, crew, k=2, hop_order="bfs")
    assert [header.split(",")[0] for header, _ in heard(crew, role)] == [f"Agent {i}" for i in (1, 3, 2, 0, 4, 6)]
    crew = Crew(talker)
    (moc,) = run("moc", [choice("q")], CASE, crew, k=2)
    assert [target for target, _ in moc.consolidations] == [5]
    assert len(heard(crew, role)) == len(moc.messages[5].deliveries) <= 5
    assert any(" & Agent " in header for header, _ in heard(crew, role))
    assert not flow.consolidations and not bfs.consolidations
    assert moc.messages[5].received_bytes < flow.messages[5].received_bytes


def test_what_travels_is_what_was_said_never_what_was_heard() -> None:
    crew = Crew(talker)
    (one,) = run("moc", [choice("q")], full_dag(7, 1), crew, k=2)
    assert one.consolidations
    for _, result in one.consolidations:
        for item in result.items:
            if len(item.ids) == 1:
                assert item.text == one.messages[int(item.ids[0])].text
    decision = next(prompt for prompt in crew.prompts if speaker(prompt) == "decision")
    assert [text for _, text in shown(decision)] == [fenced(message.text) for message in one.messages]
    assert [header.split(",")[0] for header, _ in shown(decision)] == [f"Agent {agent}" for agent in range(7)]
    assert one.decision.hops == tuple((agent, 1) for agent in range(7))


def test_merges_of_all_questions_share_the_calls_of_the_distiller() -> None:
    alone, together = Spy(), Spy()
    dag = full_dag(7, 1)
    run("moc", [choice("q0")], dag, Crew(talker), distiller=alone)
    run("moc", [choice(f"q{index}") for index in range(4)], dag, Crew(talker), distiller=together)
    assert alone.calls and together.calls == [4 * pairs for pairs in alone.calls]


@given(st.integers(1, 7), st.floats(0.05, 1.0), st.integers(0, 5), st.sampled_from([0.0, 0.5, 1.0, 3.0]))
@settings(max_examples=25, deadline=None)
def test_k_of_one_is_vanilla_byte_for_byte(n: int, density: float, seed: int, gamma: float) -> None:
    dag, questions = random_dag(n, density, seed), [choice("q"), number("r"), code("s")]
    vanilla = prompts("vanilla", questions, dag)
    assert prompts("moc_flow", questions, dag, k=1) == vanilla
    assert prompts("moc", questions, dag, k=1, gamma=gamma) == vanilla
    assert prompts("vanilla", questions, dag, k=3) == vanilla


def test_more_hops_change_what_is_heard() -> None:
    assert prompts("moc_flow", [choice("q")], chain_dag(4), k=2) != prompts("vanilla", [choice("q")], chain_dag(4))


def test_k_by_a_rule() -> None:
    rule = HopRule("messages", 2.0, 3)
    (one,) = run("moc_flow", [choice("q")], chain_dag(5), Crew(talker), k=2, hops_of=rule.hops)
    assert [message.reach for message in one.messages] == [1, 1, 2, 2, 2]
    for message in one.messages:
        assert message.hops == k_order_flow(chain_dag(5), message.agent, message.reach)
    (vanilla,) = run("vanilla", [choice("q")], chain_dag(5), Crew(talker), hops_of=rule.hops)
    assert {message.reach for message in vanilla.messages} == {1}


# ---------------------------------------------------------------------------------------------------------------- failures


def failing(role: str, how: str = "raise") -> Crew:
    def script(prompt: Prompt) -> str:
        if speaker(prompt) != role:
            return talker(prompt)
        if how == "raise":
            raise TimeoutError("no answer in 600 s")
        return "  \n"

    return Crew(script)


@pytest.mark.parametrize(
    ("how", "error", "tries"), [("raise", "TimeoutError: no answer in 600 s", 3), ("empty", "the reply was empty", 1)]
)
def test_a_failed_agent_is_recorded_left_out_and_shown(how: str, error: str, tries: int) -> None:
    crew = failing("Mathematician", how)  # agent 2
    (one,) = run("moc", [choice("q")], CASE, crew, k=2)
    failed = one.messages[2]
    assert (failed.status, failed.text, failed.error, failed.tries) == ("failed", "", error, tries)
    assert one.failed_agents == (2,)
    # of the six messages that agent 5 should hear five came, and the budget is that of five
    target = one.messages[5]
    assert target.failed_sources == (2,)
    assert target.hops == ((1, 2), (3, 2), (4, 1), (6, 1), (0, 1))
    assert len(target.deliveries) <= message_budget(5, 2) == 4
    workers = [prompt for prompt in crew.prompts if speaker(prompt) != "decision"]
    assert not any(header.startswith("Agent 2,") for prompt in workers for header, _ in shown(prompt))
    assert not any(text == "" for prompt in workers for _, text in shown(prompt))
    decision = shown(crew.batches[-1][0])
    assert [header for header, text in decision if not text] == ["Agent 2, Mathematician (no output)"]
    assert len(decision) == 7 and one.decision.failed_sources == (2,)


def test_a_team_that_failed_is_still_decided() -> None:
    def script(prompt: Prompt) -> str:
        if speaker(prompt) == "decision":
            return "The answer is B"
        raise ConnectionError("refused")

    (one,) = run("moc", [choice("q")], CASE, Crew(script))
    assert one.failed_agents == tuple(range(7))
    assert one.decision.ok and one.decision.hops == ()
    assert all(message.received_bytes == 0 for message in one.messages)


def test_a_failed_decision_is_a_failure() -> None:
    (one,) = run("vanilla", [choice("q")], chain_dag(2), failing("decision"))
    assert (one.decision.status, one.decision.text) == ("failed", "")


def test_a_call_that_recovers_is_no_failure() -> None:
    left = [2]

    def script(prompt: Prompt) -> str:
        if speaker(prompt) == "Critic" and left[0]:
            left[0] -= 1
            raise ConnectionError("again")
        return talker(prompt)

    crew = Crew(script)
    (one,) = run("vanilla", [choice("q")], chain_dag(3), crew)
    assert one.messages[1].ok and one.messages[1].tries == 3
    # only the failed prompt was asked again, and every try is paid for
    assert [len(batch) for batch in crew.batches] == [1, 1, 1, 1, 1, 1]
    once = sum(count_words([turn.text for turn in crew.batches[1][0].turns]))
    assert one.messages[1].prompt_tokens == 3 * once


# ---------------------------------------------------------------------------------------------------------------- single, costs


def test_single_is_one_call_without_a_graph() -> None:
    def no_graph(question: Question) -> Dag:
        raise AssertionError("the single arm has no graph")

    crew = Crew()
    runs = run_teams(crew, [choice("q1"), choice("q2")], no_graph, "single")
    assert [len(batch) for batch in crew.batches] == [2]
    assert [speaker(prompt) for prompt in crew.prompts] == ["single", "single"]
    assert all(one.messages == () and one.dag is None and one.k == 0 and one.decision.ok for one in runs)


def test_sizes_are_exact_bytes() -> None:
    def script(prompt: Prompt) -> str:
        return f"grün 🟢 {speaker(prompt)}\nThe answer is A"

    crew = Crew(script)
    (one,) = run("moc_flow", [choice("q")], chain_dag(3), crew, k=2)
    by_role = {speaker(prompt): prompt for prompt in crew.prompts}
    for message in (*one.messages, one.decision):
        block = block_of(by_role["decision" if message.agent == "decision" else message.role])
        assert message.received_bytes == len(block.encode())
        assert message.sent_bytes == len(message.text.encode()) > len(message.text)
        assert message.text_tokens == len(message.text.split())
    assert [delivery.bytes for delivery in one.messages[2].deliveries] == [
        one.messages[0].sent_bytes,
        one.messages[1].sent_bytes,
    ]


class Mute(Crew):
    """A backend that tells no token counts, as a server with a prompt cache may."""

    def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:
        return [
            Reply(text=reply.text, finish=reply.finish, error=reply.error)
            for reply in super().reply(prompts, **options)
        ]


def test_missing_counts_are_recounted_and_marked() -> None:
    """Row 25 of the shared cases (ollama#2068, SWE-agent#44): a count that the server does not tell is never 0."""
    (told,) = run("vanilla", [choice("q")], chain_dag(3), Crew())
    (silent,) = run("vanilla", [choice("q")], chain_dag(3), Mute())
    for one, other in zip((*told.messages, told.decision), (*silent.messages, silent.decision), strict=True):
        assert (one.prompt_tokens, one.new_tokens) == (other.prompt_tokens, other.new_tokens)
        assert (one.tokens_estimated, other.tokens_estimated) == (False, True)


def test_token_caps_reach_the_receiver() -> None:
    (one,) = run("vanilla", [choice("q")], chain_dag(2), Crew(talker), max_tokens=3, decision_max_tokens=5)
    assert [message.new_tokens for message in one.messages] == [3, 3]
    assert one.messages[0].finish == "length"
    assert one.decision.new_tokens == 5


def test_lone_surrogates_do_not_stop_a_team() -> None:
    (one,) = run("vanilla", [choice("q")], chain_dag(2), Crew(lambda prompt: "bad \ud800 text\nThe answer is A"))
    assert "bad ? text" in one.messages[0].text


# ---------------------------------------------------------------------------------------------------------------- tampering and code


def test_tampering_replaces_what_is_sent() -> None:
    crew = Crew(believer)
    tamper = lambda question, agent, text: "The answer is D" if agent == 0 else text  # noqa: E731
    (one,) = run("vanilla", [choice("q")], chain_dag(3), crew, tamper=tamper)
    assert one.messages[0].text == "The answer is D"
    assert one.messages[0].own_text is not None and one.messages[0].own_text.startswith("I am the")
    assert one.messages[1].own_text is None and one.messages[1].text.endswith("The answer is D")
    assert one.messages[0].sent_bytes == len(b"The answer is D")
    with pytest.raises(ValueError, match="agent 0: an empty text is no message"):
        run("vanilla", [choice("q")], chain_dag(2), tamper=lambda *_: " ")


def coder(prompt: Prompt) -> str:
    """The algorithm designer and the programming expert write code, one wrong and one right."""
    right = {"Programming expert": "a + b", "decision": "a + b", "Algorithm designer": "a - b"}.get(speaker(prompt))
    return f"```python\ndef add(a, b):\n    return {right}\n```" if right else "Add both numbers."


def check(replies: Sequence[tuple[Question, str]]) -> list[tuple[int, int]]:
    return [(int("a + b" in text), 1) for _, text in replies]


def test_examples_are_run_once_a_wave_and_told_to_the_decision_only() -> None:
    asked: list[int] = []

    def counting(replies: Sequence[tuple[Question, str]]) -> list[tuple[int, int]]:
        asked.append(len(replies))
        return check(replies)

    crew = Crew(coder)
    (one,) = run("vanilla", [code("q")], chain_dag(5), crew, run_examples=counting)
    assert [message.examples for message in one.messages] == [None, (0, 1), (1, 1), None, None]
    assert asked == [1, 1]  # only messages with a fence
    headers = [header for header, _ in shown(crew.batches[-1][0])]
    assert headers[1:3] == [
        "Agent 1, Algorithm designer (passed 0 of 1 examples)",
        "Agent 2, Programming expert (passed 1 of 1 examples)",
    ]
    assert not any("passed" in header for prompt in crew.prompts[:-1] for header, _ in shown(prompt))
    assert len(crew.prompts) == 6


def test_passing_code_is_sent_on_without_a_call_when_asked_for() -> None:
    crew = Crew(coder)
    (one,) = run("vanilla", [code("q")], chain_dag(5), crew, run_examples=check, reuse_passing_code=True)
    assert [message.reused_from for message in one.messages] == [None, None, None, 2, 3]
    assert [message.tries for message in one.messages] == [1, 1, 1, 0, 0]
    assert one.messages[4].text == "```python\ndef add(a, b):\n    return a + b\n```"
    assert one.messages[4].examples == (1, 1)
    assert (one.messages[4].prompt_tokens, one.messages[4].new_tokens) == (0, 0)
    assert one.messages[4].hops == ((3, 1),)
    assert len(crew.prompts) == 4  # three workers and the decision


def test_the_first_passing_predecessor_in_sigma_counts() -> None:
    script = lambda prompt: f"```python\n# {speaker(prompt)}\ndef add(a, b):\n    return a + b\n```"  # noqa: E731
    dag = Dag(3, (1, 0, 2), ((0, 2), (1, 2)))
    (one,) = run("vanilla", [code("q")], dag, Crew(script), run_examples=check, reuse_passing_code=True)
    assert one.messages[2].reused_from == 1 and "# Algorithm designer" in one.messages[2].text


def test_the_suites_own_example_runner_fits() -> None:
    runner = partial(run_examples, allow_code_execution=True)
    (one,) = run("vanilla", [code("q")], chain_dag(4), Crew(coder), run_examples=runner, reuse_passing_code=True)
    assert [message.examples for message in one.messages] == [None, (0, 1), (1, 1), (1, 1)]
    assert one.messages[3].reused_from == 2


def test_a_question_without_examples_passes_nothing_on() -> None:
    (one,) = run(
        "vanilla",
        [code("q")],
        chain_dag(5),
        Crew(coder),
        run_examples=lambda some: [(0, 0)] * len(some),
        reuse_passing_code=True,
    )
    assert {message.reused_from for message in one.messages} == {None}
    (other,) = run("vanilla", [choice("q")], chain_dag(5), Crew(coder), run_examples=check, reuse_passing_code=True)
    assert {message.examples for message in other.messages} == {None}


def test_what_a_program_prints_becomes_its_answer() -> None:
    def script(prompt: Prompt) -> str:
        return "```python\nprint(6 * 7)\n```" if "prints the number" in prompt.turns[0].text else "so\nThe answer is 41"

    seen: list[str] = []

    def runner(texts: Sequence[str]) -> list[str | None]:
        seen.extend(texts)
        return ["42"] * len(texts)

    (one,) = run("vanilla", [number("q")], chain_dag(4), Crew(script), run_programs=runner)
    assert len(seen) == 1 and one.messages[2].computed == "42"
    assert one.messages[2].text.endswith("```\nThe answer is 42")
    assert [message.computed for message in one.messages] == [None, None, "42", None]
    (broken,) = run(
        "vanilla", [number("q")], chain_dag(4), Crew(script), run_programs=lambda texts: [None for _ in texts]
    )
    assert broken.messages[2].text.endswith("```")


# ---------------------------------------------------------------------------------------------------------------- errors


def test_errors_name_what_is_wrong_before_anything_is_asked() -> None:
    crew = Crew()
    dag = chain_dag(2)
    for match, options in {
        "pass embed= and distiller=": {"arm": "moc"},
        "arm 'mok' is not known; choose one of single, vanilla, moc_flow, moc": {"arm": "mok"},
        "at least 1 hop, not 0": {"arm": "moc_flow", "k": 0},
        "reuse_passing_code needs run_examples": {"arm": "vanilla", "reuse_passing_code": True},
        "tries: an agent is asked at least once": {"arm": "vanilla", "tries": 0},
    }.items():
        with pytest.raises(ValueError, match=match):
            run_teams(crew, [choice("q")], lambda _: dag, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"the ids \['q'\] occur more than once"):
        run_teams(crew, [choice("q"), choice("q")], lambda _: dag, "vanilla")
    merging = {"embed": hash_embed, "distiller": Spy()}
    for match, options in {"kappa": {"kappa": 0.6}, "epsilon": {"epsilon": -1.0}, "gamma": {"gamma": -1.0}}.items():
        with pytest.raises(ValueError, match=match):
            run_teams(crew, [choice("q")], lambda _: dag, "moc", **merging, **options)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="hop_order"):
        run_teams(crew, [choice("q")], lambda _: dag, "moc_flow", hop_order="far")  # type: ignore[arg-type]
    assert crew.calls == 0


def test_arms() -> None:
    assert [(arm_of(name, 3).k, arm_of(name, 3).consolidates) for name in ARMS] == [
        (0, False),
        (1, False),
        (3, False),
        (3, True),
    ]
    assert [arm_of(name).label for name in ARMS] == ["single", "vanilla", "moc_flow K=2", "moc K=2"]


def test_no_question_is_no_call() -> None:
    crew = Crew()
    assert run_teams(crew, [], lambda _: chain_dag(2), "vanilla") == []
    assert run_teams(crew, [], lambda _: chain_dag(2), "single") == []
    assert crew.batches == []


def test_every_message_has_its_key() -> None:
    crew = Crew()
    (one,) = run("vanilla", [choice("q")], chain_dag(3), crew)
    keys = {crew.prompt_key(prompt) for prompt in crew.prompts}
    assert {message.prompt_key for message in (*one.messages, one.decision)} == keys
    assert isinstance(one.messages[0], AgentMessage)
