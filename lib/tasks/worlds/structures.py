"""The three structures of a world: which facts a task holds, what is asked, and what is evidence.

Each `draft_*` function writes one task: it draws a relation and entities, guards the answer, places the decisive sentences, and
fills pages around them. The drafts know nothing of ids, slots or other tasks (`generate`).

Not covered: wording (`grammar`), pages (`documents`).
"""

from __future__ import annotations

import msgspec

from lib.tasks.task import LABELS, EvidenceId
from lib.tasks.worlds.documents import Line, Page, World, write_page
from lib.tasks.worlds.draw import Draw
from lib.tasks.worlds.grammar import Entity, Relation, Value, entity_value, grammar, say

VERSION = "worlds-1"


class Knobs(msgspec.Struct, frozen=True):
    """What shapes a world; see `lib.tasks.worlds.generate.load_verification`."""

    readers: int
    distractors: int
    redundancy: float
    noise: float
    negation: float = 0.0


class Fact(msgspec.Struct, frozen=True):
    """A decisive sentence: which value of which relation it states, and where it stands. For tests and audits, never for agents."""

    subject: str
    relation: str
    value: str
    source: str
    index: int
    repeat: bool


class Draft(msgspec.Struct, frozen=True):
    """A task before it has an id: sources still in writing order."""

    query: str
    subjects: tuple[str, ...]
    pages: tuple[Page, ...]
    facts: tuple[Fact, ...]
    label: str | None
    answer: object
    evidence: tuple[EvidenceId, ...]


# ------------------------------------------------------------------ verification


def draft_verification(draw: Draw, knobs: Knobs, i: int, seed: int) -> Draft:
    label = Draw(VERSION, "labels", seed, i // 3).shuffled(LABELS)[i % 3]
    world = World(draw)
    relation = draw.pick(grammar().relations)
    subject = world.entity(relation.of)
    world.guard(subject.title)
    truth = _guarded_value(world, relation)
    other = _guarded_value(world, relation)
    negated = draw.chance(knobs.negation)
    # "X is not red" is supported by "X is blue" and contradicted by "X is red"; without a fact neither is known.
    claimed = truth if negated == (label == "CONTRADICT") and label != "NOT_ENOUGH_INFO" else other
    form = draw.pick(relation.denies if negated else relation.claims)
    stated = label != "NOT_ENOUGH_INFO"
    first, second = draw.shuffled(relation.says)[:2]

    needed = [Line(world.fact(relation, subject, truth, first), key="fact")] if stated else []
    extras: dict[int, list[Line]] = {}  # by page: 0 is the subject's own
    if draw.chance(knobs.noise):
        # A misleading sentence about the asked relation would itself be information, so that NOT_ENOUGH_INFO tasks get another one.
        topic = relation if stated else draw.pick([r for r in grammar().of(relation.of) if r.id != relation.id])
        wrong = other if stated and not negated and label == "CONTRADICT" else world.value(topic)
        place = 0 if knobs.readers == 1 or draw.chance(0.5) else draw.whole(1, knobs.readers - 1)
        extras.setdefault(place, []).append(world.misleading(topic, subject, wrong))
    repeat_page = _repeat_place(draw, knobs, stated, knobs.readers - 1)
    if repeat_page is not None:
        extras.setdefault(repeat_page, []).append(_repeat(world, relation, subject, truth, second))

    pages = [write_page(world, subject, needed + extras.get(0, []), banned={relation.id})]
    for k in range(1, knobs.readers):
        lines = extras.get(k, [])
        if k <= knobs.distractors:
            entity = world.entity(relation.of, like=subject)
            # The nearest look-alike often holds the very value of the claim: a reader must mind whose value it is.
            swapped = k == 1 and claimed is other and draw.chance(0.5)
            value = other if swapped else world.value(relation)
            said = [Line(world.fact(relation, entity, value))] if k == 1 or draw.chance(0.6) else []
            pages.append(write_page(world, entity, said + lines, banned={relation.id}))
        else:
            pages.append(_unrelated_page(world, {relation.of}, lines))
    facts = _facts(pages, {"fact": (subject.title, relation.id, truth.bare)})
    return Draft(
        query=say(form, subject, claimed),
        subjects=(subject.title,),
        pages=tuple(pages),
        facts=facts,
        label=label,
        answer=label,
        evidence=tuple((f.source, f.index) for f in facts),
    )


# ------------------------------------------------------------------ bridge


def draft_bridge(draw: Draw, knobs: Knobs, i: int, seed: int) -> Draft:
    world = World(draw)
    link = draw.pick([r for r in grammar().relations if r.np])
    # An attribute whose value is again of the first entity's type would lead back to a page like the first.
    relation = draw.pick([r for r in grammar().of(link.value) if r.value != link.of])
    start = world.entity(link.of)
    middle = world.entity(link.value)
    world.guard(start.title, middle.title)
    truth = _guarded_value(world, relation)
    wrong = _guarded_value(world, relation)
    query = say(draw.pick(relation.tail_asks), draw.pick(link.np).replace("{x}", start.text))
    link_forms, forms = draw.shuffled(link.says), draw.shuffled(relation.says)

    extras: dict[int, list[Line]] = {}  # by page: 0 the first entity, 1 the middle one
    if draw.chance(knobs.noise):
        place = 1 if knobs.readers == 2 or draw.chance(0.5) else draw.whole(2, knobs.readers - 1)
        extras.setdefault(place, []).append(world.misleading(relation, middle, wrong))
    repeat_page = _repeat_place(draw, knobs, True, knobs.readers - 2)
    if repeat_page is not None:
        again = _repeat(world, relation, middle, truth, forms[1])
        if draw.chance(0.5):
            again = _repeat(world, link, start, entity_value(middle), link_forms[1], key="repeat link")
        extras.setdefault(repeat_page + 1, []).append(again)

    named = Line(world.fact(link, start, entity_value(middle), link_forms[0]), key="link")
    told = Line(world.fact(relation, middle, truth, forms[0]), key="fact")
    pages = [
        write_page(world, start, [named, *extras.get(0, [])], banned={link.id}),
        write_page(world, middle, [told, *extras.get(1, [])], banned={relation.id}),
    ]
    false_middle: Entity | None = None
    for k in range(2, knobs.readers):
        lines = extras.get(k, [])
        if k - 2 >= knobs.distractors:
            pages.append(_unrelated_page(world, {link.of, link.value}, lines))
        elif k % 2 == 0:
            false_middle = world.entity(link.value, like=middle)
            said = Line(world.fact(relation, false_middle, wrong if k == 2 else world.value(relation)))
            pages.append(write_page(world, false_middle, [said, *lines], banned={relation.id}))
        else:
            assert false_middle is not None
            false_start = world.entity(link.of, like=start)
            said = Line(world.fact(link, false_start, entity_value(false_middle)))
            pages.append(write_page(world, false_start, [said, *lines], banned={link.id}))
    about = (middle.title, relation.id, truth.bare)
    first = (start.title, link.id, middle.title)
    facts = _facts(pages, {"link": first, "repeat link": first, "fact": about})
    return Draft(
        query=query,
        subjects=(start.title, middle.title),
        pages=tuple(pages),
        facts=facts,
        label=None,
        answer=truth.bare,
        evidence=tuple((f.source, f.index) for f in facts),
    )


# ------------------------------------------------------------------ fan-out

_LEADS = ("For each of {xs}, {ask_that}", "Consider {xs}. {ask_each}", "{ask_following}")


def draft_fanout(draw: Draw, knobs: Knobs, i: int, seed: int) -> Draft:
    world = World(draw)
    asked_count = knobs.readers - knobs.distractors
    # Small pools (weekdays, months) would run out of distinct answers.
    relation = draw.pick([r for r in grammar().relations if grammar().room(r) >= 3 * knobs.readers])
    asked = [world.entity(relation.of) for _ in range(asked_count)]
    world.guard(*(entity.title for entity in asked))
    truths = [_guarded_value(world, relation) for _ in asked]
    extras: dict[int, list[Line]] = {}
    if draw.chance(knobs.noise):
        about = draw.whole(0, asked_count - 1)
        line = world.misleading(relation, asked[about], world.value(relation))
        extras.setdefault(about, []).append(line)
    if draw.chance(knobs.redundancy):
        about = draw.whole(0, asked_count - 1)
        # The repeat stands on another asked page: the pages that count as evidence stay the same.
        place = (about + draw.whole(1, asked_count - 1)) % asked_count
        form = draw.pick(relation.says)
        extras.setdefault(place, []).append(
            _repeat(world, relation, asked[about], truths[about], form, key=f"repeat {about}")
        )
    pages: list[Page] = []
    meaning: dict[str, tuple[str, str, str]] = {}
    for k, (entity, truth) in enumerate(zip(asked, truths, strict=True)):
        meaning[f"fact {k}"] = meaning[f"repeat {k}"] = (entity.title, relation.id, truth.bare)
        said = Line(world.fact(relation, entity, truth), key=f"fact {k}")
        pages.append(write_page(world, entity, [said, *extras.get(k, [])], banned={relation.id}))
    for k in range(knobs.distractors):
        entity = world.entity(relation.of, like=asked[k % asked_count])
        said = Line(world.fact(relation, entity, world.value(relation)))
        pages.append(write_page(world, entity, [said], banned={relation.id}))
    return Draft(
        query=_fanout_query(draw, relation, asked),
        subjects=tuple(entity.title for entity in asked),
        pages=tuple(pages),
        facts=_facts(pages, meaning),
        label=None,
        answer={entity.title: truth.bare for entity, truth in zip(asked, truths, strict=True)},
        evidence=tuple((entity.title, None) for entity in asked),
    )


def _fanout_query(draw: Draw, relation: Relation, asked: list[Entity]) -> str:
    texts = [entity.text for entity in draw.shuffled(asked)]
    xs = f"{', '.join(texts[:-1])} and {texts[-1]}"
    that = say(draw.pick(relation.asks), f"that {relation.of}")
    parts = {
        "xs": xs,
        "ask_that": that[0].lower() + that[1:],
        "ask_each": say(draw.pick(relation.asks), f"each {relation.of}"),
        "ask_following": say(draw.pick(relation.tail_asks), f"each of the following: {xs}"),
    }
    query = draw.pick(_LEADS)
    for name, text in parts.items():
        query = query.replace("{" + name + "}", text)
    return query


# ------------------------------------------------------------------ shared pieces


def _guarded_value(world: World, relation: Relation) -> Value:
    value = world.value(relation)
    world.guard(value.bare)
    return value


def _repeat_place(draw: Draw, knobs: Knobs, stated: bool, others: int) -> int | None:
    """Return which of the other pages (1 to `others`) repeats the decisive fact, the last ones (unrelated) first; None for no repeat."""
    wanted = draw.chance(knobs.redundancy)
    if not wanted or not stated or others < 1:
        return None
    unrelated = others - knobs.distractors
    return draw.whole(others - unrelated + 1, others) if unrelated > 0 else draw.whole(1, others)


def _repeat(
    world: World, relation: Relation, entity: Entity, value: Value, form: str, key: str = "repeat fact"
) -> Line:
    sentence = say(form, entity, value)
    # Inside the frame the sentence no longer opens the line, so that "The Vendock Bridge" becomes "the Vendock Bridge".
    opens_with_name = form.startswith(("{x}", "{v}"))
    bare_name = (entity if form.startswith("{x}") else value).text
    inner = bare_name + sentence[len(bare_name) :] if opens_with_name else sentence[0].lower() + sentence[1:]
    return Line(world.draw.pick(grammar().repeats).replace("{s}", inner), key=key)


def _unrelated_page(world: World, types: set[str], lines: list[Line]) -> Page:
    kind = world.draw.pick([t for t in grammar().types if t not in types])
    return write_page(world, world.entity(kind), lines)


def _facts(pages: list[Page], meaning: dict[str, tuple[str, str, str]]) -> tuple[Fact, ...]:
    facts = []
    for page in pages:
        for key, index in page.index.items():
            subject, relation, value = meaning[key if key in meaning else key.removeprefix("repeat ")]
            fact = Fact(subject, relation, value, source=page.source.id, index=index, repeat=key.startswith("repeat"))
            facts.append(fact)
    return tuple(sorted(facts, key=lambda fact: fact.repeat))
