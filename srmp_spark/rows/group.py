"""The packed group: one blob that holds the messages that one commit adds to one queue.

    magic "SG01" · crc32 of all that follows (u32) · first sequence (u64) · count (u32)
    count × record: form (u8) · arrived_at (u64, microseconds)
                    · lengths of transport, peer, sender_name (u8, u16, u16)
                    · length of head (u32) · length of the whole post (u32)
                    · transport, peer, sender_name (UTF-8) · post

All numbers are little-endian. ``post`` is the received message, byte for byte. For SRMP over HTTP
it is the head as received, then the body. A ``Transfer-Encoding`` is undone, because it belongs to
the hop and not to the message. The reader process of the queue manager and the executors read a
blob with the same code. The checksum makes damage an error and never a row.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import Arrival, SignatureStatus

MAGIC = b"SG01"
_HEADER = struct.Struct("<4sIQI")
_RECORD = struct.Struct("<BQBHHII")


class Form(IntEnum):
    """The form of a record's bytes, and whether its signature was found valid at the arrival.

    The bytes of a message do not hold that verdict. :class:`StoreDamagedError` is raised for an
    unknown value, which a newer version wrote.
    """

    SRMP = 0
    """An HTTP request: head, blank line, body ([MC-MQSRM] 2.2).

    If the request is signed, its signature was not verified.
    """
    SRMP_VALID = 16
    """A signed HTTP request.

    The signature of its attachments was found valid when the request was accepted.
    """
    SRMP_INVALID = 32
    """A signed HTTP request. The signature was found invalid when the request was accepted."""
    PACKET = 64
    """A message packet that was read from a remote queue ([MS-MQRR] 2.2.5).

    Its lookup identifier (u64) takes the place of the HTTP head.
    """
    WSRM = 80
    """An HTTP request whose body is a SOAP message of WS-ReliableMessaging: head, blank line,
    envelope.
    """
    COLUMNS = 96
    """A row that has only its columns, as after a restore (rows/kept_columns.py).

    The post is JSON in place of the head, then the body. None of these bytes were received.
    """

    @classmethod
    def _missing_(cls, value: object) -> Form:
        raise StoreDamagedError(
            f"a stored record has form {value}, which a newer version wrote: start the newer "
            "version"
        )


FORM_OF: Mapping[SignatureStatus, Form] = {
    "none": Form.SRMP,
    "unverified": Form.SRMP,
    "valid": Form.SRMP_VALID,
    "invalid": Form.SRMP_INVALID,
}
"""Form that keeps each verdict on a signature.

Trusted keys may change later, but the verdict in a row must not change.
"""


class Record(NamedTuple):
    """One stored message with its arrival: received bytes, or columns of a restored row."""

    arrival: Arrival
    post: bytes
    head_length: int
    """Length of the HTTP head in ``post``, in bytes, including the blank line.

    In another form (:class:`Form`) it is the length of what takes the place of the head.
    """
    form: Form = Form.SRMP

    @property
    def head(self) -> bytes:
        """Return the HTTP head with its blank line.

        For :attr:`.Form.COLUMNS` it is the JSON object, and for :attr:`.Form.PACKET` the lookup
        identifier.
        """
        return self.post[: self.head_length]

    @property
    def content(self) -> bytes:
        """Return the bytes of the post after its head.

        For SRMP they are the envelope, or the multipart body that holds the envelope. For
        :attr:`.Form.PACKET` they are the message packet, and for :attr:`.Form.COLUMNS` the body.
        """
        return self.post[self.head_length :]


def pack_group(first: int, records: Sequence[Record]) -> bytes:
    """Return ``records`` as one blob; the first record gets the sequence ``first``."""
    parts: list[bytes] = []
    pack = _RECORD.pack
    for (at, transport, peer, sender_name), post, head_length, form in records:
        sender = sender_name.encode() if sender_name else b""
        source = f"{transport}{peer}".encode()
        # The name of a transport is ASCII, so its length in characters is its length in bytes.
        length = len(transport)
        parts += (
            pack(form, at, length, len(source) - length, len(sender), head_length, len(post)),
            source,
            sender,
            post,
        )
    body = b"".join(parts)
    tail = struct.pack("<QI", first, len(records))
    return MAGIC + struct.pack("<I", zlib.crc32(body, zlib.crc32(tail))) + tail + body


def unpack_group(blob: bytes) -> Iterator[tuple[int, Record]]:
    """Yield the (sequence, record) pairs of a blob, in ascending order.

    Raises :class:`StoreDamagedError` before the first pair if the blob is too short, its magic is
    unknown, or its checksum does not match. Raises the same error at a record whose form a newer
    version wrote.
    """
    if len(blob) < _HEADER.size:
        raise StoreDamagedError("a stored group is cut short")
    magic, crc, first, count = _HEADER.unpack_from(blob)
    if magic != MAGIC:
        raise StoreDamagedError(
            f"a stored group begins with {magic!r}, not {MAGIC!r}: damaged, or written by "
            "a newer version"
        )
    if zlib.crc32(memoryview(blob)[8:]) != crc:
        raise StoreDamagedError(
            f"the checksum of the stored group at sequence {first} does not match"
        )
    at = _HEADER.size
    for sequence in range(first, first + count):
        form, arrived, transport_n, peer_n, sender_n, head_length, post_n = _RECORD.unpack_from(
            blob, at
        )
        at += _RECORD.size
        transport = blob[at : at + transport_n].decode()
        at += transport_n
        peer = blob[at : at + peer_n].decode()
        at += peer_n
        sender = blob[at : at + sender_n].decode() or None
        at += sender_n
        post = blob[at : at + post_n]
        at += post_n
        # The checksum proves that the text is a Transport.
        arrival = Arrival(arrived, transport, peer, sender)  # type: ignore[arg-type]
        yield sequence, Record(arrival, post, head_length, Form(form))


def post_lengths(blob: bytes) -> list[int]:
    """Return the length of each record's post in bytes, in order, without reading the posts.

    Byte limits need only these lengths. The checksum of ``blob`` is not verified, so damaged bytes
    give wrong lengths or raise :class:`struct.error`.
    """
    _, _, _, count = _HEADER.unpack_from(blob)
    at, lengths = _HEADER.size, []
    for _ in range(count):
        _, _, transport_n, peer_n, sender_n, _, post_n = _RECORD.unpack_from(blob, at)
        at += _RECORD.size + transport_n + peer_n + sender_n + post_n
        lengths.append(post_n)
    return lengths
