"""Connections of an attacker: bytes in any pieces, from any loopback address.

The answers may be read or not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from random import Random

from tests.kit.attack.judge import ANSWER_MAX

ANSWER_BYTES_MAX = 64_000_000
"""Most bytes of the content of one answer; a longer content is cut off."""
CONNECT_SECONDS = 10.0
"""Longest wait for a connection, in seconds; a full listener may let a client wait."""


class ClosedError(Exception):
    """Raised when the other end closes the connection or sends no valid answer."""


class SilentError(Exception):
    """Raised when no complete answer arrives in time on an open connection."""


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer of HTTP: status, header fields (names in lower case) and content."""

    status: int
    headers: Mapping[str, str]
    content: bytes


class Connection:
    """One TCP connection to a port of the target."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(
        cls, address: tuple[str, int], who: str = "127.0.0.2", *, reads: bool = True
    ) -> Connection:
        """Connect to ``address`` from the loopback address ``who``.

        If ``reads`` is false, the receive buffer is small, so that the target cannot send its
        answers. Raises :class:`ClosedError` if there is no connection after
        :data:`CONNECT_SECONDS`.
        """
        limit = 1 << 20 if reads else 1 << 10
        try:
            opening = asyncio.open_connection(*address, local_addr=(who, 0), limit=limit)
            reader, writer = await asyncio.wait_for(opening, CONNECT_SECONDS)
        except (OSError, asyncio.TimeoutError) as error:
            raise ClosedError(f"cannot connect: {error!r}") from None
        return cls(reader, writer)

    async def send(self, pieces: Iterable[bytes], pause: float = 0.0) -> None:
        """Send ``pieces`` with ``pause`` seconds after each.

        Raises :class:`ClosedError` if the connection ends, or a piece is not accepted within
        :data:`ANSWER_MAX`.
        """
        try:
            for piece in pieces:
                self._writer.write(piece)
                await asyncio.wait_for(self._writer.drain(), ANSWER_MAX)
                if pause:
                    await asyncio.sleep(pause)
        except (OSError, asyncio.TimeoutError) as error:
            raise ClosedError(repr(error)) from None

    async def answer(self, timeout: float = ANSWER_MAX) -> Answer:
        """Read one answer of HTTP, without the interim answers (1xx) before it.

        Raises :class:`ClosedError` if the connection ends or the answer is malformed, and
        :class:`SilentError` after ``timeout`` seconds.
        """
        try:
            return await asyncio.wait_for(self._answer(), timeout)
        except asyncio.TimeoutError:
            raise SilentError(f"no answer in {timeout:.0f} s") from None
        except (
            OSError,
            asyncio.IncompleteReadError,
            asyncio.LimitOverrunError,
            ValueError,
        ) as error:
            raise ClosedError(repr(error)) from None

    async def _answer(self) -> Answer:
        while True:
            head = await self._reader.readuntil(b"\r\n\r\n")
            first, *lines = head.decode("latin-1").split("\r\n")[:-2]
            status = int(first.split(" ")[1])
            pairs = (line.partition(":") for line in lines)
            headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
            if status >= 200:
                break
        if headers.get("transfer-encoding", "").lower() == "chunked":
            content = await self._chunks()
        elif "content-length" in headers:
            content = await self._reader.readexactly(
                min(int(headers["content-length"]), ANSWER_BYTES_MAX)
            )
        elif status in (204, 304):
            content = b""
        else:
            content = await self._reader.read(ANSWER_BYTES_MAX)
        return Answer(status, headers, content)

    async def _chunks(self) -> bytes:
        content = bytearray()
        while len(content) < ANSWER_BYTES_MAX:
            line = await self._reader.readuntil(b"\r\n")
            size = int(line.partition(b";")[0], 16)
            content += (await self._reader.readexactly(size + 2))[:size]
            if size == 0:
                break
        return bytes(content)

    async def read(self, size: int, timeout: float) -> bytes:
        """Read exactly ``size`` bytes.

        Raises :class:`ClosedError` if the connection ends, and :class:`SilentError` after
        ``timeout`` seconds.
        """
        try:
            return await asyncio.wait_for(self._reader.readexactly(size), timeout)
        except asyncio.TimeoutError:
            raise SilentError(f"no {size} bytes in {timeout:.0f} s") from None
        except (OSError, asyncio.IncompleteReadError) as error:
            raise ClosedError(repr(error)) from None

    async def is_closed(self, within: float) -> bool:
        """Wait until the other end closes the connection, and return ``True``.

        Return ``False`` if the connection is open after ``within`` seconds. Data that the other end
        sends is discarded.
        """
        try:
            async with _timeout(within):
                while await self._reader.read(65_536):
                    pass
        # TimeoutError must be first, because it is a subclass of OSError.
        except asyncio.TimeoutError:
            return False
        except OSError:
            return True
        return True

    def abort(self) -> None:
        """Close the connection at once, with a reset."""
        self._writer.transport.abort()


# This class replaces asyncio.timeout, which Python 3.10 lacks.
class _timeout:  # noqa: N801
    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._is_over = False

    async def __aenter__(self) -> None:
        task = asyncio.current_task()
        assert task is not None

        def over() -> None:
            self._is_over = True
            task.cancel()

        self._handle = asyncio.get_running_loop().call_later(self._seconds, over)

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._handle.cancel()
        if self._is_over and kind is asyncio.CancelledError:
            raise asyncio.TimeoutError


def cut(content: bytes, rng: Random, pieces_max: int = 6) -> list[bytes]:
    """Cut ``content`` at random places and return the pieces in order, at most ``pieces_max``.

    No piece is empty.
    """
    places = sorted(rng.randrange(len(content) + 1) for _ in range(rng.randrange(pieces_max)))
    return [
        piece
        for begin, end in zip([0, *places], [*places, len(content)], strict=True)
        if (piece := content[begin:end])
    ]
