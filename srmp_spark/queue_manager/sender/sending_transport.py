"""What the dispatcher expects of each transport by which messages are sent."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, Protocol

from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, Send
from srmp_spark.store.outbox.tables.sessions import SessionRow


class SendingTransport(Protocol):
    """All connections or sessions of one transport in one sender process.

    A transport derives from this class and overrides what concerns it. Every method is called in
    the loop of the dispatcher, with keys of this transport alone. A transport reports what happens
    to :class:`.sending_transports.Reports`, never inside a call of these methods.
    """

    def may_load(self, load: Load) -> bool:
        """Return whether the messages of ``load`` may be read from the outbox now.

        If not, the transport connects first, and reports ``on_reached`` or ``on_not_reached`` once,
        later. A transport that keeps no more messages than it sends needs no connection first.
        """
        return True

    @abstractmethod
    def post(self, send: Send) -> None:
        """Send a message, and report its end once, later.

        Raises :class:`LocalProtocolError` if the message cannot be encoded.
        """

    @abstractmethod
    def close(self, key: QueueKey) -> None:
        """Send nothing more of a queue for now. Messages in flight are reported as failed."""

    @abstractmethod
    def forget(self, key: QueueKey) -> None:
        """Forget a queue that no longer exists, and end its connection or session."""

    def status(self, key: QueueKey) -> dict[str, Any] | None:
        """Return the status of the session of a queue, which outlives its messages.

        Return ``None`` without a session. ``status.outgoing`` shows it under the name in the rules
        of the transport.
        """
        return None

    @abstractmethod
    async def stop(self) -> None:
        """Close all connections and sessions, and report nothing about messages."""

    # --- an operator's decisions, for a transport that numbers messages in sessions ---------------

    def hurry(self, key: QueueKey) -> None:
        """Make the next attempt for a queue now, and send its messages in flight again."""
        return  # Without a statement, mypy would take the method for an abstract one.

    def reset(self, key: QueueKey) -> None:
        """Let the messages of a queue continue in a new session."""
        return

    def give_up(self, key: QueueKey) -> None:
        """Discard the session of a queue, whose messages the engine discards next."""
        return

    # --- sessions that the outbox stores ----------------------------------------------------------

    def has_changes(self) -> bool:
        """Return whether sessions have changes to be written to the outbox."""
        return False

    def take_changes(self) -> Mapping[QueueKey, SessionRow | None]:
        """Return the changes for the next transaction, and begin to collect again.

        ``None`` for a queue means that its stored session is to be deleted.
        """
        return {}

    def stored(self, changes: Mapping[QueueKey, SessionRow | None]) -> None:
        """Note that ``changes`` are on stable storage."""
        return
