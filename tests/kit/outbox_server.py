"""Serves a queue manager's outbox calls over real HTTP, with faults on request.

The calls are answered by :mod:`tests.kit.outbox_model`.

    with OutboxServer() as server:
        df.write.format("srmp").mode("append").option("queueManager", server.url)…
        server.model.bodies(destination)

With ``discard`` the server keeps only the number of rows, to measure the cost of the sink alone.
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
"""Bytes that are copied at a time."""


class OutboxServer:
    """An HTTP server on its own port of the loopback interface, which listens when it is made.

    With a ``token`` each call must carry it.
    """

    def __init__(self, *, discard: bool = False, token: str | None = None) -> None:
        self.model = OutboxModel()
        self.discard = discard
        self.token = token
        self.calls: list[tuple[str, str, dict[str, str], int]] = []
        """(method, path, query, status) of each call, in the order of the answers.

        The status 0 means that the server cut the connection.
        """
        self.cut_stages_after: list[int] = []
        """For each of the next stages: the bytes after which the server cuts the connection."""
        self.lose_replies: list[str] = []
        """Names of calls, ``stage`` or ``commit``, whose replies are lost; each entry counts once.

        The server carries out the next call of that name and then cuts the connection.
        """
        self.refuse: list[tuple[str, int]] = []
        """Pairs (call, status): the next call of that name is refused with that status."""
        self.hold_commit = threading.Event()
        """Commits wait until this event is set. It is set at the beginning."""
        self.hold_commit.set()
        self.rows = 0
        """Number of rows that were staged so far."""
        self.on_staged: Callable[[Slot, int], None] = lambda slot, port: None
        """Called when a stage is kept and not yet answered.

        The second argument is the port of the client's end of the connection.
        """
        self._lock = threading.Lock()
        self._server: ThreadingHTTPServer | None = None
        self._port = 0
        self.start()

    def start(self) -> None:
        """Start to listen. After :meth:`stop` the server listens on the same port again."""
        self._server = _Server(("127.0.0.1", self._port), self._handler())
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop(self) -> None:
        """Close the port and every connection. The stages are kept, as on a disk."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def restart_for(self, seconds: float) -> None:
        """Stop the server, and start it again after ``seconds`` in another thread."""
        self.stop()
        threading.Timer(seconds, self.start).start()

    @property
    def url(self) -> str:
        """Return the server's URL, the value of the option ``queueManager``."""
        return f"http://127.0.0.1:{self._port}"

    def __enter__(self) -> OutboxServer:
        return self

    def __exit__(self, *_: object) -> None:
        self.hold_commit.set()
        self.stop()

    def named(self, call: str) -> list[tuple[str, dict[str, str], int]]:
        """Return (path, query, status) of each answered or cut call of that name.

        The name is ``stage``, ``commit`` or ``DELETE``.
        """
        return [
            (path, query, status)
            for method, path, query, status in self.calls
            if (path.endswith("/" + call) and method == "POST") or method == call
        ]

    # --- calls ------------------------------------------------------------------------------------

    def answer(
        self, method: str, path: list[str], query: dict[str, str], body: IO[bytes]
    ) -> dict[str, Any]:
        """Carry out one call and return the JSON value of its answer.

        ``path`` has the pieces of the URL's path after the version. Raises :class:`RefusedError` if
        the call is refused, unknown, or named in :attr:`refuse`.
        """
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
        """Raise :class:`RefusedError` if the server has a token and ``authorization`` lacks it."""
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
            # An answer fits one packet. Two packets would wait for each other (Nagle).
            wbufsize = 65536
            rbufsize = BLOCK

            def log_message(self, *args: object) -> None:
                """Discard the log line of a request."""

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
                """Copy the request's content into the file ``body``; return whether it is complete.

                The result is ``False`` if the content broke off, or if the connection is to be cut:
                ``cut`` is the number of bytes after which it is cut, or ``None``.
                """
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
    """An HTTP server that can close all of its connections, like a process that is killed."""

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
        """Ignore the error: connections that end early are the subject of these tests."""

    def server_close(self) -> None:
        super().server_close()
        for connection in list(self.connections):
            # The client may have closed the connection already.
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
