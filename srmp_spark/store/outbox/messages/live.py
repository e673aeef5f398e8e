"""Facts about outgoing queues that only the memory of the sender process has, as a small file.

The sender process writes the file about once a second, for the Delta state. The file contains:

    {"fence": 7, "queues": [[destination, kind, [state, held_to, …]], …]}

The file is ``<data-dir>/outbox.live.json``. The file is replaced as a whole and not synced, because
its content is no longer true after a power loss. ``fence`` says which owner of the outbox wrote the
file. A file of another owner is not read.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.private_files import replace_private
from srmp_spark.srmp.sending.outgoing_effects import QueueKey

LIVE_FILE = "outbox.live.json"


class SentRun(NamedTuple):
    """Consecutive messages that were sent equally often, at about the same times.

    These times are less than :data:`.SENT_TOGETHER_US` apart
    (:mod:`srmp_spark.queue_manager.sender.reporting.sendings`). All times are in microseconds since
    1970, UTC.
    """

    first: int
    """Serial of the first message."""
    last: int
    attempts: int
    first_sent_at: int
    """Time of the first attempt, in microseconds since 1970, UTC."""
    last_sent_at: int


class LiveQueue(NamedTuple):
    """The state of one outgoing queue that only the memory of the sender process has.

    ``unacknowledged`` and ``unread`` are the counts of messages of a stream; 0 for a plain queue.
    """

    state: str
    """The state as ``status`` shows it."""
    held_to: int
    """Serial up to which all messages may be at the peer."""
    doubtful: tuple[int, ...] = ()
    """Serials above ``held_to`` of messages that may be at the peer, or are in flight."""
    unacknowledged: int = 0
    unread: int = 0
    resend_at: int | None = None
    """Time of the next attempt or resend, in microseconds since 1970, UTC."""
    failed: tuple[int, int] | None = None
    """Serial and HTTP status of the last answer that was not 200."""
    sent: tuple[SentRun, ...] = ()
    """Runs of messages that were sent, ascending. A message that was never sent is in no run."""


def pack_sent(runs: Sequence[SentRun], first: int, last: int) -> str | None:
    """Return the send history of the serials ``first`` to ``last`` in stored form.

    Return ``None`` if no run has any of these serials.
    """
    found = [run._replace(first=max(run.first, first), last=min(run.last, last)) for run in runs]
    found = [run for run in found if run.first <= run.last]
    return json.dumps(found) if found else None


def unpack_sent(text: str | None) -> tuple[SentRun, ...]:
    """Return the runs from the stored form that :func:`pack_sent` returned; empty for ``None``."""
    return tuple(SentRun(*run) for run in json.loads(text or "[]"))


def write_live(directory: Path, fence: int, queues: Mapping[QueueKey, LiveQueue]) -> None:
    """Replace the file :data:`LIVE_FILE` in ``directory`` with the state of ``queues``.

    ``fence`` is the number of the present owner of the outbox. The file is not synced. Raises
    :class:`OSError` if the file cannot be written.
    """
    found = [[*key, queue] for key, queue in queues.items()]
    temporary = directory / f".{LIVE_FILE}"
    with os.fdopen(replace_private(temporary), "w", encoding="utf-8") as file:
        json.dump({"fence": fence, "queues": found}, file)
    temporary.replace(directory / LIVE_FILE)


def read_live(directory: Path, fence: int) -> dict[QueueKey, LiveQueue]:
    """Return the state of each outgoing queue that the owner ``fence`` of the outbox wrote last.

    Return an empty mapping if this owner has written no file yet, or the file is incomplete.
    """
    # A file that a power loss cut short belongs to no living owner.
    with contextlib.suppress(FileNotFoundError, ValueError):
        found: dict[str, Any] = json.loads((directory / LIVE_FILE).read_bytes())
        if found["fence"] == fence:
            return {
                QueueKey(destination, kind): _queue(*fields)
                for destination, kind, fields in found["queues"]
            }
    return {}


def _queue(
    state: str,
    held_to: int,
    doubtful: list[int],
    unacknowledged: int,
    unread: int,
    resend_at: int | None,
    failed: list[int] | None,
    sent: list[list[int]],
) -> LiveQueue:
    runs = tuple(SentRun(*run) for run in sent)
    pair = None if failed is None else (failed[0], failed[1])
    return LiveQueue(state, held_to, tuple(doubtful), unacknowledged, unread, resend_at, pair, runs)
