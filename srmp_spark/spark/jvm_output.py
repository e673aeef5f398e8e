"""Receive what the JVM of Spark prints, and hold back the chatter of its start.

A start prints fifty lines: the launcher, Ivy's table of jars, warnings about the host. They say
nothing to the user of a job, unless the start fails or hangs. So they are held, and

- shown if the start fails (:meth:`JvmOutput.show_held`);
- shown, the newest line alone, while the start takes unusually long: a machine that does not reach
  the Maven repository waits for minutes;
- dropped when the job ends well.

From :meth:`JvmOutput.started` on every line is shown at once, but for one kind: Spark prints the
whole trace of the error that ends a query, and the job tells this error in one line. The trace is
held as well.

The JVM gets the end of a pipe as its stderr. A thread reads the other end. The output of Python
workers comes the same way, because Spark prints it on the stderr of its JVM.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import threading
import time
from collections import deque
from collections.abc import Callable
from types import TracebackType

START_PATIENCE_SECONDS = 30.0
"""Seconds of a start until the newest held line is shown, and between two such lines.

A start takes ten seconds, with the download of the jars twenty. After 30 s the user must see what
the start waits for.
"""
HELD_LINES_MAX = 2_000
"""Most lines that are held. The oldest are dropped, and their number is told.

A start prints fifty lines, the trace of an error at most a few hundred.
"""
LINE_BYTES_MAX = 64 * 1024
"""Longest line, in bytes. A longer one is split, so that memory stays bounded."""
READ_BYTES = 64 * 1024
SETTLE_SECONDS = 2.0
"""Longest wait, in seconds, until the thread has read what the JVM has printed so far."""

_EVENT = re.compile(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d [A-Z]+ ")
"""Beginning of a line of Spark's log. Lines without it belong to the event before."""
_END_OF_QUERY = re.compile(r"\S+ \S+ ERROR MicroBatchExecution: Query .* terminated with error")


class JvmOutput:
    """The stderr of one JVM.

    ``show`` prints one line, and is called from the thread of this object. ``now`` is the clock.
    Use the object as a context manager around the life of the Spark session.
    """

    def __init__(
        self, show: Callable[[str], None], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._show = show
        self._now = now
        self._begun = now()
        self._lock = threading.RLock()
        self._held: deque[str] = deque(maxlen=HELD_LINES_MAX)
        self._dropped = 0
        self._is_starting = True
        self._in_trace = False
        self._reminded_at = self._begun
        self._rest = b""
        self._read_end, self._write_end = os.pipe()
        self._thread = threading.Thread(target=self._read_all, name="jvm-output", daemon=True)

    def __enter__(self) -> JvmOutput:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.settle()
        self._close_write_end()

    def fileno(self) -> int:
        """Return the file descriptor that the JVM gets as its stderr."""
        return self._write_end

    def started(self) -> None:
        """Note that the session exists. Later lines are shown."""
        self.settle()
        with self._lock:
            self._is_starting = False
        # Only the JVM may hold this end: then the thread sees when the JVM ends.
        self._close_write_end()

    def show_held(self) -> None:
        """Show the held lines, for example because the job has failed."""
        self.settle()
        with self._lock:
            if self._dropped:
                self._show_one(f"({self._dropped} older lines of Spark are left out)")
            for line in self._held:
                self._show_one(line)
            self._held.clear()
            self._dropped = 0

    def settle(self) -> None:
        """Wait until the lines that the JVM has printed so far are held or shown.

        The wait ends after :data:`SETTLE_SECONDS` at the latest.
        """
        end = time.monotonic() + SETTLE_SECONDS
        while self._thread.is_alive() and time.monotonic() < end:
            with self._lock:
                if self._read_end < 0 or not select.select([self._read_end], [], [], 0)[0]:
                    return
            # The thread needs the lock to read.
            time.sleep(0.01)

    def _close_write_end(self) -> None:
        if self._write_end >= 0:
            os.close(self._write_end)
            self._write_end = -1

    def _read_all(self) -> None:
        while True:
            wait = START_PATIENCE_SECONDS / 10 if self._is_starting else None
            ready, _, _ = select.select([self._read_end], [], [], wait)
            with self._lock:
                if ready and not self._read_some():
                    os.close(self._read_end)
                    self._read_end = -1
                    return
                self._remind()

    def _read_some(self) -> bool:
        """Read what is there. Return ``False`` at the end of the JVM."""
        got = os.read(self._read_end, READ_BYTES)
        *lines, self._rest = (self._rest + got).split(b"\n")
        if not got or len(self._rest) > LINE_BYTES_MAX:
            lines, self._rest = [*lines, self._rest] if self._rest else lines, b""
        for line in lines:
            self._take(line.decode("utf-8", "replace").rstrip("\r"))
        return bool(got)

    def _take(self, line: str) -> None:
        """Hold or show one line."""
        if _EVENT.match(line):
            self._in_trace = _END_OF_QUERY.match(line) is not None
        if not (self._is_starting or self._in_trace):
            self._show_one(line)
            return
        self._dropped += len(self._held) == HELD_LINES_MAX
        self._held.append(line)

    def _remind(self) -> None:
        """Show the newest held line if the start takes unusually long."""
        now = self._now()
        if not self._is_starting or now - self._reminded_at < START_PATIENCE_SECONDS:
            return
        self._reminded_at = now
        newest = next((line for line in reversed(self._held) if line.strip()), "nothing yet")
        self._show_one(
            f"Spark is still starting after {now - self._begun:.0f} s; its newest line: "
            f"{newest.strip()}"
        )

    def _show_one(self, line: str) -> None:
        # A pipe that nobody reads would stop the JVM, so the thread outlives a closed stderr.
        with contextlib.suppress(OSError, ValueError):
            self._show(line)
