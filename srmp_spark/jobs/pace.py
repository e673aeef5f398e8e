"""Limit how fast a job sends (``--rate``), and show its progress on stderr."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TextIO

from srmp_spark.jobs.console import LINE_SECONDS, Console

BAR_WIDTH = 30
"""Characters of the bar. A line with the bar and the figures fits in 80 columns."""
NAP_SECONDS = 0.5
"""Longest pause in seconds before the job looks for a signal."""
SPEED_SECONDS = 10.0
"""Seconds whose rows make the speed: long enough for a few batches, short enough to follow."""

SPEED_WITH_TENTHS = 10.0
"""Rows a second below which a speed is shown with a decimal place."""


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
    """Shows the progress of a job that knows how many rows it has to do.

    The console of ``file`` decides how often (:mod:`.console`). A line looks like this::

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
        self._console = Console.of(file)
        self._now = now
        self._begun = now()
        self._done = 0
        self._skipped = 0

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
        self._console.progress(self.text(now), now, is_last=self._done >= self._total)

    def close(self) -> None:
        """End the line of the bar on a terminal, so that later output begins on a new line."""
        self._console.end_progress()

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


class Tally:
    """Shows the progress of a job that runs as long as rows arrive.

    A line looks like this::

        1,200 rows  12 batches  240 rows/s  35 rows wait (1 s)

    The speed is that of the last :data:`SPEED_SECONDS` seconds. The seconds in brackets are how
    long the waiting rows take at this speed. While a batch runs, the line tells for how long. A
    file that is no terminal gets a line when the figures have changed or a batch runs, and ``log``
    prints it.
    """

    def __init__(
        self,
        file: TextIO,
        log: Callable[[str], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._console = Console.of(file)
        self._log = log
        self._now = now
        self._lock = threading.Lock()
        self._rows = 0
        self._batches = 0
        self._waiting: int | None = None
        self._batch_begun: float | None = None
        self._marks: deque[tuple[float, int]] = deque([(now(), 0)])
        """Times and the rows done by then: the newest before :data:`SPEED_SECONDS`, and later ones.
        """
        self._logged_at = now()
        self._logged_batches = 0

    @contextmanager
    def batch(self) -> Iterator[Callable[[int], None]]:
        """Time a batch, which is the context. Call the result with its rows when it is written."""
        with self._lock:
            self._batch_begun = self._now()
        try:
            yield self._count
        finally:
            with self._lock:
                self._batch_begun = None

    def _count(self, rows: int) -> None:
        with self._lock:
            now = self._now()
            self._rows += rows
            self._batches += 1
            # One mark a second is enough, and bounds their number.
            if len(self._marks) > 1 and now - self._marks[-2][0] < 1.0:
                self._marks.pop()
            self._marks.append((now, self._rows))
            self._forget(now)

    def show(self, waiting: int | None) -> None:
        """Show the progress. ``waiting`` rows wait; ``None`` if their number is not known."""
        with self._lock:
            self._waiting = waiting
            now = self._now()
            if self._console.is_terminal:
                self._console.progress(self.text(now), now)
                return
            has_news = self._batches != self._logged_batches or self._batch_begun is not None
            if has_news and now - self._logged_at >= LINE_SECONDS:
                self._tell(now)

    def close(self, waiting: int | None) -> None:
        """Show the final figures. ``waiting`` is that of :meth:`show`."""
        with self._lock:
            now = self._now()
            self._batch_begun = None
            self._waiting = waiting
            if self._console.is_terminal:
                self._console.progress(self.text(now), now)
                self._console.end_progress()
            elif self._batches != self._logged_batches:
                self._tell(now)

    def _forget(self, now: float) -> None:
        """Drop the marks that the speed at the time ``now`` does not need."""
        while len(self._marks) > 1 and self._marks[1][0] <= now - SPEED_SECONDS:
            self._marks.popleft()

    def _tell(self, now: float) -> None:
        self._logged_at, self._logged_batches = now, self._batches
        self._log(self.text(now))

    def text(self, now: float) -> str:
        """Return the line at the time ``now``."""
        self._forget(now)
        since, rows = self._marks[0]
        seconds = now - since
        speed = (self._rows - rows) / seconds if seconds > 0 else 0.0
        batches = f"{self._batches:,} batch{'es' * (self._batches != 1)}"
        # A queue of a few messages a minute has a speed, too.
        shown = f"{speed:,.0f}" if speed >= SPEED_WITH_TENTHS or not speed else f"{speed:,.1f}"
        parts = [f"{self._rows:,} rows", batches, f"{shown} rows/s"]
        if self._waiting is not None:
            takes = f" ({self._waiting / speed:,.0f} s)" if self._waiting and speed else ""
            parts.append(f"{self._waiting:,} rows wait{takes}")
        if self._batch_begun is not None:
            parts.append(f"a batch runs for {now - self._batch_begun:,.0f} s")
        return "  ".join(parts)
