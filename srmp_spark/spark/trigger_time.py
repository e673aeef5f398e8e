"""Where the time of a trigger goes inside the driver-side reader, for ``StreamingQueryProgress``.

Spark measures the phases of a trigger from outside (``durationMs``): ``latestOffset`` is one number there, and planning and
committing are parts of other phases. The reader measures its own share of them. ``reportLatestOffset`` is the one way by which
Spark 4.2 lets a Python source say something: with the option ``reportTimes`` it carries the key ``ms`` beside the offsets.
Without the option ``sources[].latestOffset`` stays an offset and nothing else, which users compare with ``endOffset``. Spark
asks for the report after ``latestOffset`` and before the batch is planned, so the report of a micro-batch has the planning and
the commit of the micro-batch before.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum


class Part(Enum):
    """A share of a trigger that is the reader's own."""

    MARKS = "marks"
    """Received marks are sent and leases are held."""
    QUEUES = "queues"
    """Queues that the query has never seen are looked for, and entered."""
    RANGE = "range"
    """The queue managers say how far each log goes; a query that has nothing to do waits there for a row."""
    PLAN = "plan"
    """The tasks of the batch are worked out."""
    COMMIT = "commit"
    """Spark says that the batch is committed, and received marks are sent for it."""


class TriggerTime:
    """Adds up the milliseconds of each part until they are reported."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seconds: dict[Part, float] = {}

    def __repr__(self) -> str:
        return f"<TriggerTime {dict(self._seconds)}>"

    @contextmanager
    def of(self, part: Part) -> Iterator[None]:
        """Count the time of a ``with`` block for ``part``, also where the block fails."""
        began = self._monotonic()
        try:
            yield
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + self._monotonic() - began

    def reported(self) -> dict[str, float]:
        """Return the milliseconds of each part since the last report, in the order of :class:`Part`."""
        found = {
            part.value: round(self._seconds[part] * 1e3, 1)
            for part in Part
            if part in self._seconds
        }
        self._seconds.clear()
        return found
