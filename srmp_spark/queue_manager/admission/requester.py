"""Define who asks for the admission of a message and gets its answer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from srmp_spark.message import Transport
    from srmp_spark.srmp.receiving.effects import Ok, Refused


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
    """A connection of a sender of messages, plain or over TLS, or a source of PGM."""

    @property
    def scheme(self) -> Transport:
        """Return the transport of the connection: ``http``, ``https`` or ``pgm``."""

    @property
    def peer(self) -> str:
        """Return the sender's address as ``host:port``."""

    @property
    def sender_name(self) -> str | None:
        """Return the authenticated name of the sender, or ``None`` if it has none."""


class Refusable(Protocol):
    """The part of a :class:`Requester` that a refusal needs."""

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """Answer that the message is not stored, as :meth:`Requester.refuse`."""


def answer(requester: Refusable, refused: Refused) -> None:
    """Answer ``requester`` with a verdict, in the words of its transport."""
    requester.refuse(refused.status, refused.reason, refused.section, refused.retry_after)
