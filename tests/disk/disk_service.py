"""A real ``serve`` on a disk that refuses, and a sender that writes down every answer."""

from __future__ import annotations

import contextlib
import http.client
import os
import re
import signal
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.queue_manager import RunningQueueManager

QUEUE = "private$/orders"
SOURCE = "aaaaaaaa-0000-4000-8000-000000000001"
ANSWER_SECONDS = 20


class Answer(NamedTuple):
    """What came back for a message; status ``None``: nothing, the connection ended."""

    number: int
    status: int | None
    at: float
    """``time.time``."""


def body_of(number: int, size: int = 0) -> bytes:
    return (b"message %d " % number).ljust(size, b".")


class Sender:
    """One connection, one message in flight."""

    def __init__(self, running: RunningQueueManager, size: int = 0) -> None:
        self._endpoint = running.endpoint
        self._size = size
        self._connection: http.client.HTTPConnection | None = None
        self.answers: list[Answer] = []

    def send(self, number: int) -> int | None:
        message = ForeignMessage(
            to=f"http://localhost/msmq/{QUEUE}", lineage=SOURCE, uniquifier=number, sent_at=1_790_000_000,
            body=body_of(number, self._size), durable=True,
        )  # fmt: skip
        written = post(message)
        status = None
        try:
            if self._connection is None:
                self._connection = http.client.HTTPConnection(
                    *self._endpoint, timeout=ANSWER_SECONDS
                )
            self._connection.request(
                "POST", written.target, written.content, {"Content-Type": written.content_type}
            )
            answer = self._connection.getresponse()
            status = answer.status
            answer.read()
            if answer.will_close:
                self._close()
        except (OSError, http.client.HTTPException):
            self._close()
        self.answers.append(Answer(number, status, time.time()))
        return status

    def send_until_refused(self, numbers: Iterable[int]) -> int:
        """Returns the first number that was not answered 200."""
        for number in numbers:
            if self.send(number) != 200:
                return number
        raise AssertionError("nothing was refused")

    def _close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    @property
    def accepted(self) -> set[int]:
        return {answer.number for answer in self.answers if answer.status == 200}


class Senders:
    """Several of them in threads, until they are stopped; a message that is not taken is sent again."""

    def __init__(self, running: RunningQueueManager, count: int, size: int, first: int = 1) -> None:
        self._stop = threading.Event()
        self.senders = [Sender(running, size) for _ in range(count)]
        self._threads = [
            threading.Thread(target=self._run, args=(sender, first + n, count), daemon=True)
            for n, sender in enumerate(self.senders)
        ]
        for thread in self._threads:
            thread.start()

    def _run(self, sender: Sender, number: int, step: int) -> None:
        while not self._stop.is_set():
            if sender.send(number) == 200:
                number += step
            else:
                self._stop.wait(0.02)

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join()

    @property
    def answers(self) -> list[Answer]:
        return sorted(
            (answer for sender in self.senders for answer in list(sender.answers)),
            key=lambda answer: answer.at,
        )

    @property
    def accepted(self) -> set[int]:
        return set().union(*(sender.accepted for sender in self.senders))


def landed(api: str, queue: str = QUEUE, after: int = 0, to: int | None = None) -> list[int]:
    """Numbers of the messages in the log, in its order; each body is looked at."""
    client = QueueManagerClient(api, retry_seconds=10)
    found = client.range(queue, after=after)
    numbers = []
    end = found.end if to is None else to
    while after < end:
        step = client.range(queue, after=after, max_rows=min(2_000, end - after))
        with client.rows(queue, epoch=found.epoch, after=after, to=step.last) as stream:
            rows: Any = pa.ipc.open_stream(stream.as_file()).read_all()
        for number, body in zip(
            rows.column("uniquifier").to_pylist(), rows.column("body").to_pylist(), strict=True
        ):
            assert body.startswith(body_of(number)), f"{number} has the body of another message"
            numbers.append(number)
        after = step.last
    return numbers


# --- strace around serve ----------------------------------------------------------------------------------------------------


def failing(log: Path, file: Path, call: str, when: str, error: str = "EIO") -> list[str]:
    """Before the interpreter: the ``when``-th ``call`` on ``file`` of a thread fails; ``log`` tells of the file."""
    calls = "trace=write,pwrite64,fdatasync,fsync"
    return [
        "strace", "-f", "-q", "-ttt", "-y", "-o", str(log), "-e", calls, "-e", f"inject={call}:error={error}:when={when}",
        "-P", str(file),
    ]  # fmt: skip


def stop(running: RunningQueueManager) -> None:
    """SIGTERM to the queue manager and not to strace, which would keep it for itself."""
    assert running.process is not None
    if running.process.poll() is None:
        with contextlib.suppress(ProcessLookupError):  # it has just ended
            os.kill(running.pid, signal.SIGTERM)
        running.process.wait(30)


class Failure(NamedTuple):
    """The first call that was made to fail."""

    pid: int
    at: float
    later_syncs: list[str]
    """Of the same file by the same process."""
    exited: dict[int, tuple[float, int]]
    """(when, code) by process."""


_LINE = re.compile(r"^(\d+) +(\d+\.\d+) (.*)$")
_EXIT = re.compile(r"^\+\+\+ exited with (\d+) \+\+\+$")


def failure_of(log: Path) -> Failure:
    lines = [
        match.groups() for line in log.read_text().splitlines() if (match := _LINE.match(line))
    ]
    at = next(n for n, (_, _, text) in enumerate(lines) if "(INJECTED)" in text)
    pid, when, _ = lines[at]
    later = [text for _, _, text in lines[at + 1 :] if text.startswith(("fsync(", "fdatasync("))]
    exited = {int(p): (float(t), int(m[1])) for p, t, text in lines if (m := _EXIT.match(text))}
    return Failure(int(pid), float(when), later, exited)
