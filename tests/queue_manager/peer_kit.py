"""A sender for the tests of a running queue manager."""

from __future__ import annotations

import http.client
import itertools
from typing import NamedTuple

from srmp_spark.testing.foreign.messages import ForeignMessage, ForeignStream, post
from srmp_spark.testing.queue_manager import RunningQueueManager

QUEUES = ["private$/orders", "private$/payments:transactional"]
SOURCE = "aaaaaaaa-0000-4000-8000-000000000001"


class Reply(NamedTuple):
    """Status and ``Srmp-Reason``."""

    status: int
    reason: str | None


class Peer:
    """A sender with one connection."""

    _numbers = itertools.count(1)
    """One for all: a number that came before would be a repeat."""

    def __init__(self, running: RunningQueueManager) -> None:
        self._running = running
        self._connection: http.client.HTTPConnection | None = None

    def message(self, queue: str = "private$/orders", **values: object) -> ForeignMessage:
        number = next(self._numbers)
        host, port = self._running.endpoint
        given: dict[str, object] = {
            "to": f"http://{host}:{port}/msmq/{queue}",
            "lineage": SOURCE,
            "uniquifier": number,
            "sent_at": 1_790_000_000,
            "body": b"body %d" % number,
            "durable": True,
        }
        return ForeignMessage(**{**given, **values})

    def stream(
        self, current: int, *, ordinal: int = 1, receipts_to: str | None = None, **values: object
    ) -> ForeignMessage:
        to = (
            (receipts_to or "http://127.0.0.1:9/msmq/private$/order_queue$")
            if current == 1
            else None
        )
        stream = ForeignStream(
            guid=SOURCE, ordinal=ordinal, current=current, previous=current - 1, receipts_to=to
        )
        return self.message("private$/payments", stream=stream, priority=0, **values)

    def send(self, message: ForeignMessage, headers: dict[str, str] | None = None) -> Reply:
        written = post(message)
        if self._connection is None:
            self._connection = http.client.HTTPConnection(*self._running.endpoint, timeout=20)
        self._connection.request(
            "POST",
            written.target,
            written.content,
            {
                "Content-Type": written.content_type,
                "SOAPAction": '"MSMQMessage"',
                **(headers or {}),
            },
        )
        answer = self._connection.getresponse()
        answer.read()
        return Reply(answer.status, answer.headers.get("Srmp-Reason"))

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
