"""The fixed texts of the prompts: instructions and worked examples.

The examples are about invented things that occur in no workload. Wording, number and order of the verification examples
were chosen on the first generated tasks of seed 0, which the default pools hold too: scores there are not held out with
respect to the prompts. A small receiver is swayed by all three; most orders made it give one answer to everything. The
verdict comes before the evidence, so that it weighs the reports instead of defending a citation.

Not covered: examples in other languages.
"""

from __future__ import annotations

from typing import Any

READER_RULES = (
    "You are a reader. You see one source and one question or statement to check. Report only what the source says, in four short fields. "
    "claim: one sentence with the names and values that matter. evidence: the sentence of the source that shows it, or none. "
    "uncertainty: what the source leaves open. request: what another reader should look up."
)
RECEIVER_RULES = {
    "verification": (
        "Check a claim against reports of several readers. First copy the report that is nearest to the claim. Then say the label: "
        "SUPPORT when that report says what the claim says, CONTRADICT when it says something else about the same point, "
        "NOT_ENOUGH_INFO when it is about another point. Answer in JSON."
    ),
    "bridge": (
        "You answer a question from reports of several readers; often one report leads to another. Cite the sentences used. "
        "Answer in JSON."
    ),
    "fanout": (
        "You answer a question about several things from reports of several readers. Give a value for each. "
        "Cite the pages used. Answer in JSON."
    ),
}

ReaderShot = tuple[str, str, tuple[str, ...], tuple[str, str, str, str]]  # question, title, sentences, the four fields
ReceiverShot = tuple[tuple[str, ...], str, dict[str, Any]]  # packet lines, question, reply

READER_SHOTS: tuple[ReaderShot, ...] = (
    (
        "Question: Which river flows past the Ostrel Mill?",
        "Ostrel Mill",
        ("The Ostrel Mill has a roof of slate.", "The Ostrel Mill stands on the bank of the Pennow River."),
        (
            "The Ostrel Mill stands on the bank of the Pennow River.",
            "The Pennow River flows past the Ostrel Mill.",
            "none stated",
            "none",
        ),
    ),
    (
        "Statement to check: The Dunlo Tower has 212 steps.",
        "Dunlo Tower",
        ("Visitors climb 148 steps to the top of the Dunlo Tower.", "The Dunlo Tower is painted white."),
        (
            "Visitors climb 148 steps to the top of the Dunlo Tower.",
            "The Dunlo Tower has 148 steps.",
            "none stated",
            "none",
        ),
    ),
    (
        "Question: In which town was the painter of the Blue Harbour born?",
        "Tervo Lighthouse",
        ("The Tervo Lighthouse was lit by oil lamps.", "The keeper of the Tervo Lighthouse kept goats."),
        (
            "none",
            "The source is about the Tervo Lighthouse only.",
            "The painter of the Blue Harbour is not mentioned.",
            "Who painted the Blue Harbour, and where was the painter born?",
        ),
    ),
    (
        "Statement to check: The hull of the Arla is red.",
        "Arla",
        ("The Arla was built by two brothers.", "Sailors painted the hull of the Arla blue."),
        (
            "Sailors painted the hull of the Arla blue.",
            "The hull of the Arla is blue.",
            "none stated",
            "none",
        ),
    ),
    (
        "Question: In which town was the painter of the Blue Harbour born?",
        "Blue Harbour",
        ("The Blue Harbour hangs in a library.", "The Blue Harbour was painted by Milo Arvens in one summer."),
        (
            "The Blue Harbour was painted by Milo Arvens in one summer.",
            "The Blue Harbour was painted by Milo Arvens.",
            "The birthplace of Milo Arvens is not given.",
            "In which town was Milo Arvens born?",
        ),
    ),
)


def _verdict(label: str, report: str, *cited: tuple[str, int]) -> dict[str, Any]:
    evidence = [{"doc": source, "sentences": [sentence]} for source, sentence in cited]
    return {"report": report, "label": label, "evidence": evidence}


RECEIVER_SHOTS: dict[str, tuple[ReceiverShot, ...]] = {
    "verification": (
        (
            (
                "Source Benno - Evidence: [S0] The Benno carries a crew of nine.",
                "Source Calda - Evidence: [S2] The sails of the Calda are white.",
            ),
            "Claim: The Calda carries a crew of nine.",
            _verdict("NOT_ENOUGH_INFO", "The sails of the Calda are white."),
        ),
        (
            (
                "Source Milo Arvens - Evidence: [S2] The birthplace of Milo Arvens is the town of Pellick.",
                "Source Milo Arden - Evidence: [S2] Milo Arden was born in Corvin.",
            ),
            "Claim: Milo Arvens was born in Pellick.",
            _verdict("SUPPORT", "The birthplace of Milo Arvens is the town of Pellick.", ("Milo Arvens", 2)),
        ),
        (
            (
                "Source Arla - Evidence: [S1] Sailors painted the hull of the Arla blue.",
                "Source Arlo - Evidence: [S0] The hull of the Arlo is red.",
            ),
            "Claim: The hull of the Arla is red.",
            _verdict("CONTRADICT", "Sailors painted the hull of the Arla blue.", ("Arla", 1)),
        ),
        (
            (
                "Source Ostrel Farm - Evidence: [S4] The Ostrel Farm has a roof of straw.",
                "Source Ostrel Mill - Evidence: [S0] Builders covered the Ostrel Mill with slate.",
            ),
            "Claim: The roof of the Ostrel Mill is made of slate.",
            _verdict("SUPPORT", "Builders covered the Ostrel Mill with slate.", ("Ostrel Mill", 0)),
        ),
        (
            (
                "Source Tervo Lighthouse - Evidence: [S2] The Tervo Lighthouse was lit by oil lamps.",
                "Source Corda Lighthouse - Evidence: [S1] Anna Vell was the keeper of the Corda Lighthouse.",
            ),
            "Claim: The keeper of the Tervo Lighthouse was Anna Vell.",
            _verdict("NOT_ENOUGH_INFO", "The Tervo Lighthouse was lit by oil lamps."),
        ),
        (
            (
                "Source Dunlo Tower - Evidence: [S0] Visitors climb 148 steps to the top of the Dunlo Tower.",
                "Source Dunlo Bridge - Evidence: [S3] The Dunlo Bridge has 212 arches.",
            ),
            "Claim: The Dunlo Tower has 212 steps.",
            _verdict("CONTRADICT", "Visitors climb 148 steps to the top of the Dunlo Tower.", ("Dunlo Tower", 0)),
        ),
    ),
    "bridge": (
        (
            (
                "Source Blue Harbour - Claim: The Blue Harbour was painted by Milo Arvens.",
                "Source Blue Harbour - Evidence: [S1] The Blue Harbour was painted by Milo Arvens in one summer.",
                "Source Dunlo Tower - Claim: The source is about the Dunlo Tower only.",
                "Source Milo Arvens - Evidence: [S3] Milo Arvens was born in the town of Pellick.",
            ),
            "Question: In which town was the painter of the Blue Harbour born?",
            {
                "evidence": [{"title": "Blue Harbour", "sentence": 1}, {"title": "Milo Arvens", "sentence": 3}],
                "answer": "Pellick",
            },
        ),
        (
            (
                "Source Senna Brool - Evidence: [S0] Senna Brool lived in Corvin House.",
                "Source Corvin House - Claim: Corvin House has a green roof.",
            ),
            "Question: What colour is the roof of the house in which Senna Brool lived?",
            {"evidence": [{"title": "Senna Brool", "sentence": 0}], "answer": "green"},
        ),
    ),
    "fanout": (
        (
            (
                "Source Arla - Claim: The Arla is red.",
                "Source Dorro - Evidence: [S2] The Dorro is white.",
                "Source Benno - Evidence: [S0] The hull of the Benno is painted blue.",
            ),
            "Question: What is the colour of each of these boats: the Arla, the Benno and the Calda?",
            {"evidence": ["Arla", "Benno"], "answer": {"Arla": "red", "Benno": "blue"}},
        ),
    ),
}
