"""Build the answers of the SRMP port as bytes. Frequent answers are built in advance.

[MC-MQSRM] 2.1 defines the status line only: an answer has no body. A refusal gives operators the
reason in the header ``Srmp-Reason: code; section``, which senders ignore.
"""

from __future__ import annotations

from collections.abc import Mapping
from email.utils import formatdate

from srmp_spark import __version__

SERVER = f"srmp-spark/{__version__}"

_PHRASES = {
    200: "OK",
    202: "Accepted",
    204: "No Content",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    404: "Not Found",
    405: "Method Not Allowed",
    408: "Request Timeout",
    411: "Length Required",
    413: "Content Too Large",
    414: "URI Too Long",
    415: "Unsupported Media Type",
    417: "Expectation Failed",
    431: "Request Header Fields Too Large",
    500: "Internal Server Error",
    501: "Not Implemented",
    503: "Service Unavailable",
    505: "HTTP Version Not Supported",
}
"""Reason phrase of every status that the SRMP port can answer."""

CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"


def _clean(text: str) -> str:
    """Return ``text`` with "?" for characters other than printable ASCII.

    So no text of a message can end the header.
    """
    return "".join(c if " " <= c <= "~" else "?" for c in text)


class Replies:
    """Builds the answers of one port. :meth:`refresh` must be called once a second."""

    __slots__ = ("_date", "ok", "ok_close")

    def __init__(self, utc_seconds: float) -> None:
        self._date = ""
        self.ok = b""
        """The answer 200 of a connection that stays open.

        Only ``SrmpConnection.acknowledge`` writes it.
        """
        self.ok_close = b""
        self.refresh(utc_seconds)

    def refresh(self, utc_seconds: float) -> None:
        """Set the ``Date`` of later answers. ``utc_seconds`` are the seconds since 1970."""
        self._date = formatdate(utc_seconds, usegmt=True)
        self.ok = self._build(200, "")
        self.ok_close = self._build(200, "Connection: close\r\n")

    def _build(self, status: int, more: str) -> bytes:
        # A 204 must not have a Content-Length (RFC 9110 8.6).
        length = "" if status == 204 else "Content-Length: 0\r\n"
        return (
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\nDate: {self._date}\r\nServer: "
            f"{SERVER}\r\n{length}{more}\r\n"
        ).encode("ascii")

    def with_content(
        self, status: int, fields: Mapping[str, str], content: bytes, *, close: bool = False
    ) -> bytes:
        """Return an answer with ``fields`` as headers and a body, which may be empty.

        WS-ReliableMessaging uses it (:mod:`.wsrm.gateway`). ``close`` adds ``Connection: close``.
        """
        more = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        head = (
            f"HTTP/1.1 {status} {_PHRASES[status]}\r\nDate: {self._date}\r\nServer: "
            f"{SERVER}\r\n{more}"
            f"Content-Length: {len(content)}\r\n{'Connection: close' if close else ''}"
        )
        return f"{head.rstrip()}\r\n\r\n".encode("ascii") + content

    def refusal(
        self,
        status: int,
        reason: str,
        section: str,
        *,
        retry_after: int | None = None,
        close: bool = False,
    ) -> bytes:
        """Return an answer without a body: any other than 200, and also the 204 of a probe.

        Raises :class:`AssertionError` for the status 200.
        """
        if status == 200:
            raise AssertionError("a 200 is only ever written for an Ok")
        more = f"Srmp-Reason: {_clean(reason)}; {_clean(section)}\r\n"
        if status == 401:
            more += "WWW-Authenticate: Bearer\r\n"
        if status == 405:
            more += "Allow: POST\r\n"
        if retry_after is not None:
            more += f"Retry-After: {retry_after}\r\n"
        if close:
            more += "Connection: close\r\n"
        return self._build(status, more)
