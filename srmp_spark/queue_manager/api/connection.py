"""A caller's TCP connection, lent to the reader process for the body of one answer.

A backlog that goes through this process costs it 1 us of CPU time for each row of 1 KB, all of it copying; so the reader writes
into the caller's connection itself. The head and the end stay with the ASGI server: it chooses chunked transfer for an answer
without a length, and only chunks lie in between. TLS has its state here: its connections are not lent.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

EXTENSION = "srmp.connection"
"""Where an ASGI scope holds it."""
OWNER = "srmp.owner"
"""Where an ASGI scope holds the user id of the process at the other end, if it was asked for."""
FLUSH_PAUSE_SECONDS = 0.001
"""How often is looked whether the head is out; it is, after one turn of the loop, unless the caller takes nothing."""
FLUSH_SECONDS_MAX = 60.0
"""A caller that does not even take the head of its answer is given up."""


class Connection:
    """One connection without TLS."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    @property
    def is_lost(self) -> bool:
        """Whether the caller went away."""
        return self._transport.is_closing()

    async def flushed(self) -> int:
        """Wait until nothing that was written is left here; the descriptor. Raises :class:`ConnectionResetError`."""
        end = asyncio.get_running_loop().time() + FLUSH_SECONDS_MAX
        while not self._transport.is_closing():
            if not self._transport.get_write_buffer_size():
                return int(self._transport.get_extra_info("socket").fileno())
            if asyncio.get_running_loop().time() > end:
                break
            await asyncio.sleep(FLUSH_PAUSE_SECONDS)
        raise ConnectionResetError("the caller went away")

    def cut(self) -> None:
        """End it for everybody who holds it."""
        if not self._transport.is_closing():
            with (
                contextlib.suppress(OSError),
                socket.socket(
                    fileno=os.dup(self._transport.get_extra_info("socket").fileno())
                ) as own,
            ):
                own.shutdown(socket.SHUT_RDWR)


class LendingProtocol(HttpToolsProtocol):
    """uvicorn's protocol that tells the application its connection."""

    def on_message_begin(self) -> None:
        """A request begins: its scope is made."""
        super().on_message_begin()
        if self.scheme == "http":
            extensions: dict[str, Any] = {EXTENSION: Connection(self.transport)}
            self.scope["extensions"] = extensions
