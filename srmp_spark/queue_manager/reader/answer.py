"""How the reader process answers one command: packets into the socket that came with it (see :mod:`.link`)."""

from __future__ import annotations

import errno
import json
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

from srmp_spark.errors import StoreDamagedError, StoreError
from srmp_spark.interface import PAST_THE_END, TRIMMED, UNKNOWN_EPOCH, UNKNOWN_QUEUE
from srmp_spark.queue_manager.child_link import PACKET_MAX
from srmp_spark.queue_manager.reader.link import DAMAGED
from srmp_spark.store.log import PastTheEndError, TrimmedError, UnknownEpochError, UnknownQueueError

STALL_SECONDS = 120.0
"""A caller that takes nothing for so long is given up: its thread is needed."""
DATA_MAX = PACKET_MAX - 1
SEND_MAX = 1024 * 1024
"""Bytes of one call into the caller's connection: what STALL_SECONDS count for."""
EVENT_QUEUES_MAX = 100
"""Queues in one packet of an event: even names of 127 characters that JSON writes as six each stay below PACKET_MAX."""
REFUSAL_TEXT_MAX = 8_192
"""Characters of a message or hint: written as six each, both stay below PACKET_MAX."""
EVENT_TEXT_MAX = 8_192
"""Characters of an error in an event."""

log = logging.getLogger(__name__)


class Answer:
    """The reader's end of one answer. A caller that went away raises :class:`OSError` from every method."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(STALL_SECONDS)
        self._caller: socket.socket | None = None
        self._pending = bytearray()

    def head(self, value: dict[str, Any]) -> None:
        """The head, or the whole answer."""
        self._connection.send(b"H" + json.dumps(value).encode())

    def take_caller(self) -> None:
        """Wait for the caller's own connection: data goes into it, as chunks of HTTP."""
        _, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        if not descriptors:
            raise BrokenPipeError  # the caller went away
        self._caller = socket.socket(fileno=descriptors[0])
        self._caller.settimeout(STALL_SECONDS)

    def write(self, data: Any) -> int:  # noqa: ANN401  # bytes, or a buffer of Arrow
        """Data; collected into full packets."""
        view = memoryview(data).cast("B")
        size = len(view)
        if self._caller is not None and size >= DATA_MAX:
            self.flush()
            self._send(view)
            return size
        at = 0
        if self._pending:
            at = min(DATA_MAX - len(self._pending), size)
            self._pending += view[:at]
            if len(self._pending) < DATA_MAX:
                return size
            self.flush()
        while size - at >= DATA_MAX:
            self._send(view[at : at + DATA_MAX])
            at += DATA_MAX
        self._pending += view[at:]
        return size

    def flush(self) -> None:
        """Send what is collected."""
        if self._pending:
            self._send(memoryview(self._pending))
            self._pending = bytearray()

    def _send(self, data: memoryview) -> None:
        if self._caller is None:
            self._connection.sendmsg((b"D", data))
            return
        for part in (memoryview(b"%x\r\n" % len(data)), data, memoryview(b"\r\n")):
            left = part
            while left:  # not sendall, whose timeout is for all of it: a slow caller is no stalled one
                left = left[self._caller.send(left[:SEND_MAX]) :]

    def end(self) -> None:
        """Everything was sent."""
        self.flush()
        self._connection.send(b"E")

    def refuse(self, error: BaseException) -> None:
        """Say why there is no answer, or no more of it."""
        self.refuse_with(*_refusal_of(error), str(error))

    def refuse_with(self, status: int, code: str, message: str, hint: str = "") -> None:
        """The same in words."""
        refusal = {"status": status, "code": code, "message": message[:REFUSAL_TEXT_MAX], "hint": hint[:REFUSAL_TEXT_MAX]}
        self._connection.send(b"X" + json.dumps(refusal).encode())

    def receive(self, size: int) -> bytes:
        """A packet from the main process: of a command that was too long to go by itself."""
        return self._connection.recv(size)

    def close(self) -> None:
        """Give the sockets up."""
        self._connection.close()
        if self._caller is not None:
            self._caller.close()


class Events:
    """What the reader tells the main process unasked, in packets below PACKET_MAX.

    Of a report of the publisher only what changed since the last one goes out; its last packet is the event itself, those
    before it are ``{"event": "synced", "sequences"}``.
    """

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._lock = threading.Lock()
        self._told: dict[tuple[str, str], int] = {}

    def tell(self, event: dict[str, Any]) -> None:
        """Send an event. A packet that does not fit is logged; a main process that is gone is not worth a word."""
        with self._lock:
            try:
                for packet in self._packets(event):
                    self._control.send(packet)
            except OSError as error:
                if error.errno == errno.EMSGSIZE:
                    log.error("reader.event_too_large event=%s", event["event"])  # noqa: TRY400  # nothing to trace

    def _packets(self, event: dict[str, Any]) -> Iterator[bytes]:
        if "error" in event:
            event = {**event, "error": event["error"][:EVENT_TEXT_MAX]}
        if event["event"] == "published":
            last = {
                (epoch, queue): sequence for epoch, found in event["sequences"].items() for queue, sequence in found.items()
            }
            changed = [(key, sequence) for key, sequence in last.items() if self._told.get(key) != sequence]
            while len(changed) > EVENT_QUEUES_MAX:
                part, changed = changed[:EVENT_QUEUES_MAX], changed[EVENT_QUEUES_MAX:]
                yield json.dumps({"event": "synced", "sequences": _by_epoch(part)}).encode()
            event = {key: value for key, value in event.items() if key != "damaged"}  # told as events of their own
            event["sequences"] = _by_epoch(changed)
            self._told = last
        yield json.dumps(event).encode()


def _by_epoch(sequences: list[tuple[tuple[str, str], int]]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for (epoch, queue), sequence in sequences:
        found.setdefault(epoch, {})[queue] = sequence
    return found


class AnswerFile:
    """An answer as a file that Arrow can write to; closing it ends nothing."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self.closed = False

    def write(self, data: Any) -> int:  # noqa: ANN401  # bytes, or a buffer of Arrow
        """As :meth:`Answer.write`."""
        return self._answer.write(data)

    def flush(self) -> None:
        """Nothing: packets go out when they are full, and at the end."""

    def close(self) -> None:
        """Only notes it."""
        self.closed = True

    def writable(self) -> bool:
        """Always."""
        return True

    def readable(self) -> bool:
        """Never."""
        return False

    def seekable(self) -> bool:
        """Never."""
        return False


def _refusal_of(error: BaseException) -> tuple[int, str]:
    for kind, status, code in (
        (UnknownQueueError, 404, UNKNOWN_QUEUE),
        (UnknownEpochError, 409, UNKNOWN_EPOCH),
        (PastTheEndError, 409, PAST_THE_END),
        (TrimmedError, 410, TRIMMED),
        (StoreDamagedError, 409, DAMAGED),
        (StoreError, 503, "store"),
    ):
        if isinstance(error, kind):
            return status, code
    return 503, "internal"
