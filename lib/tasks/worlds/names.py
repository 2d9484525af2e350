"""Invented names from a large space of syllables.

A stem is a tuple of sounds; two syllables give about 220,000 stems and three about 18 million, so that names rarely meet across
data sets and never inside one task. Names that exist (places, given names, words) and rude ones are refused by list.

Not covered: a proof that no generated name exists anywhere; the list holds what a check against a gazetteer of 235,000 places found.
"""

from __future__ import annotations

from importlib.resources import files

from lib.tasks.worlds.draw import Draw

Stem = tuple[str, ...]

_ONSETS = (
    "B", "Br", "Bl", "D", "Dr", "F", "Fr", "G", "Gr", "Gl", "H", "J", "K", "Kr", "Kl", "L", "M", "N", "P", "Pr", "Pl",
    "R", "S", "Sk", "Sl", "St", "Sv", "T", "Tr", "Th", "V", "Vr", "W", "Y", "Z", "Zh", "Qu",
)  # fmt: skip
_VOWELS = ("a", "e", "i", "o", "u", "ae", "ei")
_MIDDLES = (
    "b", "d", "g", "k", "l", "ld", "lk", "lm", "lv", "m", "mb", "mr", "n", "nd", "nk", "nt", "nv", "r", "rd", "rg", "rk",
    "rm", "rn", "rth", "rv", "s", "sk", "sm", "st", "t", "th", "v", "vr", "x", "z",
)  # fmt: skip
_ENDS = (
    "ane", "ard", "ath", "eck", "ell", "en", "ern", "esh", "eth", "ick", "ida", "ile", "im", "ira", "isk", "olm", "ond",
    "or", "oss", "ost", "oth", "ul", "une", "urn", "yle",
)  # fmt: skip
_FIRST_MIDDLES = ("d", "l", "ld", "lv", "m", "n", "nd", "r", "rd", "rv", "sk", "st", "t", "th", "v", "z")
_FIRST_ENDS = ("a", "o", "e", "is", "in", "us", "ek", "an", "et", "ya")


def _lines(name: str) -> frozenset[str]:
    text = files("lib.tasks.worlds").joinpath(name).read_text(encoding="utf-8")
    return frozenset(line.strip() for line in text.split("\n") if line.strip() and not line.startswith("#"))


EXISTING = _lines("existing_names.txt")
"""Lower-case names that exist and that the syllables could spell."""

_RUDE = (
    "anus", "cock", "cum", "cunt", "dick", "fag", "fuck", "fuk", "homo", "kunt", "nazi", "nig", "piss", "rape", "sex",
    "shit", "slut", "tit", "turd", "whor",
)  # fmt: skip


def allowed(word: str) -> bool:
    """Return whether an invented word may be used: neither on the list of existing names nor rude."""
    low = word.lower()
    return low not in EXISTING and not any(part in low for part in _RUDE)


class NameBook:
    """Hands out words that have not been used in its task.

    Parameters
    ----------
    draw
        Source of chance.
    taken
        Lower-case words that may not be used again; shared between tasks where names must differ across a data set.
    """

    def __init__(self, draw: Draw, taken: set[str] | None = None) -> None:
        self._draw = draw
        self._taken: set[str] = set() if taken is None else taken

    def _claim(self, word: str) -> bool:
        low = word.lower()
        if low in self._taken or not allowed(word):
            return False
        self._taken.add(low)
        return True

    def stem(self) -> Stem:
        """Return a fresh stem of two or three syllables; joined, it is a capitalised word of 4 to 12 letters."""
        draw = self._draw
        while True:
            parts = [draw.pick(_ONSETS), draw.pick(_VOWELS), draw.pick(_MIDDLES)]
            if draw.chance(0.45):
                parts += [draw.pick(_VOWELS[:5]), draw.pick(_FIRST_MIDDLES)]
            parts.append(draw.pick(_ENDS))
            if self._claim("".join(parts)):
                return tuple(parts)

    def similar(self, stem: Stem) -> Stem:
        """Return a fresh stem that differs from `stem` in its first or its last sound, so that the two look alike."""
        draw = self._draw
        while True:
            if draw.chance(0.5):
                other = (*stem[:-1], draw.pick(_ENDS))
            else:
                # Another first letter, so that a careful reader can tell the two apart ("Slilmim" and "Silmim" would be one).
                other = (draw.pick([onset for onset in _ONSETS if onset[0] != stem[0][0]]), *stem[1:])
            if self._claim("".join(other)):
                return other

    def first_name(self) -> str:
        """Return a fresh given name."""
        draw = self._draw
        while True:
            word = draw.pick(_ONSETS) + draw.pick(_VOWELS[:5]) + draw.pick(_FIRST_MIDDLES) + draw.pick(_FIRST_ENDS)
            if self._claim(word):
                return word
