"""What the options of the source and of the sink have in common: their form, and values that both know."""

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
"""The units of Spark's ``JavaUtils.timeStringAsMs``, which its options take, and those of a trigger's text."""
_PIECE = re.compile(r"([0-9]{1,15})\s*([a-z]+)")
_DURATION = re.compile(rf"(?:interval\s+)?{_PIECE.pattern}(?:\s+{_PIECE.pattern})*")
_MILLISECONDS = re.compile(r"[0-9]{1,15}")


class OptionSpec(NamedTuple):
    """One option."""

    name: str
    applies_to: Literal["both", "stream", "batch"]
    meaning: str


def choice(name: str, text: str, allowed: tuple[str, ...]) -> str:
    """One of ``allowed``, in any case. Raises :class:`ConfigurationError` with the nearest one."""
    if text.lower() in allowed:
        return text.lower()
    close = difflib.get_close_matches(text.lower(), allowed, 1, 0.5)
    raise ConfigurationError(
        f"option {name}: {text!r}; "
        + (f"did you mean {close[0]!r}?" if close else f"expected {' or '.join(allowed)}")
    )


def boolean(name: str, text: str) -> bool:
    """``true`` or ``false``. Raises :class:`ConfigurationError`."""
    return choice(name, text, ("true", "false")) == "true"


def duration_s(name: str, text: str) -> float:
    """Return seconds of a duration as Spark writes them: ``15m``, ``10s``, ``10 seconds``, ``1 minute 30 seconds``.

    A number alone is milliseconds, as where Spark's Kafka source takes one. Raises :class:`ConfigurationError`.
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
    """The URL of a queue manager's API without its last slash. Raises :class:`ConfigurationError`."""
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
    """The option, else the environment of the process that reads the options: the driver's."""
    return values.get("token") or os.environ.get("SRMP_SPARK_TOKEN") or None
