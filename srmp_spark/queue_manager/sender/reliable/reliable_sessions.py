"""All services to which this queue manager sends by WS-ReliableMessaging.

The state of a reliable session is stored in the outbox.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from srmp_spark.errors import LocalProtocolError
from srmp_spark.names import reliable_url, split_url
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.http.addresses import HostAddresses
from srmp_spark.queue_manager.sender.http.connections import connections_allowed
from srmp_spark.queue_manager.sender.reliable.reliable_wire import ReliableWire
from srmp_spark.queue_manager.sender.reliable.soap_connection import SoapClientConnection
from srmp_spark.queue_manager.sender.sending_transport import SendingTransport
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, Send
from srmp_spark.store.outbox.tables.sessions import SessionRow

SESSIONS_MAX = 256
"""Most services at one time, with a connection and a task each.

A message that needs one more session fails and is tried again. A session ends
:data:`.reliable_limits.IDLE_SECONDS` after its last message. Together with the connections of SRMP
the sessions stay below the limit of descriptors.
"""
HOST_SHARE = 4
"""One host has at most this part of the sessions: one divided by this number."""

log = logging.getLogger(__name__)


class ReliableSessions(SendingTransport):
    """Sends messages by WS-ReliableMessaging: all reliable sessions of one sender process.

    The class implements :class:`.wire_owner.WireOwner`.
    """

    def __init__(
        self,
        rows: Mapping[QueueKey, SessionRow],
        *,
        tls: ClientTls,
        endpoint_of: Callable[[str], str],
        poll_interval: float,
        late_at: Callable[[], int],
        on_answer: Callable[[Send, PeerAnswer], object],
        on_failure: Callable[[Send, str, bool], object],
        on_expired: Callable[[Send], object],
        on_left: Callable[[Send], object],
        on_trouble: Callable[[QueueKey, str | None], object],
        on_lost: Callable[[QueueKey, str], object],
        on_change: Callable[[], object],
    ) -> None:
        """Resume the sessions of ``rows``, which were in progress when the last process ended.

        ``endpoint_of`` returns the URL to connect to for a URL. ``late_at`` returns the time
        against which expiry is checked, in microseconds since 1970. ``poll_interval`` is in
        seconds. ``on_change`` is called when there are changes to be written, ``on_lost`` when a
        queue must be held for an operator; the other callbacks are those of
        :class:`.wire_owner.WireOwner`. Raises :class:`ConfigurationError` if a row names unknown
        versions.
        """
        self.on_answer, self.on_failure, self.on_expired = on_answer, on_failure, on_expired
        self.on_left, self.on_trouble, self.on_lost = on_left, on_trouble, on_lost
        self._changed_now = on_change
        self._loop = asyncio.get_running_loop()
        self._addresses = HostAddresses(self._loop)
        self._tls = tls
        self._endpoint_of = endpoint_of
        self._poll_interval = poll_interval
        self._late_at = late_at
        self._most = min(SESSIONS_MAX, connections_allowed())
        self._changed: dict[QueueKey, None] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._wires = {key: self._wire(key, row) for key, row in rows.items()}

    def __repr__(self) -> str:
        return f"<ReliableSessions {len(self._wires)} changed={len(self._changed)}>"

    def _wire(self, key: QueueKey, row: SessionRow | None = None) -> ReliableWire:
        url = reliable_url(key.destination)
        assert url is not None, "every key is of this transport"
        connection = SoapClientConnection(url, self._addresses, self._tls, self._endpoint_of)
        return ReliableWire(
            key,
            url,
            self,
            connection,
            poll_interval=self._poll_interval,
            late_at=self._late_at,
            row=row,
        )

    def post(self, send: Send) -> None:
        """Send a message, in a new session if its destination has none.

        The end of the message is reported once, later, by ``on_answer``, ``on_failure`` or
        ``on_expired``. If there is no room for a new session, the message is reported as failed.
        Raises :class:`LocalProtocolError` for a row without a ``soap_action``.
        """
        if not send.stored.reliable:
            raise LocalProtocolError(
                "the message has no soap_action, so it cannot be sent in a reliable session"
            )
        wire = self._wires.get(send.key)
        if wire is None:
            why = self._has_no_room(send.key)
            if why is not None:
                self._loop.call_soon(self.on_failure, send, why, False)
                return
            wire = self._wires[send.key] = self._wire(send.key)
        wire.post(send)

    def _has_no_room(self, key: QueueKey) -> str | None:
        if len(self._wires) >= self._most:
            return (
                f"there are SESSIONS_MAX = {self._most} reliable sessions; one ends "
                "when it is not used"
            )
        share, host = max(1, self._most // HOST_SHARE), self._host_of(key)
        if sum(self._host_of(other) == host for other in self._wires) >= share:
            return (
                f"there are {share} reliable sessions to {host}, its share of "
                "SESSIONS_MAX; one ends when it is not used"
            )
        return None

    def _host_of(self, key: QueueKey) -> str:
        url = reliable_url(key.destination)
        assert url is not None, "every key is of this transport"
        return split_url(self._endpoint_of(url)).host

    def close(self, key: QueueKey) -> None:
        """Send nothing more of a queue for now; its messages are reported as failed.

        The sequence stays, and so do the numbers of its messages.
        """
        wire = self._wires.get(key)
        if wire is not None:
            wire.close("we closed the session")
            self._drop_if_over(wire)

    def reset(self, key: QueueKey) -> None:
        """Let the messages of a queue continue in a new sequence, because an operator decided so.

        Messages that are not acknowledged are sent again, even those that may have been accepted.
        """
        wire = self._wires.get(key)
        if wire is not None:
            wire.reset()

    def give_up(self, key: QueueKey) -> None:
        """Discard the sequence of a destination, and the record of acknowledged messages.

        The messages themselves are discarded by the engine. Call this after :meth:`close`.
        """
        wire = self._wires.get(key)
        if wire is not None:
            wire.give_up()

    def hurry(self, key: QueueKey) -> None:
        """Make the next attempt for a queue now, and send its messages in flight again."""
        wire = self._wires.get(key)
        if wire is not None:
            wire.hurry()

    def forget(self, key: QueueKey) -> None:
        """Forget a queue that no longer exists, and end its session without telling the service."""
        wire = self._wires.pop(key, None)
        self._changed.pop(key, None)
        if wire is not None:
            wire.close("the queue no longer exists")
            self._end(wire)

    def status(self, key: QueueKey) -> dict[str, Any] | None:
        """Return the status of a destination's session, or ``None`` if it has none."""
        wire = self._wires.get(key)
        return None if wire is None else wire.status()

    # --- what is written --------------------------------------------------------------------------

    def has_changes(self) -> bool:
        """Return whether sessions have changes to be written to the outbox."""
        return bool(self._changed)

    def take_changes(self) -> dict[QueueKey, SessionRow | None]:
        """Return the changes for the next transaction by queue, and clear the list of changes.

        ``None`` for a queue means that its stored row is to be deleted. Call :meth:`stored` after
        the transaction.
        """
        changed, self._changed = self._changed, {}
        return {
            key: wire.take_change() for key in changed if (wire := self._wires.get(key)) is not None
        }

    def stored(self, changes: Mapping[QueueKey, SessionRow | None]) -> None:
        """Note that ``changes`` are on stable storage. Sessions that are over are dropped."""
        for key in changes:
            wire = self._wires.get(key)
            if wire is not None:
                wire.stored()
                self._drop_if_over(wire)

    def on_change(self, key: QueueKey) -> None:
        """Note that the session of a queue has a change to be written; notify the dispatcher."""
        self._changed[key] = None
        self._loop.call_soon(self._changed_now)

    def _drop_if_over(self, wire: ReliableWire) -> None:
        if wire.is_over and self._wires.get(wire.key) is wire:
            del self._wires[wire.key]
            self._end(wire)

    def _end(self, wire: ReliableWire) -> None:
        task = wire.end()
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def stop(self) -> None:
        """Close all connections and report nothing.

        The stored sequences stay as they are, and the next process resumes them.
        """
        for wire in self._wires.values():
            self._end(wire)
        await asyncio.gather(*self._ending, return_exceptions=True)
        self._addresses.close()
