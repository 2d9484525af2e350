"""The report: pages of finished runs, an index, and failures that are not hidden."""

from __future__ import annotations

import json
import re
from pathlib import Path

import nbformat
import pytest

from lib.runs.index import append_index
from lib.runs.layout import Layout
from lib.runs.page import body_of, formula, heading, text_html
from lib.runs.params import ParameterError
from lib.runs.report import build_report
from tests.runs.books import make_checkout, run_all, write_notebook
from tests.runs.test_sanitise import Reader

SCRIPT, IMAGE = "<script>alert(1)</script>", "<img src=x onerror=alert(2)>"


def keep_run(
    layout: Layout, stem: str, *, profile: str = "smoke", run: str = "1", outputs: bool = True, **more: object
) -> Path:
    """Write a finished run as the runner does, without a kernel."""
    write_notebook(layout.notebooks / f"{stem}.ipynb", "1")
    folder = layout.outputs / f"{stem}-{run}"
    path = write_notebook(folder / f"{stem}.ipynb", "print(1)", title=f"What of {stem}?")
    book = nbformat.read(path, as_version=4)
    if outputs:
        book.cells[-1].outputs = [nbformat.v4.new_output("stream", name="stdout", text=f"shown by {run}")]
    nbformat.write(book, path)
    result = {"run_id": folder.name, "notebook": stem, "profile": profile, "status": "ok", "seconds": 61.5}
    result |= {
        "started": "2026-11-30T10:00:00+00:00",
        "parameters": {"seed": 1},
        "headline": {"gain": 0.123456},
        "git": "abc",
    }
    result |= {"tables": ["t.parquet"], "figures": ["f.png", "f.svg"], "error": None, **more}
    (folder / "result.json").write_text(json.dumps(result))
    names = ("run_id", "notebook", "profile", "status", "seconds", "started", "parameters", "headline")
    append_index(layout.outputs, {**{name: result[name] for name in names}, "folder": folder.name, "error": None})
    return folder


def fail_run(layout: Layout, stem: str, profile: str = "smoke") -> None:
    write_notebook(layout.notebooks / f"{stem}.ipynb", "1")
    append_index(
        layout.outputs,
        {
            "run_id": f"{stem}-9",
            "notebook": stem,
            "profile": profile,
            "status": "failed",
            "error": "cell 3: KeyError: 'x'",
        },
    )


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return make_checkout(tmp_path)


def report(layout: Layout, profile: str | None = None) -> tuple[tuple[str, ...], str]:
    built = build_report(layout, profile, say=lambda _: None)
    assert [path.exists() for path in built.pages] == [True] * len(built.pages)
    return built.problems, (built.folder / "index.html").read_text(encoding="utf-8")


def test_each_newest_finished_run_gets_a_page(layout: Layout) -> None:
    keep_run(layout, "00_a", run="1")
    keep_run(layout, "00_a", run="2")
    keep_run(layout, "00_a", run="3", profile="laptop")
    keep_run(layout, "10_b")
    problems, index = report(layout)
    assert problems == ()
    pages = layout.outputs / "report"
    assert sorted(path.name for path in pages.iterdir()) == [
        "00_a-laptop.html",
        "00_a-smoke.html",
        "10_b-smoke.html",
        "index.html",
    ]
    assert "shown by 2" in (pages / "00_a-smoke.html").read_text()
    assert "shown by 3" in (pages / "00_a-laptop.html").read_text()
    assert index.index("What of 00_a?") < index.index("What of 10_b?")
    for part in [
        "What is claimed.",
        "0.1235",
        "1:02 (62 s)",
        'href="../00_a-2/tables/t.parquet"',
        "../00_a-2/figures/f.png",
    ]:
        assert part in index


def test_a_newer_failure_is_shown_and_the_finished_run_stays(layout: Layout) -> None:
    keep_run(layout, "00_a")
    fail_run(layout, "00_a")
    fail_run(layout, "10_b")
    problems, index = report(layout)
    assert problems == ()
    assert "A newer run failed: cell 3: KeyError: &#x27;x&#x27;" in index
    assert "10_b" in index.split("Without a finished run")[1]


def test_missing_and_empty_pages_fail(layout: Layout) -> None:
    assert report(layout)[0] == (
        f"{layout.outputs}: no finished run of any notebook; make some with `python -m lib run`",
    )
    keep_run(layout, "00_a")
    write_notebook(layout.notebooks / "10_b.ipynb", "1")
    assert report(layout)[0] == ()
    assert report(layout, "smoke")[0] == ("10_b: no finished run with profile smoke; make it with `python -m lib run`",)
    keep_run(layout, "10_b", outputs=False)
    (problem,) = report(layout)[0]
    assert "no cell has any output" in problem
    folder = keep_run(layout, "10_b", run="2")
    assert report(layout)[0] == ()
    (folder / "10_b.ipynb").write_text('{"cells": [')
    (problem,) = report(layout)[0]
    assert "10_b.ipynb: not a readable notebook" in problem


def test_a_run_whose_folder_is_gone_is_missing(layout: Layout) -> None:
    folder = keep_run(layout, "00_a")
    (folder / "result.json").unlink()
    problems, _ = report(layout)
    assert "00_a: its finished run 00_a-1 is in the index, its folder is gone; run it again" in problems


@pytest.mark.parametrize("content", ["", "{", "[]", "{}", '{"seconds": null}', '{"seconds": "long"}', "\x00\x01"])
def test_a_damaged_result_is_named_and_the_other_pages_are_written(layout: Layout, content: str) -> None:
    folder = keep_run(layout, "00_a")
    keep_run(layout, "10_b")
    (folder / "result.json").write_text(content)
    (problem,), index = report(layout)
    assert problem.startswith(f"{folder / 'result.json'}: damaged (")
    assert problem.endswith("run the notebook again with --force")
    assert "What of 10_b?" in index


def test_a_run_of_another_profile_is_not_called_gone(layout: Layout) -> None:
    keep_run(layout, "00_a", profile="laptop")
    problems, _ = report(layout, "smoke")
    assert "00_a: no finished run with profile smoke; make it with `python -m lib run`" in problems
    assert not any("gone" in problem for problem in problems)


def test_an_unknown_profile_is_refused_and_the_old_report_stays(layout: Layout) -> None:
    keep_run(layout, "00_a", profile="laptop")
    assert report(layout)[0] == ()
    with pytest.raises(ParameterError, match="--profile lapdog: no such profile; did you mean 'laptop'"):
        build_report(layout, "lapdog", say=lambda _: None)
    assert (layout.outputs / "report" / "00_a-laptop.html").exists()


def test_a_torn_index_is_reported(layout: Layout) -> None:
    keep_run(layout, "00_a")
    with (layout.outputs / "index.jsonl").open("ab") as file:
        file.write(b'{"run_id": "00_a-2", "st\n')
    problems, _ = report(layout)
    assert len(problems) == 1
    assert "line 2: no whole record" in problems[0]


def test_pages_work_without_network_and_scripts(layout: Layout) -> None:
    keep_run(layout, "00_a")
    report(layout)
    for page in (layout.outputs / "report").glob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert "default-src 'none'" in text
        body = text.split("</head>")[1]
        assert [hit for hit in Reader(body).found if not hit.startswith("img ../")] == []
        assert re.findall(r"(?:src|href)=\"(?:https?:)?//[^\"]*", text) == []


def test_row_46_hostile_text_is_escaped_in_table_output_and_page(layout: Layout) -> None:
    """Case 46 (nbconvert#2016): a message's script stays text in printed text, HTML output, table cell and headline."""
    write_notebook(
        layout.notebooks / "00_a.ipynb",
        "import pandas as pd\nfrom IPython.display import HTML, Javascript, Markdown, display\nfrom lib.runs import start_run",
        f"script, image = {SCRIPT!r}, {IMAGE!r}",
        "print(script, image)",
        "display(HTML('<b>kept</b>' + script + image), Markdown(f'**marked** {script} {image}'), Javascript('alert(3)'))",
        "frame = pd.DataFrame({'text': [script, image]})\nframe",
        "frame.to_html(escape=False)",
        "run = start_run()\nrun.record(said=script + image)\nrun.table(frame, 'hostile')",
        "raise ValueError(script)",
        title=f"Safe? {SCRIPT}",
    )
    book = nbformat.read(layout.notebooks / "00_a.ipynb", as_version=4)
    book.cells[-1].metadata["tags"] = ["raises-exception"]
    nbformat.write(book, layout.notebooks / "00_a.ipynb")
    run_all(layout)
    # papermill counts any error output as failed; render what it kept
    (folder,) = layout.outputs.glob("00_a-*")
    page = body_of(nbformat.read(folder / "00_a.ipynb", as_version=4))
    assert Reader(page).found == []
    assert page.count("&lt;script&gt;alert(1)&lt;/script&gt;") >= 3  # printed, table cell, traceback
    assert "&lt;img src=x onerror=alert(2)&gt;" in page
    assert "<b>kept</b>" in page
    assert "<strong>marked</strong>" in page
    assert json.loads((folder / "tables" / "hostile.json").read_text())[0] == {"text": SCRIPT}

    keep_run(layout, "10_b", headline={"said": SCRIPT, IMAGE: 1}, parameters={"p": IMAGE}, git=SCRIPT)
    _, index = report(layout)
    for text in (index, (layout.outputs / "report" / "10_b-smoke.html").read_text(encoding="utf-8")):
        assert [hit for hit in Reader(text.split("</head>")[1]).found if not hit.startswith("img ../")] == []
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in text


def test_formulas_are_drawn_or_shown_as_code() -> None:
    drawn = text_html("RCE is $\\frac{1}{2}(S_i + N_i)$ and costs \\$5.\n\n$$\\sum_{i=1}^n u_i$$")
    assert drawn.count('<img class="math"') == 2
    assert 'alt="\\frac{1}{2}(S_i + N_i)"' in drawn
    assert "$5" in drawn
    assert formula("\\nosuchcommand{x}") == "<code>\\nosuchcommand{x}</code>"
    assert formula("a_i") == formula("a_i")
    assert Reader(text_html(f"$x {SCRIPT}$ {IMAGE}")).found == []


def test_title_and_question_come_from_the_first_text_cell() -> None:
    def book(*texts: str) -> nbformat.NotebookNode:
        return nbformat.v4.new_notebook(cells=[nbformat.v4.new_markdown_cell(text) for text in texts])

    assert heading(book("# Which packets?\n\nA *question*\nof two lines.\n\nMore."), "x") == (
        "Which packets?",
        "A *question*\nof two lines.",
    )
    assert heading(book("## Small title\nright below"), "x") == ("Small title", "right below")
    assert heading(book("Only text"), "stem") == ("stem", "Only text")
    assert heading(book(), "stem") == ("stem", "")


def test_figures_and_latex_are_inside_the_page() -> None:
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    cell = nbformat.v4.new_code_cell("plot()")
    cell.outputs = [
        nbformat.v4.new_output(
            "display_data", data={"image/png": png, "image/svg+xml": "<svg/>", "text/plain": "Figure"}
        ),
        nbformat.v4.new_output("display_data", data={"image/svg+xml": "<svg><script>alert(1)</script></svg>"}),
        nbformat.v4.new_output("display_data", data={"text/latex": "$x^2$", "text/plain": "x"}),
        nbformat.v4.new_output("display_data", data={"application/vnd.jupyter.widget-view+json": {"model_id": "a"}}),
    ]
    page = body_of(nbformat.v4.new_notebook(cells=[cell]))
    assert page.count(f"data:image/png;base64,{png}") == 1
    assert (
        page.count("data:image/svg+xml;base64,") == 2
    )  # the drawing as an image, where scripts do not run; the formula
    assert Reader(page).found == []
