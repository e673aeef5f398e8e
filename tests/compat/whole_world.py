"""Where everything of the whole archive lives, and small senders: for the script that makes it and for the test that opens it.

The addresses are written in the archive (destinations, subscriptions, addresses for receipts), so they are the same for all
time: fixed ports of loopback below those that the kernel gives out. One run at a time has them (:func:`addresses`).
This file is run by the code of the archive's version and by the present one.
"""

from __future__ import annotations

import contextlib
import http.client
import io
import json
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any, NamedTuple

import pyarrow as pa

from srmp_spark.client.outbox_batches import OutboxClient
from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.testing.foreign.messages import (
    ForeignMessage,
    ForeignReceipt,
    ForeignStream,
    post,
    read_receipt,
)

HERE, FAR = "127.0.0.1", "127.88.0.1"
"""Our host, and one that is none of ours."""
LISTEN, API, RPC, PGM = f"{HERE}:28401", f"{HERE}:28402", f"{HERE}:28403", 28409
LISTEN_WSRM = f"{HERE}:28404"
"""Version 0.1 served reliable sessions at LISTEN; later ones have a port of their own."""
REMOTE_LISTEN, REMOTE_API, REMOTE_RPC = f"{HERE}:28411", f"{HERE}:28412", f"{HERE}:28413"
"""Of the second queue manager, which the first one subscribes to."""
FOREIGN_PORT, PEER_PORT, SERVICE_PORT, RECEIPTS_PORT, CALLBACKS_PORT = (
    28414,
    28421,
    28431,
    28441,
    28442,
)
GROUP = "239.192.88.1:8001"
TOKEN, READER = (
    "a-token-of-version-0.1",
    "a-reader-of-version-0.1",
)  # of an archive, not of a machine
PASSWORD = "a password of 0.1"

ORDERS, PAYMENTS, ASKS, REPORTS = (
    "private$/orders",
    "private$/payments",
    "private$/asks",
    "private$/reports",
)
RETRY, DEAD, DEAD_LATER, PRICES = (
    "private$/orders;retry",
    "private$/dead",
    "private$/dead-later",
    "private$/prices",
)
SESSIONS, WRITERS, LEDGER = "private$/sessions", "private$/writers", "private$/ledger"
SPARK_A, SPARK_B, LATEST, UNPLANNED = (
    "private$/spark-a",
    "private$/spark-b",
    "private$/latest",
    "private$/unplanned",
)
STOCK, TASKS, MISSING = "private$/stock", "private$/tasks", "private$/missing"
"""Queues that subscriptions fill: a copy, a move, and a move from a machine that went away between removal and answer."""
PEER = f"http://{FAR}:{PEER_PORT}/msmq/private$/"
"""Before a queue of the destination."""
RECEIPTS = f"http://{HERE}:{RECEIPTS_PORT}/msmq/private$/order_queue$"
ASKED: dict[str, Any] = {
    "commitment_receipt_to": RECEIPTS,
    "positive_only": True,
    "negative_only": True,
}
"""Of a message whose sender wants to be told of its end, whatever that is."""
AHEAD = ((2_101, 2_103), (2_105, 2_105), (2_108, 2_108))
"""What ``default`` has received of ORDERS out of turn: marks, and a row that was moved to RETRY."""
SERVICE = f"wsrm:http://{HERE}:{SERVICE_PORT}/Orders.svc"
WAIT_SECONDS = 60.0


@contextlib.contextmanager
def addresses() -> Iterator[None]:
    """Wait until no other run has the addresses, then have them."""
    with socket.socket(
        socket.AF_UNIX
    ) as guard:  # a name of the kernel's: gone with this process, however it ends

        def has_them() -> bool:
            try:
                guard.bind("\0srmp-spark addresses of the whole archive")
            except OSError:
                return False
            return True

        until(has_them, "another run has the addresses of the whole archive", seconds=240.0)
        yield


def until(condition: Callable[[], Any], what: str, seconds: float = WAIT_SECONDS) -> Any:
    """Return what ``condition`` gives when it is true for the first time."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"not within {seconds} s: {what}"
        time.sleep(0.05)
    return found


def client(token: str = TOKEN) -> OutgoingClient:
    """Return a client of the queue manager's API."""
    return OutgoingClient(f"http://{API}", token, retry_seconds=WAIT_SECONDS)


def remote_client() -> OutgoingClient:
    """Return a client of the second one's API."""
    return OutgoingClient(f"http://{REMOTE_API}", retry_seconds=WAIT_SECONDS)


def commit(
    application: str, batch: str, rows: Sequence[Mapping[str, Any]], **metadata: str
) -> tuple[int, int]:
    """Stage and commit as a sink with one task does; return (new, known)."""
    outbox = OutboxClient(f"http://{API}", TOKEN)
    stage = stage_rows(application, batch, rows, **metadata)
    answer = outbox.commit(application, batch, [stage])
    return answer.new, answer.known


def stage_rows(
    application: str, batch: str, rows: Sequence[Mapping[str, Any]], **metadata: str
) -> str:
    """Stage rows and commit nothing; return the name of the stage."""
    named = {f"srmp.{name}": value for name, value in metadata.items()}
    columns = dict.fromkeys(
        name for row in rows for name in row
    )  # pyarrow looks at the first row alone
    table = pa.Table.from_pylist(
        [{name: row.get(name) for name in columns} for row in rows]
    ).replace_schema_metadata(named)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    outbox = OutboxClient(f"http://{API}", TOKEN)
    return outbox.stage(
        application, batch, partition=0, attempt=0, content=lambda: iter([sink.getvalue()])
    ).stage


def rows_to(queue: str, bodies: Sequence[str], **columns: Any) -> list[dict[str, Any]]:
    """Return rows for a queue of the destination, or for another URL."""
    destination = queue if ":" in queue else PEER + queue
    return [{"body": body.encode(), "destination": destination, **columns} for body in bodies]


def first_batch() -> list[dict[str, Any]]:
    """Return batch 1 of the application ``app``."""
    rows = rows_to("stream-a", [f"a {n}" for n in range(5)], journal=True)
    rows += rows_to("plain", [f"plain {n}" for n in range(3)], delivery="recoverable", journal=True)
    return rows + rows_to("stream-a", ["keyed"], key="order 1")


def placed() -> list[dict[str, Any]]:
    """Return rows that are known by the position of their source."""
    return [
        {**row, "queue_manager": sender(90), "epoch": "e", "queue": ORDERS, "sequence": n}
        for n, row in enumerate(rows_to("stream-p", ["p 1", "p 2", "p 3"]), 1)
    ]


def rows_of(
    queue: str, epoch: str, after: int | None = None, *, envelope: bool = True
) -> pa.Table | None:
    """Return everything that a reader gets of an epoch of a queue; ``None``: nothing."""
    there = client()
    after = there.range(queue, epoch=epoch).first - 1 if after is None else after
    end = there.range(queue, epoch=epoch, after=after).end
    if end <= after:
        return None
    with there.rows(queue, epoch=epoch, after=after, to=end, envelope=envelope) as stream:
        return pa.ipc.open_stream(stream.as_file()).read_all()


def outgoing(destination: str, kind: str = "stream") -> dict[str, Any]:
    """Return the entry of ``status.outgoing``; empty: none."""
    found = client().status()["outgoing"]
    return next(
        (each for each in found if each["destination"] == destination and each["kind"] == kind), {}
    )


class Answer(NamedTuple):
    """Of the SRMP port."""

    status: int
    reason: str | None


def send(message: ForeignMessage, headers: Mapping[str, str] = {}) -> Answer:
    """Post one message to the queue manager, whatever host its ``<to>`` names."""
    written = post(message)
    host, _, port = LISTEN.partition(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=WAIT_SECONDS)
    fields = {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"', **headers}
    connection.request("POST", written.target, written.content, fields)
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return Answer(answer.status, answer.headers.get("Srmp-Reason"))


def sender(number: int) -> str:
    """Return the GUID of a queue manager that sends."""
    return f"aaaaaaaa-0000-4000-8000-{number:012d}"


def message(queue: str, source: int, number: int, **values: Any) -> ForeignMessage:
    """Return the message ``number`` of sender ``source``, the same one each time."""
    given: dict[str, Any] = {
        "to": f"http://{LISTEN}/msmq/{queue}", "lineage": sender(source), "uniquifier": number, "sent_at": 1_790_000_000,
        "label": f"{source}/{number}", "body": b"body %d of %d" % (number, source), "durable": True,
    }  # fmt: skip
    return ForeignMessage(**{**given, **values})


def in_stream(source: int, current: int, *, previous: int | None = None, ordinal: int = 1, queue: str = PAYMENTS,
              **values: Any) -> ForeignMessage:  # fmt: skip
    """Return position ``current`` of the stream of a sender."""
    place = ForeignStream(
        guid=sender(source), ordinal=ordinal, current=current, previous=current - 1 if previous is None else previous,
        receipts_to=RECEIPTS if current == 1 else None,
    )  # fmt: skip
    return message(queue, source, 100 * ordinal + current, stream=place, priority=0, **values)


class Receipts:
    """The order queue of all senders: an HTTP server that keeps each receipt."""

    def __init__(self) -> None:
        self.receipts: list[ForeignReceipt] = []
        came = self.receipts

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:  # http.server's name
                text = self.rfile.read(int(self.headers["Content-Length"])).decode()
                came.append(read_receipt(text, at=time.monotonic(), target=self.path, headers={}))
                self.send_response(200)
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Quiet."""

        self._handler = Handler

    def __enter__(self) -> Receipts:
        self._server = ThreadingHTTPServer((HERE, RECEIPTS_PORT), self._handler)
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def last_ordinal(self, source: int, ordinal: int = 1) -> int:
        """Return what the stream receipts of a stream have acknowledged."""
        of = f"uid:{sender(source)}\\{ordinal}"
        return max(
            (each.last_ordinal or 0 for each in list(self.receipts) if each.stream_id == of),
            default=0,
        )

    def decided(self) -> dict[str, str]:
        """Return the decisions that were told, by the identifier of the message."""
        return {
            each.commitment_of: each.decision or ""
            for each in list(self.receipts)
            if each.commitment_of
        }


def as_json(value: Any) -> str:  # JSON
    """Return JSON that people can read."""
    return json.dumps(value, indent=1, sort_keys=True, default=str)
