"""Guessing what somebody meant by a name that does not exist."""

import difflib
from collections.abc import Iterable


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> list[str]:
    """The known names that `name` begins, or else the one that is spelled most like it."""
    names, wanted = list(known), name.casefold()
    begun = [candidate for candidate in names if wanted and candidate.casefold().startswith(wanted)]
    if begun:
        return begun
    like = difflib.get_close_matches(wanted, [candidate.casefold() for candidate in names], n=1, cutoff=cutoff)
    return [candidate for candidate in names if candidate.casefold() in like]


def hint(name: str, known: Iterable[str], *, otherwise: str = "") -> str:
    """'did you mean ...?', or `otherwise`, or the known names."""
    names = list(known)
    near = nearest(name, names)
    if near:
        return f"did you mean {' or '.join(map(repr, near))}?"
    return otherwise or f"known are {', '.join(names)}"
