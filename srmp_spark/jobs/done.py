"""What a job has committed, kept on the driver's disk so that the same job started again need not stage it once more.

It saves time and decides nothing. The queue manager knows each row by its identity, so a file that is gone, cut short or on
another machine costs a second staging and sends nothing twice. And an entry can only be skipped, never trusted too far:

- the file belongs to one application, destination, queue manager and *epoch*; a data directory that was put back from a
  copy has another epoch, and there everything is staged again;
- an entry holds the fingerprint of the rows; a range that has other rows now (a newer version of the table, another
  ``--where``) is staged again, and the queue manager tells old rows from new ones.

One JSON object a line, appended after each commit; a line that is cut off by a kill is no entry.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

FOLDER = "srmp-spark/jobs"
"""Below ``XDG_STATE_HOME``."""


def default_path(*, application: str, destination: str, queue_manager: str, epoch: str) -> Path:
    """Where the commits of such a job are kept (XDG base directories: state)."""
    state = os.environ.get("XDG_STATE_HOME")
    home = Path(state) if state else Path.home() / ".local" / "state"
    name = hashlib.sha256(json.dumps([application, destination, queue_manager, epoch]).encode()).hexdigest()[:32]
    return home / FOLDER / f"{name}.jsonl"


class Done:
    """The entries of one file."""

    def __init__(self, path: Path | None) -> None:
        """``None``: keep nothing. Raises :class:`OSError` when the file can be neither read nor made."""
        self._path = path
        self._known: set[tuple[str, str]] = set()
        if path is None:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a+", encoding="utf-8") as file:
            file.seek(0)
            text = file.read()
            if text and not text.endswith("\n"):
                file.write("\n")  # what a kill cut off stays alone on its line
        for line in text.splitlines():
            try:
                batch, fingerprint = json.loads(line)
            except (ValueError, TypeError):
                continue
            self._known.add((batch, fingerprint))

    def __contains__(self, entry: tuple[str, str]) -> bool:
        """Whether (batch, fingerprint) was committed."""
        return entry in self._known

    def add(self, batch: str, fingerprint: str) -> None:
        """It is committed. Not synced: losing the entry costs time only."""
        self._known.add((batch, fingerprint))
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([batch, fingerprint]) + "\n")
