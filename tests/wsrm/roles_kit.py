"""A destination with a store that syncs when told, and a source, for tests of both roles."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from wsrm_kit import VERSIONS, message, schema_faults

from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    AckRequested,
    Content,
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Sequence,
    SequenceAcknowledgement,
    SoapFault,
    SoapMessage,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.receiving.destination_effects import (
    DestinationSettings,
    InOrderMessage,
    Output,
    ReceiveDecision,
    Respond,
    RespondLater,
    SendSeparately,
    SequenceRow,
)

HERE = "http://qm.example/wsrm/private$/orders"
THERE = EndpointReference("http://client.example/acks")
UTC = 1_780_000_000_000_000
Versions = tuple[SoapVersion, AddressingVersion, RmVersion]
OLD, NEW = VERSIONS[3], VERSIONS[5]


class Queue:
    """A destination, its store, and a client that speaks to it."""

    def __init__(self, buffer: int = 8, versions: Versions = NEW, **settings: object) -> None:
        self.settings = DestinationSettings(buffer=buffer, **settings)  # type: ignore[arg-type]
        self.versions = versions
        self._identifiers: Iterator[int] = count(1)
        self.destination = self._new()
        self.rows: dict[str, SequenceRow] = {}
        self.delivered: list[InOrderMessage] = []
        self.position = 0
        self.now = 100.0
        self.identifier = ""

    def _new(self) -> RmDestination:
        return RmDestination(HERE, lambda: f"urn:uuid:{next(self._identifiers)}", self.settings)

    @property
    def utc(self) -> int:
        return UTC + int(self.now * 1e6)

    def receive(self, sent: SoapMessage) -> ReceiveDecision:
        """As it comes over the wire."""
        return self.destination.receive(decode(encode(sent)), "post", self.now, self.utc)

    def commit(self, *received: ReceiveDecision) -> list[list[Output]]:
        changes = self.destination.changes()
        for row in changes.sequences:
            self.rows[row.identifier] = row
        for identifier in changes.removed:
            self.rows.pop(identifier, None)
        for each in received:
            self.delivered += each.deliveries
        self.position += 1
        return self.destination.committed(received, Committed(self.position), self.now)

    def restart(self) -> None:
        """What was not committed is gone."""
        self.destination = self._new()
        self.destination.restore(self.rows.values(), Committed(self.position), self.now, self.utc)

    def say(self, sent: SoapMessage) -> list[Output]:
        (outputs,) = self.commit(self.receive(sent))
        for output in outputs:
            assert not isinstance(output, RespondLater)
            if output.message is not None:
                assert schema_faults(encode(output.message)) == []
        return outputs

    def answer(self, sent: SoapMessage) -> SoapMessage:
        """The HTTP answer, which there must be."""
        outputs = self.say(sent)
        assert len(outputs) == 1
        assert isinstance(outputs[0], Respond)
        assert outputs[0].message is not None
        return outputs[0].message

    def sent(self, sent: SoapMessage) -> SendSeparately:
        """The one message of our own; the HTTP answer is empty."""
        respond, send = self.say(sent)
        assert respond == Respond(None)
        assert isinstance(send, SendSeparately)
        return send

    # --- what a client says -----------------------------------------------------------------------------------------------

    def message(self, action: str = "urn:a", **more: object) -> SoapMessage:
        return message(self.versions, action, **more)

    def create(
        self, acks_to: EndpointReference | None = None, message_id: str = "urn:m1", **more: object
    ) -> SoapMessage:
        here = EndpointReference(self.versions[1].anonymous)
        return self.of_rm(
            "CreateSequence",
            CreateSequence(acks_to or here, **more),
            message_id=message_id,
            reply_to=here,
        )  # type: ignore[arg-type]

    def of_rm(self, name: str, content: Content | None = None, **more: object) -> SoapMessage:
        return self.message(self.versions[2].action(name), content=content, to=HERE, **more)

    def open(self, acks_to: EndpointReference | None = None, message_id: str = "urn:m1") -> str:
        content = self.answer(self.create(acks_to, message_id)).content
        assert isinstance(content, CreateSequenceResponse)
        self.identifier = content.identifier
        return content.identifier

    def number(
        self, number: int, *, is_last: bool = False, asks: bool = False, body: bytes = b""
    ) -> SoapMessage:
        asked = (AckRequested(self.identifier),) if asks else ()
        sequence = Sequence(self.identifier, number, is_last)
        return self.message(
            sequence=sequence, ack_requested=asked, body=body or b"<n>%d</n>" % number, to=HERE
        )

    def ask(self) -> SoapMessage:
        return self.of_rm("AckRequested", ack_requested=(AckRequested(self.identifier),))

    def ack_of(self, sent: SoapMessage) -> SequenceAcknowledgement:
        (ack,) = self.answer(sent).acknowledgements
        return ack

    def told(self, sent: SoapMessage) -> tuple[tuple[tuple[int, int], ...], int]:
        """(ranges, BufferRemaining) of the acknowledgement on the HTTP answer."""
        ack = self.ack_of(sent)
        return ack.ranges, ack.buffer_remaining

    def fault_of(self, sent: SoapMessage) -> SoapFault:
        content = self.answer(sent).content
        assert isinstance(content, SoapFault)
        return content

    @property
    def numbers(self) -> list[int]:
        return [each.number for each in self.delivered]
