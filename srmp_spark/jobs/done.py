"""Record a job's committed batches, so that a restarted job need not stage them again.

The record is a file on the driver's disk. It saves time and decides nothing. The queue manager
knows each row by its identity. If the file is lost, cut short or on another machine, the job stages
the rows again and sends none twice. An entry of the record is used only where it is surely right:

- An entry belongs to one application, destination, queue manager and *epoch*. A data directory that
  was restored from a copy has another epoch, and there everything is staged again.
- An entry holds the fingerprint of its rows. If the range has other rows now (a newer version of
  the table, another ``--where``), the job stages the range again, and the queue manager tells old
  rows from new ones.

Each commit appends one JSON list as a line. A line that a kill cut off is ignored.
"""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

FOLDER = "srmp-spark/jobs"
"""Folder of the records below ``XDG_STATE_HOME``."""


def scope_of(*, application: str, destination: str, queue_manager: str, epoch: str) -> str:
    """Return the identifier of a job's commits in the record, 32 hexadecimal digits."""
    return hashlib.sha256(
        json.dumps([application, destination, queue_manager, epoch]).encode()
    ).hexdigest()[:32]


def default_path(scope: str) -> Path:
    """Return the file of the record for ``scope`` (XDG base directories: state)."""
    state = os.environ.get("XDG_STATE_HOME")
    home = Path(state) if state else Path.home() / ".local" / "state"
    return home / FOLDER / f"{scope}.jsonl"


class DoneBatches:
    """Keeps the committed batches of one scope in one file."""

    def __init__(self, path: Path | None, scope: str) -> None:
        """Read the file, and make it if it does not exist; ``path`` ``None`` keeps no file.

        Raises :class:`OSError` if the file can be neither read nor made.
        """
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
                # The next entry begins on a new line, after the line that a kill cut off.
                file.write("\n")
        for line in text.splitlines():
            try:
                noted, batch, fingerprint = json.loads(line)
            except (ValueError, TypeError):
                continue
            if noted == scope:
                self._known.add((batch, fingerprint))

    def __contains__(self, entry: tuple[str, str]) -> bool:
        """Return whether the pair (batch, fingerprint) was committed."""
        return entry in self._known

    def add(self, batch: str, fingerprint: str) -> None:
        """Record that ``batch`` is committed with ``fingerprint``.

        The file is not synced, because a lost entry costs only time.
        """
        self._known.add((batch, fingerprint))
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps([self._scope, batch, fingerprint]) + "\n")
