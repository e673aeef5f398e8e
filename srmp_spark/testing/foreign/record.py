"""Keep the arrival journal: one JSON line for each event, written before any answer.

The journal is the destination's memory (events ``accepted``), the watcher's memory (``sight``,
``answered``, ``receipt``) and the evidence for the verdict. A process that is killed and started
again with the same file continues where it stopped.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class EventRecord:
    """Appends events to one file.

    An existing file at ``path`` is continued, without a last line that a kill cut off. Without
    ``path`` the file is in a temporary directory that exists as long as this object.
    """

    def __init__(self, path: Path | None = None) -> None:
        self._directory = (
            None if path else tempfile.TemporaryDirectory(prefix="foreign-destination-")
        )
        self.path = path or Path(self._directory.name if self._directory else "") / "record.jsonl"
        self.path.touch()
        _cut_torn_line(self.path)
        self._lock = threading.Lock()
        self._file = self.path.open("a", buffering=1, encoding="utf-8")

    def write(self, event: str, **values: object) -> None:
        """Append an event with its time and its values, which must be JSON values.

        The operating system has the line when the call returns, so a killed process does not lose
        it. After :meth:`close` the call does nothing.
        """
        line = json.dumps({"event": event, "at": round(time.time(), 4), **values})
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")

    def close(self) -> None:
        """Close the file, so that later events are ignored. The events can still be read.

        A temporary file is removed with this object, not by this call.
        """
        with self._lock:
            self._file.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """Yield all events, the oldest first, as :func:`events_of` does."""
        return events_of(self.path)


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the events of the journal at ``path``, the oldest first.

    An event is a dictionary with ``event`` (its kind), ``at`` (seconds since 1970) and its values.
    A last line that a kill cut off is left out. Raises :class:`ValueError` for any other damaged
    line, and :class:`OSError` if the file cannot be read.
    """
    with path.open(encoding="utf-8") as file:
        for line in file:
            # A kill may have cut off the last line.
            if line.endswith("\n"):
                yield json.loads(line)


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
