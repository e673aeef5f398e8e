"""A real ``serve --rpc``, messages for it, and readers of it."""

from __future__ import annotations

import base64
import itertools
from pathlib import Path

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.remote_queue import RemoteMachine, RemoteQueue
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_MOVE,
    ACCESS_PEEK,
    ACCESS_RECEIVE,
    SHARE_DENY_NONE,
    HandleRequest,
    MoveMessageRequest,
    OpenRequest,
)
from srmp_spark.mqrr.ndr.receive import NO_TRANSACTION
from srmp_spark.mqrr.queue_format import QueueFormat, QueueFormatType, queue_format_for
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.status import Status
from srmp_spark.testing.queue_manager import RunningQueueManager

_NAMES = itertools.count(1)


class Served(RunningQueueManager):
    """With a port for remote read, which is kept over restarts."""

    def __init__(self, data_dir: Path, **options: object) -> None:
        super().__init__(data_dir, **{"rpc": "127.0.0.1:0", "host_name": ["host1"], **options})

    @property
    def client(self) -> QueueManagerClient:
        return QueueManagerClient(self.api, retry_seconds=60)

    @property
    def rpc(self) -> tuple[str, int]:
        host, _, port = self.ready["rpc"].rpartition(":")
        return host, int(port)

    def queue(self, *, transactional: bool = False, journal: bool = False) -> str:
        """A new queue."""
        name = f"private$/q{next(_NAMES)}"
        self.client.put_queue(name, transactional=transactional, journal=journal)
        return name

    def send(self, queue: str, *priorities: int, body: bytes = b"body %d") -> None:
        """A message for each; their bodies count from 1 within the call."""
        transactional = self.client.queue(queue)["transactional"]
        self.client.send(
            queue,
            [
                {
                    "label": f"message {n}",
                    "body_base64": base64.b64encode(body % n if b"%d" in body else body).decode(),
                    **({} if transactional else {"priority": priority}),
                }
                for n, priority in enumerate(priorities, 1)
            ],
        )

    def machine(self, settings: ClientSettings | None = None) -> RemoteMachine:
        return RemoteMachine.connect(*self.rpc, settings)

    def waiting(self, queue: str) -> int:
        return int(self.client.queue(queue)["waiting"])


def any_name(queue: str) -> QueueFormat:
    """A direct name as a hostile client writes one, which need not be a name at all."""
    return QueueFormat(QueueFormatType.DIRECT, text="OS:host1\\" + queue.replace("/", "\\"))


def opened(
    machine: RemoteMachine, queue: str, *, receive: bool = False, share: int = SHARE_DENY_NONE
) -> RemoteQueue:
    return machine.open(
        queue_format_for("host1", queue), ACCESS_RECEIVE if receive else ACCESS_PEEK, share
    )


def move(
    queue: RemoteQueue, to: str, *, lookup_id: int, transaction: bytes = NO_TRANSACTION
) -> Status:
    """R_OpenQueueForMove and R_MoveMessage."""
    machine = queue._machine
    opened_there = machine.call(11, OpenRequest(queue_format_for("host1", to), ACCESS_MOVE))
    asked = MoveMessageRequest(queue.handle, opened_there.move_context, lookup_id, transaction)
    answer = machine.call(10, asked)
    machine.checked(3, HandleRequest(opened_there.handle))
    return Status(answer.status)


def bodies(queue: RemoteQueue) -> list[str]:
    return [each.packet.body.decode() for each in queue.walk()]
