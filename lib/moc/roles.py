"""Who the agents of a team are: the roles of each domain, dealt out by index.

The paper says that agents have roles and not which. Names and order follow what its public code does (MMLU: nine
experts, math: four, code: five); every description is worded anew, short enough for a model of half a billion
parameters. Agent i has role i modulo the number of roles, in *index* order, so a role says nothing about a place in the
graph, and every graph starts with the first role again.

Not covered: roles chosen for a question, and search as a tool.
"""

from __future__ import annotations

from typing import Literal

import msgspec

DECISION = "Decision maker"
SINGLE = "Single agent"


class Role(msgspec.Struct, frozen=True):
    """One role.

    Parameters
    ----------
    name : shown to others in the header of each message
    description : what the agent is told about itself, in the second person
    writes : "answer" (reasons, then a last line with the answer), "code" (one fenced block) or "notes" (a few sentences)
    programs : where programs can be run, it writes one that prints the number asked for
    """

    name: str
    description: str
    writes: Literal["answer", "code", "notes"] = "answer"
    programs: bool = False


_CHOICE = (
    Role("Knowledgeable expert", "You know facts from many fields. Recall the fact that decides the question."),
    Role("Critic", "You look for mistakes. Test each option and each claim of others before you trust it."),
    Role("Mathematician", "You are exact with numbers and logic. Check quantities, units and conclusions."),
    Role("Psychologist", "You understand people, behaviour and society. Judge what people would do and why."),
    Role("Historian", "You know past events, cultures and politics. Place the question in its time."),
    Role("Doctor", "You know medicine and biology. Judge causes, effects and treatments."),
    Role("Lawyer", "You know law and ethics. Judge by rules, rights and duties."),
    Role("Economist", "You know economics, business and statistics. Judge by incentives and trade-offs."),
    Role("Programmer", "You know computing, engineering and physics. Judge by how the system works."),
)
_MATH = (
    Role("Math solver", "You solve word problems. Write one short calculation for each step."),
    Role(
        "Mathematical analyst", "You first name the unknowns and the equations, then put in the numbers and solve them."
    ),
    Role(
        "Programming expert",
        "You solve the problem like a program: assign each quantity to a variable, in order.",
        programs=True,
    ),
    Role("Inspector", "You check calculations. Look for a step that is wrong or left out, then give the right result."),
)
_CODE = (
    Role("Project manager", "You say what the function must do and which inputs are special.", "notes"),
    Role("Algorithm designer", "You describe the algorithm: the steps, the data it keeps, when it stops.", "notes"),
    Role("Programming expert", "You write the complete function, simple and correct.", "code"),
    Role("Test analyst", "You name inputs that break weak solutions, with the result that is right.", "notes"),
    Role("Bug fixer", "You look for errors in the code of others and write the complete, corrected function.", "code"),
)
ROLES: dict[str, tuple[Role, ...]] = {"choice": _CHOICE, "math": _MATH, "code": _CODE}


def roles_of(domain: str, count: int) -> tuple[Role, ...]:
    """Return the roles of agents 0 to count - 1: the domain's list, from its start, over and over.

    Raises
    ------
    ValueError
        For a domain without roles, or fewer than one agent.

    >>> [role.name for role in roles_of("math", 5)][3:]
    ['Inspector', 'Math solver']
    """
    if domain not in ROLES:
        raise ValueError(f"domain {domain!r} has no roles; known are {', '.join(ROLES)}")
    if count < 1:
        raise ValueError(f"count: a team has at least 1 agent, not {count}")
    roles = ROLES[domain]
    return tuple(roles[agent % len(roles)] for agent in range(count))
