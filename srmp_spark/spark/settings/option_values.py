"""The form of options, and the values that the options of source and sink share."""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.names import split_url

_SECONDS = {
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "microsecond": 1e-6,
    "millisecond": 1e-3,
    "second": 1.0,
    "minute": 60.0,
    "hour": 3600.0,
    "day": 86400.0,
    "week": 604800.0,
}
"""Length of each unit of time, in seconds.

The units are those of Spark's ``JavaUtils.timeStringAsMs``, which its options accept, and those of
a trigger's text.
"""
_PIECE = re.compile(r"([0-9]{1,15})\s*([a-z]+)")
_DURATION = re.compile(rf"(?:interval\s+)?{_PIECE.pattern}(?:\s+{_PIECE.pattern})*")
_MILLISECONDS = re.compile(r"[0-9]{1,15}")


class OptionSpec(NamedTuple):
    """One option of a format, as the checks and ``docs/reference/options.md`` need it."""

    name: str
    applies_to: Literal["both", "stream", "batch"]
    meaning: str
    kind: str = "text"
    """What values look like: ``boolean``, ``whole number``, ``duration``, or the values allowed."""
    default: str = ""
    """The value without the option; empty if there is none, or if the option is required."""
    limits: str = ""
    """What is refused, or what the option needs."""


def choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    """Return ``text`` in lower case if it is one of ``allowed``.

    Raises :class:`ConfigurationError`, which suggests the nearest allowed value.
    """
    if text.lower() in allowed:
        return text.lower()
    close = difflib.get_close_matches(text.lower(), allowed, 1, 0.5)
    raise ConfigurationError(
        f"option {name}: {text!r}; "
        + (f"did you mean {close[0]!r}?" if close else f"expected {' or '.join(allowed)}")
    )


def boolean(name: str, text: str) -> bool:
    """Return whether ``text`` is ``true``, in any letter case.

    Raises :class:`ConfigurationError` for any text except true and false.
    """
    return choice(name, text, ("true", "false")) == "true"


def duration_s(name: str, text: str) -> float:
    """Return the seconds of a duration in Spark's notation.

    Examples are ``15m``, ``10s``, ``10 seconds`` and ``1 minute 30 seconds``. A number alone is
    milliseconds, as in options of Spark's Kafka source. Raises :class:`ConfigurationError` if the
    text is no duration.
    """
    lower = text.strip().lower()
    if _MILLISECONDS.fullmatch(lower):
        return int(lower) / 1000
    pieces = _PIECE.findall(lower) if _DURATION.fullmatch(lower) else []
    units = [unit if unit in _SECONDS else unit.removesuffix("s") for _, unit in pieces]
    if not pieces or not all(unit in _SECONDS for unit in units):
        raise ConfigurationError(
            f"option {name}: {text!r} is no duration; expected for example 500ms, 30s, "
            "15m, 2h, 1d, or 10 seconds"
        )
    return sum(
        int(number) * _SECONDS[unit] for (number, _), unit in zip(pieces, units, strict=True)
    )


def api_url(text: str) -> str:
    """Return the URL of a queue manager's API without its last slash.

    Raises :class:`ConfigurationError` if the text is no URL or has a path.
    """
    url = text.rstrip("/")
    try:
        parts = split_url(url)
    except ValueError as error:
        raise ConfigurationError(
            f"option queueManager: {error}; expected http://HOST:PORT of the API"
        ) from None
    if parts.path or parts.query:
        raise ConfigurationError(
            f"option queueManager: {url!r} has a path; expected http://HOST:PORT of the API"
        )
    return url


def token(values: Mapping[str, str]) -> str | None:
    """Return the option ``token``, else the value of the environment variable SRMP_SPARK_TOKEN.

    The environment is that of the process that reads the options, the driver's. Return ``None`` if
    neither is set.
    """
    return values.get("token") or os.environ.get("SRMP_SPARK_TOKEN") or None
