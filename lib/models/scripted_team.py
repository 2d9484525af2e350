"""Rules that answer as a team of agents does: workers, the decision agent, one who answers alone, and a distiller.

Context
-------
The smoke profile and tests run whole teams without a model. What a team is asked is recognised by the first words of its
system turn (`lib.moc.prompts`, `lib.moc.distill_prompts`); every other prompt is answered by `lexical_script`.

Intuition
---------
A worker calculates from left to right through the sentences of the problem, and may overlook one of them: which one
depends on its role and the question alone. It then hears what others got and gives the answer that most have, its
own counted. So roles differ, messages can mend an error or spread it, and two arms on the same graph can end apart.

How to read the result
----------------------
The last line of an answer is "The answer is X". A multiple-choice answer is chosen by shared words and else by a hash: about
chance. Code is the signature with an empty body, or the last block heard.

Not covered: language and knowledge. Accuracies of these rules say nothing about models.
"""

from __future__ import annotations

import re
from collections import Counter

from lib.models.receiver import Prompt
from lib.models.scripted import lexical_script, words
from lib.seeds import seed_of

_HEADER = re.compile(r"^<<< Agents? (?P<agent>[^\n]*)\n(?P<text>.*?)(?=^<<<)", re.MULTILINE | re.DOTALL)
_ROLE = re.compile(r"You are the (.+?) of a team\.")
_ALONE = ("Answer the multiple-choice", "Solve the word problem", "Write a Python function")
_TASK = re.compile(
    r"\A(?:Q: |The task is:\s)(?P<text>.*?)(?=\n\nOther agents|\n\nThese are the last outputs|\Z)", re.DOTALL
)
_OPTION = re.compile(r"^([A-J])\) (.*)$", re.MULTILINE)
_ANSWER = re.compile(r"The answer is (\S+)")
_CODE = re.compile(r"```python\n.*?```", re.DOTALL)
_QUOTED = re.compile(r"^AGENT_\d[^\n]*\n((?:> ?[^\n]*\n?)+)", re.MULTILINE)
_LIMIT = re.compile(r"that is (\d+) words")
# What a sentence does to the running count, by the first of these words that it holds.
_OPERATIONS = (
    ("/", ("equally", "among", "split", "divided")),
    ("*", ("each", "times", "per", "twice", "doubles")),
    ("-", ("gives", "loses", "left", "away", "eats", "spends", "fewer", "less")),
    ("+", ("more", "buys", "finds", "gets", "adds", "has")),
)


def team_script(prompt: Prompt) -> str:
    """Answer a prompt of a team or a distiller; see the module header."""
    system = prompt.turns[0].text
    if system.startswith("You merge two messages"):
        return _merged(prompt.turns[-1].text)
    role = _ROLE.match(system)
    if prompt.schema is None and (role or system.startswith(("You decide for a team", *_ALONE))):
        return _answer(role[1] if role else "", prompt.turns[-1].text, decides=system.startswith("You decide"))
    return lexical_script(prompt)


def trusting_script(prompt: Prompt) -> str:
    """Answer as `team_script` does, but half of the workers, by role and task, give the last answer that they hear.

    So an answer that one agent gives for certain can spread.
    """
    role, text = _ROLE.match(prompt.turns[0].text), prompt.turns[-1].text
    task = _TASK.match(text)
    heard = [(match["agent"], vote) for match in _HEADER.finditer(text) for vote in _ANSWER.findall(match["text"])]
    if role and task and heard and seed_of("trusts", role[1], task["text"]) % 2 == 0:
        return f"I trust Agent {heard[-1][0].split(',')[0]}.\nThe answer is {heard[-1][1]}"
    return team_script(prompt)


def _answer(role: str, text: str, decides: bool) -> str:
    found = _TASK.match(text)
    task = found["text"].strip() if found else text
    heard = [(match["agent"].split(",")[0], match["text"]) for match in _HEADER.finditer(text)]
    if re.match(r"(from|import|def) ", task):
        blocks = [block for _, said in heard for block in _CODE.findall(said)]
        return blocks[-1] if blocks else f"```python\n{task.rstrip()}\n    pass\n```"
    options = _OPTION.findall(task)
    said, own = _chosen(role, task, options) if options else _calculated(role, task)
    votes = [(agent, answers[-1]) for agent, text in heard if (answers := _ANSWER.findall(text))]
    if decides and votes:
        said, own = f"{len(votes)} outputs hold an answer.", votes[0][1]
    counts = Counter([*([] if decides and votes else [own]), *(vote for _, vote in votes)])
    best = max(counts.values())
    # Of equally frequent answers an agent keeps its own, the decision agent the first.
    final = own if counts[own] == best else next(vote for vote in counts if counts[vote] == best)
    agreeing = [f"Agent {agent}" for agent, vote in votes if vote == final]
    if votes:
        said += f" {', '.join(agreeing)} said {final}." if agreeing else " None of the others got what I get."
    return f"{said}\nThe answer is {final}"


def _calculated(role: str, task: str) -> tuple[str, str]:
    """Return the calculation of one role, step by step, and its answer; one sentence in the middle may be overlooked."""
    sentences = [sentence for sentence in re.split(r"(?<=[.?!]) ", task) if re.search(r"\d|doubles", sentence)]
    draw = seed_of("overlooks", role, task)
    overlooked = 1 + draw // 3 % (len(sentences) - 1) if len(sentences) > 2 and draw % 3 == 0 else -1
    steps, value = [], None
    for place, sentence in enumerate(sentences):
        numbers = [int(number) for number in re.findall(r"\d+", sentence)]
        if place == overlooked:
            continue
        if value is None:
            value = numbers[0] * numbers[1] if len(numbers) > 1 and "each" in sentence else numbers[0] if numbers else 0
            steps.append(f"{' '.join(words(sentence)[1:])}, so I start with {value}.")
            continue
        sign = next((sign for sign, marks in _OPERATIONS if set(marks) & set(words(sentence))), "+")
        other = numbers[0] if numbers else 2
        result = {"+": value + other, "-": value - other, "*": value * other, "/": value // max(1, other)}[sign]
        steps.append(f"{' '.join(words(sentence)[1:4])}: {value} {sign} {other} = {result}.")
        value = result
    return " ".join(steps) or "I find no number.", str(value or 0)


def _chosen(role: str, task: str, options: list[tuple[str, str]]) -> tuple[str, str]:
    """Return a reason and the letter of the option that shares most words with the question; a hash of role and task else."""
    asked = set(words(task[: task.rfind("\nA) ")]))
    shared = {letter: len(asked & set(words(option))) for letter, option in options}
    tied = [letter for letter in shared if shared[letter] == max(shared.values())]
    letter = tied[seed_of("chooses", role, task) % len(tied)]
    option = dict(options)[letter]
    return f"I compare {len(options)} options. Option {letter} says {option} which fits best.", letter


def _merged(text: str) -> str:
    """Return a merged text of the length that is asked for, from the beginnings or the ends of both messages."""
    sources = [" ".join(re.sub(r"^> ?", "", quoted, flags=re.MULTILINE).split()) for quoted in _QUOTED.findall(text)]
    limit = _LIMIT.search(text)
    room = max(2, int(limit[1]) if limit else 20) // max(1, len(sources))
    style = text[text.rfind("\n\n") :]
    if seed_of("style", style) % 2:
        return " ".join(" ".join(source.split()[:room]) for source in sources)
    return " ".join(" ".join(source.split()[-room:]) for source in sources)
