"""A bad network between two queue managers: lost requests, lost replies, and a slow line.

    with LossyProxy(peer.endpoint, lose_reply=0.05, lose_request=0.02, seed=7) as proxy:
        ...  # send to proxy.url("private$/orders")
        proxy.faults  # the faults so far

The proxy reads whole HTTP/1.1 requests with a ``Content-Length``. Each connection passes its
requests on one at a time. When the proxy loses a request or a reply, the proxy closes the
connection. The proxy interprets nothing but the lengths. The n-th request has the same fate in
every run with one seed.
"""

from __future__ import annotations

import contextlib
import random
import socket
import threading
import time
from collections import Counter
from typing import BinaryIO

PEER_SECONDS = 30.0
"""Longest wait for the peer's answer, in seconds. Then the connection is closed."""
POLL_SECONDS = 0.1
"""Longest time, in seconds, until the proxy notices its end."""


class LossyProxy:
    """A proxy on its own loopback port, as a context manager.

    ``lose_reply`` and ``lose_request`` are chances from 0 to 1. ``delay``, the seconds before each
    request is passed on, may be changed at any time. ``faults`` counts the lost requests and
    replies.
    """

    def __init__(
        self,
        peer: tuple[str, int],
        *,
        lose_reply: float = 0.0,
        lose_request: float = 0.0,
        delay: float = 0.0,
        seed: int = 1,
    ) -> None:
        self.peer = peer
        self.lose_reply = lose_reply
        self.lose_request = lose_request
        self.delay = delay
        self.faults: Counter[str] = Counter()
        self.requests = 0
        self._seed = seed
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(POLL_SECONDS)
        self._thread = threading.Thread(target=self._accept, daemon=True)

    @property
    def port(self) -> int:
        """Return the port on which the proxy listens."""
        return int(self._listener.getsockname()[1])

    def url(self, queue: str) -> str:
        """Return the URL of a queue of the peer, with the proxy's port instead of the peer's."""
        return f"http://127.0.0.1:{self.port}/msmq/{queue}"

    def __enter__(self) -> LossyProxy:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        self._listener.close()

    def _accept(self) -> None:
        while not self._over.is_set():
            with contextlib.suppress(TimeoutError):
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        """Serve one connection of the sender until it ends, with one connection to the peer."""
        with contextlib.suppress(OSError, ValueError), connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with socket.create_connection(self.peer, PEER_SECONDS) as peer:
                peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with connection.makefile("rb") as asks, peer.makefile("rb") as answers:
                    while (request := read_message(asks)) and not self._over.is_set():
                        fate = self._fate()
                        if fate == "lost request":
                            return
                        time.sleep(self.delay)
                        peer.sendall(request)
                        reply = read_message(answers)
                        if fate == "lost reply":
                            return
                        connection.sendall(reply)

    def _fate(self) -> str:
        with self._lock:
            self.requests += 1
            dice = random.Random(f"{self._seed}/{self.requests}").random()
            for name, chance in (
                ("lost reply", self.lose_reply),
                ("lost request", self.lose_request),
            ):
                if dice < chance:
                    self.faults[name] += 1
                    return name
                dice -= chance
        return ""


def read_message(file: BinaryIO) -> bytes:
    """Read one HTTP request or answer and return its bytes unchanged.

    Return an empty value at the end of the connection. Raises :class:`ValueError` if the message is
    cut off, or its Content-Length is no number.
    """
    head = b""
    while not head.endswith(b"\r\n\r\n"):
        line = file.readline()
        if not line:
            if head:
                raise ValueError("cut off in the head")
            return b""
        head += line
    length = 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.strip().lower() == b"content-length":
            length = int(value)
    body = file.read(length)
    if len(body) < length:
        raise ValueError("cut off in the body")
    return head + body
