"""UserHeader: the sender of a message and the queues that it names ([MS-MQMQ] 2.2.19.2).

[MS-MQRR] 2.2.5.1 lays a second meaning over one of its fields.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.guids import GUID_SIZE, NULL_GUID_BYTES, guid_bytes, guid_text
from srmp_spark.mqrr.packets.base_header import INFINITE
from srmp_spark.mqrr.packets.host_address import OVERLAY_SIZE, HostAddress, parse_host_address
from srmp_spark.mqrr.packets.limits import U32_MAX
from srmp_spark.mqrr.packets.queue_names import (
    ADMIN_TYPES,
    DESTINATION_TYPES,
    NO_QUEUE,
    RESPONSE_TYPES,
    QueueName,
    QueueNameType,
    format_name,
    parse_queue_name,
    require_type,
)
from srmp_spark.mqrr.packets.wire import fits, require
from srmp_spark.names import NULL_GUID

FIXED_SIZE = 48
HOP_COUNT_BITS_MAX = 0x1F
"""Largest hop count that fits: RC has five bits.

[MS-MQMQ] 2.2.19.2 ends at 0x1D. A message that was received with a larger count is served
unchanged.
"""

_SECTION = "[MS-MQMQ] 2.2.19.2"
_LAYOUT = Struct("<16s16sIIII")
_JN, _JP, _CQ = 1 << 8, 1 << 9, 1 << 22


class DeliveryMode(IntEnum):
    """Field DM: whether a message survives a restart of a queue manager."""

    EXPRESS = 0
    RECOVERABLE = 1
    """Stored on disk.

    Every transactional message (a message with a TransactionHeader) is recoverable too.
    """


class Announced:
    """The bits of UserHeader.Flags that say which headers follow. The bits belong to the packet.

    The bits are plain numbers: an IntFlag takes a microsecond for each test, and a packet needs
    six.
    """

    SECURITY = 1 << 19
    """Bit SH: a SecurityHeader follows."""
    TRANSACTION = 1 << 20
    """Bit TH: a TransactionHeader follows."""
    MESSAGE_PROPERTIES = 1 << 21
    """Bit MP: a MessagePropertiesHeader follows. The bit MUST always be set."""
    MULTI_QUEUE_FORMAT = 1 << 23
    """Bit MQ: a MultiQueueFormatHeader follows."""
    SRMP = 1 << 25
    """Bit AH: the message was sent over HTTP; envelope and compound message follow."""
    SOAP = 1 << 28
    """Bit HH: a SoapHeader follows."""


_ANNOUNCED = (
    Announced.SECURITY
    | Announced.TRANSACTION
    | Announced.MESSAGE_PROPERTIES
    | Announced.MULTI_QUEUE_FORMAT
    | Announced.SRMP
    | Announced.SOAP
)


@dataclass(frozen=True, slots=True, kw_only=True)
class UserHeader:
    """The source, the destination and the lifetime of one message."""

    source_queue_manager: str = NULL_GUID
    """GUID of the queue manager that sent the message first."""
    queue_manager_address: bytes = NULL_GUID_BYTES
    """16 bytes with two meanings: see :attr:`destination_queue_manager` and :attr:`received_from`.
    """
    time_to_be_received: int = INFINITE
    """Seconds from SentTime, also in packets of a remote read."""
    sent_time: int = 0
    """Moment when the message was sent, in seconds since 1970, UTC."""
    message_id: int = 0
    r"""Number of the message; with ``source_queue_manager`` it forms the identifier ``{GUID}\N``.
    """
    hop_count: int = 0
    """Field RC: number of routing servers that the message passed."""
    delivery_mode: int = DeliveryMode.EXPRESS
    negative_journaling: bool = False
    """Bit JN: the sender keeps an undeliverable message in its dead-letter queue."""
    positive_journaling: bool = False
    """Bit JP: the sender keeps a delivered message in its journal."""
    destination_queue: QueueName = NO_QUEUE
    admin_queue: QueueName = NO_QUEUE
    response_queue: QueueName = NO_QUEUE
    connector_type: str | None = None

    @property
    def destination_queue_manager(self) -> str:
        """Return the GUID of the destination's queue manager; the NULL GUID for a direct name.

        [MS-MQMQ] says that the GUID is the destination's. [MS-MQRR] 2.2.5.1 calls it "the host from
        which the message was received, as specified in [MS-MQMQ]". This code follows the definition
        in [MS-MQMQ] and not the remark.
        """
        return NULL_GUID if self._is_direct else guid_text(self.queue_manager_address)

    @property
    def received_from(self) -> HostAddress | None:
        """Return the address that a message to a direct name was received from; else ``None``.

        [MS-MQRR] lays the address over the GUID. Only 8 bytes fit, so only the first half of an
        IPv6 address is returned. The ExtendedAddressHeader has the whole address.
        """
        return parse_host_address(self.queue_manager_address) if self._is_direct else None

    @property
    def _is_direct(self) -> bool:
        return self.destination_queue.type is QueueNameType.DIRECT

    def format_names(self) -> tuple[str | None, str | None, str | None]:
        """Return the format names of destination, administration and response queue.

        A name is ``None`` if the packet does not name this queue or does not say where the queue
        is.
        """
        source, destination = self.source_queue_manager, self.destination_queue_manager
        admin = self.admin_queue
        queues = (self.destination_queue, admin, self.response_queue)
        first, second, third = (
            format_name(q, source=source, destination=destination, admin=admin) for q in queues
        )
        return first, second, third

    def encode(self, announced: int) -> bytes:
        """Encode the header with the bits that announce other headers (:class:`Announced`).

        Raises :class:`LocalProtocolError` if a queue has a type that is not allowed in its place,
        or if a number is out of range.
        """
        if len(self.queue_manager_address) != GUID_SIZE:
            raise LocalProtocolError(
                f"QueueManagerAddress has 16 bytes, not {len(self.queue_manager_address)}"
            )
        flags = (
            fits(self.hop_count, HOP_COUNT_BITS_MAX, "RC")
            | fits(self.delivery_mode, 3, "DM") << 5
            | self.negative_journaling * _JN
            | self.positive_journaling * _JP
            | require_type(self.destination_queue, DESTINATION_TYPES, "DestinationQueue") << 10
            | require_type(self.admin_queue, ADMIN_TYPES, "AdminQueue") << 13
            | require_type(self.response_queue, RESPONSE_TYPES, "ResponseQueue") << 16
            | (self.connector_type is not None) * _CQ
            | announced
        )
        out = _LAYOUT.pack(
            guid_bytes(self.source_queue_manager),
            self.queue_manager_address,
            fits(self.time_to_be_received, U32_MAX, "TimeToBeReceived"),
            fits(self.sent_time, U32_MAX, "SentTime"),
            fits(self.message_id, U32_MAX, "MessageID"),
            flags,
        )
        for queue in (self.destination_queue, self.admin_queue, self.response_queue):
            out += queue.encode(len(out))
        return out if self.connector_type is None else out + guid_bytes(self.connector_type)


def parse_user_header(data: bytes, at: int, end: int) -> tuple[UserHeader, int, int]:
    """Parse the header at ``at``; return the header, the announced headers and the next offset.

    The announced headers are bits of :class:`Announced`. Raises :class:`RemoteProtocolError` if the
    header or a queue name is cut, or if a queue has a type that is not allowed in its place.
    """
    start = at
    require(at, FIXED_SIZE, end, "UserHeader", _SECTION)
    source, address, time_to_be_received, sent_time, message_id, flags = _LAYOUT.unpack_from(
        data, at
    )
    at += FIXED_SIZE
    destination, at = parse_queue_name(flags >> 10 & 7, DESTINATION_TYPES, data, start, at, end)
    admin, at = parse_queue_name(flags >> 13 & 7, ADMIN_TYPES, data, start, at, end)
    response, at = parse_queue_name(flags >> 16 & 7, RESPONSE_TYPES, data, start, at, end)
    connector = None
    if flags & _CQ:
        require(at, GUID_SIZE, end, "ConnectorType", _SECTION)
        connector = guid_text(data[at : at + GUID_SIZE])
        at += GUID_SIZE
    header = UserHeader(
        source_queue_manager=guid_text(source),
        queue_manager_address=address,
        time_to_be_received=time_to_be_received,
        sent_time=sent_time,
        message_id=message_id,
        hop_count=flags & HOP_COUNT_BITS_MAX,
        delivery_mode=flags >> 5 & 3,
        negative_journaling=bool(flags & _JN),
        positive_journaling=bool(flags & _JP),
        destination_queue=destination,
        admin_queue=admin,
        response_queue=response,
        connector_type=connector,
    )
    return header, flags & _ANNOUNCED, at


def address_overlay(address: HostAddress) -> bytes:
    """Encode ``address`` as the 16 bytes ``queue_manager_address`` of a UserHeader.

    The header is that of a message to a direct name, and ``address`` is the host that the message
    was received from. Only the first 8 bytes of the address fit.
    """
    return address.encode(OVERLAY_SIZE - 8)
