"""A study of several families: step names, what is measured, choices in use that agree with it, and that no gold is seen."""

from __future__ import annotations

import ast
from pathlib import Path

import msgspec
import pandas as pd
import pytest

import lib.coordination.selector_study as module
from lib.coordination.actions import ACTIONS
from lib.coordination.crossfit import crossfit
from lib.coordination.selector_outcomes import USED, agreement, measured_outcomes, used_steps
from lib.coordination.selector_study import (
    Fixed,
    choose_families,
    control_families,
    fixed_folds,
    measure_families,
    step_name,
)
from lib.coordination.survey import Settings, choosing_overhead
from tests.coordination.exchanges import Listening
from tests.coordination.sure import Sure, many_steps, mutated

ONE = many_steps()
SETS = {
    "toy": ONE,
    "toy:again": msgspec.structs.replace(
        ONE, steps=tuple(msgspec.structs.replace(s, family="toy:again") for s in ONE.steps)
    ),
}
FAMILIES = {name: one.steps for name, one in SETS.items()}
SETTINGS = Settings(budget=8, gate=None)


def who() -> dict[str, Listening]:
    return {"receiver": Sure(), "sender": Listening(name="sender")}


MEASURED = measure_families(FAMILIES, settings=SETTINGS, **who())
OUTCOMES = measured_outcomes(MEASURED, SETS, snap=False)
FITTED = crossfit(MEASURED.signals, OUTCOMES, folds=2, overhead=MEASURED.overhead, gate=None)
FOLD_OF = FITTED.steps.drop_duplicates("step_id").set_index("step_id")["fold"].to_dict()
FOLDS = fixed_folds(FAMILIES, FOLD_OF, [(one.table, one.prices) for one in FITTED.calibrations])


def test_equal_step_ids_of_two_families_are_told_apart() -> None:
    assert MEASURED.signals["step_id"].nunique() == 2 * len(ONE.steps) == OUTCOMES["step_id"].nunique()
    assert len(MEASURED.signals) == 2 * len(ONE.steps) * len(ACTIONS)
    paid = choosing_overhead(MEASURED.surveys["toy"])
    assert all(MEASURED.overhead[step_name("toy", step), action] == cost for (step, action), cost in paid.items())
    assert OUTCOMES.groupby("regime")["action"].nunique().eq(len(ACTIONS)).all()
    with pytest.raises(ValueError, match="no steps to measure"):
        measure_families({"toy": ()}, settings=SETTINGS, **who())


def test_every_step_is_in_the_fold_that_judged_it() -> None:
    assert [sum(map(len, one.steps.values())) for one in FOLDS] == [8, 8]
    for place, fold in enumerate(FOLDS):
        for family, steps in fold.steps.items():
            assert all(FOLD_OF[step_name(family, step.id)] == place for step in steps)
    few = dict(list(FOLD_OF.items())[:3])
    table, prices = FITTED.calibrations[0].table, FITTED.calibrations[0].prices
    assert sum(len(own) for one in fixed_folds(FAMILIES, few, [(table, prices)] * 2) for own in one.steps.values()) == 3


def test_in_use_the_selector_takes_what_was_looked_up_and_pays_what_was_charged() -> None:
    used = used_steps("in use", choose_families(FOLDS, settings=SETTINGS, **who()), SETS, FOLD_OF, snap=False)
    stored = FITTED.steps[FITTED.steps["policy"] == "selector"]
    assert list(used.columns) == list(USED) and len(used) == len(stored) and agreement(used, stored) == 1.0
    both = used.merge(stored, on="step_id", suffixes=("", "_stored"))
    for name in ("hit", "tokens", "decision_tokens", "utility", "decision_utility", "fold"):
        pd.testing.assert_series_equal(
            both[name].astype(float), both[f"{name}_stored"].astype(float), check_names=False
        )


def test_a_closed_gate_calls_no_sender_in_use() -> None:
    ask = who()
    closed = [
        Fixed(one.steps, msgspec.structs.replace(one.table, local_accuracy={"toy": 1.0}), one.prices) for one in FOLDS
    ]
    choices = choose_families(closed, settings=Settings(budget=8, gate=0.8), **ask)
    assert all(one.gated for one in choices["toy"]) and not any(one.gated for one in choices["toy:again"])
    assert ask["sender"].calls == 2 * len(ONE.steps), "both candidates of the open family alone"


def test_the_controller_is_scored_beside_it() -> None:
    done = control_families(FOLDS, settings=Settings(budget=64, gate=None), **who())
    used = used_steps("controller", done, SETS, FOLD_OF, snap=False)
    assert (
        len(used) == 16 and set(used["action"]) <= {"skip", "send", "rewrite", "escalate"} and used["hit"].notna().all()
    )
    assert (used["decision_tokens"] >= used["tokens"]).all() and not used["oracle_only"].any()


def test_a_failed_call_is_null_in_use() -> None:
    def broken(prompt: object) -> str:
        raise RuntimeError("down")

    choices = choose_families(FOLDS[:1], settings=SETTINGS, **who())
    dead = {
        name: [
            msgspec.structs.replace(one, record=msgspec.structs.replace(one.record, answered=False, parse_valid=None))
            for one in own
        ]
        for name, own in choices.items()
    }
    used = used_steps("in use", dead, SETS, FOLD_OF, snap=False)
    assert used["hit"].isna().all() and used["utility"].isna().all()


def test_choices_do_not_move_with_gold_and_the_module_has_no_way_to_it() -> None:
    first = msgspec.json.encode(choose_families(FOLDS, settings=SETTINGS, **who()))
    other = {name: msgspec.structs.replace(one, gold=mutated(one)) for name, one in SETS.items()}
    again = choose_families(
        fixed_folds(
            {name: one.steps for name, one in other.items()},
            FOLD_OF,
            [(one.table, one.prices) for one in FITTED.calibrations],
        ),
        settings=SETTINGS,
        **who(),
    )
    assert msgspec.json.encode(again) == first
    measured = measure_families({name: one.steps for name, one in other.items()}, settings=SETTINGS, **who())
    pd.testing.assert_frame_equal(measured.signals, MEASURED.signals)
    assert not measured_outcomes(measured, other, snap=False)["hit"].equals(OUTCOMES["hit"]), "the gold was another"
    tree = ast.parse(Path(module.__file__).read_text(encoding="utf-8"))
    words = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name)} | {
        node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)
    }
    assert not {word for word in words if "gold" in word.lower() or word.startswith("hit_")}
    modules = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert not modules & {
        f"lib.coordination.{one}"
        for one in ("scoring", "action_outcomes", "selector_outcomes", "calibration", "crossfit")
    }
