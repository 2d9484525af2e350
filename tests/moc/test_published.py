"""Tests of lib/moc/published.py: the copied numbers agree with each other, and stand beside their question sets."""

from __future__ import annotations

import doctest

import pandas as pd
import pytest

from lib.moc import published as module
from lib.moc.arms import ARMS
from lib.moc.published import BENCHMARKS, FOLDER, benchmark_of, difference_note, published
from lib.tasks.questions import QUESTION_SETS

REAL = [name for name in BENCHMARKS if name != "arithmetic"]


def read(name: str) -> pd.DataFrame:
    return pd.read_csv(FOLDER / f"{name}.csv")


def test_every_question_set_has_a_counterpart() -> None:
    assert set(BENCHMARKS) == set(QUESTION_SETS)
    with pytest.raises(ValueError, match="question set 'x' has no counterpart"):
        benchmark_of("x")


def test_every_row_says_where_it_was_read() -> None:
    tables = sorted(FOLDER.glob("*.csv"))
    assert [path.stem for path in tables] == [*(f"table{number}" for number in range(1, 7)), "text"]
    for path in tables:
        assert pd.read_csv(path)["source"].str.startswith("MOC paper, ").all(), path.name


def test_published_numbers_stand_beside_their_question_set() -> None:
    table = published("table1", ["humaneval", "mmlu"]).set_index(["question_set", "arm", "density"])
    assert len(table) == 18 and list(dict.fromkeys(table.index.get_level_values(0))) == ["humaneval", "mmlu"]
    assert table.loc[("humaneval", "moc", 0.3), "accuracy"] == 0.7805
    assert table.loc[("mmlu", "vanilla", 1.0), "accuracy"] == 0.7719
    deepseek = published("table4", ["mmlu_pro"]).set_index("arm")
    assert deepseek["prompt_tokens"].to_dict() == {"single": 85260, "vanilla": 3178655, "moc": 3722630}


def test_a_table_without_a_set_is_empty_and_a_wrong_name_is_refused() -> None:
    assert published("table2", ["gsm8k"]).empty
    assert published("table1", []).empty and "question_set" in published("table1", [])
    with pytest.raises(ValueError, match="there are table1, table2, table3, table4, table5, table6, text"):
        published("table9", ["mmlu"])


@pytest.mark.parametrize("name", ["table1", "table2"])
def test_improvements_are_those_of_the_accuracies(name: str) -> None:
    table = read(name)
    pairs = table[table["density"].notna()].pivot(
        index=["benchmark", "density"], columns="arm", values=["accuracy", "improvement_percent"]
    )
    moc, vanilla = pairs["accuracy"]["moc"], pairs["accuracy"]["vanilla"]
    assert pairs["improvement_percent"]["vanilla"].isna().all()
    # accuracies are printed with 4 digits, so their ratio is known to about 0.02 percentage points
    assert (pairs["improvement_percent"]["moc"] - 100 * (moc / vanilla - 1)).abs().max() < 0.02
    assert len(pairs) == {"table1": 28, "table2": 6}[name]


def test_averages_are_means_over_the_six_benchmarks() -> None:
    table = read("table1").assign(density=lambda frame: frame["density"].fillna(0))
    average = table["benchmark"] == "average"
    means = table[~average].groupby(["arm", "density"])["accuracy"].mean()
    printed = table[average].set_index(["arm", "density"])["accuracy"]
    assert (printed - means).abs().max() < 1e-4 and len(printed) == 9


@pytest.mark.parametrize("name", ["table1", "table2", "table4", "table6"])
def test_accuracies_are_whole_numbers_of_questions(name: str) -> None:
    counts = read("table5").set_index("benchmark")["questions"]
    table = read(name).query("benchmark != 'average'")
    right = table["accuracy"] * table["benchmark"].map(counts)
    assert (right - right.round()).abs().max() < 0.5e-4 * counts.max() + 1e-9
    assert set(table["arm"]) <= set(ARMS) and (table["k"] > 0).equals(table["arm"] != "single")


def test_tokens_add_up_and_table_6_repeats_table_2() -> None:
    table = read("table6")
    for part in ("agent", "distiller"):
        total = table[f"{part}_prompt_tokens"] + table[f"{part}_new_tokens"]
        assert total.equals(table[f"{part}_tokens"])
    assert (table.loc[table["k"] == 1, "distiller_tokens"] == 0).all()
    qwen = read("table2").query("benchmark == 'HumanEval' and arm != 'single'").set_index(["density", "k"])["accuracy"]
    same = table[table["k"] < 3].set_index(["density", "k"])["accuracy"]
    assert same.sort_index().equals(qwen.sort_index())


def test_seconds_add_up() -> None:
    table = read("table3")
    parts = table[["embedding_s", "similarity_s", "distillation_s"]].sum(axis=1)
    assert (table["total_s"] - parts).abs().max() < 0.015 and (table["distillation_s"] / table["total_s"]).min() > 0.99


def test_notes_say_what_differs() -> None:
    for name in REAL:
        note = difference_note(name, "m", "9 questions")
        assert note == f"drawn from the same benchmark, {BENCHMARKS[name]}; model m; 9 questions"
    assert difference_note("arithmetic", "m", "9 questions").startswith("made stories, easier than GSM8K")


def test_example() -> None:
    assert doctest.testmod(module).failed == 0
