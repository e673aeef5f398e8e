"""Make the messages that answer a stored decision.

The module chooses the message, its version and its address. An acknowledgement is sent to AcksTo,
whatever ReplyTo is (CXF's one-way messages have ReplyTo ``none``). A response is sent to ReplyTo. A
fault is sent to the first of FaultTo, ReplyTo and AcksTo that is a real address, else in the HTTP
answer. :mod:`.return_sequence` has the messages of sequences for replies.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from srmp_spark.wsrm.codec.elements import (
    CloseSequenceResponse,
    Content,
    CreateSequenceResponse,
    EndpointReference,
    IncompleteSequenceBehavior,
    SequenceAcknowledgement,
    SoapMessage,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.namespaces import MAKE_CONNECTION_ANONYMOUS, AddressingVersion, RmVersion
from srmp_spark.wsrm.receiving import return_sequence
from srmp_spark.wsrm.receiving.destination_effects import (
    AnswerKind,
    Output,
    ReceiveDecision,
    Respond,
    SendSeparately,
)
from srmp_spark.wsrm.receiving.flow_control import FlowControlObject
from srmp_spark.wsrm.receiving.inbound_sequence import InboundSequence


def is_address(endpoint: EndpointReference | None, addressing: AddressingVersion) -> bool:
    """Return whether a separate message can be sent to ``endpoint``.

    The anonymous address, the address ``none`` and addresses of WS-MakeConnection are no such
    endpoints, and neither is ``None``.
    """
    if endpoint is None or endpoint.address in (addressing.anonymous, addressing.none):
        return False
    return not endpoint.address.startswith(MAKE_CONNECTION_ANONYMOUS)


def fault_endpoint(
    request: SoapMessage, sequence: InboundSequence | None
) -> EndpointReference | None:
    """Return the endpoint for a fault about ``request``, or ``None`` for the HTTP answer.

    It is the first real address of FaultTo, ReplyTo and the sequence's AcksTo.
    """
    acks_to = None if sequence is None else sequence.acks_to
    for endpoint in (request.fault_to, request.reply_to, acks_to):
        if is_address(endpoint, request.addressing):
            return endpoint
    return None


def version_of(message: SoapMessage) -> RmVersion:
    """Return the version of WS-ReliableMessaging in which ``message`` is answered.

    If the message names no version, return the version that goes with its WS-Addressing.
    """
    if message.rm is not None:
        return message.rm
    return RmVersion.V1_0 if message.addressing is AddressingVersion.V2004_08 else RmVersion.V1_1


class DestinationAnswers:
    """Makes the messages that answer the clients of one destination (:mod:`.destination`)."""

    def __init__(
        self, address: str, sequences: Mapping[str, InboundSequence], flow: FlowControlObject
    ) -> None:
        self._address = address
        self._sequences = sequences
        self._flow = flow
        self._told_0: dict[str, None] = {}
        """Sequences that were sent an acknowledgement with 0 room.

        This happened at least once since the last :meth:`take_told_0`.
        """

    def waits_for_room(self, sequence: InboundSequence) -> None:
        """Note that the source of ``sequence`` must be notified as soon as there is room."""
        sequence.last_buffer_remaining = 0
        self._told_0[sequence.identifier] = None

    def take_told_0(self) -> list[str]:
        """Return the identifiers of the sequences that were sent 0 room, and clear the list.

        A sequence may have been sent more room since. The caller checks ``InboundSequence.told``.
        """
        found = list(self._told_0)
        self._told_0.clear()
        return found

    def to(self, received: ReceiveDecision, sequence: InboundSequence | None) -> list[Output]:
        """Return the outputs that answer a message whose changes are stored.

        ``sequence`` is the sequence that the message is about, or ``None``.
        """
        request, kind = received.request, received.kind
        if kind is AnswerKind.FAULT:
            return self._fault(received, sequence)
        if sequence is None or kind is AnswerKind.NOTHING:
            return [Respond(None)]
        if kind is AnswerKind.CREATED:
            expires = (
                None if sequence.expires_at is None else getattr(request.content, "expires", None)
            )
            behavior = (
                IncompleteSequenceBehavior.DISCARD_FOLLOWING_FIRST_GAP
                if sequence.rm is RmVersion.V1_1
                else None
            )
            accept = EndpointReference(self._here(request)) if sequence.returns else None
            created = CreateSequenceResponse(sequence.identifier, expires, behavior, accept)
            return self._response(request, sequence, "CreateSequenceResponse", created)
        if kind is AnswerKind.CLOSED:
            closed = CloseSequenceResponse(sequence.identifier)
            outputs = self._response(
                request, sequence, "CloseSequenceResponse", closed, self._acknowledgement(sequence)
            )
            if sequence.returns and not sequence.is_anonymous:
                outputs.append(
                    SendSeparately(
                        sequence.acks_to, return_sequence.close(sequence, self._here(request))
                    )
                )
            return outputs
        if kind is AnswerKind.TERMINATED:
            return self._terminated(request, sequence)
        if kind is AnswerKind.CONNECTION:
            message = self._message(
                sequence,
                "SequenceAcknowledgement",
                sequence.acks_to,
                acks=(self._acknowledgement(sequence),),
            )
            # This acknowledgement no longer waits. The same request would bring the next one that
            # waits at the address.
            pending = sequence.polled is not None and bool(sequence.polled.owed)
            return [Respond(replace(message, message_pending=pending))]
        return self._acknowledged(request, sequence)

    def _terminated(self, request: SoapMessage, sequence: InboundSequence) -> list[Output]:
        """Return the outputs that answer TerminateSequence.

        In 1.1 the response carries the final acknowledgement, which WCF's client requires.
        """
        ack = self._acknowledgement(sequence)
        outputs: list[Output] = [Respond(None)]
        if sequence.rm is RmVersion.V1_1:
            over = TerminateSequenceResponse(sequence.identifier)
            outputs = self._response(request, sequence, "TerminateSequenceResponse", over, ack)
        if not sequence.returns:
            return outputs
        ours = return_sequence.terminate(sequence, self._here(request), ack, request.message_id)
        if not sequence.is_anonymous:
            return [*outputs, SendSeparately(sequence.acks_to, replace(ours, relates_to=""))]
        return [Respond(ours)] if sequence.rm is RmVersion.V1_0 else outputs

    def ends_return_sequence(self, request: SoapMessage, sequence: InboundSequence) -> bool:
        """Return whether ``request`` ends the sequence for replies, too (1.0 only).

        A LastMessage ends that sequence if all messages up to the LastMessage are stored. Return
        ``False`` if there is no sequence for replies.
        """
        header = request.sequence
        is_last = header is not None and header.is_last and sequence.stored >= header.number
        return bool(sequence.returns) and is_last

    def _acknowledged(self, request: SoapMessage, sequence: InboundSequence) -> list[Output]:
        """Return the outputs with acknowledgements of the sequence and of those it asks about.

        Only sequences with the same AcksTo and version are included, because all blocks are in one
        message. A request/reply client whose message is not stored gets an empty answer.
        """
        header = request.sequence
        if sequence.is_request_reply and header is not None and sequence.stored < header.number:
            return [Respond(None)]
        identifiers = dict.fromkeys(
            (sequence.identifier, *(each.identifier for each in request.ack_requested))
        )
        found = [self._sequences[each] for each in identifiers if each in self._sequences]
        same = [
            each for each in found if each.acks_to == sequence.acks_to and each.rm is sequence.rm
        ]
        acks = tuple(self._acknowledgement(each) for each in same)
        # An acknowledgement to an address is no reply. If RelatesTo names the one-way message,
        # CXF's client drops the acknowledgement once the message is sent, and repeats the message
        # forever.
        relates_to = request.message_id if sequence.is_anonymous else ""
        message = self._message(
            sequence, "SequenceAcknowledgement", sequence.acks_to, relates_to, acks=acks
        )
        if sequence.is_anonymous:
            return [Respond(message)]
        outputs: list[Output] = [Respond(None), SendSeparately(sequence.acks_to, message)]
        if self.ends_return_sequence(request, sequence):
            outputs.append(
                SendSeparately(
                    sequence.acks_to, return_sequence.last_message(sequence, self._here(request))
                )
            )
        return outputs

    def unsolicited(self, sequence: InboundSequence) -> SendSeparately:
        """Return an acknowledgement that nothing requested, for the address of the source."""
        acks = (self._acknowledgement(sequence),)
        return SendSeparately(
            sequence.acks_to,
            self._message(sequence, "SequenceAcknowledgement", sequence.acks_to, acks=acks),
        )

    def _acknowledgement(self, sequence: InboundSequence) -> SequenceAcknowledgement:
        """Return the acknowledgement of ``sequence`` with the present room of the queue.

        Each acknowledgement triggers GET_BUFFER_REMAINING ([MS-WSRVCRM] 3.1.7.1). This also records
        an acknowledgement with 0 room, for :meth:`take_told_0`.
        """
        remaining = sequence.room_of(self._flow.get_buffer_remaining())
        if not remaining:
            self._told_0[sequence.identifier] = None
        return sequence.acknowledgement(
            max(remaining, 1) if sequence.is_request_reply else remaining
        )

    def _here(self, request: SoapMessage) -> str:
        """Return the destination's address exactly as the client wrote it (WCF's R1108 and R1112).

        If the client wrote none, return the configured address.
        """
        return request.to or self._address

    def _response(
        self,
        request: SoapMessage,
        sequence: InboundSequence,
        name: str,
        content: Content,
        *acks: SequenceAcknowledgement,
    ) -> list[Output]:
        reply_to = request.reply_to
        message = self._message(sequence, name, reply_to, request.message_id, content, acks)
        if reply_to is not None and is_address(reply_to, request.addressing):
            return [Respond(None), SendSeparately(reply_to, message)]
        return [Respond(message)]

    def _fault(self, received: ReceiveDecision, sequence: InboundSequence | None) -> list[Output]:
        request, fault = received.request, received.fault
        assert fault is not None, "a fault was decided"
        endpoint = fault_endpoint(request, sequence)
        rm = version_of(request)
        is_closed = (
            sequence is not None and fault.subcode == f"{{{RmVersion.V1_1.value}}}SequenceClosed"
        )
        message = SoapMessage(
            soap=request.soap,
            addressing=request.addressing,
            rm=rm,
            to="" if endpoint is None else endpoint.address,
            action=rm.action("fault") if fault.subcode else request.addressing.fault,
            relates_to=request.message_id,
            acknowledgements=(self._acknowledgement(sequence),)
            if is_closed and sequence is not None
            else (),
            content=fault,
            parameters=() if endpoint is None else endpoint.reference_parameters,
        )
        return (
            [Respond(message)]
            if endpoint is None
            else [Respond(None), SendSeparately(endpoint, message)]
        )

    def _message(
        self,
        sequence: InboundSequence,
        name: str,
        endpoint: EndpointReference | None,
        relates_to: str = "",
        content: Content | None = None,
        acks: tuple[SequenceAcknowledgement, ...] = (),
    ) -> SoapMessage:
        addressing = sequence.addressing
        there = is_address(endpoint, addressing)
        return SoapMessage(
            soap=sequence.soap,
            addressing=addressing,
            rm=sequence.rm,
            action=sequence.rm.action(name),
            relates_to=relates_to,
            to=endpoint.address if there and endpoint is not None else addressing.anonymous,
            acknowledgements=acks,
            content=content,
            parameters=endpoint.reference_parameters if there and endpoint is not None else (),
        )
