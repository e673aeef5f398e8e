"""Limit the log lines about one thing, so that another machine cannot fill the disk."""

from __future__ import annotations

from collections import OrderedDict

REASONS_MAX = 32
"""Most reasons that are remembered for one thing.

At the limit the reason that was reported longest ago is forgotten, and may be logged again early.
"""
LINES_MAX = 10
"""Most lines about one thing in :data:`PERIOD_SECONDS`.

Further lines are counted, and the next line that is written states how many.
"""
PERIOD_SECONDS = 600.0
"""Seconds after which a reason is written again, and after which the budget of LINES_MAX lines
begins anew.
"""
TEXT_MAX = 500
"""Most characters of a reason in a line.

A longer reason, which another machine may have made, is cut.
"""


class LogOnce:
    """Decides which reasons about one thing are logged, for example about one destination.

    It has no clock: the time is an argument.
    """

    def __init__(self) -> None:
        self._written: OrderedDict[str, float] = OrderedDict()
        """For each reason the time at which it was written.

        The reason that was reported last is at the end.
        """
        self._began = float("-inf")
        """Start of the period in which :attr:`_lines` counts, on the caller's clock."""
        self._lines = self._left_out = 0

    def line(self, reason: str, now: float) -> str | None:
        """Return the text to log for ``reason``, or ``None`` to log nothing.

        A reason is logged once in PERIOD_SECONDS, and all reasons together at most LINES_MAX times.
        The text is escaped to one line, cut to TEXT_MAX characters, and states how many lines were
        left out before. The returned text counts as written. ``now`` is in seconds of any clock
        that never goes back.
        """
        written_at = self._written.get(reason)
        if written_at is not None:
            self._written.move_to_end(reason)
            if now - written_at < PERIOD_SECONDS:
                return None
        if now - self._began >= PERIOD_SECONDS:
            self._began, self._lines = now, 0
        if self._lines >= LINES_MAX:
            self._left_out += 1
            return None
        self._lines += 1
        self._written[reason] = now
        self._written.move_to_end(reason)
        if len(self._written) > REASONS_MAX:
            self._written.popitem(last=False)
        text = ascii(reason[:TEXT_MAX])[1:-1]
        left_out, self._left_out = self._left_out, 0
        return f"{text} ({left_out} other lines were left out)" if left_out else text
