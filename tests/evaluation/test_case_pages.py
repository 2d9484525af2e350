"""Cases as pages: every text is there as it is, and nothing of it runs."""

from __future__ import annotations

from html import unescape

import pandas as pd
import pytest

from lib.evaluation.case_pages import case_page
from lib.runs.sanitise import clean

HOSTILE = '<script>alert("x")</script>\n<img src=x onerror=y> & $5 and $6'
READERS = pd.DataFrame(
    {"receiver": ["big", "<small>"], "reply": [HOSTILE, None], "outcome": ["hit", None], "alone": ["a <b>", "miss"]}
)


def test_texts_are_literal_and_stand_in_their_order() -> None:
    page = case_page("A <b> case", {"Local view": HOSTILE, "Message": ""}, READERS, boxed=("reply",)).html
    assert "<script" not in page and "<img" not in page and "<small>" not in page
    assert unescape(page).count(HOSTILE) == 2
    places = [
        page.index(text) for text in ("A &lt;b&gt; case", "Local view", "Message", "big", "&lt;small&gt;", "Outcome")
    ]
    assert places == sorted(places)
    assert "(empty)" in page, "an empty message is seen to be empty"
    assert page.count("\u2013") == 2, "what was not asked is a dash"


def test_only_boxed_columns_keep_their_line_breaks() -> None:
    page = case_page("t", {}, READERS, boxed=("reply",)).html
    assert page.count("<pre") == 1 and "a &lt;b&gt;" in page


def test_the_report_keeps_the_page_as_it_is() -> None:
    page = case_page("t", {"View": HOSTILE}, READERS, boxed=("reply",)).html
    kept = clean(page)
    assert "white-space" in kept and "max-height" in kept and kept.count("<table") == 2
    assert unescape(kept).count(HOSTILE) == 2


def test_missing_columns_are_named() -> None:
    with pytest.raises(ValueError, match="receiver"):
        case_page("t", {}, READERS.drop(columns="receiver"))
    with pytest.raises(ValueError, match="output"):
        case_page("t", {}, READERS, boxed=("output",))
