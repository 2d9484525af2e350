"""What a study with teams starts from, each by name: question sets, graphs, an embedder, a distiller, the runs of several arms.

Context
-------
The notebooks on MOC compare arms, orders, graphs and attacks on the same questions. What they share is made here, so that a
team asked for in two of them is asked the same words and its replies are found in the store.

Intuition
---------
A comparison is fair where question, graph, cap of a reply and model are the same, and only what an agent hears differs. So a
graph belongs to a question and a seed, never to an arm. No arm hears of another one, so all arms and sets take their waves
together (`lib.moc.waves`): a wave of all of them is one call where the caps of a reply are equal.

How to read the result
----------------------
`run_arms` returns plain `TeamRun`s, arm by arm; `lib.moc.accounting`, `lib.moc.grading` and `lib.moc.failures` make frames of them.

Not covered: what came out right (`lib.moc.grading`), and graphs chosen for a question (`lib.moc.gdesigner`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Literal

import numpy as np

from lib.moc.dag import Dag, random_dag
from lib.moc.distill import Distiller, Embed, ExtractiveDistiller, ReceiverDistiller
from lib.moc.record import TeamRun
from lib.moc.team import DagFor, team_steps
from lib.moc.waves import Steps, in_step
from lib.models.receiver import Receiver
from lib.seeds import seed_of
from lib.tasks.code_answer import check_answers, run_examples
from lib.tasks.questions import Answer, Question, QuestionSet, RunCode, load_questions
from lib.tasks.subsets import PAPER_SEED

Graphs = Literal["one", "each"]
WORDS = "words"  # the embedder that needs no download
_WORD_BINS = 1024


def load_sets(names: Sequence[str], count: int, seed: int = PAPER_SEED) -> dict[str, QuestionSet]:
    """Load question sets by name.

    Parameters
    ----------
    names : of `lib.tasks.questions.QUESTION_SETS`, each once
    count : questions of each, drawn by hash and stratified; 0 takes the paper's whole sample
    seed : of that draw

    Raises
    ------
    ValueError
        For no name, or one that stands twice.
    WorkloadError, SourceError
        As `lib.tasks.questions.load_questions`.
    """
    if not names or len(set(names)) < len(names):
        raise ValueError(f"question_sets: name at least one set and each once, not {list(names)}")
    return {name: load_questions(name, count or None, seed) for name in names}


def questions_of(sets: Mapping[str, QuestionSet]) -> list[Question]:
    """Return the questions of all sets, set by set."""
    return [question for one in sets.values() for question in one.questions]


def answers_of(sets: Mapping[str, QuestionSet]) -> dict[str, Answer]:
    """Return the gold of all sets by question id. For metrics, and for attacks that have to be wrong."""
    return {name: answer for one in sets.values() for name, answer in one.answers.items()}


def graphs_of(agents: int, density: float, graph_seed: int, graphs: Graphs = "each") -> DagFor:
    """Return the random graph of each question.

    Parameters
    ----------
    agents, density : as in `lib.moc.dag.random_dag`
    graph_seed : names the graphs
    graphs : ``one`` graph for all questions, drawn with `graph_seed` itself, as in the paper's public code; or ``each``
        question its own, so that a mean over questions is one over graphs too

    Raises
    ------
    DagError
        For a density or a number of agents that no graph has, now and not at the first question.
    ValueError
        If `graphs` is neither.
    """
    if graphs not in ("one", "each"):
        raise ValueError(f"graphs: {graphs!r}; say one or each")
    only = random_dag(agents, density, graph_seed)
    if graphs == "one":
        return lambda question: only
    return lambda question: random_dag(agents, density, seed_of("moc-graph", graph_seed, question.id))


def embed_of(name: str) -> Embed:
    """Return an embedder: ``words``, which counts words and needs no download, or a sentence embedder of `lib.models.embedder`.

    Under ``words`` two texts are similar where they share words, counted in 1,024 hashed bins.
    """
    if name == WORDS:
        return partial(_count_words, _vectorizer())
    from lib.models.embedder import Embedder  # it loads torch

    return Embedder(name).encode


@lru_cache(maxsize=1)
def _vectorizer() -> Any:
    from sklearn.feature_extraction.text import HashingVectorizer

    return HashingVectorizer(n_features=_WORD_BINS, alternate_sign=False, norm="l2")


def _count_words(vectorizer: Any, texts: Sequence[str]) -> np.ndarray:
    """Return unit vectors of word counts, shape (n_texts, _WORD_BINS); zeros for a text without words."""
    if not texts:
        return np.zeros((0, _WORD_BINS))
    return np.asarray(vectorizer.transform(list(texts)).toarray())


def distiller_of(
    name: str, receiver: Receiver, embed: Embed, count: int = 5, *, opened: Callable[[str], Receiver]
) -> Distiller:
    """Return who merges two messages.

    Parameters
    ----------
    name : ``receiver``, the model of the agents; ``extractive``, which asks no model; or the name of another model
    receiver : the model of the agents, whose tokenizer sets the caps
    embed : ranks sentences for ``extractive``
    count : candidates a merge (M), for models
    opened : opens another model by name
    """
    if name == "extractive":
        return ExtractiveDistiller(embed, receiver.count_tokens)
    return ReceiverDistiller(receiver if name == "receiver" else opened(name), count=count)


class CodeRules:
    """What may be done with code that agents write.

    Parameters
    ----------
    allowed : consent to run it in the sandbox of `lib.tasks.sandbox`; without it nothing is run, code answers stay
        ungraded and the team does without its internal tests

    Attributes
    ----------
    settings : dict
        For `lib.moc.team.team_steps`: the examples of a question are run on its agents' code, and code that passes them is sent on.
    grader : callable or None
        For `lib.moc.grading.graded_runs`.
    """

    def __init__(self, allowed: bool) -> None:
        self.allowed = allowed
        self.settings: dict[str, Any] = {}
        self.grader: RunCode | None = None
        if allowed:
            examples = partial(run_examples, allow_code_execution=True)
            self.settings = {"run_examples": examples, "reuse_passing_code": True}
            self.grader = partial(check_answers, allow_code_execution=True)


def run_arms(
    receiver: Receiver, sets: Mapping[str, QuestionSet], dag_for: DagFor, arms: Sequence[str], **settings: Any
) -> list[TeamRun]:
    """Answer the questions of all sets in every arm, all of them in step; see `arm_steps` for `settings`.

    Returns
    -------
    The runs, arm by arm; within an arm the questions in the order of the sets, those that ask for code last.
    """
    steps = [one for arm in arms for one in arm_steps(receiver, sets, dag_for, arm, **settings)]
    return [run for runs in in_step(steps) for run in runs]


def run_cells(
    receiver: Receiver, sets: Mapping[str, QuestionSet], cells: Sequence[tuple[DagFor, int]], **settings: Any
) -> list[TeamRun]:
    """Answer the questions of all sets in the arm ``moc`` in every cell of a grid, all of them in step.

    Parameters
    ----------
    cells : (graphs, K)
    settings : of `arm_steps`, but ``k``

    Returns
    -------
    The runs, cell by cell; within a cell as `run_arms` returns them.
    """
    steps = [one for dag_for, k in cells for one in arm_steps(receiver, sets, dag_for, "moc", k=k, **settings)]
    return [run for runs in in_step(steps) for run in runs]


def arm_steps(
    receiver: Receiver,
    sets: Mapping[str, QuestionSet],
    dag_for: DagFor,
    arm: str,
    *,
    max_tokens: int,
    code_max_tokens: int | None = None,
    code: CodeRules | None = None,
    **settings: Any,
) -> list[Steps]:
    """Prepare to answer the questions of all sets in one arm; `lib.moc.waves.in_step` carries it out.

    Parameters
    ----------
    arm : of `lib.moc.arms.ARMS`
    max_tokens : cap of every reply to a question that does not ask for code
    code_max_tokens : cap of every reply to one that does; default the same. Equal caps share calls
    code : what may be done with code; default nothing
    settings : passed to `lib.moc.team.team_steps`

    Returns
    -------
    A run of the questions that do not ask for code and one of those that do, where there are any.
    """
    plain = [question for question in questions_of(sets) if question.domain != "code"]
    coding = [question for question in questions_of(sets) if question.domain == "code"]
    groups: list[tuple[list[Question], int, dict[str, Any]]] = [
        (plain, max_tokens, {}),
        (coding, code_max_tokens or max_tokens, code.settings if code else {}),
    ]
    return [
        team_steps(receiver, questions, dag_for, arm, max_tokens=cap, **extra, **settings)
        for questions, cap, extra in groups
        if questions
    ]


def graph_of(dag_for: DagFor, sets: Mapping[str, QuestionSet]) -> dict[str, Dag]:
    """Return the graph of every question, by id."""
    return {question.id: dag_for(question) for question in questions_of(sets)}
