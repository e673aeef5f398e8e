"""Listen with a thread for each connection, and read requests only on demand.

The module uses no HTTP library, so that a connection can end before a byte is read, after the last
byte, or in the middle of an answer.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from srmp_spark.testing.foreign.incoming import MalformedError, header_of

HEAD_MAX = 65_536
"""Most bytes of a request head. A longer head raises :class:`MalformedError`."""
CONTENT_MAX = 8_388_608
"""Most bytes of a request's content. More raises :class:`MalformedError`.

A message has at most 4 MB ([MC-MQSRM] 1.6); twice that leaves room for an extension.
"""
IDLE_MAX = 300.0
"""Longest time that a connection may be silent, in seconds.

Then it is closed (Session Cleanup Timer, appendix A <19>).
"""
BACKLOG = 1_024
"""Most connections that wait to be accepted.

A sender with a thousand destinations connects for all of them at once. A connection that finds no
place waits for seconds.
"""


@dataclass(frozen=True, slots=True)
class Reply:
    """The bytes of an answer, and whether the connection ends after them (``drop``).

    ``written`` is called when the whole answer is in the socket.
    """

    answer: bytes = b""
    drop: bool = False
    written: Callable[[], None] | None = None


class WireRequest:
    """A request of which at least one byte has arrived.

    The bytes stay in the socket until :meth:`read`.
    """

    def __init__(self, connection: socket.socket, rest: bytearray) -> None:
        self._connection, self._rest = connection, rest

    def read(self) -> tuple[str, bytes]:
        """Read the request, and return its head (request line and header lines) and its content.

        An ``Expect: 100-continue`` is answered. Raises :class:`MalformedError` for a wrong framing
        or a request above :data:`HEAD_MAX` or :data:`CONTENT_MAX`. Raises :class:`OSError` if the
        connection ends early or is silent for :data:`IDLE_MAX`.
        """
        rest = self._rest
        while (end := rest.find(b"\r\n\r\n")) < 0:
            if len(rest) > HEAD_MAX:
                raise MalformedError("2.1.1", "the head has no end")
            self._more()
        head = rest[:end].decode("latin-1")
        fields = head.partition("\r\n")[2]
        length = header_of(fields, "Content-Length")
        if (
            header_of(fields, "Transfer-Encoding") is not None
            or length is None
            or not re.fullmatch("[0-9]{1,9}", length)
        ):
            raise MalformedError(
                "2.1.1", f"a POST has one Content-Length and no other framing: {length!r}"
            )
        if int(length) > CONTENT_MAX:
            raise MalformedError("2.1.1", f"Content-Length {length} is more than {CONTENT_MAX}")
        if (header_of(fields, "Expect") or "").lower() == "100-continue":
            self._connection.sendall(b"HTTP/1.1 100 Continue\r\n\r\n")
        while len(rest) < end + 4 + int(length):
            self._more()
        content = bytes(rest[end + 4 : end + 4 + int(length)])
        del rest[: end + 4 + int(length)]
        return head, content

    def _more(self) -> None:
        piece = self._connection.recv(65_536)
        if not piece:
            raise ConnectionError("the connection ended inside a request")
        self._rest += piece


class Listener:
    """A port that can be closed and opened again with the same number.

    ``serve`` is called for each request, in the thread of its connection, and returns the answer.
    """

    def __init__(self, host: str, port: int, serve: Callable[[WireRequest], Reply]) -> None:
        self.port = port
        self._host, self._serve = host, serve
        self._socket: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Begin to listen and to serve connections. At the first call port 0 becomes a real number.

        Raises :class:`OSError` if the port is in use.
        """
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((self._host, self.port))
        listening.listen(BACKLOG)
        self.port = listening.getsockname()[1]
        self._socket = listening
        threading.Thread(target=self._accept, args=(listening,), name="accept", daemon=True).start()

    def close(self) -> None:
        """Close the port and end every connection, also in the middle of a request."""
        with self._lock:
            listening, self._socket = self._socket, None
            connections, self._connections = self._connections, set()
        for each in ([listening] if listening else []) + list(connections):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            # The port was closed.
            except OSError:
                return
            with self._lock:
                if self._socket is not listening:
                    connection.close()
                    return
                self._connections.add(connection)
            threading.Thread(
                target=self._converse, args=(connection,), name="connection", daemon=True
            ).start()

    def _converse(self, connection: socket.socket) -> None:
        rest = bytearray()
        try:
            connection.settimeout(IDLE_MAX)
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while rest or connection.recv(1, socket.MSG_PEEK):
                reply = self._serve(WireRequest(connection, rest))
                connection.sendall(reply.answer)
                if reply.written is not None:
                    reply.written()
                if reply.drop:
                    return
        except OSError:
            # The peer has closed the connection, or the port was closed.
            return
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
