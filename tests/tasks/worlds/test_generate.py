from __future__ import annotations

import re
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chisquare

from lib.tasks import LABELS, WorkloadError, load_workload
from lib.tasks.worlds.generate import Knobs, Made, make_worlds
from lib.tasks.worlds.grammar import Relation, grammar

NAMES = ("worlds_verification", "worlds_bridge", "worlds_fanout")
PLAIN = {
    "worlds_verification": Knobs(readers=4, distractors=2, redundancy=0.0, noise=0.0, negation=0.0),
    "worlds_bridge": Knobs(readers=4, distractors=2, redundancy=0.0, noise=0.0),
    "worlds_fanout": Knobs(readers=5, distractors=1, redundancy=0.0, noise=0.0),
}

VERSIONS = {
    "worlds_verification": "worlds-1+2f6237301be7",
    "worlds_bridge": "worlds-1+b1e3885fca49",
    "worlds_fanout": "worlds-1+a12247045cac",
}


def many(name: str, count: int = 300, seed: int = 0, **changes: float) -> list[Made]:
    base = PLAIN[name]
    fields = {f: getattr(base, f) for f in base.__struct_fields__} | changes
    return list(make_worlds(name, count, seed, Knobs(**fields)))


def holds(text: str, part: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text, re.IGNORECASE) is not None


def sources(made: Made) -> dict[str, tuple[str, ...]]:
    return {s.id: s.sentences for s in made.task.sources}


@pytest.mark.parametrize("name", NAMES)
def test_the_data_set_is_pinned(name: str) -> None:
    assert load_workload(name, limit=30).version == VERSIONS[name]


@pytest.mark.parametrize("name", NAMES)
def test_deterministic_and_prefix_stable(name: str) -> None:
    long, again, short = load_workload(name, limit=40), load_workload(name, limit=40), load_workload(name, limit=13)
    assert long == again
    assert long.tasks[:13] == short.tasks
    assert load_workload(name, limit=5, seed=1).tasks[0].query != long.tasks[0].query


def test_a_whole_number_names_the_same_world_as_its_float() -> None:
    assert load_workload("worlds_bridge", limit=3, noise=1) == load_workload("worlds_bridge", limit=3, noise=1.0)


@pytest.mark.parametrize("name", NAMES)
def test_no_two_tasks_are_alike(name: str) -> None:
    tasks = [m.task for seed in (0, 1) for m in many(name, seed=seed)]
    assert len({t.id for t in tasks}) == len(tasks)
    assert len({t.query for t in tasks}) == len(tasks)
    sentences = [s for t in tasks for source in t.sources for s in source.sentences]
    assert len(set(sentences)) > 0.97 * len(sentences)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("redundancy", [0.0, 1.0])
def test_gold_sentences_hold_the_gold_value_and_nothing_else_does(name: str, redundancy: float) -> None:
    for made in many(name, redundancy=redundancy, noise=1.0):
        pages = sources(made)
        assert len({f.source for f in made.facts}) == len(made.facts) or name == "worlds_fanout"
        for fact in made.facts:
            assert holds(pages[fact.source][fact.index], fact.value) and holds(
                pages[fact.source][fact.index], fact.subject
            )
            places = {(f.source, f.index) for f in made.facts if f.value == fact.value}
            if fact.relation == link_of(made):
                continue  # the middle entity is named on its own page too
            found = {
                (sid, i) for sid, lines in pages.items() for i, line in enumerate(lines) if holds(line, fact.value)
            }
            assert found == places, (made.task.id, fact)
        assert any(f.repeat for f in made.facts) <= (redundancy > 0)


def link_of(made: Made) -> str | None:
    return made.facts[0].relation if made.task.kind == "bridge" else None


def test_repeats_come_when_asked_and_use_another_wording() -> None:
    for name in NAMES:
        for made in many(name, 120, redundancy=1.0):
            if made.gold.label == "NOT_ENOUGH_INFO":
                continue
            repeats = [f for f in made.facts if f.repeat]
            assert len(repeats) == 1
            assert len({f.source for f in made.facts}) >= 2
            pages = sources(made)
            said = [pages[f.source][f.index] for f in made.facts if f.value == repeats[0].value]
            assert len(set(said)) == 2


@pytest.mark.parametrize("name", NAMES)
def test_gold_evidence_is_in_range_and_names_sources(name: str) -> None:
    for made in many(name, redundancy=0.5, noise=0.5):
        pages = sources(made)
        assert len(pages) == len(made.task.sources)
        for source_id, index in made.gold.evidence:
            assert source_id in pages
            assert index is None or 0 <= index < len(pages[source_id])
        assert len(set(made.gold.evidence)) == len(made.gold.evidence)


def test_verification_labels_are_balanced_and_true() -> None:
    made = many("worlds_verification", redundancy=0.3, noise=0.3, negation=0.3)
    assert Counter(m.gold.label for m in made) == dict.fromkeys(LABELS, 100)
    for m in made:
        negated = bool(re.search(r"\b(not|never)\b", m.task.query))
        if m.gold.label == "NOT_ENOUGH_INFO":
            assert m.gold.evidence == () and m.facts == ()
        else:
            same_value = holds(m.task.query, m.facts[0].value)
            assert same_value == ((m.gold.label == "SUPPORT") != negated)
        assert m.gold.answer == m.gold.label


def pattern(relation: Relation, form: str, subject: str) -> re.Pattern[str]:
    """Match a form said about a subject with any value."""
    text = re.escape(form).replace(r"\{x\}", f"(?:the )?{re.escape(subject)}")
    value = r"\d{4}" if relation.value.startswith("year") else r"(?!\d{4}\b).+"
    return re.compile(re.sub(r"\\\{[va]\\\}", lambda _: value, text), re.IGNORECASE)


def test_not_enough_info_keeps_the_entity_but_not_the_relation() -> None:
    checked = 0
    for m in many("worlds_verification", 120, redundancy=1.0, noise=0.5, negation=0.2):
        subject = next(s.title for s in m.task.sources if holds(m.task.query, s.title))
        forms = [(r, f) for r in grammar().relations for f in r.claims + r.denies]
        asked = {r.id for r, f in forms if pattern(r, f, subject).fullmatch(m.task.query)}
        assert asked
        says = [pattern(r, f, subject) for r in grammar().relations if r.id in asked for f in r.says]
        lines = [line for s in m.task.sources for line in s.sentences]
        told = any(say.search(line) for say in says for line in lines)
        if m.gold.label == "NOT_ENOUGH_INFO":
            checked += 1
            assert not told, m.task
            assert any(s.title == subject and len(s.sentences) >= 4 for s in m.task.sources)
        else:
            assert told
    assert checked == 40


def test_negation_tells_nothing_about_the_label() -> None:
    negated = Counter(
        m.gold.label
        for m in many("worlds_verification", 900, negation=0.3)
        if re.search(r"\b(not|never)\b", m.task.query)
    )
    assert min(negated.values()) > 60 and chisquare(list(negated.values())).pvalue > 0.01


def test_the_claim_alone_tells_nothing_about_the_label() -> None:
    """A classifier that sees only the claims, names masked, stays near one third."""
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.naive_bayes import BernoulliNB

    made = many("worlds_verification", 1200, negation=0.1)
    texts = [re.sub(r"(?<!^)\b[A-Z]\w+", "Name", m.task.query) for m in made]
    labels = [str(m.gold.label) for m in made]
    words = CountVectorizer(ngram_range=(1, 3), min_df=2).fit_transform(texts)
    right = BernoulliNB().fit(words[:800], labels[:800]).score(words[800:], labels[800:])
    assert 0.25 < right < 0.42  # 400 claims: a third, give or take three standard errors


def test_bridge_question_names_only_the_first_entity() -> None:
    for m in many("worlds_bridge", redundancy=0.3, noise=0.3):
        link, fact = m.facts[0], next(f for f in m.facts if f.relation != m.facts[0].relation)
        assert holds(m.task.query, link.subject) and not holds(m.task.query, fact.subject)
        assert not holds(m.task.query, fact.value) and m.gold.answer == fact.value
        assert link.value == fact.subject and link.source != fact.source


def test_distractors_alone_never_answer() -> None:
    for name in NAMES:
        for m in many(name):
            gold_pages = {source for source, _ in m.gold.evidence}
            subjects = {f.subject for f in m.facts}
            for source in m.task.sources:
                if source.id not in gold_pages:
                    assert not any(holds(line, subject) for line in source.sentences for subject in subjects)


def test_distractors_look_relevant() -> None:
    shared = 0
    for m in many("worlds_verification", 60):
        subject = next(s.title for s in m.task.sources if holds(m.task.query, s.title))
        for source in m.task.sources:
            words = set(source.title.split()) & set(subject.split())
            stem = max(subject.split(), key=len)[:3], max(subject.split(), key=len)[-4:]
            shared += source.title != subject and bool(
                words or source.title.startswith(stem[0]) or stem[1] in source.title
            )
    assert shared >= 2 * 60 * 0.9


@pytest.mark.parametrize("name", NAMES)
def test_position_carries_no_gold(name: str) -> None:
    counts: Counter[int] = Counter()
    made = many(name)
    for m in made:
        gold = {source for source, _ in m.gold.evidence}
        counts.update(i for i, s in enumerate(m.task.sources) if s.id in gold)
    observed = [counts[i] for i in range(len(made[0].task.sources))]
    assert min(observed) > 0 and chisquare(observed).pvalue > 0.01


def test_position_in_the_page_varies() -> None:
    places = Counter(f.index for m in many("worlds_bridge") for f in m.facts)
    assert len(places) >= 5 and places[0] > 20


@pytest.mark.parametrize("name", NAMES)
def test_pages_read_well(name: str) -> None:
    for m in many(name, redundancy=0.5, noise=0.5):
        for source in m.task.sources:
            assert 4 <= len(source.sentences) <= 6
            assert len(set(source.sentences)) == len(source.sentences)
            assert not source.sentences[0].startswith(f"The {'museum'} ")
            for line in source.sentences:
                assert 8 <= len(line.split()) <= 18 and line[0].isupper() and line.endswith(".")
                assert (
                    "{" not in line
                    and "  " not in line
                    and not re.search(r"\b(the the|a a|an an)\b", line, re.IGNORECASE)
                )
                assert not re.search(r"\ba [aeiou]|\ban [^aeiou]", line), line
        for fact in m.facts:
            assert not re.search(r"\b(he|she|they)\b", sources(m)[fact.source][fact.index].lower())


def test_noise_says_that_it_is_wrong_and_gives_another_value() -> None:
    wrong = re.compile(r"wrongly|false|mistake|misprinted")
    for name in NAMES:
        for m in many(name, 100, noise=1.0):
            lines = [line for s in m.task.sources for line in s.sentences if wrong.search(line)]
            assert len(lines) == 1
            assert not any(holds(lines[0], f.value) for f in m.facts if f.relation != link_of(m))


def test_many_relations_are_asked() -> None:
    asked = {f.relation for name in NAMES for m in many(name) for f in m.facts}
    assert len(asked) > 80


@settings(max_examples=25, deadline=None)
@given(
    st.sampled_from(NAMES),
    st.integers(2, 8),
    st.integers(0, 6),
    st.floats(0, 1),
    st.floats(0, 1),
    st.integers(0, 10**6),
)
def test_every_allowed_setting_builds(
    name: str, readers: int, distractors: int, redundancy: float, noise: float, seed: int
) -> None:
    spare = readers - (1 if name == "worlds_verification" else 2)
    knobs = {"readers": readers, "distractors": min(distractors, spare), "redundancy": redundancy, "noise": noise}
    workload = load_workload(name, limit=4, seed=seed, **knobs)
    assert all(len(t.sources) == readers for t in workload.tasks)
    if name == "worlds_fanout":
        assert all(len(g.answer) == len(g.evidence) == readers - knobs["distractors"] for g in workload.gold.values())


@pytest.mark.parametrize(
    ("knobs", "words"),
    [
        ({"readers": 1}, "readers"),
        ({"distractors": 3}, "distractors"),
        ({"noise": 1.5}, "noise"),
        ({"noise": "much"}, "noise must be a number"),
        ({"readers": 4.0}, "readers must be a whole number"),
        ({"distractors": True}, "distractors must be a whole number"),
        ({"n": 0}, "n must"),
        ({"nois": 1}, "did you mean 'noise'"),
    ],
)
def test_wrong_knobs_are_named(knobs: dict[str, object], words: str) -> None:
    with pytest.raises(WorkloadError, match=words):
        load_workload("worlds_bridge", **knobs)
