"""MessagePropertiesHeader: label, class, correlation, extension and body ([MS-MQMQ] 2.2.19.3).

The body of a message that was sent over HTTP is elsewhere (:mod:`.srmp_headers`).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntFlag
from struct import Struct

from srmp_spark.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.packets.limits import LABEL_WCHARS_MAX, U16_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, pad, padded, read_wchars, require, write_wchars

FIXED_SIZE = 56
CORRELATION_SIZE = 20

_SECTION = "[MS-MQMQ] 2.2.19.3"
_LAYOUT = Struct("<BBH20sIIIIIIII")
_ACKNOWLEDGEMENTS_MAX = 0x0F


class Acknowledgements(IntFlag):
    """The administration acknowledgements that a sender requests."""

    NONE = 0
    POSITIVE_ARRIVAL = 1
    """Bit PA: acknowledge that the message reached the queue."""
    POSITIVE_RECEIVE = 2
    """Bit PR: acknowledge that an application received the message."""
    NEGATIVE_ARRIVAL = 4
    """Bit NA: report that the message did not reach the queue."""
    NEGATIVE_RECEIVE = 8
    """Bit NR: report that no application received the message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePropertiesHeader:
    """The properties of one message, and its body unless it was sent over HTTP.

    Algorithms, privacy levels, classes and body types are kept as numbers, even unknown ones.
    """

    acknowledgements: int = Acknowledgements.NONE
    message_class: int = 0
    correlation_id: bytes = bytes(CORRELATION_SIZE)
    body_type: int = 0
    application_tag: int = 0
    allocation_body_size: int = 0
    """AllocationBodySize in bytes; 0 means as large as the body."""
    privacy_level: int = 0
    hash_algorithm: int = 0
    encryption_algorithm: int = 0
    label: str = ""
    """The label without its closing NUL."""
    extension_data: bytes = b""
    message_body: bytes = b""
    """The body of the message; empty if the message was sent over HTTP.

    Then the CompoundMessageHeader has the body.
    """
    missing: int = 0
    """Bytes at the end of the body that the reader did not ask for.

    Only the first of two sections can have missing bytes ([MS-MQRR] 2.2.6).
    """

    @property
    def message_size(self) -> int:
        """Return MessageSize: bytes of the whole body, including missing bytes."""
        return len(self.message_body) + self.missing

    def encode_before_body(self) -> bytes:
        """Encode everything before the body.

        Raises :class:`LocalProtocolError` if a value does not fit into its field.
        """
        if len(self.correlation_id) != CORRELATION_SIZE:
            raise LocalProtocolError(
                f"CorrelationID has {CORRELATION_SIZE} bytes, not {len(self.correlation_id)}"
            )
        label = write_wchars(self.label) if self.label else b""
        size = self.message_size
        head = _LAYOUT.pack(
            fits(self.acknowledgements, _ACKNOWLEDGEMENTS_MAX, "MessagePropertiesHeader.Flags"),
            fits(len(label) // 2, LABEL_WCHARS_MAX, "LabelLength"),
            fits(self.message_class, U16_MAX, "MessageClass"),
            self.correlation_id,
            fits(self.body_type, U32_MAX, "BodyType"),
            fits(self.application_tag, U32_MAX, "ApplicationTag"),
            fits(size, U32_MAX, "MessageSize"),
            fits(self.allocation_body_size or size, U32_MAX, "AllocationBodySize"),
            fits(self.privacy_level, U32_MAX, "PrivacyLevel"),
            fits(self.hash_algorithm, U32_MAX, "HashAlgorithm"),
            fits(self.encryption_algorithm, U32_MAX, "EncryptionAlgorithm"),
            fits(len(self.extension_data), U32_MAX, "ExtensionSize"),
        )
        return head + label + self.extension_data

    def encode(self) -> bytes:
        """Encode the whole header with body and padding.

        Raises :class:`LocalProtocolError` if a value does not fit into its field, or if a part of
        the body is missing.
        """
        if self.missing:
            raise LocalProtocolError(
                f"{self.missing} bytes of the body are missing; read the message again, "
                "with its whole body"
            )
        return pad(self.encode_before_body() + self.message_body)


def parse_message_properties_header(
    data: bytes, at: int, end: int, *, missing: int = 0
) -> tuple[MessagePropertiesHeader, int]:
    """Parse the header at ``at``; return the header and the offset of the next one.

    The last ``missing`` bytes of the body were not sent. Raises :class:`RemoteProtocolError` if a
    label, an extension or a body is longer than the bytes that are left, or if the body is shorter
    than ``missing``. Raises :class:`LimitExceededError` if the label has more than 250 WCHARs.
    """
    start = at
    require(at, FIXED_SIZE, end, "MessagePropertiesHeader", _SECTION)
    (
        flags,
        label_length,
        message_class,
        correlation_id,
        body_type,
        application_tag,
        message_size,
        allocation_body_size,
        privacy_level,
        hash_algorithm,
        encryption_algorithm,
        extension_size,
    ) = _LAYOUT.unpack_from(data, at)
    at += FIXED_SIZE
    if label_length > LABEL_WCHARS_MAX:
        raise LimitExceededError(
            "LABEL_WCHARS_MAX", LABEL_WCHARS_MAX, label_length, section=_SECTION
        )
    require(at, 2 * label_length, end, "Label", _SECTION)
    label = read_wchars(data, at, label_length)
    at += 2 * label_length
    require(at, extension_size, end, "ExtensionData", _SECTION)
    extension_data = data[at : at + extension_size]
    at += extension_size
    if missing > message_size:
        raise RemoteProtocolError(
            f"{missing} bytes of a body of {message_size} were not sent", section="[MS-MQRR] 2.2.6"
        )
    require(at, message_size - missing, end, "MessageBody", _SECTION)
    message_body = data[at : at + message_size - missing]
    header = MessagePropertiesHeader(
        acknowledgements=flags & _ACKNOWLEDGEMENTS_MAX,
        message_class=message_class,
        correlation_id=correlation_id,
        body_type=body_type,
        application_tag=application_tag,
        allocation_body_size=0 if allocation_body_size == message_size else allocation_body_size,
        privacy_level=privacy_level,
        hash_algorithm=hash_algorithm,
        encryption_algorithm=encryption_algorithm,
        label=label,
        extension_data=extension_data,
        message_body=message_body,
        missing=missing,
    )
    return header, start + padded(at + len(message_body) - start)
