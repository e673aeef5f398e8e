"""UserHeader: who sent the message, and which queues it names ([MS-MQMQ] 2.2.19.2, overlay of [MS-MQRR] 2.2.5.1)."""

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
"""RC has five bits. [MS-MQMQ] 2.2.19.2 ends at 0x1D; a message that came with more is served as it came."""

_SECTION = "[MS-MQMQ] 2.2.19.2"
_LAYOUT = Struct("<16s16sIIII")
_JN, _JP, _CQ = 1 << 8, 1 << 9, 1 << 22


class DeliveryMode(IntEnum):
    """DM."""

    EXPRESS = 0
    RECOVERABLE = 1
    """Also every transactional message: one with a TransactionHeader."""


class Announced:
    """The bits of UserHeader.Flags that say which headers follow. They belong to the packet.

    Plain numbers: an IntFlag takes a microsecond for each question, and a packet asks six.
    """

    SECURITY = 1 << 19
    """SH."""
    TRANSACTION = 1 << 20
    """TH."""
    MESSAGE_PROPERTIES = 1 << 21
    """MP: MUST always be set."""
    MULTI_QUEUE_FORMAT = 1 << 23
    """MQ."""
    SRMP = 1 << 25
    """AH: the message came over HTTP; envelope and compound message follow."""
    SOAP = 1 << 28
    """HH."""


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
    """Source, destination and life of a message."""

    source_queue_manager: str = NULL_GUID
    """GUID of the original sender."""
    queue_manager_address: bytes = NULL_GUID_BYTES
    """16 bytes with two meanings: see :attr:`destination_queue_manager` and :attr:`received_from`."""
    time_to_be_received: int = INFINITE
    """Seconds from SentTime, in packets of a remote read too."""
    sent_time: int = 0
    """Seconds since 1970, UTC."""
    message_id: int = 0
    r"""With ``source_queue_manager`` the identifier ``{GUID}\N``."""
    hop_count: int = 0
    """RC: routing servers that had the message."""
    delivery_mode: int = DeliveryMode.EXPRESS
    negative_journaling: bool = False
    """JN: the sender keeps what could not be delivered in its dead-letter queue."""
    positive_journaling: bool = False
    """JP."""
    destination_queue: QueueName = NO_QUEUE
    admin_queue: QueueName = NO_QUEUE
    response_queue: QueueName = NO_QUEUE
    connector_type: str | None = None

    @property
    def destination_queue_manager(self) -> str:
        """The GUID beside a destination that is no direct name; the NULL GUID beside one that is.

        [MS-MQMQ] calls it the destination's, [MS-MQRR] 2.2.5.1 "the host from which the message was received, as specified in
        [MS-MQMQ]". We take the definition and not the remark.
        """
        return NULL_GUID if self._is_direct else guid_text(self.queue_manager_address)

    @property
    def received_from(self) -> HostAddress | None:
        """The address that [MS-MQRR] lays over the GUID of a message to a direct name; 8 bytes, so of an IPv6 one the first
        half (all of it is in the ExtendedAddressHeader)."""
        return parse_host_address(self.queue_manager_address) if self._is_direct else None

    @property
    def _is_direct(self) -> bool:
        return self.destination_queue.type is QueueNameType.DIRECT

    def format_names(self) -> tuple[str | None, str | None, str | None]:
        """Format names of destination, administration and response queue."""
        source, destination = self.source_queue_manager, self.destination_queue_manager
        admin = self.admin_queue
        queues = (self.destination_queue, admin, self.response_queue)
        first, second, third = (
            format_name(q, source=source, destination=destination, admin=admin) for q in queues
        )
        return first, second, third

    def encode(self, announced: int) -> bytes:
        """The header with the bits that announce others (:class:`Announced`).

        Raises :class:`LocalProtocolError` for a queue of a type that its place may not have, and for numbers out of range.
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
    """The header at ``at``, the headers that it announces (:class:`Announced`), and where the next one begins.

    Raises :class:`RemoteProtocolError` for a queue name that may not stand where it stands or does not fit.
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
    """``queue_manager_address`` of a message to a direct name that came from ``address``."""
    return address.encode(OVERLAY_SIZE - 8)
