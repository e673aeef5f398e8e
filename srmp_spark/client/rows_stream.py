"""The answer of ``GET rows`` as a stream of bytes (INTERFACE.md section 3)."""

from __future__ import annotations

import contextlib
import http.client
import socket
from collections.abc import Iterator
from typing import BinaryIO, cast

import requests

from srmp_spark.errors import ApiUnreachableError


class RowsStream:
    """Reads the bytes of ``GET rows`` as they are received. Close it after use.

    Nothing is read before it is requested. The bytes are read from the response of
    :mod:`http.client`, below the layers of ``requests``. The layers of ``requests`` copy each byte
    several times (a fifth of a Python worker's CPU time for a row of 1 KB).
    """

    def __init__(self, response: requests.Response, where: str) -> None:
        self._response = response
        # ``requests`` reads this private attribute too.
        self._body = cast("http.client.HTTPResponse", response.raw._original_response)  # noqa: SLF001
        self._where = where
        self._closed = False
        self.content_type = response.headers.get("Content-Type", "").partition(";")[0].strip()
        self.headers = response.headers

    def read(self, size: int = -1) -> bytes:
        """Return ``size`` bytes, or fewer only at the end; a negative ``size`` reads everything.

        Raises :class:`ApiUnreachableError` if the connection is lost.
        """
        with self._explaining_errors():
            data = self._body.read(None if size < 0 else size)
            self._check(len(data), size)
        return data

    def readinto(self, buffer: bytearray | memoryview) -> int:
        """Read bytes into ``buffer`` without a copy and return their number; 0 only at the end.

        Raises :class:`ApiUnreachableError` if the connection is lost.
        """
        with self._explaining_errors():
            count = self._body.readinto(buffer)
            self._check(count, len(buffer))
        return count

    def _check(self, count: int, size: int) -> None:
        """Raise :class:`http.client.IncompleteRead` if the connection ended before the answer.

        ``count`` of the ``size`` requested bytes were read. ``http.client`` treats a lost
        connection as the end of the answer, even if the length is known.
        """
        if count < size and self._body.isclosed() and self._body.length:
            raise http.client.IncompleteRead(b"", self._body.length)

    @contextlib.contextmanager
    def _explaining_errors(self) -> Iterator[None]:
        try:
            yield
        # A closed stream raises ValueError.
        except (OSError, ValueError, http.client.HTTPException) as error:
            raise ApiUnreachableError(
                f"{self._where} stopped answering in the middle of a read: {error!r}"
            ) from error

    def readable(self) -> bool:
        """Return True always, as a readable file does."""
        return True

    @property
    def closed(self) -> bool:
        """Return whether :meth:`close` was called."""
        return self._closed

    def close(self) -> None:
        """Keep the connection for the next call if all bytes were read; otherwise close it."""
        self._closed = True
        if self._body.isclosed() and not self._body.will_close:
            # ``requests`` itself does not know of bytes that were read below its layers.
            self._response.raw.release_conn()
        else:
            self._response.close()

    def interrupt(self) -> None:
        """End a read that waits in another thread, by ending the connection.

        :meth:`close` cannot do so, because it would wait for the same lock.
        """
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
        """Return this object, typed as a file for libraries that require one."""
        return cast("BinaryIO", self)
