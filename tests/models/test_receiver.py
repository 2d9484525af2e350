"""What prompts, replies and option lists promise."""

from __future__ import annotations

import msgspec
import pytest

from lib.models import Prompt, Receiver, Reply, ScriptedReceiver, Turn
from lib.models.receiver import options_per_prompt, schema_text, text_key


def test_one_list_of_options_serves_every_prompt() -> None:
    assert options_per_prompt(2, ["a", "b"]) == [["a", "b"], ["a", "b"]]
    assert options_per_prompt(2, ("a",)) == [["a"], ["a"]]
    assert options_per_prompt(0, ["a"]) == []


def test_each_prompt_may_have_its_own_options() -> None:
    assert options_per_prompt(2, [["a", "b"], ("c", "d")]) == [["a", "b"], ["c", "d"]]


@pytest.mark.parametrize(
    ("n_prompts", "options", "reason"),
    [
        (2, [], "the same number of options, at least one"),
        (2, [["a"], []], "the same number of options"),
        (2, [["a"], ["b", "c"]], "the same number of options"),
        (2, [["a"]], "got 1 lists for 2 prompts; pass one list each, or one for all"),
        (1, [["a"], ["b"]], "got 2 lists for 1 prompts"),
        (1, "yes", "'yes' is one text"),
    ],
)
def test_option_lists_that_do_not_fit_are_refused(n_prompts: int, options: list[list[str]], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        options_per_prompt(n_prompts, options)


def test_text_keys_tell_roles_borders_and_schemas_apart() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "string"}}}
    turned = {"type": "object", "properties": {"b": {"type": "string"}, "a": {"type": "string"}}}
    prompts = [
        Prompt((Turn("user", "ab"),)),
        Prompt((Turn("system", "ab"),)),
        Prompt((Turn("user", "a"), Turn("user", "b"))),
        Prompt((Turn("user", "ab"),), schema),
        Prompt((Turn("user", "ab"),), turned),
        Prompt((Turn("user", "ab"),), {}),
        Prompt((Turn("user", "ab"),), bias=(("x", 1.0),)),
        Prompt((Turn("user", "ab\ud800"),)),
    ]
    keys = [text_key(prompt) for prompt in prompts]
    assert len(set(keys)) == len(keys)
    assert text_key(Prompt((Turn("user", "ab"),), dict(schema))) == keys[3]
    assert schema_text(None) is None


def test_prompts_and_replies_do_not_change() -> None:
    for thing, field in ((Turn("user", "a"), "text"), (Prompt(()), "schema"), (Reply("a"), "text")):
        with pytest.raises(AttributeError, match="immutable"):
            setattr(thing, field, "b")


def test_what_is_not_known_of_a_reply_is_null() -> None:
    """Row 25 of the fault reports: a token count that nobody gave is null, never 0."""
    reply = Reply(text="yes")
    assert (reply.prompt_tokens, reply.new_tokens, reply.error) == (None, None, None)
    assert msgspec.json.decode(msgspec.json.encode(reply), type=Reply) == reply


def test_a_receiver_is_known_by_what_it_can_do() -> None:
    assert isinstance(ScriptedReceiver(), Receiver)
    assert not isinstance(object(), Receiver)
