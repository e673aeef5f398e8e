"""A reverse proxy in front of the API of a real queue manager: a test sees each call of a query before and after it is made.

The one who waits for the answer can so be killed at that very moment. Answers of any length pass through as they come.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import signal
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Literal
from urllib.parse import urlsplit

PIECE_BYTES = 1 << 16
HOP_BY_HOP = frozenset(["connection", "transfer-encoding", "host", "content-length", "keep-alive"])

When = Literal["before", "after"]
Watch = Callable[[When, str, int], None]
"""Called with when, the path with its query, and the port of the caller, in the thread that waits."""


class ApiProxy:
    """``url`` is what a query is given instead of ``upstream``."""

    def __init__(self, upstream: str) -> None:
        self.watch: Watch = lambda when, path, port: None
        self._upstream = urlsplit(upstream)
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        proxy = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def handle(self) -> None:
                with contextlib.suppress(
                    ConnectionError
                ):  # the caller was killed between two calls
                    super().handle()

            def do_GET(self) -> None:
                proxy._pass_on(self)

            do_POST = do_PUT = do_DELETE = do_GET  # noqa: N815  # http.server's names

            def log_message(self, *_: Any) -> None:
                pass

        return Handler

    def _pass_on(self, call: BaseHTTPRequestHandler) -> None:
        """One call and its answer; whoever was killed meanwhile hears nothing more."""
        body = call.rfile.read(int(call.headers.get("Content-Length", 0)))
        headers = {
            name: value for name, value in call.headers.items() if name.lower() not in HOP_BY_HOP
        }
        port = call.client_address[1]
        self.watch("before", call.path, port)
        upstream = http.client.HTTPConnection(
            self._upstream.hostname or "", self._upstream.port, timeout=60
        )
        try:
            upstream.request(call.command, call.path, body, headers)
            answer = upstream.getresponse()
            first = answer.read(PIECE_BYTES)
            self.watch("after", call.path, port)
            call.send_response_only(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in HOP_BY_HOP:
                    call.send_header(name, value)
            call.send_header("Transfer-Encoding", "chunked")
            call.end_headers()
            piece = first
            while piece:
                call.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                piece = answer.read(PIECE_BYTES)
            call.wfile.write(b"0\r\n\r\n")
        except (OSError, http.client.HTTPException):
            call.close_connection = True
        finally:
            upstream.close()


def process_at(port: int) -> int | None:
    """The process on this host whose end of a TCP connection has ``port``; ``None`` if it is gone."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    inodes = {
        f"socket:[{fields[9]}]"
        for fields in map(str.split, lines)
        if int(fields[1].partition(":")[2], 16) == port
    }
    for link in Path("/proc").glob("[0-9]*/fd/*"):
        try:
            if str(link.readlink()) in inodes and int(link.parts[2]) != os.getpid():
                return int(link.parts[2])
        except OSError:
            continue
    return None


def kill_peer(port: int) -> bool:
    """SIGKILL for the process at ``port``; whether there was one."""
    pid = process_at(port)
    if pid is not None:
        os.kill(pid, signal.SIGKILL)
    return pid is not None
