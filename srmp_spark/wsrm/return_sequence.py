"""The sequence that a client offers for replies: it is taken, and stays empty.

Theory of operation. A WCF client with a two-way binding (wsHttpBinding, wsDualHttpBinding) always makes an Offer, and faults
where it is not accepted; one with a one-way binding makes none, and faults where one is accepted. So an Offer is taken: that is
the price of one-way operations on such a binding. A queue has no application that replies: nothing is ever sent in the return
sequence, and all that is left of it is its end, which follows that of the client's own (WCF's documentation of its two
versions, "Message Exchange Patterns"):

    client says               on its HTTP answers                to its address
    1.0 LastMessage           (an acknowledgement as always)     our LastMessage, number 1
    1.0 TerminateSequence     our TerminateSequence              our TerminateSequence
    1.1 CloseSequence         (closes both)                      our CloseSequence
    1.1 TerminateSequence     (terminates both)                  our TerminateSequence

WCF's service answers LastMessage with its own on HTTP answers, too; its client "ignores the actual response message", and
CXF's would not find the acknowledgement in it. Nothing is remembered but the name of the sequence: each is said again when
the client says its own again, in the same words, so that a copy is known as one. What the client answers to them needs no
answer. An operation that wants a reply is taken as any other and gets the acknowledgement alone: its caller is told by its
own side that there was no reply (``docs/adr/0018``).

A client that can only be answered takes the acknowledgement on the HTTP answer for the reply to that very message. WCF's
has three rules that no other has: an acknowledgement which does not name the message is an error (so a message that was not
taken is answered with nothing, and comes again); a BufferRemaining counts on the answer to a message alone, never on that
to a poll (so 0 would stop it for ever, and it is told 1 at least: a place of its own beside the room of the queue, and the
answer to the message that took it is late while there is no room: so it sends one by one, slowly); and there is no
TerminateSequence without an answer.
"""

from __future__ import annotations

from srmp_spark.wsrm.elements import (
    CloseSequence,
    Content,
    CreateSequence,
    EndpointReference,
    Sequence,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
)
from srmp_spark.wsrm.inbound_sequence import InboundSequence
from srmp_spark.wsrm.namespaces import RmVersion


def taken(content: CreateSequence) -> str:
    """The identifier that is offered, if the Offer is taken: its messages go where the acknowledgements go (WCF's R1102)."""
    offer = content.offer
    if offer is None or (
        offer.endpoint is not None and offer.endpoint.address != content.acks_to.address
    ):
        return ""
    return offer.identifier


def last_message(sequence: InboundSequence, here: str) -> SoapMessage:
    """1.0, to a client with an address: the only message there ever is."""
    return _message(
        sequence, here, "LastMessage", None, header=Sequence(sequence.returns, 1, is_last=True)
    )


def close(sequence: InboundSequence, here: str) -> SoapMessage:
    """1.1, to a client with an address."""
    return _message(sequence, here, "CloseSequence", CloseSequence(sequence.returns))


def terminate(
    sequence: InboundSequence, here: str, ack: SequenceAcknowledgement, relates_to: str = ""
) -> SoapMessage:
    """Both versions."""
    return _message(
        sequence, here, "TerminateSequence", TerminateSequence(sequence.returns), ack, relates_to
    )


def _message(
    sequence: InboundSequence,
    here: str,
    name: str,
    content: Content | None,
    ack: SequenceAcknowledgement | None = None,
    relates_to: str = "",
    header: Sequence | None = None,
) -> SoapMessage:
    """``here``: what the client calls us; what it answers must go where its own messages go (WCF's R1113)."""
    acks_to, addressing = sequence.acks_to, sequence.addressing
    is_request = content is not None and sequence.rm is RmVersion.V1_1  # its client answers it
    return SoapMessage(
        soap=sequence.soap,
        addressing=addressing,
        rm=sequence.rm,
        action=sequence.rm.action(name),
        message_id=f"{sequence.returns}#{name}" if is_request else "",
        reply_to=EndpointReference(here) if is_request else None,
        relates_to=relates_to,
        to=addressing.anonymous if sequence.is_anonymous else acks_to.address,
        sequence=header,
        acknowledgements=() if ack is None else (ack,),
        content=content,
        parameters=() if sequence.is_anonymous else acks_to.reference_parameters,
    )
