"""Measure how the driver-side reader spends the time of a trigger, for ``StreamingQueryProgress``.

Spark measures the phases of a trigger from outside (``durationMs``). ``latestOffset`` is one number
there, and planning and committing are parts of other phases. The reader measures its own share of
them. ``reportLatestOffset`` is the only way by which Spark 4.2 accepts a report of a Python source.
With the option ``reportTimes`` the report has the key ``ms`` in addition to the offsets. Without
the option ``sources[].latestOffset`` stays a plain offset, which users compare with ``endOffset``.

Spark asks for the report after ``latestOffset`` and before the batch is planned. So the report of a
micro-batch has the planning and the commit of the micro-batch before it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum


class TriggerPart(Enum):
    """A part of a trigger that the reader measures."""

    MARKS = "marks"
    """Time for sending received marks and keeping leases."""
    QUEUES = "queues"
    """Time for finding queues that the query has never seen, and acquiring their leases."""
    RANGE = "range"
    """Time for asking the queue managers how far each log goes.

    The time in which an idle query waits for a row counts as this part.
    """
    PLAN = "plan"
    """Time for working out the tasks of the batch."""
    COMMIT = "commit"
    """Time for sending received marks when Spark has committed the batch."""


class TriggerTime:
    """Adds up the milliseconds of each part until they are reported."""

    def __init__(self, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._monotonic = monotonic
        self._seconds: dict[TriggerPart, float] = {}

    def __repr__(self) -> str:
        return f"<TriggerTime {dict(self._seconds)}>"

    @contextmanager
    def of(self, part: TriggerPart) -> Iterator[None]:
        """Count the time of a ``with`` block for ``part``, even if the block fails."""
        began = self._monotonic()
        try:
            yield
        finally:
            self._seconds[part] = self._seconds.get(part, 0.0) + self._monotonic() - began

    def reported(self) -> dict[str, float]:
        """Return the milliseconds of each measured part, and begin to count again from 0.

        The parts are in the order of :class:`TriggerPart`. A part that was not measured is left
        out.
        """
        found = {
            part.value: round(self._seconds[part] * 1e3, 1)
            for part in TriggerPart
            if part in self._seconds
        }
        self._seconds.clear()
        return found
