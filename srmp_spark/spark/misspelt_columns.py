"""Columns of a frame that are written by a slip: what the sink would ignore, and what was meant by it.

The rule in one sentence: a column that the sink does not know is refused if one slip (a letter too many, missing or wrong, or
two neighbours swapped; case, ``_``, ``-`` and blanks do not count) tells its name from a column of the sink that the frame does
not have, unless it is a column of the source or ``orderBy`` names it. Two slips are another word: nobody's column
``transaction_id`` is meant to be ``transaction``.
"""

from __future__ import annotations

from collections.abc import Iterable

_FILLERS = str.maketrans("", "", "_- ")


def misspelt(names: Iterable[str], missing: Iterable[str]) -> tuple[str, str] | None:
    """Return the first of ``names`` that one slip tells from one of ``missing``, and that one; None: there is none."""
    wanted = [(each, _bare(each)) for each in missing]
    for name in names:
        bare = _bare(name)
        for each, its_bare in wanted:
            if is_one_slip(bare, its_bare):
                return name, each
    return None


def is_one_slip(written: str, meant: str) -> bool:
    """Return whether the two are equal, or become so by one letter added, left out or changed, or two neighbours swapped."""
    if len(written) > len(meant):
        written, meant = meant, written
    at = next(
        (n for n, (one, other) in enumerate(zip(written, meant, strict=False)) if one != other),
        len(written),
    )
    if len(written) < len(meant):
        return len(meant) - len(written) == 1 and written[at:] == meant[at + 1 :]
    swapped = (
        written[at : at + 2] == meant[at : at + 2][::-1] and written[at + 2 :] == meant[at + 2 :]
    )
    return written[at + 1 :] == meant[at + 1 :] or swapped


def _bare(name: str) -> str:
    return name.lower().translate(_FILLERS)
