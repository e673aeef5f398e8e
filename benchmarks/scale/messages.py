"""Write the messages of the scale benchmarks: posts in Windows' layout.

Each post has a number that no other has, and comes from one of many senders.
"""

from __future__ import annotations

from benchmarks.common import QUEUE
from benchmarks.decode import BOUNDARY, GUID, WINDOWS

BODY_BYTES = 1024

_ENVELOPE = WINDOWS.replace("%d", "%010d").replace(GUID, "%s")
"""Format of the envelope. It needs the number and, twice, the GUID of the sender."""
_LENGTH = len(_ENVELOPE % (0, GUID, GUID))
_CONTENT = b"".join(
    [
        b"--",
        BOUNDARY,
        b"\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: %d\r\n\r\n" % _LENGTH,
        _ENVELOPE.encode(),
        b"--",
        BOUNDARY,
        b"\r\nContent-Type: application/octet-stream\r\nContent-Length: %d\r\n" % BODY_BYTES,
        b"Content-Id: body@",
        b"%s\r\n\r\n%020d",
        b"x" * (BODY_BYTES - 20),
        b"--",
        BOUNDARY,
        b"--\r\n",
    ]
)
_CONTENT_LENGTH = len(_CONTENT % (0, GUID.encode(), GUID.encode(), GUID.encode(), 0))
HEAD = b"".join(
    [
        b"POST /msmq/",
        QUEUE.encode(),
        b" HTTP/1.1\r\nHost: machine2\r\n",
        b'Content-Type: multipart/related; boundary="',
        BOUNDARY,
        b'"; type=text/xml\r\nContent-Length: %d\r\nSOAPAction: "MSMQMessage"\r\n'
        % _CONTENT_LENGTH,
        b"Proxy-Accept: NonInteractiveClient\r\n\r\n",
    ]
)
_POST = HEAD + _CONTENT


def lineage(number: int) -> str:
    """Return the GUID of sender ``number``.

    Senders with neighbouring numbers are no neighbours in a table sorted by GUID, as in practice.
    """
    return f"{number * 2_654_435_761 % (1 << 32):08x}-5ca1-4e55-8000-{number:012x}"


def post(sender: bytes, number: int) -> bytes:
    """Return the whole POST: head and content."""
    return _POST % (number, sender, sender, sender, number)
