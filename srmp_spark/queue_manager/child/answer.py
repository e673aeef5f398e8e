"""Write a child's answer to one command.

The answer consists of packets that are written into the socket that was received with the command
(see :mod:`.packets`).
"""

from __future__ import annotations

import os
import select
import socket
import time
from collections.abc import Callable
from typing import Any, BinaryIO

from srmp_spark.queue_manager.child.encoding import encode
from srmp_spark.queue_manager.child.packets import (
    BEGIN,
    DATA,
    END,
    PACKET_MAX,
    REFUSAL,
    WHOLE,
    Refusal,
)

STALL_SECONDS = 120.0
"""Longest time for which the caller (the HTTP client) may accept no byte, in seconds.

It is disconnected after that, because its thread is needed.
"""
STALL_LOOK_SECONDS = 1.0
"""Seconds after which a waiting thread reads :attr:`AnswerWriter.patience` again, because the
patience may have become shorter.
"""
DATA_MAX = PACKET_MAX - 1
SEND_MAX = 1024 * 1024
"""Most bytes of one system call into the caller's connection.

STALL_SECONDS apply to each such call.
"""
REFUSAL_TEXT_MAX = 8_192
"""Most characters of a refusal's message or hint.

Longer texts are cut. JSON writes a character as up to six bytes, so message and hint together stay
below PACKET_MAX.
"""


class AnswerWriter:
    """The child's end of the answer to one command.

    A packet (:mod:`.packets`) goes to the main process. "The caller" is the HTTP client that waits
    for the answer. Methods that send raise :class:`OSError` if the other end is closed, and
    :class:`TimeoutError` (an OSError too) if it accepts no byte for :attr:`patience` seconds.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        connection.settimeout(STALL_SECONDS)
        self.patience: Callable[[], float] = lambda: STALL_SECONDS
        """Returns the seconds for which a caller may accept no byte at present.

        It is called while the answer waits for the caller, because other callers may begin to wait
        meanwhile.
        """
        self._caller: socket.socket | None = None
        self._pending = bytearray()

    def begin(self) -> None:
        """Send the packet that states that the answer follows as data.

        Raises :class:`OSError` if the other end is closed or accepts nothing.
        """
        self._put(BEGIN)

    def whole(self, value: object) -> None:
        """Send the whole answer ``value``: as one packet, or, from PACKET_MAX bytes on, as data.

        The main process reads both forms with :meth:`.link.ChildLink.ask_long`, and the first form
        with :meth:`.link.ChildLink.ask`.
        """
        text = encode(value)
        if len(text) < PACKET_MAX:
            self._put(WHOLE + text)
            return
        self.begin()
        self.write(text)
        self.end()

    def take_caller(self) -> None:
        """Wait for the socket of the caller's own connection, which the main process sends.

        From then on, :meth:`write` writes the data into this socket as chunks of HTTP. Raises
        :class:`BrokenPipeError` if the main process closed its end instead, because the caller has
        disconnected. Raises :class:`TimeoutError` if nothing arrives for :attr:`patience` seconds.
        """
        # The main process first writes the head of its HTTP answer, which may wait for the caller.
        self._wait_for(self._connection, select.POLLIN)
        _, descriptors, _, _ = socket.recv_fds(self._connection, 1, 1)
        if not descriptors:
            raise BrokenPipeError  # The caller has disconnected.
        self._caller = socket.socket(fileno=descriptors[0])
        self._caller.setblocking(False)

    def write(self, data: Any) -> int:  # noqa: ANN401  # bytes, or a buffer of Arrow
        """Add bytes to the data of the answer, and return their number.

        Bytes are sent as full packets. The rest is kept until more bytes are written or
        :meth:`flush` is called.
        """
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
        """Send the bytes of ``file`` from offset ``begin`` (included) to offset ``end`` (excluded).

        If :meth:`take_caller` has received the caller's connection, the kernel copies the bytes
        into it (``sendfile``), and they do not pass through this process. Raises :class:`EOFError`
        if the file ends before ``end``.
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
        """Send the bytes that are kept for the next packet, if there are any."""
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
        """Send all of ``data`` into the caller's connection.

        :attr:`patience` applies to each call of the kernel, so a slow caller is not treated as a
        stalled caller. Raises :class:`TimeoutError` if the caller accepts no byte for that long.
        """
        assert self._caller is not None
        while data:
            self._wait_for(self._caller, select.POLLOUT)
            data = data[self._caller.send(data[:SEND_MAX]) :]

    def _put(self, packet: bytes) -> None:
        self._wait_for(self._connection, select.POLLOUT)
        self._connection.send(packet)

    def _wait_for(self, connection: socket.socket, event: int) -> None:
        """Wait until ``poll`` reports ``event`` (POLLIN or POLLOUT) for ``connection``.

        Raises :class:`TimeoutError` after :attr:`patience` seconds without the event.
        """
        poll = select.poll()
        poll.register(connection, event)
        began = time.monotonic()
        while not poll.poll(STALL_LOOK_SECONDS * 1000):
            if time.monotonic() - began >= self.patience():
                raise TimeoutError("the caller accepts no data")

    def end(self) -> None:
        """Send the bytes that are kept, and then the end packet.

        It states that the answer is complete.
        """
        self.flush()
        self._put(END)

    def refuse(self, status: int, code: str, message: str, hint: str = "") -> None:
        """Send a refusal: an HTTP status, a code, a message and a hint for the caller.

        It states why there is no answer, or why the answer breaks off. Message and hint are cut to
        REFUSAL_TEXT_MAX characters each.
        """
        refusal = Refusal(status, code, message[:REFUSAL_TEXT_MAX], hint[:REFUSAL_TEXT_MAX])
        self._put(REFUSAL + encode(refusal))

    def receive(self, size: int) -> bytes:
        """Return the next packet of a long command from the main process, cut to ``size`` bytes.

        Return no bytes if the main process has closed its end. Raises :class:`TimeoutError` if no
        packet arrives for STALL_SECONDS.
        """
        return self._connection.recv(size)

    def close(self) -> None:
        """Close the sockets of this answer."""
        self._connection.close()
        if self._caller is not None:
            self._caller.close()
