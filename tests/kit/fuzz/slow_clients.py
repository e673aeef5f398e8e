"""Clients that are slow on purpose (slowloris, T18): a byte in ten seconds of a head, of a body; no answer read; nothing said.

    python -m tests.kit.fuzz.slow_clients HOST PORT KIND,KIND… CONNECTIONS SECONDS    # "ready", later one JSON line

A process of its own, so that the healthy client beside it is measured and not the attack. Whoever is cut off comes again, so
the number of connections stays.
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
"""From one byte to the next."""
CONNECTING_MAX = 200
"""Connections that are opened at once: more would only fill the backlog."""
ANSWERS_REQUESTS = 500
"""Requests in one piece of those who never read an answer; they go on until nothing can be sent any more, once each: more often
it would be a flood and not slowness."""


class Summary(TypedDict):
    """What became of one kind."""

    opened: int
    ended: dict[str, int]
    """How connections ended: a status, or ``cut`` without one."""
    first: float
    """Seconds of its life when the first was ended …"""
    last: float
    """… and the longest life of one that was ended."""
    failed: int
    """Could not connect."""


class _Kind:
    def __init__(self, name: str) -> None:
        self.name = name
        self.opened = self.failed = 0
        self.ended: Counter[str] = Counter()
        self.lives: list[float] = []

    def summary(self) -> Summary:
        """For the report."""
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
    """What is sent at once, and what follows byte by byte."""
    raw = _request()
    head = raw[: raw.index(b"\r\n\r\n") + 4]
    if kind == "head":
        return raw[:1], raw[1:]
    if kind == "body":
        return head + raw[len(head) : len(head) + 100], raw[len(head) + 100 :]
    empty = re.sub(
        rb"Content-Length: [0-9]+", b"Content-Length: 0", head
    )  # refused with 400, and the connection stays
    return (empty * ANSWERS_REQUESTS, b"") if kind == "answers" else (b"", b"")


async def _live(
    kind: _Kind, endpoint: tuple[str, int], end: float, connecting: asyncio.Semaphore
) -> None:
    """One attacker: connect, be slow, be cut off, come again."""
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
    """How the peer ended the connection; empty if it did not until ``end``."""
    loop = asyncio.get_running_loop()
    sending = asyncio.ensure_future(_send(connection, at_once, slowly))
    try:
        if kind == "answers":  # reads nothing; what tells the end is that nothing can be sent
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
    while at_once and not slowly:  # answers
        await loop.sock_sendall(connection, at_once)
    await asyncio.Event().wait()


async def attack(
    endpoint: tuple[str, int], names: list[str], connections: int, seconds: float
) -> dict[str, Summary]:
    """All of them until ``seconds`` have passed; says "ready" when the first connections are made."""
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
    """The command line."""
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
