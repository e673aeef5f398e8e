"""How a child answers one command: packets into the socket that came with it (see :mod:`.packets`)."""

from __future__ import annotations

import json
import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from srmp_spark.queue_manager.child.packets import DATA, END, HEAD, PACKET_MAX, REFUSAL

STALL_SECONDS = 120.0
"""A caller that takes nothing for that long is given up: its thread is needed."""
STALL_LOOK_SECONDS = 1.0
"""How often a thread that waits for its caller looks at whether it may wait on (:attr:`AnswerWriter.patience`)."""
DATA_MAX = PACKET_MAX - 1
SEND_MAX = 1024 * 1024
"""Bytes of one call into the caller's connection: what STALL_SECONDS count for."""
REFUSAL_TEXT_MAX = 8_192
"""Characters of a message or hint: written as six each, both stay below PACKET_MAX."""


class AnswerWriter:
    """The child's end of one answer. A caller that went away raises :class:`OSError` from every method."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(STALL_SECONDS)
        self.patience: Callable[[], float] = lambda: STALL_SECONDS
        """How long a caller may take nothing now. It is asked while the caller is waited for: others may begin to wait."""
        self._caller: socket.socket | None = None
        self._pending = bytearray()

    def head(self, value: dict[str, Any]) -> None:
        """The head, or the whole answer."""
        self._put(HEAD + json.dumps(value).encode())

    def whole(self, value: dict[str, Any]) -> None:
        """The whole answer, whatever its length (:meth:`.link.ChildLink.ask_long`)."""
        text = json.dumps(value).encode()
        if len(text) < PACKET_MAX:
            self.head(value)
            return
        self.head({"long": True})
        self.write(text)
        self.end()

    def take_caller(self) -> None:
        """Wait for the caller's own connection: data goes into it, as chunks of HTTP."""
        self._wait_for(
            self._connection, select.POLLIN
        )  # the head of the answer may wait for the caller
        _, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        if not descriptors:
            raise BrokenPipeError  # the caller went away
        self._caller = socket.socket(fileno=descriptors[0])
        self._caller.setblocking(False)

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

    def write_file(self, file: BinaryIO, begin: int, end: int) -> None:
        """Send the bytes of a file from ``begin`` to ``end``; those for a caller's connection do not come into this process.

        Raises :class:`EOFError` if the file has fewer.
        """
        if self._caller is None:
            left = end - begin
            file.seek(begin)
            while left:
                data = file.read(min(left, SEND_MAX))
                if not data:
                    raise EOFError(f"{file.name} ends {left} bytes early")
                self.write(data)
                left -= len(data)
            return
        self.flush()
        self._send_all(memoryview(b"%x\r\n" % (end - begin)))
        at = begin
        while at < end:
            try:
                sent = os.sendfile(
                    self._caller.fileno(), file.fileno(), at, min(end - at, SEND_MAX)
                )
            except BlockingIOError:
                self._wait_for(self._caller, select.POLLOUT)
                continue
            if not sent:
                raise EOFError(f"{file.name} ends {end - at} bytes early")
            at += sent
        self._send_all(memoryview(b"\r\n"))

    def flush(self) -> None:
        """Send what is collected."""
        if self._pending:
            self._send(memoryview(self._pending))
            self._pending = bytearray()

    def _send(self, data: memoryview) -> None:
        if self._caller is None:
            self._wait_for(self._connection, select.POLLOUT)
            self._connection.sendmsg((DATA, data))
            return
        for part in (memoryview(b"%x\r\n" % len(data)), data, memoryview(b"\r\n")):
            self._send_all(part)

    def _send_all(self, data: memoryview) -> None:
        """Send into the caller's connection. Each part has its own wait: a slow caller is no stalled one."""
        assert self._caller is not None
        while data:
            self._wait_for(self._caller, select.POLLOUT)
            data = data[self._caller.send(data[:SEND_MAX]) :]

    def _put(self, packet: bytes) -> None:
        self._wait_for(self._connection, select.POLLOUT)
        self._connection.send(packet)

    def _wait_for(self, connection: socket.socket, event: int) -> None:
        """Wait until a socket is ready. Raises :class:`TimeoutError` when the caller's patience is over."""
        poll = select.poll()
        poll.register(connection, event)
        began = time.monotonic()
        while not poll.poll(STALL_LOOK_SECONDS * 1000):
            if time.monotonic() - began >= self.patience():
                raise TimeoutError("the caller takes nothing")

    def end(self) -> None:
        """Everything was sent."""
        self.flush()
        self._put(END)

    def refuse(self, status: int, code: str, message: str, hint: str = "") -> None:
        """Say why there is no answer, or no more of it."""
        refusal = {
            "status": status,
            "code": code,
            "message": message[:REFUSAL_TEXT_MAX],
            "hint": hint[:REFUSAL_TEXT_MAX],
        }
        self._put(REFUSAL + json.dumps(refusal).encode())

    def receive(self, size: int) -> bytes:
        """A packet from the main process: of a command that was too long to go by itself."""
        return self._connection.recv(size)

    def close(self) -> None:
        """Give the sockets up."""
        self._connection.close()
        if self._caller is not None:
            self._caller.close()
