"""Episodes of our own: several agents work through one shared list of files, and what is right next depends on its state.

Context
-------
The paper studies shared state on LongCLI, whose public tasks name no right actions. These episodes are made by rule from
a seed, so they need no fetching, every board has one right next step, and a wrong step has consequences that can be
followed: what `lib.coordination.propagation` describes in theory.

Intuition
---------
A board holds the state of each file. The next step is always at the first file of the work order that is not settled,
and its state says what to do (`NEEDS`). Agents take turns. At some steps an agent has just looked at the board; at the
others it last saw it `lag` steps ago, and the team has moved on. The sender sees the board as it is. Files depend on
each other: when one changes, files that build on it have to be tested again, though they stand earlier in the order.

How to read the result
----------------------
A fresh local view is enough. An old one is out of date but for the first step, and only a message (or simulating the
others) helps. So `fresh` is a dial of the receiver's burden: who keeps to the rule and has no message is right at about
that share of the steps. To perturb an episode, apply a wrong step with `act`, go on from the board that results, and show each agent a
board as old or as fresh as the study wants: `make_episode_step` takes both boards. With coupling 0 a wrong step stays
where it was made; with more it spreads.

Not covered: free text, real files, agents that fail to act.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np

from lib.seeds import generator
from lib.tasks.candidates import SIZE, candidate_names, lines_of, make_step
from lib.tasks.steps import ACTIONS, Step, StepGold
from lib.tasks.task import WorkloadError

FAMILY, VERSION = "shared_episodes", "shared_episodes-1"

NEEDS = {
    "unread": "read",
    "missing": "create",
    "draft": "edit",
    "unset": "configure",
    "untested": "run_test",
    "obsolete": "delete",
}
"""The action that a state asks for. Every other state ("done", "gone") is settled."""

_LEADS_TO = {"missing": "draft", "draft": "untested", "unset": "untested", "untested": "done", "obsolete": "gone"}
_HIDDEN = ("draft", "untested", "obsolete")  # what reading may find
_STARTS = ("unread", "missing", "draft", "unset", "untested", "obsolete", "done")
_MISHAPS = {"create": "draft", "edit": "untested", "configure": "unset", "delete": "missing"}  # of a wrong action
_FOLDERS = ("api", "core", "docs", "jobs", "store", "tools", "ui", "web")
_STEMS = (
    "account",
    "cache",
    "config",
    "export",
    "index",
    "layout",
    "login",
    "queue",
    "report",
    "router",
    "schema",
    "search",
)
_ENDINGS = {"docs": "md", "ui": "ts", "web": "ts"}
_TRIES = 1000  # draws of an episode until one has enough to do

Board = Mapping[str, str]
"""State of each file of the work order, by path."""


class Episode(msgspec.Struct, frozen=True):
    """One team task.

    Parameters
    ----------
    id : its instance id
    agents : how many take turns; agent i mod `agents` acts at step i
    order : the work order, first file first
    others : files of the repository with no work, which are candidates too
    builds_on : (file, file that it builds on)
    start : state of each file of the order, in its order
    hidden : state that reading a file finds, in the same order
    length : steps at most
    """

    id: str
    agents: int
    order: tuple[str, ...]
    others: tuple[str, ...]
    builds_on: tuple[tuple[str, str], ...]
    start: tuple[str, ...]
    hidden: tuple[str, ...]
    length: int


def load(
    *,
    limit: int | None = None,
    seed: int = 0,
    agents: int = 3,
    files: int = 8,
    length: int = 10,
    coupling: float = 0.25,
    lag: int | None = None,
    fresh: float = 0.25,
) -> list[tuple[Step, StepGold]]:
    """Make episodes in which every agent does what is right, with all their steps.

    Parameters
    ----------
    limit
        Episodes; 24 for None. The first n of a larger number are the same.
    seed
        Names the episodes.
    agents, files, length, coupling
        As in `make_episode`.
    lag
        Age in steps of the board in the local view; None: as many as there are agents, that is each agent's last turn.
    fresh
        Share of steps at which the agent has just looked instead, drawn by hash; a larger share keeps those of a smaller one.

    Raises
    ------
    WorkloadError
        As `make_episode`; a negative lag, or a share out of range.
    """
    age = agents if lag is None else lag
    if age < 0 or not 0 <= fresh <= 1:
        raise WorkloadError(f"shared_episodes: lag >= 0 and fresh 0 to 1 are needed, got {age} and {fresh}")
    pairs: list[tuple[Step, StepGold]] = []
    for number in range(24 if limit is None else limit):
        episode = make_episode(number, seed, agents=agents, files=files, length=length, coupling=coupling)
        boards, log = roll_out(episode)
        for index in range(len(log)):
            looked = generator(FAMILY, "looked", episode.id, index).random() < fresh
            seen_at = index if looked else max(0, index - age)
            pairs.append(make_episode_step(episode, index, boards[index], boards[seen_at], seen_at, log[:index]))
    return pairs


def make_episode(
    number: int, seed: int = 0, *, agents: int = 3, files: int = 8, length: int = 10, coupling: float = 0.25
) -> Episode:
    """Make one episode; the same arguments always make the same.

    Parameters
    ----------
    number, seed
        Name the episode among those of a seed.
    agents
        Agents that take turns, at least 1.
    files
        Files of the work order, 2 to 32.
    length
        Steps; every episode has work for exactly this many, if agents do what is right.
    coupling
        Probability that a file builds on one that stands later in the order, 0 to 1.

    Raises
    ------
    WorkloadError
        A number out of range, or more steps than so few files have work for.
    """
    if agents < 1 or not 2 <= files <= SIZE or length < 1 or not 0 <= coupling <= 1:
        raise WorkloadError(
            f"shared_episodes: agents >= 1, files 2 to {SIZE}, length >= 1 and coupling 0 to 1 are needed, "
            f"got {agents}, {files}, {length}, {coupling}"
        )
    rng = generator(FAMILY, seed, number)
    for _ in range(_TRIES):
        episode = _draw(rng, f"episode-{seed}-{number:04d}", agents, files, length, coupling)
        # Counted once, here: a step set in which some episodes end early would weigh instances unequally.
        if len(roll_out(episode)[1]) == length:
            return episode
    raise WorkloadError(f"shared_episodes: {files} files have too little work for {length} steps; raise files")


def _draw(rng: np.random.Generator, name: str, agents: int, files: int, length: int, coupling: float) -> Episode:
    paths = [f"{folder}/{stem}.{_ENDINGS.get(folder, 'py')}" for folder in _FOLDERS for stem in _STEMS]
    chosen = [paths[place] for place in rng.permutation(len(paths))[:SIZE]]
    order = chosen[:files]
    # A file builds on later ones only, so no circle of changes can arise.
    linked = rng.random((files, files)) < coupling
    return Episode(
        id=name,
        agents=agents,
        order=tuple(order),
        others=tuple(sorted(chosen[files:])),
        builds_on=tuple((order[i], order[j]) for i in range(files) for j in range(i + 1, files) if linked[i, j]),
        start=tuple(_STARTS[k] for k in rng.integers(0, len(_STARTS), files)),
        hidden=tuple(_HIDDEN[k] for k in rng.integers(0, len(_HIDDEN), files)),
        length=length,
    )


# ------------------------------------------------------------------------------------------------------------------------- dynamics


def start_board(episode: Episode) -> dict[str, str]:
    """Return the board that an episode starts with."""
    return dict(zip(episode.order, episode.start, strict=True))


def right_pair(episode: Episode, board: Board) -> tuple[str, str] | None:
    """Return the one right (artifact, action) on a board, or None where all is settled."""
    for path in episode.order:
        if board[path] in NEEDS:
            return path, NEEDS[board[path]]
    return None


def act(episode: Episode, board: Board, artifact: str, action: str) -> dict[str, str]:
    """Return the board after an action, right or wrong, on any file.

    What a state asks for moves the file on. Any other change spoils it: it is then a draft (create), untested (edit), unset
    (configure) or missing (delete). Reading and testing change nothing where they are not asked for, nor does anything done
    to a file without work or with an unknown name. When a file changes, what builds on it and is done is untested again.
    """
    after = dict(board)
    if artifact not in after or action not in ACTIONS:
        return after
    state = after[artifact]
    if NEEDS.get(state) == action:
        found = episode.hidden[episode.order.index(artifact)]
        after[artifact] = found if state == "unread" else _LEADS_TO[state]
    else:
        after[artifact] = _MISHAPS.get(action, state)
    if action in _MISHAPS:
        for path, base in episode.builds_on:
            if base == artifact and after[path] == "done":
                after[path] = "untested"
    return after


def roll_out(episode: Episode) -> tuple[list[dict[str, str]], list[tuple[str, str]]]:
    """Return what happens when every agent does what is right.

    Returns
    -------
    tuple
        The boards before each step and after the last, and the (artifact, action) of each step.
    """
    boards = [start_board(episode)]
    log: list[tuple[str, str]] = []
    while len(log) < episode.length and (pair := right_pair(episode, boards[-1])) is not None:
        log.append(pair)
        boards.append(act(episode, boards[-1], *pair))
    return boards, log


# ---------------------------------------------------------------------------------------------------------------------------- views


def make_episode_step(
    episode: Episode, index: int, board: Board, seen: Board, seen_at: int, log: Sequence[tuple[str, str]]
) -> tuple[Step, StepGold]:
    """Return the step of an agent on a board, and its gold.

    Parameters
    ----------
    index
        Step, 0-based; says whose turn it is.
    board
        The board as it is: the sender sees it, and the gold follows from it.
    seen, seen_at
        The board that the agent remembers, and the step before which it saw it. ``board`` and ``index`` for a fresh view.
    log
        The (artifact, action) of steps 0 to index - 1, as they were done.

    Raises
    ------
    WorkloadError
        If all is settled on the board, so that no step is right; or the log is not one of `index` steps.
    """
    pair = right_pair(episode, board)
    if pair is None:
        raise WorkloadError(f"shared_episodes: {episode.id}: all is settled before step {index}; no step is right")
    if len(log) != index or not 0 <= seen_at <= index:
        raise WorkloadError(
            f"shared_episodes: {episode.id}: a log of {index} steps and seen_at 0 to {index} are needed, "
            f"got {len(log)} and {seen_at}"
        )
    done = [
        f"step {at}, agent {at % episode.agents + 1}: {action} {artifact}"
        for at, (artifact, action) in enumerate(log)
        if at >= seen_at
    ]
    return make_step(
        family=FAMILY,
        instance=episode.id,
        index=index,
        version=VERSION,
        local_view=lines_of(
            ("You are", f"agent {index % episode.agents + 1} of {episode.agents}, at step {index}"),
            (
                "Rule",
                "the next step is at the first file of the work order that is not settled; its state says what to do",
            ),
            ("States and what they ask for", ", ".join(f"{state}: {action}" for state, action in NEEDS.items())),
            ("Settled", "done, gone"),
            ("Work order", ", ".join(episode.order)),
            (f"States as you saw them before step {seen_at}", _states(seen)),
        ),
        context=lines_of(
            (f"States now, before step {index}", _states(board)),
            ("Done since the other agent looked", "\n".join(done) or "nothing"),
            ("Has to be tested again when another file changes", _links(episode)),
        ),
        artifacts=candidate_names(episode.order, episode.others, family=FAMILY, instance=episode.id),
        pairs=[pair],
    )


def _states(board: Board) -> str:
    """Return states by file, sorted by name, so that the order does not give the work order away twice."""
    return "\n".join(f"{path}: {board[path]}" for path in sorted(board))


def _links(episode: Episode) -> str:
    return "\n".join(f"{path}, when {base} changes" for path, base in episode.builds_on)
