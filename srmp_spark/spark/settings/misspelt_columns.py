"""Find misspelt columns of a frame, which the sink would otherwise ignore.

The rule: a column that the sink does not know is refused if one slip distinguishes its name from a
column of the sink that the frame does not have. A slip is a letter too many, missing or wrong, or
two neighbouring letters swapped. Case, ``_``, ``-`` and blanks do not count. Columns of the source,
and columns that ``orderBy`` names, are never refused. Two slips make another word: a column
``transaction_id`` is not meant to be ``transaction``.
"""

from __future__ import annotations

from collections.abc import Iterable

_FILLERS = str.maketrans("", "", "_- ")


def misspelt(names: Iterable[str], missing: Iterable[str]) -> tuple[str, str] | None:
    """Return the first of ``names`` that is one slip away from one of ``missing``, and that column.

    Return ``None`` if there is no such name.
    """
    wanted = [(each, _bare(each)) for each in missing]
    for name in names:
        bare = _bare(name)
        for each, its_bare in wanted:
            if is_one_slip(bare, its_bare):
                return name, each
    return None


def is_one_slip(written: str, meant: str) -> bool:
    """Return whether the two names are equal, or differ by one slip.

    One slip is a letter added, left out or changed, or two neighbours swapped.
    """
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
