"""What only the memory of the sender process knows of its queues, for the Delta state: a small file, about once a second.

    <data-dir>/outbox.live.json    {"fence": 7, "queues": [[destination, kind, [state, held_to, …]], …]}

It is replaced as a whole and not synced: after a power loss nothing in it is true any more. ``fence`` says whose memory it
was; what another owner of the outbox left is not read.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.private_files import replace_private
from srmp_spark.srmp.outgoing_effects import QueueKey

LIVE_FILE = "outbox.live.json"


class SentRun(NamedTuple):
    """Messages that follow each other and were sent equally often, at about the same time (SENT_TOGETHER_US)."""

    first: int
    """Serial."""
    last: int
    attempts: int
    first_sent_at: int
    """Microseconds since 1970, UTC."""
    last_sent_at: int


class LiveQueue(NamedTuple):
    """One outgoing queue."""

    state: str
    """As ``status`` shows it."""
    held_to: int
    """All up to here may be at the peer."""
    doubtful: tuple[int, ...] = ()
    """Serials above ``held_to`` that may be at the peer, or are on their way."""
    unacknowledged: int = 0
    unread: int = 0
    resend_at: int | None = None
    """When what is not acknowledged goes again, or an attempt is made; microseconds since 1970, UTC."""
    failed: tuple[int, int] | None = None
    """Serial and HTTP status of what was answered last with anything but 200."""
    sent: tuple[SentRun, ...] = ()
    """Ascending; what never left is in none of them."""


def pack_sent(runs: Sequence[SentRun], first: int, last: int) -> str | None:
    """What of the runs is about the serials ``first`` to ``last``, to be stored; ``None`` if nothing."""
    found = [run._replace(first=max(run.first, first), last=min(run.last, last)) for run in runs]
    found = [run for run in found if run.first <= run.last]
    return json.dumps(found) if found else None


def unpack_sent(text: str | None) -> tuple[SentRun, ...]:
    """Back from it."""
    return tuple(SentRun(*run) for run in json.loads(text or "[]"))


def write_live(directory: Path, fence: int, queues: Mapping[QueueKey, LiveQueue]) -> None:
    """Replace the file. Raises :class:`OSError`."""
    found = [[*key, queue] for key, queue in queues.items()]
    temporary = directory / f".{LIVE_FILE}"
    with os.fdopen(replace_private(temporary), "w", encoding="utf-8") as file:
        json.dump({"fence": fence, "queues": found}, file)
    temporary.replace(directory / LIVE_FILE)


def read_live(directory: Path, fence: int) -> dict[QueueKey, LiveQueue]:
    """What owner ``fence`` wrote last; nothing if it wrote nothing yet."""
    with contextlib.suppress(
        FileNotFoundError, ValueError
    ):  # cut short by a power loss: then it is of no owner that lives
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
