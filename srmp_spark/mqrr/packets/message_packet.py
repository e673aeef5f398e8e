"""A whole message packet: which headers it has, their order and its size ([MS-MQRR] 2.2.5).

A packet is received whole or cut. A reader may ask for the first bytes of the body only, and
receives two sections (:mod:`.sections`). So a packet is parsed in two steps that fit the cut. The
*head* ends with the part that may be cut, and the *tail* is everything after:

======  ===========================================  ============================================
kind    head                                         tail
======  ===========================================  ============================================
binary  … MessagePropertiesHeader (its body may be   DebugHeader, SoapHeader,
        cut)                                         MultiQueueFormatHeader, …
SRMP    … DebugHeader, SRMPEnvelopeHeader,           SoapHeader, MultiQueueFormatHeader, …
        CompoundMessageHeader (may be cut)
======  ===========================================  ============================================
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
    """One message with all its headers; a header that the packet does not have is ``None``."""

    base: BaseHeader
    user: UserHeader
    transaction: TransactionHeader | None = None
    security: SecurityHeader | None = None
    properties: MessagePropertiesHeader
    debug: DebugHeader | None = None
    envelope: SRMPEnvelopeHeader | None = None
    compound: CompoundMessageHeader | None = None
    """Set together with ``envelope`` or not at all. If set, the message was sent over HTTP."""
    soap: SoapHeader | None = None
    multi_queue_format: MultiQueueFormatHeader | None = None
    session: SessionHeader | None = None
    trailers: Trailers | None = None

    @property
    def id(self) -> str:
        r"""Return the message identifier ``{GUID}\N`` that the sender gave the message."""
        return message_id(self.user.source_queue_manager, self.user.message_id)

    @property
    def priority(self) -> int:
        """Return the priority, 0 to 7.

        The priority of a transactional message is 0, whatever its BaseHeader says ([MS-MQMQ]
        2.2.19.1).
        """
        return 0 if self.transaction is not None else self.base.priority

    @property
    def delivery(self) -> Delivery:
        """Return the delivery of the message: transactional, recoverable or express.

        These are MSMQ's words for how far a message survives.
        """
        if self.transaction is not None:
            return "transactional"
        return "recoverable" if self.user.delivery_mode == DeliveryMode.RECOVERABLE else "express"

    @property
    def body(self) -> bytes:
        """Return the body of the message, or the part of the body that was sent.

        The body of a message that was sent over HTTP lies in the compound message. [MS-MQDMPR]
        3.1.7.1.32 would put the body into the MessagePropertiesHeader as well, but the packets that
        were seen do not. If only one place holds a body, that body is returned.
        """
        if self.compound is not None and self.compound.message_body:
            return self.compound.message_body
        return self.properties.message_body

    @property
    def missing(self) -> int:
        """Return the number of bytes that were not sent because the reader asked for less.

        A packet with missing bytes never becomes a row.
        """
        return self.properties.missing if self.compound is None else self.compound.missing

    def encode(self) -> bytes:
        """Encode the packet.

        Raises :class:`LocalProtocolError` if a value does not fit into its field, if a part is
        missing, or if the packet is above 4 MiB.
        """
        return self.encode_pieces().joined()

    def encode_pieces(self) -> EncodedPacket:
        """Encode the packet as head, counted part and tail (:class:`EncodedPacket`).

        A reader's limit divides the packet so. Raises :class:`LocalProtocolError` as :meth:`encode`
        does.
        """
        if self.missing:
            raise LocalProtocolError(
                f"{self.missing} bytes of {self.id} are missing; read the message again, "
                "with its whole body"
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
    """The bytes of one packet, divided into the part that a reader's limit counts and the rest."""

    head: bytes
    """"Message packet headers": all bytes before the first byte that the limit counts."""
    counted: bytes
    """The bytes that the reader's limit counts.

    In a binary message this is the body, in an SRMP message the whole CompoundMessageHeader.
    """
    tail: bytes
    """"Message packet trailers": all bytes after ``counted``, without the padding between."""

    def joined(self) -> bytes:
        """Return the bytes of the whole packet, with padding after ``counted``."""
        return pad(self.head + self.counted) + self.tail


class PacketHead(NamedTuple):
    """The first half of a packet as parsed, and what this half says about the second half."""

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
    """Whether a DebugHeader is announced that follows in the second half."""
    session_header: bool
    packet_size: int
    """Bytes of the whole packet, SessionHeader included."""
    at: int
    """Offset in the parsed bytes at which the second half begins, or their end."""


class _Tail(NamedTuple):
    debug: DebugHeader | None
    soap: SoapHeader | None
    multi_queue_format: MultiQueueFormatHeader | None
    session: SessionHeader | None
    trailers: Trailers | None
    counted_end: int
    """Offset of the end of the last header that PacketSize certainly counts."""


def parse_message_packet(data: bytes) -> MessagePacket:
    """Parse a whole packet, and return it.

    Raises :class:`RemoteProtocolError` (also as :class:`LimitExceededError`) if the packet is cut,
    inconsistent or beyond a limit. No other exception is raised, whatever ``data`` is.
    """
    head = parse_head(data)
    if head.packet_size > len(data):
        raise RemoteProtocolError(
            f"a packet of {head.packet_size} bytes of which {len(data)} were received",
            section="[MS-MQMQ] 2.2.19.1",
        )
    tail = _parse_tail(head, data, head.at, len(data))
    # Trailers may lie after PacketSize: the packet that was seen counts the trailers, but the
    # document that defines PacketSize does not know trailers.
    if tail.counted_end > head.packet_size:
        raise RemoteProtocolError(
            f"the headers of a packet of {head.packet_size} bytes end at {tail.counted_end}",
            section="[MS-MQMQ] 2.2.19.1",
        )
    return _packet(head, tail)


def parse_head(data: bytes, missing: int = 0) -> PacketHead:
    """Parse the first half of a packet, or the first section of a packet that was cut.

    ``missing`` is the number of bytes that were not sent at the end of the cut part. Raises
    :class:`RemoteProtocolError` if a header is cut elsewhere or inconsistent.
    """
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
    return PacketHead(
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


def parse_second_section(head: PacketHead, data: bytes) -> MessagePacket:
    """Build the packet from the ``head`` of its first section and the bytes of its second section.

    ``data`` is empty if there is no second section. Raises :class:`RemoteProtocolError` if a header
    in ``data`` is cut or inconsistent.
    """
    return _packet(
        head,
        _parse_tail(head, data, 0, len(data)) if data else _Tail(None, None, None, None, None, 0),
    )


def _packet(head: PacketHead, tail: _Tail) -> MessagePacket:
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


def _parse_tail(head: PacketHead, data: bytes, at: int, end: int) -> _Tail:
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
    """Return the offset of the next header, after a header whose padding is not documented.

    The result is the first of ``places`` at which the next header can begin, or the first place if
    none fits. ``begins`` tests for the next header with a recognisable mark. ``ahead`` is the size
    in bytes of a SessionHeader, which has no mark, before that header.
    """
    found = next((at for at in places if begins(data, at + ahead, end)), places[0])
    return min(found, end)
