r"""Layouts that have been read before: the second envelope of a sender needs no XML parser.

Theory of operation. A program writes all its envelopes with the same markup and only other texts in it. An envelope is cut
before each ``</``; what stands between the last ``>`` of a piece and its end is a *hole* with a text, the rest is *markup*.
White space alone is markup, so indentation belongs to the layout; so does a text that is followed by a start tag. The markup
of all pieces together is the key of a map; its value says which hole is which field.

That value is not computed but *observed*: when a layout is new, its holes are filled with numbered marks, and the XML reader
reads the result. Where it reports mark 7, hole 7 is that field; what it reports without a mark is the same in every envelope
of this layout. So the rules of SRMP stand in one place, and this module knows nothing of them.

Why it is safe: equal markup and other texts in the holes are the same tree with other texts, as long as the markup is tags
and plain text (no comment, CDATA section, processing instruction or reference) and the texts hold no ``<``, ``&`` or character
that XML or a line end could change (``str.isprintable``). Everything else goes to the XML reader.
tests/codec/test_differential.py compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.envelope_values import Fields
from srmp_spark.srmp.limits import LEARNED_LAYOUTS_MAX, LEARNED_LENGTH_MAX
from srmp_spark.srmp.values import XML_SPACE

_TAG = r"<[A-Za-z_:\x80-\U0010ffff][^<>\"']*(?:\"[^<\"]*\"[^<>\"']*|'[^<']*'[^<>\"']*)*>"
# A piece begins with the name of the element that ends there, except for the first, which may begin with a declaration.
_MARKUP = re.compile(rf"[^<>\"'/!?\s]+\s*>(?:[^<>&]*{_TAG})*\s*")
_FIRST_MARKUP = re.compile(rf"\ufeff?(?:<\?xml\s[^<>]*\?>)?(?:[^<>&]*{_TAG})*\s*")
_MARK = "\N{CURRENCY SIGN}"


class _Plan(NamedTuple):
    holes: int
    fields: tuple[tuple[str, int], ...]
    """Field and number of its hole."""
    constants: Fields


_NEW = _Plan(-1, (), {})
"""In place of a plan: this markup has not been seen."""
_NO_LINES = {ord("\n"): None, ord("\t"): None}


def _cut(text: str) -> tuple[tuple[str, ...], list[str]]:
    """Markup and the texts of the holes."""
    *pieces, last = text.split("</")
    markup = []
    texts = []
    for piece in pieces:
        head, _, tail = piece.rpartition(">")
        if tail.isspace():
            markup.append(piece)
        else:
            markup.append(head)
            texts.append(tail)
    markup.append(last)
    return tuple(markup), texts


class LearnedLayouts:
    """Markup seen before; oldest first, bounded by ``LEARNED_LAYOUTS_MAX``."""

    __slots__ = ("_plans", "_read_fields")

    def __init__(self, read_fields: Callable[[bytes], Fields]) -> None:
        self._plans: dict[tuple[str, ...], _Plan | None] = {}
        self._read_fields = read_fields

    def __len__(self) -> int:
        return len(self._plans)

    def read(self, text: str) -> Fields:
        """The fields of an envelope, as the XML reader gives them. Raises :class:`RemoteProtocolError`."""
        if len(text) > LEARNED_LENGTH_MAX:
            return self._read_fields(text.encode())
        markup, texts = _cut(text)
        plan = self._plans.get(markup, _NEW)
        if plan is not None and plan.holes == len(texts):
            joined = "".join(texts)
            if not joined.isprintable():
                texts = [
                    hole.replace("\r\n", "\n").replace("\r", "\n") for hole in texts
                ]  # XML 1.0 2.11
                joined = "".join(texts).translate(_NO_LINES)
            if joined.isprintable() and "<" not in joined and "&" not in joined:
                return _fill(plan, texts)
        fields = self._read_fields(text.encode())
        if plan is _NEW:
            while len(self._plans) >= LEARNED_LAYOUTS_MAX:
                del self._plans[next(iter(self._plans))]
            self._plans[markup] = self._learn(markup, texts)
        return fields

    def _learn(self, markup: tuple[str, ...], texts: list[str]) -> _Plan | None:
        """Which hole is which field; ``None`` for markup that is not tags and plain text, or not understood."""
        # A piece whose hole was blank is whole, one with a hole lacks its last ">".
        probe = []
        hole = 0
        for number, piece in enumerate(markup):
            is_whole = number == len(markup) - 1 or (
                piece.rpartition(">")[2].isspace() and ">" in piece
            )
            whole = piece if is_whole else f"{piece}>"
            if not (_MARKUP if number else _FIRST_MARKUP).fullmatch(whole):
                return None
            probe.append(whole if is_whole else f"{whole}{_MARK}{hole}{_MARK}")
            hole += not is_whole
        if hole != len(texts):
            return None
        try:
            observed = self._read_fields("</".join(probe).encode())
        except RemoteProtocolError:
            return None
        marks = {f"{_MARK}{number}{_MARK}": number for number in range(hole)}
        if any(_MARK in value and value not in marks for value in observed.values()):
            return None
        return _Plan(
            hole,
            tuple((field, marks[value]) for field, value in observed.items() if value in marks),
            {field: value for field, value in observed.items() if value not in marks},
        )


def _fill(plan: _Plan, texts: list[str]) -> Fields:
    fields = plan.constants.copy()
    for field, hole in plan.fields:
        fields[field] = texts[hole]
    if "Body" in fields and not fields["Body"].strip(
        XML_SPACE
    ):  # the one field that is there only if it has a text
        del fields["Body"]
    return fields
