"""A plan counts what a run would ask, by the study's own code, and leaves no trace."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.__main__ import main
from lib.models.receiver import Prompt, Turn
from lib.models.unloaded import Guessed, Words
from lib.runs import plan as plan_module
from lib.runs.inputs import inputs_of
from lib.runs.layout import Layout
from lib.runs.notebook import plan_runs, run_notebooks
from lib.runs.plan import Foreseen, foresee
from lib.runs.plan_page import plan_lines, seconds_of
from lib.runs.planned import PlannedReceiver, doubting, lengthened
from lib.runs.probe import Rates, keep_rates, known_rates, machine_key
from lib.runs.store import Store
from lib.runs.tally import Ledger, Tally
from tests.runs.books import make_checkout, write_notebook

ASKS = """
from lib.__main__ import main
from lib.models.receiver import Prompt, Turn
from lib.runs import start_run
run = start_run()
asked = run.stored(run.receiver(receiver), progress=False)
first = asked.reply([Prompt((Turn("user", f"Question: what is {n}?"),)) for n in range(tasks)], max_tokens=8)
"""
AGAIN = """
asked.reply([Prompt((Turn("user", f"Question: what is {n}?"),)) for n in range(tasks)], max_tokens=8)
follow = [Prompt((Turn("user", f"Question: {n} and {reply.text}?"),)) for n, reply in enumerate(first)]
asked.reply(follow, max_tokens=8)
run.again(run.receiver(receiver), progress=False).reply([Prompt((Turn("user", "Question: what is 0?"),))], max_tokens=8)
run.receiver(receiver).reply([Prompt((Turn("user", "Question: timed?"),))], max_tokens=8)
"""
PARAMETERS = 'receiver: str = "scripted"\ntasks: int = 3\nworkloads: list[str] = ["worlds_bridge"]'


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    layout = make_checkout(tmp_path / "checkout")
    write_notebook(layout.notebooks / "10_asks.ipynb", ASKS, AGAIN, parameters=PARAMETERS)
    write_notebook(layout.notebooks / "11_asks_the_same.ipynb", ASKS, parameters=PARAMETERS)
    write_notebook(layout.notebooks / "20_proves.ipynb", "total = 1", parameters="laws: int = 3")
    return layout


def planned(layout: Layout, **overrides: str) -> dict[str, Foreseen]:
    notebooks = sorted(layout.notebooks.glob("*.ipynb"))
    plans = plan_runs(layout, notebooks, "smoke", overrides, say=lambda _: None)
    return {one.plan.notebook.stem[:2]: one for one in foresee(layout, plans, say=lambda _: None)}


def tree_of(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_plan_counts_what_the_run_then_asks_and_writes_nothing(layout: Layout) -> None:
    found = planned(layout)
    assert not layout.outputs.exists()
    tally = found["10"].tallies["scripted"]
    # 3 first questions, the same again, 3 that follow, one in the control's store, one timed.
    assert (tally.calls, tally.repeated, tally.computed, tally.unkept) == (11, 3, 8, 1)
    assert found["11"].tallies["scripted"].repeated == 3  # asked by notebook 10 of the same plan
    assert found["11"].tallies["scripted"].computed == 0
    assert found["20"].state == "silent"

    plans = plan_runs(layout, sorted(layout.notebooks.glob("1*.ipynb")), "smoke", say=lambda _: None)
    run_notebooks(layout, plans[:1], say=lambda _: None)
    with Store(layout.outputs / "store.sqlite", read_only=True) as store:
        frame = store.frame()
    assert len(frame) == 6 == tally.computed - tally.unkept - 1  # one of them is the control's
    before = tree_of(layout.outputs)
    again = planned(layout)
    assert again["10"].state == "finished"
    assert (again["11"].tallies["scripted"].stored, again["11"].tallies["scripted"].computed) == (3, 0)
    assert {name: size for name, size in tree_of(layout.outputs).items() if "sqlite-" not in name} == {
        name: size for name, size in before.items() if "sqlite-" not in name
    }


def test_many_tasks_are_sampled_and_what_is_not_here_is_named(layout: Layout, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_DATA", str(layout.root / "nowhere"))
    monkeypatch.setenv("LAB_CACHE", str(layout.root / "empty"))
    found = planned(layout, tasks="400", workloads="worlds_bridge,hotpotqa")["11"]
    assert found.tallies["scripted"].calls == pytest.approx(
        800
    )  # 400 tasks of one pool, the other as if it cost the same
    assert [remark.split(":")[0] for remark in found.remarks[:2]] == ["hotpotqa is not here", "sampled"]
    assert "tasks 8 and 16 rehearsed" in found.remarks[1]
    refused = planned(layout, workloads="hotpotqa")["11"]
    assert refused.state == "refused"
    assert "hotpotqa is not here" in refused.remarks[0]


def test_a_cell_that_raises_ends_the_rehearsal_and_is_named(layout: Layout) -> None:
    write_notebook(layout.notebooks / "12_breaks.ipynb", ASKS, "1 / 0", parameters=PARAMETERS)
    write_notebook(layout.notebooks / "13_dies.ipynb", "run.receiver('x') if 0 else __import__('os')._exit(3)")
    write_notebook(layout.notebooks / "14_lives.ipynb", ASKS, parameters=PARAMETERS)
    found = planned(layout)
    assert found["12"].state == "failed"
    assert "cell 4: ZeroDivisionError" in found["12"].remarks[0]
    assert found["12"].tallies["scripted"].calls == 3
    assert found["13"].state == "failed" and "its process ended" in found["13"].remarks[0]
    assert found["14"].state == "rehearsed"


def test_tokens_are_those_of_the_prefix_tree() -> None:
    ledger = Ledger()
    receiver = PlannedReceiver(Words("scripted"), ledger)
    receiver.reply([Prompt((Turn("user", text),)) for text in ("a b c d", "a b c e", "a b c e")], max_tokens=5)
    tally = ledger.tallies["scripted"]
    # The equal prompts are one row.
    assert (tally.computed, tally.naive, tally.tree, tally.bound) == (2, 8, 5, 10)
    receiver.score([Prompt((Turn("user", "a b"),))], ["yes", "no"])
    assert ledger.tallies["scripted"].tree == 7


def test_guessed_tokens_are_said_to_be_guessed() -> None:
    reader = Guessed("owner/model")
    assert len(reader.text_ids("x" * 41)) == 11 and not reader.exact
    line = "\n".join(plan_lines([_foreseen(Tally(calls=1, computed=1, exact=False))], {}))
    assert "guessed at 4 bytes" in line and "~" in line


def test_free_replies_are_lengthened_within_their_cap_and_keep_their_answer() -> None:
    prompt = Prompt((Turn("user", "one two three four five"),))
    longer = lengthened("The answer is 7", prompt, 40)
    assert longer.endswith("The answer is 7") and len(longer.split()) == 24
    assert lengthened("The answer is 7", prompt, 4) == "The answer is 7"
    assert json.loads(doubting('{"claim": "c", "uncertainty": "none stated"}'))["uncertainty"].endswith("c")


@given(st.integers(0, 10**6), st.integers(0, 10**6), st.floats(1, 100))
def test_the_line_goes_through_both_tallies_and_never_falls(small: int, more: int, place: float) -> None:
    one, other = (
        Tally(calls=small, computed=small, tree=small),
        Tally(calls=small + more, computed=small + more, tree=9),
    )
    assert other.beyond(one, 1.0).calls == pytest.approx(small + more)
    assert other.beyond(one, place).calls == pytest.approx(small + place * more)
    assert other.beyond(one, place).tree >= 9
    assert (one + other).calls == 2 * small + more


def test_lengths_of_as_many_questions_are_not_extended() -> None:
    small, large = Tally(calls=8, computed=8, tree=500), Tally(calls=90, computed=8, tree=560)
    assert (large.beyond(small, 10.0).tree, large.beyond(small, 10.0).calls) == (560, 828)


def test_seconds_follow_from_measured_rates_and_are_blank_without() -> None:
    found = _foreseen(Tally(calls=2, computed=2, tree=1000, expected=40, steps=10, bound=80))
    rates = Rates("m", "f", machine_key(), "2026-01-01T00:00+00:00", read=0.01, step=0.1, row=0.05)
    assert seconds_of(found, {"f": rates}) == pytest.approx(10 + 1 + 2 + 1.5)
    assert rates.at_most(found.tallies["m"]) == pytest.approx(10 + 2 * 3)
    assert seconds_of(found, {}) is None
    assert "not measured" in "\n".join(plan_lines([found], {}))


def test_rates_are_kept_a_machine_and_a_receiver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAB_CACHE", str(tmp_path))
    first = Rates("m", "f", machine_key(), "2026-01-01T00:00+00:00", 0.01, 0.1, 0.05)
    keep_rates(first)
    keep_rates(Rates("m", "f", "elsewhere", "2026-01-01T00:00+00:00", 1, 1, 1))
    keep_rates(Rates("m", "f", machine_key(), "2026-01-02T00:00+00:00", 0.02, 0.1, 0.05))
    known = known_rates("f")
    assert known is not None and (known.read, known.measured[:10]) == (0.02, "2026-01-02")
    assert known_rates("g") is None


def test_tasks_by_name_are_counted_by_name() -> None:
    parameters = {"workloads": ["worlds_bridge", "worlds_fanout"], "tasks": {"worlds_bridge": 30, "worlds_fanout": 10}}
    assert inputs_of(parameters).wanted == 20
    assert inputs_of({"laws": 3}).sizes() is None


def _foreseen(tally: Tally) -> Foreseen:
    from lib.runs.notebook import Plan

    opened = {"m": plan_module.Opened("f", {}, exact=tally.exact)}
    return Foreseen(Plan(Path("10_x.ipynb"), "smoke", {}, {}, "10_x-0"), "rehearsed", {"m": tally}, opened, 1.5, 0.0)


def test_a_sweep_is_planned_run_by_run(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("lib.runs.layout.checkout", lambda outputs=None: layout)
    monkeypatch.setattr("lib.__main__._stop_on_signals", lambda: None)
    file = layout.root / "few.yaml"
    file.write_text("notebook: 11\ngrid:\n  tasks: [2, 3]\n", encoding="utf-8")
    assert main(["plan", str(file), "--no-probe"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[:4] for line in lines if line.startswith("tasks=")] == [
        ["tasks=2", "2", "0", "2"],
        ["tasks=3", "3", "2", "1"],
    ]
    assert next(line for line in lines if line.startswith("total")).split()[1:4] == ["5", "2", "3"]
    assert main(["plan", str(file), "--only", "11"]) == 2
    assert not layout.outputs.exists()
