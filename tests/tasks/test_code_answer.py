from __future__ import annotations

import ast
import itertools
import math
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.tasks.code_answer import (
    check_answers,
    docstring_examples,
    extract_code,
    pass_at_k,
    program_of,
    run_examples,
    solution_of,
)
from lib.tasks.questions import Answer, Question

PROMPT = '''import math
from typing import List


def half(x: float) -> float:
    """ Helper.
    >>> half(2)
    1.0
    """
    return x / 2


def area(r: float, parts: List[int]) -> float:
    """ Area of a circle's part
    >>> area(1, [1, 2])
    1.57
    >>> area(2, [1]) == 12.57
    >>> area(0, [])
    """
'''
BODY = "    if not parts:\n        return None\n    return round(half(math.pi * r * r * 2) / len(parts), 2)\n"
TESTS = "def check(candidate):\n    assert candidate(1, [1, 2]) == 1.57\n    assert half(candidate(2, [1])) == 6.285\n"


def question(text: str = PROMPT, entry_point: str = "area") -> Question:
    return Question(id="q", family="humaneval", domain="code", text=text, entry_point=entry_point, version="v")


def answer(tests: str = TESTS) -> Answer:
    return Answer(question_id="q", answer=BODY, tests=tests, canonical=BODY)


def outcome(reply: str, tests: str = TESTS) -> str:
    return check_answers([(question(), answer(tests), reply)], allow_code_execution=True)[0].verdict


# -------------------------------------------------------------------------------------------------------------------------- extraction


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("```python\nprint(1)\n```", "print(1)"),
        ("a\n```\nx\n```\nb\n```python\ny\n```\nc\n```\nz\n```\n", "y"),
        ("```python\nx\n```\nthen\n```python\ny\n```", "y"),
        ("```\nx\n```\nthen\n```text\ny\n```", "y"),
        ("```Python3 title=a.py\nx\n```", "x"),
        ("```python\r\nx\r\n```\r\n", "x"),
        ("```python\ncut off", "cut off"),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''"),
        ("1. so:\n   ```python\n   def f():\n       return 1\n   ```", "def f():\n    return 1"),
        ("```python\n\n    return 1\n\n```", "    return 1"),
        ("    return 1\n", "    return 1"),
        ("\n \n    return 1", "    return 1"),
        ("x = '```'", "x = '```'"),
        ("```python\n```", ""),
        ("", ""),
        (" \n\t\n", ""),
    ],
)
def test_extraction(text: str, code: str) -> None:
    assert extract_code(text) == code


@pytest.mark.parametrize("word", ["python", "print(p)", "not_python", "nothing = 1\nreturn n", "typing"])
def test_no_character_of_the_code_is_stripped(word: str) -> None:
    """Stripping with a set of characters eats the ends of code made of the letters of "python"."""
    for text in (word, f"```python\n{word}\n```", f"```\n{word}\n```"):
        assert extract_code(text) == word


def test_the_block_that_defines_the_function_is_preferred_to_a_demonstration() -> None:
    text = "```python\ndef area(r, parts):\n    return 1\n```\nUse:\n```python\nprint(area(1, []))\n```"
    assert extract_code(text) == "print(area(1, []))"
    assert extract_code(text, "area") == "def area(r, parts):\n    return 1"
    assert extract_code("```python\nx = 1\n```", "area") == "x = 1"


@given(st.text(st.characters(codec="utf-8", exclude_characters="`\r")), st.sampled_from(["", "python", "py"]))
def test_what_is_fenced_comes_back(code: str, language: str) -> None:
    expected = extract_code(code)
    assert extract_code(f"Text\n```{language}\n{code}\n```\nmore") == expected
    assert extract_code(expected) == expected, "extracting twice changes nothing"


# ----------------------------------------------------------------------------------------------------------------------------- program


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        (BODY, "passed"),
        (f"```python\n{BODY}```", "passed"),
        (f"```python\n{PROMPT}{BODY}```", "passed"),
        # restates the function only: imports and the helper come from the prompt
        (f"Sure!\n```python\ndef area(r, parts):\n{BODY}```\nDone.", "passed"),
        (f"```python\nfrom __future__ import annotations\ndef area(r: X, parts: List[Y]) -> Z:\n{BODY}```", "passed"),
        (f"```python\n{textwrap.dedent(BODY)}```", "passed"),
        ("area = lambda r, parts: round(half(math.pi * r * r * 2) / len(parts), 2)", "passed"),
        (f"{PROMPT}{BODY}\nif __name__ == '__main__':\n    raise ValueError", "passed"),
        ("    return 1.57", "failed"),
        ("I cannot.", "failed"),
        ("print('passed')", "failed"),
        ("import sys\nsys.exit(0)", "failed"),
        (f"def area(r, parts):\n{BODY}\nimport os\nos._exit(0)", "failed"),
        ("    while True: pass", "timeout"),
        ("```python\n```", "no-code"),
        ("", "no-code"),
    ],
)
def test_replies_and_their_verdicts(reply: str, verdict: str) -> None:
    given_time = 0.5 if verdict == "timeout" else 20.0
    verdicts = check_answers([(question(), answer(), reply)], allow_code_execution=True, timeout=given_time)
    assert verdicts[0].verdict == verdict, verdicts[0]


def test_tests_that_call_themselves_are_not_called_twice() -> None:
    plain = "def check(candidate):\n    print('ran')\n    assert candidate(1, [1, 2]) == 1.57\n"
    for tests in (
        plain,
        plain + "check(area)\n",
        plain + "\ndef test_check():\n    check(area)\n\ntest_check()\n",
        plain.replace("check", "test_it") + "\ndef test_check():\n    test_it(area)\ntest_check()",
    ):
        verdict = check_answers([(question(), answer(tests), BODY)], allow_code_execution=True)[0]
        assert (verdict.verdict, verdict.output) == ("passed", "ran\n"), tests
    assert program_of(question(), answer(plain), BODY).source.count("check(area)") == 1
    indented = (
        "class T:\n    def check(candidate): pass\n    check(1)\ndef check(candidate):\n    check_more(candidate)\n"
    )
    assert program_of(question(), answer(indented), BODY).source.rstrip().endswith("\ncheck(area)")


def test_the_programs_id_is_the_questions_and_no_code_is_no_source() -> None:
    assert (program_of(question(), answer(), BODY).id, program_of(question(), answer(), " ").source) == ("q", "")
    ast.parse(program_of(question(), answer(), BODY).source)


# ---------------------------------------------------------------------------------------------------------------------------- examples


def test_docstring_examples_become_assertions_of_the_entry_point_alone() -> None:
    checks = [example.check for example in docstring_examples(question())]
    assert checks == [
        "assert (area(1, [1, 2])) == (1.57)",
        "assert area(2, [1]) == 12.57",
        "assert area(0, []) is None",
    ]


def test_examples_that_cannot_be_checked_are_left_out() -> None:
    text = r'''def f(a):
    """ Odd ones.
    >>> x = [1,
    ...      2]
    >>> f(x) # the sum
    3
    so it adds up
    >>> f("a\nb")
    'a\nb'
    >>> f(None)
    Traceback (most recent call last):
    TypeError: no
    >>> f([1]) [1]
    >>> f([2]) ==> 2
    >>> f(3)
    about three
    """
'''
    examples = docstring_examples(question(text, "f"))
    assert [example.check for example in examples] == ["assert (f(x)) == (3)", r"assert (f('a\nb')) == ('a\nb')"]
    assert examples[0].setup == "x = [1,\n     2]\n"
    for odd in (
        "def f(a):\n    ...\n",
        "def g(a):\n    ''' >>> g(1) '''\n",
        "def f(a):\n    '''>>>f(1)\n    1\n    '''\n",
    ):
        assert docstring_examples(question(odd, "f")) == ()


def test_examples_are_run_together_and_counted_alone_where_they_fail() -> None:
    wrong = "    return 12.57"
    none = question("def area(r):\n    '''No example.'''\n")
    replies = [(question(), BODY), (question(), wrong), (question(), ""), (none, BODY), (question(), "1 +")]
    assert run_examples(replies, allow_code_execution=True) == [(3, 3), (1, 3), (0, 3), (0, 0), (0, 3)]


def test_examples_do_not_run_without_permission() -> None:
    with pytest.raises(RuntimeError, match="allow_code_execution"):
        run_examples([], allow_code_execution=False)


def test_a_solution_holds_no_test() -> None:
    assert "check" not in solution_of(question(), BODY) and "1.57" not in solution_of(question("def area(r):\n"), BODY)


# ------------------------------------------------------------------------------------------------------------------------------ pass@k


@pytest.mark.parametrize(
    ("n", "c", "k", "value"),
    [(10, 3, 1, 0.3), (10, 3, 5, 1 - 21 / 252), (10, 0, 5, 0.0), (3, 2, 2, 1.0), (200, 200, 100, 1.0)],
)
def test_pass_at_k(n: int, c: int, k: int, value: float) -> None:
    assert math.isclose(pass_at_k(n, c, k), value, abs_tol=1e-15)


@given(st.integers(1, 7).flatmap(lambda n: st.tuples(st.just(n), st.integers(0, n), st.integers(1, n))))
def test_pass_at_k_is_the_share_of_draws_with_a_passing_sample(case: tuple[int, int, int]) -> None:
    n, c, k = case
    draws = list(itertools.combinations([True] * c + [False] * (n - c), k))
    assert math.isclose(pass_at_k(n, c, k), sum(map(any, draws)) / len(draws), abs_tol=1e-12)


@pytest.mark.parametrize(
    ("n", "c", "k", "name"), [(3, 4, 1, "c"), (3, -1, 1, "c"), (3, 1, 0, "k"), (3, 1, 4, "k"), (0, 0, 1, "k")]
)
def test_pass_at_k_names_what_is_out_of_range(n: int, c: int, k: int, name: str) -> None:
    with pytest.raises(ValueError, match=f"{name} must lie in"):
        pass_at_k(n, c, k)
