"""A destination ``wsrm:URL`` that an operator pauses: what is on its way then comes to its end, once."""

from __future__ import annotations

import threading
from collections.abc import Callable

import pytest
from live_kit import wait_for
from out_kit import client, delivered, finished, send, status
from scripted_service import Request, ScriptedService

from srmp_spark.testing.queue_manager import RunningQueueManager


def test_a_paused_destination_goes_on_in_its_sequence(running: RunningQueueManager) -> None:
    with ScriptedService(room=4) as service:
        send(running, service.destination, 1, 9)
        wait_for(lambda: len(service.delivered) == 4)
        client(running).decide("pause", service.destination)
        assert status(running, service.destination)["state"] == "OnHold"
        service.drain(9)
        client(running).decide("resume", service.destination)
        service.drain(9)
        wait_for(lambda: service.drain(9) or len(service.delivered) == 9)
        delivered(service, 1, 9)
        assert len(service.sequences) == 1


@pytest.mark.parametrize("is_killed", [False, True])
def test_what_is_acknowledged_while_it_is_paused_is_not_sent_again_in_the_next_sequence(
    start: Callable[..., RunningQueueManager], is_killed: bool
) -> None:
    """Message 2 is on its way when an operator pauses; its answer comes then, and after ten idle seconds the sequence ends."""
    running = start()
    arrived, paused = threading.Event(), threading.Event()

    def script(_: ScriptedService, request: Request) -> None:
        if request.number == 2 and not paused.is_set():
            arrived.set()
            assert paused.wait(60)

    with ScriptedService(script=script) as service:
        send(running, service.destination, 1, 2)
        assert arrived.wait(60)
        client(running).decide("pause", service.destination)
        assert status(running, service.destination)["in_doubt"] == 1
        paused.set()
        wait_for(
            lambda: (
                service.sequences and all(each.is_terminated for each in service.sequences.values())
            ),
            40,
        )
        if is_killed:
            running.kill9()
            running.start()
        send(running, service.destination, 3, 4)
        client(running).decide("resume", service.destination)
        delivered(service, 1, 4)
        finished(running, service.destination)
        assert len(service.sequences) == 2
        delivered(service, 1, 4)
