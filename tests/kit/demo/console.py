"""Prints a line for each event of the demo, and a line about the wait when no event happens.

    with Console() as console:
        console.say("queue manager: http://127.0.0.1:8080")
        # after ten silent seconds: "waiting: Spark starts (10 s)"
        console.wait_for("Spark starts")

In a long step another process works: a JVM starts, or Spark plans a batch. On a busy machine such a
step takes minutes, and a reader must be able to distinguish it from a hang.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from types import TracebackType

QUIET_SECONDS = 10.0
"""Seconds of silence after which the demo prints what it waits for.

The time is longer than most steps of a quiet machine, and shorter than a reader's patience.
"""
POLL_SECONDS = 0.5
"""Longest time, in seconds, until the thread notices the end of the demo."""


class Console:
    """Prints, from any thread, to the standard output that existed when the object was made.

    As a context manager it runs the thread that prints what the demo waits for.
    """

    def __init__(self, *, quiet_seconds: float = QUIET_SECONDS) -> None:
        self._begun = time.monotonic()
        self._quiet_seconds = quiet_seconds
        self._lock = threading.Lock()
        self._said_at = self._begun
        self._since = self._begun
        self._what: str | Callable[[], str] = ""
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        # A step may redirect file descriptor 1, so the console writes to a copy of it.
        self._out = os.fdopen(os.dup(1), "w", encoding="utf-8", errors="replace")

    def __enter__(self) -> Console:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._out.close()

    def seconds(self) -> float:
        """Return the seconds since this object was made at the beginning of the demo."""
        return time.monotonic() - self._begun

    def say(self, text: str) -> None:
        """Print one line that begins with the seconds since the demo began."""
        with self._lock:
            self._said_at = time.monotonic()
            print(f"[{self.seconds():6.1f} s] {text}", file=self._out, flush=True)

    def wait_for(self, what: str | Callable[[], str]) -> None:
        """Set the text ``what`` that says what the demo waits for from now on.

        If ``what`` is a function, the function is called for each line, in another thread, and
        returns the text. Nothing is printed for an empty text.
        """
        with self._lock:
            self._what, self._since = what, time.monotonic()

    def _watch(self) -> None:
        while not self._over.wait(min(POLL_SECONDS, self._quiet_seconds)):
            with self._lock:
                what, since, now = self._what, self._since, time.monotonic()
                quiet = now - self._said_at >= self._quiet_seconds
            if what and quiet:
                self.say(
                    f"waiting: {what if isinstance(what, str) else what()} ({now - since:.0f} s)"
                )
