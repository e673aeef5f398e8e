"""What a job has committed, kept on the driver's disk so that the same job started again need not stage it once more.

It saves time and decides nothing. The queue manager knows each row by its identity, so a file that is gone, cut short or on
another machine costs a second staging and sends nothing twice. And an entry can only be skipped, never trusted too far:

- an entry belongs to one application, destination, queue manager and *epoch*; a data directory that was put back from a
  copy has another epoch, and there everything is staged again;
- an entry holds the fingerprint of the rows; a range that has other rows now (a newer version of the table, another
  ``--where``) is staged again, and the queue manager tells old rows from new ones.

One JSON list a line, appended after each commit; a line that is cut off by a kill is no entry.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

FOLDER = "srmp-spark/jobs"
"""Below ``XDG_STATE_HOME``."""


def scope_of(*, application: str, destination: str, queue_manager: str, epoch: str) -> str:
    """What the commits of a job are kept under."""
    return hashlib.sha256(
        json.dumps([application, destination, queue_manager, epoch]).encode()
    ).hexdigest()[:32]


def default_path(scope: str) -> Path:
    """Where they are kept (XDG base directories: state)."""
    state = os.environ.get("XDG_STATE_HOME")
    home = Path(state) if state else Path.home() / ".local" / "state"
    return home / FOLDER / f"{scope}.jsonl"


class Done:
    """The entries of one scope in one file."""

    def __init__(self, path: Path | None, scope: str) -> None:
        """``None``: keep nothing. Raises :class:`OSError` when the file can be neither read nor made."""
        self._path = path
        self._scope = scope
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
                noted, batch, fingerprint = json.loads(line)
            except (ValueError, TypeError):
                continue
            if noted == scope:
                self._known.add((batch, fingerprint))

    def __contains__(self, entry: tuple[str, str]) -> bool:
        """Whether (batch, fingerprint) was committed."""
        return entry in self._known

    def add(self, batch: str, fingerprint: str) -> None:
        """It is committed. Not synced: losing the entry costs time only."""
        self._known.add((batch, fingerprint))
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self._scope, batch, fingerprint]) + "\n")
