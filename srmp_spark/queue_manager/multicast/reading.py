"""Decode an APDU into a message, as far as the gateway can judge it without a store."""

from __future__ import annotations

from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.names import MulticastAddress, multicast_address
from srmp_spark.srmp.codec.apdu import ApduPost, post_of
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.codec.mime import Parts


class ReadApdu(NamedTuple):
    """A decoded message that is addressed to the group on which it was received."""

    post: ApduPost
    message: Message
    parts: Parts


class UnreadApdu(NamedTuple):
    """The reason why an APDU is no message for its group.

    Its fields are those of a refused POST: HTTP status, reason, section of the specification.
    ``because`` is a sentence for the log, or ``None``.
    """

    status: int
    reason: str
    section: str
    because: str | None


def read_apdu(apdu: bytes, address: MulticastAddress) -> ReadApdu | UnreadApdu:
    """Decode an APDU that was received on the group of ``address``.

    Return :class:`ReadApdu` for a message to this group, and :class:`UnreadApdu` for anything else.
    Nothing is raised for malformed bytes.
    """
    try:
        post = post_of(apdu, address)
    except RemoteProtocolError as error:
        return UnreadApdu(400, "malformed", error.section, str(error))
    try:
        message, parts = decode_parts(post.content_type, post.post[post.head_length :])
    except RemoteProtocolError as error:
        return UnreadApdu(error.status_hint, "malformed", error.section, str(error))
    if not _is_to(message, address):
        return UnreadApdu(400, "multicast", "[MC-MQSRM] 2.2.4.2", None)
    return ReadApdu(post, message, parts)


def _is_to(message: Message, address: MulticastAddress) -> bool:
    try:
        return multicast_address(message.destination) == address
    except ValueError:
        return False
