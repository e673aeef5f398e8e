"""Everything of WS-ReliableMessaging in one queue manager, put together."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Any

from srmp_spark.queue_manager.writers import Writers
from srmp_spark.queue_manager.wsrm.inbox import PortInbox
from srmp_spark.queue_manager.wsrm.queues import ReliableQueues
from srmp_spark.queue_manager.wsrm.sending import WsrmSender
from srmp_spark.store import wsrm_sequences
from srmp_spark.wsrm.destination_effects import DestinationSettings

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.queue_manager.tls import ClientTls


class ReliablePort:
    """:attr:`inbox` is what the SRMP port hands its requests to."""

    def __init__(self, manager: QueueManager, tls: ClientTls) -> None:
        config = manager.config
        stored = wsrm_sequences.load(manager.directory.writer)
        self._sender = WsrmSender(manager.receipts, tls)
        self._queues = ReliableQueues(
            manager, self._sender, new_identifier, stored, DestinationSettings(buffer=config.wsrm_buffer)
        )
        writers = Writers(config.writer, manager.tokens) if config.writer else None
        self.inbox = PortInbox(manager.acceptor, self._queues, self._sender, writers, manager.metrics, manager.clock)

    def status(self) -> list[dict[str, Any]]:
        """For ``status.incoming_sequences``."""
        return self._queues.status()

    async def close(self) -> None:
        """Nothing leaves by itself any more."""
        self._queues.close()
        await self._sender.close()


def new_identifier() -> str:
    """Of a sequence: nobody can guess it, so whoever knows it was told."""
    return f"urn:uuid:{uuid.uuid4()}"
