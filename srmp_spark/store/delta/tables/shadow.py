"""Keep copies of the newest Delta commits in the data directory, and repair the table's log.

The repair undoes what a power loss did to the log. A lost commit is silent: if the last commit file
is cut to nothing, a table opens without error, some rows short, and accepts the next append
(measured). So the publisher keeps the exact bytes of the commits that it has synced:

    <data-dir>/delta/<table>/00000000000000000041.json   the bytes of the file in _delta_log
    <data-dir>/delta/<table>/table.json                  which table that is

At start each copy is compared with the log. A commit that is cut short or missing is written again
from its copy, so that the table's history is what readers saw. A damaged commit that was never
copied had not been reported. Such a commit is replaced by a commit without actions, and its rows
are published again. (Readers may have seen its number already, so other content must not take the
number.) Only local tables have a shadow; object stores put files durably.
"""

from __future__ import annotations

import json
import logging
import re
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.store.database.durable import (
    SHARED_FILE_MODE,
    make_directory,
    sync_directory,
    sync_file,
    write_durably,
)
from srmp_spark.store.delta.tables.checkpoints import DeltaCheckpoints

SHADOW_COMMITS_MAX = 200
"""Copies kept per table, a few KB each: twice the distance of two checkpoints.

Older copies are deleted, because older damage does not come from a power loss.
"""
SHADOW_COMMITS_MIN = 10
"""Number of newest copies that are kept although a checkpoint already covers them.

Streaming readers still read those commits.
"""
ACTIONS_KEY = "srmp.actions"
"""Key in the information of a commit: how many actions follow.

The number reveals a file that was cut at the end of a line.
"""

_COMMIT = re.compile(r"(\d{20})\.json")
_log = logging.getLogger(__name__)


class ShadowRepair(NamedTuple):
    """The changes that :meth:`Shadow.repair` made, as commit numbers.

    ``rewritten`` commits were written again from their copies. ``voided`` commits were replaced by
    commits without actions. ``checkpoints_dropped`` are the versions of deleted checkpoints.
    """

    rewritten: tuple[int, ...] = ()
    voided: tuple[int, ...] = ()
    checkpoints_dropped: tuple[int, ...] = ()


def commit_name(version: int) -> str:
    """Return the name of a commit's file in ``_delta_log``."""
    return f"{version:020d}.json"


def is_whole(data: bytes, *, creates: bool = False) -> bool:
    """Return whether the content of a commit file is complete, as far as that can be seen.

    Every line must be a JSON object, and the number of actions must be that under ACTIONS_KEY, if
    it is there. ``creates`` means that it is the first commit of a table, which must have its
    metadata.
    """
    if not data.strip():
        return False
    try:
        actions = [json.loads(line) for line in data.splitlines() if line.strip()]
    except ValueError:
        # The file was cut inside a line, or holds zeros.
        return False
    if not all(isinstance(action, dict) for action in actions):
        return False
    if creates and not any("metaData" in action for action in actions):
        return False
    said: Any = next(
        (
            a["commitInfo"].get(ACTIONS_KEY)
            for a in actions
            if isinstance(a.get("commitInfo"), dict)
        ),
        None,
    )
    return said is None or len(actions) - 1 == int(said)


class Shadow:
    """Keeps the copies of one table's commits, and repairs the table's log with them.

    ``folder`` holds the copies, and ``log`` is the table's ``_delta_log``.
    """

    def __init__(self, folder: Path, log: Path) -> None:
        self._folder = folder
        self._table_log = log
        self._versions = sorted(self._read_names(folder))
        self._checkpoints = DeltaCheckpoints(folder, log)

    def __repr__(self) -> str:
        span = f"{self._versions[0]}..{self._versions[-1]}" if self._versions else "empty"
        return f"<Shadow {self._folder.name} {span}>"

    @property
    def last(self) -> int:
        """Return the number of the newest commit that is known to be synced, or −1."""
        return self._versions[-1] if self._versions else -1

    def record(self, newest: int) -> None:
        """Sync the commits up to ``newest`` in the table's log, and keep copies of their bytes.

        ``newest`` is the number of a commit. At most SHADOW_COMMITS_MAX copies are kept. After this
        call the rows of the commits may be reported as published. Raises :class:`OSError` if the
        disk refuses.
        """
        if newest <= self.last:
            return
        first = max(self.last + 1, newest - SHADOW_COMMITS_MAX + 1)
        self._keep_identity()
        added = []
        for version in range(first, newest + 1):
            path = self._table_log / commit_name(version)
            if not path.exists():
                # Another writer has cleaned the commit up already.
                continue
            sync_file(path)
            added.append((version, path.read_bytes()))
        sync_directory(self._table_log)
        sync_directory(self._table_log.parent)
        for version, data in added:
            write_durably(self._folder / commit_name(version), data)
            self._versions.append(version)
        self._drop(self._versions[:-SHADOW_COMMITS_MAX])

    def _covered_by_checkpoint(self, version: int) -> None:
        recent = self._versions[-SHADOW_COMMITS_MIN:]
        self._drop([v for v in self._versions if v < version and v not in recent])

    def checkpoint_begins(self, version: int) -> None:
        """Store the note that a checkpoint of ``version`` is about to be written.

        Raises :class:`OSError` if the note cannot be written.
        """
        self._checkpoints.begins(version)

    def checkpoint_ended(self, version: int) -> bool:
        """Sync the checkpoint of ``version``, and delete copies of commits that it covers.

        The newest SHADOW_COMMITS_MIN copies stay. Return ``True``, or ``False`` if the checkpoint
        was dropped meanwhile; then all copies stay.
        """
        if not self._checkpoints.ended(version):
            return False
        self._covered_by_checkpoint(version)
        return True

    def repair(self) -> ShadowRepair:
        """Repair the table's log with the copies, as the module explains, and return the changes.

        Changes are logged. Call the method before the table is opened. If another table lies in the
        folder, the copies are deleted. Raises :class:`OSError` if the disk refuses.
        """
        if not self._read_names(self._table_log) and not self._checkpoints.versions():
            self._forget("the table is new")
            return ShadowRepair()
        if self._versions and not self._same_table():
            self._forget("another table lies there now")
        dropped = self._checkpoints.repair()
        checkpoint = max(self._checkpoints.versions(), default=-1)
        rewritten = []
        for version in list(self._versions):
            path = self._table_log / commit_name(version)
            copy = (self._folder / commit_name(version)).read_bytes()
            if not path.exists():
                if version < checkpoint:
                    # The commit was cleaned up after the retention time.
                    continue
            else:
                found = path.read_bytes()
                if found == copy:
                    continue
                if is_whole(found):
                    self._drop([v for v in self._versions if v >= version])
                    _log.warning(
                        "delta.diverged commit=%s: another table content was put back", path
                    )
                    break
            write_durably(path, copy, mode=SHARED_FILE_MODE)
            rewritten.append(version)
        voided = self._void_unrecorded(max(self.last, checkpoint))
        if rewritten or voided or dropped:
            _log.warning(
                "delta.repaired table=%s rewritten=%s voided=%s checkpoints_dropped=%s",
                self._table_log.parent,
                rewritten,
                voided,
                dropped,
            )
        return ShadowRepair(tuple(rewritten), tuple(voided), tuple(dropped))

    def _void_unrecorded(self, known: int) -> list[int]:
        voided = []
        present = self._read_names(self._table_log)
        for version in sorted(v for v in present if v > known):
            path = self._table_log / commit_name(version)
            if is_whole(path.read_bytes(), creates=version == 0):
                continue
            if version == 0:
                # The creation of this table was never completed.
                path.unlink()
                sync_directory(self._table_log)
            else:
                information = {
                    "timestamp": time.time_ns() // 1_000_000,
                    "operation": "REPAIR",
                    ACTIONS_KEY: "0",
                }
                void = json.dumps({"commitInfo": information}).encode() + b"\n"
                write_durably(path, void, mode=SHARED_FILE_MODE)
            voided.append(version)
        return voided

    def _same_table(self) -> bool:
        try:
            noted = json.loads((self._folder / "table.json").read_bytes())
        except (FileNotFoundError, ValueError):
            return False
        if noted.get("log") != str(self._table_log):
            return False
        found = self._identity()
        return found is None or noted.get("id") is None or noted["id"] == found

    def _identity(self) -> str | None:
        """Return the table's Delta id from its first commit, or ``None`` if it is unknown.

        The id is known only while that commit exists and is whole.
        """
        first = self._table_log / commit_name(0)
        if not first.exists():
            return None
        for line in first.read_bytes().splitlines():
            try:
                action = json.loads(line)
            except ValueError:
                return None
            if "metaData" in action:
                return str(action["metaData"]["id"])
        return None

    def _keep_identity(self) -> None:
        if self._versions and (self._folder / "table.json").exists():
            return
        make_directory(self._folder)
        write_durably(
            self._folder / "table.json",
            json.dumps({"log": str(self._table_log), "id": self._identity()}).encode(),
        )

    def _forget(self, reason: str) -> None:
        if self._folder.exists():
            _log.warning("delta.shadow_dropped folder=%s: %s", self._folder, reason)
            shutil.rmtree(self._folder)
        self._versions = []

    def _drop(self, versions: list[int]) -> None:
        for version in versions:
            (self._folder / commit_name(version)).unlink(missing_ok=True)
        gone = set(versions)
        self._versions = [v for v in self._versions if v not in gone]

    @staticmethod
    def _read_names(folder: Path) -> list[int]:
        if not folder.is_dir():
            return []
        return sorted(
            int(match[1]) for path in folder.iterdir() if (match := _COMMIT.fullmatch(path.name))
        )
