"""Judge a request at a destination by its content: copies, unreliable and last messages."""

from __future__ import annotations

from srmp_spark.wsrm.codec.elements import Blame, CreateSequence, SoapFault, SoapMessage
from srmp_spark.wsrm.codec.faults import FaultCode, fault_of
from srmp_spark.wsrm.codec.namespaces import RmVersion
from srmp_spark.wsrm.receiving import return_sequence
from srmp_spark.wsrm.receiving.destination_answers import version_of
from srmp_spark.wsrm.receiving.inbound_sequence import InboundSequence


def is_copy(known: InboundSequence, message: SoapMessage, content: CreateSequence) -> bool:
    """Return whether a CreateSequence is a copy of the one that made the sequence ``known``.

    The caller has found that both have the same MessageID. Two clients that use one MessageID must
    not share one sequence. Each client would lose the messages whose numbers the other client has
    used.
    """
    same = (known.soap, known.addressing, known.rm) == (
        message.soap,
        message.addressing,
        message.rm,
    )
    return (
        same
        and known.acks_to.address == content.acks_to.address
        and known.returns == return_sequence.taken(content)
    )


def not_reliable(message: SoapMessage) -> SoapFault:
    """Return the fault for a message outside of any sequence: WSRMRequired.

    WS-ReliableMessaging 1.0 has no name for this fault, and WS-Addressing 2004/08 goes with 1.0
    alone.
    """
    if version_of(message) is RmVersion.V1_1:
        return fault_of(FaultCode.WSRM_REQUIRED, RmVersion.V1_1)
    return SoapFault(
        Blame.SENDER,
        "",
        "This endpoint takes messages of WS-ReliableMessaging; switch reliable sessions on.",
    )


def is_last_message(message: SoapMessage) -> bool:
    """Return whether ``message`` is the empty LastMessage of 1.0, which only ends a sequence.

    Such a message is numbered and acknowledged, but is no message row of the queue. A LastMessage
    with a Body is a row.
    """
    return message.action == RmVersion.V1_0.action("LastMessage") and not message.body.strip()
