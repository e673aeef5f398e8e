"""The head of an HTTP request, judged before a byte of the body is read (RFC 9112, RFC 9110).

httptools (llhttp, strict) finds what is malformed: both lengths at once, two Content-Lengths, bare LF, folded lines, a
space before the colon. Those end the connection, as a proxy in front of us may have read them differently. One exception:
[MC-MQSRM] prints Content-Type folded over two lines, so exactly that header is unfolded and the head read once more.

The head is stored as it came, and readers take the Content-Type from it by :func:`content_type_of`. So does this: what a
message was accepted by is what it is read by, folds or not.

The request line is judged first, by :func:`_check_request_line`, and as soon as it is there: what becomes of it must not depend
on how much of the rest came with it. A line without a version (HTTP/0.9) is 400 and not waited for.

Nearly every head is the one that Windows writes (chapter 4), so one anchored expression of exactly that form comes first: a
third of the cost. What it does not match is httptools' to judge; what it matches, httptools takes to be the same
(tests/queue_manager/test_request_head.py).
"""

from __future__ import annotations

import re
from typing import Final

import httptools

from srmp_spark.queue_manager.http_limits import CONTENT_MAX, HEAD_LINES_MAX, HEAD_MAX, TARGET_MAX
from srmp_spark.srmp.http_head import content_type_of, unfold

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
"""Headers that hold a secret of the sender or of a proxy between us (RFC 9110 11.6.2, 11.7.1; RFC 6265 4.2): never stored."""
_CREDENTIALS = re.compile(
    rb"(?<=\r\n)(?:" + b"|".join(CREDENTIALS) + rb")[ \t]*:[^\r\n]*\r\n", re.IGNORECASE
)
TARGETS_REMEMBERED = 1_024
"""Request targets whose check is not repeated; a sender uses one for each of its queues."""
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
"""RFC 9110 9.3 and RFC 5789: what we know and, but for POST, do not allow (405). Any other word is 501, RFC 9110 15.6.2."""
_METHOD_MAX: Final = 32
"""Bytes of a method: a longer one is none that anybody registered. 501 without waiting for its end, RFC 9112 3."""
_LONG_METHOD = re.compile(_TOKEN + rb"{%d}" % (_METHOD_MAX + 1))
_LINE_MAX: Final = TARGET_MAX + 64
"""Bytes of a request line: more can only be the target's fault, 414, even if it is a method's that is not allowed."""
_LINES_CAN_PASS: Final = 4 * HEAD_LINES_MAX
"""A head shorter than this cannot have too many lines: a line has at least four bytes."""


def without_credentials(post: bytes, head_length: int) -> tuple[bytes, int]:
    """The post without its headers :data:`CREDENTIALS`, and the length of what its head is then: no secret is stored."""
    head = _CREDENTIALS.sub(b"", post[:head_length])
    return (
        (post, head_length) if len(head) == head_length else (head + post[head_length:], len(head))
    )


class HeadError(Exception):
    """A head that is refused: the status, a short code for metrics, and the rule. The connection closes after it."""

    def __init__(self, status: int, reason: str, section: str) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.section = section


class RequestHead:
    """A head that was read; use :meth:`parse`."""

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
        """The few headers that are looked at, names in lower case."""
        self.has_credentials = False
        """Whether one of :data:`CREDENTIALS` is among all headers."""
        self.repeated: bytes | None = None
        self.complete = False
        self.length: int | None = None
        """Bytes of the body; ``None`` for a chunked one."""
        self.keep_alive = False
        self.method = b""
        self.version = ""

    # httptools calls these three
    def on_url(self, url: bytes) -> None:
        """A piece of the request target."""
        self.target += url

    def on_header(self, name: bytes, value: bytes) -> None:
        """One header."""
        name = name.lower()
        if name in _READ:
            if name in self.headers:
                if name == b"via":  # a list, which each hop may begin anew (RFC 9110 5.3)
                    value = self.headers[name] + b"," + value
                else:
                    self.repeated = name
            self.headers[name] = value
        if name in CREDENTIALS:
            self.has_credentials = True

    def on_headers_complete(self) -> None:
        """The blank line."""
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
            pass  # an offer to change the protocol may be ignored (RFC 9110 7.8); CONNECT was refused by its request line
        finally:
            del self._parser  # it refers to us: no reference cycle per message

    @classmethod
    def parse(cls, head: bytes) -> RequestHead:
        """Read ``head``, blank line included. Raises :class:`HeadError`."""
        _check_request_line(head)
        if len(head) > HEAD_MAX or (
            len(head) > _LINES_CAN_PASS and head.count(b"\n") > HEAD_LINES_MAX + 1
        ):
            check_unfinished(head, 0)  # the same words whether it came in one piece or not
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
        """After a refusal by the parser: unfold a Content-Type, or say which status the refusal has."""
        unfolded = _FOLDED_CONTENT_TYPE.sub(lambda m: m[1] + unfold(m[2]), head, count=1)
        if unfolded != head:
            again = cls()
            try:
                again._feed(unfolded)
            except httptools.HttpParserError:
                pass  # something else is wrong as well: judged below, on the head as it came
            else:
                return again
        if first.complete and b"transfer-encoding" in first.headers:
            raise HeadError(501, "transfer-encoding", "RFC 9112 6.1")
        raise HeadError(400, "malformed-http", f"RFC 9112: {error}")

    def _check(self) -> None:
        headers = self.headers
        if (
            not self.complete or self.version not in ("1.1", "1.0") or self.method != b"POST"
        ):  # the line was checked before
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
        """The head that ``data`` begins with and its length, if it is exactly what Windows writes; else ``None``."""
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
        """Whether the sender waits for ``100 Continue`` before it sends the body."""
        return b"expect" in self.headers and self.version == "1.1"


def _check_request_line(head: bytes | bytearray) -> None:
    """Judge the request line with which ``head`` begins, as far as it is there. Raises :class:`HeadError`."""
    line_end = head.find(b"\r\n", 0, _LINE_MAX + 2)
    line = bytes(head[: line_end if line_end >= 0 else _LINE_MAX])
    if _LONG_METHOD.match(line):
        raise HeadError(501, "method", "RFC 9110 15.6.2")
    method = _METHOD.match(line)
    if method is None:
        raise HeadError(400, "malformed-http", "RFC 9112 3: no request line")
    if b"\n" in line:  # said before the rest of the line has come, so not otherwise when it has
        raise HeadError(400, "malformed-http", "RFC 9112 2.2: a bare LF")
    if line_end < 0:
        if len(head) > _LINE_MAX:
            raise HeadError(414, "target-too-long", f"TARGET_MAX {TARGET_MAX}")
        return
    version = _HTTP_VERSION.search(line)
    if (
        version is None or b"  " in line
    ):  # llhttp takes several blanks for one; another reader need not
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
    """``data`` without the empty lines that may stand before a request (RFC 9112 2.2): CRLF, and never a bare LF."""
    match = _EMPTY_LINES.match(data)
    return data[match.end() :] if match is not None else data


def check_unfinished(beginning: bytes | bytearray, seen: int) -> None:
    """What can be said of a head whose blank line has not come yet; its first ``seen`` bytes were looked at before.

    Raises :class:`HeadError`, so that rubbish is not answered with a 408 only after HEAD_SECONDS.
    """
    if beginning == b"\r":  # half of an empty line before the request
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
    """Where the first line ends that is too many; ``None`` if none is. What is wrong first decides, however the bytes came."""
    if beginning.count(b"\n") <= HEAD_LINES_MAX + 1:
        return None
    at = -1
    for _ in range(HEAD_LINES_MAX + 2):
        at = beginning.index(b"\n", at + 1)
    return at
