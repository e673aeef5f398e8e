"""Destinations that answer, and four kinds that do not: silent, slow, refusing, black-holed. All of them in one thread."""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
BACKLOG = 4_096
_HEAD = re.compile(rb"POST (\S+) .*?\r\n\r\n", re.DOTALL)
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


class Peers:
    """Servers on loopback; ``took`` has the path and the time of every request that was read to its end."""

    def __init__(self) -> None:
        self.took: list[tuple[str, float]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._sockets: list[socket.socket] = []

    def __enter__(self) -> Peers:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        for each in self._sockets:
            each.close()

    def answering(
        self,
        host: str = "127.0.0.1",
        *,
        after: float = 0.0,
        status: Callable[[bytes], bytes] = lambda content: b"200 OK",
    ) -> str:
        """Return the base URL of a server that answers each request ``after`` so many seconds, by its content."""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            with contextlib.suppress(
                asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError
            ):
                while True:
                    head = await reader.readuntil(b"\r\n\r\n")
                    length = _LENGTH.search(head)
                    content = await reader.readexactly(int(length[1]) if length else 0)
                    path = _HEAD.match(head)
                    assert path is not None
                    self.took.append((path[1].decode(), time.monotonic()))
                    await asyncio.sleep(after)
                    writer.write(OK.replace(b"200 OK", status(content)))
            writer.close()

        listening = self._listen(host, BACKLOG)
        asyncio.run_coroutine_threadsafe(
            asyncio.start_server(serve, sock=listening, backlog=BACKLOG), self._loop
        ).result(5)
        return self._url(listening)

    def silent(self, host: str = "127.0.0.1") -> str:
        """Return the base URL of a server that accepts, as its kernel does, and says nothing."""
        return self._url(self._listen(host, BACKLOG))

    def refusing(self, host: str = "127.0.0.1") -> str:
        """Return a base URL where nobody listens."""
        bound = socket.socket()
        bound.bind((host, 0))
        self._sockets.append(bound)
        return self._url(bound)

    def swallowing(self, host: str = "127.0.0.1") -> str:
        """Return a base URL whose packets get no answer: the line of its kernel is full."""
        listening = self._listen(host, 0)
        for _ in range(4):
            filler = socket.socket()
            filler.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                filler.connect(listening.getsockname())
            self._sockets.append(filler)
        return self._url(listening)

    def paths(self) -> Iterator[str]:
        """Return the paths of the requests so far."""
        return (path for path, _ in tuple(self.took))

    def _listen(self, host: str, backlog: int) -> socket.socket:
        listening = socket.socket()
        listening.bind((host, 0))
        listening.listen(backlog)
        listening.setblocking(False)
        self._sockets.append(listening)
        return listening

    @staticmethod
    def _url(bound: socket.socket) -> str:
        host, port = bound.getsockname()
        return f"http://{host}:{port}/msmq/private$"
