"""Encodes a :class:`Message` as the bytes that Windows would write.

See [MC-MQSRM] 3.1.7.2.4 and the examples of chapter 4. Where the text of 3.1.7.2.4 differs from
what Windows sends, this module writes what Windows sends, because readers were tested with that:

- The envelope is one line without an XML declaration. The declared lengths of 4.5, of 4.2 and of
  the receipts allow nothing else.
- The element is ``<Stream>`` and not ``<stream>``. ``<Journal/>`` and ``<DeadLetter/>`` are
  closed; the text opens them and never closes them. ``</commitmentReceiptRequest>`` is written; an
  earlier edition of the text omits it.
- In ``path``, ``rev`` stands before ``id``. ``Correlation``, ``App`` and ``HashAlgorithm`` are
  always present, even when they are zero.
- There is no CRLF before a MIME delimiter and one CRLF after the last delimiter.

A value that this form cannot carry is refused with :class:`LocalProtocolError` and never changed:
control characters, a priority of 8, properties of ``<Msmq>`` on a message without ``<Msmq>``.
"""

from __future__ import annotations

import re

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.message import CLASS_NORMAL, NEVER, Message, Receipt, StreamPosition
from srmp_spark.names import parse_guid
from srmp_spark.srmp.codec.mime import BOUNDARY
from srmp_spark.srmp.codec.values import (
    XML_SPACE,
    format_correlation,
    format_date,
    format_response_queue,
)
from srmp_spark.srmp.codec.windows_layout import LAYOUT_HEAD
from srmp_spark.srmp.limits import (
    CLASS_MAX,
    NAMES_MAX,
    PRIORITY_MAX,
    SEQUENCE_NUMBER_MAX,
    UNSIGNED_LONG_MAX,
)

NO_CORRELATION = bytes(20)
"""Correlation that is written for a message without one, as in 4.2, 4.4 and 4.5."""

CALG_SHA1 = 32_772
"""``<HashAlgorithm>`` of a user message that names none, as Windows writes it in 4.2, 4.4 and 4.5.

Receipts carry 0 (4.3).
"""

SOAP_ACTION = '"MSMQMessage"'

# A message without <Msmq> would lose these fields: 2.2.4.3 and appendix A <12> set all of them to
# their defaults.
_MSMQ_FIELDS = (
    "lineage",
    "uniquifier",
    "message_class",
    "priority",
    "time_to_reach_queue",
    "body_type",
    "correlation",
    "app_specific",
    "hash_algorithm",
    "journal",
    "dead_letter",
    "trace",
    "first_in_transaction",
    "last_in_transaction",
    "connector_type",
    "connector_qm",
    "provider_type",
    "provider_name",
    "source_qm",
    "destination_list",
    "admin_list",
    "response_list",
    "stream",
)
_DEFAULTS = Message("")

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", "\r": "&#13;"})
"""Characters to escape.

``>`` is escaped because of ``]]>``. A CR is escaped because an XML reader turns a plain CR into LF.
"""
_NOT_IN_A_HEAD = re.compile(r"[^\x21-\x7e]")


def encode_envelope(message: Message) -> bytes:
    """Return the SOAP envelope of ``message``: one line of UTF-8.

    Raises :class:`LocalProtocolError` if SRMP cannot express the message.
    """
    _check(message)
    parts = [
        LAYOUT_HEAD,
        _escape(message.action, "action"),
        "</action><to>",
        _address(message.destination, "to"),
        "</to>",
    ]
    if message.response_queue is not None:
        via = format_response_queue(_address(message.response_queue, "via"))
        parts += ("<rev><via>", via, "</via></rev>")
    parts += (
        _id(message.uniquifier, message.lineage),
        '</path><properties se:mustUnderstand="1"><expiresAt>',
    )
    parts += (_date(message.expires_at), "</expiresAt>")
    if message.sent_at is not None:
        parts += ("<sentAt>", format_date(message.sent_at), "</sentAt>")
    parts.append("</properties>")
    _services(message, parts)
    if message.stream is not None:
        _stream(message.stream, parts)
    if message.receipt is not None:
        _receipt(message.receipt, parts)
    if message.has_msmq:
        _msmq(message, parts)
    parts.append("</se:Header><se:Body></se:Body></se:Envelope>")
    return "".join(parts).encode()


def encode(message: Message, *, boundary: str) -> tuple[bytes, bytes]:
    """Return ``(content_type, content)`` of the POST.

    The content is multipart only if the message has a body or an extension. Windows builds
    ``boundary`` as ``MSMQ - SOAP boundary, N`` with a random N. The body may contain the boundary,
    because parts are read by their lengths. Raises :class:`LocalProtocolError` as
    :func:`encode_envelope` does, and also for an invalid boundary and for a receipt with a body or
    an extension.
    """
    envelope = encode_envelope(message)
    if not message.body and message.extension is None:
        return b"text/xml", envelope
    if message.receipt is not None:
        raise LocalProtocolError("a receipt has neither body nor extension ([MC-MQSRM] 2.2.2)")
    if not boundary.isascii() or not BOUNDARY.fullmatch(boundary.encode()):
        raise LocalProtocolError(
            f"not a MIME boundary of 1 to 70 characters (RFC 2046 5.1.1): {boundary[:80]!r}"
        )
    mark = boundary.encode()
    content = [
        b"--%b\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: %d\r\n\r\n"
        % (mark, len(envelope)),
        envelope,
    ]
    for name, attachment in ((b"body", message.body or None), (b"extension", message.extension)):
        if attachment is not None:
            content.append(
                b"--%b\r\nContent-Type: application/octet-stream\r\nContent-Length: "
                b"%d\r\nContent-Id: %b@%b\r\n\r\n"
                % (mark, len(attachment), name, message.lineage.encode())
            )
            content.append(attachment)
    content.append(b"--%b--\r\n" % mark)
    return b'multipart/related; boundary="%b"; type=text/xml' % mark, b"".join(content)


def http_head(target: str, host: str, content_type: bytes, length: int, via: str = "") -> bytes:
    """Return the head of the POST with its blank line, field by field as in chapter 4.

    ``target`` is the path and query of ``<to>``, percent-encoded. ``host`` is ``HOST`` or
    ``HOST:PORT``. ``via`` is the value of the ``Via`` field, which only a forwarded message has.
    Raises :class:`LocalProtocolError` if a value does not fit into one line of a head.
    """
    for name, value in (("target", target), ("host", host)):
        if not value or _NOT_IN_A_HEAD.search(value):
            raise LocalProtocolError(
                f"the {name} of a request is visible ASCII, percent-encode the rest: "
                f"{value[:100]!r}"
            )
    if b"\r" in content_type or b"\n" in content_type:
        raise LocalProtocolError("a Content-Type is one line")
    if via and (not via.isascii() or not via.isprintable()):
        raise LocalProtocolError("a Via is one line of ASCII")
    via_line = f"Via: {via}\r\n" if via else ""
    return (
        f"POST {target} HTTP/1.1\r\nHost: {host}\r\n"
        f"Content-Type: {content_type.decode('latin-1')}\r\nContent-Length: {length}\r\n"
        f"SOAPAction: {SOAP_ACTION}\r\nProxy-Accept: NonInteractiveClient\r\n{via_line}\r\n"
    ).encode("latin-1")


def _check(message: Message) -> None:
    """Check the rules that concern more than one element.

    Raises :class:`LocalProtocolError` for a value that needs ``<Msmq>`` on a message without it, a
    ``source_qm`` that is not the lineage, a ``soap_body``, a signature, and a commitment receipt
    without an address.
    """
    if not message.has_msmq:
        lost = [name for name in _MSMQ_FIELDS if getattr(message, name) != getattr(_DEFAULTS, name)]
        if lost:
            raise LocalProtocolError(
                f"{', '.join(lost)}: only <Msmq> carries this; set has_msmq=True"
            )
    if message.source_qm not in (None, message.lineage):
        raise LocalProtocolError(
            "lineage and source_qm differ; a receiver would trust source_qm ([MC-MQSRM] "
            "appendix A <7>)"
        )
    if message.soap_body is not None:
        raise LocalProtocolError(
            "<se:Body> MUST be empty ([MC-MQSRM] 2.2.2); put the content into body"
        )
    if message.signature != "none":
        raise LocalProtocolError(
            "we do not sign envelopes; HTTPS protects a message ([MC-MQSRM] 5.1)"
        )
    if (
        message.commitment_positive or message.commitment_negative
    ) and message.commitment_receipt_to is None:
        raise LocalProtocolError(
            "a commitment receipt needs commitment_receipt_to ([MC-MQSRM] 2.2.5.2.3)"
        )


def _escape(text: str, name: str) -> str:
    if _NOT_XML.search(text):
        raise LocalProtocolError(
            f"<{name}> holds a character that XML 1.0 cannot carry: {text[:80]!r}"
        )
    return text.translate(_ESCAPES)


def _address(text: str, name: str) -> str:
    """Return a URL or format name as the escaped text of an element.

    ``<to>`` loses its ``DIRECT=``. Raises :class:`LocalProtocolError` for an empty text, which a
    reader takes as absent, for white space at either end, which a reader strips, and for a
    character that XML cannot carry.
    """
    # SRMP carries the bare URL, and the receiver adds DIRECT= again (3.1.5.1.1).
    if name == "to" and text[:7].upper() == "DIRECT=":
        text = text[7:]
    if not text or text.strip(XML_SPACE) != text:
        raise LocalProtocolError(f"<{name}> is empty or has white space around it: {text[:80]!r}")
    return _escape(text, name)


def _guid(guid: str, name: str) -> str:
    try:
        return parse_guid(guid)
    except RemoteProtocolError as error:
        raise LocalProtocolError(f"{name}: {error}") from None


def _number(number: int, name: str, maximum: int = UNSIGNED_LONG_MAX, minimum: int = 0) -> str:
    if not minimum <= number <= maximum:
        raise LocalProtocolError(f"{name} lies between {minimum} and {maximum}, got {number}")
    return str(int(number))


def _id(uniquifier: int, lineage: str) -> str:
    return f"<id>uuid:{_number(uniquifier, 'uniquifier')}@{_guid(lineage, 'lineage')}</id>"


def _date(at: int | None) -> str:
    return NEVER if at is None else format_date(at)


def _services(message: Message, parts: list[str]) -> None:
    # A stream message MUST have <durable/> (2.2.5.3).
    durable = message.durable or message.stream is not None
    if (
        not durable
        and message.delivery_receipt_to is None
        and message.commitment_receipt_to is None
    ):
        return
    parts.append('<services se:mustUnderstand="1">')
    if durable:
        parts.append("<durable/>")
    if message.delivery_receipt_to is not None:
        url = _address(message.delivery_receipt_to, "sendTo")
        parts += ("<deliveryReceiptRequest><sendTo>", url, "</sendTo></deliveryReceiptRequest>")
    if message.commitment_receipt_to is not None:
        parts += (
            "<commitmentReceiptRequest><sendTo>",
            _address(message.commitment_receipt_to, "sendTo"),
            "</sendTo>",
        )
        if message.commitment_positive:
            parts.append("<positiveOnly/>")
        if message.commitment_negative:
            parts.append("<negativeOnly/>")
        parts.append("</commitmentReceiptRequest>")
    parts.append("</services>")


def _stream_id(guid: str, ordinal: int) -> str:
    return (
        f"<streamId>uid:{_guid(guid, 'stream identifier')}\\"
        f"{_number(ordinal, 'stream ordinal')}</streamId>"
    )


def _stream(stream: StreamPosition, parts: list[str]) -> None:
    current = _number(stream.current, "current", SEQUENCE_NUMBER_MAX, minimum=1)
    parts += (
        '<Stream se:mustUnderstand="1">',
        _stream_id(*stream.id),
        "<current>",
        current,
        "</current>",
    )
    # 3.1.7.2.4 omits every 0, but an absent <previous> means 0 only if <current> is 1.
    if stream.previous != 0 or stream.current != 1:
        parts += (
            "<previous>",
            _number(stream.previous, "previous", SEQUENCE_NUMBER_MAX),
            "</previous>",
        )
    if stream.start:
        if stream.send_receipts_to is None:
            raise LocalProtocolError(
                "the start of a stream needs send_receipts_to ([MC-MQSRM] 2.2.5.3.4)"
            )
        url = _address(stream.send_receipts_to, "sendReceiptsTo")
        parts += ("<start><sendReceiptsTo>", url, "</sendReceiptsTo></start>")
    elif stream.send_receipts_to is not None:
        raise LocalProtocolError(
            "send_receipts_to stands in <start>; set start=True ([MC-MQSRM] 2.2.5.3.4)"
        )
    parts.append("</Stream>")


def _receipt(receipt: Receipt, parts: list[str]) -> None:
    if receipt.kind in ("stream", "final_stream"):
        if receipt.stream_id is None or receipt.last_ordinal is None:
            raise LocalProtocolError(
                "a stream receipt names stream_id and last_ordinal ([MC-MQSRM] 2.2.5.6)"
            )
        last = _number(receipt.last_ordinal, "last_ordinal", SEQUENCE_NUMBER_MAX)
        parts += (
            "<streamReceipt>",
            _stream_id(*receipt.stream_id),
            "<lastOrdinal>",
            last,
            "</lastOrdinal></streamReceipt>",
        )
    if receipt.kind == "stream":
        return
    if receipt.lineage is None or receipt.uniquifier is None or receipt.at is None:
        raise LocalProtocolError(
            "a receipt names lineage, uniquifier and at ([MC-MQSRM] 2.2.5.4, 2.2.5.5)"
        )
    identifier = _id(receipt.uniquifier, receipt.lineage)
    if receipt.kind == "delivery":
        parts += (
            "<deliveryReceipt><receivedAt>",
            format_date(receipt.at),
            "</receivedAt>",
            identifier,
            "</deliveryReceipt>",
        )
        return
    if receipt.decision is None:
        raise LocalProtocolError("a commitment receipt names a decision ([MC-MQSRM] 2.2.5.5)")
    parts += (
        "<commitmentReceipt><decidedAt>",
        format_date(receipt.at),
        "</decidedAt><decision>",
        receipt.decision,
    )
    parts += ("</decision>", identifier, "</commitmentReceipt>")


def _msmq(message: Message, parts: list[str]) -> None:
    hash_algorithm = message.hash_algorithm
    if hash_algorithm is None:
        hash_algorithm = (
            CALG_SHA1 if message.message_class == CLASS_NORMAL and message.receipt is None else 0
        )
    parts += (
        '<Msmq xmlns="msmq.namespace.xml"><Class>',
        _number(message.message_class, "message_class", CLASS_MAX),
    )
    parts += (
        "</Class><Priority>",
        _number(message.priority, "priority", PRIORITY_MAX),
        "</Priority>",
    )
    if message.journal:
        parts.append("<Journal/>")
    if message.dead_letter:
        parts.append("<DeadLetter/>")
    parts += (
        "<Correlation>",
        format_correlation(message.correlation or NO_CORRELATION),
        "</Correlation>",
    )
    if message.trace:
        parts.append("<Trace/>")
    if message.connector_type is not None:
        parts += (
            "<ConnectorType>",
            _guid(message.connector_type, "connector_type"),
            "</ConnectorType>",
        )
    parts += ("<App>", _number(message.app_specific, "app_specific"), "</App>")
    parts += ("<BodyType>", _number(message.body_type, "body_type"), "</BodyType>")
    parts += ("<HashAlgorithm>", _number(hash_algorithm, "hash_algorithm"), "</HashAlgorithm>")
    if (
        message.first_in_transaction
        or message.last_in_transaction
        or message.connector_qm is not None
    ):
        parts += (
            "<Eod>",
            "<First/>" * message.first_in_transaction,
            "<Last/>" * message.last_in_transaction,
        )
        if message.connector_qm is not None:
            parts += (
                "<ConnectorId>",
                _guid(message.connector_qm, "connector_qm"),
                "</ConnectorId>",
            )
        parts.append("</Eod>")
    if message.provider_type is not None or message.provider_name is not None:
        parts.append("<Provider>")
        if message.provider_type is not None:
            parts += ("<Type>", _number(message.provider_type, "provider_type"), "</Type>")
        if message.provider_name is not None:
            parts += ("<Name>", _address(message.provider_name, "Name"), "</Name>")
        parts.append("</Provider>")
    parts += ("<SourceQmGuid>", _guid(message.lineage, "lineage"), "</SourceQmGuid>")
    for name, listed in (
        ("DestinationMqf", message.destination_list),
        ("AdminMqf", message.admin_list),
        ("ResponseMqf", message.response_list),
    ):
        if listed:
            parts += (f"<{name}>", _names(listed, name), f"</{name}>")
    parts += ("<TTrq>", _date(message.time_to_reach_queue), "</TTrq></Msmq>")


def _names(names: tuple[str, ...], element: str) -> str:
    """Return the names, each followed by a blank as in [MC-MQSRM] 3.1.7.2.4.

    Raises :class:`LocalProtocolError` for too many names, and for a name that is empty or has white
    space.
    """
    if len(names) > NAMES_MAX:
        raise LocalProtocolError(f"<{element}> holds at most {NAMES_MAX} names, got {len(names)}")
    for name in names:
        if not name or any(space in name for space in XML_SPACE):
            raise LocalProtocolError(
                f"a name in <{element}> is empty or holds white space: {name[:80]!r}"
            )
    return "".join(f"{_escape(name, element)} " for name in names)
