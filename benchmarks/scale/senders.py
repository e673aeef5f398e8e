"""Run a fleet of SRMP senders in one process: ``senders.py URL --ledger FILE …``.

Each connection has one POST in flight. Every message has a number of its own and comes from another
sender of the fleet, in an order that looks random. At the end the ledger contains each message that
was answered 200, with its time and duration. So a lost message is noticed, and times can be
compared with other events of that moment.

With a rate each connection sends by the clock, and at once when it is late. Without a rate it sends
when the last message is answered. The process ends after ``--count`` messages, after ``--seconds``,
or when its standard input is closed. It waits for every answer.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import sys
import time
from array import array
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))
# A script finds its package only after the line above.
from benchmarks.common import CLIENT_CORE, quantile  # noqa: E402
from benchmarks.scale.messages import lineage, post  # noqa: E402

ANSWER_S_MAX = 60.0
"""Longest wait for the last answers, in seconds. Then the process fails."""
CONNECT_S_MAX = 10.0
_HEAD_END = b"\r\n\r\n"


class Fleet:
    """The state that all connections share."""

    def __init__(self, lineages: int, first: int, count: int | None, interval: float) -> None:
        self.senders = [lineage(number).encode() for number in range(lineages)]
        self.interval = interval
        """Seconds between two messages of one connection. 0 means: as fast as they are answered."""
        self.number = self.first = first
        self.last = None if count is None else first + count - 1
        self.in_flight = 0
        self.over = False
        self.ended = asyncio.Event()
        self.failure: str | None = None
        self.numbers = array("Q")
        self.sent = array("d")
        self.took = array("d")

    def next(self) -> tuple[int, bytes] | None:
        """Return number and bytes of the next message, or ``None`` if there is none left."""
        if self.over or (self.last is not None and self.number > self.last):
            self.stop()
            return None
        number = self.number
        self.number = number + 1
        self.in_flight += 1
        return number, post(self.senders[number * 7919 % len(self.senders)], number)

    def acknowledged(self, number: int, sent: float, took: float) -> None:
        """Record that message ``number`` was answered 200."""
        self.numbers.append(number)
        self.sent.append(sent)
        self.took.append(took)
        self.in_flight -= 1
        if self.over and not self.in_flight:
            self.ended.set()

    def stop(self, failure: str | None = None) -> None:
        """Send nothing more. End at once after a failure, else after the last answer."""
        self.over = True
        self.failure = self.failure or failure
        if self.failure or not self.in_flight:
            self.ended.set()


class Connection(asyncio.Protocol):
    """Sends messages over one connection."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._buffer = b""
        self._number = 0
        self._sent = 0.0
        self._due = 0.0
        self._transport: asyncio.WriteTransport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # The transport is that of a stream, but uvloop's has no class of asyncio.
        self._transport = transport  # type: ignore[assignment]

    def begin(self, due: float) -> None:
        self._due = due
        asyncio.get_running_loop().call_at(due, self._send)

    def _send(self) -> None:
        message = self._fleet.next()
        if message is not None:
            self._number, data = message
            self._sent = time.monotonic()
            self._transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        head, end, body = self._buffer.partition(_HEAD_END)
        if not end or len(body) < _content_length(head):
            return
        took = time.monotonic() - self._sent
        if not head.startswith(b"HTTP/1.1 200 "):
            self._fleet.stop(f"message {self._number} was answered {self._buffer[:300]!r}")
            return
        self._buffer = b""
        self._fleet.acknowledged(self._number, self._sent, took)
        loop, interval = asyncio.get_running_loop(), self._fleet.interval
        self._due += interval
        if interval and self._due > loop.time():
            loop.call_at(self._due, self._send)
        else:
            self._send()

    def connection_lost(self, error: Exception | None) -> None:
        if not self._fleet.ended.is_set():
            self._fleet.stop(
                f"a connection was closed while message {self._number} was under way ({error})"
            )


def _content_length(head: bytes) -> int:
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            return int(value)
    return 0


async def send(url: str, fleet: Fleet, connections: int, seconds: float) -> None:
    """Send until the fleet has ended, or ``seconds`` after its first message unless that is 0."""
    target, loop = urlsplit(url), asyncio.get_running_loop()
    made = [
        await loop.create_connection(lambda: Connection(fleet), target.hostname, target.port)
        for _ in range(connections)
    ]
    loop.add_reader(
        sys.stdin.fileno(), lambda: None if sys.stdin.buffer.raw.read(1) else fleet.stop()
    )
    begin = loop.time() + 0.05
    for place, (_, connection) in enumerate(made):
        connection.begin(begin + fleet.interval * place / connections)
    if seconds:
        loop.call_at(begin + seconds, fleet.stop)
    while not fleet.over:
        await asyncio.sleep(0.05)
    await asyncio.wait_for(fleet.ended.wait(), ANSWER_S_MAX)
    loop.remove_reader(sys.stdin.fileno())
    for transport, _ in made:
        transport.close()


def main() -> None:
    parser = argparse.ArgumentParser(
        description="SRMP senders with a ledger of what was acknowledged"
    )
    parser.add_argument("url")
    parser.add_argument("--ledger", type=Path, required=True)
    parser.add_argument("--lineages", type=int, default=1)
    parser.add_argument("--first", type=int, required=True)
    parser.add_argument("--count", type=int)
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="end then (default: after --count)"
    )
    parser.add_argument("--connections", type=int, default=32)
    parser.add_argument(
        "--rate", type=float, default=0.0, help="messages a second; 0: as fast as they are answered"
    )
    arguments = parser.parse_args()

    async def run() -> Fleet:
        interval = arguments.connections / arguments.rate if arguments.rate else 0.0
        fleet = Fleet(arguments.lineages, arguments.first, arguments.count, interval)
        await send(arguments.url, fleet, arguments.connections, arguments.seconds)
        return fleet

    try:
        import uvloop

        fleet = uvloop.run(run())
    except ImportError:
        fleet = asyncio.run(run())
    with arguments.ledger.open("wb") as file:
        array("Q", [len(fleet.numbers), fleet.number - fleet.first]).tofile(file)
        for column in (fleet.numbers, fleet.sent, fleet.took):
            column.tofile(file)
    if fleet.failure:
        raise SystemExit(fleet.failure)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The messages that :func:`main` recorded, in the order of their answers."""

    numbers: array[int]
    sent: array[float]
    """Times in seconds on the monotonic clock, which all processes of a machine share."""
    took: array[float]
    made: int
    """Number of messages that were sent, answered or not."""

    @classmethod
    def read(cls, path: Path) -> Ledger:
        """Return the ledger of a file. Raises :class:`EOFError` if the file is cut short."""
        with path.open("rb") as file:
            head = array("Q")
            head.fromfile(file, 2)
            numbers, sent, took = array("Q"), array("d"), array("d")
            for column in (numbers, sent, took):
                column.fromfile(file, head[0])
        return cls(numbers, sent, took, head[1])

    def between(self, begin: float, end: float) -> list[float]:
        """Return the durations in seconds of messages sent in this span of the monotonic clock."""
        return [
            took for sent, took in zip(self.sent, self.took, strict=True) if begin <= sent < end
        ]


class Senders:
    """Runs the fleet as a process; :meth:`finish` returns its ledger."""

    def __init__(
        self,
        url: str,
        ledger: Path,
        *,
        lineages: int,
        first: int,
        connections: int = 32,
        rate: float = 0.0,
        count: int | None = None,
        seconds: float = 0.0,
        core: str | None = CLIENT_CORE,
    ) -> None:
        command = ["taskset", "-c", core] if core else []
        command += [
            sys.executable,
            str(Path(__file__)),
            url,
            "--ledger",
            str(ledger),
            "--lineages",
            str(lineages),
        ]
        command += ["--first", str(first), "--connections", str(connections), "--rate", str(rate)]
        command += ["--count", str(count)] if count else []
        command += ["--seconds", str(seconds)] if seconds else []
        self._ledger = ledger
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)

    def check(self) -> None:
        """Raise :class:`RuntimeError` if the process has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(
                "the senders ended: "
                f"{self._process.stderr.read().decode() if self._process.stderr else ''}"
            )

    def finish(self, *, stop: bool = False) -> Ledger:
        """Wait for the end and return the ledger. ``stop`` asks the process to end.

        Every message that was sent has been answered then.
        """
        assert self._process.stdin is not None
        if stop:
            self._process.stdin.close()
        error = self._process.stderr.read().decode() if self._process.stderr else ""
        if self._process.wait():
            raise RuntimeError(f"the senders failed: {error}")
        self._process.stdin.close()
        return Ledger.read(self._ledger)

    def kill(self) -> None:
        """Kill the process if it still runs."""
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()


@contextmanager
def senders(*arguments: object, **options: object) -> Iterator[Senders]:
    """Provide :class:`Senders` that do not outlive the context."""
    # The arguments are passed on as they are.
    started = Senders(*arguments, **options)  # type: ignore[arg-type]
    try:
        yield started
    finally:
        started.kill()


def p(values: list[float], share: float) -> float:
    """Return a quantile in milliseconds."""
    return quantile(values, share) * 1e3


if __name__ == "__main__":
    main()
