"""Reads any well-formed envelope into fields: which element has which text.

See [MC-MQSRM] 2.2.2 to 2.2.7. Theory of operation. :func:`read_fields` walks the tree along
``STRUCTURE``, which holds the whole syntax of SRMP as one table. The function returns a flat map
from path to text, ``{"path/to": "http://…", "services/durable": "", …}``. This module checks the
places of elements and not their values:

- An element counts only in its place and its namespace. An element that has a local name of SRMP in
  another namespace is refused, because its writer means the element of SRMP and names the wrong
  namespace. An element that occurs twice is refused too: neither the first nor the last one wins.
- An unknown element is ignored, unless it is a header entry with ``se:mustUnderstand="1"``.
- A flag is true if it is present, whatever its spacing or content (``<Journal >``, 3.1.7.2.4).
- An element with a text contains no elements, except for one misprint of the specification.

:mod:`envelope_values` interprets the texts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias
from xml.etree.ElementTree import Element

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.codec import namespaces as ns
from srmp_spark.srmp.codec.envelope_values import BOLD, SEND_RECEIPTS_TO, Fields, section_of
from srmp_spark.srmp.codec.values import XML_SPACE
from srmp_spark.srmp.codec.xml_tree import check_depth, inner_xml_of_body, parse_tree

TEXT = "text"
FLAG = "flag"
OPAQUE = "opaque"
Node: TypeAlias = "str | Mapping[str, Node]"

STRUCTURE: Mapping[str, tuple[str, Node]] = {
    "path": (ns.ROUTING, {"action": TEXT, "to": TEXT, "id": TEXT, "rev": {"via": TEXT}}),
    "properties": (ns.SRMP, {"expiresAt": TEXT, "sentAt": TEXT}),
    "services": (
        ns.SRMP,
        {
            "durable": FLAG,
            "deliveryReceiptRequest": {"sendTo": TEXT},
            "commitmentReceiptRequest": {
                "sendTo": TEXT,
                "positiveOnly": FLAG,
                "negativeOnly": FLAG,
            },
        },
    ),
    "stream": (
        ns.SRMP,
        {"streamId": TEXT, "current": TEXT, "previous": TEXT, "start": {"sendReceiptsTo": TEXT}},
    ),
    "deliveryReceipt": (ns.SRMP, {"receivedAt": TEXT, "id": TEXT}),
    "commitmentReceipt": (ns.SRMP, {"decidedAt": TEXT, "decision": TEXT, "id": TEXT}),
    "streamReceipt": (ns.SRMP, {"streamId": TEXT, "lastOrdinal": TEXT}),
    "Msmq": (
        ns.MSMQ,
        {
            "Class": TEXT,
            "Priority": TEXT,
            "Journal": FLAG,
            "DeadLetter": FLAG,
            "Correlation": TEXT,
            "Trace": FLAG,
            "ConnectorType": TEXT,
            "App": TEXT,
            "BodyType": TEXT,
            "HashAlgorithm": TEXT,
            "Eod": {"First": FLAG, "Last": FLAG, "ConnectorId": TEXT},
            "Provider": {"Type": TEXT, "Name": TEXT},
            "SourceQmGuid": TEXT,
            "DestinationMqf": TEXT,
            "AdminMqf": TEXT,
            "ResponseMqf": TEXT,
            "TTrq": TEXT,
        },
    ),
    "Signature": (ns.SIGNATURE, OPAQUE),
}
"""The header entries with their namespaces and their children ([MC-MQSRM] 2.2.4 to 2.2.7)."""

SPELLINGS = {"stream": "Stream", "DeadLetter": "Deadletter"}
"""Second spellings of names.

The specification's text has ``<stream>``, all its examples have ``<Stream>``, and 3.1.7.3.3 has
``<Deadletter/>``.
"""


class _Known(NamedTuple):
    field: str
    kind: str | _Vocabulary
    """TEXT, FLAG, OPAQUE, or the vocabulary of the children."""


class _Vocabulary(NamedTuple):
    tags: dict[str, _Known]
    stolen: frozenset[str]
    """Local names that are refused in any other namespace than that of SRMP."""
    depth: int
    """Depth of these elements in the tree; the root has depth 1."""


def _compile(namespace: str, children: Mapping[str, Node], parent: str, depth: int) -> _Vocabulary:
    tags: dict[str, _Known] = {}
    for name, node in children.items():
        field = f"{parent}{name}"
        known = _Known(
            field,
            node if isinstance(node, str) else _compile(namespace, node, f"{field}/", depth + 1),
        )
        tags[ns.qualified(namespace, name)] = known
        if name in SPELLINGS:
            tags[ns.qualified(namespace, SPELLINGS[name])] = known
    return _Vocabulary(tags, frozenset(tag.rpartition("}")[2] for tag in tags), depth)


def _compile_header() -> _Vocabulary:
    entries = [
        _compile(namespace, {name: node}, "", 3) for name, (namespace, node) in STRUCTURE.items()
    ]
    tags = {tag: known for entry in entries for tag, known in entry.tags.items()}
    stolen = frozenset().union(*(entry.stolen for entry in entries))
    # A Signature in another namespace is not refused, because it may belong to WS-Security.
    return _Vocabulary(tags, stolen - {"Signature"}, 3)


_HEADER = _compile_header()
_ENVELOPE_TAG = ns.qualified(ns.SOAP, "Envelope")
_HEADER_TAG = ns.qualified(ns.SOAP, "Header")
_BODY_TAG = ns.qualified(ns.SOAP, "Body")
_SOAP_PREFIX = ns.qualified(ns.SOAP, "")
_REFERENCE_PATH = (
    f"{ns.qualified(ns.SIGNATURE, 'SignedInfo')}/{ns.qualified(ns.SIGNATURE, 'Reference')}"
)


def read_fields(envelope: bytes) -> Fields:
    """Return the fields of ``envelope``: the path of each known element and its text.

    The text is ``""`` for flags and for elements that contain other elements. ``"Signature"`` holds
    the URIs of the signature's references, one on each line. ``"Body"`` is present if ``<se:Body>``
    is not empty. Raises :class:`RemoteProtocolError` if the envelope breaks a rule of the module.
    """
    root = parse_tree(envelope)
    header, soap_body = _soap(root)
    fields: Fields = {}
    _collect(header, _HEADER, fields)
    if len(soap_body) or (soap_body.text or "").strip(XML_SPACE):
        # The Body "MUST be empty and MUST be ignored" (2.2.2). MSMQ's own API lets applications put
        # XML there, so its content is returned.
        check_depth(soap_body, 2)
        fields["Body"] = inner_xml_of_body(envelope)
    return fields


def _soap(root: Element) -> tuple[Element, Element]:
    """Return Header and Body ([MC-MQSRM] 2.2.2).

    Raises :class:`RemoteProtocolError` if the envelope is no SOAP 1.1 envelope.
    """
    if root.tag != _ENVELOPE_TAG:
        raise RemoteProtocolError(
            "the envelope is not a SOAP 1.1 Envelope", section="[MC-MQSRM] 2.2.2"
        )
    children = list(root)
    if len(children) < 2 or children[0].tag != _HEADER_TAG or children[1].tag != _BODY_TAG:
        raise RemoteProtocolError(
            "an Envelope holds a Header and, directly after it, a Body", section="[MC-MQSRM] 2.2.2"
        )
    # Further elements may follow in a namespace of their own (SOAP 1.1 section 4).
    for child in children[2:]:
        if child.tag.startswith(_SOAP_PREFIX) or not child.tag.startswith("{"):
            raise RemoteProtocolError(
                "an element of SOAP after the Body", section="SOAP 1.1 section 4"
            )
        check_depth(child, 2)
    return children[0], children[1]


def _collect(parent: Element, vocabulary: _Vocabulary, fields: Fields) -> None:
    """Put the known elements below ``parent`` into ``fields``.

    Raises :class:`RemoteProtocolError` if an element breaks a rule of the module.
    """
    tags, _, depth = vocabulary
    for child in parent:
        known = tags.get(child.tag)
        if known is None:
            _pass_over(child, vocabulary)
            continue
        field, kind = known
        if field in fields:
            raise RemoteProtocolError(
                f"<{field.rpartition('/')[2]}> stands there twice", section=section_of(field)
            )
        if kind is TEXT:
            fields[field] = _text(child, field, fields) if len(child) else child.text or ""
        elif isinstance(kind, _Vocabulary):
            fields[field] = ""
            _collect(child, kind, fields)
        elif kind is FLAG:
            fields[field] = ""
            check_depth(child, depth)
        else:
            check_depth(child, depth)
            fields[field] = "\n".join(
                reference.get("URI") or "" for reference in child.findall(_REFERENCE_PATH)
            )


def _pass_over(child: Element, vocabulary: _Vocabulary) -> None:
    """Ignore an unknown element if this is allowed, or raise :class:`RemoteProtocolError`."""
    shown = ascii(child.tag)[1:-1][:100]
    if child.tag.rpartition("}")[2] in vocabulary.stolen:
        raise RemoteProtocolError(f"<{shown}> in a wrong namespace", section="[MC-MQSRM] 2.2.3")
    if vocabulary is _HEADER and child.get(ns.MUST_UNDERSTAND) == "1":
        raise RemoteProtocolError(
            f"a header entry that must be understood is not: {shown}", section="SOAP 1.1 4.2.3"
        )
    check_depth(child, vocabulary.depth)


def _text(element: Element, field: str, fields: Fields) -> str:
    """Return the text of an element that contains elements, if it is a known misprint.

    The misprint is in [MC-MQSRM] 4.4, where ``<sendReceiptsTo>`` has bold type in its text,
    ``…/receipts<b>SenderStream=XRntV</b>``; :mod:`envelope_values` interprets it. Raises
    :class:`RemoteProtocolError` for any other element.
    """
    if field == SEND_RECEIPTS_TO and len(element) == 1:
        bold = element[0]
        if (
            bold.tag.rpartition("}")[2] == "b"
            and not len(bold)
            and not (bold.tail or "").strip(XML_SPACE)
        ):
            fields[BOLD] = bold.text or ""
            return element.text or ""
    raise RemoteProtocolError(
        f"<{field.rpartition('/')[2]}> holds a text and no elements", section=section_of(field)
    )
