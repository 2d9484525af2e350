from __future__ import annotations

import re
import string

import pytest

from lib.tasks.worlds.draw import Draw
from lib.tasks.worlds.grammar import Relation, grammar, new_entity, new_value, say, with_article
from lib.tasks.worlds.names import EXISTING, NameBook, allowed

RELATIONS = grammar().relations


def placeholders(form: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(form) if name}


def test_there_are_dozens_of_relations_and_enough_for_every_page() -> None:
    assert len(RELATIONS) >= 36
    assert len({r.id for r in RELATIONS}) == len(RELATIONS)
    for kind in grammar().types:
        assert len(grammar().of(kind)) >= 8  # a page states up to six, one is asked


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: r.id)
def test_every_relation_has_its_forms(relation: Relation) -> None:
    assert (
        len(set(relation.says)) >= 3
        and len(set(relation.asks)) >= 2
        and len(set(relation.claims)) >= 2
        and relation.denies
    )
    assert relation.tail_asks
    for form in relation.says + relation.claims + relation.denies:
        assert form.endswith(".") and placeholders(form) in ({"x", "v"}, {"x", "a"})
    for form in relation.asks:
        assert form.endswith("?") and placeholders(form) == {"x"}
    for form in relation.np:
        assert relation.value in grammar().types and placeholders(form) == {"x"}
    forms = relation.says + relation.asks + relation.claims + relation.denies
    assert not [f for f in forms if "the {x}" in f or " a {v}" in f or " an {v}" in f or "{x}'s" in f]
    # A claim never is a source sentence word for word.
    assert not set(relation.says) & set(relation.claims + relation.denies)


@pytest.mark.parametrize("relation", RELATIONS, ids=lambda r: r.id)
def test_every_form_reads_as_a_sentence(relation: Relation) -> None:
    draw = Draw("test", relation.id)
    book = NameBook(draw)
    for form in relation.says:
        for _ in range(20):
            text = say(form, new_entity(relation.of, draw, book), new_value(relation, draw, book, 1800))
            assert 8 <= len(text.split()) <= 16, text
            assert text[0].isupper() and "  " not in text and not re.search(r"\bthe the\b", text, re.IGNORECASE)
            assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", text), text


def test_no_form_contains_a_value_of_a_pool() -> None:
    values = [v for pool in grammar().pools.values() for v in pool]
    forms = [f for r in RELATIONS for f in r.says + r.asks + r.claims + r.denies + r.np + (r.noun,)]
    forms += [*grammar().where, *grammar().sea, *grammar().noise, *grammar().repeats]
    forms += [f for intros in grammar().intros.values() for f in intros]
    text = "\n".join(forms).lower()
    found = [v for v in values if re.search(rf"\b{re.escape(v.lower())}\b", text)]
    assert found == []


def test_pools_share_no_value_and_hold_no_repeats() -> None:
    values = [v.lower() for pool in grammar().pools.values() for v in pool]
    assert len(values) == len(set(values))


def test_articles_of_all_countable_pools() -> None:
    said = {with_article(v) for name, a in grammar().articles.items() if a == "a" for v in grammar().pools[name]}
    assert {"an otter", "an ox", "an antelope", "an upholsterer", "an engraver", "a stag"} <= said


def test_names_are_fresh_allowed_and_look_like_names() -> None:
    draw = Draw("names")
    book = NameBook(draw)
    words = ["".join(book.stem()) for _ in range(3000)] + [book.first_name() for _ in range(500)]
    assert len({w.lower() for w in words}) == len(words)
    assert all(re.fullmatch(r"[A-Z][a-z]{3,12}", w) for w in words)
    assert not {w.lower() for w in words} & EXISTING
    assert not allowed("Boden") and not allowed("Titane") and allowed("Vendock")


@pytest.mark.parametrize("kind", grammar().types)
def test_similar_entities_share_part_of_the_name(kind: str) -> None:
    draw = Draw("similar", kind)
    for _ in range(200):
        book = NameBook(draw)
        one = new_entity(kind, draw, book)
        two = new_entity(kind, draw, book, like=one)
        assert one.title != two.title and one.type == two.type
        shared = [a for a, b in zip(one.stem, two.stem, strict=False) if a == b]
        assert len(shared) >= len(one.stem) - 1 or one.first == two.first
        assert not re.search(rf"\b{re.escape(one.title)}\b", two.title)
