"""A whole message packet: which headers it has, in which order, and how long it says it is ([MS-MQRR] 2.2.5).

A packet comes whole or cut: a reader may ask for the first bytes of the body only, and gets two sections (:mod:`.sections`). So
it is read in two steps that fit the cut, the *head* up to and with the part that is cut, and the *tail* behind it:

=========  ===========================================================  ========================================================
           head                                                         tail
=========  ===========================================================  ========================================================
binary     … MessagePropertiesHeader (its body is cut)                  DebugHeader, SoapHeader, MultiQueueFormatHeader, …
SRMP       … DebugHeader, SRMPEnvelopeHeader, CompoundMessageHeader     SoapHeader, MultiQueueFormatHeader, …
=========  ===========================================================  ========================================================
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.message import Delivery
from srmp_spark.mqrr.packets import session_header
from srmp_spark.mqrr.packets.base_header import SIZE as BASE_SIZE
from srmp_spark.mqrr.packets.base_header import BaseHeader, parse_base_header
from srmp_spark.mqrr.packets.debug_header import DebugHeader, parse_debug_header
from srmp_spark.mqrr.packets.message_properties_header import (
    MessagePropertiesHeader,
    parse_message_properties_header,
)
from srmp_spark.mqrr.packets.multi_queue_format_header import (
    MultiQueueFormatHeader,
    begins_multi_queue_format_header,
    parse_multi_queue_format_header,
)
from srmp_spark.mqrr.packets.security_header import SecurityHeader, parse_security_header
from srmp_spark.mqrr.packets.session_header import SessionHeader, parse_session_header
from srmp_spark.mqrr.packets.soap_header import SoapHeader, parse_soap_header
from srmp_spark.mqrr.packets.srmp_headers import (
    CompoundMessageHeader,
    SRMPEnvelopeHeader,
    parse_compound_message_header,
    parse_srmp_envelope_header,
)
from srmp_spark.mqrr.packets.trailers import (
    EXTENSION_SIZE,
    Trailers,
    begins_trailers,
    parse_trailers,
)
from srmp_spark.mqrr.packets.transaction_header import TransactionHeader, parse_transaction_header
from srmp_spark.mqrr.packets.user_header import (
    Announced,
    DeliveryMode,
    UserHeader,
    parse_user_header,
)
from srmp_spark.mqrr.packets.wire import pad, padded
from srmp_spark.names import message_id

_SECTION = "[MS-MQRR] 2.2.5"


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePacket:
    """One message with all its headers. ``None``: the packet does not have this one."""

    base: BaseHeader
    user: UserHeader
    transaction: TransactionHeader | None = None
    security: SecurityHeader | None = None
    properties: MessagePropertiesHeader
    debug: DebugHeader | None = None
    envelope: SRMPEnvelopeHeader | None = None
    compound: CompoundMessageHeader | None = None
    """Together with ``envelope`` or not at all: the message came over HTTP."""
    soap: SoapHeader | None = None
    multi_queue_format: MultiQueueFormatHeader | None = None
    session: SessionHeader | None = None
    trailers: Trailers | None = None

    @property
    def id(self) -> str:
        r"""``{GUID}\N`` of the sender."""
        return message_id(self.user.source_queue_manager, self.user.message_id)

    @property
    def priority(self) -> int:
        """0 to 7; 0 of a transactional message, whatever its BaseHeader says ([MS-MQMQ] 2.2.19.1)."""
        return 0 if self.transaction is not None else self.base.priority

    @property
    def delivery(self) -> Delivery:
        """MSMQ's three words for how far a message survives."""
        if self.transaction is not None:
            return "transactional"
        return "recoverable" if self.user.delivery_mode == DeliveryMode.RECOVERABLE else "express"

    @property
    def body(self) -> bytes:
        """The body of the message.

        Of one that came over HTTP it lies in the compound message. [MS-MQDMPR] 3.1.7.1.32 would put it into the
        MessagePropertiesHeader as well; the packets that were seen do not. What is in one place only is taken from there.
        """
        if self.compound is not None and self.compound.message_body:
            return self.compound.message_body
        return self.properties.message_body

    @property
    def missing(self) -> int:
        """Bytes that were not sent because the reader asked for less. A packet with any is no row."""
        return self.properties.missing if self.compound is None else self.compound.missing

    def encode(self) -> bytes:
        """The packet. Raises :class:`LocalProtocolError` for what does not fit, is missing, or is above 4 MiB in all."""
        return self.encode_pieces().joined()

    def encode_pieces(self) -> EncodedPacket:
        """The packet in the three pieces that a reader's limit divides it into. Raises as :meth:`encode`."""
        if self.missing:
            raise LocalProtocolError(
                f"{self.missing} bytes of {self.id} are missing; read the message again, "
                "with all of it"
            )
        if (self.envelope is None) != (self.compound is None):
            raise LocalProtocolError(
                "a packet has both SRMPEnvelopeHeader and CompoundMessageHeader or neither of them"
            )
        if self.base.tracing and self.debug is None:
            raise LocalProtocolError("BaseHeader.Flags.TR needs a DebugHeader ([MS-MQMQ] 2.2.19.1)")
        announced = Announced.MESSAGE_PROPERTIES
        before = [b""] * 3
        if self.transaction is not None:
            if self.user.delivery_mode == DeliveryMode.EXPRESS:
                raise LocalProtocolError(
                    "a transactional message is recoverable ([MS-MQMQ] 2.2.19.2, TH needs DM)"
                )
            announced |= Announced.TRANSACTION
            before[1] = self.transaction.encode()
        if self.security is not None:
            announced |= Announced.SECURITY
            before[2] = self.security.encode()
        debug = b"" if self.debug is None else self.debug.encode()
        if self.envelope is not None and self.compound is not None:
            announced |= Announced.SRMP
            before += [self.properties.encode(), debug, self.envelope.encode()]
            counted, debug = self.compound.encode_unpadded(), b""
        else:
            before.append(self.properties.encode_before_body())
            counted = self.properties.message_body
        after = [debug]
        if self.soap is not None:
            announced |= Announced.SOAP
            after.append(self.soap.encode())
        if self.multi_queue_format is not None:
            announced |= Announced.MULTI_QUEUE_FORMAT
            after.append(self.multi_queue_format.encode())
        if self.session is not None:
            after.append(self.session.encode())
        if self.trailers is not None:
            after.append(self.trailers.encode())
        before[0] = self.user.encode(announced)
        head, tail = b"".join(before), b"".join(after)
        size = padded(BASE_SIZE + len(head) + len(counted)) + len(tail)
        base = (
            self.base
            if self.transaction is None or not self.base.priority
            else BaseHeader(
                priority=0,
                tracing=self.base.tracing,
                time_to_reach_queue=self.base.time_to_reach_queue,
                reserved=self.base.reserved,
            )
        )
        first = base.encode(
            packet_size=size if self.session is None else size - session_header.SIZE,
            session_header=self.session is not None,
            debug_header=self.debug is not None,
        )
        return EncodedPacket(first + head, counted, tail)


class EncodedPacket(NamedTuple):
    """The bytes of a packet, divided where a reader's limit may cut."""

    head: bytes
    """"Message packet headers": up to the first byte that the limit counts."""
    counted: bytes
    """What the limit counts: the body of a binary message, the whole CompoundMessageHeader of an SRMP message."""
    tail: bytes
    """"Message packet trailers": everything behind, without the padding before it."""

    def joined(self) -> bytes:
        """The packet."""
        return pad(self.head + self.counted) + self.tail


class Head(NamedTuple):
    """The first half of a packet as read, and what it says of the second."""

    base: BaseHeader
    user: UserHeader
    transaction: TransactionHeader | None
    security: SecurityHeader | None
    properties: MessagePropertiesHeader
    debug: DebugHeader | None
    envelope: SRMPEnvelopeHeader | None
    compound: CompoundMessageHeader | None
    announced: int
    debug_header: bool
    """Announced, and still to come."""
    session_header: bool
    packet_size: int
    """With the SessionHeader."""
    at: int
    """Where the second half begins."""


class _Tail(NamedTuple):
    debug: DebugHeader | None
    soap: SoapHeader | None
    multi_queue_format: MultiQueueFormatHeader | None
    session: SessionHeader | None
    trailers: Trailers | None
    counted_end: int
    """Where the last header ends that PacketSize is certain to count."""


def parse_message_packet(data: bytes) -> MessagePacket:
    """A whole packet.

    Raises :class:`RemoteProtocolError` for one that is cut or does not hold together; never anything else, whatever ``data``
    is.
    """
    head = parse_head(data)
    if head.packet_size > len(data):
        raise RemoteProtocolError(
            f"a packet of {head.packet_size} bytes of which {len(data)} came",
            section="[MS-MQMQ] 2.2.19.1",
        )
    tail = _parse_tail(head, data, head.at, len(data))
    # Trailers may lie behind PacketSize: the packet that was seen counts them, the document that defines it does not know them.
    if tail.counted_end > head.packet_size:
        raise RemoteProtocolError(
            f"the headers of a packet of {head.packet_size} bytes end at {tail.counted_end}",
            section="[MS-MQMQ] 2.2.19.1",
        )
    return _packet(head, tail)


def parse_head(data: bytes, missing: int = 0) -> Head:
    """The first half of a packet, or the first section of one whose last ``missing`` bytes were not sent."""
    end = len(data)
    base, packet_size, session_follows, debug_follows = parse_base_header(data, end)
    user, announced, at = parse_user_header(data, BASE_SIZE, end)
    if not announced & Announced.MESSAGE_PROPERTIES:
        raise RemoteProtocolError(
            "a packet without a MessagePropertiesHeader (Flags.MP)", section="[MS-MQMQ] 2.2.19.2"
        )
    transaction = security = debug = envelope = compound = None
    if announced & Announced.TRANSACTION:
        transaction, at = parse_transaction_header(data, at, end)
    if announced & Announced.SECURITY:
        security, at = parse_security_header(data, at, end)
    srmp = bool(announced & Announced.SRMP)
    properties, at = parse_message_properties_header(data, at, end, missing=0 if srmp else missing)
    if srmp:
        if debug_follows:
            debug, at = parse_debug_header(data, at, end)
        envelope, at = parse_srmp_envelope_header(data, at, end)
        compound, at = parse_compound_message_header(data, at, end, missing=missing)
    return Head(
        base=base,
        user=user,
        transaction=transaction,
        security=security,
        properties=properties,
        debug=debug,
        envelope=envelope,
        compound=compound,
        announced=announced,
        debug_header=debug_follows and not srmp,
        session_header=session_follows,
        packet_size=packet_size + (session_header.SIZE if session_follows else 0),
        at=min(at, end),
    )


def parse_second_section(head: Head, data: bytes) -> MessagePacket:
    """The packet whose first section gave ``head`` and whose second one, if there is any, is ``data``."""
    return _packet(
        head,
        _parse_tail(head, data, 0, len(data)) if data else _Tail(None, None, None, None, None, 0),
    )


def _packet(head: Head, tail: _Tail) -> MessagePacket:
    return MessagePacket(
        base=head.base,
        user=head.user,
        transaction=head.transaction,
        security=head.security,
        properties=head.properties,
        debug=head.debug or tail.debug,
        envelope=head.envelope,
        compound=head.compound,
        soap=tail.soap,
        multi_queue_format=tail.multi_queue_format,
        session=tail.session,
        trailers=tail.trailers,
    )


def _parse_tail(head: Head, data: bytes, at: int, end: int) -> _Tail:
    debug = soap = multi_queue_format = session = trailers = None
    multi_queue_format_follows = bool(head.announced & Announced.MULTI_QUEUE_FORMAT)
    if head.debug_header:
        debug, at = parse_debug_header(data, at, end)
    if head.announced & Announced.SOAP:
        start = at
        soap, at = parse_soap_header(data, start, end)
        begins = begins_multi_queue_format_header if multi_queue_format_follows else begins_trailers
        ahead = session_header.SIZE if head.session_header and not multi_queue_format_follows else 0
        at = _next((at, start + padded(at - start)), begins, data, end, ahead)
    if multi_queue_format_follows:
        start = at
        multi_queue_format, at = parse_multi_queue_format_header(data, start, end)
        ahead = session_header.SIZE if head.session_header else 0
        at = _next((start + padded(at - start), padded(at), at), begins_trailers, data, end, ahead)
    if head.session_header:
        session, at = parse_session_header(data, at, end)
    counted_end = at
    if end - at >= EXTENSION_SIZE:
        trailers, at = parse_trailers(data, at, end)
    if end - at >= 4:
        raise RemoteProtocolError(
            f"{end - at} bytes after the last header of a packet", section=_SECTION
        )
    return _Tail(debug, soap, multi_queue_format, session, trailers, counted_end)


def _next(
    places: tuple[int, ...],
    begins: Callable[[bytes, int, int], bool],
    data: bytes,
    end: int,
    ahead: int,
) -> int:
    """Where the next header begins after one that is not said to be padded: the first of ``places`` where it can.

    ``ahead``: bytes of a SessionHeader, which has no mark of its own, before the one that ``begins`` knows.
    """
    found = next((at for at in places if begins(data, at + ahead, end)), places[0])
    return min(found, end)
