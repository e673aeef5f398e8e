"""Fuzzes the codec of WS-ReliableMessaging and both roles behind the codec.

A message that the codec accepts is passed to a destination and to a source. Each of them is in the
middle of the sequence that the valid messages belong to. They may refuse the message with another
message, which can be encoded and decoded. They must not raise any error.
"""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import count
from pathlib import Path
from random import Random

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.wsrm.codec import (
    decoder,
    encoder,
    fault_reader,
    rm_reader,
    values,
    xml_tree,
    xml_writer,
)
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    AckRequested,
    CloseSequence,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    MakeConnection,
    Offer,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    SoapMessage,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import FaultCode, fault_of
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.receiving.destination_answers import version_of
from srmp_spark.wsrm.receiving.destination_effects import RespondLater
from srmp_spark.wsrm.sending.source import RmSource
from srmp_spark.wsrm.sending.source_effects import Control, RmSourceSettings
from tests.kit.fuzz.judge import Outcome, Target, ViolationError
from tests.kit.fuzz.mutators import MARKUP
from tests.kit.wsrm.oracle import Commit, Store

REASON_MAX = 400
"""Most characters of a refusal. It must be one short line that never contains the payload."""
OURS = "urn:uuid:1"
"""Identifier of the sequence of both roles."""
TOKENS = (
    *MARKUP,
    b"<r:Identifier>urn:uuid:1</r:Identifier>",
    b"<r:MessageNumber>2</r:MessageNumber>",
    b"<r:LastMessage/>",
    b"<r:None/>",
    b"<r:Final/>",
    b"<r:Nack>2</r:Nack>",
    b'<r:AcknowledgementRange Lower="1" Upper="3"/>',
    b"<r:BufferRemaining>1</r:BufferRemaining>",
    b"<s:Header>",
    b"</s:Header>",
    b"<s:Body>",
    b"</s:Body>",
    b"<s:Body/>",
    b'<n:BufferRemaining xmlns:n="http://schemas.microsoft.com/ws/2006/05/rm">0</n:BufferRemaining>',
    b' s:role="urn:x"',
    b'<x xmlns="urn:x" s:mustUnderstand="1"/>',
    b"<r:Expires>PT0S</r:Expires>",
    b"PT1H",
    b"xmlns:r=''",
    b"http://schemas.xmlsoap.org/ws/2005/02/rm",
    b"http://docs.oasis-open.org/ws-rx/wsrm/200702",
    b"http://schemas.xmlsoap.org/ws/2004/08/addressing",
    b"http://www.w3.org/2005/08/addressing",
    b"<a:ReferenceParameters><y/></a:ReferenceParameters>",
)
_ENVELOPE = re.compile(rb"<(?:\w+:)?Envelope.*?</(?:\w+:)?Envelope>", re.DOTALL)


def _written() -> list[bytes]:
    """Return one encoded message of each kind, for the sequence of both roles."""
    found = []
    for rm, addressing, soap in (
        (RmVersion.V1_0, AddressingVersion.V2004_08, SoapVersion.V1_1),
        (RmVersion.V1_1, AddressingVersion.V2005_08, SoapVersion.V1_2),
    ):
        is_new = rm is RmVersion.V1_1
        here = EndpointReference(addressing.anonymous)
        plain = SoapMessage(
            soap=soap,
            addressing=addressing,
            rm=rm,
            action="urn:a",
            message_id="urn:uuid:m",
            to="http://h/q",
        )
        offer = Offer("urn:uuid:o", here if is_new else None, 0)
        ack = SequenceAcknowledgement(OURS, ((1, 1), (3, 4)), (), False, 3)
        messages = [
            replace(
                plain,
                sequence=Sequence(OURS, 2),
                ack_requested=(AckRequested(OURS),),
                body=b"<b xmlns='urn:b'>1</b>",
            ),
            replace(plain, acknowledgements=(ack,)),
            replace(plain, acknowledgements=(SequenceAcknowledgement(OURS, (), (2, 3)),)),
            replace(plain, content=CreateSequence(here, 60_000, offer), reply_to=here),
            replace(
                plain,
                content=CreateSequenceResponse(OURS, 0, None, here),
                relates_to="urn:uuid:create",
            ),
            replace(plain, content=TerminateSequence(OURS)),
            replace(plain, content=fault_of(FaultCode.UNKNOWN_SEQUENCE, rm, OURS)),
        ]
        if is_new:
            messages += [
                replace(plain, content=CloseSequence(OURS, 4)),
                replace(plain, content=MakeConnection("urn:x")),
                replace(
                    plain, acknowledgements=(replace(ack, is_final=True),), message_pending=True
                ),
            ]
        found += [encode(message) for message in messages]
    return found


def seeds(directory: Path) -> list[bytes]:
    """Return the valid messages: a captured message of each kind, and those of :func:`_written`.

    ``directory`` is ``tests/data/wsrm``.
    """
    kept = (
        "wcf_",
        "cxf_wire_rm11_",
        "metro_wire_rm10",
        "metro_wire_rm11_fault",
        "metro_wire_rm11_mc",
    )
    texts = [
        path.read_bytes() for path in sorted(directory.glob("*.xml")) if path.name.startswith(kept)
    ]
    return [each for text in texts for each in _ENVELOPE.findall(text)] + _written()


def parse(data: bytes) -> Outcome:
    """Decode one message of WS-ReliableMessaging.

    Raises :class:`ViolationError` for a refusal that is too long or names no section.
    """
    try:
        return Outcome(True, decode(data))
    except RemoteProtocolError as error:
        text = str(error)
        if (
            error.status_hint not in (400, 413)
            or not error.section
            or len(text) > REASON_MAX
            or not text.isprintable()
        ):
            raise ViolationError(
                f"a refusal that cannot be told: {error.status_hint} {text[:200]!r}"
            ) from None
        return Outcome(False, (error.status_hint, error.section, text))


def check(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check an accepted message with the encoder and both roles.

    The message must be decoded again as the same message after it was encoded. Both roles must
    survive it.
    """
    if not outcome.accepted:
        return
    message: SoapMessage = outcome.value
    try:
        written = encode(message)
    except LocalProtocolError:
        # We never send such a message, for example a fault that its version does not have.
        written = b""
    if written:
        again = decode(written)
        if _plain(again) != _plain(message):
            raise ViolationError(f"written and read again: {again}, before: {message}")
    _to_a_destination(message)
    _to_a_source(message)


def _plain(message: SoapMessage) -> SoapMessage:
    """Return the message without the parts that differ between versions of SOAP.

    These are a fault, refused headers, the version, and the Body, which may have got a namespace
    declaration.
    """
    content = None if isinstance(message.content, SoapFault) else message.content
    return replace(message, content=content, body=b"", refused=(), rm=None)


def _to_a_destination(message: SoapMessage) -> None:
    identifiers = count(1)
    destination, store = (
        RmDestination("http://h/q", lambda: f"urn:uuid:{next(identifiers)}"),
        Store(),
    )
    rm, addressing = version_of(message), message.addressing
    plain = SoapMessage(soap=message.soap, addressing=addressing, rm=rm, action="urn:a")
    create = replace(
        plain,
        content=CreateSequence(EndpointReference(addressing.anonymous)),
        message_id="urn:uuid:first",
    )
    for each in (create, replace(plain, sequence=Sequence(OURS, 1)), message):
        received = destination.receive(each, None, 1.0, 1)
        store.begin(Commit(list(received.deliveries), destination.changes()))
        for outputs in destination.committed([received], store.finish(), 1.0):
            for output in outputs:
                if not isinstance(output, RespondLater) and output.message is not None:
                    decode(encode(output.message))
    destination.poll(1e6, 10**12)
    if [number for identifier, number, _ in store.rows if identifier == OURS] not in ([1], [1, 2]):
        raise ViolationError(f"rows {store.rows}")


def _to_a_source(message: SoapMessage) -> None:
    rm, addressing = version_of(message), message.addressing
    source = RmSource(
        RmSourceSettings(to="http://h/q", soap=message.soap, addressing=addressing, rm=rm),
        "urn:uuid:create",
        0.0,
    )
    created = SoapMessage(
        soap=message.soap,
        addressing=addressing,
        rm=rm,
        action="urn:a",
        content=CreateSequenceResponse(OURS),
        relates_to="urn:uuid:create",
    )
    source.enqueue(20)
    source.received(created, 0.0)
    source.poll(0.0)
    source.received(message, 1.0)
    for output in source.poll(1e6):
        sent = (
            output.message
            if isinstance(output, Control)
            else source.envelope(output, "urn:a", b"", "urn:uuid:m")
        )
        decode(encode(sent))
    if source.sent > 20 or len(source.in_flight) > source.settings.window:
        raise ViolationError(f"{source!r}")


def target(directory: Path) -> Target:
    """Return the target of the codec and both roles. ``directory`` is ``tests/data/wsrm``."""
    modules = (decoder, encoder, fault_reader, rm_reader, values, xml_tree, xml_writer)
    files = frozenset(str(module.__file__) for module in modules)
    return Target("wsrm", seeds(directory), TOKENS, parse, check, files)
