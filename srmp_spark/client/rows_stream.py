"""The answer of ``GET rows`` on its way in (INTERFACE.md section 3)."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from typing import BinaryIO, cast

import requests

from srmp_spark.errors import ApiUnreachableError


class RowsStream:
    """The bytes of ``GET rows`` as they come; nothing is read before it is asked for. Close it when done.

    They are read from the response of :mod:`http.client` below the layers of ``requests``, which copy each byte several times
    on its way (a fifth of a Python worker's CPU time for a row of 1 KB).
    """

    def __init__(self, response: requests.Response, where: str) -> None:
        self._response = response
        self._body = cast("http.client.HTTPResponse", response.raw._original_response)  # noqa: SLF001  # as requests
        self._where = where
        self._closed = False
        self.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        self.headers = response.headers

    def read(self, size: int = -1) -> bytes:
        """``size`` bytes, fewer only at the end. Raises :class:`ApiUnreachableError` when the connection breaks."""
        with self._told():
            data = self._body.read(None if size < 0 else size)
            self._check(len(data), size)
        return data

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Bytes into ``buffer``, without a copy in between; 0 only at the end. Raises as :meth:`read`."""
        with self._told():
            count = self._body.readinto(buffer)
            self._check(count, len(buffer))
        return count

    def _check(self, count: int, size: int) -> None:
        """``http.client`` takes the end of the connection for the end of an answer, also of one whose length it knows."""
        if count < size and self._body.isclosed() and self._body.length:
            raise http.client.IncompleteRead(b"", self._body.length)

    @contextlib.contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: closed
            raise ApiUnreachableError(
                f"{self._where} stopped answering in the middle of a read: {error!r}"
            ) from error

    def readable(self) -> bool:
        """Always."""
        return True

    @property
    def closed(self) -> bool:
        """Whether :meth:`close` was called."""
        return self._closed

    def close(self) -> None:
        """Keep the connection for the next call if all was read, else give it up."""
        self._closed = True
        if self._body.isclosed() and not self._body.will_close:
            self._response.raw.release_conn()  # requests itself knows only of what was read through it
        else:
            self._response.close()

    def interrupt(self) -> None:
        """Make a read that waits in another thread end now. :meth:`close` would wait for it: it takes the same lock."""
        raw = getattr(self._body.fp, "raw", None)
        connection = getattr(raw, "_sock", None)
        if connection is not None:
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def __enter__(self) -> RowsStream:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def as_file(self) -> BinaryIO:
        """The same object for libraries that ask for a file."""
        return cast("BinaryIO", self)
