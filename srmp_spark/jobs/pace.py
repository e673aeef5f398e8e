"""Limit how fast a job sends (``--rate``), and draw its progress bar on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

BAR_WIDTH = 30
"""Characters of the bar. A line with the bar and the figures fits in 80 columns."""
NAP_SECONDS = 0.5
"""Longest pause in seconds before the job looks for a signal."""
LINE_SECONDS = 5.0
"""Seconds between two progress lines if stderr is no terminal: a log needs few lines."""


class Throttle:
    """Limits a job to ``rate`` rows a second on average.

    Time that was lost is not made up for. A ``rate`` of ``None`` means no limit.
    """

    def __init__(
        self,
        rate: float | None,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = rate
        self._now = now
        self._sleep = sleep
        self._free_at = now()

    def before(self, rows: int, told_to_stop: Callable[[], bool] = lambda: False) -> bool:
        """Wait until the rate allows ``rows`` more rows, count them, and return ``True``.

        Return ``False`` if the job was told to stop first; nothing is counted then.
        """
        while (pause := self._free_at - self._now()) > 0 and not told_to_stop():
            self._sleep(min(pause, NAP_SECONDS))
        if told_to_stop():
            return False
        if self._rate is not None:
            self._free_at = max(self._free_at, self._now()) + rows / self._rate
        return True


class Bar:
    """Draws the progress of a job.

    A terminal shows one line that is redrawn. Any other output gets a line every
    :data:`LINE_SECONDS` seconds. A line looks like this::

        [####............]  25 %  500/2,000 rows  120 rows/s  13 s left
    """

    def __init__(
        self,
        total: int,
        file: TextIO,
        now: Callable[[], float] = time.monotonic,
        *,
        unit: str = "rows",
    ) -> None:
        """Begin at 0 of ``total``. ``unit`` is the plural of what is counted."""
        self._unit = unit
        self._total = total
        self._file = file
        self._now = now
        self._begun = now()
        self._done = 0
        self._skipped = 0
        self._shown_at: float | None = None

    def skip(self, rows: int) -> None:
        """Count rows that an earlier run has sent.

        They are done, but do not count for the speed.
        """
        self._skipped += rows
        self.add(rows)

    def add(self, rows: int) -> None:
        """Count ``rows`` more rows as done, and show the progress."""
        self._done += rows
        now = self._now()
        if self._file.isatty():
            self._file.write(f"\r{self.text(now)}")
            self._file.flush()
        elif (
            self._shown_at is None
            or now - self._shown_at >= LINE_SECONDS
            or self._done >= self._total
        ):
            self._shown_at = now
            print(self.text(now), file=self._file, flush=True)

    def close(self) -> None:
        """End the line of the bar on a terminal, so that later output begins on a new line."""
        if self._file.isatty():
            print(file=self._file, flush=True)

    def text(self, now: float) -> str:
        """Return the bar with its figures at the time ``now``."""
        share = min(1.0, self._done / self._total) if self._total else 1.0
        filled = int(share * BAR_WIDTH)
        seconds = now - self._begun
        speed = (self._done - self._skipped) / seconds if seconds > 0 else 0.0
        left = f"{(self._total - self._done) / speed:,.0f} s left" if speed else "-"
        rows = f"{self._done:,}/{self._total:,} {self._unit}"
        return (
            f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:4.0%}  {rows}  "
            f"{speed:,.0f} {self._unit}/s  {left}"
        )
