"""Encode a :class:`.elements.SoapMessage` as bytes, in the form in which WCF writes it.

The prefixes are ``s``, ``a``, ``r`` and ``netrm``. All elements are valid by the schemas and in
their order. BufferRemaining is the last child of an acknowledgement ([MS-WSRVCRM] 2.2.1). The
caller supplies all identifiers and addresses.
"""

from __future__ import annotations

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.codec.elements import (
    ABSENT,
    Blame,
    CloseSequence,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    IncompleteSequenceBehavior,
    MakeConnection,
    Offer,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    SoapMessage,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.namespaces import (
    FLOW_CONTROL,
    MAKE_CONNECTION,
    AddressingVersion,
    RmVersion,
    SoapVersion,
    split,
)
from srmp_spark.wsrm.codec.values import format_duration
from srmp_spark.wsrm.codec.xml_tree import escaped
from srmp_spark.wsrm.codec.xml_writer import write_element, write_parameter
from srmp_spark.wsrm.limits import BUFFER_REMAINING_MAX, NUMBER_MAX, RANGES_MAX

_FAULT_NAMES_1_1 = {Blame.SENDER: "Client", Blame.RECEIVER: "Server", Blame.OTHER: "Server"}


def encode(message: SoapMessage) -> bytes:
    """Return the bytes of the envelope of ``message``.

    Raises :class:`LocalProtocolError` if the versions of the message cannot express its content, if
    a number is out of range, or if a reference parameter cannot be written.
    """
    rm = message.rm
    if rm is None and (message.sequence or message.ack_requested or message.acknowledgements):
        raise LocalProtocolError(
            "a message with headers of WS-ReliableMessaging has a version of it"
        )
    if rm is RmVersion.V1_1 and message.addressing is AddressingVersion.V2004_08:
        raise LocalProtocolError("WS-ReliableMessaging 1.1 goes with WS-Addressing 2005/08")
    reliable = f' xmlns:r="{rm.value}"' if rm is not None else ""
    headers = "".join((*_reliable(message), *_addressing(message)))
    body = message.body if message.content is None else _content(message.content, message).encode()
    head = (
        f'<s:Envelope xmlns:s="{message.soap.value}"{reliable} '
        f'xmlns:a="{message.addressing.value}">'
        f"<s:Header>{headers}</s:Header><s:Body>"
    )
    return head.encode() + body + b"</s:Body></s:Envelope>"


def http_fields(message: SoapMessage) -> dict[str, str]:
    """Return the HTTP header fields for ``message``, by name.

    The fields are Content-Type, and SOAPAction in SOAP 1.1. They repeat ``wsa:Action``.
    """
    action = message.action.replace("\\", "\\\\").replace('"', '\\"')
    content_type = f"{message.soap.media_type}; charset=utf-8"
    if message.soap is SoapVersion.V1_1:
        return {"Content-Type": content_type, "SOAPAction": f'"{action}"'}
    return {"Content-Type": f'{content_type}; action="{action}"'}


# --- headers --------------------------------------------------------------------------------------


def _reliable(message: SoapMessage) -> list[str]:
    rm = message.rm
    parts = []
    if rm is not None:
        parts += [acknowledgement(each, rm) for each in message.acknowledgements]
        parts += [
            f"<r:AckRequested>{_identifier(each.identifier)}</r:AckRequested>"
            for each in message.ack_requested
        ]
        if message.sequence is not None:
            parts.append(_sequence(message.sequence, rm))
    content = message.content
    if (
        isinstance(content, SoapFault)
        and message.soap is SoapVersion.V1_1
        and rm is not None
        and split(content.subcode)[0] == rm.value
    ):
        name = split(content.subcode)[1]
        if name != "CreateSequenceRefused":
            detail = (
                f"<r:Detail>{_fault_detail(content, rm)}</r:Detail>"
                if rm is RmVersion.V1_1 and content.identifier
                else ""
            )
            parts.append(
                f"<r:SequenceFault><r:FaultCode>r:{name}</r:FaultCode>{detail}</r:SequenceFault>"
            )
    if message.message_pending is not None:
        pending = "true" if message.message_pending else "false"
        parts.append(f'<mc:MessagePending xmlns:mc="{MAKE_CONNECTION}" pending="{pending}"/>')
    return parts


def _sequence(sequence: Sequence, rm: RmVersion) -> str:
    if not 1 <= sequence.number <= NUMBER_MAX or (sequence.is_last and rm is RmVersion.V1_1):
        raise LocalProtocolError(f"no Sequence header can say {sequence}")
    last = "<r:LastMessage/>" if sequence.is_last else ""
    return (
        f'<r:Sequence s:mustUnderstand="1">{_identifier(sequence.identifier)}'
        f"<r:MessageNumber>{sequence.number}</r:MessageNumber>{last}</r:Sequence>"
    )


def acknowledgement(ack: SequenceAcknowledgement, rm: RmVersion) -> str:
    """Return the XML of the header ``SequenceAcknowledgement`` in the version ``rm``.

    It has no mustUnderstand (WS-I RSP R0540). Raises :class:`LocalProtocolError` if ``ack`` is
    invalid in this version.
    """
    is_new = rm is RmVersion.V1_1
    bounds = [number for each in ack.ranges for number in each]
    if (
        (ack.nacks and (ack.ranges or ack.is_final))
        or (ack.is_final and not is_new)
        or bounds != sorted(bounds)
        or any(not 1 <= number <= NUMBER_MAX for number in (*bounds, *ack.nacks))
        or max(len(ack.ranges), len(ack.nacks)) > RANGES_MAX
        or not (ack.buffer_remaining == ABSENT or 0 <= ack.buffer_remaining <= BUFFER_REMAINING_MAX)
    ):
        raise LocalProtocolError(f"no acknowledgement can say {ack}")
    parts = [
        f'<r:AcknowledgementRange Lower="{lower}" Upper="{upper}"/>' for lower, upper in ack.ranges
    ]
    parts += [f"<r:Nack>{number}</r:Nack>" for number in ack.nacks]
    if not parts:
        parts.append("<r:None/>" if is_new else '<r:AcknowledgementRange Lower="0" Upper="0"/>')
    if ack.is_final:
        parts.append("<r:Final/>")
    if ack.buffer_remaining != ABSENT:
        parts.append(
            f'<netrm:BufferRemaining xmlns:netrm="{FLOW_CONTROL}">{ack.buffer_remaining}</'
            "netrm:BufferRemaining>"
        )
    return (
        f"<r:SequenceAcknowledgement>{_identifier(ack.identifier)}{''.join(parts)}</r:S"
        "equenceAcknowledgement>"
    )


def _identifier(identifier: str) -> str:
    return f"<r:Identifier>{escaped(identifier)}</r:Identifier>"


def _addressing(message: SoapMessage) -> list[str]:
    addressing = message.addressing
    parts = [f'<a:Action s:mustUnderstand="1">{escaped(message.action)}</a:Action>']
    if message.message_id:
        parts.append(f"<a:MessageID>{escaped(message.message_id)}</a:MessageID>")
    if message.relates_to:
        parts.append(f"<a:RelatesTo>{escaped(message.relates_to)}</a:RelatesTo>")
    for name, endpoint in (
        ("From", message.from_),
        ("ReplyTo", message.reply_to),
        ("FaultTo", message.fault_to),
    ):
        if endpoint is not None:
            parts.append(f"<a:{name}>{_endpoint(endpoint)}</a:{name}>")
    if message.to:
        parts.append(f'<a:To s:mustUnderstand="1">{escaped(message.to)}</a:To>')
    parts += [write_parameter(each, addressing) for each in message.parameters]
    return parts


def _endpoint(endpoint: EndpointReference) -> str:
    parameters = "".join(map(write_element, endpoint.reference_parameters))
    held = f"<a:ReferenceParameters>{parameters}</a:ReferenceParameters>" if parameters else ""
    return f"<a:Address>{escaped(endpoint.address)}</a:Address>{held}"


# --- Bodies ---------------------------------------------------------------------------------------


def _content(content: Content, message: SoapMessage) -> str:
    if isinstance(content, SoapFault):
        return (
            _fault_1_1(content, message.rm)
            if message.soap is SoapVersion.V1_1
            else _fault_1_2(content, message.rm)
        )
    if isinstance(content, MakeConnection):
        address = (
            ""
            if content.address is None
            else f"<mc:Address>{escaped(content.address)}</mc:Address>"
        )
        return f'<mc:MakeConnection xmlns:mc="{MAKE_CONNECTION}">{address}</mc:MakeConnection>'
    rm = message.rm
    if rm is None:
        raise LocalProtocolError("a message of WS-ReliableMessaging has a version of it")
    if isinstance(content, CreateSequence):
        offer = "" if content.offer is None else _offer(content.offer, rm)
        return (
            f"<r:CreateSequence><r:AcksTo>{_endpoint(content.acks_to)}</r:AcksTo>"
            f"{_expires(content.expires)}{offer}</r:CreateSequence>"
        )
    if isinstance(content, CreateSequenceResponse):
        accept = (
            ""
            if content.accept is None
            else f"<r:Accept><r:AcksTo>{_endpoint(content.accept)}</r:AcksTo></r:Accept>"
        )
        return (
            f"<r:CreateSequenceResponse>{_identifier(content.identifier)}{_expires(content.expires)}"
            f"{_behavior(content.behavior, rm)}{accept}</r:CreateSequenceResponse>"
        )
    name = type(content).__name__
    if rm is RmVersion.V1_0 and not isinstance(content, TerminateSequence):
        raise LocalProtocolError(f"WS-ReliableMessaging 1.0 has no {name}")
    last = ""
    if isinstance(content, CloseSequence | TerminateSequence) and content.last_number is not None:
        if rm is RmVersion.V1_0:
            raise LocalProtocolError("WS-ReliableMessaging 1.0 has no LastMsgNumber")
        last = f"<r:LastMsgNumber>{content.last_number}</r:LastMsgNumber>"
    return f"<r:{name}>{_identifier(content.identifier)}{last}</r:{name}>"


def _expires(milliseconds: int | None) -> str:
    return "" if milliseconds is None else f"<r:Expires>{format_duration(milliseconds)}</r:Expires>"


def _behavior(behavior: IncompleteSequenceBehavior | None, rm: RmVersion) -> str:
    if behavior is None:
        return ""
    if rm is RmVersion.V1_0:
        raise LocalProtocolError("WS-ReliableMessaging 1.0 has no IncompleteSequenceBehavior")
    return f"<r:IncompleteSequenceBehavior>{behavior.value}</r:IncompleteSequenceBehavior>"


def _offer(offer: Offer, rm: RmVersion) -> str:
    if (offer.endpoint is None) is not (rm is RmVersion.V1_0):
        raise LocalProtocolError("an Offer names its Endpoint in 1.1, and in 1.1 alone")
    endpoint = (
        "" if offer.endpoint is None else f"<r:Endpoint>{_endpoint(offer.endpoint)}</r:Endpoint>"
    )
    return (
        f"<r:Offer>{_identifier(offer.identifier)}{endpoint}{_expires(offer.expires)}"
        f"{_behavior(offer.behavior, rm)}</r:Offer>"
    )


# --- faults ---------------------------------------------------------------------------------------


def _fault_detail(fault: SoapFault, rm: RmVersion | None) -> str:
    """Return the XML of a fault's details: its sequence, and the highest number if known.

    The text is empty if the fault names no sequence.
    """
    if rm is None or not fault.identifier:
        return ""
    highest = (
        ""
        if fault.max_number is None
        else f"<r:MaxMessageNumber>{fault.max_number}</r:MaxMessageNumber>"
    )
    return f"{_identifier(fault.identifier)}{highest}"


def _fault_1_2(fault: SoapFault, rm: RmVersion | None) -> str:
    namespace, name = split(fault.subcode)
    value = (
        f'<s:Value xmlns:f="{escaped(namespace)}">f:{name}</s:Value>'
        if namespace
        else f"<s:Value>{name}</s:Value>"
    )
    subcode = f"<s:Subcode>{value}</s:Subcode>" if name else ""
    blame = Blame.RECEIVER if fault.blame is Blame.OTHER else fault.blame
    detail = _fault_detail(fault, rm)
    return (
        f"<s:Fault><s:Code><s:Value>s:{blame.value}</s:Value>{subcode}</s:Code>"
        f'<s:Reason><s:Text xml:lang="en">{escaped(fault.reason)}</s:Text></s:Reason>'
        + (f"<s:Detail>{detail}</s:Detail>" if detail else "")
        + "</s:Fault>"
    )


def _fault_1_1(fault: SoapFault, rm: RmVersion | None) -> str:
    """Return the XML of a fault of SOAP 1.1.

    The subcode is in a header, except CreateSequenceRefused, which is the fault code itself.
    """
    namespace, name = split(fault.subcode)
    code = f"<faultcode>s:{_FAULT_NAMES_1_1.get(fault.blame, fault.blame.value)}</faultcode>"
    if namespace and (name == "CreateSequenceRefused" or rm is None or namespace != rm.value):
        code = f'<faultcode xmlns:f="{escaped(namespace)}">f:{name}</faultcode>'
    return f"<s:Fault>{code}<faultstring>{escaped(fault.reason)}</faultstring></s:Fault>"
