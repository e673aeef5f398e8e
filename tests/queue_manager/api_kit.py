"""Calls to the API of a running queue manager without a client's help, and queues of its own for a test."""

from __future__ import annotations

import http.client
import json
from typing import Any

from peer_kit import Peer

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager


def call(
    running: RunningQueueManager, method: str, path: str, body: Any = None, **headers: str
) -> tuple[int, Any]:
    """One call without a client's help: status, and JSON if it is that."""
    connection = http.client.HTTPConnection(*address(running), timeout=20)
    connection.request(
        method,
        path,
        None if body is None else json.dumps(body),
        {name.replace("_", "-"): value for name, value in headers.items()},
    )
    answer = connection.getresponse()
    text = answer.read()
    connection.close()
    return answer.status, json.loads(text) if answer.headers.get(
        "content-type"
    ) == "application/json" else text.decode()


def address(running: RunningQueueManager) -> tuple[str, int]:
    host, _, port = running.api.partition("://")[2].rpartition(":")
    return host, int(port)


def queue(client: QueueManagerClient, name: str) -> dict[str, Any]:
    return next(each for each in client.queues() if each["name"] == name)


def fresh(client: QueueManagerClient, running: RunningQueueManager, name: str, rows: int) -> None:
    """A queue of its own with so many rows."""
    client.put_queue(name)
    sender = Peer(running)
    for _ in range(rows):
        assert sender.send(sender.message(name)).status == 200
    sender.close()
