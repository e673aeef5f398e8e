"""A listening socket with a thread for each connection, and requests that can be left unread.

Written by hand so that a connection can end before a byte is read, after the last byte, or in the middle of an answer.
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
"""A longer head is an attack."""
CONTENT_MAX = 8_388_608
"""A message is at most 4 MB ([MC-MQSRM] 1.6); twice that leaves room for an extension."""
IDLE_MAX = 300.0
"""Seconds a connection may say nothing (Session Cleanup Timer, appendix A <19>)."""
BACKLOG = 1_024
"""A sender with a thousand destinations knocks for all of them at once; who finds no place here waits for seconds."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What to write, and whether the connection ends then. ``written`` is called when the whole answer is on its way."""

    answer: bytes = b""
    drop: bool = False
    written: Callable[[], None] | None = None


class Request:
    """A request of which at least one byte has arrived. Whoever does not :meth:`read` it leaves it in the socket."""

    def __init__(self, connection: socket.socket, rest: bytearray) -> None:
        self._connection, self._rest = connection, rest

    def read(self) -> tuple[str, bytes]:
        """Head without its empty line, and content. Raises :class:`MalformedError`, or :class:`OSError` when it ends early."""
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
    """A port that can be closed and opened again at the same number."""

    def __init__(self, host: str, port: int, serve: Callable[[Request], Reply]) -> None:
        self.port = port
        self._host, self._serve = host, serve
        self._socket: socket.socket | None = None
        self._connections: set[socket.socket] = set()
        self._lock = threading.Lock()

    def open(self) -> None:
        """Listen. The first time port 0 becomes a real number."""
        listening = socket.socket()
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((self._host, self.port))
        listening.listen(BACKLOG)
        self.port = listening.getsockname()[1]
        self._socket = listening
        threading.Thread(target=self._accept, args=(listening,), name="accept", daemon=True).start()

    def close(self) -> None:
        """Close the port and end every connection."""
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
            except OSError:
                return  # closed
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
                reply = self._serve(Request(connection, rest))
                connection.sendall(reply.answer)
                if reply.written is not None:
                    reply.written()
                if reply.drop:
                    return
        except OSError:
            return  # the peer went away, or the port was closed
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()
