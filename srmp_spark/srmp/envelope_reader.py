"""Any well-formed envelope into a :class:`Message` ([MC-MQSRM] 2.2, 3.1.5.1.1).

Theory of operation. Three steps, and the first two know nothing of SRMP:

1. The bytes are checked for what XML allows and SOAP forbids: a document type, a processing instruction, another encoding
   (SOAP 1.1 section 3). No entity is ever declared, so none is ever expanded or fetched.
2. A tree is built by lxml (:mod:`xml_tree`), which stops at 256 levels; the structural limits are checked on the tree.
3. The tree is read by the tables below. An element counts only in its place and its namespace; a known element that comes
   twice, or comes in another namespace, is refused and never "first wins" or "last wins"; an unknown one is ignored, unless
   it is a header entry marked ``se:mustUnderstand="1"``.

White space around a value is insignificant, except in ``action``, which is text, and in positions of a stream.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.message import Message, Receipt, StreamPosition
from srmp_spark.names import NULL_GUID, parse_guid
from srmp_spark.srmp import namespaces as ns
from srmp_spark.srmp.limits import CLASS_MAX, NAMES_MAX, PRIORITY_MAX, SEQUENCE_NUMBER_MAX
from srmp_spark.srmp.values import (
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
from srmp_spark.srmp.xml_tree import Element, Tree, parse_tree


class _Vocabulary(NamedTuple):
    """The children that an element may have: qualified tag to name, and where the document says so."""

    known: Mapping[str, str]
    stolen: frozenset[str]
    """Local names that are refused in any other namespace (bad input 8): somebody means ours and writes another."""
    section: str


def _vocabulary(namespace: str, names: str, section: str, **spellings: str) -> _Vocabulary:
    """``spellings``: another way to write a name, where the document and Windows differ."""
    known = {ns.qualified(namespace, name): name for name in names.split()}
    known |= {ns.qualified(namespace, spelling): name for spelling, name in spellings.items()}
    return _Vocabulary(known, frozenset(tag.rpartition("}")[2] for tag in known), f"[MC-MQSRM] {section}")


_SRMP_ENTRIES = _vocabulary(
    ns.SRMP, "properties services stream deliveryReceipt commitmentReceipt streamReceipt", "2.2.5", Stream="stream"
)
_HEADER = _Vocabulary(
    {
        ns.qualified(ns.ROUTING, "path"): "path",
        **_SRMP_ENTRIES.known,
        ns.qualified(ns.MSMQ, "Msmq"): "Msmq",
        ns.qualified(ns.SIGNATURE, "Signature"): "Signature",
    },
    _SRMP_ENTRIES.stolen | {"path", "Msmq"},  # a Signature of another kind is WS-Security's own affair
    "[MC-MQSRM] 2.2.5",
)
_PATH = _vocabulary(ns.ROUTING, "action to id rev", "2.2.4")
_REV = _vocabulary(ns.ROUTING, "via", "2.2.4.4")
_PROPERTIES = _vocabulary(ns.SRMP, "expiresAt sentAt", "2.2.5.1")
_SERVICES = _vocabulary(ns.SRMP, "durable deliveryReceiptRequest commitmentReceiptRequest", "2.2.5.2")
_DELIVERY_REQUEST = _vocabulary(ns.SRMP, "sendTo", "2.2.5.2.2")
_COMMITMENT_REQUEST = _vocabulary(ns.SRMP, "sendTo positiveOnly negativeOnly", "2.2.5.2.3")
_STREAM = _vocabulary(ns.SRMP, "streamId current previous start", "2.2.5.3")
_START = _vocabulary(ns.SRMP, "sendReceiptsTo", "2.2.5.3.4")
_DELIVERY_RECEIPT = _vocabulary(ns.SRMP, "receivedAt id", "2.2.5.4")
_COMMITMENT_RECEIPT = _vocabulary(ns.SRMP, "decidedAt decision id", "2.2.5.5")
_STREAM_RECEIPT = _vocabulary(ns.SRMP, "streamId lastOrdinal", "2.2.5.6")
_MSMQ = _vocabulary(
    ns.MSMQ,
    "Class Priority Journal DeadLetter Correlation Trace ConnectorType App BodyType HashAlgorithm Eod Provider SourceQmGuid "
    "DestinationMqf AdminMqf ResponseMqf TTrq",
    "2.2.6",
    Deadletter="DeadLetter",  # 3.1.7.2.5 and 3.1.7.3.3 write it so
)
_EOD = _vocabulary(ns.MSMQ, "First Last ConnectorId", "2.2.6.11")
_PROVIDER = _vocabulary(ns.MSMQ, "Type Name", "2.2.6.12")

_DECISIONS: Mapping[str, Literal["positive", "negative"]] = {"positive": "positive", "negative": "negative"}
_ENVELOPE_TAG = ns.qualified(ns.SOAP, "Envelope")
_HEADER_TAG = ns.qualified(ns.SOAP, "Header")
_BODY_TAG = ns.qualified(ns.SOAP, "Body")

_SPACES = re.compile(f"[{XML_SPACE}]+")
_CONTENT_ID = re.compile(r"cid:((?:body|extension)@.+)", re.IGNORECASE | re.DOTALL)


def read_envelope(
    envelope: bytes, body: bytes = b"", extension: bytes | None = None, *, body_id: bytes = b"", extension_id: bytes = b""
) -> Message:
    """The message that ``envelope`` describes, with its attachments.

    ``body_id`` and ``extension_id`` are the parts' Content-Ids; they matter to a signed message alone.

    Raises :class:`RemoteProtocolError` when it is not well-formed, not SRMP, or passes a limit.
    """
    tree = parse_tree(envelope)
    try:
        return _read(tree, body, extension, (body_id, extension_id))
    except RemoteProtocolError:
        tree.strange()
        raise


def _read(tree: Tree, body: bytes, extension: bytes | None, content_ids: tuple[bytes, bytes]) -> Message:
    header, soap_body = _soap(tree)
    entries = _children(tree, header, _HEADER, is_header=True)
    path = _children(tree, _required(entries, "path", _HEADER), _PATH)
    properties = _children(tree, _required(entries, "properties", _HEADER), _PROPERTIES)

    action = _text(_required(path, "action", _PATH))
    if action.isspace():
        tree.strange()
    destination = parse_destination(_value(path, "to", _PATH))
    identifier = _value(path, "id", _PATH)
    response_queue = None
    if "rev" in path:
        via = _value(_children(tree, path["rev"], _REV), "via", _REV)
        # Appendix A <9>: Windows takes <via/> for no rev at all and refuses <via></via>; XML knows no difference.
        response_queue = parse_response_queue(via)
    expires_at = parse_date(_value(properties, "expiresAt", _PROPERTIES))
    sent_at = parse_date(_value(properties, "sentAt", _PROPERTIES)) if "sentAt" in properties else None

    values: dict[str, object] = {}
    if "services" in entries:
        _read_services(tree, entries["services"], values)
    if "stream" in entries:
        values["stream"] = _read_stream(tree, entries["stream"])
        if "Msmq" not in entries:
            raise RemoteProtocolError("a stream message needs <Msmq>", section="[MC-MQSRM] 2.2.5.3")
    values["receipt"] = _read_receipt(tree, entries)
    lineage, uniquifier = NULL_GUID, 1
    if "Msmq" in entries:
        uniquifier, _ = parse_message_id(identifier)
        lineage = _read_msmq(tree, entries["Msmq"], values)
    if "Signature" in entries:
        values["signed"] = True
        _check_references(tree, entries["Signature"], content_ids)
    if soap_body is not None:
        values["soap_body"] = tree.inner_xml_of_body()
    return Message(
        destination=destination,
        action=action,
        lineage=lineage,
        uniquifier=uniquifier,
        has_msmq="Msmq" in entries,
        sent_at=sent_at,
        expires_at=expires_at,
        response_queue=response_queue,
        body=body,
        extension=extension,
        **values,  # type: ignore[arg-type]  # each value has been given its type by its reader below
    )


def _soap(tree: Tree) -> tuple[Element, Element | None]:
    """The header, and the body if there is anything in it (2.2.2: it MUST be empty; [learn] applications put XML there)."""
    section = "[MC-MQSRM] 2.2.2"
    if tree.root.tag != _ENVELOPE_TAG:
        raise RemoteProtocolError("the envelope is not a SOAP 1.1 Envelope", section=section)
    children = list(tree.root)
    if len(children) < 2 or children[0].tag != _HEADER_TAG or children[1].tag != _BODY_TAG:
        raise RemoteProtocolError("an Envelope holds a Header and, directly after it, a Body", section=section)
    for child in children[2:]:  # SOAP 1.1 section 4: further elements may follow, in a namespace of their own
        if str(child.tag).startswith(ns.qualified(ns.SOAP, "")) or not str(child.tag).startswith("{"):
            raise RemoteProtocolError("an element of SOAP after the Body", section=section)
        tree.pass_over(child, depth=2)
    body = children[1]
    if not len(body) and not (body.text or "").strip(XML_SPACE):
        return children[0], None
    tree.pass_over(body, depth=2)
    return children[0], body


def _children(tree: Tree, parent: Element, vocabulary: _Vocabulary, *, is_header: bool = False) -> dict[str, Element]:
    """The known children of ``parent`` by name."""
    known = vocabulary.known
    found: dict[str, Element] = {}
    for child in parent:
        name = known.get(child.tag)
        if name is None:
            if child.tag.rpartition("}")[2] in vocabulary.stolen:
                raise RemoteProtocolError(f"<{ascii(child.tag)[1:-1][:100]}> in a wrong namespace", section=vocabulary.section)
            if is_header and child.get(ns.MUST_UNDERSTAND) == "1":
                raise RemoteProtocolError(
                    f"a header entry that must be understood is not: {ascii(child.tag)[1:-1][:100]}", section="SOAP 1.1 4.2.3"
                )
            tree.pass_over(child, depth=3)
        elif name in found:
            raise RemoteProtocolError(f"<{name}> stands there twice", section=vocabulary.section)
        else:
            found[name] = child
    if not found:
        tree.strange()
    return found


def _required(found: Mapping[str, Element], name: str, vocabulary: _Vocabulary) -> Element:
    element = found.get(name)
    if element is None:
        raise RemoteProtocolError(f"<{name}> is missing", section=vocabulary.section)
    return element


def _text(element: Element) -> str:
    if len(element):
        raise RemoteProtocolError(f"<{ascii(element.tag)[1:-1][:100]}> holds text and no elements")
    return element.text or ""


def _value(found: Mapping[str, Element], name: str, vocabulary: _Vocabulary) -> str:
    return _text(_required(found, name, vocabulary)).strip(XML_SPACE)


def _present(tree: Tree, found: Mapping[str, Element], name: str) -> bool:
    """A flag is true by being there, whatever its spacing or content (``<Journal >``, 3.1.7.2.4)."""
    element = found.get(name)
    if element is None:
        return False
    if len(element) or element.text:
        tree.pass_over(element, depth=4)
    return True


def _url(found: Mapping[str, Element], name: str, vocabulary: _Vocabulary) -> str:
    url = _value(found, name, vocabulary)
    if not url:
        raise RemoteProtocolError(f"<{name}> is empty", section=vocabulary.section)
    return url


def _read_services(tree: Tree, element: Element, values: dict[str, object]) -> None:
    """``<services>`` ([MC-MQSRM] 2.2.5.2)."""
    services = _children(tree, element, _SERVICES)
    values["durable"] = _present(tree, services, "durable")
    if "deliveryReceiptRequest" in services:
        request = _children(tree, services["deliveryReceiptRequest"], _DELIVERY_REQUEST)
        values["delivery_receipt_to"] = _url(request, "sendTo", _DELIVERY_REQUEST)
    if "commitmentReceiptRequest" in services:
        request = _children(tree, services["commitmentReceiptRequest"], _COMMITMENT_REQUEST)
        values["commitment_receipt_to"] = _url(request, "sendTo", _COMMITMENT_REQUEST)
        values["commitment_positive"] = _present(tree, request, "positiveOnly")
        values["commitment_negative"] = _present(tree, request, "negativeOnly")


def _read_stream(tree: Tree, element: Element) -> StreamPosition:
    """``<Stream>`` ([MC-MQSRM] 2.2.5.3). The text writes ``<stream>``, all examples ``<Stream>``."""
    stream = _children(tree, element, _STREAM)
    stream_id = parse_stream_id(_value(stream, "streamId", _STREAM))
    current = sequence_number(
        _text(_required(stream, "current", _STREAM)),
        "current",
        minimum=1,
        maximum=SEQUENCE_NUMBER_MAX,
        section="[MC-MQSRM] 2.2.5.3.2",
    )
    previous = current - 1  # 3.1.1.2 prints "<previous> - 1", which would define the absent element by itself
    if "previous" in stream:
        previous = sequence_number(
            _text(stream["previous"]), "previous", minimum=0, maximum=SEQUENCE_NUMBER_MAX, section="[MC-MQSRM] 2.2.5.3.3"
        )
    if "start" not in stream:
        return StreamPosition(stream_id, current, previous)
    start = _children(tree, stream["start"], _START)
    return StreamPosition(stream_id, current, previous, start=True, send_receipts_to=_send_receipts_to(start))


def _send_receipts_to(start: Mapping[str, Element]) -> str:
    """``<sendReceiptsTo>``, also as 4.4 prints it.

    The document has lost a question mark there and gained bold type, ``http://machine1/MSMQ/private$/receipts<b>SenderStream=
    XRntV</b>``; the receipts that answer it go to ``http://machine1/MSMQ/private$/receipts?SenderStream=XRntV``.
    """
    element = start.get("sendReceiptsTo")
    if element is not None and len(element) == 1:
        (bold,) = element
        query = _text(bold).strip(XML_SPACE)
        url = (element.text or "").strip(XML_SPACE)
        is_misprint = bold.tag.rpartition("}")[2] == "b" and query.startswith("SenderStream=") and "?" not in url
        if url and is_misprint and not (bold.tail or "").strip(XML_SPACE):
            return f"{url}?{query}"
    return _url(start, "sendReceiptsTo", _START)


def _read_receipt(tree: Tree, entries: Mapping[str, Element]) -> Receipt | None:
    """What kind of receipt, if any ([MC-MQSRM] 2.2.5.4 to 2.2.5.6; combinations: 3.1.5.1.5)."""
    delivery, commitment, stream = (name in entries for name in ("deliveryReceipt", "commitmentReceipt", "streamReceipt"))
    if delivery:
        if commitment or stream:
            raise RemoteProtocolError("no message type has a delivery receipt and another one", section="[MC-MQSRM] 3.1.5.1.5")
        fields = _children(tree, entries["deliveryReceipt"], _DELIVERY_RECEIPT)
        uniquifier, lineage = parse_message_id(_value(fields, "id", _DELIVERY_RECEIPT), section="[MC-MQSRM] 2.2.5.4")
        at = parse_date(_value(fields, "receivedAt", _DELIVERY_RECEIPT))
        return Receipt("delivery", lineage=lineage, uniquifier=uniquifier, at=at)
    receipt: Receipt | None = None
    if commitment:
        fields = _children(tree, entries["commitmentReceipt"], _COMMITMENT_RECEIPT)
        uniquifier, lineage = parse_message_id(_value(fields, "id", _COMMITMENT_RECEIPT), section="[MC-MQSRM] 2.2.5.5")
        at = parse_date(_value(fields, "decidedAt", _COMMITMENT_RECEIPT))
        decision = _DECISIONS.get(_value(fields, "decision", _COMMITMENT_RECEIPT))
        if decision is None:
            raise RemoteProtocolError("<decision> is neither positive nor negative", section="[MC-MQSRM] 2.2.5.5")
        receipt = Receipt("commitment", lineage=lineage, uniquifier=uniquifier, at=at, decision=decision)
    if stream:
        fields = _children(tree, entries["streamReceipt"], _STREAM_RECEIPT)
        stream_id = parse_stream_id(_value(fields, "streamId", _STREAM_RECEIPT))
        last_ordinal = sequence_number(
            _text(_required(fields, "lastOrdinal", _STREAM_RECEIPT)),
            "lastOrdinal",
            minimum=0,
            maximum=SEQUENCE_NUMBER_MAX,
            section="[MC-MQSRM] 2.2.5.6",
        )
        if receipt is None:
            return Receipt("stream", stream_id=stream_id, last_ordinal=last_ordinal)
        return receipt._replace(kind="final_stream", stream_id=stream_id, last_ordinal=last_ordinal)
    return receipt


def _read_msmq(tree: Tree, element: Element, values: dict[str, object]) -> str:
    """``<Msmq>`` ([MC-MQSRM] 2.2.6). Returns the SourceQmGuid, which Windows trusts over the id's GUID (appendix A <7>)."""
    msmq = _children(tree, element, _MSMQ)

    def number(name: str, maximum: int) -> int:
        return unsigned_long(_value(msmq, name, _MSMQ), name, maximum=maximum, section="[MC-MQSRM] 2.2.6")

    values["message_class"] = number("Class", CLASS_MAX)
    values["priority"] = number("Priority", PRIORITY_MAX)
    values["body_type"] = unsigned_long(_value(msmq, "BodyType", _MSMQ), "BodyType")
    values["time_to_reach_queue"] = parse_date(_value(msmq, "TTrq", _MSMQ))
    source_qm = values["source_qm"] = parse_guid(_value(msmq, "SourceQmGuid", _MSMQ))
    values["journal"] = _present(tree, msmq, "Journal")
    values["dead_letter"] = _present(tree, msmq, "DeadLetter")
    values["trace"] = _present(tree, msmq, "Trace")
    if "Correlation" in msmq:
        values["correlation"] = parse_correlation(_value(msmq, "Correlation", _MSMQ))
    if "App" in msmq:
        values["app_specific"] = unsigned_long(_value(msmq, "App", _MSMQ), "App")
    if "HashAlgorithm" in msmq:
        values["hash_algorithm"] = unsigned_long(_value(msmq, "HashAlgorithm", _MSMQ), "HashAlgorithm")
    if "ConnectorType" in msmq:
        values["connector_type"] = parse_guid(_value(msmq, "ConnectorType", _MSMQ))
    if "Eod" in msmq:
        eod = _children(tree, msmq["Eod"], _EOD)
        values["first_in_transaction"] = _present(tree, eod, "First")
        values["last_in_transaction"] = _present(tree, eod, "Last")
        if "ConnectorId" in eod:
            values["connector_qm"] = parse_guid(_value(eod, "ConnectorId", _EOD))
    if "Provider" in msmq:  # 2.2.6.12 requires both children, 3.1.7.2.4 leaves out a type of 0 and an absent name: read both
        provider = _children(tree, msmq["Provider"], _PROVIDER)
        if "Type" in provider:
            values["provider_type"] = unsigned_long(_value(provider, "Type", _PROVIDER), "Type")
        if "Name" in provider:
            values["provider_name"] = _value(provider, "Name", _PROVIDER)
    for name, field in (("DestinationMqf", "destination_list"), ("AdminMqf", "admin_list"), ("ResponseMqf", "response_list")):
        if name in msmq:
            values[field] = _names(_value(msmq, name, _MSMQ))
    return source_qm


def _names(text: str) -> tuple[str, ...]:
    """Queue names separated by white space; kept as they are, of whatever scheme, and never opened (bad input 32)."""
    found = tuple(_SPACES.split(text)) if text else ()
    if len(found) > NAMES_MAX:
        raise LimitExceededError("NAMES_MAX", NAMES_MAX, len(found), section="[MC-MQSRM] 2.2.6.14")
    return found


def _check_references(tree: Tree, signature: Element, content_ids: tuple[bytes, bytes]) -> None:
    """A reference of a signature that means a part of this message must name it (bad input 15).

    Nothing else of the signature is read here: it covers the attachments alone, and not one header.
    """
    tree.pass_over(signature, depth=3)
    for info in signature:
        if info.tag != ns.qualified(ns.SIGNATURE, "SignedInfo"):
            continue
        for reference in info:
            match = _CONTENT_ID.fullmatch(reference.get("URI") or "")
            if reference.tag != ns.qualified(ns.SIGNATURE, "Reference") or match is None:
                continue
            named = match[1].lower().encode()
            content_id = content_ids[0 if named.startswith(b"body@") else 1]
            if content_id and content_id != named:
                raise RemoteProtocolError("the signature names another Content-Id than its part", section="[MC-MQSRM] 2.2.7.1.2")

