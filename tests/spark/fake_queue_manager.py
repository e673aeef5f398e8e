"""A queue manager's API in memory, for tests of the Spark side alone: logs, epochs, leases, marks, and faults on request.

It answers what INTERFACE.md section 3 says, in few lines, and keeps a list of all calls. Rows are made when they are read.
"""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from srmp_spark.rows.columns import arrow_schema
from srmp_spark.sequences.sequence_set import SequenceSet

ARRIVED_US = 1_790_000_000_000_000
"""Row n arrived n seconds after this."""
ROW_BYTES = 1_000


class RefusedError(Exception):
    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code, self.message = status, code, message


@dataclass
class FakeLog:
    first: int = 1
    end: int = 0
    epochs: list[tuple[str, int]] = field(default_factory=list)
    """(epoch, first sequence), ascending."""
    holes: list[tuple[int, int]] = field(default_factory=list)
    arrived: dict[int, int] = field(default_factory=dict)
    """Times of rows that do not lie on the line: microseconds since 1970."""
    lost: set[int] = field(default_factory=set)
    """Sequences that are not delivered although no hole is counted: a broken queue manager."""


@dataclass
class FakeConsumer:
    received: int = 0
    ahead: list[tuple[int, int]] = field(default_factory=list)
    planned: int = 1
    holder: object = None
    renewals: int = 0
    waited: int = 0
    """Calls that met another holder."""

    def mark(self, first: int, last: int) -> None:
        """Receive these."""
        runs = SequenceSet([(1, self.received)] if self.received else [])
        runs.update(SequenceSet(self.ahead))
        if last >= first:
            runs.add(first, last)
        self.received = runs.next_missing(1) - 1
        self.ahead = list(runs.runs(self.received + 1))


class FakeQueueManager:
    def __init__(self, **queues: int) -> None:
        self.guid = str(uuid.uuid4())
        self.epoch = str(uuid.uuid4())
        self.logs: dict[str, FakeLog] = {}
        self.consumers: dict[tuple[str, str], FakeConsumer] = {}
        self.calls: list[tuple[str, str]] = []
        self.marks: list[tuple[float, str, str, int]] = []
        """(monotonic time, queue, consumer, to)"""
        self.paused_out: set[str] = set()
        """Queues whose readers are paused."""
        self.on_mark = lambda queue, to: None
        self.break_reads = 0
        """How many answers to ``rows`` are cut off in the middle."""
        self.lease_seconds = 2.0
        self.answered = 0
        """Answers that were sent to their last byte."""
        self.changed = threading.Condition()
        for name, rows in queues.items():
            self.add(f"private$/{name}", rows)
        self.is_open = False
        self.open()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def open(self) -> None:
        """Serve, again at the same port after :meth:`close`."""
        port = self.server.server_port if hasattr(self, "server") else 0
        self.server = ThreadingHTTPServer(("127.0.0.1", port), self._handler())
        self.server.daemon_threads = True
        self.is_open = True
        threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True).start()

    def close(self) -> None:
        """Be away: connections that were kept end with their next request."""
        if self.is_open:
            self.is_open = False
            self.server.shutdown()
            self.server.server_close()

    # --- what a test does to it -------------------------------------------------------------------------------------------

    def add(self, queue: str, rows: int) -> None:
        with self.changed:
            log = self.logs.setdefault(queue, FakeLog(epochs=[(self.epoch, 1)]))
            log.end += rows
            self.changed.notify_all()

    def new_epoch(self) -> str:
        self.epoch = str(uuid.uuid4())
        for log in self.logs.values():
            log.epochs.append((self.epoch, log.end + 1))
        return self.epoch

    def consumer(self, queue: str, name: str = "default") -> FakeConsumer:
        return self.consumers.setdefault((queue, name), FakeConsumer())

    # --- the API ----------------------------------------------------------------------------------------------------------

    def status(self) -> dict:
        return {"queue_manager": self.guid, "epoch": self.epoch, "queues": self.queues()}

    def queues(self) -> list[dict]:
        return [
            {
                "name": name, "first": log.first, "last": log.end, "received": self.consumer(name).received,
                "epochs": [{"epoch": epoch, "first": first} for epoch, first in log.epochs],
                "consumers": [
                    {"name": c, "received": v.received, "holder": v.holder and "somebody"}
                    for (q, c), v in list(self.consumers.items()) if q == name
                ],
            }
            for name, log in self.logs.items()
        ]  # fmt: skip

    def bounds(self, queue: str, epoch: str | None) -> tuple[FakeLog, str, int, int, str | None]:
        """(log, epoch, first, end, next epoch)"""
        if queue not in self.logs:
            raise RefusedError(404, "no-such-queue", f"there is no queue {queue}")
        log = self.logs[queue]
        names = [name for name, _ in log.epochs]
        epoch = epoch or names[-1]
        if epoch not in names:
            raise RefusedError(409, "unknown-epoch", f"epoch {epoch} is unknown")
        at = names.index(epoch)
        end = log.epochs[at + 1][1] - 1 if at + 1 < len(names) else log.end
        following = names[at + 1] if at + 1 < len(names) else None
        return log, epoch, max(log.first, log.epochs[at][1] if at else 1), end, following

    def range(self, queue: str, q: dict[str, str]) -> dict:
        deadline = time.monotonic() + float(q.get("wait", 0))
        while True:
            _, epoch, first, end, following = self.bounds(queue, q.get("epoch"))
            after = int(q.get("after", first - 1))
            if after > end:
                raise RefusedError(409, "past-the-end", f"{after} is past the end {end}")
            if after < first - 1 and self.logs[queue].first > after + 1:
                raise RefusedError(
                    410, "trimmed", f"rows up to {self.logs[queue].first - 1} are trimmed"
                )
            held = queue in self.paused_out and "after" in q and q.get("peek") != "1"
            if (end > after and not held) or time.monotonic() >= deadline or following:
                break
            with self.changed:
                self.changed.wait(deadline - time.monotonic())
        if held and end > after:
            return {"epoch": epoch, "first": first, "last": after, "end": after, "paused": True}
        most = min(
            int(q.get("max_rows", 10**9)), max(1, int(q.get("max_bytes", 10**12)) // ROW_BYTES)
        )
        last = min(end, after + most)
        answer = {"epoch": epoch, "first": min(first, end + 1), "last": last, "end": end}
        return answer | ({"next_epoch": following} if following else {})

    def rows(self, queue: str, q: dict[str, str]) -> list[pa.RecordBatch]:
        log, epoch, _, end, _ = self.bounds(queue, q["epoch"])
        after, to = int(q["after"]), int(q["to"])
        if to > end:
            raise RefusedError(409, "past-the-end", f"{to} is past the end {end}")
        if after + 1 < log.first:
            raise RefusedError(410, "trimmed", f"rows up to {log.first - 1} are trimmed")
        gone = {n for first, last in log.holes for n in range(first, last + 1)} | log.lost
        numbers = [n for n in range(after + 1, to + 1) if n not in gone]
        return [
            self.batch(queue, epoch, numbers[at : at + 700], "envelope" in q)
            for at in range(0, len(numbers), 700)
        ]

    def arrived_at(self, queue: str, n: int) -> int:
        return self.logs[queue].arrived.get(n, ARRIVED_US + n * 1_000_000)

    def first_since(self, queue: str, q: dict[str, str]) -> dict:
        """A call looks at 50 rows."""
        log, epoch, first, end, _ = self.bounds(queue, q["epoch"])
        after = max(int(q["after"]), first - 1)
        looked_to = min(after + 50, end)
        gone = {n for low, high in log.holes for n in range(low, high + 1)}
        found = [
            n
            for n in range(after + 1, looked_to + 1)
            if n not in gone and self.arrived_at(queue, n) >= int(q["since"])
        ]
        return {
            "epoch": epoch,
            "sequence": found[0] if found else None,
            "looked_to": looked_to,
            "end": end,
        }

    def batch(self, queue: str, epoch: str, numbers: list[int], envelope: bool) -> pa.RecordBatch:
        made = {
            "queue_manager": lambda n: self.guid, "epoch": lambda n: epoch, "sequence": lambda n: n, "queue": lambda n: queue,
            "arrived_at": lambda n: self.arrived_at(queue, n), "transport": lambda n: "http", "class": lambda n: 0,
            "priority": lambda n: 3, "delivery": lambda n: "recoverable", "label": lambda n: f"label {n}",
            "body": lambda n: b"body %d" % n, "receipts_requested": lambda n: [],
            "envelope": lambda n: "<e/>" if envelope else None,
        }  # fmt: skip
        schema = arrow_schema()
        return pa.RecordBatch.from_arrays(
            [
                pa.array([made[f.name](n) for n in numbers], f.type)
                if f.name in made
                else pa.nulls(len(numbers), f.type)
                for f in schema
            ],
            schema=schema,
        )

    def check_is_me(self, guid: str) -> None:
        if guid != self.guid:
            raise RefusedError(409, "another-queue-manager", f"this is {self.guid}")

    def register(self, queue: str, name: str, body: dict) -> dict:
        _, epoch, *_ = self.bounds(queue, None)
        consumer = self.consumer(queue, name)
        holder, seen, deadline = (
            body["holder"],
            consumer.renewals,
            time.monotonic() + self.lease_seconds,
        )
        consumer.waited += consumer.holder not in (None, holder)
        while consumer.holder not in (None, holder) and time.monotonic() < deadline:
            if consumer.renewals != seen:
                raise RefusedError(
                    409, "C00E0009", f"consumer {name} is held by {json.dumps(consumer.holder)}"
                )
            time.sleep(0.02)
        self.bounds(queue, None)  # it may have been deleted meanwhile
        if not body.get("ranged"):
            if consumer.holder != holder and consumer.planned <= consumer.received + 1:
                consumer.planned = consumer.received + 1
            consumer.planned = body.get("from", consumer.planned)
        consumer.holder = holder
        consumer.renewals += 1
        return {
            "epoch": epoch,
            "received": consumer.received,
            "ahead": consumer.ahead,
            "lease_until": "",
            "queue_manager": self.guid,
        }

    def received(self, queue: str, name: str, body: dict) -> dict:
        *_, end, _ = self.bounds(queue, body["epoch"])
        consumer = self.consumer(queue, name)
        if consumer.holder != body["holder"]:
            raise RefusedError(
                409, "C00E0009", f"consumer {name} is held by {json.dumps(consumer.holder)}"
            )
        if body["to"] > end:
            raise RefusedError(409, "past-the-end", f"{body['to']} is past the end {end}")
        self.on_mark(queue, body["to"])
        self.marks.append((time.monotonic(), queue, name, body["to"]))
        consumer.mark(body.get("from", consumer.planned), body["to"])
        return {"received": consumer.received}

    def ahead_of(self, queue: str, name: str, after: int) -> dict:
        if (queue, name) not in self.consumers:
            raise RefusedError(404, "unknown-consumer", f"no consumer {name}")
        consumer = self.consumer(queue, name)
        ahead = [(max(first, after + 1), last) for first, last in consumer.ahead if last > after]
        return {"received": consumer.received, "ahead": ahead, "ahead_after": None}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        fake = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # one packet an answer: two would wait for each other (Nagle)

            def log_message(self, *args: object) -> None: ...

            def answer(
                self, body: bytes, status: int = 200, kind: str = "application/json"
            ) -> None:
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if kind != "application/json" and fake.break_reads > 0:
                    fake.break_reads -= 1
                    self.wfile.write(body[: len(body) // 2])
                    self.close_connection = True
                    return
                self.wfile.write(body)
                fake.answered += 1

            def do_GET(self) -> None:
                self.handle_call("GET")

            def do_POST(self) -> None:
                self.handle_call("POST")

            def handle_call(self, method: str) -> None:
                if not fake.is_open:
                    self.close_connection = True
                    return
                url = urlsplit(self.path)
                body = json.loads(
                    self.rfile.read(int(self.headers.get("Content-Length") or 0)) or b"{}"
                )
                path = [unquote(part) for part in url.path.split("/")[2:]]
                query = {key: value[0] for key, value in parse_qs(url.query).items()}
                fake.calls.append((method, url.path))
                try:
                    match path:
                        case ["status"]:
                            self.answer(json.dumps(fake.status()).encode())
                        case ["queues"]:
                            self.answer(json.dumps(fake.queues()).encode())
                        case ["queues", queue]:
                            fake.bounds(queue, None)
                            self.answer(
                                json.dumps(
                                    next(entry for entry in fake.queues() if entry["name"] == queue)
                                ).encode()
                            )
                        case ["queues", queue, "range"]:
                            self.answer(json.dumps(fake.range(queue, query)).encode())
                        case ["queues", queue, "first"]:
                            self.answer(json.dumps(fake.first_since(queue, query)).encode())
                        case ["queues", queue, "holes"]:
                            fake.bounds(queue, query["epoch"])
                            wanted = range(int(query["after"]) + 1, int(query["to"]) + 1)
                            holes = [
                                n
                                for first, last in fake.logs[queue].holes
                                for n in range(first, last + 1)
                                if n in wanted
                            ]
                            self.answer(json.dumps({"count": len(holes)}).encode())
                        case ["queues", queue, "rows"]:
                            fake.check_is_me(query.get("queue_manager", fake.guid))
                            sink = pa.BufferOutputStream()
                            with pa.ipc.new_stream(sink, arrow_schema()) as writer:
                                for batch in fake.rows(queue, query):
                                    writer.write_batch(batch)
                            self.answer(
                                sink.getvalue().to_pybytes(),
                                kind="application/vnd.apache.arrow.stream",
                            )
                        case ["queues", queue, "consumers", name]:
                            self.answer(
                                json.dumps(fake.ahead_of(queue, name, int(query["after"]))).encode()
                            )
                        case ["queues", queue, "consumers", name, "register"]:
                            self.answer(json.dumps(fake.register(queue, name, body)).encode())
                        case ["queues", queue, "consumers", name, "received"]:
                            self.answer(json.dumps(fake.received(queue, name, body)).encode())
                        case ["queues", queue, "consumers", name, "release"]:
                            if fake.consumer(queue, name).holder == body.get("holder"):
                                fake.consumer(queue, name).holder = None
                            self.answer(b"{}")
                        case _:
                            self.answer(b"{}", 404)
                except RefusedError as refusal:
                    error = {
                        "code": refusal.code,
                        "message": refusal.message,
                        "hint": "",
                        "section": "",
                    }
                    self.answer(json.dumps({"error": error}).encode(), refusal.status)

        return Handler
