"""Print what a plan foresees: a line a notebook, the total, and what to know about the numbers.

How to read it. `asked` are questions; `here` those that are answered already, by the store, a frozen file or an earlier notebook of the
same plan; `left` what a receiver has to compute. Tokens are those of what is left, once one prompt at a time and once as prefix
trees; `new` are generated tokens, as expected and at most. A time is blank where no rate is known.

Not covered: measuring rates (`lib.runs.probe`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lib.runs.plan import Foreseen
from lib.runs.probe import Rates
from lib.runs.progress import duration
from lib.runs.tally import Tally

_HEAD = ("notebook", "asked", "here", "left", "tokens", "as trees", "new", "at most", "store", "time")
WHY_ESTIMATE = (
    "Questions that follow from earlier answers (packets of what readers wrote, what agents heard, which packets are sent) were "
    "asked with answers made by rules wherever the true answer is not stored. Their number, and above all their length, is an estimate."
)


def plan_lines(found: Sequence[Foreseen], rates: Mapping[str, Rates], labels: Mapping[str, str] = {}) -> list[str]:
    """Return the page.

    Parameters
    ----------
    found : what each run would ask
    rates : fingerprint -> what was measured on this machine
    labels : run id -> what to call the run; default its notebook
    """
    titles = [labels.get(one.plan.run_id, one.plan.notebook.stem) for one in found]
    rows = [_row(title, one, rates) for title, one in zip(titles, found, strict=True)]
    rows.append(_total(found, rates))
    widths = [max(len(row[place]) for row in [_HEAD, *rows]) for place in range(len(_HEAD))]
    lines = [_line(_HEAD, widths), *(_line(row, widths) for row in rows), ""]
    for title, one in zip(titles, found, strict=True):
        lines += [f"{title}: {remark}" for remark in one.remarks]
    lines += _receivers(found, rates)
    if any(tally.computed for one in found for tally in one.tallies.values()):
        lines.append(WHY_ESTIMATE)
    return lines


def seconds_of(one: Foreseen, rates: Mapping[str, Rates]) -> float | None:
    """Return the expected seconds of a run; None where a receiver's rates are not known, or nothing was rehearsed."""
    if one.state == "finished":
        return 0.0
    if one.state in ("refused", "silent"):
        return None
    total = one.seconds
    for name, tally in one.tallies.items():
        mine = rates.get(one.opened[name].fingerprint) if name in one.opened else None
        if mine is None and tally.computed and not _by_rules(one, name):
            return None
        total += mine.seconds(tally) if mine is not None else 0.0
    return total


def _by_rules(one: Foreseen, name: str) -> bool:
    """Say whether a receiver is made of rules, whose own time is in the rehearsal."""
    return one.opened[name].fingerprint.startswith("scripted:")


def _row(title: str, one: Foreseen, rates: Mapping[str, Rates]) -> tuple[str, ...]:
    if one.state in ("finished", "refused", "silent"):
        return (title, *[""] * 8, one.state if one.state != "silent" else "no receiver")
    tally = sum(one.tallies.values(), Tally())
    seconds = seconds_of(one, rates)
    time = "" if seconds is None else duration(seconds)
    return (title, *_counts(tally, one.store_bytes), time if one.state == "rehearsed" else f"{time} broke off".strip())


def _total(found: Sequence[Foreseen], rates: Mapping[str, Rates]) -> tuple[str, ...]:
    tally = sum((tally for one in found for tally in one.tallies.values()), Tally())
    known = [seconds for one in found if (seconds := seconds_of(one, rates)) is not None]
    time = duration(sum(known)) if known else ""
    return (
        "total",
        *_counts(tally, sum(one.store_bytes for one in found)),
        time + (f" ({len(found) - len(known)} blank)" if len(known) < len(found) else ""),
    )


def _counts(tally: Tally, store_bytes: float) -> tuple[str, ...]:
    here = tally.frozen + tally.stored + tally.repeated
    about = "" if tally.exact else "~"
    tokens = (tally.naive, tally.tree, tally.expected, tally.bound)
    return (
        *(f"{count:,.0f}" for count in (tally.calls, here, tally.computed)),
        *(f"{about}{count:,.0f}" for count in tokens),
        f"{store_bytes / 1e6:,.1f} MB",
    )


def _receivers(found: Sequence[Foreseen], rates: Mapping[str, Rates]) -> list[str]:
    """Return a line a receiver: where its answers are, and how its time is known."""
    lines = []
    for name in dict.fromkeys(name for one in found for name in one.tallies):
        tally = sum((one.tallies[name] for one in found if name in one.tallies), Tally())
        who = next((one.opened[name] for one in found if name in one.opened), None)
        said = [
            f"{tally.frozen:,.0f} frozen, {tally.stored:,.0f} stored, {tally.repeated:,.0f} asked by the plan before, "
            f"{tally.computed:,.0f} left"
        ]
        if tally.unkept:
            said.append(f"{tally.unkept:,.0f} of these are timed and never stored")
        if tally.cut:
            said.append(f"{tally.cut:,.0f} do not fit its context and get an error reply")
        if not tally.exact:
            said.append(
                "its tokenizer is not here: tokens are guessed at 4 bytes each, and stored replies cannot be found"
            )
        mine = rates.get(who.fingerprint) if who is not None else None
        if mine is not None:
            said.append(
                f"measured here {mine.measured}: reads {1 / mine.read:,.0f} tokens/s, writes {_speed(mine, 1):,.0f} tokens/s alone "
                f"and {_speed(mine, 32):,.0f} in rows of 32"
            )
            said.append(f"{duration(mine.seconds(tally))} expected, {duration(mine.at_most(tally))} at most")
        elif tally.computed and who is not None and not who.fingerprint.startswith("scripted:"):
            said.append(
                "no time: it was not measured on this machine" + ("" if who.exact else ", where its weights are not")
            )
        lines.append(f"{name}: {'; '.join(said)}.")
    return lines


def _speed(rates: Rates, rows: int) -> float:
    return rows / (rates.step + rows * rates.row)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    first = f"{row[0]:<{widths[0]}}"
    return "  ".join([first, *(f"{cell:>{width}}" for cell, width in zip(row[1:], widths[1:], strict=True))]).rstrip()
