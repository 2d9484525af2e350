from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.shared_episodes import (
    NEEDS,
    Episode,
    act,
    load,
    make_episode,
    make_episode_step,
    right_pair,
    roll_out,
    start_board,
)
from lib.tasks.steps import ACTIONS, load_steps
from lib.tasks.task import WorkloadError
from tests.tasks.step_checks import check_untold

TWO = Episode(
    id="e",
    agents=2,
    order=("a", "b", "c"),
    others=tuple(f"x{number}" for number in range(29)),
    builds_on=(("a", "b"),),
    start=("untested", "draft", "unread"),
    hidden=("draft", "draft", "obsolete"),
    length=10,
)
episodes = st.builds(make_episode, st.integers(0, 30), st.integers(0, 3), coupling=st.sampled_from([0.0, 0.3, 1.0]))


def test_a_worked_episode() -> None:
    """Test a; edit b, on which a builds; test a again, then b; read c, which turns out obsolete; delete it."""
    boards, log = roll_out(TWO)
    assert log == [
        ("a", "run_test"),
        ("b", "edit"),
        ("a", "run_test"),
        ("b", "run_test"),
        ("c", "read"),
        ("c", "delete"),
    ]
    assert boards[-1] == {"a": "done", "b": "done", "c": "gone"} and right_pair(TWO, boards[-1]) is None


@pytest.mark.parametrize(
    ("artifact", "action", "changed"),
    [
        ("c", "edit", {"c": "untested"}),
        ("c", "create", {"c": "draft"}),
        ("c", "configure", {"c": "unset"}),
        ("c", "delete", {"c": "missing"}),
        ("b", "delete", {"b": "missing", "a": "untested"}),  # a builds on b
        ("b", "run_test", {}),
        ("b", "read", {}),
        ("x1", "edit", {}),
        ("c", "fly", {}),
    ],
)
def test_wrong_actions_have_consequences(artifact: str, action: str, changed: dict[str, str]) -> None:
    board = {"a": "done", "b": "draft", "c": "done"}
    assert act(TWO, board, artifact, action) == board | changed
    assert board == {"a": "done", "b": "draft", "c": "done"}, "a board is never changed in place"


@given(episodes)
def test_all_work_ends_if_agents_do_what_is_right(episode: Episode) -> None:
    boards, log = roll_out(msgspec.structs.replace(episode, length=10_000))
    assert len(log) >= episode.length and set(boards[-1].values()) <= {"done", "gone"}
    assert roll_out(episode)[1] == log[: episode.length]


@given(episodes, st.data())
def test_what_is_right_depends_on_the_board_alone_and_any_board_can_be_mended(episode: Episode, data: Any) -> None:
    board = start_board(episode)
    for _ in range(4):
        board = act(episode, board, data.draw(st.sampled_from(episode.order)), data.draw(st.sampled_from(ACTIONS)))
    pair = right_pair(episode, board)
    if pair is not None:
        path, action = pair
        assert NEEDS[board[path]] == action
        assert all(board[before] not in NEEDS for before in episode.order[: episode.order.index(path)])
        steps = 0
        while (pair := right_pair(episode, board)) is not None:
            board, steps = act(episode, board, *pair), steps + 1
            assert steps < 1000


def test_without_coupling_a_wrong_step_stays_where_it_was_made() -> None:
    for number in range(20):
        episode = make_episode(number, coupling=0.0)
        board = start_board(episode)
        other = act(episode, board, episode.order[3], "delete")
        assert episode.builds_on == () and {path for path in board if board[path] != other[path]} <= {episode.order[3]}


def test_the_local_view_is_of_the_board_that_was_seen_and_the_context_of_the_board_as_it_is() -> None:
    boards, log = roll_out(TWO)
    step, gold = make_episode_step(TWO, 3, boards[3], boards[1], 1, log[:3])
    assert gold.pairs == (("b", "run_test"),)
    assert "agent 2 of 2, at step 3" in step.local_view and "before step 1:\na: done\nb: draft" in step.local_view
    assert "b: untested" in step.context and "step 1, agent 2: edit b\nstep 2, agent 1: run_test a" in step.context
    assert "step 0" not in step.context and "a, when b changes" in step.context
    fresh, same = make_episode_step(TWO, 3, boards[3], boards[3], 3, log[:3])
    assert same == gold and "b: untested" in fresh.local_view and fresh.artifacts == step.artifacts


def test_with_a_stale_view_the_gold_is_not_told() -> None:
    """Two boards with one past: whoever sees the past sees the same, though another step is right."""
    boards, log = roll_out(TWO)
    pairs = [make_episode_step(TWO, 3, board, boards[0], 0, log[:3]) for board in (boards[3], boards[1])]
    assert pairs[0][1] != pairs[1][1] and pairs[0][0].local_view == pairs[1][0].local_view
    swapped = [(msgspec.structs.replace(step, context=""), gold) for step, gold in pairs]
    check_untold(swapped[:1], swapped[1:], 0)


def stale_share(**knobs: Any) -> float:
    """Share of steps at which the rule, applied to the states in the local view, says what is right."""
    right = []
    for step, gold in load(limit=30, **knobs):
        order = step.local_view.split("Work order: ")[1].split("\n")[0].split(", ")
        seen = dict(line.split(": ") for line in step.local_view.split(":\n")[1].split("\n"))
        first = next((path for path in order if seen[path] in NEEDS), "")
        right.append(gold.pairs == ((first, NEEDS.get(seen.get(first, ""), "")),))
    return sum(right) / len(right)


def test_fresh_sets_how_often_the_local_view_is_enough() -> None:
    assert stale_share(fresh=1.0) == stale_share(lag=0) == 1.0
    shares = [stale_share(fresh=fresh) for fresh in (0.0, 0.25, 0.5, 0.75)]
    assert shares == sorted(shares) and shares[0] < 0.2
    assert all(fresh - 0.05 <= share <= fresh + 0.2 for fresh, share in zip((0, 0.25, 0.5, 0.75), shares, strict=True))
    assert load(limit=1, lag=3) == load(limit=1) != load(limit=1, lag=1)


def test_the_generator_is_versioned() -> None:
    """A change of rules or texts has to raise VERSION; then this digest follows."""
    assert load_steps("shared_episodes", 4).version == "shared_episodes-1+f20c7a702daa"


@pytest.mark.parametrize("bad", [{"agents": 0}, {"files": 1}, {"files": 33}, {"length": 0}, {"coupling": 1.5}])
def test_knobs_out_of_range_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(WorkloadError, match="coupling 0 to 1 are needed"):
        make_episode(0, **bad)


def test_what_cannot_be_made_is_refused() -> None:
    with pytest.raises(WorkloadError, match="2 files have too little work for 30 steps"):
        make_episode(0, files=2, length=30)
    with pytest.raises(WorkloadError, match="lag >= 0 and fresh 0 to 1 are needed"):
        load(limit=1, lag=-1)
    boards, log = roll_out(TWO)
    with pytest.raises(WorkloadError, match="all is settled before step 6"):
        make_episode_step(TWO, 6, boards[6], boards[6], 6, log)
    with pytest.raises(WorkloadError, match="a log of 2 steps"):
        make_episode_step(TWO, 2, boards[2], boards[2], 2, log)
