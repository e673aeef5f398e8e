"""Reliable sessions (WS-ReliableMessaging) after a lost disk: a copy of what is in Delta makes no second row."""

from __future__ import annotations

from pathlib import Path

import pytest
from restore_kit import QUEUE, Manager

from srmp_spark.message import Arrival
from srmp_spark.rows.group import Form, Record
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.tables import wsrm_sequences
from srmp_spark.store.tables.wsrm_sequences import SequenceClient, StoredSequence
from srmp_spark.wsrm.codec.elements import EndpointReference, Sequence, SoapMessage
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.endpoint_text import endpoint_of, text_of
from srmp_spark.wsrm.codec.namespaces import AddressingVersion, RmVersion, SoapVersion
from srmp_spark.wsrm.codec.xml_tree import NamespaceScope, XmlElement
from srmp_spark.wsrm.receiving.destination_effects import SequenceRow
from srmp_spark.wsrm.receiving.inbound_states import InboundState

HEAD = (
    b"POST /wsrm/q HTTP/1.1\r\nHost: h\r\nContent-Type: "
    b"application/soap+xml\r\nContent-Length: 1\r\n\r\n"
)
NAME = "urn:uuid:s"
ORIGIN = SequenceClient("192.0.2.1:4711", None, 1_000_000)


def row(accepted: int, state: InboundState = InboundState.OPEN) -> SequenceRow:
    parameters = (XmlElement("{urn:k}key", {}, ("7",), NamespaceScope({"k": "urn:k"})),)
    acks_to = EndpointReference("http://client.example/acks", parameters)
    return SequenceRow(
        NAME, "urn:uuid:create", SoapVersion.V1_1, AddressingVersion.V2005_08, RmVersion.V1_0, acks_to, state, accepted, 9,
        2_000_000_000_000_000,
    )  # fmt: skip


def put(manager: Manager, first: int, last: int) -> None:
    """Numbers ``first`` to ``last`` of the sequence, as rows."""
    proofs: list[object] = []
    for number in range(first, last + 1):
        soap = SoapMessage(
            soap=SoapVersion.V1_1, addressing=AddressingVersion.V2005_08, rm=RmVersion.V1_0, action="urn:a",
            sequence=Sequence(NAME, number), body=b"<x/>",
        )  # fmt: skip
        record = Record(
            Arrival(number, "wsrm", "192.0.2.1:4711"), HEAD + encode(soap), len(HEAD), Form.WSRM
        )
        manager.store.sequence += 1
        manager.store.journal.submit((QUEUE, manager.store.sequence, record), proofs.append)
    manager.store.loop.until(lambda: len(proofs) == last - first + 1)
    manager.store.settle()


def count(manager: Manager, accepted: int) -> None:
    manager.store.call(
        lambda transaction: wsrm_sequences.save(
            transaction.connection, QUEUE, [row(accepted)], [], {NAME: ORIGIN}, 7
        )
    )


def restored(manager: Manager) -> list[StoredSequence]:
    manager.lose()
    manager.restore()
    with DataDirectory.open(manager.new, now=1) as directory:
        return wsrm_sequences.load(directory.writer).sequences


@pytest.fixture
def manager(tmp_path: Path) -> Manager:
    return Manager(tmp_path)


def test_a_sequence_goes_on_where_the_state_has_it(manager: Manager) -> None:
    put(manager, 1, 3)
    count(manager, 3)
    manager.publish()
    assert restored(manager) == [StoredSequence(QUEUE, row(3), ORIGIN)]


def test_rows_that_the_table_does_not_count_yet_are_counted(manager: Manager) -> None:
    """The publisher died between the two tables."""
    put(manager, 1, 2)
    count(manager, 2)
    manager.publish()
    put(manager, 3, 5)
    manager.publish()
    assert [each.row.accepted for each in restored(manager)] == [5]


def test_a_sequence_that_is_forgotten_leaves_the_table(manager: Manager) -> None:
    put(manager, 1, 1)
    count(manager, 1)
    manager.publish()
    manager.store.call(
        lambda transaction: wsrm_sequences.save(transaction.connection, QUEUE, [], [NAME], {}, 8)
    )  # fmt: skip
    manager.publish()
    assert restored(manager) == []


def test_an_endpoint_is_one_text() -> None:
    for endpoint in (row(1).acks_to, EndpointReference("http://h/")):
        for addressing in AddressingVersion:
            assert endpoint_of(text_of(endpoint, addressing)) == endpoint
