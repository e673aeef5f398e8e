"""How far the Delta state is, and what is in its way: as its publishers in the reader process tell it."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StateFailure:
    """Why the Delta state does not go on."""

    reason: str
    remedy: str
    ended: bool
    """The publisher has given up: only another start goes on."""
    since: int
    """Microseconds since 1970, UTC."""


ROWS_GONE_MAX = 100
"""Ranges that ``status`` shows: the log has the first hundred of each time."""


@dataclass(slots=True)
class StateLag:
    """How far the Delta state is behind; told by the publisher."""

    uri: str | None
    position: int = 0
    as_of: float = 0.0
    """When the log was read for what is published; seconds since 1970, UTC."""
    receipts_left_out: int = 0
    rows_gone: list[dict[str, object]] = field(default_factory=list)
    """Ranges that others took out of ``inbox`` and that the log does not have any more, since the start."""
    failures: dict[str, StateFailure] = field(default_factory=dict)
    """What is in the way of each publisher at present, by its name: ``inbox``, ``sending``."""
