"""Judge requests of WS-ReliableMessaging in the main process: who may write to which queue.

The gateway (:mod:`.gateway`) has read and decoded the message. :class:`.Admission` judges its
client and its queue, like those of every message. A CreateSequence may name an address for its
acknowledgements. This address is looked up and judged before the sequence exists. So a client that
could never be acknowledged is refused with a reason, and does not wait in vain.
"""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from srmp_spark.errors import ProcessMustEndError
from srmp_spark.log_once import OncePerKey
from srmp_spark.message import Arrival
from srmp_spark.queue_manager.admission.gate import RETRY_AFTER_SECONDS
from srmp_spark.queue_manager.admission.requester import answer
from srmp_spark.queue_manager.trust.writers import Caller
from srmp_spark.queue_manager.wsrm.crossing import (
    Asked,
    Client,
    SoapArrived,
    SoapRefused,
    SoapResponse,
    message_of,
)
from srmp_spark.queue_manager.wsrm.replies import SoapReply, reply_of, reply_of_error
from srmp_spark.rows.group import Form, Record
from srmp_spark.store.tables.wsrm_sequences import SequenceClient
from srmp_spark.wsrm.codec.elements import Blame, CreateSequence, SoapMessage
from srmp_spark.wsrm.codec.faults import FaultCode, SoapFaultError, fault_of
from srmp_spark.wsrm.receiving.destination_answers import is_address

if TYPE_CHECKING:
    from collections.abc import Callable

    from srmp_spark.clock import Clock
    from srmp_spark.queue_manager.admission.admission import Admission
    from srmp_spark.queue_manager.metrics import Metrics
    from srmp_spark.queue_manager.wsrm.queues import ReliableQueues
    from srmp_spark.queue_manager.wsrm.sending import WsrmSender
    from srmp_spark.wsrm.receiving.destination_effects import Respond

log = logging.getLogger(__name__)

SECTION = "WS-ReliableMessaging"


class SoapRequest:
    """One request of a client that waits for its answer, in the main process."""

    __slots__ = ("_number", "_send", "client", "read_at")

    def __init__(
        self, number: int, client: Client, send: Callable[[SoapResponse | SoapRefused], object]
    ) -> None:
        """Store the number and the client of a request.

        ``send`` sends an answer to the gateway that has the connection. An answer to a gateway that
        has ended is lost.
        """
        self._number = number
        self._send = send
        self.client = client
        self.read_at = time.perf_counter()

    @property
    def peer(self) -> str:
        """Return the address of the client, as ``host:port``."""
        return self.client.peer

    @property
    def sender_name(self) -> str | None:
        """Return the authenticated name of the client, or ``None``."""
        return self.client.sender_name

    def reply(self, reply: SoapReply) -> None:
        """Send an answer with SOAP, or with status 202 alone, to the gateway."""
        self._send(SoapResponse(self._number, reply.status, dict(reply.fields), reply.content))

    def respond(self, respond: Respond) -> None:
        """Send the response that the engine (:class:`.RmDestination`) decided, over HTTP."""
        self.reply(reply_of(respond))

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        """Send an answer with an HTTP status and without SOAP."""
        self._send(SoapRefused(self._number, status, reason, section, retry_after))

    def fail(self) -> None:
        """Send an answer 503 because of an internal error. The client repeats its message."""
        self.refuse(503, "internal", "srmp-spark", RETRY_AFTER_SECONDS)


class ReliableInbox:
    """Judges requests in the main process, and passes them to their queues."""

    def __init__(
        self,
        admission: Admission,
        queues: ReliableQueues,
        sender: WsrmSender,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._admission = admission
        self._queues = queues
        self._sender = sender
        self._metrics = metrics
        self._clock = clock
        self._refusals: OncePerKey[tuple[str, str]] = OncePerKey()
        self._tasks: set[asyncio.Task[None]] = set()

    def admits(self, asked: Asked | SoapArrived, request: SoapRequest) -> bool:
        """Return whether a message for its queue may be judged. Refuse ``request`` if not.

        The gate and the writers are asked, and for an :class:`Asked` also whether the queue accepts
        messages.
        """
        client = asked.client
        refused = self._admission.refuses_client(
            asked.queue, Caller(client.peer, client.sender_name, client.authorization)
        )
        if refused is None and isinstance(asked, Asked):
            # A large message for a queue that accepts none is not parsed only to be refused in
            # SOAP.
            session = self._admission.refuses_session(asked.queue)
            refused = session if session is not None and session.status == 400 else None
        if refused is not None:
            answer(request, refused)
        return refused is None

    def accept(self, arrived: SoapArrived, request: SoapRequest) -> None:
        """Judge a decoded message, and pass it to its queue or refuse it, now or later.

        A CreateSequence waits until its address is looked up. Raises :class:`ProcessMustEndError`
        as :meth:`.ReliableQueues.receive`.
        """
        if not self.admits(arrived, request):
            return
        message, client = message_of(arrived), arrived.client
        origin = SequenceClient(client.peer, client.sender_name, self._clock.utc())
        arrival = Arrival(origin.created_at, "wsrm", client.peer, client.sender_name)
        record = Record(arrival, arrived.post, arrived.head_length, Form.WSRM)
        if isinstance(message.content, CreateSequence):
            self._create(request, arrived.queue, message, message.content, record, origin)
        else:
            self._receive(request, arrived.queue, message, record, origin)

    def _receive(
        self,
        request: SoapRequest,
        queue: str,
        message: SoapMessage,
        record: Record,
        origin: SequenceClient,
    ) -> None:
        # The queue may have been deleted while its sequences were open.
        refused = self._admission.refuses_session(queue)
        if refused is None:
            self._queues.receive(queue, message, record, origin, request)
        elif refused.status == 503:
            self._tell(queue, request.peer, refused.message)
            answer(request, refused)
        else:
            self._refuse(request, 400, queue, refused.message)
            request.reply(_refusal(message, refused.message))

    # --- CreateSequence ---------------------------------------------------------------------------

    def _create(
        self,
        request: SoapRequest,
        queue: str,
        message: SoapMessage,
        content: CreateSequence,
        record: Record,
        origin: SequenceClient,
    ) -> None:
        named = {
            each.address
            for each in (content.acks_to, message.reply_to)
            if each and is_address(each, message.addressing)
        }
        if not named:
            self._receive(request, queue, message, record, origin)
            return
        task = asyncio.ensure_future(
            self._create_judged(request, queue, message, sorted(named), record, origin)
        )
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_judged(
        self,
        request: SoapRequest,
        queue: str,
        message: SoapMessage,
        named: list[str],
        record: Record,
        origin: SequenceClient,
    ) -> None:
        try:
            for address in named:
                if not await self._sender.may_call(address, origin):
                    why = (
                        f"{address} may not be called from here; allow it with serve "
                        "--allow-url, or use the anonymous address."
                    )
                    self._refuse(request, 403, queue, why)
                    request.reply(_refusal(message, why))
                    return
            self._receive(request, queue, message, record, origin)
        except ProcessMustEndError:
            # The process ends, and nothing may be reported about this message.
            pass
        except Exception:
            # This is the last line of defence, as in the port itself.
            log.exception("wsrm.create_failed peer=%s", request.peer)
            request.fail()

    # --- refusals ---------------------------------------------------------------------------------

    def _refuse(self, request: SoapRequest, status: int, queue: str, why: str) -> None:
        self._metrics.refuse(status, "wsrm")
        self._tell(queue, request.peer, why)

    def _tell(self, queue: str, peer: str, why: str) -> None:
        """Log why a request was refused, once for each queue and reason.

        At most KEYS_MAX pairs are logged. A client seldom shows its user the reason.
        """
        if self._refusals.is_new((queue, why)):
            log.warning('wsrm.refused queue=%s peer=%s because="%s"', queue, peer, why)


def _refusal(message: SoapMessage, why: str) -> SoapReply:
    """Return the answer with a SOAP fault for a message that its queue cannot accept.

    The fault is CreateSequenceRefused for a CreateSequence. The fault is SequenceTerminated for a
    message of a sequence whose queue no longer exists.
    """
    rm = message.rm
    code = (
        FaultCode.CREATE_SEQUENCE_REFUSED
        if isinstance(message.content, CreateSequence)
        else FaultCode.SEQUENCE_TERMINATED
    )
    identifier = "" if message.sequence is None else message.sequence.identifier
    fault = None if rm is None else fault_of(code, rm, identifier, why)
    error = SoapFaultError(
        why,
        section=SECTION,
        soap=message.soap,
        addressing=message.addressing,
        blame=Blame.SENDER,
        subcode="" if fault is None else fault.subcode,
        message_id=message.message_id,
    )
    if fault is not None:
        error.fault = fault
    return reply_of_error(error)
