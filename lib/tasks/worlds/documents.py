"""Pages about invented entities: a needed fact among plausible others, and nothing that gives the answer away elsewhere.

A `World` holds what one task must keep consistent: chance, names in use, the era, and the *guarded* texts (answers, subjects) that
no filler sentence may contain.

Not covered: which facts are needed and what is asked (`generate`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import msgspec

from lib.tasks.task import Source
from lib.tasks.worlds.draw import Draw
from lib.tasks.worlds.grammar import Entity, Relation, Value, grammar, new_entity, new_value, say
from lib.tasks.worlds.names import NameBook

INTRO_SHARE = 0.7  # share of pages that open with a sentence without a fact
SHORT_SHARE = 0.35  # share of filler sentences that say "the museum" for the name


class Line(msgspec.Struct, frozen=True):
    """One sentence to be placed on a page; ``key`` names a needed sentence, empty for filler."""

    text: str
    key: str = ""
    short: str = ""


class Page(msgspec.Struct, frozen=True):
    """A source and the sentence indices of its needed sentences."""

    source: Source
    index: dict[str, int]


class World:
    """State of one task while it is written."""

    def __init__(self, draw: Draw) -> None:
        self.draw = draw
        self.book = NameBook(draw)
        self.era = draw.whole(1650, 1930)
        self._guarded: list[re.Pattern[str]] = []

    def guard(self, *texts: str) -> None:
        """Keep `texts` out of every value drawn from now on; the figure of "412 metres" is kept out by itself too."""
        for text in texts:
            figure = re.match(r"[\d,]+", text)
            for part in {text, figure.group() if figure else text}:
                self._guarded.append(re.compile(rf"(?<!\w){re.escape(part)}(?!\w)", re.IGNORECASE))

    def clashes(self, text: str) -> bool:
        """Return whether a text contains a guarded one as whole words."""
        return any(pattern.search(text) for pattern in self._guarded)

    def entity(self, entity_type: str, like: Entity | None = None) -> Entity:
        """Invent an entity, similar in name to `like` if given."""
        return new_entity(entity_type, self.draw, self.book, like)

    def value(self, relation: Relation) -> Value:
        """Draw a value that contains nothing guarded."""
        for _ in range(10_000):
            value = new_value(relation, self.draw, self.book, self.era)
            if not self.clashes(value.text):
                return value
        raise AssertionError(f"relation {relation.id} has no value left; give its pool more words")

    def fact(self, relation: Relation, entity: Entity, value: Value, form: str | None = None) -> str:
        """Write a relation of an entity in one of its declarative forms."""
        return say(self.draw.pick(relation.says) if form is None else form, entity, value)

    def misleading(self, relation: Relation, entity: Entity, value: Value) -> Line:
        """Write a sentence that gives another value and says that it is wrong."""
        return Line(say(self.draw.pick(grammar().noise), entity, value, noun=relation.noun))


def write_page(world: World, entity: Entity, needed: Sequence[Line] = (), banned: Collection[str] = ()) -> Page:
    """Write the page of an entity: four to six sentences, the needed ones at random places among fillers.

    Parameters
    ----------
    world
        State of the task.
    entity
        Whom the page is about; its name is the title and the id of the source.
    needed
        Sentences that must be on the page.
    banned
        Ids of relations that no filler may state.
    """
    draw = world.draw
    size = max(draw.whole(4, 6), len(needed) + 2)
    lines = list(needed)
    intro = draw.chance(INTRO_SHARE)
    others = [r for r in draw.shuffled(grammar().of(entity.type)) if r.id not in banned]
    for relation in others[: size - len(needed) - intro]:
        lines.append(_filler(world, entity, relation))
    lines = draw.shuffled(lines)
    if intro:
        form = draw.pick(grammar().intros[entity.type])
        lines.insert(0, Line(say(form, entity, where=draw.pick(grammar().where), sea=draw.pick(grammar().sea))))
    # A page never opens with "the museum": its first sentence must say which one.
    sentences = tuple(line.short if line.short and i else line.text for i, line in enumerate(lines))
    source = Source(id=entity.title, title=entity.title, sentences=sentences)
    return Page(source=source, index={line.key: i for i, line in enumerate(lines) if line.key})


def _filler(world: World, entity: Entity, relation: Relation) -> Line:
    value = world.value(relation)
    form = world.draw.pick(relation.says)
    shorten = world.draw.chance(SHORT_SHARE) and entity.type != "person" and form.startswith("{x} ")
    short = say(form, f"the {entity.type}", value) if shorten else ""
    return Line(text=say(form, entity, value), short=short)
