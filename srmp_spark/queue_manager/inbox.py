"""What stands between the SRMP port and those who judge and store: the requests go one way, their answers the other."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from srmp_spark.message import Transport
    from srmp_spark.queue_manager.request_head import RequestHead
    from srmp_spark.srmp.effects import Ok


class Requester(Protocol):
    """Who waits for the outcome of a message: a connection, or a call of the API."""

    @property
    def read_at(self) -> float:
        """When its last byte was read, ``time.perf_counter``."""

    def acknowledge(self, ok: Ok) -> None:
        """It is stored."""

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """It is not."""


class Sender(Requester, Protocol):
    """A connection of a sender, plain or over TLS."""

    @property
    def scheme(self) -> Transport:
        """``http`` or ``https``."""

    @property
    def peer(self) -> str:
        """``host:port``."""

    @property
    def sender_name(self) -> str | None:
        """The authenticated name."""


class Inbox(Protocol):
    """What the SRMP port hands requests to. The answer comes by one of the sender's two methods, at once or later."""

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` for a request target that can be no queue of ours."""

    def accept(self, connection: Sender, head: RequestHead, post: bytes, head_length: int) -> None:
        """A whole request."""
