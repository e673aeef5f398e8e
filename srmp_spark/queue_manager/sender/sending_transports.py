"""The table of the transports by which this process sends, and what they are built from.

A new transport is a class that derives from :class:`.SendingTransport`, in a folder of its own, and
a line of ``_BUILDERS``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from srmp_spark.queue_manager.multicast.settings import PgmSettings
from srmp_spark.queue_manager.posting.http_answer import PeerAnswer
from srmp_spark.queue_manager.sender.crossing import SessionEntries
from srmp_spark.queue_manager.sender.http.connections import Connections
from srmp_spark.queue_manager.sender.multicast.multicasts import Multicasts
from srmp_spark.queue_manager.sender.reliable.reliable_sessions import ReliableSessions
from srmp_spark.queue_manager.sender.sending_transport import SendingTransport
from srmp_spark.queue_manager.trust.tls import ClientTls
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, Send
from srmp_spark.store.outbox.tables.sessions import SessionRow
from srmp_spark.transports import Transport
from srmp_spark.wsrm.limits import POLL_INTERVAL


@dataclass(frozen=True, slots=True)
class TransportSettings:
    """What the configuration and the last process leave to the transports."""

    endpoint_of: Callable[[str], str] = lambda destination: destination
    """Function that returns the URL to connect to for a URL ([MC-MQSRM] 3.1.7.9)."""
    tls: ClientTls = field(default_factory=ClientTls)
    multicast: PgmSettings | None = None
    """Settings of multicast, or ``None`` if this queue manager sends none."""
    sessions: Mapping[QueueKey, SessionRow] = field(default_factory=dict)
    """The reliable sessions that the last process left."""
    poll_interval: float = POLL_INTERVAL
    """Polling interval of reliable sessions, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reports:
    """Functions that a transport calls. Each transport calls those that concern it."""

    on_answer: Callable[[Send, PeerAnswer], object]
    """Called with a message and the complete answer to it."""
    on_failure: Callable[[Send, str, bool], object]
    """Called with a message that failed, the reason, and whether bytes of it were sent."""
    on_unsent: Callable[[Send], object]
    """Called with a message that was not sent. Its end is reported after the earlier ones."""
    on_withdrawn: Callable[[Send], object]
    """Called with a message that was not sent, because of the answer to the one before it."""
    on_expired: Callable[[Send], object]
    """Called with a message that expired before a number was assigned to it."""
    on_doubt: Callable[[Send], object]
    """Called with a message without an answer, before it is sent once more."""
    on_sending: Callable[[Send], object]
    """Called with a message when a session sends it, perhaps again."""
    on_closed: Callable[[QueueKey], object]
    """Called when a connection without messages has ended."""
    on_reached: Callable[[Load], object]
    """Called when the messages of a load may be read."""
    on_not_reached: Callable[[Load, str], object]
    """Called when no connection can be made for a load, with the reason."""
    on_addresses: Callable[[QueueKey, Sequence[str]], object]
    """Called with the addresses of the host of a queue, before a connection is made."""
    on_trouble: Callable[[QueueKey, str | None], object]
    """Called with the reason why a queue cannot send, or ``None`` when it can send again."""
    on_lost: Callable[[QueueKey, str], object]
    """Called when a queue must be held for an operator, with the reason."""
    on_change: Callable[[], object]
    """Called when a session has changes to be written to the outbox."""
    late_at: Callable[[], int]
    """Returns the time against which expiry is checked, in microseconds since 1970 (UTC)."""


def _http(settings: TransportSettings, identity: str, reports: Reports) -> SendingTransport:
    return Connections(
        asyncio.get_running_loop(),
        on_answer=reports.on_answer,
        on_failure=reports.on_failure,
        on_unsent=reports.on_unsent,
        on_withdrawn=reports.on_withdrawn,
        on_closed=reports.on_closed,
        on_doubt=reports.on_doubt,
        on_reached=reports.on_reached,
        on_not_reached=reports.on_not_reached,
        on_addresses=reports.on_addresses,
        endpoint_of=settings.endpoint_of,
        tls=settings.tls,
    )


def _multicast(settings: TransportSettings, identity: str, reports: Reports) -> SendingTransport:
    return Multicasts(
        settings.multicast,
        identity,
        on_answer=reports.on_answer,
        on_failure=reports.on_failure,
        on_trouble=reports.on_trouble,
    )


def _reliable(settings: TransportSettings, identity: str, reports: Reports) -> SendingTransport:
    return ReliableSessions(
        settings.sessions,
        tls=settings.tls,
        endpoint_of=settings.endpoint_of,
        poll_interval=settings.poll_interval,
        late_at=reports.late_at,
        on_answer=reports.on_answer,
        on_failure=reports.on_failure,
        on_expired=reports.on_expired,
        on_left=reports.on_sending,
        on_trouble=reports.on_trouble,
        on_lost=reports.on_lost,
        on_change=reports.on_change,
    )


_BUILDERS: Mapping[Transport, Callable[[TransportSettings, str, Reports], SendingTransport]] = {
    Transport.HTTP: _http,
    Transport.MULTICAST: _multicast,
    Transport.RELIABLE: _reliable,
}
"""Transport → function that builds the object that sends by it."""


class SendingTransports:
    """The transports of one sender process."""

    def __init__(self, settings: TransportSettings, identity: str, reports: Reports) -> None:
        """Build all transports; ``identity`` is the GUID of this queue manager.

        Raises :class:`ConfigurationError` if a stored session names unknown versions.
        """
        self._all = {each: build(settings, identity, reports) for each, build in _BUILDERS.items()}
        self._with_sessions = tuple(
            self._all[each] for each in Transport if each.rules.numbers_in_session
        )

    def __repr__(self) -> str:
        return f"<SendingTransports {' '.join(map(repr, self._all.values()))}>"

    def of(self, key: QueueKey) -> SendingTransport:
        """Return the transport of an outgoing queue."""
        return self._all[key.transport]

    def status(self, key: QueueKey) -> SessionEntries:
        """Return the entries of ``status.outgoing`` about the session of a queue.

        There is an entry for each transport with sessions; those of other transports are ``None``.
        """
        found: dict[str, dict[str, Any] | None] = {
            each.rules.status: None for each in Transport if each.rules.status
        }
        if key.transport.rules.status:
            found[key.transport.rules.status] = self.of(key).status(key)
        return cast("SessionEntries", found)

    # --- sessions that the outbox stores ----------------------------------------------------------

    def has_changes(self) -> bool:
        """Return whether a session has changes to be written to the outbox."""
        for each in self._with_sessions:  # noqa: SIM110  # called for each message: any() is slower
            if each.has_changes():
                return True
        return False

    def take_changes(self) -> dict[QueueKey, SessionRow | None]:
        """Return the changes of all sessions for the next transaction, by queue.

        Call :meth:`stored` with them after the transaction.
        """
        return {
            key: row for each in self._with_sessions for key, row in each.take_changes().items()
        }

    def stored(self, changes: Mapping[QueueKey, SessionRow | None]) -> None:
        """Note that ``changes`` are on stable storage."""
        for transport in self._with_sessions:
            own = {key: row for key, row in changes.items() if self.of(key) is transport}
            transport.stored(own)

    async def stop(self) -> None:
        """Close all connections and sessions, and report nothing about messages."""
        for each in self._all.values():
            await each.stop()
