"""Clients that are slow on purpose (slowloris), for acceptance test T18.

Clients of kind ``head`` and ``body`` send one byte in ten seconds. Clients of kind ``answers`` read
no answer, and clients of kind ``idle`` send nothing.

    python -m tests.kit.fuzz.slow_clients HOST PORT KIND,KIND… CONNECTIONS SECONDS

The process prints "ready", and at the end one JSON line. It is a process of its own, so that the
test measures its healthy client without the load of the attack. A client that is disconnected
connects again, so the number of connections stays the same.
"""

from __future__ import annotations

import asyncio
import json
import re
import resource
import socket
import sys
import time
from collections import Counter
from typing import TypedDict

from srmp_spark.testing.foreign.messages import ForeignMessage, post

KINDS = ("idle", "head", "body", "answers")
BYTE_SECONDS = 10.0
"""Seconds between two bytes of a slow client."""
CONNECTING_MAX = 200
"""Most connections that are opened at the same time.

More would only fill the server's backlog.
"""
ANSWERS_REQUESTS = 500
"""Requests that a client which reads no answers sends in one piece.

Such a client sends pieces until its connection blocks, and connects only once. Connecting again
would make the attack a flood instead of slow clients.
"""


class Summary(TypedDict):
    """The results of all clients of one kind."""

    opened: int
    ended: dict[str, int]
    """How the server ended a connection → count.

    The key is the status of the server's answer, or ``cut`` without one.
    """
    first: float
    """Shortest life of a connection that the server ended, in seconds; 0 if there is none."""
    last: float
    """Longest life of a connection that the server ended, in seconds; 0 if there is none."""
    failed: int
    """Number of connection attempts that failed."""


class _Kind:
    def __init__(self, name: str) -> None:
        self.name = name
        self.opened = self.failed = 0
        self.ended: Counter[str] = Counter()
        self.lives: list[float] = []

    def summary(self) -> Summary:
        """Return the results of this kind."""
        lives = self.lives or [0.0]
        return {
            "opened": self.opened,
            "ended": dict(self.ended),
            "first": min(lives),
            "last": max(lives),
            "failed": self.failed,
        }


def _request() -> bytes:
    to = "http://127.0.0.1/msmq/private$/slow"
    lineage = "0a0b0c0d-9999-9999-9999-444455556666"
    return post(
        ForeignMessage(
            to=to, lineage=lineage, uniquifier=1, sent_at=1_790_000_000, body=b"x" * 2_000
        )
    ).raw


def _sent_of(kind: str) -> tuple[bytes, bytes]:
    """Return the bytes that a client sends at once, and the bytes that it sends one by one."""
    raw = _request()
    head = raw[: raw.index(b"\r\n\r\n") + 4]
    if kind == "head":
        return raw[:1], raw[1:]
    if kind == "body":
        return head + raw[len(head) : len(head) + 100], raw[len(head) + 100 :]
    # A request without content is refused with 400, and the connection stays open.
    empty = re.sub(rb"Content-Length: [0-9]+", b"Content-Length: 0", head)
    return (empty * ANSWERS_REQUESTS, b"") if kind == "answers" else (b"", b"")


async def _live(
    kind: _Kind, endpoint: tuple[str, int], end: float, connecting: asyncio.Semaphore
) -> None:
    """Run one slow client until ``end``, and connect again when the server disconnects it.

    A client of kind ``answers`` connects only once. ``end`` is a value of ``time.monotonic``.
    ``connecting`` limits the connections that are being opened.
    """
    at_once, slowly = _sent_of(kind.name)
    loop = asyncio.get_running_loop()
    while time.monotonic() < end:
        connection = socket.socket()
        connection.setblocking(False)
        if kind.name == "answers":
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
        with connection:
            try:
                async with connecting:
                    await asyncio.wait_for(loop.sock_connect(connection, endpoint), 10)
            except (OSError, asyncio.TimeoutError):
                kind.failed += 1
                await asyncio.sleep(1)
                continue
            kind.opened += 1
            begun = time.monotonic()
            how = await _until_cut_off(kind.name, connection, at_once, slowly, end)
            if how:
                kind.ended[how] += 1
                kind.lives.append(time.monotonic() - begun)
            if kind.name == "answers":
                return


async def _until_cut_off(
    kind: str, connection: socket.socket, at_once: bytes, slowly: bytes, end: float
) -> str:
    """Return how the server ended the connection: the status of its answer, or ``cut``.

    Return an empty text if the connection is open at ``end``.
    """
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(_send(connection, at_once, slowly))
    try:
        # This kind reads nothing. It notices the end of the connection when a send fails.
        if kind == "answers":
            done, _ = await asyncio.wait([sending], timeout=max(0.0, end - time.monotonic()))
            return "cut" if done and sending.exception() is not None else ""
        data = await asyncio.wait_for(
            loop.sock_recv(connection, 4_096), max(0.0, end - time.monotonic())
        )
        match = re.match(rb"HTTP/1\.1 (\d{3}) ", data)
        return match[1].decode() if match is not None else "cut"
    except asyncio.TimeoutError:
        return ""
    except OSError:
        return "cut"
    finally:
        sending.cancel()
        await asyncio.gather(sending, return_exceptions=True)


async def _send(connection: socket.socket, at_once: bytes, slowly: bytes) -> None:
    loop = asyncio.get_running_loop()
    if at_once:
        await loop.sock_sendall(connection, at_once)
    for at in range(len(slowly)):
        await asyncio.sleep(BYTE_SECONDS)
        await loop.sock_sendall(connection, slowly[at : at + 1])
    # Clients of kind "answers" send their requests again and again.
    while at_once and not slowly:
        await loop.sock_sendall(connection, at_once)
    await asyncio.Event().wait()


async def attack(
    endpoint: tuple[str, int], names: list[str], connections: int, seconds: float
) -> dict[str, Summary]:
    """Run ``connections`` slow clients for ``seconds``, and return the results by kind.

    The clients have the kinds ``names`` in turn. The function prints "ready" when as many
    connections were opened as requested, or when the time is over.
    """
    kinds = [_Kind(name) for name in names]
    connecting = asyncio.Semaphore(CONNECTING_MAX)
    end = time.monotonic() + seconds
    tasks = [
        asyncio.ensure_future(_live(kinds[n % len(kinds)], endpoint, end, connecting))
        for n in range(connections)
    ]
    while sum(kind.opened for kind in kinds) < connections and time.monotonic() < end:
        await asyncio.sleep(0.05)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    await asyncio.gather(*tasks)
    return {kind.name: kind.summary() for kind in kinds}


def main(arguments: list[str]) -> int:
    """Run the command line and return 0."""
    host, port, names, connections, seconds = arguments
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(
        resource.RLIMIT_NOFILE,
        (max(soft, min(hard, int(connections) + 500)) if hard > 0 else soft, hard),
    )
    found = asyncio.run(
        attack((host, int(port)), names.split(","), int(connections), float(seconds))
    )
    sys.stdout.write(json.dumps(found) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
