"""Reads the envelope exactly as Windows writes it, with one regular expression.

See [MC-MQSRM] 3.1.7.2.4 and chapter 4. Theory of operation. Windows builds an envelope by appending
fixed strings to a buffer, so nearly all messages have one skeleton with holes. ``LAYOUT`` below is
this skeleton, and it is compiled once. An envelope that matches it *entirely* gives the message
that the XML reader would give. Any other envelope, even with one more blank or a single ``&``,
gives ``None``, and the XML reader decides. There is no third result: a hole with a wrong content
(month 13) gives ``None`` too, so all errors are worded in one place.

This is safe for three reasons. The skeleton is well-formed XML that declares its own namespaces.
Holes cannot contain ``<``, ``>``, ``&`` or a control character. No element can occur twice.
tests/codec/test_differential.py compares both readers on mutations.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from functools import lru_cache
from typing import Literal, cast

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Message, Receipt, StreamId, StreamPosition
from srmp_spark.srmp.codec import namespaces as ns
from srmp_spark.srmp.codec.values import (
    XML_SPACE,
    parse_date,
    parse_destination,
    parse_response_queue,
)
from srmp_spark.srmp.limits import (
    CLASS_MAX,
    DATE_CACHE_MAX,
    SEQUENCE_NUMBER_MAX,
    STREAM_ID_CACHE_MAX,
    UNSIGNED_LONG_MAX,
)

LAYOUT_HEAD = (
    f'<se:Envelope xmlns:se="{ns.SOAP}" xmlns="{ns.SRMP}"><se:Header><path '
    f'xmlns="{ns.ROUTING}" se:mustUnderstand="1"><action>'
)
"""Beginning of every envelope of Windows.

The beginning is compared before the expression runs, because that is cheaper.
"""

LAYOUT = (
    r"{action}</action><to>{to}</to>[<rev><via>{via}</via></rev>]"
    r"<id>uuid:{id_number}@{id_guid}</id></path>"
    r'<properties se:mustUnderstand="1"><expiresAt>{expiresAt}</expiresAt>'
    r"[<sentAt>{sentAt}</sentAt>]</properties>"
    # The element <services>.
    r'[<services se:mustUnderstand="1">[durable:<durable/>]'
    r"[<deliveryReceiptRequest><sendTo>{delivery_sendTo}</sendTo></deliveryReceiptRequest>]"
    r"[<commitmentReceiptRequest><sendTo>{commitment_sendTo}</sendTo>[positiveOnly:<positiveOnly/>]"
    r"[negativeOnly:<negativeOnly/>]</commitmentReceiptRequest>]</services>]"
    # The element <Stream>.
    r'[<Stream se:mustUnderstand="1"><streamId>uid:{stream_guid}\{stream_ordinal}</streamId>'
    r"<current>{current}</current>[<previous>{previous}</previous>]"
    r"[<start><sendReceiptsTo>{sendReceiptsTo}</sendReceiptsTo></start>]</Stream>]"
    # The elements of receipts.
    r"[<streamReceipt><streamId>uid:{receipt_guid}\{receipt_ordinal}</streamId>"
    r"<lastOrdinal>{lastOrdinal}</lastOrdinal></streamReceipt>]"
    r"[<deliveryReceipt><receivedAt>{receivedAt}</receivedAt>"
    r"<id>uuid:{delivered_number}@{delivered_guid}</id></deliveryReceipt>]"
    r"[<commitmentReceipt><decidedAt>{decidedAt}</decidedAt><decision>{decision}</decision>"
    r"<id>uuid:{decided_number}@{decided_guid}</id></commitmentReceipt>]"
    # The element <Msmq>.
    r'<Msmq xmlns="msmq.namespace.xml"><Class>{Class}</Class><Priority>{Priority}</Priority>'
    r"[Journal:<Journal/>][DeadLetter:<DeadLetter/>][<Correlation>{Correlation}</Correlation>]"
    r"[Trace:<Trace/>][<App>{App}</App>]<BodyType>{BodyType}</BodyType>"
    r"[<HashAlgorithm>{HashAlgorithm}</HashAlgorithm>][<Eod>[First:<First/>][Last:<Last/>]</Eod>]"
    r"<SourceQmGuid>{SourceQmGuid}</SourceQmGuid><TTrq>{TTrq}"
)
"""The skeleton.

``{name}`` is a hole, ``[…]`` is optional, and ``[name:…]`` is a flag that is true if it is present.
"""

LAYOUT_TAIL = "</TTrq></Msmq></se:Header><se:Body></se:Body></se:Envelope>"

_TEXT = r"[^<>&\x00-\x1f]*"
_GUID = r"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}"
_DATE = r"[0-9]{8}T[0-9]{6}"
_NUMBER = r"(?:0|[1-9][0-9]{0,9})"
_LONG = r"(?:0|[1-9][0-9]{0,19})"
HOLES = {
    **dict.fromkeys(
        ("action", "to", "via", "delivery_sendTo", "commitment_sendTo", "sendReceiptsTo"), _TEXT
    ),
    **dict.fromkeys(
        (
            "id_guid",
            "stream_guid",
            "receipt_guid",
            "delivered_guid",
            "decided_guid",
            "SourceQmGuid",
        ),
        _GUID,
    ),
    **dict.fromkeys(("expiresAt", "sentAt", "receivedAt", "decidedAt", "TTrq"), _DATE),
    **dict.fromkeys(
        ("current", "previous", "lastOrdinal", "Class", "App", "BodyType", "HashAlgorithm"), _NUMBER
    ),
    **dict.fromkeys(
        ("id_number", "stream_ordinal", "receipt_ordinal", "delivered_number", "decided_number"),
        _LONG,
    ),
    "decision": "positive|negative",
    "Priority": "[0-7]",
    "Correlation": "[A-Za-z0-9+/]{27}=",
}


_TOKEN = re.compile(r"\{(\w+)\}|\[(\w+):([^\]]+)\]|([\[\]])|([^\[\]{}]+)")


def _compile(layout: str) -> re.Pattern[bytes]:
    """Return ``layout`` as a regular expression whose groups are the holes and flags in order.

    ``(?:x|)`` is used instead of ``(?:x)?`` because it takes a fifth less time: a branch tests
    first, and a repetition saves its state first.
    """
    pattern = []
    for token in _TOKEN.finditer(layout):
        hole, flag, flagged, bracket, literal = token.groups()
        if hole:
            pattern.append(f"({HOLES[hole]})")
        elif flag:
            pattern.append(f"({re.escape(flagged)}|)")
        elif bracket:
            pattern.append("(?:" if bracket == "[" else "|)")
        else:
            pattern.append(re.escape(literal))
    return re.compile("".join(pattern).encode())


_PATTERN = _compile(LAYOUT)
_ABSENT = (b"", None)
"""Values of a flag that is absent, and of a flag in an element that is absent."""
_new = tuple.__new__
assert len(Message._fields) == 40, "Message has changed: change _message() here, field by field"
_UNUSUAL = "dD "
"""First characters of a ``<to>`` that must be parsed: those of DIRECT=, a blank, or none at all
(``"" in _UNUSUAL``).
"""
_HEAD = LAYOUT_HEAD.encode()
_TAIL = LAYOUT_TAIL.encode()
_HEAD_LENGTH = len(_HEAD)
_TAIL_LENGTH = len(_TAIL)
_TEXTS_KEPT = 4_096
"""Most entries of each cache of this module: GUIDs of queue managers, destinations, numbers.

A sender has one queue manager and a few destinations.
"""
_DESTINATION_KEPT = 512
"""Longest ``<to>`` that is cached, in bytes.

A longer one is parsed each time, so that unauthenticated clients cannot fill the memory.
"""


def read_windows_envelope(
    content: bytes, start: int, end: int, body: bytes = b"", extension: bytes | None = None
) -> Message | None:
    """Return the message of the envelope ``content[start:end]`` if it has exactly Windows' layout.

    Return ``None`` otherwise. Then :mod:`envelope_reader` must read the envelope, which also words
    all errors.
    """
    if not (content.startswith(_HEAD, start) and content.endswith(_TAIL, start, end)):
        return None
    match = _PATTERN.fullmatch(content, start + _HEAD_LENGTH, end - _TAIL_LENGTH)
    if match is None:
        return None
    # fmt: off
    (
        action, to, via, id_number, _, expires_at, sent_at,
        durable, delivery_to, commitment_to, positive, negative,
        stream_guid, stream_ordinal, current, previous, send_receipts_to,
        receipt_guid, receipt_ordinal, last_ordinal, received_at, delivered_number, delivered_guid,
        decided_at, decision, decided_number, decided_guid,
        message_class, priority, journal, dead_letter, correlation, trace, app, body_type,
        hash_algorithm, first, last, source_qm, ttrq,
    ) = match.groups()
    # fmt: on
    try:
        class_number = _number(message_class)
        uniquifier = int(id_number)
        if class_number > CLASS_MAX or uniquifier > UNSIGNED_LONG_MAX:
            return None
        stream = None
        if stream_guid is not None:
            stream = _stream(stream_guid, stream_ordinal, current, previous, send_receipts_to)
            if stream is None:
                return None
        receipt = None
        if receipt_guid is not None or received_at is not None or decided_at is not None:
            receipt = _receipt(
                (receipt_guid, receipt_ordinal, last_ordinal),
                (received_at, delivered_number, delivered_guid),
                (decided_at, decided_number, decided_guid, decision),
            )
            if receipt is None:
                return None
        if delivery_to is not None:
            delivery_to = _text(delivery_to).strip(XML_SPACE)
            if not delivery_to:
                return None
        if commitment_to is not None:
            commitment_to = _text(commitment_to).strip(XML_SPACE)
            if not commitment_to:
                return None
        lineage = _guid(source_qm)
        # The values are in the order of the fields, because forty keywords would cost as much as
        # the expression.
        return _new(
            Message,
            (
                _known_destination(to) if len(to) <= _DESTINATION_KEPT else _destination(to),
                _text(action),
                lineage,
                uniquifier,
                True,
                class_number,
                _number(priority),
                durable not in _ABSENT,
                stream,
                receipt,
                None if sent_at is None else _date(sent_at),
                _date(expires_at),
                _date(ttrq),
                body,
                _number(body_type),
                extension,
                None if correlation is None else a2b_base64(correlation),
                0 if app is None else _number(app),
                None if hash_algorithm is None else _number(hash_algorithm),
                None if via is None else parse_response_queue(_text(via).strip(XML_SPACE)),
                delivery_to,
                commitment_to,
                positive not in _ABSENT,
                negative not in _ABSENT,
                journal not in _ABSENT,
                dead_letter not in _ABSENT,
                trace not in _ABSENT,
                first not in _ABSENT,
                last not in _ABSENT,
                None,
                None,
                None,
                None,
                lineage,
                (),
                (),
                (),
                "none",
                None,
                None,
            ),
        )
    except (RemoteProtocolError, UnicodeDecodeError):
        # For example, no calendar has this date. The XML reader words all errors.
        return None


def _text(raw: bytes) -> str:
    text = raw.decode()
    if not raw.isascii() and ("\ufffe" in text or "\uffff" in text):
        raise RemoteProtocolError("no characters of XML", section="XML 1.0 2.2")
    return text


def _destination(to: bytes) -> str:
    text = _text(to)
    return (
        text
        if text[:1] not in _UNUSUAL and text[-1:] != " "
        else parse_destination(text.strip(XML_SPACE))
    )


_known_destination = lru_cache(maxsize=_TEXTS_KEPT)(_destination)


_number = lru_cache(maxsize=_TEXTS_KEPT)(int)
"""Caches numbers that rarely change: class, priority, body type, hash algorithm, application's
number.
"""


@lru_cache(maxsize=_TEXTS_KEPT)
def _guid(raw: bytes) -> str:
    return raw.decode().lower()


@lru_cache(maxsize=DATE_CACHE_MAX)
def _date(raw: bytes) -> int:
    return parse_date(raw.decode())


@lru_cache(maxsize=STREAM_ID_CACHE_MAX)
def _stream_id(guid: bytes, ordinal: bytes) -> StreamId:
    return StreamId(_guid(guid), int(ordinal))


def _stream(
    guid: bytes,
    ordinal: bytes,
    current: bytes,
    previous: bytes | None,
    send_receipts_to: bytes | None,
) -> StreamPosition | None:
    stream_id = _stream_id(guid, ordinal)
    position = int(current)
    before = position - 1 if previous is None else int(previous)
    if (
        not 1 <= position <= SEQUENCE_NUMBER_MAX
        or before > SEQUENCE_NUMBER_MAX
        or stream_id.ordinal > UNSIGNED_LONG_MAX
    ):
        return None
    if send_receipts_to is None:
        return StreamPosition(stream_id, position, before)
    url = _text(send_receipts_to).strip(XML_SPACE)
    return StreamPosition(stream_id, position, before, True, url) if url else None


def _receipt(
    stream: tuple[bytes | None, bytes, bytes],
    delivery: tuple[bytes | None, bytes, bytes],
    commitment: tuple[bytes | None, bytes, bytes, bytes],
) -> Receipt | None:
    if delivery[0] is not None:
        if stream[0] is not None or commitment[0] is not None:
            return None
        return _in_range(
            Receipt("delivery", _guid(delivery[2]), int(delivery[1]), _date(delivery[0]))
        )
    receipt = None
    if commitment[0] is not None:
        decision = cast("Literal['positive', 'negative']", commitment[3].decode())
        receipt = Receipt(
            "commitment", _guid(commitment[2]), int(commitment[1]), _date(commitment[0]), decision
        )
    if stream[0] is not None:
        stream_id, last_ordinal = _stream_id(stream[0], stream[1]), int(stream[2])
        if receipt is None:
            receipt = Receipt("stream", stream_id=stream_id, last_ordinal=last_ordinal)
        else:
            receipt = receipt._replace(
                kind="final_stream", stream_id=stream_id, last_ordinal=last_ordinal
            )
    return None if receipt is None else _in_range(receipt)


def _in_range(receipt: Receipt) -> Receipt | None:
    """Return ``receipt`` unchanged, or ``None`` if one of its numbers is larger than allowed."""
    if (receipt.uniquifier or 0) > UNSIGNED_LONG_MAX or (
        receipt.last_ordinal or 0
    ) > SEQUENCE_NUMBER_MAX:
        return None
    return (
        None
        if receipt.stream_id is not None and receipt.stream_id.ordinal > UNSIGNED_LONG_MAX
        else receipt
    )
