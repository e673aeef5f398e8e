"""What the reader process tells unasked: events in packets that fit."""

from __future__ import annotations

import json
import socket
import threading
from typing import Any

import pytest

from srmp_spark.queue_manager.child.packets import PACKET_MAX
from srmp_spark.queue_manager.reader.crossing import READER_EVENTS
from srmp_spark.queue_manager.reader.events import EVENT_TEXT_MAX, Events
from srmp_spark.store.delta.tables.events import (
    PublisherFailed,
    PublisherRecovered,
    StateCompared,
    StateEvent,
    StatePublished,
)


class Wire:
    """What was sent, packet by packet."""

    def __init__(self) -> None:
        self.ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.ours.settimeout(0.3)
        self.events = Events(self.theirs)

    def tell(self, event: StateEvent) -> list[Any]:
        sender = threading.Thread(
            target=self.events.tell, args=(event,), daemon=True
        )  # it waits for a reader, as it should
        sender.start()
        found = []
        while True:
            try:
                packet = self.ours.recv(PACKET_MAX)
            except TimeoutError:
                sender.join(10)
                return found
            found.append(READER_EVENTS.decode(packet))


@pytest.fixture
def wire() -> Any:
    wire = Wire()
    yield wire
    wire.ours.close()
    wire.theirs.close()


def published(sequences: dict[str, dict[str, int]], position: int = 1) -> StatePublished:
    return StatePublished("s", position, 1.0, sequences, damaged={"a": "told in its own event"})


def merged(events: list[Any]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for event in events:
        for epoch, queues in event.sequences.items():
            found.setdefault(epoch, {}).update(queues)
    return found


def test_the_report_of_five_thousand_queues_arrives_whole(wire: Wire) -> None:
    sequences = {"epoch": {f"private$/{'long' * 20}{n}": n for n in range(5_000)}}
    assert len(json.dumps(sequences)) > PACKET_MAX
    events = wire.tell(published(sequences))
    assert [READER_EVENTS.name_of(each) for each in events] == [
        *["synced"] * (len(events) - 1),
        "published",
    ]
    assert merged(events) == sequences
    assert events[-1].position == 1


def test_the_longest_names_fit(wire: Wire) -> None:
    sequences = {"e" * 36: {f"{n:03d}" + "\u4e00" * 124: 2**44 for n in range(400)}}
    assert merged(wire.tell(published(sequences))) == sequences


def test_only_what_changed_is_sent(wire: Wire) -> None:
    wire.tell(published({"e": {"a": 1, "b": 2}}))
    (event,) = wire.tell(published({"e": {"a": 1, "b": 3}}, position=2))
    assert event == StatePublished("s", 2, 1.0, {"e": {"b": 3}}, damaged={})


def test_a_packet_that_does_not_fit_is_told_and_a_long_error_is_cut(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    assert wire.tell(PublisherRecovered("x" * 4_000_000)) == []
    assert "reader.event_too_large event=recovered" in caplog.text
    (event,) = wire.tell(PublisherFailed("inbox", "x" * 4_000_000, ""))
    assert len(event.error) == EVENT_TEXT_MAX


def test_a_main_process_that_is_gone_is_not_worth_a_word(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    wire.ours.close()
    wire.events.tell(StateCompared())
    assert caplog.text == ""
    wire.ours, _ = socket.socketpair()
