"""A foreign sender whose messages are for somebody else than whom it posts them to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import requests

from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.foreign.ports import kept_port
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.http import ReceiptsServer, Wire
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import ForeignQueueManager
from tests.kit.foreign.stream_sender import StreamSender

LOOPBACK = "http://127.0.0.1:*"
ELSEWHERE = "127.0.0.2"
"""An address of this machine that no queue manager here takes for its own: `<to>` with it is for another host."""


@dataclass(slots=True)
class Relayed(ForeignQueueManager):
    """It dials ``endpoint`` and writes another host into ``<to>``."""

    to: Callable[[str], str] = str

    def queue_url(self, queue: str) -> str:
        """What goes into ``<to>``."""
        return self.to(queue)


def send(running: RunningQueueManager, message: ForeignMessage) -> int:
    """Post one message; the status of the answer."""

    async def run() -> int:
        wire = Wire(lambda: running.endpoint, reply_timeout=10.0)
        answer = await wire.exchange(post(message).raw)
        await wire.close()
        return answer.status

    return asyncio.run(run())


def send_stream(
    running: RunningQueueManager, to: Callable[[str], str], queue: str, bodies: Sequence[bytes]
) -> Ledger:
    """Send a stream and return when its receipts cover all of it."""

    async def run() -> Ledger:
        ledger = Ledger()
        async with ReceiptsServer() as receipts:
            manager = Relayed(
                endpoint=lambda: running.endpoint, ledger=ledger, receipts_url=receipts.url(), to=to
            )
            receipts.on_receipt = manager.on_receipt
            sender = StreamSender(manager, queue)
            for body in bodies:
                sender.enqueue(body)
            sender.close()
            await asyncio.wait_for(sender.run(), 60)
            return ledger

    return asyncio.run(run())


def status(running: RunningQueueManager) -> dict[str, Any]:
    """``GET status``."""
    found: dict[str, Any] = requests.get(f"{running.api}/v1/status", timeout=30).json()
    return found


def forward_queue(running: RunningQueueManager) -> dict[str, Any]:
    """Its entry in ``status``; empty before its first message."""
    return next((each for each in status(running)["queues"] if each["name"] == FORWARD_QUEUE), {})


def toml(folder: Path, text: str) -> str:
    """A configuration file; its path."""
    file = folder / "serve.toml"
    file.write_text(text)
    return str(file)


def free_address() -> str:
    """``HOST:PORT`` where nobody listens now: of two that name each other one must be known before it runs."""
    return f"127.0.0.1:{kept_port()}"
