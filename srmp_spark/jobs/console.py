"""Share stderr between the lines of a job and its one line of progress.

On a terminal the line of progress is rewritten in place. A line of another thread (a warning of the
job, the output of Spark's JVM) is printed above it. Any other file has no such place: a line of
progress is printed at most every :data:`LINE_SECONDS` seconds there, because a log needs few lines.
"""

from __future__ import annotations

import logging
import os
import threading
import weakref
from typing import ClassVar, TextIO

LINE_SECONDS = 5.0
"""Seconds between two lines of progress if stderr is no terminal."""
COLUMNS_DEFAULT = 80
"""Width of a terminal that does not tell its width, in columns."""


class Console:
    """One output file of a job, used by many threads. :meth:`of` returns the console of a file."""

    _of_file: ClassVar[weakref.WeakKeyDictionary[TextIO, Console]] = weakref.WeakKeyDictionary()

    def __init__(self, file: TextIO) -> None:
        self._file = weakref.ref(file)
        self.is_terminal = file.isatty()
        self._lock = threading.RLock()
        self._drawn = ""
        """The line of progress that the terminal shows; empty if it shows none."""
        self._printed_at: float | None = None

    @classmethod
    def of(cls, file: TextIO) -> Console:
        """Return the console of ``file``. All callers share it, so that no line tears another."""
        return cls._of_file.setdefault(file, cls(file))

    def say(self, text: str) -> None:
        """Print ``text`` as lines of its own. A line of progress stays below them."""
        with self._lock:
            drawn = self._drawn
            self._erase()
            self._write(text if text.endswith("\n") else f"{text}\n")
            if drawn:
                self._draw(drawn)

    def progress(self, text: str, now: float, *, is_last: bool = False) -> None:
        """Show ``text`` as the line of progress at the time ``now``, in seconds.

        A file that is no terminal gets the first line, the last one, and a line every
        :data:`LINE_SECONDS` seconds.
        """
        with self._lock:
            if self.is_terminal:
                self._draw(text)
            elif is_last or self.is_due(now):
                self._printed_at = now
                self._write(f"{text}\n")

    def is_due(self, now: float) -> bool:
        """Return whether a file that is no terminal gets a line of progress at the time ``now``."""
        return self._printed_at is None or now - self._printed_at >= LINE_SECONDS

    def end_progress(self) -> None:
        """Keep the line of progress as it is. Later output begins on a new line."""
        with self._lock:
            if self._drawn:
                self._drawn = ""
                self._write("\n")

    def _draw(self, text: str) -> None:
        # A line as wide as the terminal would wrap, and could not be rewritten.
        text = text[: self._columns() - 1]
        self._write(f"\r{text}{' ' * (len(self._drawn) - len(text))}")
        self._drawn = text

    def _erase(self) -> None:
        if self._drawn:
            self._write(f"\r{' ' * len(self._drawn)}\r")
            self._drawn = ""

    def _columns(self) -> int:
        file = self._file()
        try:
            assert file is not None
            return os.get_terminal_size(file.fileno()).columns or COLUMNS_DEFAULT
        except (OSError, ValueError):
            return COLUMNS_DEFAULT

    def _write(self, text: str) -> None:
        file = self._file()
        if file is None or file.closed:
            return
        file.write(text)
        file.flush()


class ConsoleHandler(logging.Handler):
    """Prints log records on the console of a file, above its line of progress."""

    def __init__(self, file: TextIO) -> None:
        super().__init__()
        self._file = file

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record."""
        try:
            Console.of(self._file).say(self.format(record))
        # As each handler of the standard library does.
        except Exception:
            self.handleError(record)
