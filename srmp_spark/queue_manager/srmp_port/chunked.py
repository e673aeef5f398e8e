"""Decode ``Transfer-Encoding: chunked`` (RFC 9112 7.1) strictly.

Everything that a proxy might read in another way is refused. httptools reads chunks too, but does
not state where the message ended, and the next request may follow in the same bytes. Strict means:
a size of one to eight hexadecimal digits, CRLF and never a bare LF, and CRLF after the data. The
lenient ending of h11 was CVE-2025-43859.
"""

from __future__ import annotations

import re
from enum import Enum

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.queue_manager.srmp_port.http_limits import (
    CHUNK_LINE_MAX,
    CHUNK_MEAN_MIN,
    CHUNK_TRAILERS_MAX,
    CHUNKS_FREE,
    CONTENT_MAX,
)

_SIZE_LINE = re.compile(rb"([0-9a-fA-F]{1,8})[ \t]*(?:;[\t\x20-\x7e]*)?")
_TRAILER = re.compile(rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+:[\t\x20-\x7e\x80-\xff]*")
_SECTION = "RFC 9112 7.1"


class _At(Enum):
    SIZE = "size line"
    DATA = "chunk data"
    DATA_END = "CRLF after the data"
    TRAILER = "trailer"
    END = "end"


class ChunkedBody:
    """Decodes one chunked body from the bytes after the head, which may be fed in any pieces."""

    __slots__ = ("_at", "_buffer", "_chunks", "_left", "_trailers", "content")

    def __init__(self) -> None:
        self.content = bytearray()
        """The data of the body that was decoded up to now."""
        self._at = _At.SIZE
        self._buffer = bytearray()
        self._chunks = 0
        self._left = 0
        self._trailers = 0

    def feed(self, data: bytes | memoryview) -> bytes | None:
        """Decode ``data`` into :attr:`content`. Return ``None`` while the body continues.

        At the end of the body return the bytes that follow it, perhaps none. Raises
        :class:`RemoteProtocolError`: 400 for anything malformed and for many chunks of very few
        bytes, 413 for more than CONTENT_MAX.
        """
        buffer = self._buffer
        buffer += data
        at = 0
        while self._at is not _At.END:
            if self._at is _At.DATA:
                piece = buffer[at : at + self._left]
                self.content += piece
                at += len(piece)
                self._left -= len(piece)
                if self._left:
                    break
                self._at = _At.DATA_END
            elif self._at is _At.DATA_END:
                if len(buffer) - at < 2:
                    break
                if buffer[at : at + 2] != b"\r\n":
                    raise RemoteProtocolError(
                        "a chunk is longer than its size says", section=_SECTION
                    )
                at += 2
                self._at = _At.SIZE
            else:
                limit = CHUNK_LINE_MAX if self._at is _At.SIZE else CHUNK_TRAILERS_MAX
                end = buffer.find(b"\n", at)
                if (end if end >= 0 else len(buffer)) - at > limit:
                    raise RemoteProtocolError(
                        f"a {self._at.value} is longer than {limit} bytes", section=_SECTION
                    )
                if end < 0:
                    break
                if buffer[end - 1 : end] != b"\r" or end == at:
                    raise RemoteProtocolError(
                        f"a {self._at.value} ends in a bare LF", section=_SECTION
                    )
                self._line(bytes(buffer[at : end - 1]))
                at = end + 1
        del buffer[:at]
        return bytes(buffer) if self._at is _At.END else None

    def _line(self, line: bytes) -> None:
        if self._at is _At.SIZE:
            match = _SIZE_LINE.fullmatch(line)
            if match is None:
                raise RemoteProtocolError(f"not a chunk size: {line[:40]!r}", section=_SECTION)
            self._left = int(match[1], 16)
            if len(self.content) + self._left > CONTENT_MAX:
                raise RemoteProtocolError(
                    f"more than {CONTENT_MAX} bytes", status_hint=413, section=_SECTION
                )
            self._chunks += 1
            if (self._chunks - CHUNKS_FREE) * CHUNK_MEAN_MIN > len(self.content):
                raise RemoteProtocolError(
                    f"{self._chunks} chunks hold {len(self.content)} bytes, fewer than "
                    f"{CHUNK_MEAN_MIN} each (CHUNK_MEAN_MIN)",
                    section=_SECTION,
                )
            self._at = _At.DATA if self._left else _At.TRAILER
        elif line:
            self._trailers += len(line) + 2
            if self._trailers > CHUNK_TRAILERS_MAX or _TRAILER.fullmatch(line) is None:
                raise RemoteProtocolError("trailers are malformed or too long", section=_SECTION)
        else:
            self._at = _At.END
