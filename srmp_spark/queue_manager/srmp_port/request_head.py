"""Judge the head of an HTTP request before a byte of the body is read (RFC 9112, RFC 9110).

httptools (llhttp, strict) finds malformed heads: both lengths at once, two Content-Lengths, bare
LF, folded lines, a space before the colon. These end the connection, because a proxy before this
server may have read them differently. There is one exception: [MC-MQSRM] prints Content-Type folded
over two lines, so exactly that header is unfolded and the head is read again.

The head is stored as it arrived, and readers take the Content-Type from it by
:func:`content_type_of`. This module does the same, so a message is read by the same Content-Type by
which it was accepted, with or without folds.

:func:`_check_request_line` judges the request line first, and as soon as the line is complete: the
answer must not depend on how much of the rest arrived with it. A line without a version (HTTP/0.9)
is answered 400 at once.

Nearly every head is the one that Windows writes (chapter 4), so one anchored expression of exactly
that form is tried first, which costs a third of httptools. A head that the expression does not
match is judged by httptools. A head that the expression matches gives the same result with
httptools (tests/queue_manager/test_request_head.py).
"""

from __future__ import annotations

import re
from typing import Final

import httptools

from srmp_spark.queue_manager.srmp_port.http_limits import (
    CONTENT_MAX,
    HEAD_LINES_MAX,
    HEAD_MAX,
    TARGET_MAX,
)
from srmp_spark.srmp.codec.http_head import content_type_of, unfold

_READ = frozenset(
    (
        b"host",
        b"content-type",
        b"content-length",
        b"content-encoding",
        b"transfer-encoding",
        b"expect",
        b"srmp-probe",
        b"via",
        b"authorization",
    )
)
CREDENTIALS: Final = (b"authorization", b"proxy-authorization", b"cookie")
"""Headers that hold a secret of the sender or of a proxy on the way (RFC 9110 11.6.2, 11.7.1; RFC
6265 4.2). They are never stored.
"""
_CREDENTIALS = re.compile(
    rb"(?<=\r\n)(?:" + b"|".join(CREDENTIALS) + rb")[ \t]*:[^\r\n]*\r\n", re.IGNORECASE
)
_FOLDED_CONTENT_TYPE = re.compile(
    rb"(\r\ncontent-type:[^\r\n]*)((?:\r\n[ \t]+[^\r\n]+)+)", re.IGNORECASE
)
_WINDOWS = re.compile(
    rb"POST (/[!-~]{1,2047}) HTTP/1\.1\r\nHost: [!-+\--~]{1,255}\r\nContent-Type: ([!-~][ "
    rb"-~]{0,1022}[!-~])\r\n"
    rb"Content-Length: (\d{1,7})\r\n"
    rb'SOAPAction: "MSMQMessage"\r\n(?:Proxy-Accept: NonInteractiveClient\r\n)?\r\n'
)
_BARE_LF = re.compile(rb"(?<!\r)\n")
_EMPTY_LINES = re.compile(rb"(?:\r\n)+")
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]"
_METHOD = re.compile(rb"(" + _TOKEN + rb"+)(?: |$)")
_HTTP_VERSION = re.compile(rb" HTTP/(\d+\.\d+)\Z")
_METHODS = frozenset(b"GET HEAD POST PUT DELETE CONNECT OPTIONS TRACE PATCH".split())
"""Registered methods of HTTP (RFC 9110 9.3 and RFC 5789).

All but POST are answered 405, and any other word 501 (RFC 9110 15.6.2).
"""
_METHOD_MAX: Final = 32
"""Most bytes of a method.

A longer one is no registered method, and is answered 501 without waiting for its end (RFC 9112 3).
"""
_LONG_METHOD = re.compile(_TOKEN + rb"{%d}" % (_METHOD_MAX + 1))
_LINE_MAX: Final = TARGET_MAX + 64
"""Most bytes of a request line.

In a longer line the target is too long, so it is answered 414, even if the method is not allowed.
"""
_LINES_CAN_PASS: Final = 4 * HEAD_LINES_MAX
"""Bytes below which a head cannot have too many lines, because a line has at least four bytes."""


def without_credentials(post: bytes, head_length: int) -> tuple[bytes, int]:
    """Return the post without headers in :data:`CREDENTIALS`, and the new length of its head.

    So no secret of the sender is stored.
    """
    head = _CREDENTIALS.sub(b"", post[:head_length])
    return (
        (post, head_length) if len(head) == head_length else (head + post[head_length:], len(head))
    )


class HeadError(Exception):
    """Raised for an HTTP head that is refused.

    It has the HTTP status, a short code for metrics, and the rule that the head breaks. The
    connection is closed after the answer.
    """

    def __init__(self, status: int, reason: str, section: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.section = section


class RequestHead:
    """The HTTP head of one request (request line and headers) that was judged.

    :meth:`parse` or :meth:`of_windows` creates it.
    """

    __slots__ = (
        "_parser",
        "complete",
        "has_credentials",
        "headers",
        "keep_alive",
        "length",
        "method",
        "repeated",
        "target",
        "version",
    )

    def __init__(self) -> None:
        self.target = b""
        self.headers: dict[bytes, bytes] = {}
        """The few headers that srmp-spark uses, with names in lower case."""
        self.has_credentials = False
        """Whether the request has one of the headers in :data:`CREDENTIALS`."""
        self.repeated: bytes | None = None
        self.complete = False
        self.length: int | None = None
        """Number of bytes of the body, or ``None`` for a chunked body."""
        self.keep_alive = False
        self.method = b""
        self.version = ""

    # httptools calls the next three methods.
    def on_url(self, url: bytes) -> None:
        """Add a piece of the request target. httptools calls this method."""
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep one header if it is one of the few that are used. httptools calls this method."""
        name = name.lower()
        if name in _READ:
            if name in self.headers:
                if name == b"via":  # Via is a list, and each hop may add a header (RFC 9110 5.3).
                    value = self.headers[name] + b"," + value
                else:
                    self.repeated = name
            self.headers[name] = value
        if name in CREDENTIALS:
            self.has_credentials = True

    def on_headers_complete(self) -> None:
        """Record that the head is complete, with its method, version and keep-alive.

        httptools calls this method.
        """
        parser = self._parser
        self.complete = True
        self.method = parser.get_method()
        self.version = parser.get_http_version()
        self.keep_alive = parser.should_keep_alive()

    def _feed(self, head: bytes) -> None:
        self._parser = httptools.HttpRequestParser(self)
        try:
            self._parser.feed_data(head)
        except httptools.HttpParserUpgrade:
            # An offer to change the protocol may be ignored (RFC 9110 7.8). CONNECT was refused by
            # its request line.
            pass
        finally:
            # The parser refers to this object. Avoid a reference cycle per message.
            del self._parser

    @classmethod
    def parse(cls, head: bytes) -> RequestHead:
        """Judge a complete ``head``, blank line included, and return its parsed form.

        Raises :class:`HeadError` if the head is refused.
        """
        _check_request_line(head)
        if len(head) > HEAD_MAX or (
            len(head) > _LINES_CAN_PASS and head.count(b"\n") > HEAD_LINES_MAX + 1
        ):
            # This gives the same error whether the head arrived in one piece or not.
            check_unfinished(head, 0)
        self = cls()
        try:
            self._feed(head)
        except httptools.HttpParserError as error:
            self = cls._parse_again(head, self, str(error))
        self._check()
        self.headers[b"content-type"] = content_type_of(head)
        return self

    @classmethod
    def _parse_again(cls, head: bytes, first: RequestHead, error: str) -> RequestHead:
        """Parse the head again with an unfolded Content-Type, after httptools has refused it.

        Raises :class:`HeadError` with the status of the refusal if that does not help.
        """
        unfolded = _FOLDED_CONTENT_TYPE.sub(lambda m: m[1] + unfold(m[2]), head, count=1)
        if unfolded != head:
            again = cls()
            try:
                again._feed(unfolded)
            except httptools.HttpParserError:
                pass  # The head has another error too. It is judged below, as it arrived.
            else:
                return again
        if first.complete and b"transfer-encoding" in first.headers:
            raise HeadError(501, "transfer-encoding", "RFC 9112 6.1")
        raise HeadError(400, "malformed-http", f"RFC 9112: {error}")

    def _check(self) -> None:
        headers = self.headers
        # _check_request_line has accepted the line, so httptools must read the same line.
        if not self.complete or self.version not in ("1.1", "1.0") or self.method != b"POST":
            raise HeadError(
                400, "malformed-http", "RFC 9112 3: httptools reads another request line"
            )
        if len(self.target) > TARGET_MAX:
            raise HeadError(414, "target-too-long", f"TARGET_MAX {TARGET_MAX}")
        if self.repeated is not None:
            raise HeadError(
                400, "repeated-header", f"RFC 9112: two {self.repeated.decode('ascii')} headers"
            )
        if b"host" not in headers and self.version == "1.1":
            raise HeadError(400, "host-missing", "RFC 9112 3.2")
        if b"transfer-encoding" in headers:
            if headers[b"transfer-encoding"].lower() != b"chunked" or self.version == "1.0":
                raise HeadError(501, "transfer-encoding", "RFC 9112 6.1")
        elif b"content-length" in headers:
            self.length = int(headers[b"content-length"])
            if self.length > CONTENT_MAX:
                raise HeadError(413, "content-too-large", f"CONTENT_MAX {CONTENT_MAX}")
        else:
            raise HeadError(411, "length-missing", "RFC 9110 15.5.12")
        if headers.get(b"content-encoding", b"identity").lower() != b"identity":
            raise HeadError(415, "content-encoding", "[MC-MQSRM] 2.2")
        if headers.get(b"expect", b"100-continue").lower() != b"100-continue":
            raise HeadError(417, "expectation", "RFC 9110 15.5.18")

    @classmethod
    def of_windows(cls, data: bytes) -> tuple[RequestHead, int] | None:
        """Return the head at the start of ``data`` and its length, if it has Windows' form.

        Return ``None`` for any other head, for an incomplete one, and for a body above CONTENT_MAX;
        :meth:`parse` judges these.
        """
        match = _WINDOWS.match(data)
        if match is None:
            return None
        target, content_type, length = match.groups()
        size = int(length)
        if size > CONTENT_MAX:
            return None
        self = cls.__new__(cls)
        self.target = target
        self.headers = {b"content-type": content_type}
        self.has_credentials = False
        self.length = size
        self.keep_alive = True
        self.version = "1.1"
        return self, match.end()

    @property
    def expects_continue(self) -> bool:
        """Return whether the sender waits for ``100 Continue`` before it sends the body."""
        return b"expect" in self.headers and self.version == "1.1"


def _check_request_line(head: bytes | bytearray) -> None:
    """Raise :class:`HeadError` if the request line at the start of ``head`` is refused.

    A line that is not complete is judged as far as it has arrived.
    """
    line_end = head.find(b"\r\n", 0, _LINE_MAX + 2)
    line = bytes(head[: line_end if line_end >= 0 else _LINE_MAX])
    if _LONG_METHOD.match(line):
        raise HeadError(501, "method", "RFC 9110 15.6.2")
    method = _METHOD.match(line)
    if method is None:
        raise HeadError(400, "malformed-http", "RFC 9112 3: no request line")
    # This is judged before the line is complete. So a complete line must get the same answer.
    if b"\n" in line:
        raise HeadError(400, "malformed-http", "RFC 9112 2.2: a bare LF")
    if line_end < 0:
        if len(head) > _LINE_MAX:
            raise HeadError(414, "target-too-long", f"TARGET_MAX {TARGET_MAX}")
        return
    version = _HTTP_VERSION.search(line)
    # llhttp reads several blanks as one, but another reader may not.
    if version is None or b"  " in line:
        raise HeadError(
            400, "malformed-http", "RFC 9112 3: method, target and version, one blank between them"
        )
    if version[1] not in (b"1.0", b"1.1"):
        raise HeadError(505, "http-version", "RFC 9110 15.6.6")
    if method[1] != b"POST":
        known = method[1] in _METHODS
        raise (
            HeadError(405, "method", "RFC 9110 15.5.6")
            if known
            else HeadError(501, "method", "RFC 9110 15.6.2")
        )


def without_empty_lines(data: bytes) -> bytes:
    """Return ``data`` without the empty lines (CRLF) before the request (RFC 9112 2.2).

    A bare LF is no empty line.
    """
    match = _EMPTY_LINES.match(data)
    return data[match.end() :] if match is not None else data


def check_unfinished(beginning: bytes | bytearray, seen: int) -> None:
    """Raise :class:`HeadError` if the beginning of an HTTP head cannot become valid.

    ``beginning`` are the bytes that arrived, without the blank line at the end of the head; the
    first ``seen`` of them were checked before. Without this check a malformed head would be
    answered only after HEAD_SECONDS, with a 408.
    """
    if beginning == b"\r":  # This is half of an empty line before the request.
        return
    _check_request_line(beginning)
    line_over = _line_over(beginning)
    if _BARE_LF.search(
        beginning, max(0, seen - 1), HEAD_MAX if line_over is None else min(HEAD_MAX, line_over + 1)
    ):
        raise HeadError(400, "malformed-http", "RFC 9112 2.2: a bare LF")
    if len(beginning) > HEAD_MAX:
        raise HeadError(431, "head-too-long", f"HEAD_MAX {HEAD_MAX}")
    if line_over is not None:
        raise HeadError(431, "too-many-headers", f"HEAD_LINES_MAX {HEAD_LINES_MAX}")


def _line_over(beginning: bytes | bytearray) -> int | None:
    """Return the offset at which the first line beyond HEAD_LINES_MAX ends, or ``None``.

    The first error in the bytes decides about the answer, in whatever pieces they arrived.
    """
    if beginning.count(b"\n") <= HEAD_LINES_MAX + 1:
        return None
    at = -1
    for _ in range(HEAD_LINES_MAX + 2):
        at = beginning.index(b"\n", at + 1)
    return at
