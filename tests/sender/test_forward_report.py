"""What the sender process tells of destinations that hold forwarded messages."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

import pytest

from srmp_spark.queue_manager.sender.crossing import SENDER_EVENTS, ForwardHolding, RowsForwarded
from srmp_spark.queue_manager.sender.reporting.forward_report import ForwardReport
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.srmp.sending.outgoing_room import OutgoingRoom, origin_of_forwarded
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace

TO = "http://machine9/msmq/private$/q"
FILLER = b"{}"
KEY = QueueKey(TO, "plain")


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        ours.setblocking(False)
        theirs.setblocking(False)
        yield ours, theirs


def told(control: socket.socket) -> list[Any]:
    """Everything that was told since the last time."""
    found = []
    try:
        while True:
            packet = control.recv(1 << 17)
            if packet != FILLER:
                found.append(SENDER_EVENTS.decode(packet))
    except BlockingIOError:
        return found


def test_a_destination_that_empties_and_refills_for_another_within_one_report(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    room = OutgoingRoom()
    report = ForwardReport(sockets[0], room)
    room.note(KEY, origin_of_forwarded("192.0.2.1"), holds=True)
    report.tell()
    assert [each.holding for each in told(sockets[1])] == [{}, {TO: "192.0.2.1"}]
    room.note(KEY, "", holds=False)
    room.note(KEY, origin_of_forwarded("192.0.2.2"), holds=True)
    report.tell()
    assert [each.holding for each in told(sockets[1])] == [{TO: "192.0.2.2"}]


def test_how_far_the_log_is_outgoing_is_told_behind_all_destinations(
    sockets: tuple[socket.socket, socket.socket],
) -> None:
    """Who hears it counts what has left the log among what is outgoing, or nowhere."""
    room = OutgoingRoom()
    report = ForwardReport(sockets[0], room)
    for n in range(100):
        room.note(QueueKey(f"{TO}{n}", "plain"), origin_of_forwarded("192.0.2.1"), holds=True)
    filler = 0
    try:
        while True:
            sockets[0].send(FILLER)
            filler += 1
    except BlockingIOError:
        pass
    for _ in range(3):
        sockets[1].recv(1 << 17)
    report.forwarded(ForwardPlace("e", 100))
    assert RowsForwarded("e", 100) not in told(sockets[1]), "some destinations found no room"
    report.tell()
    events = told(sockets[1])
    assert events[-1] == RowsForwarded("e", 100)
    assert ForwardHolding in map(type, events)
    report.tell()
    assert told(sockets[1]) == []
