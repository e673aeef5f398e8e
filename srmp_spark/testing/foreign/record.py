"""The arrival journal: one JSON line for each thing that happened, written before anything is answered.

It is the destination's memory (``accepted``), the watcher's memory (``sight``, ``answered``, ``receipt``) and the evidence for
the verdict. A process that is killed and started again with the same file goes on where it was.
"""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class Record:
    """An append-only file of events. Without a path it lives in a temporary directory as long as this object."""

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
        """Append an event; it is the kernel's when this returns, so a killed process does not lose it."""
        line = json.dumps({"event": event, "at": round(time.time(), 4), **values})
        with self._lock:
            if not self._file.closed:
                self._file.write(line + "\n")

    def close(self) -> None:
        """No more events. A temporary file goes away with this object, not here, so that it can still be judged."""
        with self._lock:
            self._file.close()

    def events(self) -> Iterator[dict[str, Any]]:
        """All events, the oldest first."""
        return events_of(self.path)


def events_of(path: Path) -> Iterator[dict[str, Any]]:
    """The events of a record. Raises :class:`ValueError` for a damaged line that is not the last."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            if line.endswith("\n"):  # the last line may be cut off by a kill
                yield json.loads(line)


def _cut_torn_line(path: Path) -> None:
    data = path.read_bytes()
    if data and not data.endswith(b"\n"):
        path.write_bytes(data[: data.rfind(b"\n") + 1])
