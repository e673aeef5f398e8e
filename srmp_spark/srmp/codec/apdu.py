"""An SRMP message as one APDU of PGM: an HTTP head and the content of a POST.

See [MC-MQSRM] 2.1.2, 2.1.3 and 4.5. "In the case of PGM, the HTTP 1.1 header is ignored by MSMQ"
(appendix A <2>). This module ignores the head too, and trusts nothing in it. The first octets of
the content show its kind: multipart content begins with a MIME delimiter, and any other content is
an envelope. Readers of the stored message find its type in a head, so this module adds a head to
the stored message.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.names import MulticastAddress
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.limits import BOUNDARY_MAX

HEAD_MAX = 16_384
"""Longest head of an APDU, in octets.

Every sender writes less, and a search through this much is cheap. An APDU with a longer head is
refused.
"""
BOUNDARY = "MSMQ - SOAP boundary, 1"

_SECTION = "[MC-MQSRM] 2.1.2"
_DELIMITER = re.compile(rb"(?:\r\n)?--([^\r\n]{1,%d})\r\n" % BOUNDARY_MAX)
_CONTENT = (b"<", b"--", b"\r\n--", b"\xef\xbb\xbf<")
"""The possible first octets of an APDU without a head. The head is optional."""


class ApduPost(NamedTuple):
    """An APDU of PGM in the form of a message that was received over HTTP.

    ``content_type`` is the value of the field. ``post`` holds the bytes of a head that this module
    writes, and of the content. ``head_length`` is the length of this head in bytes, with its blank
    line.
    """

    content_type: bytes
    post: bytes
    head_length: int


def apdu_of(message: Message, address: MulticastAddress) -> bytes:
    """Return the APDU that multicasts ``message`` to ``address``.

    Raises :class:`LocalProtocolError` if SRMP cannot express the message.
    """
    content_type, content = encode(
        message._replace(destination=f"MSMQ:{address.format_name}"), boundary=BOUNDARY
    )
    return _head(address, content_type, len(content)) + content


def post_of(apdu: bytes, address: MulticastAddress) -> ApduPost:
    """Return the POST form of an APDU that was received for the multicast ``address``.

    Raises :class:`RemoteProtocolError` if the APDU has neither a complete head nor the first octets
    of content, if its head is too long, or if its MIME boundary is invalid.
    """
    content = apdu
    if not apdu.startswith(_CONTENT):
        end = apdu.find(b"\r\n\r\n", 0, HEAD_MAX)
        if end < 0 and len(apdu) > HEAD_MAX:
            raise LimitExceededError("HEAD_MAX", HEAD_MAX, len(apdu), section=_SECTION)
        if end < 0:
            raise RemoteProtocolError(
                "an APDU without the blank line that ends its HTTP head", section=_SECTION
            )
        content = apdu[end + 4 :]
    content_type = b"text/xml"
    delimiter = _DELIMITER.match(content)
    if delimiter is not None:
        if b'"' in delimiter[1]:
            raise RemoteProtocolError(
                "a MIME boundary has no quotation mark (RFC 2046 5.1.1)", section=_SECTION
            )
        content_type = b'multipart/related; boundary="%b"; type=text/xml' % delimiter[1]
    head = _head(address, content_type, len(content))
    return ApduPost(content_type, head + content, len(head))


def _head(address: MulticastAddress, content_type: bytes, length: int) -> bytes:
    """Return the bytes of an HTTP head, with its blank line.

    See the example of [MC-MQSRM] 4.5.
    """
    return http_head(str(address), str(address), content_type, length)
