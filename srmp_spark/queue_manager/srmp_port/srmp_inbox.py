"""Turn a whole POST to the SRMP port into a question about admission, and pass its message on.

**Every row can be decoded.** Readers decode the same bytes that are decoded before the engine sees
a message: the bytes of the stored post after its head. The Content-Type is the one that
:func:`content_type_of` finds in that head (:class:`RequestHead` has it from there,
``api/messages.py`` calls it). A message that cannot be decoded is refused, so no 200 stands for a
row that cannot be read.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.message import Arrival
from srmp_spark.queue_manager.admission.requester import answer
from srmp_spark.queue_manager.admission.targets import queue_of_srmp
from srmp_spark.queue_manager.srmp_port.http_limits import CONNECTIONS_MAX
from srmp_spark.queue_manager.srmp_port.request_head import without_credentials
from srmp_spark.queue_manager.srmp_port.srmp_endpoint import SrmpEndpoint
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.forward.forwarding import hops_of
from srmp_spark.srmp.receiving.effects import Refused

if TYPE_CHECKING:
    from srmp_spark.clock import Clock
    from srmp_spark.message import Message
    from srmp_spark.queue_manager.admission.acceptor import Acceptor
    from srmp_spark.queue_manager.admission.admission import Admission
    from srmp_spark.queue_manager.admission.requester import SenderConnection
    from srmp_spark.queue_manager.service import QueueManager
    from srmp_spark.queue_manager.srmp_port.request_head import RequestHead
    from srmp_spark.srmp.receiving.receiver import Receiver


class SrmpInbox:
    """Judges and stores the requests of the SRMP port."""

    def __init__(
        self, admission: Admission, acceptor: Acceptor, receiver: Receiver, clock: Clock
    ) -> None:
        self._admission = admission
        self._gate = admission.gate
        self._acceptor = acceptor
        self._receiver = receiver
        self._utc = clock.utc

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` as :func:`.queue_of_srmp`."""
        queue_of_srmp(target)

    def accept(
        self, connection: SenderConnection, head: RequestHead, post: bytes, head_length: int
    ) -> None:
        """Decode and judge one whole request of the SRMP port, and answer it now or later.

        A message that is accepted is answered when it is on stable storage. ``post`` is the whole
        request, of which the first ``head_length`` bytes are its head. Raises
        :class:`ProcessMustEndError` as :meth:`.Acceptor.take`.
        """
        if (closed := self._gate.closed) is not None:
            answer(connection, closed)
            return
        headers = head.headers
        authorization = headers.get(b"authorization", b"")
        try:
            message, parts = decode_parts(headers.get(b"content-type", b""), post[head_length:])
            verdict = self._admission.judge(
                connection, message, parts, post, head_length, authorization
            )
        except RemoteProtocolError as error:
            destination = head.target.decode("latin-1")
            answer(connection, self._admission.malformed(connection, destination, error))
            return
        if isinstance(verdict, Refused):
            answer(connection, verdict)
            return
        if head.has_credentials:
            post, head_length = without_credentials(post, head_length)
        if b"via" in headers:
            refused = self._receiver.refuses_hops(verdict, hops_of(headers[b"via"]))
            if refused is not None:
                answer(connection, refused)
                return
        if b"srmp-probe" in headers:
            self._probe(connection, verdict)
            return
        arrival = Arrival(self._utc(), connection.scheme, connection.peer, connection.sender_name)
        self._acceptor.take(verdict, arrival, post, head_length, connection)

    def _probe(self, connection: SenderConnection, message: Message) -> None:
        """Judge a message of ``srmp-spark doctor`` without storing it.

        Answer 204, or the refusal.
        """
        found = self._receiver.judge(message)
        if isinstance(found, Refused):
            answer(connection, found)
        else:
            connection.refuse(204, "probe", found.name)


def srmp_endpoint(manager: QueueManager, *, connections_max: int = CONNECTIONS_MAX) -> SrmpEndpoint:
    """Build the SRMP port of a queue manager, without a socket. Call it in the running loop."""
    inbox = SrmpInbox(manager.admission, manager.acceptor, manager.receiver, manager.clock)
    return SrmpEndpoint(
        inbox,
        count_refusal=manager.metrics.refuse,
        utc_seconds=time.time,
        connections_max=connections_max,
    )
