"""Turns the fields of an envelope into a :class:`Message`, and checks presence and values.

See [MC-MQSRM] 2.2.4 to 2.2.7. White space around a value has no meaning, with two exceptions:
``action`` is a text, and a position in a stream must be written without white space, so that each
position has one text.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.message import Message, Receipt, StreamPosition
from srmp_spark.names import NULL_GUID, parse_guid
from srmp_spark.srmp.codec.values import (
    XML_SPACE,
    parse_correlation,
    parse_date,
    parse_destination,
    parse_message_id,
    parse_response_queue,
    parse_stream_id,
    sequence_number,
    unsigned_long,
)
from srmp_spark.srmp.limits import CLASS_MAX, NAMES_MAX, PRIORITY_MAX, SEQUENCE_NUMBER_MAX

Fields = dict[str, str]
"""Path of an element below the header (``"Msmq/Class"``) and its text."""

_SECTIONS = {
    "path": "2.2.4",
    "properties": "2.2.5.1",
    "services": "2.2.5.2",
    "stream": "2.2.5.3",
    "deliveryReceipt": "2.2.5.4",
    "commitmentReceipt": "2.2.5.5",
    "streamReceipt": "2.2.5.6",
    "Msmq": "2.2.6",
    "Signature": "2.2.7",
}
SEND_RECEIPTS_TO = "stream/start/sendReceiptsTo"
BOLD = f"{SEND_RECEIPTS_TO}/b"
"""Field for the text in bold type inside ``<sendReceiptsTo>``, a misprint of the specification
(:func:`_send_receipts_to`).
"""
_DECISIONS: Mapping[str, Literal["positive", "negative"]] = {
    "positive": "positive",
    "negative": "negative",
}
_SPACES = re.compile(f"[{XML_SPACE}]+")
_CONTENT_ID = re.compile(r"cid:((?:body|extension)@.+)", re.IGNORECASE)


def section_of(field: str) -> str:
    """Return the section of the specification that describes the element at the path ``field``.

    Raises :class:`KeyError` if ``field`` does not begin with a header entry of SRMP.
    """
    return f"[MC-MQSRM] {_SECTIONS[field.partition('/')[0]]}"


def message_of(
    fields: Fields,
    body: bytes,
    extension: bytes | None,
    content_ids: tuple[bytes, bytes] = (b"", b""),
) -> Message:
    """Return the message that ``fields`` describe.

    ``content_ids`` are the Content-Ids of the body and of the extension, in lower case; ``b""``
    stands for a part without one. Raises :class:`RemoteProtocolError` if a field is missing or has
    an invalid value.
    """
    destination = parse_destination(_value(fields, "path/to"))
    action = fields.get("path/action")
    if action is None:
        raise RemoteProtocolError("<action> is missing", section=section_of("path"))
    identifier = _value(fields, "path/id")
    response_queue = None
    if "path/rev" in fields:
        # Windows takes <via/> for an absent <rev> and refuses <via></via> (appendix A <9>). In XML
        # the two are the same.
        response_queue = parse_response_queue(_value(fields, "path/rev/via"))
    expires_at = parse_date(_value(fields, "properties/expiresAt"))
    values: dict[str, object] = {}
    if "properties/sentAt" in fields:
        values["sent_at"] = parse_date(_value(fields, "properties/sentAt"))
    if "services" in fields:
        _read_services(fields, values)
    has_msmq = "Msmq" in fields
    if "stream" in fields:
        if not has_msmq:
            raise RemoteProtocolError("a stream message needs <Msmq>", section="[MC-MQSRM] 2.2.5.3")
        values["stream"] = _stream(fields)
    values["receipt"] = _receipt(fields)
    # Without <Msmq>, <id> MUST be ignored (2.2.4.3).
    lineage, uniquifier = NULL_GUID, 1
    if has_msmq:
        uniquifier, _ = parse_message_id(identifier)
        lineage = _read_msmq(fields, values)
    if "Signature" in fields:
        values["signature"] = "unverified"
        _check_references(fields["Signature"], content_ids)
    return Message(
        destination=destination,
        action=action,
        lineage=lineage,
        uniquifier=uniquifier,
        has_msmq=has_msmq,
        expires_at=expires_at,
        response_queue=response_queue,
        body=body,
        extension=extension,
        soap_body=fields.get("Body"),
        # The parser of each value has checked its type.
        **values,  # type: ignore[arg-type]
    )


def _value(fields: Fields, field: str) -> str:
    text = fields.get(field)
    if text is None:
        raise RemoteProtocolError(
            f"<{field.rpartition('/')[2]}> is missing", section=section_of(field)
        )
    return text.strip(XML_SPACE)


def _url(fields: Fields, field: str) -> str:
    """Return a URL to which a receipt is to be sent.

    The codec does not decide whether this URL may be called. Raises :class:`RemoteProtocolError` if
    the URL is missing or empty.
    """
    url = _value(fields, field)
    if not url:
        raise RemoteProtocolError(
            f"<{field.rpartition('/')[2]}> is empty", section=section_of(field)
        )
    return url


def _position(fields: Fields, field: str, minimum: int) -> int:
    text = fields.get(field)
    if text is None:
        raise RemoteProtocolError(
            f"<{field.rpartition('/')[2]}> is missing", section=section_of(field)
        )
    name = field.rpartition("/")[2]
    return sequence_number(
        text, name, minimum=minimum, maximum=SEQUENCE_NUMBER_MAX, section=section_of(field)
    )


def _read_services(fields: Fields, values: dict[str, object]) -> None:
    """Read ``<services>`` into ``values`` ([MC-MQSRM] 2.2.5.2).

    Raises :class:`RemoteProtocolError` if a receipt is requested without an address.
    """
    values["durable"] = "services/durable" in fields
    if "services/deliveryReceiptRequest" in fields:
        values["delivery_receipt_to"] = _url(fields, "services/deliveryReceiptRequest/sendTo")
    if "services/commitmentReceiptRequest" in fields:
        values["commitment_receipt_to"] = _url(fields, "services/commitmentReceiptRequest/sendTo")
        values["commitment_positive"] = "services/commitmentReceiptRequest/positiveOnly" in fields
        values["commitment_negative"] = "services/commitmentReceiptRequest/negativeOnly" in fields


def _stream(fields: Fields) -> StreamPosition:
    """Return the stream position in ``<Stream>`` ([MC-MQSRM] 2.2.5.3).

    The specification says that ``<durable/>`` MUST be present too. This is not checked, because the
    example in 4.4 has no ``<durable/>``. Raises :class:`RemoteProtocolError` if a child is missing
    or has an invalid value.
    """
    stream_id = parse_stream_id(_value(fields, "stream/streamId"))
    current = _position(fields, "stream/current", 1)
    # 3.1.1.2 prints "<previous> - 1", which would define the absent element by itself.
    previous = current - 1
    if "stream/previous" in fields:
        previous = _position(fields, "stream/previous", 0)
    if "stream/start" not in fields:
        return StreamPosition(stream_id, current, previous)
    return StreamPosition(stream_id, current, previous, True, _send_receipts_to(fields))


def _send_receipts_to(fields: Fields) -> str:
    """Return ``<sendReceiptsTo>`` ([MC-MQSRM] 2.2.5.3.4), also in the form that 4.4 prints.

    The specification has lost a question mark there and gained bold type:
    ``http://machine1/MSMQ/private$/receipts<b>SenderStream=XRntV</b>``. The receipts of that
    example are sent to ``http://machine1/MSMQ/private$/receipts?SenderStream=XRntV``. Raises
    :class:`RemoteProtocolError` if the URL is missing or empty, or for any other text in bold type.
    """
    url = _url(fields, SEND_RECEIPTS_TO)
    if BOLD not in fields:
        return url
    query = fields[BOLD].strip(XML_SPACE)
    if "?" in url or not query.startswith("SenderStream="):
        raise RemoteProtocolError(
            "<sendReceiptsTo> holds a text and no elements", section=section_of("stream")
        )
    return f"{url}?{query}"


def _receipt(fields: Fields) -> Receipt | None:
    """Return the receipt that the envelope carries, or ``None`` if it carries none.

    See [MC-MQSRM] 2.2.5.4 to 2.2.5.6, and 3.1.5.1.5 for the allowed combinations. Raises
    :class:`RemoteProtocolError` for any other combination, and for a missing or invalid value.
    """
    has_commitment, has_stream = "commitmentReceipt" in fields, "streamReceipt" in fields
    if "deliveryReceipt" in fields:
        if has_commitment or has_stream:
            raise RemoteProtocolError(
                "no message type has a delivery receipt and another one",
                section="[MC-MQSRM] 3.1.5.1.5",
            )
        uniquifier, lineage = parse_message_id(
            _value(fields, "deliveryReceipt/id"), section="[MC-MQSRM] 2.2.5.4"
        )
        return Receipt(
            "delivery",
            lineage,
            uniquifier,
            parse_date(_value(fields, "deliveryReceipt/receivedAt")),
        )
    receipt = None
    if has_commitment:
        uniquifier, lineage = parse_message_id(
            _value(fields, "commitmentReceipt/id"), section="[MC-MQSRM] 2.2.5.5"
        )
        decision = _DECISIONS.get(_value(fields, "commitmentReceipt/decision"))
        if decision is None:
            raise RemoteProtocolError(
                "<decision> is neither positive nor negative", section="[MC-MQSRM] 2.2.5.5"
            )
        decided_at = parse_date(_value(fields, "commitmentReceipt/decidedAt"))
        receipt = Receipt("commitment", lineage, uniquifier, decided_at, decision)
    if has_stream:
        stream_id = parse_stream_id(_value(fields, "streamReceipt/streamId"))
        last_ordinal = _position(fields, "streamReceipt/lastOrdinal", 0)
        if receipt is None:
            return Receipt("stream", stream_id=stream_id, last_ordinal=last_ordinal)
        return receipt._replace(kind="final_stream", stream_id=stream_id, last_ordinal=last_ordinal)
    return receipt


def _number(fields: Fields, field: str, maximum: int) -> int:
    return unsigned_long(
        _value(fields, field), field.rpartition("/")[2], maximum=maximum, section="[MC-MQSRM] 2.2.6"
    )


def _read_msmq(fields: Fields, values: dict[str, object]) -> str:
    """Read ``<Msmq>`` into ``values`` and return the SourceQmGuid ([MC-MQSRM] 2.2.6).

    Windows uses the SourceQmGuid and not the GUID in ``<id>`` (appendix A <7>). Raises
    :class:`RemoteProtocolError` for a missing or invalid value.
    """
    values["message_class"] = _number(fields, "Msmq/Class", CLASS_MAX)
    values["priority"] = _number(fields, "Msmq/Priority", PRIORITY_MAX)
    values["body_type"] = unsigned_long(_value(fields, "Msmq/BodyType"), "BodyType")
    values["time_to_reach_queue"] = parse_date(_value(fields, "Msmq/TTrq"))
    source_qm = values["source_qm"] = parse_guid(_value(fields, "Msmq/SourceQmGuid"))
    values["journal"] = "Msmq/Journal" in fields
    values["dead_letter"] = "Msmq/DeadLetter" in fields
    values["trace"] = "Msmq/Trace" in fields
    if "Msmq/Correlation" in fields:
        values["correlation"] = parse_correlation(_value(fields, "Msmq/Correlation"))
    if "Msmq/App" in fields:
        values["app_specific"] = unsigned_long(_value(fields, "Msmq/App"), "App")
    if "Msmq/HashAlgorithm" in fields:
        values["hash_algorithm"] = unsigned_long(
            _value(fields, "Msmq/HashAlgorithm"), "HashAlgorithm"
        )
    if "Msmq/ConnectorType" in fields:
        values["connector_type"] = parse_guid(_value(fields, "Msmq/ConnectorType"))
    if "Msmq/Eod" in fields:
        values["first_in_transaction"] = "Msmq/Eod/First" in fields
        values["last_in_transaction"] = "Msmq/Eod/Last" in fields
        if "Msmq/Eod/ConnectorId" in fields:
            values["connector_qm"] = parse_guid(_value(fields, "Msmq/Eod/ConnectorId"))
    # 2.2.6.12 requires both children of <Provider>. 3.1.7.2.4 omits a type of 0 and an absent name,
    # so each child is optional here.
    if "Msmq/Provider/Type" in fields:
        values["provider_type"] = unsigned_long(_value(fields, "Msmq/Provider/Type"), "Type")
    if "Msmq/Provider/Name" in fields:
        values["provider_name"] = _value(fields, "Msmq/Provider/Name")
    if "Msmq/DestinationMqf" in fields:
        values["destination_list"] = _names(_value(fields, "Msmq/DestinationMqf"))
    if "Msmq/AdminMqf" in fields:
        values["admin_list"] = _names(_value(fields, "Msmq/AdminMqf"))
    if "Msmq/ResponseMqf" in fields:
        values["response_list"] = _names(_value(fields, "Msmq/ResponseMqf"))
    return source_qm


def _names(text: str) -> tuple[str, ...]:
    """Return the queue names in a text that separates them by white space.

    The names are kept unchanged, whatever their scheme, and are never opened. Raises
    :class:`LimitExceededError` for more than ``NAMES_MAX`` names.
    """
    names = tuple(_SPACES.split(text)) if text else ()
    if len(names) > NAMES_MAX:
        raise LimitExceededError("NAMES_MAX", NAMES_MAX, len(names), section="[MC-MQSRM] 2.2.6.14")
    return names


def _check_references(uris: str, content_ids: tuple[bytes, bytes]) -> None:
    """Check that a signature's reference to a part of this message names that part.

    ``uris`` has one URI on each line; a part without a Content-Id (``b""``) is not checked.
    Everything else about a signature is checked once, by :mod:`srmp_spark.srmp.signing.signature`,
    when the message is accepted. A message that was accepted once therefore stays readable. Raises
    :class:`RemoteProtocolError` if a reference names another Content-Id than its part.
    """
    for uri in uris.split("\n"):
        match = _CONTENT_ID.fullmatch(uri)
        if match is None:
            continue
        named = match[1].lower().encode()
        content_id = content_ids[0 if named.startswith(b"body@") else 1]
        if content_id and content_id != named:
            raise RemoteProtocolError(
                "the signature names another Content-Id than its part",
                section="[MC-MQSRM] 2.2.7.1.2",
            )
