"""Write each record of the log as one line with one JSON object.

    {"time":"2026-11-27T01:02:03.123456Z","level":"error","event":"disk.full","message":"…",
     "process":"serve","logger":"srmp_spark.queue_manager.admission.disk_gate","free_bytes":123}

**What no value can do.** A line is ASCII: JSON escapes line ends, controls and everything beyond
ASCII, so no value ends a line or moves a cursor, whatever the encoding of standard error is. Names
of fields come from the source (:mod:`.template`), so no value adds a field or replaces one. A line
has at most LINE_BYTES_MAX bytes and is one write, so lines of several processes do not mix. A line
with a traceback may be longer (TRACEBACK_LINE_BYTES_MAX), and mixes only in a pipe that is full.

**Records of other libraries** (asyncio, warnings) have the fixed names alone, and no event.
"""

from __future__ import annotations

import json
import logging
import math
import re
from datetime import datetime, timezone
from typing import NamedTuple

from srmp_spark.logs.fields import FIELDS, FieldType, member_name
from srmp_spark.logs.template import Piece, Template, read_template

LINE_BYTES_MAX = 4_096
"""Most bytes of a line, with its end: PIPE_BUF, up to which a pipe never mixes two writes.

Longer texts in the line are cut.
"""
TRACEBACK_LINE_BYTES_MAX = 16 * 1_024
"""Most bytes of a line with a traceback. Docker divides longer lines."""
TEXT_MAX = 1_000
"""Most characters of one text in a line. Of a longer one the middle is left out."""
EXCEPTION_FACTOR = 10
"""Times TEXT_MAX that a traceback may have, because a bug is found by it."""
CUTS = (1, 2, 4, 8, 16, 32, 64)
"""Divisors of TEXT_MAX that are tried until a line fits. The last one always does: a call has some
ten fields, and a character at most 12 bytes.
"""
INTEGER_MAX = 2**63 - 1
"""Largest integer of a field, and with a minus the smallest one: what databases of logs store.

A field with another number is ``null``; ``message`` shows the number.
"""

MAIN = "__main__"
"""Name of the logger in the module that ``python -m`` runs."""
_NAME = re.compile(r"[a-z_]+\.[a-z_]+")
_OWN = "srmp_spark"
"""First part of the names of this package's loggers. Only their records have events."""

_Value = str | int | float | bool | None


class JsonFormatter(logging.Formatter):
    """Writes a record as one JSON object. ``process`` names the process that writes.

    ``main`` is the name of the module that a child process runs, whose logger is ``__main__``.
    """

    def __init__(self, process: str, main: str = MAIN) -> None:
        super().__init__()
        self._process, self._main = process, main

    def format(self, record: logging.LogRecord) -> str:
        """Return the line of ``record``, without its end. Nothing is raised."""
        logger = self._main if record.name == MAIN else record.name
        event, fields = _event_and_fields(record, logger)
        fixed: dict[str, _Value] = {
            "time": _time(record.created),
            "level": record.levelname.lower(),
            "event": event,
            "message": _message(record),
            "process": self._process,
            "logger": logger,
        }
        line = {**fixed, **fields}
        if record.exc_info:
            line["exception"] = _safely(lambda: self.formatException(record.exc_info))
        elif record.stack_info:
            line["exception"] = record.stack_info
        return _fitting(line)


class _Cut(NamedTuple):
    """Most characters of a text, and of a traceback, in one attempt to make a line fit."""

    text: int
    exception: int

    def value(self, name: str, value: _Value) -> _Value:
        """Return the value of a field, shortened if it is a longer text."""
        if not isinstance(value, str):
            return value
        most = self.exception if name == "exception" else self.text
        if len(value) > most:
            # The end of a traceback names the error.
            head = most // 4
            value = f"{value[:head]} … {value[head - most :]}"
        # A lone surrogate is no Unicode, and some readers of JSON refuse it.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _fitting(line: dict[str, _Value]) -> str:
    """Return ``line`` as JSON. Texts are cut until it has as few bytes as it may."""
    most = TRACEBACK_LINE_BYTES_MAX if "exception" in line else LINE_BYTES_MAX
    encoded = ""
    for divisor in CUTS:
        cut = _Cut(TEXT_MAX // divisor, EXCEPTION_FACTOR * TEXT_MAX // divisor)
        shown = {name: cut.value(name, value) for name, value in line.items()}
        encoded = json.dumps(shown, separators=(",", ":"), allow_nan=False)
        encoded = encoded.replace("\x7f", "\\u007f")
        if len(encoded) < most:
            break
    return encoded


def _time(seconds: float) -> str:
    """Return a time in seconds since 1970 as RFC 3339 in UTC, with microseconds."""
    found = datetime.fromtimestamp(seconds, timezone.utc).isoformat(timespec="microseconds")
    return found.replace("+00:00", "Z")


def _safely(text: object) -> str:
    """Return what the function ``text`` returns, or else the name of the error that it raises.

    A log line must not end the code that logs.
    """
    try:
        return str(text())  # type: ignore[operator]  # a function without arguments
    except Exception as error:
        return f"<{type(error).__name__}>"


def _message(record: logging.LogRecord) -> str:
    try:
        return record.getMessage()
    except Exception:  # The arguments do not fit the text.
        return f"{_safely(lambda: record.msg)} {_safely(lambda: repr(record.args))}"


def _event_and_fields(
    record: logging.LogRecord, logger: str
) -> tuple[str | None, dict[str, _Value]]:
    """Return the event of a record and its fields; ``None`` and no field for other records."""
    if logger.partition(".")[0] != _OWN or not isinstance(record.msg, str):
        return None, {}
    given = record.args
    # logging unpacks a single argument that is a dictionary.
    arguments = given if isinstance(given, tuple) else () if given is None else (given,)
    template = read_template(record.msg)
    name = _name(template, arguments)
    if name is None:
        return None, {}
    named = ((member_name(field), piece) for field, piece in template.fields)
    return name, {
        member: _value(FIELDS.get(member, FieldType.STRING), piece, arguments)
        for member, piece in named
    }


def _name(template: Template, arguments: tuple[object, ...]) -> str | None:
    if template.event is None:
        return None
    text = _text(template.event, arguments)
    return text if _NAME.fullmatch(text) else None


def _text(piece: Piece, arguments: tuple[object, ...]) -> str:
    return _safely(lambda: piece.text % arguments[piece.first : piece.last])


def _value(kind: FieldType, piece: Piece, arguments: tuple[object, ...]) -> _Value:
    if not piece.is_one_value:
        text = _text(piece, arguments)
        return text if kind is FieldType.STRING else _typed(kind, text)
    if piece.first >= len(arguments):
        return None
    return _typed(kind, arguments[piece.first], quotes=piece.text.endswith("r"))


def _typed(kind: FieldType, value: object, *, quotes: bool = False) -> _Value:
    """Return a value as ``kind``; ``None`` if it is none of that kind.

    ``quotes`` states that the text form shows ``repr(value)``. JSON has quotation marks anyway.
    """
    if value is None:
        return None
    if kind is FieldType.STRING:
        if isinstance(value, str):
            return str(value)
        return _safely(lambda: repr(value) if quotes else str(value))
    if kind is FieldType.BOOLEAN:
        return value if isinstance(value, bool) else None
    if not isinstance(value, int | float) or not math.isfinite(value):
        return None
    if kind is FieldType.INTEGER:
        value = int(value)
    return value if abs(value) <= INTEGER_MAX else None
