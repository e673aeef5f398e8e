"""What the store's tests share: a loop that is a list, records, a directory with a queue."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from srmp_spark.message import Arrival, Message
from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.journal import Journal
from srmp_spark.store.tables import queues

T = TypeVar("T")
QUEUE = "private$/orders"
SENDER = "caf195ea-615c-4264-ae08-11a4e60194c0"
NOW = 1_800_000_000_000_000
WAIT_S_MAX = 10.0


class HandLoop:
    """Turns of a loop, taken by hand."""

    def __init__(self) -> None:
        self._calls: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._woken = threading.Event()

    def call_soon(self, callback: Callable[..., object], *args: Any) -> None:
        self._calls.append((callback, args))
        self._woken.set()

    call_soon_threadsafe = call_soon

    def turn(self) -> None:
        """Everything that is due now, not what that makes due."""
        self._woken.clear()
        for _ in range(len(self._calls)):
            callback, args = self._calls.popleft()
            callback(*args)

    def until(self, done: Callable[[], object]) -> None:
        deadline = time.monotonic() + WAIT_S_MAX
        while not done():
            assert time.monotonic() < deadline, "it did not happen"
            self._woken.wait(0.05)
            self.turn()


def record(n: int, size: int = 300, at: int = NOW) -> Record:
    head = b"POST /msmq/private$/orders HTTP/1.1\r\n\r\n"
    return Record(
        Arrival(at + n, "http", "192.0.2.1:4711", None),
        head + (b"%08d" % n) * (size // 8),
        len(head),
    )


def srmp_record(n: int, size: int = 300, at: int = NOW) -> Record:
    """A record that decodes: its body is its number, repeated."""
    sent = Message(
        "http://machine2/msmq/private$/orders", "MSMQ:order", SENDER, n, has_msmq=True, source_qm=SENDER, sent_at=NOW,
        expires_at=NOW, time_to_reach_queue=NOW, body=(b"%08d" % n) * (size // 8),
    )  # fmt: skip
    content_type, content = encode(sent, boundary="MSMQ - SOAP boundary, 53287")
    head = http_head("/msmq/private$/orders", "machine2", content_type, len(content))
    return Record(Arrival(at + n, "http", "192.0.2.1:4711", None), head + content, len(head))


class Store:
    """A directory, its journal and one queue, driven by hand."""

    def __init__(self, path: Path, **journal: Any) -> None:
        self.loop = HandLoop()
        self.directory = DataDirectory.open(path, now=NOW)
        self.journal = Journal(self.directory, self.loop, **journal)
        self.call(lambda transaction: queues.create(transaction, QUEUE, transactional=False))
        self.queue_id: int = self.directory.writer.execute(
            "SELECT id FROM queues WHERE name = ?", (QUEUE,)
        ).fetchone()[0]
        self.sequence = self.journal._queues[QUEUE][1]

    def call(self, function: Callable[[Transaction], T]) -> T:
        results: list[tuple[Any, BaseException | None]] = []
        self.journal.call(function, lambda result, error: results.append((result, error)))
        self.loop.until(lambda: results)
        self.settle()
        result, error = results[0]
        if error is not None:
            raise error
        return result  # type: ignore[no-any-return]

    def put(
        self, rows: int, *, together: int = 1, size: int = 300, at: int = NOW, make: Any = record
    ) -> None:
        """Accept ``rows`` messages, ``together`` of them in each commit."""
        proofs: list[object] = []
        for done in range(0, rows, together):
            for _ in range(min(together, rows - done)):
                self.sequence += 1
                self.journal.submit(
                    (QUEUE, self.sequence, make(self.sequence, size, at)), proofs.append
                )
            wanted = min(rows, done + together)
            self.loop.until(lambda wanted=wanted: len(proofs) == wanted)
        self.settle()

    def settle(self) -> None:
        self.loop.until(lambda: self.journal._state.name in ("IDLE", "FAILED"))

    def close(self) -> None:
        self.settle()
        self.journal.close()
        self.directory.close()
