"""Layouts that were read before: the second envelope of a sender needs no XML parser.

Theory of operation. A program writes all its envelopes with the same markup, and only the texts
differ. An envelope is cut before each ``</``. The text between the last ``>`` of a piece and its
end is a *hole*, and the rest is *markup*. White space alone is markup, so indentation belongs to
the layout. A text that is followed by a start tag is markup too. The markup of all pieces together
is the key of a map. The value says which hole is which field.

This value is not computed but *observed*. When a layout is new, its holes are filled with numbered
marks, and the XML reader reads the result. If the reader returns mark 7 for a field, hole 7 is that
field. A value that the reader returns without a mark is the same in every envelope of this layout.
The rules of SRMP therefore stay in one place, and this module knows none of them.

This is safe for the following reason. Two envelopes with equal markup are the same tree with
different texts, under two conditions. The markup consists of tags and plain text only (no comment,
CDATA section, processing instruction or reference). The texts contain no ``<``, no ``&`` and no
character that XML or a line end could change (``str.isprintable``). Every other envelope goes to
the XML reader. tests/codec/test_differential.py compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.codec.envelope_values import Fields
from srmp_spark.srmp.codec.values import XML_SPACE
from srmp_spark.srmp.limits import LEARNED_LAYOUTS_MAX, LEARNED_LENGTH_MAX

_TAG = r"<[A-Za-z_:\x80-\U0010ffff][^<>\"']*(?:\"[^<\"]*\"[^<>\"']*|'[^<']*'[^<>\"']*)*>"
# A piece begins with the name of the element that ends there. Only the first piece may begin with a
# declaration.
_MARKUP = re.compile(rf"[^<>\"'/!?\s]+\s*>(?:[^<>&]*{_TAG})*\s*")
_FIRST_MARKUP = re.compile(rf"\ufeff?(?:<\?xml\s[^<>]*\?>)?(?:[^<>&]*{_TAG})*\s*")
_MARK = "\N{CURRENCY SIGN}"


class _Plan(NamedTuple):
    holes: int
    fields: tuple[tuple[str, int], ...]
    """Pairs (path of a field, number of its hole), for the fields whose texts are in holes."""
    constants: Fields


_NEW = _Plan(-1, (), {})
"""Stands in place of a plan for markup that has not been seen."""
_NO_LINES = {ord("\n"): None, ord("\t"): None}


def _cut(text: str) -> tuple[tuple[str, ...], list[str]]:
    """Cut an envelope before each ``</``, and return (markup, texts of the holes).

    The markup has one item for each piece; only pieces with a hole have a text.
    """
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
    """Keeps the markup of envelopes that were read before, to read equal ones without a parser.

    At ``LEARNED_LAYOUTS_MAX`` layouts the oldest is forgotten.
    """

    __slots__ = ("_plans", "_read_fields")

    def __init__(self, read_fields: Callable[[bytes], Fields]) -> None:
        self._plans: dict[tuple[str, ...], _Plan | None] = {}
        self._read_fields = read_fields

    def __len__(self) -> int:
        return len(self._plans)

    def read(self, text: str) -> Fields:
        """Return the fields of an envelope, as the XML reader returns them.

        Raises :class:`RemoteProtocolError` if the envelope breaks a rule.
        """
        if len(text) > LEARNED_LENGTH_MAX:
            return self._read_fields(text.encode())
        markup, texts = _cut(text)
        plan = self._plans.get(markup, _NEW)
        if plan is not None and plan.holes == len(texts):
            joined = "".join(texts)
            if not joined.isprintable():
                # XML turns every line end into a single LF (XML 1.0 2.11).
                texts = [hole.replace("\r\n", "\n").replace("\r", "\n") for hole in texts]
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
        """Return the plan that says which hole is which field.

        Return ``None`` for markup that has more than tags and plain text, and for a layout that the
        XML reader does not accept.
        """
        # A piece whose hole was blank is complete. A piece with a hole lacks its last ">".
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
    # Body is the only field that is present only if it has a text.
    if "Body" in fields and not fields["Body"].strip(XML_SPACE):
        del fields["Body"]
    return fields
