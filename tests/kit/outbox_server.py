"""The outbox calls of a queue manager's API over real HTTP: :mod:`tests.kit.outbox_model` and faults on request.

    with OutboxServer() as server:
        df.write.format("srmp").mode("append").option("queueManager", server.url)…
        server.model.bodies(destination)

``discard`` keeps nothing but the number of rows: to measure what the sink alone costs.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import tempfile
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import IO, Any
from urllib.parse import parse_qs, unquote, urlsplit

import pyarrow as pa

from tests.kit.outbox_model import OutboxModel, RefusedError, Slot

BLOCK = 1024 * 1024
"""Bytes moved at a time."""


class OutboxServer:
    """Listens on a port of its own on loopback."""

    def __init__(self, *, discard: bool = False, token: str | None = None) -> None:
        self.model = OutboxModel()
        self.discard = discard
        self.token = token
        self.calls: list[tuple[str, str, dict[str, str], int]] = []
        """(method, path, query, status) in the order of the answers; a status of 0 is a connection that was cut."""
        self.cut_stages_after: list[int] = []
        """For each of the next stages: cut the connection after so many bytes."""
        self.lose_replies: list[str] = []
        """For each of the next ``stage`` or ``commit`` calls named here: do it, then cut the connection."""
        self.refuse: list[tuple[str, int]] = []
        """(call, status) for each of the next calls of that name."""
        self.hold_commit = threading.Event()
        """Commits wait for it."""
        self.hold_commit.set()
        self.rows = 0
        """Staged so far."""
        self.on_staged: Callable[[Slot, int], None] = lambda slot, port: None
        """Called when a stage is kept and not yet answered, with the port of the client's end of the connection."""
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    def start(self) -> None:
        """Listen; on the same port as before."""
        self._server = _Server(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and every connection; what is staged stays, as on a disk."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def restart_for(self, seconds: float) -> None:
        """Be away for so long."""
        self.stop()
        threading.Timer(seconds, self.start).start()

    @property
    def url(self) -> str:
        """Option ``queueManager``."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> OutboxServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.hold_commit.set()
        self.stop()

    def named(self, call: str) -> list[tuple[str, dict[str, str], int]]:
        """(path, query, status) of each ``stage``, ``commit`` or ``DELETE``."""
        return [
            (path, query, status)
            for method, path, query, status in self.calls
            if (path.endswith("/" + call) and method == "POST") or method == call
        ]

    # --- calls ------------------------------------------------------------------------------------------------------------

    def answer(
        self, method: str, path: list[str], query: dict[str, str], body: IO[bytes]
    ) -> dict[str, Any]:
        """The answer of one call. Raises :class:`RefusedError`."""
        call = path[-1] if method == "POST" else method
        for index, (name, status) in enumerate(self.refuse):
            if name == call:
                del self.refuse[index]
                raise RefusedError(status, "on-request", f"{call} is refused on request")
        match (method, path):
            case ("GET", ["status"]):
                return {"ready": True}
            case ("POST", ["outbox", application, batch, "stage"]):
                slot = Slot(application, batch, int(query["partition"]), int(query["attempt"]))
                with self._lock:
                    stage, rows = self._stage(slot, body)
                    self.rows += rows
                return {"stage": stage, "rows": rows}
            case ("POST", ["outbox", application, batch, "commit"]):
                self.hold_commit.wait()
                with self._lock:
                    names = json.load(body)["stages"]
                    new, known = (
                        (len(names), 0)
                        if self.discard
                        else self.model.commit(application, batch, names)
                    )
                return {"new": new, "known": known}
            case ("DELETE", ["outbox", application, batch]):
                with self._lock:
                    self.model.delete(application, batch)
                return {}
        raise RefusedError(404, "no-such-call", f"{method} {'/'.join(path)}")

    def check(self, authorization: str | None) -> None:
        """Raises :class:`RefusedError` without the token."""
        if self.token and authorization != f"Bearer {self.token}":
            raise RefusedError(401, "no-token", "this call needs a token")

    def _stage(self, slot: Slot, body: IO[bytes]) -> tuple[str, int]:
        if not self.discard:
            with pa.ipc.open_stream(body.read()) as reader:
                return self.model.stage(slot, reader.read_all())
        body.flush()
        os.fsync(body.fileno())
        with pa.memory_map(body.name) as mapped, pa.ipc.open_stream(mapped) as reader:
            return f"{slot.partition}-{slot.attempt}", sum(batch.num_rows for batch in reader)

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            wbufsize = 65536  # one packet an answer: two would wait for each other (Nagle)
            rbufsize = BLOCK

            def log_message(self, *args: object) -> None:
                """Quiet."""

            def do_GET(self) -> None:
                self.handle_call("GET")

            def do_POST(self) -> None:
                self.handle_call("POST")

            def do_DELETE(self) -> None:
                self.handle_call("DELETE")

            def handle_call(self, method: str) -> None:
                url = urlsplit(self.path)
                query = {key: value[0] for key, value in parse_qs(url.query).items()}
                path = [unquote(part) for part in url.path.split("/")[2:]]
                call = path[-1] if method == "POST" else method
                with tempfile.NamedTemporaryFile() as body:
                    cut = (
                        server.cut_stages_after.pop(0)
                        if call == "stage" and server.cut_stages_after
                        else None
                    )
                    if not self.receive(body, cut):
                        server.calls.append((method, url.path, query, 0))
                        self.cut()
                        return
                    body.seek(0)
                    try:
                        server.check(self.headers.get("Authorization"))
                        status, answer = 200, server.answer(method, path, query, body)
                        if call == "stage":
                            slot = Slot(
                                path[1], path[2], int(query["partition"]), int(query["attempt"])
                            )
                            server.on_staged(slot, self.client_address[1])
                    except RefusedError as refusal:
                        error = {
                            "code": refusal.code,
                            "message": str(refusal),
                            "hint": "",
                            "section": "",
                        }
                        status, answer = refusal.status, {"error": error}
                if status == 200 and call in server.lose_replies:
                    server.lose_replies.remove(call)
                    server.calls.append((method, url.path, query, 0))
                    self.cut()
                    return
                server.calls.append((method, url.path, query, status))
                data = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def receive(self, body: Any, cut: int | None) -> bool:  # noqa: ANN401  # a temporary file
                """The body into the file; ``False`` if it broke off, or is to be cut."""
                if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
                    body.write(self.rfile.read(int(self.headers.get("Content-Length") or 0)))
                    return cut is None
                size = int(self.rfile.readline() or b"-1", 16)
                while size > 0:
                    left = size
                    while left:
                        block = self.rfile.read(min(left, BLOCK))
                        if not block:
                            return False
                        body.write(block)
                        left -= len(block)
                    self.rfile.readline()
                    if cut is not None and body.tell() >= cut:
                        return False
                    size = int(self.rfile.readline() or b"-1", 16)
                self.rfile.readline()
                return size == 0 and cut is None

            def cut(self) -> None:
                self.close_connection = True
                self.connection.shutdown(socket.SHUT_RDWR)

        return Handler


class _Server(ThreadingHTTPServer):
    """Knows its connections, so that it can end like a process that is killed."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, *args: Any, **kwargs: Any) -> None:  # noqa: ANN401  # as the base class
        self.connections: set[socket.socket] = set()
        super().__init__(*args, **kwargs)

    def process_request(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as the base class
        self.connections.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:  # noqa: ANN401  # as the base class
        self.connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ANN401  # as the base class
        """Connections that end early are what these tests are about."""

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self.connections):
            with contextlib.suppress(OSError):  # gone already
                connection.shutdown(socket.SHUT_RDWR)
