"""One address that leads to whichever node is active, as a Kubernetes Service or a moved IP does.

Senders, readers and queries know this address alone. A node that takes over has another address,
and only :meth:`ServiceAddress.lead_to` is told about it.
"""

from __future__ import annotations

import asyncio
import contextlib

PIECE_BYTES = 65_536
"""Most bytes that are forwarded in one step."""


class ServiceAddress:
    """A TCP port of the loopback that forwards each connection to one other address.

    While the other address is closed, a new connection is accepted and closed at once.
    """

    def __init__(self) -> None:
        self.port = 0
        """The number of the port, after :meth:`start`."""
        self._target: tuple[str, int] | None = None
        self._server: asyncio.Server | None = None
        self._writers: set[asyncio.StreamWriter] = set()

    async def start(self) -> None:
        """Listen on a free port of 127.0.0.1, for the running loop."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]

    @property
    def url(self) -> str:
        """Return the address as a URL."""
        return f"http://127.0.0.1:{self.port}"

    def lead_to(self, url: str) -> None:
        """Forward new connections to ``http://HOST:PORT``, and close the others."""
        host, _, port = url.partition("://")[2].rpartition(":")
        self._target = (host, int(port))
        self._close_connections()

    async def stop(self) -> None:
        """Close the port and every connection."""
        if self._server is not None:
            self._server.close()
            self._close_connections()
            await self._server.wait_closed()
            self._server = None

    def _close_connections(self) -> None:
        for writer in list(self._writers):
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writers = [writer]
        self._writers.add(writer)
        try:
            if self._target is not None:
                behind, ahead = await asyncio.open_connection(*self._target)
                writers.append(ahead)
                self._writers.add(ahead)
                await asyncio.gather(_forward(reader, ahead), _forward(behind, writer))
        except OSError:
            # The node is gone, or was gone before the connection reached it.
            pass
        finally:
            for each in writers:
                self._writers.discard(each)
                each.close()


async def _forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy bytes until one side is closed; then close the other one, too."""
    try:
        while piece := await reader.read(PIECE_BYTES):
            writer.write(piece)
            await writer.drain()
    finally:
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()
