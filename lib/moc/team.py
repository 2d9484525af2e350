"""Run a team on a graph: who is asked when, what each agent hears, and who decides.

Context
-------
Agents sit on a directed acyclic graph and answer in topological order, one reply each (paper, section 3.2). An agent
reads its role, the question and the messages of its ancestors within K hops, far to near (eq. 6 to 9), merged to a budget
where the arm says so (eq. 10, 11). When all have answered, a separate decision agent reads the last output of every
worker, raw and in index order; its reply alone is graded. The paper does not mention the decision agent, its public code
has it. What travels is always what an agent *said*, never the merged text that it was shown.

Intuition
---------
Agents whose predecessors have all answered do not depend on each other. So a team runs in waves, and one wave of all
questions is one call of the receiver and one round of merging: as many calls as the longest path has agents, and one for
the decisions. The order of prompts in a call follows questions and sigma; it changes no prompt. Runs that are independent,
as two arms are, take their waves together where `team_steps` are handed to `lib.moc.waves.in_step`.

How to read the result
----------------------
One `TeamRun` a question. An agent that failed has a message of status ``failed``; its successors are not shown an empty
text, they are not shown it at all, it counts for no budget, and the decision agent is told that there was no output.

Not covered: several rounds, edges between rounds, calls that overlap within a wave other than as one batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from lib.moc.arms import Arm, arm_of
from lib.moc.consolidate import Consolidation
from lib.moc.dag import Dag
from lib.moc.distill import Distiller, Embed, Item
from lib.moc.flow import HopOrder, k_order_flow, message_budget
from lib.moc.programs import RunExamples, RunPrograms, passes, remark, with_examples, with_results
from lib.moc.prompts import (
    Shown,
    decision_block,
    decision_prompt,
    single_prompt,
    worker_block,
    worker_prompt,
    writes_program,
)
from lib.moc.record import AgentMessage, TeamRun
from lib.moc.roles import DECISION, SINGLE, roles_of
from lib.moc.slot import Slot, Tamper, passed_on, sized, spoken, tampered
from lib.moc.waves import Merges, Replies, Steps, Waiting, in_step
from lib.models.receiver import Prompt, Receiver
from lib.tasks.questions import Question

DagFor = Callable[[Question], Dag]
HopsOf = Callable[[Dag, int, Mapping[int, int]], int]
"""(graph, target agent, tokens of every message so far by agent) -> K of that agent; see `lib.moc.adaptive_hops`."""


def run_teams(
    receiver: Receiver, questions: Sequence[Question], dag_for: DagFor, arm: str | Arm, **settings: Any
) -> list[TeamRun]:
    """Answer every question with a team in one arm; parameters and errors are those of `team_steps`.

    Returns
    -------
    One `TeamRun` a question, in order.
    """
    return in_step([team_steps(receiver, questions, dag_for, arm, **settings)])[0]


def team_steps(
    receiver: Receiver,
    questions: Sequence[Question],
    dag_for: DagFor,
    arm: str | Arm,
    *,
    k: int = 2,
    gamma: float = 1.0,
    epsilon: float = 0.1,
    kappa: float = 0.45,
    hop_order: HopOrder = "paper",
    hops_of: HopsOf | None = None,
    embed: Embed | None = None,
    distiller: Distiller | None = None,
    max_tokens: int = 256,
    decision_max_tokens: int | None = None,
    temperature: float = 0.0,
    tries: int = 3,
    cot: bool = False,
    run_examples: RunExamples | None = None,
    reuse_passing_code: bool = False,
    run_programs: RunPrograms | None = None,
    tamper: Tamper | None = None,
) -> Steps:
    """Prepare to answer every question with a team in one arm; `lib.moc.waves.in_step` carries it out.

    Parameters
    ----------
    receiver : answers for every agent; its tokenizer counts
    dag_for : the graph of a question; asked once a question, and not at all in the arm ``single``
    arm, k : see `lib.moc.arms.arm_of`; an `Arm` brings its own K
    gamma, epsilon, kappa : of the budget (eq. 16), the batch of a merge, and the length of a merged text (eq. 15)
    hop_order : "paper" (sigma inside a hop) or "bfs" (as the public code)
    hops_of : sets K for each agent anew, in the arms moc_flow and moc (`lib.moc.adaptive_hops.HopRule.hops`)
    embed, distiller : needed by the arm ``moc`` alone
    max_tokens, decision_max_tokens : caps of a worker's and the decision agent's reply; the second defaults to the first
    tries : calls an agent has before it counts as failed; only errors are tried again, an empty reply is final
    cot : ask workers, or the single agent, to think step by step
    run_examples : runs a code question's own examples on fenced code; None leaves it off. The result is kept with the
        message and shown to the decision agent, never to workers
    reuse_passing_code : an agent one of whose predecessors' code passed all of at least one example sends that code on
        without being asked; the first such predecessor in sigma counts. Needs `run_examples`
    run_programs : on a question that asks for a number, the programming expert writes a program instead of a calculation, and
        "The answer is" and what it printed are added to its message; None leaves it off
    tamper : replaces what a worker sends (see `lib.moc.poison`); the decision agent is never tampered with

    Returns
    -------
    A generator that returns one `TeamRun` a question, in order.

    Raises
    ------
    ValueError
        For a parameter out of range, a question id that occurs twice, or an arm that lacks what it needs, before
        anything is asked.
    """
    if isinstance(arm, str):
        arm = arm_of(arm, k)
    if arm.consolidates and (embed is None or distiller is None):
        raise ValueError(f"arm {arm.name!r} merges messages: pass embed= and distiller=")
    if reuse_passing_code and run_examples is None:
        raise ValueError("reuse_passing_code needs run_examples=, which tells what passes")
    ids = [question.id for question in questions]
    if len(set(ids)) != len(ids):
        twice = sorted({name for name in ids if ids.count(name) > 1})
        raise ValueError(f"questions: the ids {twice[:5]} occur more than once; each question needs its own")
    if tries < 1:
        raise ValueError(f"tries: an agent is asked at least once, not {tries} times")
    rules = _Rules(
        receiver=receiver,
        arm=arm,
        gamma=gamma,
        epsilon=epsilon,
        kappa=kappa,
        hop_order=hop_order,
        hops_of=hops_of,
        embed=embed,
        distiller=distiller,
        max_tokens=max_tokens,
        decision_max_tokens=max_tokens if decision_max_tokens is None else decision_max_tokens,
        temperature=temperature,
        tries=tries,
        cot=cot,
        run_examples=run_examples,
        reuse_passing_code=reuse_passing_code,
        run_programs=run_programs,
        tamper=tamper,
    )
    return _alone(rules, questions) if arm.name == "single" else _together(rules, questions, dag_for)


def wave_levels(dag: Dag) -> list[int]:
    """Return the wave of each agent: the number of edges on the longest path that ends in it. Shape (n,)."""
    levels = [0] * dag.n
    for agent in dag.order:
        levels[agent] = 1 + max((levels[parent] for parent in dag.parents(agent)), default=-1)
    return levels


# ---------------------------------------------------------------------------------------------------------------- state


class _Rules(msgspec.Struct, frozen=True):
    """What stays the same through a run; the parameters of `run_teams`."""

    receiver: Receiver
    arm: Arm
    gamma: float
    epsilon: float
    kappa: float
    hop_order: HopOrder
    hops_of: HopsOf | None
    embed: Embed | None
    distiller: Distiller | None
    max_tokens: int
    decision_max_tokens: int
    temperature: float
    tries: int
    cot: bool
    run_examples: RunExamples | None
    reuse_passing_code: bool
    run_programs: RunPrograms | None
    tamper: Tamper | None

    def replies(self, prompts: Sequence[Prompt], max_tokens: int) -> Replies:
        return Replies(self.receiver, prompts, max_tokens, self.temperature, self.tries)


class _Team:
    """A question on its way through its graph."""

    def __init__(self, question: Question, dag: Dag) -> None:
        self.question = question
        self.dag = dag
        self.roles = roles_of(question.domain, dag.n)
        self.levels = wave_levels(dag)
        self.said: dict[int, AgentMessage] = {}
        self.consolidations: list[tuple[int, Consolidation]] = []


# ---------------------------------------------------------------------------------------------------------------- waves


def _together(rules: _Rules, questions: Sequence[Question], dag_for: DagFor) -> Steps:
    """Answer every question with a team, wave by wave."""
    teams = [_Team(question, dag_for(question)) for question in questions]
    for wave in range(1 + max((max(team.levels) for team in teams), default=-1)):
        yield from _wave(rules, teams, wave)
    decisions = yield from _decide(rules, teams)
    return [
        TeamRun(
            question_id=team.question.id,
            arm=rules.arm.name,
            k=rules.arm.k,
            dag=team.dag,
            messages=tuple(team.said[agent] for agent in range(team.dag.n)),
            decision=decision,
            consolidations=tuple(team.consolidations),
        )
        for team, decision in zip(teams, decisions, strict=True)
    ]


def _wave(rules: _Rules, teams: Sequence[_Team], wave: int) -> Waiting[None]:
    """Ask all agents of one wave, of all questions, at once, and keep what they said."""
    ready = [(team, agent) for team in teams for agent in team.dag.order if team.levels[agent] == wave]
    slots = [_slot(rules, team, agent) for team, agent in ready]
    if rules.arm.consolidates:
        yield from _merge(rules, [team for team, _ in ready], slots)
    prompts = []
    for (team, agent), slot in zip(ready, slots, strict=True):
        if slot.reused is None:
            slot.block = worker_block(slot.question, [Shown(item.ids, item.roles, item.text) for item in slot.items])
            role, programs = team.roles[agent], rules.run_programs is not None
            prompts.append(worker_prompt(slot.question, role, slot.block, cot=rules.cot, programs=programs))
    outcomes = iter((yield rules.replies(prompts, rules.max_tokens)))
    messages = [passed_on(slot) if slot.reused else spoken(slot, next(outcomes)) for slot in slots]
    if rules.run_programs is not None:
        due = [writes_program(team.question, team.roles[agent]) for team, agent in ready]
        messages = with_results(rules.run_programs, due, messages)
    if rules.tamper is not None:
        messages = [
            tampered(rules.tamper, slot.question, message) for slot, message in zip(slots, messages, strict=True)
        ]
    messages = sized(rules.receiver, slots, messages)
    if rules.run_examples is not None:
        messages = with_examples(rules.run_examples, slots, messages)
    for (team, agent), message in zip(ready, messages, strict=True):
        team.said[agent] = message


def _slot(rules: _Rules, team: _Team, agent: int) -> Slot:
    """Collect what an agent hears: the messages of its ancestors within K hops, those that failed left out."""
    parents = team.dag.parents(agent)
    reach = rules.arm.k
    if rules.hops_of is not None and rules.arm.name in ("moc_flow", "moc"):
        reach = rules.hops_of(team.dag, agent, {name: one.text_tokens for name, one in team.said.items() if one.ok})
    slot = Slot(team.question, agent, team.roles[agent].name, team.levels[agent], reach, parents)
    passing = [team.said[parent] for parent in parents if passes(team.said[parent])]
    if rules.reuse_passing_code and passing:
        slot.reused = passing[0]
        flow = [(source, 1) for source in parents if team.said[source] is slot.reused]
    else:
        flow = list(k_order_flow(team.dag, agent, reach, hop_order=rules.hop_order))
        slot.failed_sources = tuple(source for source, _ in flow if not team.said[source].ok)
    slot.hops = tuple((source, hop) for source, hop in flow if team.said[source].ok)
    slot.items = tuple(
        Item(text=team.said[source].text, ids=(str(source),), roles=(team.roles[source].name,), hop=hop, rank=rank)
        for rank, (source, hop) in enumerate(slot.hops)
    )
    return slot


def _merge(rules: _Rules, teams: Sequence[_Team], slots: Sequence[Slot]) -> Waiting[None]:
    """Apply Phi to every agent that hears more than its budget, all of them in the same calls of the distiller."""
    assert rules.embed is not None and rules.distiller is not None, "checked before anything was asked"
    over = []
    for team, slot in zip(teams, slots, strict=True):
        # Failed messages are not in M_j, so they neither count for the budget nor raise it.
        budget = message_budget(len(slot.items), slot.reach, rules.gamma)
        if len(slot.items) > budget:
            over.append((team, slot, budget))
    # Asked for with nothing to merge as well: that checks epsilon and kappa, in the first wave before anything is asked.
    done = yield Merges(
        jobs=[(slot.items, budget) for _, slot, budget in over],
        embed=rules.embed,
        distiller=rules.distiller,
        count_tokens=rules.receiver.count_tokens,
        epsilon=rules.epsilon,
        kappa=rules.kappa,
    )
    for (team, slot, _), result in zip(over, done, strict=True):
        assert isinstance(slot.agent, int), "only workers hear merged messages"
        team.consolidations.append((slot.agent, result))
        slot.items = result.items


def _decide(rules: _Rules, teams: Sequence[_Team]) -> Waiting[list[AgentMessage]]:
    """Ask the decision agents of all questions at once: raw outputs of all workers, in index order."""
    slots = []
    for team in teams:
        workers = [team.said[agent] for agent in range(team.dag.n)]
        slot = Slot(team.question, "decision", DECISION, 1 + max(team.levels), 1, tuple(range(team.dag.n)))
        slot.failed_sources = tuple(agent for agent, message in enumerate(workers) if not message.ok)
        slot.hops = tuple((agent, 1) for agent, message in enumerate(workers) if message.ok)
        slot.items = tuple(
            Item(text=workers[agent].text, ids=(str(agent),), roles=(workers[agent].role,), hop=1, rank=rank)
            for rank, (agent, _) in enumerate(slot.hops)
        )
        slot.block = decision_block(
            [Shown((str(agent),), (one.role,), one.text, remark(one)) for agent, one in enumerate(workers)]
        )
        slots.append(slot)
    prompts = [decision_prompt(slot.question, slot.block) for slot in slots]
    outcomes = yield rules.replies(prompts, rules.decision_max_tokens)
    return sized(rules.receiver, slots, [spoken(*pair) for pair in zip(slots, outcomes, strict=True)])


def _alone(rules: _Rules, questions: Sequence[Question]) -> Steps:
    """Answer every question with one call and no graph."""
    slots = [Slot(question, "decision", SINGLE) for question in questions]
    prompts = [single_prompt(question, cot=rules.cot) for question in questions]
    outcomes = yield rules.replies(prompts, rules.decision_max_tokens)
    messages = sized(rules.receiver, slots, [spoken(*pair) for pair in zip(slots, outcomes, strict=True)])
    return [TeamRun(message.question_id, rules.arm.name, rules.arm.k, None, (), message) for message in messages]
