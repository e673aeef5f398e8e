"""Define who asks for the admission of a message and gets its answer."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from srmp_spark.message import Transport
    from srmp_spark.srmp.receiving.effects import Ok, Refused


class Refusable(Protocol):
    """A request that may be refused."""

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """Answer that the message is not stored.

        ``status`` is that of HTTP. ``reason`` is a short name. ``section`` names the specification.
        ``retry_after`` are the seconds after which the sender may try again.
        """


class Requester(Refusable, Protocol):
    """The receiver of the answer about a message: a connection, or a call of the API."""

    @property
    def read_at(self) -> float:
        """Return the time at which the last byte of the message was read.

        It is in seconds of ``time.perf_counter``.
        """

    def acknowledge(self, ok: Ok) -> None:
        """Answer that the message is stored. Called at most once, and not after :meth:`refuse`."""


class SenderConnection(Requester, Protocol):
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


class Unawaited:
    """Takes the place of the requester of a row for which no client waits by itself.

    The row is part of a larger answer, such as that of a sequence or of a transaction.
    """

    __slots__ = ("read_at",)

    def __init__(self) -> None:
        self.read_at = time.perf_counter()

    def acknowledge(self, ok: Ok) -> None:
        """Do nothing, because the larger answer is given separately."""

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """Do nothing, because the engine was asked before whether the queue accepts the row."""


def answer(requester: Refusable, refused: Refused) -> None:
    """Answer ``requester`` with a verdict, in the words of its transport."""
    requester.refuse(refused.status, refused.reason, refused.section, refused.retry_after)
