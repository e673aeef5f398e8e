"""Define what an HTTP port needs from the code that judges and stores its requests."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from srmp_spark.queue_manager.admission.requester import SenderConnection
    from srmp_spark.queue_manager.srmp_port.request_head import RequestHead


class Inbox(Protocol):
    """Judges and stores the requests of an HTTP port: :class:`.SrmpInbox`, :class:`.SoapFront`.

    It answers by one of the sender's two methods, :meth:`.Requester.acknowledge` and
    :meth:`.Requester.refuse`, at once or later.
    """

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` for a request target that can be no local queue."""

    def accept(
        self, connection: SenderConnection, head: RequestHead, post: bytes, head_length: int
    ) -> None:
        """Judge one whole request, and answer it at once or later.

        The first ``head_length`` bytes of ``post`` are the HTTP head.
        """
