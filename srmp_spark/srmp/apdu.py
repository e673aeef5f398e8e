"""An SRMP message as one APDU of PGM ([MC-MQSRM] 2.1.2, 2.1.3, 4.5): an HTTP head, and what would follow it in a POST.

"In the case of PGM, the HTTP 1.1 header is ignored by MSMQ" (appendix A <2>), and so it is here: nothing in it is believed.
What the content is shows in its first octets, for it begins with a MIME delimiter or is an envelope. Readers of the stored
message find its type in a head, so it gets one of ours.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.names import MulticastAddress
from srmp_spark.srmp.encoder import encode, http_head
from srmp_spark.srmp.limits import BOUNDARY_MAX

HEAD_MAX = 16_384
"""Octets of the head of an APDU: more than any sender writes, and little enough to look through."""
BOUNDARY = "MSMQ - SOAP boundary, 1"

_SECTION = "[MC-MQSRM] 2.1.2"
_DELIMITER = re.compile(rb"(?:\r\n)?--([^\r\n]{1,%d})\r\n" % BOUNDARY_MAX)
_CONTENT = (b"<", b"--", b"\r\n--", b"\xef\xbb\xbf<")
"""How an APDU without a head begins: nobody needs one."""


class Post(NamedTuple):
    """The APDU as if it had come by HTTP."""

    content_type: bytes
    post: bytes
    head_length: int


def apdu_of(message: Message, address: MulticastAddress) -> bytes:
    """``message`` as it is multicast to ``address``. Raises :class:`LocalProtocolError` for what SRMP cannot say."""
    content_type, content = encode(
        message._replace(destination=f"MSMQ:{address.format_name}"), boundary=BOUNDARY
    )
    return _head(address, content_type, len(content)) + content


def post_of(apdu: bytes, address: MulticastAddress) -> Post:
    """What came to ``address``. Raises :class:`RemoteProtocolError` for what is neither head and content nor content."""
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
    return Post(content_type, head + content, len(head))


def _head(address: MulticastAddress, content_type: bytes, length: int) -> bytes:
    """As in the example of 4.5."""
    return http_head(str(address), str(address), content_type, length)
