"""How fast a job sends, and how it shows that: the throttle of ``--rate``, the progress bar on stderr."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TextIO

BAR_WIDTH = 30
"""Characters of the bar: a line with it and the figures fits in 80."""
NAP_SECONDS = 0.5
"""How long a pause may keep a signal waiting."""
LINE_SECONDS = 5.0
"""Between two lines where stderr is no terminal: a log wants few."""


class Throttle:
    """No more than ``rate`` rows a second on average, without making up for time that was lost."""

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
        """Wait until ``rows`` more may go; ``False`` when the job was told to stop before they may."""
        while (pause := self._free_at - self._now()) > 0 and not told_to_stop():
            self._sleep(min(pause, NAP_SECONDS))
        if told_to_stop():
            return False
        if self._rate is not None:
            self._free_at = max(self._free_at, self._now()) + rows / self._rate
        return True


class Bar:
    """``[####............]  25 %  500/2,000 rows  120 rows/s  13 s left``, on a terminal redrawn, else a line at times."""

    def __init__(self, total: int, file: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        self._total = total
        self._file = file
        self._now = now
        self._begun = now()
        self._done = 0
        self._skipped = 0
        self._shown_at: float | None = None

    def skip(self, rows: int) -> None:
        """Rows that an earlier run has sent: they are done, and say nothing about the speed."""
        self._skipped += rows
        self.add(rows)

    def add(self, rows: int) -> None:
        """So many more are done."""
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
        """What comes next on a terminal stands on a line of its own."""
        if self._file.isatty():
            print(file=self._file, flush=True)

    def text(self, now: float) -> str:
        """The bar as it is now."""
        share = min(1.0, self._done / self._total) if self._total else 1.0
        filled = int(share * BAR_WIDTH)
        seconds = now - self._begun
        speed = (self._done - self._skipped) / seconds if seconds > 0 else 0.0
        left = f"{(self._total - self._done) / speed:,.0f} s left" if speed else "-"
        rows = f"{self._done:,}/{self._total:,} rows"
        return (
            f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {share:4.0%}  {rows}  "
            f"{speed:,.0f} rows/s  {left}"
        )
