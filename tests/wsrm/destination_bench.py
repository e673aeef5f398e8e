"""A destination with a store that can be told to wait; tests of it speak through this."""

from __future__ import annotations

from itertools import count

from wsrm_kit import VERSIONS, plain

from srmp_spark.wsrm.destination import Destination
from srmp_spark.wsrm.destination_effects import Effect, Reply, SequenceRecord, Store, Stored
from srmp_spark.wsrm.elements import (
    CreateSequence,
    CreateSequenceResponse,
    EndpointReference,
    Fault,
    Sequence,
    SoapMessage,
)
from srmp_spark.wsrm.faults import FaultCode, code_of
from srmp_spark.wsrm.flow_control import FlowControl
from srmp_spark.wsrm.namespaces import AddressingVersion, RmVersion, SoapVersion

Versions = tuple[SoapVersion, AddressingVersion, RmVersion]
OLD = (SoapVersion.V1_2, AddressingVersion.V2005_08, RmVersion.V1_0)
"""What the seed and WCF speak."""
NEW = VERSIONS[-1]
CALLABLE = "http://friend.example/acks"


class Bench:
    """A destination, a store that can be told to wait, and every row that it has."""

    def __init__(self, maximum: int = 8, versions: Versions = NEW, records: tuple[SequenceRecord, ...] = ()) -> None:
        self.versions = versions
        self.now = 1_000.0
        self.rows: list[tuple[str, int, bytes]] = []
        self.records: dict[str, SequenceRecord] = {each.identifier: each for each in records}
        self.unstored: list[Store] = []
        self.waits = False
        self._numbers = count(1)
        self._exchanges = count(1)
        self.destination = Destination(
            FlowControl(maximum), new_identifier=lambda: f"urn:sequence:{next(self._numbers)}", records=records,
            may_call=lambda address: address == CALLABLE, now=self.now,
        )  # fmt: skip

    def receive(self, message: SoapMessage, owner: str = "") -> list[Effect]:
        return self.act(self.destination.receive(message, next(self._exchanges), self.now, owner))

    def act(self, effects: list[Effect]) -> list[Effect]:
        """Store what is to be stored, unless it waits; the answers."""
        answers = []
        for effect in effects:
            if isinstance(effect, Store):
                self.unstored.append(effect)
            else:
                answers.append(effect)
        while self.unstored and not self.waits:
            answers += self.store()
        return answers

    def store(self) -> list[Effect]:
        store = self.unstored.pop(0)
        self.records[store.record.identifier] = store.record
        self.rows += [(each.sequence, each.number, each.message.body) for each in store.messages]
        return self.destination.stored(Stored(store.token), self.now)

    def created(self, acks_to: str = "", message_id: str = "urn:uuid:c") -> str:
        acks_to = acks_to or self.versions[1].anonymous
        content = answer(
            self.receive(self.message(content=CreateSequence(EndpointReference(acks_to)), message_id=message_id))
        ).content
        assert isinstance(content, CreateSequenceResponse)
        return content.identifier

    def message(self, **more: object) -> SoapMessage:
        return plain(self.versions, **({"message_id": "urn:uuid:m"} | more))

    def numbered(self, sequence: str, number: int, *, is_last: bool = False, body: bytes = b"", **more: object) -> SoapMessage:
        return self.message(sequence=Sequence(sequence, number, is_last), body=body or b"<m>%d</m>" % number, **more)

    def send(self, sequence: str, number: int, **more: object) -> SoapMessage:
        return answer(self.receive(self.numbered(sequence, number, **more)))  # type: ignore[arg-type]


def answer(effects: list[Effect]) -> SoapMessage:
    """The one answer."""
    (reply,) = effects
    assert isinstance(reply, Reply)
    assert reply.message is not None
    return reply.message


def said(message: SoapMessage) -> tuple[tuple[tuple[int, int], ...], int]:
    (ack,) = message.acknowledgements
    return ack.ranges, ack.buffer_remaining


def fault(message: SoapMessage) -> FaultCode | None:
    assert isinstance(message.content, Fault)
    return code_of(message.content)
