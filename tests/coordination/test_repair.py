"""What mending and looking again buy: hits of the steps that could profit, and the tokens of what is read for it."""

from __future__ import annotations

import pandas as pd
import pytest

from lib.coordination.repair import INTERVENTIONS, intervention_costs, intervention_gains, own_entries
from lib.coordination.shared_state import CONDITIONS, Entry, run_episodes, score_episodes
from tests.coordination.exchanges import Listening
from tests.coordination.test_shared_state import ENTRIES, SET, follow

RECORDS = run_episodes(SET.steps, ENTRIES, receiver=Listening(follow))
SCORED = score_episodes(RECORDS, SET.gold, SET.steps, snap=False)
OWN = own_entries(RECORDS[CONDITIONS[0]])
COSTS = intervention_costs(SET.steps, OWN, Listening(follow))


def test_costs_are_the_mended_line_and_the_views_from_the_second_step_on() -> None:
    assert OWN["i1"] == Entry("src/file_1.py", "edit")
    assert COSTS["instance_id"].tolist() == ["i0", "i1", "i2"]
    assert COSTS["entry"].tolist() == [4] * 3, "step 0: edit src/file_1.py"
    assert COSTS["views"].tolist() == [4] * 3, "of two words each, at steps 2 and 3"


def test_hits_are_counted_where_a_mended_log_was_read() -> None:
    table = intervention_gains(SCORED, COSTS)
    assert set(table["intervention"]) == set(INTERVENTIONS) and len(table) == 3 * len(INTERVENTIONS)
    assert table["steps"].eq(2).all() and (table["delta"] == table["left"] - table["right"]).all()
    own = SCORED[SCORED["step_t"] >= 2].assign(hit=SCORED["hit_joint"].astype(float))
    hits = own.groupby(["run", "observation", "instance_id"])["hit"].sum()
    for row in table.to_dict("records"):
        before, after, _ = INTERVENTIONS[row["intervention"]]
        assert row["left"] == hits[(*after, row["instance_id"])] and row["right"] == hits[(*before, row["instance_id"])]
    tokens = table.drop_duplicates("intervention").set_index("intervention")["tokens"]
    assert tokens["mend and look"] == tokens["look again"] + tokens["mend the log, stale views"]


def test_what_was_not_run_is_left_out_and_a_failed_call_is_null() -> None:
    fresh = intervention_gains(SCORED[SCORED["observation"] == "fresh"], COSTS)
    assert set(fresh["intervention"]) == {"mend the log, fresh views"}
    failed = SCORED.copy()
    failed["hit_joint"] = failed["hit_joint"].astype("Float64")
    failed.loc[
        failed[(failed["run"] == "repaired") & (failed["step_t"] == 3) & (failed["instance_id"] == "i0")].index,
        "hit_joint",
    ] = None
    table = intervention_gains(failed, COSTS).set_index(["intervention", "instance_id"])["delta"]
    assert pd.isna(table["mend the log, fresh views", "i0"]) and pd.notna(table["mend the log, fresh views", "i1"])
    with pytest.raises(ValueError, match="no episode has a step 2"):
        intervention_gains(SCORED[SCORED["step_t"] < 2], COSTS)
    with pytest.raises(ValueError, match="lacks the columns"):
        intervention_gains(SCORED, COSTS.drop(columns="views"))
