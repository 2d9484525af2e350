"""Make HTML that came out of a run safe to look at, and keep it good to look at.

Texts in a run were written by models: anything may stand in them. Scripts, event handlers, frames, forms, remote images and
links to scripts are taken out; tables, text, embedded images and colours stay. Style sheets of tables are kept rule by rule,
when every selector starts at the table's own id or at `.dataframe` and no value loads anything.

Not covered: what a reader is told. A page can still lie in plain words.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import nh3

_ANYWHERE = {
    "class",
    "id",
    "style",
    "title",
    "align",
    "valign",
    "width",
    "height",
    "colspan",
    "rowspan",
    "scope",
    "headers",
}
_ATTRIBUTES = {
    "*": _ANYWHERE,
    "a": {"href"},
    "img": {"src", "alt"},
    "ol": {"start"},
    "details": {"open"},
}
_SIDES = ("top", "right", "bottom", "left")
_LOOKS = """background-color border border-collapse border-color border-radius border-spacing border-style border-width color
display font-family font-size font-style font-variant-numeric font-weight height letter-spacing line-height margin max-height
max-width min-width opacity overflow overflow-x overflow-y padding text-align text-decoration text-indent text-transform
vertical-align white-space width word-break"""
_STYLES = {
    *re.findall(r"\S+", _LOOKS),
    *(f"{name}-{side}" for name in ("border", "margin", "padding") for side in _SIDES),
    *(f"border-{side}-{part}" for side in _SIDES for part in ("color", "style", "width")),
}
_IMAGE = re.compile(r"data:image/(?:png|jpeg|gif|svg\+xml);base64,[A-Za-z0-9+/=\s]*")
_NO_SOURCE = re.compile(r"<img(?![^<>]*\ssrc=)[^<>]*>")
_SHEET = re.compile(r"<style[^<>]*>([^<]*)</style\s*>", re.IGNORECASE)  # no "<" inside: nothing can hide in it


def clean(markup: str) -> str:
    """Return a fragment of HTML without anything that runs or loads."""
    sheets: list[str] = []

    def lift(match: re.Match[str]) -> str:
        sheets.append(clean_css(match.group(1)))
        return ""

    rest = _SHEET.sub(lift, markup)
    safe = nh3.clean(
        rest,
        clean_content_tags={"script", "style", "noscript", "template", "title", "textarea"},
        attributes=_ATTRIBUTES,
        attribute_filter=_attribute,
        url_schemes={"http", "https", "mailto", "data"},
        link_rel="noopener noreferrer",
    )
    kept = "\n".join(filter(None, sheets))
    safe = _NO_SOURCE.sub("[image left out]", safe)
    return f"<style>\n{kept}\n</style>\n{safe}" if kept else safe


@cache
def clean_css(css: str) -> str:
    """Return those rules of a style sheet that touch only their own table and load nothing."""
    import tinycss2

    rules = []
    for rule in tinycss2.parse_stylesheet(css, skip_comments=True, skip_whitespace=True):
        if rule.type != "qualified-rule":
            continue  # @import, @font-face, @media and the like
        selectors = [text.strip() for text in tinycss2.serialize(rule.prelude).split(",")]
        own = [text for text in selectors if text.startswith(("#", ".dataframe")) and "<" not in text]
        values = _declarations(rule.content)
        if own and values:
            rules.append(f"{', '.join(own)} {{ {values} }}")
    return "\n".join(rules)


def _declarations(content: str | list[Any]) -> str:
    """Return those `name: value` pairs of a rule or a style attribute that are known and load nothing."""
    import tinycss2

    return "; ".join(
        f"{item.lower_name}: {tinycss2.serialize(item.value).strip()}"
        for item in tinycss2.parse_blocks_contents(content, skip_comments=True, skip_whitespace=True)
        if item.type == "declaration" and item.lower_name in _STYLES and _loads_nothing(item.value)
    )


def _loads_nothing(tokens: list[Any]) -> bool:
    """Tell whether a CSS value is plain: names, numbers, colours, strings without markup."""
    for token in tokens:
        if token.type == "function":
            if token.lower_name not in ("rgb", "rgba", "hsl", "hsla", "calc", "var") or not _loads_nothing(
                token.arguments
            ):
                return False
        elif token.type in ("url", "error") or token.type.endswith("block") or "<" in token.serialize():
            return False
    return True


def _attribute(tag: str, attribute: str, value: str) -> str | None:
    """Keep embedded images only, no data links, and no style that loads or leaves its place."""
    if attribute == "src":
        return value if tag == "img" and _IMAGE.fullmatch(value) else None
    if attribute == "href":
        return None if value.strip().lower().startswith("data:") else value
    return (_declarations(value) or None) if attribute == "style" else value
