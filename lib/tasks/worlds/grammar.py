"""Wording and values of the worlds generator: entity types, relations, surface forms, pools.

The text itself lives in `grammar.toml`; this module reads it once, checks it and renders forms. A *relation* belongs to one entity
type and has one type of value; a *link* is a relation whose value is an entity that has a document of its own.

Not covered: which facts a task holds (`generate`), how a page is put together (`documents`).
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.resources import files

import msgspec

from lib.tasks.worlds.draw import Draw
from lib.tasks.worlds.names import NameBook, Stem


class Entity(msgspec.Struct, frozen=True):
    """A named thing: ``title`` is its bare name, ``text`` the name as it stands inside a sentence ("the Vendock Bridge")."""

    type: str
    title: str
    text: str
    stem: Stem
    first: str = ""


class Value(msgspec.Struct, frozen=True):
    """A value: ``bare`` is the gold answer, ``text`` stands in a sentence, ``phrase`` stands alone ("an otter")."""

    bare: str
    text: str
    phrase: str
    entity: Entity | None = None


class Relation(msgspec.Struct, frozen=True):
    """One relation with its surface forms; see the head of ``grammar.toml`` for the placeholders."""

    id: str
    of: str
    value: str
    noun: str
    says: tuple[str, ...]
    asks: tuple[str, ...]
    claims: tuple[str, ...]
    denies: tuple[str, ...]
    np: tuple[str, ...] = ()

    @property
    def tail_asks(self) -> tuple[str, ...]:
        """Questions that end in the entity, so that a longer noun phrase can stand there."""
        return tuple(ask for ask in self.asks if ask.endswith("{x}?"))


class NameForm(msgspec.Struct, frozen=True):
    forms: tuple[str, ...]
    article: str


class Grammar(msgspec.Struct, frozen=True):
    """Everything in ``grammar.toml``."""

    where: tuple[str, ...]
    sea: tuple[str, ...]
    noise: tuple[str, ...]
    repeats: tuple[str, ...]
    pools: dict[str, tuple[str, ...]]
    articles: dict[str, str]
    names: dict[str, NameForm]
    intros: dict[str, tuple[str, ...]]
    relations: tuple[Relation, ...]

    def of(self, entity_type: str) -> tuple[Relation, ...]:
        """Return the relations of an entity type, in file order."""
        return tuple(r for r in self.relations if r.of == entity_type)

    @property
    def types(self) -> tuple[str, ...]:
        """Entity types that have documents."""
        return tuple(self.intros)

    def room(self, relation: Relation) -> int:
        """Return how many values a relation can take (names count as endless)."""
        if relation.value in self.pools:
            return len(self.pools[relation.value])
        if relation.value.startswith(("year:", "number:")):
            low, high = relation.value.split(":")[1:3]
            return int(high) - int(low) + 1
        return 1_000_000


@cache
def grammar() -> Grammar:
    """Read and check the grammar."""
    raw = tomllib.loads(files("lib.tasks.worlds").joinpath("grammar.toml").read_text(encoding="utf-8"))
    relations = [{"id": key, "of": key.split(".")[0], **body} for key, body in raw["relations"].items()]
    plain = {k: raw[k] for k in ("where", "sea", "noise", "repeats", "pools", "articles", "names")}
    intros = {name: body["intros"] for name, body in raw["types"].items()}
    return msgspec.convert({**plain, "intros": intros, "relations": relations}, Grammar)


def with_article(word: str) -> str:
    """Return the word after "a" or "an".

    Examples
    --------
    >>> with_article("otter"), with_article("stag"), with_article("upholsterer"), with_article("unicorn")
    ('an otter', 'a stag', 'an upholsterer', 'a unicorn')
    """
    sounds_vowel = word[0].lower() in "aeiou" and not word.lower().startswith(("uni", "eu", "one"))
    return f"{'an' if sounds_vowel else 'a'} {word}"


def render(form: str, parts: Mapping[str, str]) -> str:
    """Fill the placeholders of a form and start it with a capital."""
    text = re.sub(r"\{(\w+)\}", lambda m: parts[m.group(1)], form)
    return text[0].upper() + text[1:]


def say(form: str, entity: Entity | str, value: Value | None = None, **more: str) -> str:
    """Render a form about an entity (or a noun phrase) with a value."""
    parts = {"x": entity if isinstance(entity, str) else entity.text, **more}
    if value is not None:
        parts |= {"v": value.text, "a": with_article(value.text), "p": value.phrase}
    return render(form, parts)


def new_entity(entity_type: str, draw: Draw, book: NameBook, like: Entity | None = None) -> Entity:
    """Invent an entity; with `like`, one whose name resembles that of another of the same type."""
    stem = book.stem() if like is None else book.similar(like.stem)
    word = "".join(stem)
    if entity_type == "person":
        first = book.first_name()
        if like is not None and draw.chance(0.5):
            # Two people who share a surname, or two of the same given name: relevance by name alone misleads.
            stem, word = like.stem, "".join(like.stem)
        elif like is not None:
            first = like.first
        title = f"{first} {word}"
        return Entity(type=entity_type, title=title, text=title, stem=stem, first=first)
    form = grammar().names[entity_type]
    if entity_type == "language":
        word = word.rstrip("ae")  # "Trundostira" gives "Trundostirish"
    pattern = draw.pick(form.forms)
    if like is not None:
        pattern = like.title.replace("".join(like.stem), "{w}")
    title = render(pattern, {"w": word})
    return Entity(type=entity_type, title=title, text=f"{form.article} {title}".strip(), stem=stem)


def new_value(relation: Relation, draw: Draw, book: NameBook, era: int) -> Value:
    """Draw a value of the relation's type.

    Parameters
    ----------
    relation
        Its ``value`` is ``year:<low>:<high>`` (years around `era`), ``number:<low>:<high>:<unit>``, a pool, or a type of name.
    era
        Year around which the task's events lie.
    """
    world = grammar()
    kind, *bounds = relation.value.split(":")
    if kind == "year":
        year = str(era + draw.whole(int(bounds[0]), int(bounds[1])))
        return Value(bare=year, text=year, phrase=year)
    if kind == "number":
        count = f"{draw.whole(int(bounds[0]), int(bounds[1])):,} {bounds[2]}"
        return Value(bare=count, text=count, phrase=count)
    if kind in world.pools:
        word = draw.pick(world.pools[kind])
        article = world.articles.get(kind, "")
        phrase = with_article(word) if article == "a" else f"{article} {word}".strip()
        return Value(bare=word, text=word, phrase=phrase)
    entity = new_entity(kind, draw, book)
    return Value(bare=entity.title, text=entity.text, phrase=entity.text, entity=entity)


def entity_value(entity: Entity) -> Value:
    """Return an entity as a value."""
    return Value(bare=entity.title, text=entity.text, phrase=entity.text, entity=entity)
