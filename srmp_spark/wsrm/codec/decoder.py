"""Decode the bytes of an envelope into a :class:`.elements.SoapMessage`.

Theory of operation. :mod:`.xml_tree` refuses dangerous XML. Then :func:`decode` reads the header
blocks once. A block is used if it is addressed to the ultimate receiver and has a known namespace.
Any other block is ignored. If such a block must be understood, the message is refused
(``MustUnderstand``). A message has one version of WS-Addressing and one of WS-ReliableMessaging. A
mixture is refused, because answers would have to be in both versions. An invalid
SequenceAcknowledgement is ignored and its error is kept in ``refused``. The rest of the message is
used, because the mistake is that of another sequence ([MS-WSRVCRM] 2.2.3).
"""

from __future__ import annotations

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.wsrm.codec import values
from srmp_spark.wsrm.codec.elements import (
    AckRequested,
    Blame,
    Content,
    EndpointReference,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    SoapMessage,
)
from srmp_spark.wsrm.codec.fault_reader import read_fault, read_sequence_fault
from srmp_spark.wsrm.codec.faults import SoapFaultError
from srmp_spark.wsrm.codec.namespaces import (
    ADDRESSING_OF,
    MAKE_CONNECTION,
    RM_OF,
    AddressingVersion,
    RmVersion,
    SoapVersion,
    qualified,
    split,
)
from srmp_spark.wsrm.codec.rm_reader import (
    read_ack_requested,
    read_acknowledgement,
    read_content,
    read_endpoint,
    read_sequence,
)
from srmp_spark.wsrm.codec.xml_tree import Tree, XmlElement, parse_tree
from srmp_spark.wsrm.limits import ACKNOWLEDGEMENTS_MAX

_WANTED = frozenset((*RM_OF, MAKE_CONNECTION, *(version.value for version in SoapVersion)))
_FOR_US = frozenset(
    (
        "",
        "http://schemas.xmlsoap.org/soap/actor/next",
        "http://www.w3.org/2003/05/soap-envelope/role/next",
        "http://www.w3.org/2003/05/soap-envelope/role/ultimateReceiver",
    )
)
_ADDRESSING = frozenset(("Action", "To", "MessageID", "RelatesTo", "ReplyTo", "FaultTo", "From"))
_RELIABLE = frozenset(("Sequence", "AckRequested", "SequenceAcknowledgement", "SequenceFault"))
_MAKE_CONNECTION = frozenset(("MessagePending", "UsesMakeConnection"))


def decode(envelope: bytes, size: int = 0) -> SoapMessage:
    """Decode ``envelope`` and return its SOAP message.

    ``size`` is the number of bytes of the request that held the envelope; 0 means the size of the
    envelope. Raises :class:`SoapFaultError` if the message is refused and a fault can state why.
    Raises :class:`RemoteProtocolError` if the XML is refused (:func:`.xml_tree.parse_tree`), or if
    the version of WS-Addressing cannot be read, so that no fault can be sent.
    """
    tree = parse_tree(envelope, _WANTED)
    blocks = [block for block in tree.headers if _is_for_us(block, tree.soap)]
    addressing = _addressing_of(blocks)
    message_id = next(
        (b.text for b in blocks if b.tag == qualified(addressing.value, "MessageID")), ""
    )
    try:
        return _Reading(tree, blocks, addressing).message(max(size, len(envelope)))
    except SoapFaultError:
        raise
    except RemoteProtocolError as error:
        raise SoapFaultError(
            str(error),
            section=error.section,
            soap=tree.soap,
            addressing=addressing,
            message_id=message_id,
        ) from None


def _is_for_us(block: XmlElement, soap: SoapVersion) -> bool:
    """Return whether the header block is addressed to this receiver.

    See SOAP 1.1 section 4.2.2 and SOAP 1.2 part 1 section 2.2.
    """
    name = "actor" if soap is SoapVersion.V1_1 else "role"
    return block.attributes.get(qualified(soap.value, name), "").strip() in _FOR_US


def _addressing_of(blocks: list[XmlElement]) -> AddressingVersion:
    found = {namespace for block in blocks if (namespace := split(block.tag)[0]) in ADDRESSING_OF}
    if len(found) != 1:
        problem = (
            "mixes two versions of WS-Addressing"
            if found
            else "has no headers of WS-Addressing (2004/08 or 2005/08)"
        )
        raise RemoteProtocolError(
            f"the message {problem}", section="WS-Addressing 1.0 SOAP binding 3"
        )
    return ADDRESSING_OF[found.pop()]


class _Reading:
    """Collects the parts of one message while its header blocks and its Body are read."""

    def __init__(self, tree: Tree, blocks: list[XmlElement], addressing: AddressingVersion) -> None:
        self._tree = tree
        self._blocks = blocks
        self._addressing = addressing
        self._texts: dict[str, str] = {}
        self._endpoints: dict[str, EndpointReference] = {}
        self._sequence: Sequence | None = None
        self._ack_requested: list[AckRequested] = []
        self._acknowledgements: list[SequenceAcknowledgement] = []
        self._refused: list[str] = []
        self._sequence_fault: SoapFault | None = None
        self._pending: bool | None = None
        self._rm: RmVersion | None = None

    def message(self, size: int) -> SoapMessage:
        for block in self._blocks:
            self._block(block)
        tree = self._tree
        content = self._content(tree.protocol)
        if self._rm is RmVersion.V1_1 and self._addressing is AddressingVersion.V2004_08:
            raise RemoteProtocolError(
                "WS-ReliableMessaging 1.1 goes with WS-Addressing 2005/08", section="WS-RM 1.1 3"
            )
        if "Action" not in self._texts:
            raise RemoteProtocolError(
                "wsa:Action is missing", section="WS-Addressing 1.0 SOAP binding 3"
            )
        texts, endpoints = self._texts, self._endpoints
        return SoapMessage(
            soap=tree.soap,
            addressing=self._addressing,
            rm=self._rm,
            action=texts["Action"],
            to=texts.get("To", ""),
            message_id=texts.get("MessageID", ""),
            relates_to=texts.get("RelatesTo", ""),
            reply_to=endpoints.get("ReplyTo"),
            fault_to=endpoints.get("FaultTo"),
            from_=endpoints.get("From"),
            sequence=self._sequence,
            ack_requested=tuple(self._ack_requested),
            acknowledgements=tuple(self._acknowledgements),
            refused=tuple(self._refused),
            message_pending=self._pending,
            content=content,
            body=tree.body if content is None or isinstance(content, SoapFault) else b"",
            size=size,
        )

    # --- header blocks ----------------------------------------------------------------------------

    def _block(self, block: XmlElement) -> None:
        namespace, name = split(block.tag)
        if namespace == self._addressing.value and name in _ADDRESSING:
            self._address(name, block)
        elif namespace in RM_OF and name in _RELIABLE:
            self._of_version(RM_OF[namespace])
            self._reliable(name, block)
        elif namespace == MAKE_CONNECTION and name in _MAKE_CONNECTION:
            if name == "MessagePending":
                self._pending = values.flag(
                    block.attributes.get("pending", "true"), "pending", "WS-MakeConnection 3.3"
                )
        else:
            text = block.attributes.get(qualified(self._tree.soap.value, "mustUnderstand"), "0")
            if values.flag(text, "mustUnderstand", "SOAP 1.2 part 1 section 5.2.3"):
                what = f"a header that must be understood is not supported: {block.tag!a:.120}"
                raise SoapFaultError(
                    what,
                    section="SOAP 1.2 part 1 section 5.2.3",
                    soap=self._tree.soap,
                    addressing=self._addressing,
                    blame=Blame.MUST_UNDERSTAND,
                    message_id=self._texts.get("MessageID", ""),
                )

    def _address(self, name: str, block: XmlElement) -> None:
        section = "WS-Addressing 1.0 SOAP binding 3"
        if name == "RelatesTo" and name in self._texts:
            # Several RelatesTo are allowed. The first is that of a reply.
            return
        if name in self._texts or name in self._endpoints:
            raise RemoteProtocolError(f"wsa:{name} stands there twice", section=section)
        if name in ("ReplyTo", "FaultTo", "From"):
            self._endpoints[name] = read_endpoint(block, self._addressing)
        else:
            self._texts[name] = values.uri(block.text, f"wsa:{name}", section)

    def _of_version(self, rm: RmVersion) -> None:
        if self._rm not in (None, rm):
            raise RemoteProtocolError(
                "the message mixes two versions of WS-ReliableMessaging", section="WS-RM 1.1 3"
            )
        self._rm = rm

    def _reliable(self, name: str, block: XmlElement) -> None:
        section = "WS-ReliableMessaging 3"
        if name == "Sequence":
            if self._sequence is not None:
                raise RemoteProtocolError("a message has one Sequence header", section=section)
            self._sequence = read_sequence(block)
        elif name == "AckRequested":
            self._ack_requested.append(read_ack_requested(block))
        elif name == "SequenceAcknowledgement":
            try:
                self._acknowledgements.append(read_acknowledgement(block))
            except RemoteProtocolError as error:
                self._refused.append(str(error))
        elif self._sequence_fault is None:
            self._sequence_fault = read_sequence_fault(block)
        count = max(len(self._ack_requested), len(self._acknowledgements) + len(self._refused))
        if count > ACKNOWLEDGEMENTS_MAX:
            raise LimitExceededError(
                "ACKNOWLEDGEMENTS_MAX", ACKNOWLEDGEMENTS_MAX, count, section=section
            )

    # --- the Body ---------------------------------------------------------------------------------

    def _content(self, element: XmlElement | None) -> Content | None:
        if element is None:
            return None
        namespace, name = split(element.tag)
        if namespace == self._tree.soap.value:
            return self._fault(element) if name == "Fault" else None
        if namespace in RM_OF:
            self._of_version(RM_OF[namespace])
        elif namespace == MAKE_CONNECTION:
            self._of_version(RmVersion.V1_1)
        else:
            # An element of the other version of SOAP belongs to the application.
            return None
        return read_content(element, self._addressing)

    def _fault(self, element: XmlElement) -> SoapFault:
        fault = read_fault(element, self._tree.soap, self._sequence_fault)
        rm = RM_OF.get(split(fault.subcode)[0])
        if rm is not None:
            self._of_version(rm)
        return fault
