"""A caller's TCP connection, lent to the reader process for the body of one answer.

Passing all rows of a backlog through this process would cost one microsecond of CPU time for each
row of 1 KB, only for copying. Therefore the reader process writes into the caller's connection
itself. The head and the end of the answer stay with the ASGI server. The server chooses chunked
transfer for an answer without a length, and the reader writes only chunks in between. A connection
with TLS has its state in this process, so it is not lent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "srmp.connection"
"""Key of the caller's :class:`Connection` in the extensions of an ASGI scope."""
OWNER = "srmp.owner"
"""Key of the user id of the calling process among the extensions of an ASGI scope.

The value is ``None`` if the user id was not determined.
"""
FLUSH_PAUSE_SECONDS = 0.001
"""Interval of the check whether the head of an answer was sent, in seconds.

The head is sent after one turn of the loop unless the caller accepts nothing.
"""
FLUSH_SECONDS_MAX = 60.0
"""Longest wait for the head of an answer to be sent, in seconds.

A caller that does not accept the head is disconnected.
"""


class Connection:
    """A caller's connection without TLS, which another process may write into."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def is_lost(self) -> bool:
        """Return whether the connection is closed or closing."""
        return self._transport.is_closing()

    async def flushed(self) -> int:
        """Wait until all written bytes were sent, and return the socket's file descriptor.

        The wait is at most FLUSH_SECONDS_MAX. Raises :class:`ConnectionResetError` if the caller
        disconnects, or does not accept all bytes in this time.
        """
        end = asyncio.get_running_loop().time() + FLUSH_SECONDS_MAX
        while not self._transport.is_closing():
            if not self._transport.get_write_buffer_size():
                return int(self._transport.get_extra_info("socket").fileno())
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(FLUSH_PAUSE_SECONDS)
        raise ConnectionResetError("the caller went away")

    def cut(self) -> None:
        """Shut the connection down at once, for every process that uses it.

        Nothing happens if the connection is closed or closing.
        """
        if not self._transport.is_closing():
            with (
                contextlib.suppress(OSError),
                socket.socket(
                    fileno=os.dup(self._transport.get_extra_info("socket").fileno())
                ) as own,
            ):
                own.shutdown(socket.SHUT_RDWR)


class LendingProtocol(HttpToolsProtocol):
    """Protocol of uvicorn that passes the caller's connection to the application."""

    def on_message_begin(self) -> None:
        """Begin a request, and put its :class:`Connection` into its scope unless it has TLS."""
        super().on_message_begin()
        if self.scheme == "http":
            extensions: dict[str, Any] = {EXTENSION: Connection(self.transport)}
            self.scope["extensions"] = extensions
