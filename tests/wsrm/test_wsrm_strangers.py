"""Clients that hurt each other, by accident or on purpose: names that two of them use, sequences by the thousand, memory."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from live_kit import PATIENCE, Client, rows
from roles_kit import HERE, OLD, THERE, Queue
from wsrm_kit import message

from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    CloseSequence,
    CreateSequenceResponse,
    EndpointReference,
    MakeConnection,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.encoder import encode
from srmp_spark.wsrm.codec.faults import FaultCode, code_of
from srmp_spark.wsrm.codec.namespaces import MAKE_CONNECTION_ANONYMOUS
from srmp_spark.wsrm.receiving.destination import RmDestination
from srmp_spark.wsrm.receiving.destination_effects import DestinationSettings, SendSeparately
from srmp_spark.wsrm.receiving.inbound_sequence import HeldBytes, size_of
from srmp_spark.wsrm.receiving.inbound_states import InboundState
from tests.kit.certificate import Authority, Identity

# --- one name, two clients --------------------------------------------------------------------------------------------------


def test_a_create_sequence_of_another_kind_with_the_same_message_id_is_no_copy() -> None:
    """Two clients in one sequence lose what both have numbered alike, though it is acknowledged."""
    queue = Queue()
    first = queue.open()
    assert queue.open() == first
    elsewhere = queue.sent(replace(queue.create(THERE), reply_to=THERE)).message.content
    assert isinstance(elsewhere, CreateSequenceResponse)
    assert elsewhere.identifier != first
    queue.versions = OLD
    assert queue.open() not in (first, elsewhere.identifier)


def test_what_is_not_the_same_begins_a_sequence_and_the_other_goes_on() -> None:
    queue = Queue()
    first = queue.open()
    queue.say(queue.number(1))
    queue.destination.not_the_same("urn:m1")
    second = queue.open()
    assert second != first
    assert queue.ack_of(queue.number(1)).ranges == ((1, 1),)
    assert queue.open() == second
    assert [(each.identifier, each.number) for each in queue.delivered] == [(first, 1), (second, 1)]


# --- sequences by the thousand ----------------------------------------------------------------------------------------------


def test_sequences_that_are_over_make_room_for_new_ones() -> None:
    """A WCF client that opens a channel for each call begins and ends one each time; those in use are never pushed out."""
    queue = Queue(8, sequences_max=3)
    kept = queue.open(message_id="urn:kept")
    for number in range(10):
        identifier = queue.open(message_id=f"urn:m{number}")
        assert queue.ack_of(queue.number(1)).ranges == ((1, 1),)
        queue.say(queue.of_rm("CloseSequence", CloseSequence(identifier, 1)))
        queue.say(queue.of_rm("TerminateSequence", TerminateSequence(identifier, 1)))
    assert len(queue.destination) == len(queue.rows) == 3
    assert queue.rows[kept].state is InboundState.OPEN
    for number in (11, 12):
        queue.open(message_id=f"urn:m{number}")
    assert (
        code_of(queue.fault_of(queue.create(message_id="urn:m13")))
        is FaultCode.CREATE_SEQUENCE_REFUSED
    )
    queue.now += queue.settings.inactivity_timeout + queue.settings.terminated_kept
    for _ in range(2):
        queue.destination.poll(queue.now, queue.utc)
        queue.now += queue.settings.terminated_kept
    queue.commit()
    assert queue.rows == {}


def test_thousands_of_sequences_do_not_slow_the_others_down() -> None:
    """The room of the queue is looked at after every commit: whoever has nothing to hear costs nothing."""
    queue = Queue(4096, sequences_of_one_max=4096)
    for number in range(4_000):
        queue.commit(queue.receive(queue.create(message_id=f"urn:m{number}")))
    seen = []

    class Counting(dict):  # type: ignore[type-arg]
        def values(self):  # type: ignore[no-untyped-def]
            seen.append(1)
            return super().values()

    queue.destination._sequences = Counting(queue.destination._sequences)
    queue.destination._answers._sequences = queue.destination._sequences
    for room in range(100):
        queue.destination.set_room(room)
    queue.open(message_id="urn:last")
    queue.say(queue.number(2))
    queue.say(queue.number(1))
    assert seen == []


def test_who_was_told_0_hears_of_room_once_and_who_polls_with_make_connection_lives() -> None:
    polled = EndpointReference(f"{MAKE_CONNECTION_ANONYMOUS}890cb1ba-0abc-4ca4-9ef2-039d28437414")
    queue = Queue(1)
    queue.open(THERE)
    queue.sent(queue.number(1, asks=True))
    assert queue.destination.set_room(0) == []
    (send,) = queue.destination.set_room(1)
    assert isinstance(send, SendSeparately)
    assert queue.destination.set_room(1) == []
    asks = queue.open(polled, message_id="urn:m2")
    for _ in range(30):
        queue.now += 30.0
        queue.destination.poll(queue.now, queue.utc)
        queue.say(queue.message("urn:mc", content=MakeConnection(polled.address)))
    assert queue.rows[asks].state is InboundState.OPEN


# --- memory -----------------------------------------------------------------------------------------------------------------


def held_by(queue: Queue) -> int:
    """How many messages wait after gaps."""
    return sum(len(each.held) for each in queue.destination)


def test_a_message_behind_a_gap_costs_all_that_it_came_with() -> None:
    """A header of 60 KB and no Body is 60 KB, twice: what was read, and the POST."""
    queue = Queue(8, held_total_max=1_000_000)
    queue.open()
    padding = EndpointReference("urn:x", ())
    for number in range(2, 40):
        sent = replace(queue.number(number), reply_to=padding)
        envelope = encode(sent).replace(
            b"<s:Header>", b"<s:Header><x xmlns='urn:y'>%s</x>" % (b"z" * 60_000)
        )
        queue.commit(queue.destination.receive(decode(envelope), "post", queue.now, queue.utc))
    assert 5 <= held_by(queue) <= 8
    assert decode(encode(message(body=b"<b/>")), 70_000).size == 70_000


def test_all_queues_share_what_may_wait_behind_gaps() -> None:
    """And what is delivered or dropped is given back."""
    held = HeldBytes()
    first, second, other = Queue(), Queue(), Queue()
    other.open()
    cost = size_of(decode(encode(other.number(2))))
    for queue in (first, second):
        settings = DestinationSettings(held_total_max=3 * cost)
        queue.destination = RmDestination(
            HERE, iter(["urn:uuid:1", "urn:uuid:2"]).__next__, settings, held
        )
        queue.open()
    for number in (2, 3, 4):
        first.say(first.number(number))
        second.say(second.number(number))
    assert held_by(first) + held_by(second) == 3
    first.say(first.number(1))
    assert held.bytes == sum(each.held_bytes for each in second.destination)
    second.say(second.of_rm("TerminateSequence", TerminateSequence(second.identifier)))
    assert held.bytes == 0


# --- certificates -----------------------------------------------------------------------------------------------------------


class TlsClient(Client):
    """One that shows a certificate."""

    def __init__(
        self, running: RunningQueueManager, authority: Authority, identity: Identity | None
    ) -> None:
        super().__init__(running)
        context = ssl.create_default_context(cafile=str(authority.ca))
        if identity is not None:
            context.load_cert_chain(*identity)
        port = int(running.ready["wsrm"].rpartition(":")[2])
        self._connection = http.client.HTTPSConnection(
            "localhost", port, context=context, timeout=PATIENCE
        )


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[RunningQueueManager, Authority]]:
    authority = Authority(tmp_path / "files")
    identity = authority.issue("qm")
    with RunningQueueManager(
        tmp_path / "data", queues=["private$/orders"], listen_wsrm="https://127.0.0.1:0", host_name="qm.example",
        listen_cert=identity.certificate, listen_key=identity.key, client_ca=authority.ca,
    ) as running:  # fmt: skip
        yield running, authority


def test_a_sequence_belongs_to_the_certificate_that_began_it(
    world: tuple[RunningQueueManager, Authority],
) -> None:
    """Whoever comes with another one, or none, hears that there is no such sequence, and changes nothing of it."""
    running, authority = world
    alice, mallory = (
        TlsClient(running, authority, authority.issue(name)) for name in ("alice", "mallory")
    )
    nobody = TlsClient(running, authority, None)
    identifier = alice.open(message_id="urn:uuid:same")
    assert alice.told(alice.number(1))[0] == 1
    for restarted in (False, True):
        if restarted:
            running.stop()
            running.start()
            alice, mallory = (
                TlsClient(running, authority, authority.issue(name))
                for name in ("alice", "mallory")
            )
            nobody = TlsClient(running, authority, None)
            alice.identifier = identifier
        for stranger in (mallory, nobody):
            stranger.identifier = identifier
            for sent in (
                stranger.number(2),
                stranger.ask(),
                stranger.of_rm("CloseSequence", CloseSequence(identifier)),
                stranger.of_rm("TerminateSequence", TerminateSequence(identifier)),
            ):
                assert code_of(stranger.fault(sent)[1]) is FaultCode.UNKNOWN_SEQUENCE
            assert stranger.open(message_id="urn:uuid:same") != identifier
    assert alice.told(alice.number(2))[0] == 2
    assert [row["wsrm_number"] for row in rows(running) if row["wsrm_sequence"] == identifier] == [
        1,
        2,
    ]
    assert {row["sender_name"] for row in rows(running)} == {rows(running)[0]["sender_name"]}
