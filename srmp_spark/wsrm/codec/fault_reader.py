"""Read faults of SOAP 1.1 and 1.2 into one form.

SOAP 1.1 has no subcodes. In that version, the subcode is in a header ``SequenceFault``.
"""

from __future__ import annotations

import re

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.wsrm.codec import values
from srmp_spark.wsrm.codec.elements import Blame, SoapFault
from srmp_spark.wsrm.codec.namespaces import RM_OF, SoapVersion, qualified, split
from srmp_spark.wsrm.codec.xml_tree import XML_SPACE, XmlElement
from srmp_spark.wsrm.limits import IDENTIFIER_MAX

_BLAME = {
    "Sender": Blame.SENDER,
    "Client": Blame.SENDER,
    "Receiver": Blame.RECEIVER,
    "Server": Blame.RECEIVER,
    "MustUnderstand": Blame.MUST_UNDERSTAND,
    "VersionMismatch": Blame.VERSION_MISMATCH,
}
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.\-]*")
"""Matches names of faults that are repeated in logs.

A name with other characters is none of the known faults, and is dropped.
"""
SECTION = "WS-ReliableMessaging 4"


def read_sequence_fault(element: XmlElement) -> SoapFault:
    """Return the fault that the header ``SequenceFault`` holds.

    The header has a FaultCode, and in its Detail (or next to it) the Identifier of the sequence.
    Raises :class:`RemoteProtocolError` if FaultCode is missing, or if an identifier or number is
    invalid.
    """
    namespace = split(element.tag)[0]
    code = _child(element, qualified(namespace, "FaultCode"))
    if code is None:
        raise RemoteProtocolError("<FaultCode> is missing in <SequenceFault>", section=SECTION)
    return SoapFault(
        Blame.OTHER, _qname(code), identifier=_identifier(element), max_number=_max_number(element)
    )


def read_fault(element: XmlElement, soap: SoapVersion, header: SoapFault | None) -> SoapFault:
    """Read the fault in the element ``s:Fault``, and return it.

    ``header`` is the fault of the header ``SequenceFault``, or ``None``. The header takes
    precedence, because it is more exact than the code of SOAP 1.1. Raises
    :class:`RemoteProtocolError` if an identifier or number in the fault is invalid.
    """
    if soap is SoapVersion.V1_1:
        code, subcode = _qname(_child(element, "faultcode")), ""
        reason, detail = _child(element, "faultstring"), _child(element, "detail")
    else:
        outer = _child(element, qualified(soap.value, "Code"))
        code = "" if outer is None else _qname(_child(outer, qualified(soap.value, "Value")))
        inner = None if outer is None else _child(outer, qualified(soap.value, "Subcode"))
        subcode = "" if inner is None else _qname(_child(inner, qualified(soap.value, "Value")))
        texts = _child(element, qualified(soap.value, "Reason"))
        reason = None if texts is None else _child(texts, qualified(soap.value, "Text"))
        detail = _child(element, qualified(soap.value, "Detail"))
    namespace, name = split(code)
    blame = _BLAME.get(name, Blame.OTHER) if namespace == soap.value else Blame.OTHER
    if blame is Blame.OTHER and not subcode:
        # In SOAP 1.1, CreateSequenceRefused is the faultcode itself.
        subcode = code
    identifier = "" if detail is None else _identifier(detail)
    max_number = None if detail is None else _max_number(detail)
    if header is not None:
        subcode, identifier = header.subcode, header.identifier or identifier
        max_number = max_number if header.max_number is None else header.max_number
    text = (
        ""
        if reason is None
        else "".join(c if c.isprintable() else " " for c in reason.text)[:IDENTIFIER_MAX]
    )
    return SoapFault(blame, subcode, text, identifier, max_number)


def _child(element: XmlElement, tag: str) -> XmlElement | None:
    return next((child for child in element if child.tag == tag), None)


def _qname(element: XmlElement | None) -> str:
    """Return the QName in the element's text, in Clark's notation, or ``""`` if there is none."""
    if element is None:
        return ""
    prefix, colon, name = element.text.strip(XML_SPACE).rpartition(":")
    if not _NAME.fullmatch(name) or len(name) > IDENTIFIER_MAX:
        return ""
    namespace = element.scope.find(prefix if colon else "")
    return qualified(namespace, name) if namespace else "" if colon else name


def _identifier(element: XmlElement) -> str:
    for child in _below(element):
        namespace, name = split(child.tag)
        if namespace in RM_OF and name == "Identifier":
            return values.uri(child.text, "Identifier", SECTION)
    return ""


def _max_number(element: XmlElement) -> int | None:
    for child in _below(element):
        namespace, name = split(child.tag)
        if namespace in RM_OF and name == "MaxMessageNumber":
            return values.number(child.text, name, SECTION)
    return None


def _below(element: XmlElement) -> list[XmlElement]:
    """Return the children of ``element``, each followed by its own children, as a list.

    The Identifier is a child of Detail, or of the SequenceAcknowledgement that Detail repeats.
    """
    return [each for child in element for each in (child, *child)]
