"""A bad network between two queue managers: requests that never arrive, replies that get lost, a line that is slow.

    with LossyProxy(peer.endpoint, lose_reply=0.05, lose_request=0.02, seed=7) as proxy:
        ...  # send to proxy.url("private$/orders")
        proxy.faults  # what it did

It takes whole HTTP/1.1 requests with a ``Content-Length``, passes them on one at a time, and closes the connection where it
loses something; it looks at nothing but the lengths. The n-th request meets the same fate in every run with one seed.
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
"""How long the peer may take for an answer."""
POLL_SECONDS = 0.1
"""How soon the end of the proxy is noticed."""


class LossyProxy:
    """Listens on a port of its own on loopback; ``delay`` (seconds before each request goes on) may be changed at any time."""

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
        """Where it listens."""
        return int(self._listener.getsockname()[1])

    def url(self, queue: str) -> str:
        """The URL of a queue of the peer, by way of the proxy."""
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
        """One connection of the sender, and one to the peer for it."""
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
    """A request or answer as it came; empty at the end. Raises :class:`ValueError` for one that is cut off."""
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
