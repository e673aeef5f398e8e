"""MakeConnection finds by index what a search of all sequences would find, and costs the same however many there are."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from roles_kit import NEW, Queue

from srmp_spark.srmp.receiving.effects import Committed
from srmp_spark.wsrm.codec.elements import (
    CreateSequenceResponse,
    EndpointReference,
    MakeConnection,
    TerminateSequence,
)
from srmp_spark.wsrm.codec.namespaces import MAKE_CONNECTION_ANONYMOUS
from srmp_spark.wsrm.receiving.destination_effects import Respond
from srmp_spark.wsrm.receiving.inbound_sequence import InboundSequence
from srmp_spark.wsrm.receiving.inbound_states import InboundState

ADDRESSES = [*(f"{MAKE_CONNECTION_ANONYMOUS}{n}" for n in range(3)), NEW[1].anonymous]
NAMES = [None, "CN=a", "CN=b"]
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), st.sampled_from(range(4)), st.sampled_from(NAMES)),
        st.tuples(st.just("number"), st.integers(0, 9), st.just(None)),
        st.tuples(st.just("poll"), st.sampled_from(range(3)), st.sampled_from(NAMES)),
        st.tuples(st.just("terminate"), st.integers(0, 9), st.just(None)),
        st.tuples(st.just("room"), st.integers(0, 2), st.just(None)),
        st.tuples(st.just("time"), st.sampled_from([1, 200, 650]), st.just(None)),
        st.tuples(st.just("restart"), st.just(0), st.just(None)),
        st.tuples(st.just("bug"), st.integers(0, 9), st.just(None)),
    ),
    max_size=60,
)


def is_owed(sequence: InboundSequence) -> bool:
    """Whether an acknowledgement waits for a MakeConnection of the client."""
    return sequence.polled is not None and sequence.identifier in sequence.polled.owed


class Clients(Queue):
    """A destination with sequences of several clients, and what a search of all of them finds."""

    def __init__(self) -> None:
        super().__init__(buffer=2, sequences_max=8, unused_spared=0.0)
        self.names: dict[str, str | None] = {}

    def restart(self) -> None:
        self.destination = self._new()
        for row in self.rows.values():
            name = self.names[row.identifier]
            self.destination.restore(
                [row], Committed(self.position), self.now, self.utc, name or "", name
            )

    def step(self, kind: str, which: int, name: str | None, at: int) -> None:
        known = [each.identifier for each in self.destination]
        self.identifier = known[which % len(known)] if known else "urn:none"
        if kind == "create":
            sent = self.create(EndpointReference(ADDRESSES[which]), f"urn:c{at}")
            received = self.destination.receive(sent, "post", self.now, self.utc, name or "", name)
            self.names.setdefault(received.identifier, name)
            self.commit(received)
        elif kind == "number":
            held = self.destination.get(self.identifier)
            self.commit(self.receive(self.number(1 if held is None else held.accepted + 1)))
        elif kind == "poll":
            self.poll(ADDRESSES[which], name)
        elif kind == "terminate":
            self.commit(
                self.receive(self.of_rm("TerminateSequence", TerminateSequence(self.identifier)))
            )
        elif kind == "room":
            self.destination.set_room(which)
        elif kind == "time":
            self.now += which
            self.destination.poll(self.now, self.utc)
            self.commit()
        elif kind == "restart":
            self.commit()
            self.restart()
        elif kind == "bug":
            self.destination.put_back([], known=self.rows.keys())

    def poll(self, address: str, name: str | None) -> None:
        asked = [each for each in self.destination if each.acks_to.address == address]
        is_shared = any(each.client != name for each in asked)
        owed = [each.identifier for each in asked if is_owed(each)]
        sent = self.message("urn:mc", content=MakeConnection(address))
        received = self.destination.receive(sent, "post", self.now, self.utc, name or "", name)
        (outputs,) = self.commit(received)
        if is_shared or not owed:
            assert outputs == [Respond(None)]
            return
        (output,) = outputs
        assert isinstance(output, Respond)
        assert output.message is not None
        assert output.message.acknowledgements[0].identifier in owed
        assert output.message.message_pending is (len(owed) > 1)

    def check(self) -> None:
        """The index is what a linear search finds."""
        index = self.destination._polled
        wanted = {each.acks_to.address for each in self.destination} - {NEW[1].anonymous}
        assert {*index._addresses} == wanted
        for address in wanted:
            found = index.get(address)
            assert found is not None
            linear = [each for each in self.destination if each.acks_to.address == address]
            assert [*found.sequences] == [each.identifier for each in linear]
            assert all(each.polled is found for each in linear)
            assert {*found.owed} == {each.identifier for each in linear if is_owed(each)}
            for name in NAMES:
                assert found.is_shared_with_another(name) is any(
                    each.client != name for each in linear
                )
            assert sum(found.clients.values()) == len(linear)
            assert all(found.clients.values())


@settings(max_examples=200, deadline=None)
@given(steps=STEPS)
def test_the_index_is_what_a_search_of_all_sequences_finds(
    steps: list[tuple[str, int, str | None]],
) -> None:
    clients = Clients()
    for at, step in enumerate(steps):
        clients.step(*step, at)
        clients.check()


def test_a_poll_costs_the_same_beside_thousands_of_sequences_at_its_own_address_and_at_others() -> (
    None
):
    def seconds(sequences: int) -> float:
        queue = Queue(1, sequences_of_one_max=4_096)
        for n in range(sequences):
            acks_to = EndpointReference(
                ADDRESSES[0] if n % 2 else f"{MAKE_CONNECTION_ANONYMOUS}other{n}"
            )
            content = queue.commit(
                queue.destination.receive(queue.create(acks_to, f"urn:m{n}"), "post", 0.0, 0)
            )[0][0]
            assert isinstance(content, Respond)
            assert content.message is not None
            assert isinstance(content.message.content, CreateSequenceResponse)
        sent = queue.message("urn:mc", content=MakeConnection(ADDRESSES[0]))
        best = 1.0
        for _ in range(20):
            before = time.thread_time()
            for _ in range(10):
                queue.destination.answer(queue.destination.receive(sent, "post", 1.0, 0), 1.0)
            best = min(best, time.thread_time() - before)
        return best

    assert seconds(4_000) < 5 * seconds(4)


@pytest.mark.parametrize("is_polled", [True, False])
def test_who_asks_lives_as_long_as_it_asks_and_no_longer(is_polled: bool) -> None:
    queue = Queue(1)
    identifier = queue.open(EndpointReference(ADDRESSES[0]))
    for _ in range(30):
        queue.now += 30.0
        queue.destination.poll(queue.now, queue.utc)
        if is_polled:
            queue.say(queue.message("urn:mc", content=MakeConnection(ADDRESSES[0])))
    queue.commit()
    assert queue.rows[identifier].state is (
        InboundState.OPEN if is_polled else InboundState.TERMINATED
    )
    queue.now += queue.settings.inactivity_timeout - 1.0
    queue.destination.poll(queue.now, queue.utc)
    queue.commit()
    assert (identifier in queue.rows) is is_polled
    queue.now += 2.0
    queue.destination.poll(queue.now, queue.utc)
    queue.commit()
    assert identifier not in queue.rows or queue.rows[identifier].state is InboundState.TERMINATED


def test_a_sequence_that_expires_is_over_although_its_client_asks() -> None:
    queue = Queue(1)
    content = queue.answer(queue.create(EndpointReference(ADDRESSES[0]), expires=700_000)).content
    assert isinstance(content, CreateSequenceResponse)
    for _ in range(30):
        queue.now += 30.0
        queue.destination.poll(queue.now, queue.utc)
        queue.say(queue.message("urn:mc", content=MakeConnection(ADDRESSES[0])))
    assert queue.rows[content.identifier].state is InboundState.TERMINATED
