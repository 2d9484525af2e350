"""A wrong entry in a shared log: does it spread to later decisions, and what ends it.

Context
-------
Section 3.1 and appendix C.7 of the paper. The steps of an instance share a log of what was decided. In a perturbed run the
log's first entry names a wrong artifact; in a repaired one this entry is set right at the next step. Every run is
made with fresh observations and with stale ones. What is scored is always what the receiver then decides itself.

Intuition
---------
Log and observation both tell the receiver where things stand. If the observation is current, a wrong entry can be seen
through, and runs come together again. If it is one step old, the log is what there is, and an error lives on. Stale
observations also harm by themselves; so a perturbed run is held against a control with the same observations.

How to read the result
----------------------
`effects` has, for every later step, hits in a run minus hits in its control. `coupling` counts how many later decisions differ
between the two, right or wrong: without coupling nothing can spread. `residual_runs` is what
`lib.coordination.propagation_fit` takes: the error rate of a step, and, at step 0 of a perturbed run, 1, since there every
log is wrong by design.

Nothing that runs sees gold. `wrong_entries`, the experimenter's hand, looks at it, to make sure that an entry is wrong, and
`score_episodes`, afterwards.

Not covered: a state that tools change for real; messages between agents about the state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import pandas as pd

from lib.coordination.actions import need_columns
from lib.coordination.arms import DECISION_TOKENS, run_arms
from lib.coordination.exchange import Parser, Record
from lib.coordination.scoring import score_records
from lib.coordination.sending import check_distinct
from lib.models.receiver import Receiver
from lib.seeds import digest, hash_order
from lib.tasks.steps import Step, StepGold

UNREADABLE = "no readable decision"


class Entry(msgspec.Struct, frozen=True):
    """What the log says was decided at a step; None where a reply could not be read."""

    artifact: str | None
    action: str | None

    @property
    def line(self) -> str:
        """The entry as the log shows it."""
        return f"{self.action} {self.artifact}" if self.artifact and self.action else UNREADABLE


class Condition(msgspec.Struct, frozen=True):
    """One way to run an episode.

    Attributes
    ----------
    perturbed : the log's entry of step 0 is replaced by a wrong one before step 1
    repaired : it is set right again after step 1, so from step 2 on; needs `perturbed`
    stale : from step 1 on, the receiver is shown the view of the step before
    """

    perturbed: bool
    repaired: bool
    stale: bool

    @property
    def run(self) -> str:
        """``control``, ``perturbed`` or ``repaired``."""
        return "repaired" if self.repaired else "perturbed" if self.perturbed else "control"

    @property
    def observation(self) -> str:
        """``fresh`` or ``stale``."""
        return "stale" if self.stale else "fresh"


CONDITIONS = tuple(
    Condition(perturbed, repaired, stale)
    for stale in (False, True)
    for perturbed, repaired in ((False, False), (True, False), (True, True))
)


def wrong_entries(steps: Sequence[Step], gold: Mapping[str, StepGold], seed: int = 0) -> dict[str, Entry]:
    """Return a wrong first entry for the log of every instance: a candidate that no acceptable pair of any of its steps names.

    Parameters
    ----------
    steps, gold : of one family; of every step
    seed : names the draw

    Returns
    -------
    dict of instance id to Entry; its action is the first of the step's list

    Raises
    ------
    ValueError
        If an instance has no step of index 0, or no candidate that is wrong.
    """
    entries = {}
    for instance, own in _episodes(steps).items():
        right = {artifact for step in own for artifact, _ in gold[step.id].pairs}
        wrong = [artifact for artifact in own[0].artifacts if artifact not in right]
        if not wrong:
            raise ValueError(
                f"instance {instance!r}: every candidate of step 0 is right somewhere; it cannot be perturbed"
            )
        entries[instance] = Entry(hash_order(wrong, "wrong entry", seed, instance)[0], own[0].actions[0])
    return entries


def run_episodes(
    steps: Sequence[Step],
    entries: Mapping[str, Entry],
    *,
    receiver: Receiver,
    conditions: Sequence[Condition] = CONDITIONS,
    constrained: bool = True,
    parser: Parser = "robust",
    max_tokens: int = DECISION_TOKENS,
) -> dict[Condition, list[Record]]:
    """Run every episode under every condition; all of them take a step together, in one call.

    Parameters
    ----------
    steps : of one family; every instance has the steps 0, 1, ... without a gap
    entries : instance id to the wrong entry of perturbed runs
    conditions : each once

    Returns
    -------
    dict of condition to records, instances in order and their steps ascending; `Record.run_id` names the condition

    Raises
    ------
    ValueError
        If an instance has a gap, or no entry under a condition that needs one.
    """
    check_distinct(steps)
    episodes = _episodes(steps)
    lost = [instance for instance in episodes if instance not in entries]
    if lost and any(condition.perturbed for condition in conditions):
        raise ValueError(f"entries: instance {lost[0]!r} has no wrong entry ({len(lost)} lack one)")
    name = digest(receiver.fingerprint, [step.id for step in steps], constrained, parser, max_tokens)[:12]
    logs: dict[tuple[Condition, str], list[Entry]] = {(one, own): [] for one in conditions for own in episodes}
    records: dict[tuple[Condition, str], list[Record]] = {key: [] for key in logs}
    for index in range(max(map(len, episodes.values()), default=0)):
        wave = [key for key in logs if index < len(episodes[key[1]])]
        shown = [
            _shown(
                episodes[instance], index, _log(logs[condition, instance], condition, entries.get(instance)), condition
            )
            for condition, instance in wave
        ]
        made = run_arms(
            shown, receiver=receiver, arms=("RO",), constrained=constrained, parser=parser, max_tokens=max_tokens
        )
        for (condition, instance), record in zip(wave, made, strict=True):
            own = msgspec.structs.replace(
                record,
                step_id=episodes[instance][index].id,
                run_id=f"{name}:{condition.run}-{condition.observation}",
            )
            records[condition, instance].append(own)
            logs[condition, instance].append(Entry(record.artifact_pred, record.action_type_pred))
    return {one: [record for own in episodes for record in records[one, own]] for one in conditions}


def score_episodes(
    records: Mapping[Condition, Sequence[Record]], gold: Mapping[str, StepGold], steps: Sequence[Step], *, snap: bool
) -> pd.DataFrame:
    """Score the records of all conditions, as `lib.coordination.scoring.score_records`, with ``run`` and ``observation`` added."""
    parts = [
        score_records(made, gold, steps, snap=snap).assign(run=condition.run, observation=condition.observation)
        for condition, made in records.items()
    ]
    return pd.concat(parts, ignore_index=True)


def effects(scored: pd.DataFrame) -> pd.DataFrame:
    """Return what each run lost against its control, step by step.

    Parameters
    ----------
    scored : of `score_episodes`

    Returns
    -------
    DataFrame, one row a run but control, observation, instance and step after the first: ``run``, ``observation``, ``instance_id``,
    ``step_t``, ``hit``, ``control``, ``effect`` = hit - control (null where either call failed)
    """
    need_columns(scored, ("run", "observation", "instance_id", "step_t", "hit_joint"), "scored")
    keys = ["observation", "instance_id", "step_t"]
    later = scored[scored["step_t"] > 0].assign(hit=scored["hit_joint"].astype("Float64"))
    control = later[later["run"] == "control"][[*keys, "hit"]].rename(columns={"hit": "control"})
    others = later[later["run"] != "control"][["run", *keys, "hit"]]
    joined = others.merge(control, on=keys, validate="many_to_one")
    return joined.assign(effect=joined["hit"] - joined["control"]).sort_values(["run", *keys], ignore_index=True)


def coupling(records: Mapping[Condition, Sequence[Record]]) -> pd.DataFrame:
    """Return how many later decisions a wrong entry changed, right or wrong.

    Returns
    -------
    DataFrame, one row a run but control and observation: ``run``, ``observation``, ``steps`` (after the first), ``changed`` (share
    that differ from the control with the same observations; null without later steps)
    """
    decided = {
        condition: {
            record.step_id: (record.artifact_pred, record.action_type_pred) for record in made if record.step_t > 0
        }
        for condition, made in records.items()
    }
    rows = []
    for condition, own in decided.items():
        control = decided.get(Condition(False, False, condition.stale))
        if condition.run == "control" or control is None:
            continue
        changed = sum(own[step] != control[step] for step in own)
        share = changed / len(own) if own else None
        rows.append((condition.run, condition.observation, len(own), share))
    return pd.DataFrame(rows, columns=["run", "observation", "steps", "changed"])


def residual_runs(scored: pd.DataFrame, observation: str) -> pd.DataFrame:
    """Return error rates by run and step, for `lib.coordination.propagation_fit.fit_propagation`.

    Parameters
    ----------
    scored : of `score_episodes`; every instance counts at the steps that it has
    observation : ``fresh`` or ``stale``: one fit is made for each, since fresh information is a repair at every step

    Returns
    -------
    DataFrame, one row a run and step: ``run``, ``step``, ``residual`` (1 - share of hits; at step 0 of a perturbed run 1, by
    design), ``repaired`` (step 2 of a repaired run: the first that reads the mended log), ``instances``
    """
    need_columns(scored, ("run", "observation", "step_t", "hit_joint"), "scored")
    own = scored[(scored["observation"] == observation) & scored["hit_joint"].notna()]
    rows = []
    for (run, _), part in own.groupby(["run", "step_t"], sort=True):
        step = int(part["step_t"].iloc[0])
        by_design = step == 0 and run != "control"
        residual = 1.0 if by_design else 1 - float(part["hit_joint"].astype(float).mean())
        rows.append((run, step, residual, run == "repaired" and step == 2, len(part)))
    return pd.DataFrame(rows, columns=["run", "step", "residual", "repaired", "instances"])


def _episodes(steps: Sequence[Step]) -> dict[str, list[Step]]:
    """Return the steps of each instance, ascending."""
    episodes: dict[str, list[Step]] = {}
    for step in steps:
        episodes.setdefault(step.instance_id, []).append(step)
    for instance, own in episodes.items():
        own.sort(key=lambda step: step.index)
        if [step.index for step in own] != list(range(len(own))):
            raise ValueError(
                f"instance {instance!r}: steps {[step.index for step in own]} are not 0, 1, ... without a gap"
            )
    return episodes


def _log(log: Sequence[Entry], condition: Condition, wrong: Entry | None) -> list[Entry]:
    """Return the log as the next step reads it."""
    mended = condition.repaired and len(log) >= 2
    if condition.perturbed and log and wrong is not None and not mended:
        return [wrong, *log[1:]]
    return list(log)


def _shown(own: Sequence[Step], index: int, log: Sequence[Entry], condition: Condition) -> Step:
    """Return a step as its receiver sees it: the log before the view, and an id of its own for each condition."""
    step = own[index]
    view = own[max(0, index - 1)].local_view if condition.stale else step.local_view
    lines = [f"step {place}: {entry.line}" for place, entry in enumerate(log)] or ["nothing yet"]
    shown = "\n".join(["Shared log of decisions:", *lines, "Observation:", view])
    return msgspec.structs.replace(step, id=f"{step.id}@{condition.run}-{condition.observation}", local_view=shown)
