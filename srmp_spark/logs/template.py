r"""Read the event and the fields of a log call from its text in the source.

    disk.full free_bytes=%d reason="%s": make room
    ──event── ───field──── ────field───

The text is a constant of srmp-spark (tests/logs/test_log_calls.py), so names and places of fields
can be trusted. The values are inserted later, and are never searched for fields.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache

TEMPLATES_MAX = 1_024
"""Most texts that are remembered as read. The package has some 300 log calls."""

_CONVERSION = re.compile(r"%(?:%|[#0\- +]*\d*(?:\.\d+)?[a-zA-Z])")
"""Matches a placeholder of ``%``, or an escaped ``%``. No log call uses names or ``*``."""
_EVENT = re.compile(r"[a-z_%]+\.[a-z_%]+|%s(?= [a-z_]+=)")
_FIELD = re.compile(r'(?<![^\s(])([a-z_]+)=("[^"]*"|[^\s,;:")]+)')


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of the text of a log call, with the values that belong to it."""

    text: str
    """The part as it stands in the source, without quotation marks around it."""
    first: int
    last: int
    """Places of its values among the arguments of the call: ``first`` to before ``last``."""

    @property
    def is_one_value(self) -> bool:
        """Return whether the part is one placeholder and nothing else."""
        return self.last == self.first + 1 and _CONVERSION.fullmatch(self.text) is not None


@dataclass(frozen=True, slots=True)
class Template:
    """The event and the fields of one log call. ``event`` is ``None`` if the text has none."""

    event: Piece | None
    fields: tuple[tuple[str, Piece], ...]


@lru_cache(maxsize=TEMPLATES_MAX)
def read_template(text: str) -> Template:
    """Return the event and the fields in the text of a log call. A text without event has none."""
    event = _EVENT.match(text)
    if event is None:
        return Template(None, ())
    places = [found.start() for found in _CONVERSION.finditer(text) if found[0] != "%%"]

    def piece(start: int, end: int) -> Piece:
        first = sum(at < start for at in places)
        return Piece(text[start:end], first, first + sum(start <= at < end for at in places))

    fields = {}
    for found in _FIELD.finditer(text, event.end()):
        start, end = found.span(2)
        is_quoted = text[start] == '"'
        fields[found[1]] = piece(start + is_quoted, end - is_quoted)
    return Template(piece(*event.span()), tuple(fields.items()))
