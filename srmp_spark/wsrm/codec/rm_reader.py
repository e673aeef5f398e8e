"""Read elements of WS-ReliableMessaging, WS-MakeConnection and WS-Addressing.

The children must be in the order of the schemas. A child with another namespace is an extension. A
protocol element after an extension is refused, as WCF does. So BufferRemaining before the ranges is
an error, and so is a second BufferRemaining. Deviations of peers are accepted if only one meaning
is possible: CXF's ``None`` together with ranges, ``Upper`` before ``Lower``, white space around any
value.
"""

from __future__ import annotations

from collections.abc import Iterable

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.wsrm.codec import values
from srmp_spark.wsrm.codec.elements import (
    ABSENT,
    AckRequested,
    CloseSequence,
    CloseSequenceResponse,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    IncompleteSequenceBehavior,
    MakeConnection,
    Offer,
    Range,
    Sequence,
    SequenceAcknowledgement,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.namespaces import (
    FLOW_CONTROL,
    MAKE_CONNECTION,
    RM_OF,
    AddressingVersion,
    RmVersion,
    qualified,
    split,
)
from srmp_spark.wsrm.codec.xml_tree import XmlElement
from srmp_spark.wsrm.codec.xml_writer import write_element
from srmp_spark.wsrm.limits import NUMBER_MAX, RANGES_MAX, REFERENCE_PARAMETERS_MAX

SECTION = "WS-ReliableMessaging 3"
BUFFER_REMAINING = qualified(FLOW_CONTROL, "BufferRemaining")


class Children:
    """Reads the child elements of one element one after the other, in their order."""

    def __init__(self, element: XmlElement) -> None:
        self.namespace, self.parent = split(element.tag)
        self._left = list(element)
        self._left.reverse()

    def take(self, name: str) -> XmlElement | None:
        """Remove and return the next child if it is named ``name``, else return ``None``.

        The child must be in the namespace of its parent.
        """
        if self._left and self._left[-1].tag == qualified(self.namespace, name):
            return self._left.pop()
        return None

    def need(self, name: str) -> XmlElement:
        """Remove and return the next child, which must be named ``name``.

        Raises :class:`RemoteProtocolError` if it is another element or missing.
        """
        found = self.take(name)
        if found is None:
            raise RemoteProtocolError(
                f"<{name}> is missing in <{self.parent}>, or not in its place", section=SECTION
            )
        return found

    def identifier(self) -> str:
        """Remove the next child, which must be an Identifier, and return its text.

        Raises :class:`RemoteProtocolError` if the Identifier is missing or no URI.
        """
        return values.uri(self.need("Identifier").text, "Identifier", SECTION)

    def number(self, name: str) -> int | None:
        """Remove the next child if it is named ``name``, and return its message number, else None.

        Raises :class:`RemoteProtocolError` if the text is no number from 1 to NUMBER_MAX, both
        included.
        """
        found = self.take(name)
        return None if found is None else values.number(found.text, name, SECTION, minimum=1)

    def expires(self) -> int | None:
        """Remove the next child if it is Expires, and return it in milliseconds, else None.

        0 means that the sequence never expires. Raises :class:`RemoteProtocolError` if the text is
        no duration.
        """
        found = self.take("Expires")
        return None if found is None else values.duration(found.text, SECTION)

    def behavior(self) -> IncompleteSequenceBehavior | None:
        """Remove the next child if it is IncompleteSequenceBehavior, and return it, else None.

        Only 1.1 has this element. Raises :class:`RemoteProtocolError` if the value is unknown.
        """
        found = (
            self.take("IncompleteSequenceBehavior")
            if self.namespace == RmVersion.V1_1.value
            else None
        )
        if found is None:
            return None
        try:
            return IncompleteSequenceBehavior(found.text)
        except ValueError:
            raise RemoteProtocolError(
                "IncompleteSequenceBehavior is NoDiscard, DiscardFollowingFirstGap or "
                "DiscardEntireSequence",
                section="WS-RM 1.1 3.4",
            ) from None

    def extensions(self) -> list[XmlElement]:
        """Return the remaining children, which must all be extensions, as a list.

        An extension is an element of another namespace. Raises :class:`RemoteProtocolError` if one
        of the remaining children is a protocol element.
        """
        for element in self._left:
            if split(element.tag)[0] == self.namespace:
                name = ascii(split(element.tag)[1])[1:-1][:60]
                raise RemoteProtocolError(
                    f"<{name}> has no place there in <{self.parent}>", section=SECTION
                )
        return self._left[::-1]


# --- headers --------------------------------------------------------------------------------------


def read_sequence(element: XmlElement) -> Sequence:
    """Read the header ``wsrm:Sequence`` from its element, and return it.

    Raises :class:`RemoteProtocolError` if it is invalid.
    """
    children = Children(element)
    identifier = children.identifier()
    number = children.number("MessageNumber")
    if number is None:
        raise RemoteProtocolError("<MessageNumber> is missing in <Sequence>", section=SECTION)
    is_last = (
        children.namespace == RmVersion.V1_0.value and children.take("LastMessage") is not None
    )
    children.extensions()
    return Sequence(identifier, number, is_last)


def read_ack_requested(element: XmlElement) -> AckRequested:
    """Read the header ``wsrm:AckRequested`` from its element, and return it.

    Raises :class:`RemoteProtocolError` if it is invalid. MaxMessageNumberUsed of 1.0 (called
    MessageNumber in its text) is ignored, as WCF does.
    """
    children = Children(element)
    identifier = children.identifier()
    if children.namespace == RmVersion.V1_0.value:
        children.take("MaxMessageNumberUsed") or children.take("MessageNumber")
    children.extensions()
    return AckRequested(identifier)


def read_acknowledgement(element: XmlElement) -> SequenceAcknowledgement:
    """Read the header ``wsrm:SequenceAcknowledgement`` ([MS-WSRVCRM] 2.2.1), and return it.

    Raises :class:`RemoteProtocolError` if it is invalid or has more than ``RANGES_MAX`` ranges or
    Nacks.
    """
    children = Children(element)
    identifier = children.identifier()
    ranges: list[Range] = []
    while (found := children.take("AcknowledgementRange")) is not None:
        ranges.append(_range(found))
    is_new = children.namespace == RmVersion.V1_1.value
    is_none = is_new and children.take("None") is not None
    is_final = is_new and children.take("Final") is not None
    nacks: list[int] = []
    while not (ranges or is_none or is_final) and (nack := children.number("Nack")) is not None:
        nacks.append(nack)
    if max(len(ranges), len(nacks)) > RANGES_MAX:
        raise LimitExceededError(
            "RANGES_MAX", RANGES_MAX, max(len(ranges), len(nacks)), section=SECTION
        )
    if not (ranges or nacks or is_none):
        raise RemoteProtocolError(
            "an acknowledgement holds ranges, None, or Nacks", section=SECTION
        )
    buffers = [each for each in children.extensions() if each.tag == BUFFER_REMAINING]
    if len(buffers) > 1:
        raise RemoteProtocolError(
            "BufferRemaining stands there twice", section="[MS-WSRVCRM] 2.2.3"
        )
    remaining = ABSENT
    if buffers:
        if list(buffers[0]):
            raise RemoteProtocolError(
                "BufferRemaining holds a number and no elements", section="[MS-WSRVCRM] 2.2.3"
            )
        remaining = values.buffer_remaining(buffers[0].text)
    return SequenceAcknowledgement(identifier, merged(ranges), tuple(nacks), is_final, remaining)


def _range(element: XmlElement) -> Range:
    """Return the bounds of one AcknowledgementRange, both included.

    Raises :class:`RemoteProtocolError` if they are invalid. The range 0-0 is WCF's form of "none"
    in 1.0 (B1402). 0 is in no other range.
    """
    bounds = []
    for name in ("Lower", "Upper"):
        text = element.attributes.get(name)
        if text is None:
            raise RemoteProtocolError(
                f"{name} is missing in <AcknowledgementRange>", section=SECTION
            )
        bounds.append(values.number(text, name, SECTION, maximum=NUMBER_MAX))
    lower, upper = bounds
    if lower > upper or (lower == 0) != (upper == 0):
        raise RemoteProtocolError(
            f"no range of message numbers: {lower} to {upper}", section=SECTION
        )
    return lower, upper


def merged(ranges: Iterable[Range]) -> tuple[Range, ...]:
    """Return the ranges ascending and disjoint, with overlapping and adjacent ones joined.

    The range 0-0 is removed.
    """
    found: list[Range] = []
    for lower, upper in sorted(ranges):
        if not upper:
            continue
        if found and lower <= found[-1][1] + 1:
            found[-1] = found[-1][0], max(found[-1][1], upper)
        else:
            found.append((lower, upper))
    return tuple(found)


# --- WS-Addressing --------------------------------------------------------------------------------


def read_endpoint(element: XmlElement, addressing: AddressingVersion) -> EndpointReference:
    """Read an endpoint reference: its address, and its reference parameters.

    Raises :class:`RemoteProtocolError` unless there is one valid Address and at most
    ``REFERENCE_PARAMETERS_MAX`` characters of parameters. Raises :class:`LocalProtocolError` if a
    parameter cannot be written again.
    """
    address = ""
    parameters: list[XmlElement] = []
    for child in element:
        namespace, name = split(child.tag)
        if namespace != addressing.value:
            continue
        if name == "Address":
            if address:
                raise RemoteProtocolError("an endpoint has one Address", section="WS-Addressing 2")
            address = values.uri(child.text, "Address", "WS-Addressing 2")
        elif name in ("ReferenceParameters", "ReferenceProperties"):
            parameters += child
    if not address:
        raise RemoteProtocolError("an endpoint without an Address", section="WS-Addressing 2")
    size = 0
    # The size is checked after each parameter, so that too many of them are not all written.
    for each in parameters:
        size += len(write_element(each))
        if size > REFERENCE_PARAMETERS_MAX:
            raise LimitExceededError(
                "REFERENCE_PARAMETERS_MAX",
                REFERENCE_PARAMETERS_MAX,
                size,
                section="WS-Addressing 2",
            )
    return EndpointReference(address, tuple(parameters))


# --- Bodies ---------------------------------------------------------------------------------------


def read_content(element: XmlElement, addressing: AddressingVersion) -> Content:
    """Read the protocol element of the Body, which is not a fault, and return it.

    Raises :class:`RemoteProtocolError` if the element is unknown or invalid, and
    :class:`LocalProtocolError` as :func:`read_endpoint` does.
    """
    namespace, name = split(element.tag)
    if namespace == MAKE_CONNECTION:
        return _make_connection(element)
    is_new = RM_OF.get(namespace) is RmVersion.V1_1
    children = Children(element)
    content: Content
    if name == "CreateSequence":
        acks_to = read_endpoint(children.need("AcksTo"), addressing)
        expires = children.expires()
        offer = children.take("Offer")
        content = CreateSequence(
            acks_to, expires, None if offer is None else _offer(offer, addressing)
        )
    elif name == "CreateSequenceResponse":
        identifier, expires, behavior = (
            children.identifier(),
            children.expires(),
            children.behavior(),
        )
        accept = children.take("Accept")
        taken = (
            None if accept is None else read_endpoint(Children(accept).need("AcksTo"), addressing)
        )
        content = CreateSequenceResponse(identifier, expires, behavior, taken)
    elif name == "TerminateSequence":
        content = TerminateSequence(
            children.identifier(), children.number("LastMsgNumber") if is_new else None
        )
    elif name == "CloseSequence" and is_new:
        content = CloseSequence(children.identifier(), children.number("LastMsgNumber"))
    elif name == "CloseSequenceResponse" and is_new:
        content = CloseSequenceResponse(children.identifier())
    elif name == "TerminateSequenceResponse" and is_new:
        content = TerminateSequenceResponse(children.identifier())
    else:
        raise RemoteProtocolError(
            f"unknown element <{ascii(name)[1:-1][:60]}> in {namespace}", section=SECTION
        )
    children.extensions()
    return content


def _offer(element: XmlElement, addressing: AddressingVersion) -> Offer:
    children = Children(element)
    identifier = children.identifier()
    is_new = children.namespace == RmVersion.V1_1.value
    endpoint = read_endpoint(children.need("Endpoint"), addressing) if is_new else None
    offer = Offer(identifier, endpoint, children.expires(), children.behavior())
    children.extensions()
    return offer


def _make_connection(element: XmlElement) -> MakeConnection:
    """Read the MakeConnection in ``element``, and return it.

    Raises :class:`RemoteProtocolError` if it is invalid. Address is defined by the specification.
    Identifier was in its drafts, and may be in the namespace of WS-RM. Without either, the
    destination answers with MissingSelection.
    """
    address = identifier = None
    for child in element:
        namespace, name = split(child.tag)
        if namespace == MAKE_CONNECTION and name == "Address" and address is None:
            address = values.uri(child.text, "Address", "WS-MakeConnection 3.1")
        elif (
            name == "Identifier"
            and identifier is None
            and (namespace == MAKE_CONNECTION or namespace in RM_OF)
        ):
            identifier = values.uri(child.text, "Identifier", "WS-MakeConnection 3.1")
    if split(element.tag)[1] != "MakeConnection":
        raise RemoteProtocolError(
            "unknown element in WS-MakeConnection, expected <MakeConnection>",
            section="WS-MakeConnection 3.1",
        )
    return MakeConnection(address, identifier)
