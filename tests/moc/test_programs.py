from __future__ import annotations

import sys

import pytest

from lib.moc.programs import printed_results
from lib.tasks.sandbox import SandboxError

posix = pytest.mark.skipif(sys.platform == "win32", reason="the sandbox needs Linux or macOS")


def fence(source: str) -> str:
    return f"Here it is:\n```python\n{source}\n```\nDone."


@posix
def test_the_last_printed_line_is_the_result() -> None:
    texts = [
        fence("print('jars')\nprint(4 * 6 - 5)\nprint()"),
        fence("print(1 / 0)"),
        fence("x = 19"),
        fence("print('many')"),
    ]
    texts.append(fence("print('9' * 200)"))
    assert printed_results(texts, allow_code_execution=True) == ["19", None, None, None, None]


def test_nothing_runs_without_leave() -> None:
    with pytest.raises(SandboxError, match="allow_code_execution"):
        printed_results([fence("print(1)")], allow_code_execution=False)
