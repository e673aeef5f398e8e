"""Messages that go out in reliable sessions: a queue manager that sends, and what is asked of it."""

from __future__ import annotations

import base64
import os
import signal
from pathlib import Path
from typing import Any

from live_kit import wait_for
from scripted_service import ScriptedService

from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.errors import ApiError
from srmp_spark.testing.queue_manager import RunningQueueManager

ACTION = "urn:shop/order"
POLL = 0.5
"""Seconds between two questions to a service without room."""


def body(number: int) -> bytes:
    return f'<order xmlns="urn:shop"><n>{number}</n><text>ä &amp; b</text></order>'.encode()


def client(running: RunningQueueManager) -> OutgoingClient:
    return OutgoingClient(running.api, retry_seconds=90.0)


def send(
    running: RunningQueueManager, destination: str, first: int, last: int, **columns: object
) -> list[dict[str, Any]]:
    """Messages ``first`` to ``last``, one batch, in their order."""
    messages = [
        {
            "destination": destination,
            "soap_action": ACTION,
            "body_base64": base64.b64encode(body(number)).decode(),
            **columns,
        }
        for number in range(first, last + 1)
    ]
    return client(running).send_away(messages)


def send_keyed(running: RunningQueueManager, destination: str, first: int, last: int) -> None:
    """The same with keys, again and again until it is known, as the sender process is killed now and then."""

    def sent() -> bool:
        try:
            for number in range(first, last + 1):
                send(running, destination, number, number, key=f"k-{number}")
        except ApiError as error:
            if error.code != "sender-unavailable":
                raise
            return False
        return True

    wait_for(sent)


def status(running: RunningQueueManager, destination: str) -> dict[str, Any]:
    """Its entry in ``status``; empty as long as there is none."""
    found = [
        each for each in client(running).status()["outgoing"] if each["destination"] == destination
    ]
    return found[0] if found else {}


def delivered(service: ScriptedService, first: int, last: int, seconds: float = 120.0) -> None:
    """Wait until these are delivered: once, in order, and nothing else."""
    wanted = [body(number) for number in range(first, last + 1)]
    wait_for(lambda: len(service.delivered) >= len(wanted), seconds)
    with service.lock:
        assert service.delivered == wanted
        assert service.wrong == []


def finished(running: RunningQueueManager, destination: str) -> dict[str, Any]:
    """Wait until nothing waits any more."""
    return wait_for(
        lambda: (
            (found := status(running, destination))
            and not found["queued"]
            and not found["in_doubt"]
            and found
        )
    )  # type: ignore[no-any-return]


def kill_sender(running: RunningQueueManager) -> bool:
    """kill -9 of the sender process alone, by its pid; whether there was one."""
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    for pid in children:
        try:
            if (
                b"srmp_spark.queue_manager.sender.process"
                in Path(f"/proc/{pid}/cmdline").read_bytes()
            ):
                os.kill(int(pid), signal.SIGKILL)
                return True
        except OSError:  # it ended while we looked
            continue
    return False
