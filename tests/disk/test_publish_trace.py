"""T12 of the reliability report, its first half: what a publication calls, traced in a session that seals, publishes and trims.

deltalake commits to a folder without one sync, so each file and each folder of a commit is synced by us, and nothing is deleted
from the log before. The second half, commits and data files that are damaged, is in ``delta/test_damage.py``; what survives a
power loss between any two of these calls, in ``test_power_loss.py``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from disk_sweep import session
from disk_trace import (
    Created,
    Event,
    Linked,
    Removed,
    Renamed,
    SyncBegins,
    SyncEnds,
    Wrote,
    needs_strace,
)

COMMIT = re.compile(r"/state/(?P<table>\w+)/_delta_log/\d{20}\.json$")
MESSAGES = 130
"""Two deletions of the log, the second after the restart in the middle."""


class Publications:
    """Follows a trace; ``faults`` says what was not synced when it had to be."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self.commits = 0
        self.trims = 0
        self.file_syncs = 0
        self.folder_syncs = 0
        self._owed: set[str] = set()
        """Files with bytes, and folders with names, that no sync has covered yet."""
        self._covers: dict[int, set[str]] = {}

    def follow(self, events: Iterable[Event]) -> Publications:
        for event in events:
            self._step(event)
        return self

    def _step(self, event: Event) -> None:
        if isinstance(event, SyncBegins):
            self._covers[event.number] = {event.path} & self._owed
        elif isinstance(event, SyncEnds):
            done = self._covers.pop(event.number)
            self._owed -= done
            if done and "/_delta_log" in event.path:
                self.file_syncs += event.path.endswith(".json")
                self.folder_syncs += event.path.endswith("_delta_log")
        elif isinstance(event, Wrote | Created):
            self._changed(event.path, names=isinstance(event, Created))
        elif isinstance(event, Linked | Renamed):
            if event.path in self._owed:
                self._owed.add(event.name)
                self._owed.discard(event.path)
            self._changed(event.name, names=True)
        elif isinstance(event, Removed) and "/data/segments/" in event.path:
            self.trims += 1
            self._demand(f"{event.path} was deleted", lambda path: True)

    def _changed(self, path: str, *, names: bool) -> None:
        if "/state/" not in path or path.endswith(".tmp"):
            return
        commit = COMMIT.search(path)
        if commit is not None and names:
            self.commits += 1
            table = f"/state/{commit['table']}/"
            self._demand(
                f"{path} was committed", lambda owed: owed.endswith(".parquet") and table in owed
            )
        self._owed.add(path)
        if names:
            self._owed.add(str(Path(path).parent))

    def _demand(self, when: str, which: object) -> None:
        owed = sorted(path for path in self._owed if which(path))  # type: ignore[operator]
        if owed:
            self.faults.append(f"{when} while these were not synced: {', '.join(owed)}")


@pytest.fixture(scope="module")
def events(tmp_path_factory: pytest.TempPathFactory) -> Sequence[Event]:
    return session("seal", tmp_path_factory.mktemp("trace"), MESSAGES).events


@needs_strace
def test_a_commit_is_synced_after_its_data_and_before_anything_is_deleted(
    events: Sequence[Event],
) -> None:
    found = Publications().follow(events)
    print(
        f"{found.commits} commits, {found.file_syncs} syncs of their files, "
        f"{found.folder_syncs} of their folders"
    )
    assert found.faults == []
    assert found.trims >= 1
    assert found.commits >= 5
    assert found.file_syncs >= found.commits
    assert found.folder_syncs >= 1


@needs_strace
@pytest.mark.parametrize("missing", [r"_delta_log$", r"_delta_log/\d{20}\.json$", r"\.parquet$"])
def test_a_missing_sync_is_seen(events: Sequence[Event], missing: str) -> None:
    """The self-check: the same trace without the syncs of folders, of commits, or of data files."""
    left = [
        event
        for event in events
        if not (isinstance(event, SyncBegins | SyncEnds) and re.search(missing, event.path))
    ]
    assert len(left) < len(events)
    assert Publications().follow(left).faults
