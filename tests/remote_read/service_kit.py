"""The service of remote read over a real queue manager without ports, and one client of it."""

from __future__ import annotations

import asyncio
import base64
import itertools
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from srmp_spark.clock import SystemClock
from srmp_spark.mqrr.ndr.methods import ACCESS_RECEIVE, METHODS, OpenRequest
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.api.messages import MessagesApi
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.configured_queues import ensure_queues
from srmp_spark.queue_manager.maintenance import Maintenance
from srmp_spark.queue_manager.remote_read.service import RemoteReadService
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.store.directory import DataDirectory

QUEUE, RETRY = "private$/payments", "private$/payments;retry"


class OneClient:
    """A client of the service, and the connection that the service answers."""

    def __init__(self, manager: QueueManager) -> None:
        ids, uuids = itertools.count(1), itertools.count(1)
        groups: Associations[Any] = Associations(
            new_id=lambda: next(ids), new_uuid=lambda: next(uuids).to_bytes(16, "big")
        )
        self.manager = manager
        self.service = RemoteReadService(manager, 2103)
        self.service.connected(self, self)
        self._association = groups.join(0, "192.0.2.1")
        self._answers: dict[int, asyncio.Future[Any]] = {}

    # --- as a connection

    def has_room(self) -> bool:
        return True

    def respond(self, call_id: int, stub: bytes) -> None:
        self._answers[call_id].set_result(stub)

    def fail(self, call_id: int, status: int) -> None:
        self._answers[call_id].set_exception(AssertionError(Status(status).name))

    # --- as a client

    async def ask(self, opnum: int, asked: Any) -> Any:
        number = len(self._answers)
        answer = self._answers[number] = asyncio.get_running_loop().create_future()
        self.service.call(
            self,
            CallReceived(
                number, REMOTE_READ, NDR, opnum, asked.encode(NDR), self._association, None, 1
            ),
        )
        return METHODS[opnum].decode_response(await asyncio.wait_for(answer, 60), NDR)

    async def opened(self, name: str = QUEUE) -> Any:
        return (
            await self.ask(2, OpenRequest(queue_format_for("host1", name), ACCESS_RECEIVE))
        ).handle

    def waiting(self, name: str = QUEUE) -> int:
        return self.manager.catalogue.find(name).state.count


def rig(directory: Path, test: Callable[[OneClient], Awaitable[None]]) -> None:
    """One life of a queue manager without ports, with its reader process."""

    async def main() -> None:
        queues = [f"{QUEUE}:transactional", f"{RETRY}:transactional"]
        config = load(
            {"data_dir": str(directory), "queue": queues, "host_name": ["host1", "h"]}, {}
        )
        clock = SystemClock()
        with DataDirectory.open(directory, now=clock.utc()) as data:
            manager = QueueManager(
                config,
                data,
                config.local_hosts(config.listen),
                "http://h",
                clock,
                on_fatal=pytest.fail,
            )
            await ensure_queues(manager)
            Maintenance(manager, on_unused=lambda: None).start_reader()
            client = OneClient(manager)
            try:
                await test(client)
            finally:
                await client.service.stop()
                await manager.reader.stop()
                await manager.stop_sending()
                await manager.journal.drain()
                manager.journal.close()

    asyncio.run(main())


async def send(manager: QueueManager, count: int) -> None:
    async def pieces(_limit: int) -> list[bytes]:
        items = [
            {"body_base64": base64.b64encode(b"body %d" % n).decode()} for n in range(1, count + 1)
        ]
        return [json.dumps(items).encode()]

    request: Any = SimpleNamespace(parameters={"queue": QUEUE}, pieces=pieces)
    await MessagesApi(manager).post(request)
