"""From a reply to a program that tests itself, and from verdicts to pass@k.

Context
-------
A programming task shows a signature with a docstring. The reply holds prose and fenced code, or code alone, or only the body. It has to
become one program: prompt, code, tests, and the call of the tests. `lib.tasks.sandbox` runs it.

Intuition
---------
The code is taken from the fences by a pattern, never by stripping characters: ``code.strip("python")`` also eats the end of
``return n``. The prompt always goes first, since it brings imports and helper functions that the tests may call (HumanEval/38 and /50);
a reply that restates the function replaces it, a reply that is a body completes it.

How to read the result
----------------------
`check_answers` returns verdicts; the share of "passed" is pass@1 for one greedy reply a question. `pass_at_k` is for several samples. The
examples of the docstring (`docstring_examples`) are part of the question, so a team may run them on its own code without seeing gold.

Not covered: whether a program is good beyond its tests; languages other than Python; tests that need packages. The programs of this
module are only as safe to run as the sandbox says.
"""

from __future__ import annotations

import ast
import doctest
import math
import re
import textwrap
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from lib.tasks.questions import Answer, Question
from lib.tasks.sandbox import Limits, Program, Verdict, run_tests

# A fence that was cut off by the token limit ends with the text.
_FENCE = re.compile(
    r"^([ \t]*)(`{3,})[ \t]*([\w+.-]*)[^\n`]*\n(.*?)(?:^[ \t]*\2`*[ \t]*$|\Z)", re.DOTALL | re.MULTILINE
)
_PYTHON = frozenset({"python", "py", "python3"})
_FUTURE = re.compile(r"^from __future__ import .*\n?", re.MULTILINE)
_CALLS_ITSELF = re.compile(r"^(?:test_check|check)\s*\(", re.MULTILINE)  # a call at column 0, not a definition
_HEADER = "from typing import *\n"


class Example(msgspec.Struct, frozen=True):
    """One example of a docstring: an assertion, and the assignments that stand before it in the same docstring."""

    setup: str
    check: str


def extract_code(text: str, entry_point: str = "") -> str:
    """Return the code of a reply.

    Parameters
    ----------
    text
        The reply as it came.
    entry_point
        Name that the code should define; among several blocks the last one that defines it is taken.

    Returns
    -------
    str
        The last block fenced as Python, else the last fenced block, else the whole text; indentation is kept. Empty where there is
        nothing but white space.

    Examples
    --------
    >>> extract_code("First:\\n```\\nx = 1\\n```\\nBetter:\\n```python\\nprint(2)\\n```\\nDone.")
    'print(2)'
    >>> extract_code("    return 1\\n")
    '    return 1'
    """
    blocks = [
        (match[3].lower(), _unindent(match[4], match[1])) for match in _FENCE.finditer(text.replace("\r\n", "\n"))
    ]
    if not blocks:
        return _trim(text.replace("\r\n", "\n"))
    chosen = [code for language, code in blocks if language in _PYTHON] or [code for _, code in blocks]
    defining = [code for code in chosen if entry_point and _defines(code, entry_point)]
    return _trim((defining or chosen)[-1])


def _unindent(code: str, indent: str) -> str:
    """Take a fence's own indentation, as inside a list, off its lines."""
    return re.sub(f"^{indent}", "", code, flags=re.MULTILINE) if indent else code


def _trim(code: str) -> str:
    """Remove empty lines around code, and nothing of its indentation."""
    return re.sub(r"\A(?:[ \t]*\n)+", "", code).rstrip()


def _defines(code: str, name: str) -> bool:
    name = re.escape(name)
    pattern = rf"^(?:(?:async[ \t]+)?def|class)[ \t]+{name}\b|^{name}[ \t]*[:=]"
    return re.search(pattern, code, re.MULTILINE) is not None


def solution_of(question: Question, completion: str) -> str:
    """Return prompt and code as one text that defines the entry point; empty for a reply without code.

    Parameters
    ----------
    question
        ``text`` is the prompt, a signature with a docstring; ``entry_point`` names the function.
    completion
        A reply, or code that was already extracted from it.
    """
    code = extract_code(completion, question.entry_point)
    if not code:
        return ""
    future = "".join(_FUTURE.findall(code))  # must stand first in a module
    code = _FUTURE.sub("", code)
    if not _defines(code, question.entry_point) and not code[:1].isspace():
        code = textwrap.indent(code, "    ")  # a body at column 0
    return f"{future}{_HEADER}{question.text.rstrip()}\n{code}\n"


def program_of(question: Question, answer: Answer, completion: str) -> Program:
    """Return the program that runs a question's tests on a reply.

    Parameters
    ----------
    question
        A question of the domain "code".
    answer
        Its gold, whose ``tests`` define ``check(candidate)``, or call themselves at column 0 (then nothing is appended).
    completion
        The reply.

    Returns
    -------
    Program
        Its source is empty where the reply holds no code.

    Notes
    -----
    Source: scorers specification, section 7. There the prompt is put before the code only where the entry point is missing; here always, or
    correct replies that do not restate a helper function of the prompt would fail.
    """
    solution = solution_of(question, completion)
    if not solution:
        return Program(question.id, "")
    call = "" if _CALLS_ITSELF.search(answer.tests) else f"\ncheck({question.entry_point})\n"
    return Program(question.id, f"{solution}\n{answer.tests}\n{call}")


def check_answers(
    replies: Sequence[tuple[Question, Answer, str]],
    *,
    allow_code_execution: bool,
    timeout: float = 3.0,
    workers: int = 2,
    limits: Limits | None = None,
    on_verdict: Callable[[Verdict], None] | None = None,
) -> list[Verdict]:
    """Run the tests of (question, answer, reply) triples; one verdict each, in order. Parameters and errors: `run_tests`."""
    programs = [program_of(question, answer, reply) for question, answer, reply in replies]
    return run_tests(
        programs,
        allow_code_execution=allow_code_execution,
        timeout=timeout,
        workers=workers,
        limits=limits,
        on_verdict=on_verdict,
    )


# -------------------------------------------------------------------------------------------------------------------- docstring examples


def docstring_examples(question: Question) -> tuple[Example, ...]:
    """Return the ``>>>`` examples in the docstring of the entry point, as assertions.

    An example with an expected value compares by ``==``; a bare comparison is asserted as it stands; a bare call is expected to return
    None, as at a prompt that prints nothing. Examples that expect an exception or something that is no expression are left out.
    """
    start = re.search(rf"^def[ \t]+{re.escape(question.entry_point)}\b", question.text, re.MULTILINE)
    quoted = re.search(r"(\"\"\"|''')(.*?)\1", question.text[start.start() :], re.DOTALL) if start else None
    if quoted is None:
        return ()
    try:
        found = doctest.DocTestParser().get_examples(quoted[2])
    except ValueError:
        return ()  # a prompt sign without the blank behind it, or lines that leave their example's indentation
    setup, examples = "", []
    for example in found:
        source, want = example.source.strip(), example.want.strip()
        node = _expression(source)
        if example.exc_msg is not None:
            continue
        if node is None:
            setup += f"{source}\n" if not want and _is_assignment(source) else ""
        elif want:
            # Prose may follow an expected value without an empty line between them.
            values = [_expression(text) for text in (want, want.split("\n", 1)[0])]
            value = next((ast.unparse(value) for value in values if value is not None), None)
            if value is not None:
                examples.append(Example(setup, f"assert ({ast.unparse(node)}) == ({value})"))
        elif isinstance(node, ast.Compare):
            examples.append(Example(setup, f"assert {ast.unparse(node)}"))
        elif isinstance(node, ast.Call):
            examples.append(Example(setup, f"assert {ast.unparse(node)} is None"))
    return tuple(examples)


def _expression(text: str) -> ast.expr | None:
    try:
        return ast.parse(text, mode="eval").body
    except SyntaxError:
        return None


def _is_assignment(text: str) -> bool:
    try:
        return all(isinstance(node, ast.Assign | ast.Import | ast.ImportFrom) for node in ast.parse(text).body)
    except SyntaxError:
        return False


def run_examples(
    replies: Sequence[tuple[Question, str]],
    *,
    allow_code_execution: bool,
    timeout: float = 3.0,
    workers: int = 2,
    limits: Limits | None = None,
) -> list[tuple[int, int]]:
    """Run each question's own examples on a reply.

    Parameters
    ----------
    replies
        (question, text with code) pairs.
    allow_code_execution, timeout, workers, limits
        As in `run_tests`.

    Returns
    -------
    list of (int, int)
        Examples passed and examples run; (0, 0) where the docstring has none, (0, n) where the reply holds no code.

    Notes
    -----
    All examples of a reply are tried in one program first. Only where that does not pass is each run alone, to count.
    """
    run = partial(run_tests, allow_code_execution=allow_code_execution, timeout=timeout, workers=workers, limits=limits)
    solutions = [solution_of(question, reply) for question, reply in replies]
    examples = [docstring_examples(question) for question, _ in replies]
    tried = [index for index, found in enumerate(examples) if found]
    whole = [Program(str(index), _with_examples(solutions[index], examples[index])) for index in tried]
    verdicts = run(whole)
    passed = {index: len(examples[index]) for index, verdict in zip(tried, verdicts, strict=True) if verdict.passed}
    alone = [
        Program(str(index), _with_examples(solutions[index], (example,)))
        for index, verdict in zip(tried, verdicts, strict=True)
        if not verdict.passed and verdict.verdict != "no-code"
        for example in examples[index]
    ]
    for verdict in run(alone):
        passed[int(verdict.id)] = passed.get(int(verdict.id), 0) + verdict.passed
    return [(passed.get(index, 0), len(found)) for index, found in enumerate(examples)]


def _with_examples(solution: str, examples: Sequence[Example]) -> str:
    if not solution:
        return ""
    return solution + "".join(f"\n{example.setup}{example.check}\n" for example in examples)


# ------------------------------------------------------------------------------------------------------------------------------- pass@k


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return the unbiased estimate of pass@k: the chance that k of n samples, drawn without replacement, hold a passing one.

    Parameters
    ----------
    n
        Samples of one question.
    c
        How many of them passed.
    k
        Samples drawn.

    Returns
    -------
    float
        1 - C(n-c, k) / C(n, k), in [0, 1].

    Raises
    ------
    ValueError
        Unless 0 <= c <= n and 1 <= k <= n.

    Examples
    --------
    >>> round(pass_at_k(10, 3, 1), 4), round(pass_at_k(10, 3, 5), 4), pass_at_k(5, 4, 2)
    (0.3, 0.9167, 1.0)

    Notes
    -----
    Source: Chen et al., Evaluating Large Language Models Trained on Code, 2021, eq. 1; scorers specification, section 7.
    """
    if not 0 <= c <= n:
        raise ValueError(f"c must lie in 0..n, got c={c} of n={n}")
    if not 1 <= k <= n:
        raise ValueError(f"k must lie in 1..n, got k={k} of n={n}; draw more samples or ask for a smaller k")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)
