"""Handle the sequence that a client offers for replies: it is accepted, and stays empty.

Theory of operation. A WCF client with a two-way binding (wsHttpBinding, wsDualHttpBinding) always
makes an Offer, and fails if the Offer is not accepted. A client with a one-way binding makes no
Offer, and fails if one is accepted. So an Offer is accepted, in order to serve one-way operations
on such a binding. A queue has no application that replies, so no reply is ever sent in the *return
sequence*. Only its end is sent, after the end of the client's own sequence (WCF's documentation of
its two versions, "Message Exchange Patterns"). The queue's messages are:

    client sends              on its HTTP answers                to its address
    1.0 LastMessage           (an acknowledgement as always)     a LastMessage, number 1
    1.0 TerminateSequence     a TerminateSequence                a TerminateSequence
    1.1 CloseSequence         (closes both)                      a CloseSequence
    1.1 TerminateSequence     (terminates both)                  a TerminateSequence

WCF's service answers LastMessage with its own on HTTP answers, too. WCF's client "ignores the
actual response message", and CXF's client would not find the acknowledgement in that response. Only
the name of the return sequence is stored. Each of the queue's messages is sent again, with the same
words, when the client repeats its own, so that the client can recognise a copy. The client's
answers to these messages need no answer. An operation that wants a reply is accepted like any other
and gets the acknowledgement alone. The caller's own side reports that there was no reply
(``docs/adr/0018``).

A client that can only be answered takes the acknowledgement on the HTTP answer for the reply to
that very message. WCF's request/reply client has three rules that no other client has:

- An acknowledgement that does not name the message is an error. So a message that was not accepted
  is answered with nothing, and the client sends it again.
- BufferRemaining counts on the answer to a message alone, never on the answer to a poll. A value of
  0 would stop the client forever, so it gets at least 1: a place in addition to the room of the
  queue. While there is no room, the answer to the message that took this place is late. So the
  client sends slowly, one message at a time.
- There is no TerminateSequence without an answer.
"""

from __future__ import annotations

from srmp_spark.wsrm.codec.elements import (
    CloseSequence,
    Content,
    CreateSequence,
    EndpointReference,
    Sequence,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.namespaces import RmVersion
from srmp_spark.wsrm.receiving.inbound_sequence import InboundSequence


def taken(content: CreateSequence) -> str:
    """Return the identifier of the offered sequence, or ``""`` if the Offer is not accepted.

    An Offer is accepted if its messages go to the same address as the acknowledgements (WCF's
    R1102).
    """
    offer = content.offer
    if offer is None or (
        offer.endpoint is not None and offer.endpoint.address != content.acks_to.address
    ):
        return ""
    return offer.identifier


def last_message(sequence: InboundSequence, here: str) -> SoapMessage:
    """Return the LastMessage of 1.0 that ends the return sequence, for a client with an address.

    It is the only message of the return sequence. ``here`` is the queue's address as the client
    wrote it.
    """
    return _message(
        sequence, here, "LastMessage", None, header=Sequence(sequence.returns, 1, is_last=True)
    )


def close(sequence: InboundSequence, here: str) -> SoapMessage:
    """Return the CloseSequence of 1.1 that closes the return sequence.

    Only a client with an address of its own gets one. ``here`` is the queue's address as the client
    wrote it.
    """
    return _message(sequence, here, "CloseSequence", CloseSequence(sequence.returns))


def terminate(
    sequence: InboundSequence, here: str, ack: SequenceAcknowledgement, relates_to: str = ""
) -> SoapMessage:
    """Return the TerminateSequence that ends the return sequence, with an acknowledgement.

    ``ack`` is the acknowledgement of the client's own sequence. The message exists in both
    versions. ``here`` is the queue's address as the client wrote it. ``relates_to`` is the
    MessageID of the client's own TerminateSequence.
    """
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
    """Return a message that ends the return sequence.

    ``here`` is the queue's address as the client wrote it. The client's answers must go where its
    own messages go (WCF's R1113).
    """
    acks_to, addressing = sequence.acks_to, sequence.addressing
    # The client answers requests of 1.1, so they need a MessageID and a ReplyTo.
    is_request = content is not None and sequence.rm is RmVersion.V1_1
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
