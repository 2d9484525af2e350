from __future__ import annotations

from collections import Counter

import msgspec
import pytest
from scipy.stats import chisquare

from lib.tasks.steps import ACTIONS, FAMILIES, Step, StepGold, accepts, build_steps, check_gold, load_steps
from lib.tasks.task import WorkloadError
from tests.tasks.step_checks import UNLIKELY, check_steps, make, positions


def test_a_step_has_no_field_for_gold() -> None:
    fields = set(Step.__struct_fields__)
    assert fields.isdisjoint({"gold", "pairs", "right", "artifact", "action", "hit_joint"})
    step, right = make("i")
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert(msgspec.to_builtins(right), Step)
    assert step.version == "toy-1" and accepts(right, "a.py", "edit")
    assert not (accepts(right, "a.py", "read") or accepts(right, None, "edit") or accepts(right, "A.py", "edit"))


def test_the_version_follows_the_content() -> None:
    one = build_steps("toy", [make("i"), make("j")])
    assert one == build_steps("toy", [make("i"), make("j")]) and one.version.startswith("toy-1+")
    others = [
        [make("j"), make("i")],
        [make("i")],
        [make("i"), make("j", pairs=(("b.py", "edit"),))],
        [make("i"), (msgspec.structs.replace(make("j")[0], context="more"), make("j")[1])],
    ]
    assert len({one.version, *(build_steps("toy", pairs).version for pairs in others)}) == 5


@pytest.mark.parametrize(
    ("pairs", "words"),
    [
        ([], "no step"),
        ([make("i"), make("i")], "'i/0' appears twice"),
        ([(make("i")[0], make("j")[1])], "gold of 'j/0' was given for step 'i/0'"),
        ([make("i", pairs=())], "gold pairs none cannot be chosen"),
        ([make("i", pairs=(("c.py", "edit"),))], "'c.py', 'edit'.* cannot be chosen"),
        ([make("i", pairs=(("a.py", "fly"),))], "cannot be chosen"),
        ([(msgspec.structs.replace(make("i")[0], id="i"), StepGold("i", ()))], "not '<instance_id>/<index>'"),
        ([(msgspec.structs.replace(make("i")[0], artifacts=("a.py", "a.py")), make("i")[1])], "holds a name twice"),
    ],
)
def test_unsound_sets_are_refused(pairs: list[tuple[Step, StepGold]], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        build_steps("toy", pairs)


def test_the_check_finds_what_is_off() -> None:
    everything = tuple((artifact, action) for artifact in ("a.py", "b.py") for action in ACTIONS)
    made = build_steps("toy", [make("i"), make("j", pairs=(("b.py", "read"),)), make("k"), make("l", pairs=everything)])
    check = check_gold(made)
    assert (check.gold_share, check.wrong_share, check.failures) == (1.0, 0.0, ("l/0",))
    assert (check.steps, check.instances, check.first_share, check.constant_share) == (4, 4, 0.75, 0.75)
    lost = msgspec.structs.replace(made, gold={**made.gold, "i/0": StepGold("i/0", (("gone.py", "edit"),))})
    assert check_gold(lost).gold_share == 0.75 and "i/0" in check_gold(lost).failures


def test_unknown_names_limits_and_knobs_are_refused_with_a_hint() -> None:
    with pytest.raises(WorkloadError, match="did you mean 'toolsandbox'"):
        load_steps("toolsandbx")
    with pytest.raises(WorkloadError, match="limit must be a whole number of at least 1"):
        load_steps("shared_episodes", 0)
    with pytest.raises(WorkloadError, match="unknown knob 'lagg'.*did you mean 'lag'"):
        load_steps("shared_episodes", 1, lagg=2)
    assert len(FAMILIES) == 10


def test_generated_steps_are_sound_and_a_small_draw_begins_a_large_one() -> None:
    made = load_steps("shared_episodes", 60)
    check_steps(made, 600, 60)
    small = load_steps("shared_episodes", 3)
    assert small.steps == made.steps[:30] and small.version != made.version
    assert load_steps("shared_episodes", 3, seed=1).steps[0] != small.steps[0]


def test_neither_artifacts_nor_actions_are_told_by_their_place() -> None:
    """In the public companion of the paper the right artifact stands first in every row that was read."""
    made = load_steps("shared_episodes", 200, length=8)
    assert chisquare(positions(made)).pvalue > UNLIKELY
    places = Counter(step.actions.index(made.gold[step.id].pairs[0][1]) for step in made.steps)
    assert chisquare([places[place] for place in range(len(ACTIONS))]).pvalue > UNLIKELY
    orders = {step.artifacts for step in made.steps if step.instance_id == made.steps[0].instance_id}
    assert len(orders) == 8, "every step has its own order"
