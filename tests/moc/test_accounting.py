from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import pandas as pd
import pytest

from lib.moc.accounting import edges_table, messages_table, runtime_table, tokens_table
from lib.moc.dag import chain_dag, dag_of, full_dag, random_dag
from lib.moc.distill import ExtractiveDistiller, ReceiverDistiller
from lib.moc.record import TeamRun
from lib.moc.team import run_teams
from lib.moc.vote import majority, vote_table
from lib.models import Prompt, Reply
from lib.tasks.questions import Question
from tests.moc.crew import Crew, believer, choice, code, speaker
from tests.moc.embedding import count_words, hash_embed

QUESTIONS = [choice("q1"), choice("q2")]


def talker(prompt: Prompt) -> str:
    return f"I am the {speaker(prompt)}. " + "A word more. " * 8 + "\nThe answer is A"


def teams(arm: str, density: float = 0.7, crew: Crew | None = None, **options: object) -> list[TeamRun]:
    crew = crew or Crew(talker)
    distiller = options.pop("distiller", ExtractiveDistiller(hash_embed, count_words))
    dag = random_dag(7, density, 42)
    return run_teams(crew, QUESTIONS, lambda _: dag, arm, embed=hash_embed, distiller=distiller, **options)  # type: ignore[arg-type]


def test_tokens_stand_apart_and_add_up() -> None:
    """Row 31 of the shared cases (yao-guan/MOC `experiments/common.py`): the total holds the distiller's tokens."""
    crew, scribe = Crew(talker), Crew(lambda prompt: "merged text of both. The answer is A")
    runs = teams("moc", crew=crew, distiller=ReceiverDistiller(scribe))
    table = tokens_table(runs)
    for _, row in table.iterrows():
        for kind in ("prompt_tokens", "new_tokens", "tokens"):
            assert row[f"agent_{kind}"] == row[f"worker_{kind}"] + row[f"decision_{kind}"]
        assert row["total_tokens"] == row["agent_tokens"] + row["distiller_tokens"]
        assert row["merges"] > 0 and row["distiller_tokens"] > 0
    asked = sum(count_words([turn.text for prompt in crew.prompts for turn in prompt.turns]))
    assert table["agent_prompt_tokens"].sum() == asked
    # five candidates a merge, those not taken included
    asked = sum(count_words([turn.text for prompt in scribe.prompts for turn in prompt.turns]))
    assert len(scribe.prompts) == 5 * table["merges"].sum()
    assert table["distiller_prompt_tokens"].sum() == asked
    assert table["calls"].tolist() == [8, 8]


def test_arms_without_merging_spend_nothing_on_it() -> None:
    table = tokens_table([*teams("vanilla"), *teams("moc_flow"), *teams("single")])
    assert table["distiller_tokens"].tolist() == [0] * 6
    assert table["total_tokens"].tolist() == table["agent_tokens"].tolist()
    assert table["worker_tokens"].tolist()[4:] == [0, 0]
    assert table["n"].tolist() == [7, 7, 7, 7, 0, 0]
    assert table["density"].isna().tolist() == [False] * 4 + [True] * 2


def test_requested_and_realised_density_stand_side_by_side() -> None:
    table = tokens_table(teams("vanilla", density=0.5))
    assert table["requested_density"].unique() == [0.5]
    assert table["density"].unique() == [11 / 21] and table["edges"].unique() == [11]


def test_what_is_unknown_is_null_and_counted() -> None:
    def script(prompt: Prompt) -> str:
        if speaker(prompt) == "Critic":
            raise TimeoutError("late")
        return talker(prompt)

    (one, _) = teams("vanilla", crew=Crew(script))
    (row,) = tokens_table([one]).to_dict("records")
    assert (row["failed_agents"], row["uncounted_calls"]) == (1, 1)
    known = [message for message in (*one.messages, one.decision) if message.new_tokens is not None]
    assert row["agent_new_tokens"] == sum(message.new_tokens or 0 for message in known) and len(known) == 7
    messages = messages_table([one])
    failed = messages[messages["status"] == "failed"].iloc[0]
    assert failed["error"] == "TimeoutError: late" and pd.isna(failed["new_tokens"]) and failed["text"] == ""


def test_a_total_without_the_distillers_count_is_null() -> None:
    class Silent(Crew):
        def reply(self, prompts: Sequence[Prompt], **options: object) -> list[Reply]:
            return [Reply(text=reply.text) for reply in super().reply(prompts, **options)]

    table = tokens_table(teams("moc", distiller=ReceiverDistiller(Silent(lambda prompt: "short. The answer is A"))))
    assert table["distiller_tokens"].isna().all() and table["total_tokens"].isna().all()
    assert table["agent_tokens"].notna().all()


def test_messages_table_has_every_message_once() -> None:
    runs = [*teams("moc"), *teams("single")]
    table = messages_table(runs)
    assert len(table) == 2 * 8 + 2
    assert table["agent"].tolist()[:8] == ["0", "1", "2", "3", "4", "5", "6", "decision"]
    assert table.loc[table["agent"] == "decision", "parents"].iloc[0] == list(range(7))
    assert (table["sent_bytes"] == table["text"].str.encode("utf-8").str.len()).all()
    assert messages_table([]).empty and "text" in messages_table([])


def test_shares_of_merged_texts_add_up_to_what_was_shown() -> None:
    runs = teams("moc")
    table = edges_table(runs)
    for run in runs:
        for reader in (*run.messages, run.decision):
            own = table[(table["question_id"] == run.question_id) & (table["target"] == str(reader.agent))]
            assert own["shown_bytes"].sum() == pytest.approx(sum(one.bytes for one in reader.deliveries))
            assert own["shown_tokens"].sum() == pytest.approx(sum(one.tokens for one in reader.deliveries))
            assert sorted(own["source"]) == sorted(source for source, _ in reader.hops)
    merged = table[table["merged"] > 1]
    assert len(merged) and (merged["shown_bytes"] < merged["sent_bytes"]).all()
    assert (table.loc[table["merged"] == 1, "shown_bytes"] == table.loc[table["merged"] == 1, "sent_bytes"]).all()


def test_edges_of_the_graph_are_told_from_longer_reach() -> None:
    (one, _) = [run_teams(Crew(), [question], lambda _: chain_dag(3), "moc_flow")[0] for question in QUESTIONS]
    table = edges_table([one])
    rows = table[table["target"] != "decision"][["source", "target", "hop", "edge"]]
    assert rows.values.tolist() == [[0, "1", 1, True], [0, "2", 2, False], [1, "2", 1, True]]
    assert table[table["target"] == "decision"]["edge"].tolist() == [False] * 3


def test_reused_code_travels_and_costs_no_call() -> None:
    def coder(prompt: Prompt) -> str:
        return "```python\ndef add(a, b):\n    return a + b\n```"

    def check(some: Sequence[tuple[Question, str]]) -> list[tuple[int, int]]:
        return [(1, 1) for _ in some]

    (one,) = run_teams(
        Crew(coder), [code("q")], lambda _: chain_dag(3), "vanilla", run_examples=check, reuse_passing_code=True
    )
    (row,) = tokens_table([one]).to_dict("records")
    assert (row["reused"], row["calls"], row["uncounted_calls"]) == (2, 2, 0)
    assert len(edges_table([one])) == 2 + 3


def test_runtime_in_the_form_of_table_3() -> None:
    table = runtime_table([*teams("moc", 0.7), *teams("moc", 0.3), *teams("vanilla", 0.7)])
    assert table[["arm", "requested_density", "runs"]].values.tolist() == [
        ["moc", 0.7, 2],
        ["moc", 0.3, 2],
        ["vanilla", 0.7, 2],
    ]
    assert table["merges"].gt(0).tolist() == [True, False, False]
    assert table["distillation_share"].isna().tolist() == [False, True, True]
    parts = table[["embedding", "similarity", "distillation"]].sum(axis=1)
    assert (parts - table["consolidation"]).abs().max() < 1e-9
    assert table["total"].tolist() == pytest.approx((table["agents"] + table["consolidation"]).tolist())


def test_seconds_from_a_store_are_not_zero() -> None:
    (one, other) = teams("vanilla")
    stored = msgspec.structs.replace(one, decision=msgspec.structs.replace(one.decision, seconds=math.nan))
    table = runtime_table([stored, other])
    assert table["agents"].isna().all() and table["total"].isna().all()


# ---------------------------------------------------------------------------------------------------------------- vote


def test_majority_takes_the_first_to_reach_the_largest_count() -> None:
    assert majority(["B", "A", "A", "B"]) == "A"
    assert majority(["B", None, "A", "B"]) == "B"
    assert majority([None, None]) is None and majority([]) is None


def test_votes_come_from_stored_runs() -> None:
    answers = {
        "Knowledgeable expert": "B",
        "Critic": "C",
        "Mathematician": "C",
        "Psychologist": "unclear",
        "decision": "B",
    }
    crew = Crew(lambda prompt: f"The answer is {answers[speaker(prompt)]}")
    runs = run_teams(crew, [choice("q")], lambda _: dag_of(4, []), "vanilla")
    asked = crew.calls
    (row,) = vote_table(runs, [choice("q")]).to_dict("records")
    assert crew.calls == asked
    assert (row["vote"], row["votes"], row["valid"], row["workers"]) == ("C", 2, 3, 4)
    assert row["answers"] == ["B", "C", "C", None]
    assert (row["decision"], row["agrees"], row["tie"]) == ("B", False, False)


def test_no_vote_is_null_and_code_is_refused() -> None:
    runs = run_teams(Crew(lambda prompt: "unsure"), [choice("q")], lambda _: full_dag(3, 1), "vanilla")
    (row,) = vote_table(runs, [choice("q")]).to_dict("records")
    assert row["vote"] is None and row["valid"] == 0 and pd.isna(row["agrees"])
    single = run_teams(Crew(believer), [choice("q")], lambda _: full_dag(3, 1), "single")
    assert vote_table(single, [choice("q")]).empty
    runs = run_teams(Crew(believer), [code("c")], lambda _: chain_dag(2), "vanilla")
    with pytest.raises(ValueError, match="'c' asks for code"):
        vote_table(runs, [code("c")])
