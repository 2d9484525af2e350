from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks import Gold, Source, Task, WorkloadError, load_workload, split_tasks
from lib.tasks.task import build_workload

GOLD_WORDS = {"gold", "label", "answer", "answers", "evidence", "score", "utility", "reply"}


def make(task_id: str = "t1", text: str = "Vora is red.") -> tuple[Task, Gold]:
    task = Task(
        id=task_id,
        family="made",
        kind="bridge",
        query="What colour is Vora?",
        sources=(Source(id="Vora", title="Vora", sentences=(text,)),),
        version="made-1",
    )
    return task, Gold(task_id=task_id, label=None, answer="red", evidence=(("Vora", 0),))


def test_no_gold_field_is_reachable_from_a_task() -> None:
    fields = set(Task.__struct_fields__) | set(Source.__struct_fields__)
    assert not fields & GOLD_WORDS
    assert set(Gold.__struct_fields__) & set(Task.__struct_fields__) == set()


@pytest.mark.parametrize(
    ("n", "sizes"), [(400, (160, 80, 160)), (245, (98, 49, 98)), (5, (2, 1, 2)), (1, (0, 1, 0)), (0, (0, 0, 0))]
)
def test_split_sizes(n: int, sizes: tuple[int, int, int]) -> None:
    split = split_tasks([f"t{i}" for i in range(n)], seed=0)
    assert (len(split.profile), len(split.validation), len(split.final)) == sizes


@given(st.sets(st.text(max_size=8), max_size=60), st.integers(0, 5), st.randoms(use_true_random=False))
def test_split_is_disjoint_complete_and_order_free(ids: set[str], seed: int, rng) -> None:
    pool = sorted(ids)
    split = split_tasks(pool, seed)
    joined = split.profile + split.validation + split.final
    assert len(joined) == len(ids) and set(joined) == ids
    rng.shuffle(pool)
    assert split_tasks(pool, seed) == split


def test_seeds_give_other_splits() -> None:
    ids = [f"t{i}" for i in range(100)]
    assert set(split_tasks(ids, 0).final) != set(split_tasks(ids, 1).final)


def test_split_refuses_repeats_and_wrong_shares() -> None:
    with pytest.raises(WorkloadError, match="repeat"):
        split_tasks(["a", "a"], 0)
    with pytest.raises(WorkloadError, match="sum to 1"):
        split_tasks(["a"], 0, shares=(0.5, 0.5, 0.5))


def test_version_follows_content() -> None:
    one = build_workload("made", "made-1", [make()])
    same = build_workload("made", "made-1", [make()])
    other = build_workload("made", "made-1", [make(text="Vora is blue.")])
    assert one == same and one.version.startswith("made-1+")
    assert other.version != one.version


def test_build_workload_refuses_double_ids() -> None:
    with pytest.raises(WorkloadError, match="twice"):
        build_workload("made", "made-1", [make(), make()])


def test_unknown_names_and_knobs_are_suggested() -> None:
    with pytest.raises(WorkloadError, match="did you mean 'worlds_bridge'"):
        load_workload("world_bridge")
    with pytest.raises(WorkloadError, match="limit"):
        load_workload("worlds_bridge", limit=0)
