"""Lines about one thing, each written once: what another machine does must not fill our disk with its words."""

from __future__ import annotations

from collections import OrderedDict

REASONS_MAX = 32
"""Reasons that are remembered for one thing. At the limit the one that was heard of longest ago is forgotten."""
LINES_MAX = 10
"""Lines about one thing in :data:`PERIOD_SECONDS`. Further ones are counted, and the next line that is written says how
many."""
PERIOD_SECONDS = 600.0
"""A reason is written again when nobody has read of it for so long, and a full budget of lines begins anew."""
TEXT_MAX = 500
"""Characters of a reason in a line, whatever another machine makes of it."""


class LogOnce:
    """Decides which reasons about one thing are written to the log. No clock: the time is an argument."""

    def __init__(self) -> None:
        self._written: OrderedDict[str, float] = OrderedDict()
        """When each reason was written, by reason, the one that was heard of last at the end."""
        self._began = float("-inf")
        """When the period began of which :attr:`_lines` are counted."""
        self._lines = self._left_out = 0

    def line(self, reason: str, now: float) -> str | None:
        """Return what to write of ``reason``, safe for one line, or None if it is to be left out."""
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
