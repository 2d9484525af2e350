"""Progress lines: where they go, how often, and what they say."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from lib.runs import progress as module
from lib.runs.progress import Progress, duration


class Clock:
    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(module.time, "monotonic", lambda: self.now)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def work(clock: Clock, stream: io.StringIO | None, seconds: float, units: int = 10, **options: int) -> None:
    with Progress(units, "replies", stream=stream, **options) as progress:
        for _ in range(units - options.get("done", 0)):
            clock.now += seconds
            progress.advance()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (7.4, "0:07"), (723, "12:03"), (3765, "1:02:45"), (-1, "0:00")]
)
def test_durations_read_like_a_clock(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_quick_work_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    work(Clock(monkeypatch), stream, 0.01)
    assert stream.getvalue() == ""


def test_plain_lines_come_every_few_seconds_without_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    work(Clock(monkeypatch), stream, 2.0)
    lines = stream.getvalue().splitlines()
    assert lines[0] == "replies 1/10 prompts, 10 %, 0.5/s, about 0:18 left"
    assert lines[-1] == "replies 10/10 prompts, 100 %, 0.5/s, took 0:20"
    assert len(lines) == 5  # the first, one each 6 s (5 s and whole steps of 2 s), the last
    assert "\r" not in stream.getvalue()


def test_stored_units_count_as_done_but_not_for_the_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    work(Clock(monkeypatch), stream, 2.0, units=100, done=90)
    assert stream.getvalue().splitlines()[0] == "replies 91/100 prompts, 91 %, 0.5/s, about 0:18 left"


def test_a_terminal_gets_a_bar_that_redraws(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = Terminal()
    monkeypatch.setattr(sys, "stderr", stream)
    monkeypatch.delenv("LAB_PROGRESS_FILE", raising=False)
    work(Clock(monkeypatch), None, 2.0, units=2)
    assert stream.getvalue().count("\r") == 3
    assert "[############............] replies 1/2" in stream.getvalue()
    assert stream.getvalue().endswith("\n")


def test_a_batch_run_gets_a_file_with_the_newest_line_only(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("LAB_PROGRESS_FILE", str(tmp_path / "progress"))
    work(Clock(monkeypatch), None, 2.0)
    assert (tmp_path / "progress").read_text() == "replies 10/10 prompts, 100 %, 0.5/s, took 0:20"
    assert [path.name for path in tmp_path.iterdir()] == ["progress"]


def test_jupyter_gets_one_line_that_updates(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LAB_PROGRESS_FILE", raising=False)
    shown: list[str] = []

    class ZMQInteractiveShell:
        pass

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append("new " + data["text/plain"])
        return Handle()

    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=ZMQInteractiveShell))
    monkeypatch.setitem(sys.modules, "IPython.display", SimpleNamespace(display=display))
    work(Clock(monkeypatch), None, 2.0, units=3)
    assert [line.startswith("new ") for line in shown] == [True, False, False, False]
    assert shown[-1].startswith("replies 3/3")


def test_tqdm_is_used_nowhere() -> None:
    """Case of papermill#617: a widget bar freezes at 0 in an executed notebook."""
    for file in Path(module.__file__).parents[1].rglob("*.py"):
        text = file.read_text(encoding="utf-8").replace("use_tqdm=False", "")  # vLLM's own switch for its bar
        assert "tqdm" not in text, file
