"""Parsers and snapping: what is read, in which order, and how ties fall."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lib.coordination.parse import (
    ACTION_KEYS,
    ARTIFACT_KEYS,
    best_object,
    only_name,
    parse_decision,
    snap_name,
    visible_text,
)

ACTIONS, ARTIFACTS = ("read", "edit"), ("src/a.py", "src/b.py", "a.py")
WHOLE = '{"action_type": "edit", "target_artifact": "src/a.py"}'


def both(text: str, parser: str = "robust") -> tuple[str | None, str | None, bool]:
    decision = parse_decision(text, ACTIONS, ARTIFACTS, parser)
    assert decision.raw == text
    return decision.action, decision.artifact, decision.valid


@pytest.mark.parametrize(
    "text",
    [
        WHOLE,
        f"```json\n{WHOLE}\n```",
        f'I think {{so}}: {{"step": {WHOLE}}} - done.',
        f"<think>maybe {WHOLE.replace('edit', 'read')}</think>{WHOLE}",
        f'{{"action_type": "read", "why": 1, "x": 2}} {WHOLE}',
        '{"action_type": "", "target_artifact": null} {"Action": ["edit"], "File-Path": "src/a.py", "z": 1}',
    ],
)
def test_the_best_object_is_read_wherever_it_stands(text: str) -> None:
    assert both(text) == ("edit", "src/a.py", True)
    assert both(text, "permissive") == ("edit", "src/a.py", True)


def test_most_preferred_keys_then_most_keys_then_longest_then_first() -> None:
    def best(text: str) -> dict[str, object] | None:
        return best_object(text, ("p", "q"))

    assert best('{"p": 1, "q": 2} {"p": 1, "a": 1, "b": 1, "c": 1}') == {"p": 1, "q": 2}
    assert best('{"p": 1} {"p": 2, "a": 1}') == {"p": 2, "a": 1}
    assert best('{"p": 1} {"p": 222}') == {"p": 222}
    assert best('{"p": 1} {"p": 2}') == {"p": 1}
    assert best("no {object} [1]") is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"action_type": "edit", "target_artifact": "src/a.py"', "no complete JSON object"),
        ("", "no complete JSON object"),
        ('{"action_type": "edit"}', "the reply names no artifact"),
        ('{"action_type": true, "target_artifact": {"a": 1}}', "the reply names no action and no artifact"),
    ],
)
def test_robust_refuses_with_a_reason(text: str, reason: str) -> None:
    decision = parse_decision(text, ACTIONS, ARTIFACTS)
    assert not decision.valid and decision.reason == reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('So: {"action_type": "edit", "target_artifact": "src/a.py', "broken JSON was mended"),
        ("DECISION action_type=edit target_artifact=src/a.py", "read from labelled text"),
        ("**Action**: `edit`\n**Target file**: src/a.py", "read from labelled text"),
        ("Please edit src/a.py now.", "read from names in free text"),
        ('{"action_type": "edit"} on src/a.py', "read from names in free text"),
    ],
)
def test_permissive_says_how_it_read(text: str, reason: str) -> None:
    decision = parse_decision(text, ACTIONS, ARTIFACTS, "permissive")
    assert (decision.action, decision.artifact, decision.valid, decision.reason) == ("edit", "src/a.py", True, reason)
    assert not parse_decision(text, ACTIONS, ARTIFACTS).valid


def test_several_names_in_free_text_are_no_decision() -> None:
    assert both("edit src/a.py or src/b.py", "permissive") == ("edit", None, False)
    assert only_name("edit or Edit", ACTIONS) == "edit"
    assert only_name("reading", ACTIONS) is None


@given(st.text(max_size=80), st.sampled_from(["robust", "permissive"]))
def test_any_text_is_read_and_permissive_only_adds(text: str, parser: str) -> None:
    decision = parse_decision(text, ACTIONS, ARTIFACTS, parser)
    assert decision.valid == (decision.action is not None and decision.artifact is not None)
    strict = parse_decision(text, ACTIONS, ARTIFACTS)
    if strict.valid:
        again = parse_decision(text, ACTIONS, ARTIFACTS, "permissive")
        assert again == strict


@given(st.sampled_from(ACTION_KEYS), st.sampled_from(ARTIFACT_KEYS), st.text(min_size=1), st.text(min_size=1))
def test_any_names_come_back_as_written(action_key: str, artifact_key: str, action: str, artifact: str) -> None:
    decision = parse_decision(json.dumps({action_key: action, artifact_key: artifact}), (), ())
    assert (decision.action, decision.artifact) == (action.strip() or None, artifact.strip() or None)


def test_a_lone_surrogate_spelled_in_json_cannot_be_stored_and_is_replaced() -> None:
    assert parse_decision('{"action": "\\ud800x", "file": "a"}', (), ()).action == "?x"


def test_deep_nesting_is_survived() -> None:
    assert not parse_decision('{"a":' * 3_000, (), ()).valid


def test_an_unclosed_reasoning_block_is_all_of_the_reply() -> None:
    assert visible_text(f"<think>{WHOLE}") == "" and both(f"<think>{WHOLE}") == (None, None, False)


def test_an_unknown_parser_is_refused() -> None:
    with pytest.raises(ValueError, match="parser"):
        parse_decision("", (), (), "lenient")


@pytest.mark.parametrize(
    ("name", "options", "expected"),
    [
        ("a.py", ("x/a.py", "A.py", "a.py"), ("a.py", "exact")),
        (" EDIT ", ("read", "edit"), ("edit", "exact")),
        ("src/app", ("lib/src/app", "src/app_long.py", "src/app.py"), ("src/app.py", "prefix")),
        ("src/app.py:12", ("src/app.py", "src"), ("src/app.py", "prefix")),
        ("ab", ("ab1", "ab2"), ("ab1", "prefix")),
        ("app.py", ("src/long/app.py", "src/app.py"), ("src/app.py", "containment")),
        ("the file app.py please", ("app.py", "le"), ("app.py", "containment")),
        ("colour", ("velour", "colors"), ("colors", "ratio")),
        ("abcd", ("abdc", "bacd"), ("abdc", "ratio")),
        ("zzz", ("abc", ""), (None, "none")),
        ("", ("abc",), (None, "none")),
        (None, ("abc",), (None, "none")),
        ("abc", (), (None, "none")),
    ],
)
def test_snapping_order_and_ties(name: str | None, options: tuple[str, ...], expected: tuple[str | None, str]) -> None:
    assert snap_name(name, options) == expected


def test_the_cutoff_decides_what_is_a_guess() -> None:
    """Two letters of five in common: a ratio of exactly 0.4, which snaps at that cutoff and not above it."""
    assert snap_name("abxyz", ("qwbav",), 0.2).how == "ratio"
    assert snap_name("abxyz", ("qwabv",)) == ("qwabv", "ratio")
    assert snap_name("abxyz", ("qwabv",), 0.41) == (None, "none")


@given(st.text(max_size=12), st.lists(st.text(max_size=12), max_size=5))
def test_snapping_gives_a_candidate_and_is_idempotent(name: str, options: list[str]) -> None:
    snapped = snap_name(name, options)
    assert (snapped.name is None) == (snapped.how == "none")
    if snapped.name is not None:
        assert snapped.name in options
        if snapped.name == snapped.name.strip():
            assert snap_name(snapped.name, options) == (snapped.name, "exact")
