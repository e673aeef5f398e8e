"""A queue manager that sends, a peer that takes, and what stands between them."""

from __future__ import annotations

import contextlib
import io
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests

from srmp_spark.testing.queue_manager import RunningQueueManager

WAIT_S = 30.0
"""Longest wait for anything, on a busy machine."""


def arrow(rows: Sequence[Mapping[str, Any]], metadata: Mapping[str, str] | None = None) -> bytes:
    """Rows as the Arrow stream of a stage."""
    table = pa.Table.from_pylist([dict(row) for row in rows]).replace_schema_metadata(
        dict(metadata or {})
    )
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def post(url: str, **keywords: Any) -> Any:
    """The JSON of an answer, which must be a 200."""
    answer = requests.post(url, timeout=60, **keywords)
    assert answer.status_code == 200, answer.text
    return answer.json()


def commit(
    api: str, batch: str, rows: Sequence[Mapping[str, Any]], application: str = "app"
) -> dict[str, int]:
    """Stage and commit, as a sink does with one task."""
    base = f"{api}/v1/outbox/{application}/{batch}"
    staged = post(f"{base}/stage?partition=0&attempt=0", data=arrow(rows))
    assert staged["rows"] == len(rows)
    answer: dict[str, int] = post(f"{base}/commit", json={"stages": [staged["stage"]]})
    return answer


def outgoing(
    running: RunningQueueManager, destination: str, kind: str = "stream"
) -> dict[str, Any]:
    """The entry of ``status.outgoing``; empty if there is none."""
    return _entry(requests.get(f"{running.api}/v1/status", timeout=60).json(), destination, kind)


def _entry(status: dict[str, Any], destination: str, kind: str) -> dict[str, Any]:
    return next(
        (
            each
            for each in status["outgoing"]
            if each["destination"] == destination and each["kind"] == kind
        ),
        {},
    )


def is_seen_since(status: Mapping[str, Any], moment: datetime) -> bool:
    """Whether ``status.outgoing`` is what a sender process that lives said after ``moment``."""
    seen_at = status["outgoing_seen_at"]
    return seen_at is not None and datetime.fromisoformat(seen_at.replace("Z", "+00:00")) >= moment


def until(condition: Callable[[], Any], what: str, seconds: float = WAIT_S) -> Any:
    """What ``condition`` gives when it is true for the first time."""
    end = time.monotonic() + seconds
    while True:
        found = condition()
        if found:
            return found
        assert time.monotonic() < end, f"in {seconds} s: {what}"
        time.sleep(0.02)


def acknowledged(
    running: RunningQueueManager, destination: str, seconds: float = WAIT_S
) -> dict[str, Any]:
    """Wait until the peer has acknowledged everything; what was seen before this call is no proof."""
    called = datetime.now(timezone.utc)

    def done() -> dict[str, Any] | None:
        status = requests.get(f"{running.api}/v1/status", timeout=60).json()
        entry = _entry(status, destination, "stream")
        if not is_seen_since(status, called):
            return None
        return (
            entry
            if entry and entry["queued"] == 0 and entry["awaiting_stream_receipt"] == 0
            else None
        )

    found: dict[str, Any] = until(done, "everything is acknowledged", seconds)
    return found


def bodies(start: int, end: int) -> list[bytes]:
    """What the rows of a test hold."""
    return [b"row %d" % n for n in range(start, end)]


def rows_to(destination: str, found: Sequence[bytes], **columns: Any) -> list[dict[str, Any]]:
    """Rows for one destination."""
    return [{"body": body, "destination": destination, **columns} for body in found]


def sender_of(running: RunningQueueManager) -> int | None:
    """The process id of its sender process."""
    for pid in Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split():
        with contextlib.suppress(OSError):  # one that ended while we look
            if (
                b"srmp_spark.queue_manager.sender.process"
                in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                return int(pid)
    return None
