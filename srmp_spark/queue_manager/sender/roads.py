"""Choose the transport of a destination: HTTP, multicast or a reliable session.

The dispatcher uses :class:`Roads`, and so needs to know hardly any difference between the
transports.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from srmp_spark.queue_manager.sender.http.connections import Connections
from srmp_spark.queue_manager.sender.multicast.multicasts import Multicasts
from srmp_spark.queue_manager.sender.reliable.reliable_sessions import ReliableSessions
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, Send
from srmp_spark.transports import Transport


class Roads:
    """Passes each call to the transport of its destination: HTTP, multicast or reliable session."""

    def __init__(
        self, connections: Connections, multicasts: Multicasts, sessions: ReliableSessions
    ) -> None:
        self._connections = connections
        self._multicasts = multicasts
        self.sessions = sessions
        self._of_transport: Mapping[Transport, Connections | Multicasts | ReliableSessions] = {
            Transport.HTTP: connections,
            Transport.MULTICAST: multicasts,
            Transport.RELIABLE: sessions,
        }

    def __repr__(self) -> str:
        return f"<Roads {self._connections!r} {self._multicasts!r} {self.sessions!r}>"

    def _of(self, key: QueueKey) -> Connections | Multicasts | ReliableSessions:
        return self._of_transport[key.transport]

    def is_reached(self, key: QueueKey) -> bool:
        """Return whether messages of a queue may be read from the outbox now.

        Only HTTP needs a connection first. Multicast and reliable sessions keep no more messages
        than they send.
        """
        road = self._of(key)
        return road is not self._connections or self._connections.is_reached(key)

    def reach(self, load: Load) -> None:
        """Connect to the HTTP destination, so that the messages of ``load`` may be read.

        The result is reported later (:meth:`.Connections.reach`).
        """
        self._connections.reach(load)

    def post(self, send: Send) -> None:
        """Send a message by the transport of its destination. Its end is reported once, later.

        Raises :class:`LocalProtocolError` if the message cannot be encoded.
        """
        self._of(send.key).post(send)

    def close(self, key: QueueKey) -> None:
        """Send nothing more of a queue for now; messages in flight are reported as failed."""
        self._of(key).close(key)

    def forget(self, key: QueueKey) -> None:
        """Forget a queue that no longer exists, and end its connection or session."""
        self._of(key).forget(key)

    def is_in_use(self, key: QueueKey) -> bool:
        """Return whether a multicast or reliable session of the queue is open.

        Such a session outlives its messages.
        """
        return self.multicast_status(key) is not None or self.sessions.status(key) is not None

    def multicast_status(self, key: QueueKey) -> dict[str, Any] | None:
        """Return the status of a destination's PGM session, or ``None`` if it has none."""
        return self._multicasts.status(key)

    async def stop(self) -> None:
        """Close all connections and sessions, and report nothing about messages."""
        await self._connections.stop()
        await self._multicasts.stop()
        await self.sessions.stop()
