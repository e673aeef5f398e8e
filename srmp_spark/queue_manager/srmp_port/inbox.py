"""Define the protocols between the SRMP port and the code that judges and stores messages.

Requests pass one way, and their answers pass the other way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from srmp_spark.message import Transport
    from srmp_spark.queue_manager.srmp_port.request_head import RequestHead
    from srmp_spark.srmp.receiving.effects import Ok


class Requester(Protocol):
    """The receiver of the answer about a message: a connection, or a call of the API."""

    @property
    def read_at(self) -> float:
        """Return the time at which the last byte of the message was read.

        It is in seconds of ``time.perf_counter``.
        """

    def acknowledge(self, ok: Ok) -> None:
        """Answer that the message is stored. Called at most once, and not after :meth:`refuse`."""

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """Answer that the message is not stored.

        ``status`` is that of HTTP. ``reason`` is a short name. ``section`` names the specification.
        ``retry_after`` are the seconds after which the sender may try again.
        """


class Sender(Requester, Protocol):
    """A connection of a sender of messages, plain or over TLS."""

    @property
    def scheme(self) -> Transport:
        """Return the scheme of the connection: ``http`` or ``https``."""

    @property
    def peer(self) -> str:
        """Return the sender's address as ``host:port``."""

    @property
    def sender_name(self) -> str | None:
        """Return the authenticated name of the sender, or ``None`` if it has none."""


class Inbox(Protocol):
    """Judges and stores the requests of the SRMP port: :class:`.Acceptor`.

    It answers by one of the sender's two methods, :meth:`Requester.acknowledge` and
    :meth:`Requester.refuse`, at once or later.
    """

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` for a request target that can be no local queue."""

    def accept(self, connection: Sender, head: RequestHead, post: bytes, head_length: int) -> None:
        """Judge one whole request, and answer it at once or later.

        The first ``head_length`` bytes of ``post`` are the HTTP head.
        """
