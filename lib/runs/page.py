"""Turn an executed notebook into one static page: no scripts, nothing loaded from elsewhere, figures inside.

Formulas are drawn by matplotlib and embedded, so that they read well without a network. Everything that came out of the run
passes `sanitise.clean`.

Not covered: widgets and other outputs that live from scripts; their static fallback is shown.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from lib.runs.params import ParameterError
from lib.runs.progress import duration
from lib.runs.sanitise import clean

_STYLE = Path(__file__).with_name("report.css")


def read_executed(path: Path) -> Any:
    """Return an executed notebook; `ParameterError` when the file is none."""
    import nbformat

    try:
        return nbformat.read(path, as_version=4)
    except (OSError, ValueError, AttributeError, nbformat.ValidationError) as error:
        raise ParameterError(f"{path}: not a readable notebook ({error})") from error


def has_outputs(book: Any) -> bool:
    """Tell whether any code cell has shown something."""
    return any(cell.cell_type == "code" and cell.get("outputs") for cell in book.cells)


def heading(book: Any, fallback: str) -> tuple[str, str]:
    """Return a notebook's title and question: first heading and first paragraph (markdown) of its first text cell."""
    text = next((cell.source for cell in book.cells if cell.cell_type == "markdown" and cell.source.strip()), "")
    title, question = fallback, ""
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.strip().split("\n")
        if lines[0].startswith("#"):
            title = lines.pop(0).lstrip("#").strip() if title == fallback else title
        if lines and not lines[0].startswith("#") and not question:
            question = "\n".join(lines)
    return title, question


def text_html(markdown: str) -> str:
    """Return markdown as clean HTML, with drawn formulas."""
    return clean(_markdown(markdown))


def body_of(book: Any) -> str:
    """Return the notebook's cells and outputs as clean HTML."""
    from nbconvert import HTMLExporter

    book = book.copy()
    book.cells = [_static(cell) for cell in book.cells]
    exporter = HTMLExporter(template_name="basic")
    exporter.register_filter("markdown2html", _markdown)
    return clean(exporter.from_notebook_node(book)[0])


def _markdown(source: str) -> str:
    from nbconvert.filters.markdown_mistune import IPythonRenderer, MarkdownWithMath

    class Renderer(IPythonRenderer):
        """Markdown with drawn formulas."""

        def inline_math(self, body: str) -> str:
            return formula(body)

        def block_math(self, body: str) -> str:
            return _display(body)

        def latex_environment(self, name: str, body: str) -> str:
            return _display(body.replace("&", ""))

    return str(MarkdownWithMath(renderer=Renderer(escape=False, anchor_link_text="#")).render(source))


def page_of(book: Any, result: Mapping[str, Any], folder: str) -> str:
    """Return the page of one run; `folder` is the run's folder as seen from the page, for links to its files."""
    title, _ = heading(book, str(result["notebook"]))
    facts = f'<div class="facts">{facts_of(result)}</div>{numbers_of(result.get("headline", {}))}'
    rows = "".join(
        f"<tr><td><code>{html.escape(str(name))}</code></td><td>{html.escape(repr(value))}</td></tr>"
        for name, value in result.get("parameters", {}).items()
    )
    more = f'<details class="more"><summary>Parameters and files</summary><table>{rows}</table><p>{links_of(result, folder)}'
    more += f"</p><p>Run {html.escape(str(result['run_id']))}, code {html.escape(str(result.get('git')))}</p></details>"
    crumbs = '<div class="crumbs"><a href="index.html">All notebooks</a></div>'
    return document(title, f"{crumbs}{facts}{more}{body_of(book)}")


def facts_of(result: Mapping[str, Any]) -> str:
    """Return status, profile, time and start of a run."""
    status = html.escape(str(result["status"]))
    return (
        f'<span class="status {status}">{status}</span><span>profile {html.escape(str(result["profile"]))}</span>'
        f"<span>{duration(float(result['seconds']))} ({float(result['seconds']):.0f} s)</span>"
        f"<span>started {html.escape(str(result['started']).replace('T', ' ').replace('+00:00', ' UTC'))}</span>"
    )


def numbers_of(headline: Mapping[str, Any]) -> str:
    """Return the headline numbers as a row of boxes."""
    if not headline:
        return ""
    boxes = "".join(
        f"<li><b>{html.escape(_shown(value))}</b><span>{html.escape(str(name).replace('_', ' '))}</span></li>"
        for name, value in headline.items()
    )
    return f'<ul class="numbers">{boxes}</ul>'


def links_of(result: Mapping[str, Any], folder: str) -> str:
    """Return links to the run's tables, figures and notebook."""
    files = [f"{kind}/{name}" for kind in ("tables", "figures") for name in result.get(kind, [])]
    files.append(f"{result['notebook']}.ipynb")
    return ", ".join(f'<a href="{html.escape(f"{folder}/{file}")}">{html.escape(file)}</a>' for file in files)


def document(title: str, body: str) -> str:
    """Return a whole HTML document. Its policy forbids scripts and remote loads even where cleaning failed."""
    policy = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' data:"
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{html.escape(title)}</title><style>\n{_STYLE.read_text(encoding='utf-8')}</style></head>"
        f"<body><main>{body}</main></body></html>\n"
    )


@cache
def formula(source: str, size: int = 11) -> str:
    """Return a formula as an embedded image with its source as text, or as code where matplotlib cannot draw it."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure
    from matplotlib.font_manager import FontProperties
    from matplotlib.mathtext import MathTextParser

    text = " ".join(source.split())
    prop = FontProperties(size=size, math_fontfamily="stix")
    try:
        width, height, depth, _, _ = MathTextParser("path").parse(f"${text}$", dpi=72, prop=prop)
    except ValueError:
        return f"<code>{html.escape(source)}</code>"
    figure = Figure(figsize=((width + 2) / 72, (height + 2) / 72))
    FigureCanvasSVG(figure)
    figure.text(1 / (width + 2), (depth + 1) / (height + 2), f"${text}$", fontproperties=prop)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": text}):
        figure.savefig(buffer, format="svg", transparent=True, metadata={"Date": None})
    image = base64.b64encode(buffer.getvalue()).decode("ascii")
    style = f"height: {(height + 2) / 11:.2f}em; vertical-align: {-(depth + 1) / 11:.2f}em"
    alt = html.escape(text, quote=True)
    return f'<img class="math" alt="{alt}" style="{style}" src="data:image/svg+xml;base64,{image}">'


def _display(source: str) -> str:
    return f'<span class="display">{formula(source, size=14)}</span>'


def _static(cell: Any) -> Any:
    """Return a cell whose outputs show without scripts: clean HTML, pictures before drawings, text at last."""
    cell = cell.copy()
    cell.metadata = {}  # tags become classes and widths become attributes; neither is needed
    if cell.cell_type != "code":
        cell.attachments = cell.get("attachments", {})
        return cell
    outputs = []
    for output in cell.outputs:
        output = output.copy()
        if "data" in output:
            data = {kind: value for kind, value in output.data.items() if kind in _SHOWN}
            if "image/png" in data or "image/jpeg" in data:
                data.pop("image/svg+xml", None)
            if "text/latex" in data and "text/html" not in data:
                data["text/html"] = _display(data.pop("text/latex").strip().strip("$"))
            if "text/html" in data:
                data["text/html"] = clean(data["text/html"])
                if not data["text/html"].strip():
                    del data["text/html"]
            output.data = type(output.data)(data)
            output.metadata = {}
            if not data:
                continue
        outputs.append(output)
    cell.outputs = outputs
    return cell


_SHOWN = ("text/html", "text/markdown", "text/latex", "text/plain", "image/png", "image/jpeg", "image/svg+xml")


def _shown(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "yes", False: "no", None: "-"}[value]
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
