"""Keep how far the Delta state is behind the log, and which failure stops it.

The publishers of the Delta state in the reader process report both.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class StateFailure:
    """A failure of a publisher, because of which the Delta state does not continue."""

    reason: str
    remedy: str
    ended: bool
    """Whether the publisher has ended. If so, the Delta state continues only after a restart."""
    since: int
    """Time of the first failure, in microseconds since 1970, UTC."""


ROWS_GONE_MAX = 100
"""Most ranges of missing rows that ``status`` shows; further ones are left out.

The log line about each report names its first hundred ranges.
"""


@dataclass(slots=True)
class StateLag:
    """How far the Delta state is behind the log, as its publishers report it.

    ``uri`` is None without a Delta state. ``position`` is the number of the last published commit.
    ``receipts_left_out`` counts receipts of the order queue that were deleted before the Delta
    state had them, since the start.
    """

    uri: str | None
    position: int = 0
    as_of: float = 0.0
    """Time at which the published state was read from the log, in seconds since 1970, UTC."""
    receipts_left_out: int = 0
    rows_gone: list[dict[str, object]] = field(default_factory=list)
    """Ranges of rows that another program removed from the Delta table ``inbox`` and that the log
    no longer has, since the start.
    """
    failures: dict[str, StateFailure] = field(default_factory=dict)
    """The present failure of each publisher, by its name: ``inbox``, ``sending``."""
