"""What the SRMP port hands requests to: ``/msmq/QUEUE`` to the acceptor, ``/wsrm/QUEUE`` to the reliable queues.

A request for ``/wsrm/`` is judged as one for ``/msmq/`` is: gate, queue, writers, and only then its envelope. What is no SOAP
message that could be answered is 400; any other fault is told in SOAP. An address that a CreateSequence names for its
acknowledgements is looked up and judged before there is a sequence: one that could never be acknowledged is refused in words,
instead of letting its client wait for nothing.
"""

from __future__ import annotations

import asyncio
import logging
import re
from functools import lru_cache
from typing import TYPE_CHECKING

from srmp_spark.errors import RemoteProtocolError, StoreSyncError
from srmp_spark.message import Arrival
from srmp_spark.queue_manager.acceptor import GATE_SECTION, TARGETS_REMEMBERED, Acceptor, without_credentials
from srmp_spark.queue_manager.http_limits import RETRY_AFTER_SECONDS
from srmp_spark.queue_manager.writers import Caller, Writers
from srmp_spark.queue_manager.wsrm.replies import SoapReply, reply_of, reply_of_error
from srmp_spark.rows.group import Form, Record
from srmp_spark.srmp.http_head import check_target
from srmp_spark.store.wsrm_sequences import Origin
from srmp_spark.wsrm.decoder import decode
from srmp_spark.wsrm.destination_answers import is_address
from srmp_spark.wsrm.elements import Blame, CreateSequence, SoapMessage
from srmp_spark.wsrm.faults import FaultCode, SoapFaultError, fault_of

if TYPE_CHECKING:
    from srmp_spark.clock import Clock
    from srmp_spark.queue_manager.inbox import SoapSender
    from srmp_spark.queue_manager.metrics import Metrics
    from srmp_spark.queue_manager.request_head import RequestHead
    from srmp_spark.queue_manager.wsrm.queues import ReliableQueues
    from srmp_spark.queue_manager.wsrm.sending import WsrmSender

log = logging.getLogger(__name__)

SECTION = "WS-ReliableMessaging"
_WSRM = re.compile(rb"(?:https?://[^/]*)?/wsrm(?=[/\\])", re.IGNORECASE)
_MEDIA_TYPE = re.compile(rb"(?:text/xml|application/soap\+xml)[ \t]*(?:;|\Z)", re.IGNORECASE)
_CHARSET = re.compile(rb"charset[ \t]*=[ \t]*\"?([^\";,\s]+)", re.IGNORECASE)
TOLD_MAX = 1_000
"""Refusals that the log explains."""


@lru_cache(TARGETS_REMEMBERED)
def queue_of_target(target: bytes) -> str | None:
    """The queue of ``/wsrm/QUEUE``; ``None`` for any other path. Names and refusals are those of ``/msmq/QUEUE``."""
    match = _WSRM.match(target)
    return None if match is None else check_target(b"/msmq" + target[match.end() :])


class PortInbox:
    """Both protocols of the port."""

    def __init__(
        self, acceptor: Acceptor, queues: ReliableQueues, sender: WsrmSender, writers: Writers | None, metrics: Metrics,
        clock: Clock,
    ) -> None:  # fmt: skip
        self._acceptor = acceptor
        self._queues = queues
        self._sender = sender
        self._writers = writers
        self._metrics = metrics
        self._clock = clock
        self._told: set[tuple[str, str]] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def check_target(self, target: bytes) -> None:
        """Raise :class:`RemoteProtocolError` (400) for a request target that can be no queue of ours."""
        if queue_of_target(target) is None:
            self._acceptor.check_target(target)

    def accept(self, connection: SoapSender, head: RequestHead, post: bytes, head_length: int) -> None:
        """A whole request."""
        queue = queue_of_target(head.target)
        if queue is None:
            self._acceptor.accept(connection, head, post, head_length)
            return
        gate = self._acceptor.gate
        if gate is not None:
            connection.refuse(503, gate.reason, GATE_SECTION, RETRY_AFTER_SECONDS)
            return
        if self._writers is not None:
            caller = Caller(connection.peer, connection.sender_name, head.headers.get(b"authorization", b""))
            refused = self._writers.refuses(queue, caller)
            if refused is not None:
                connection.refuse(refused.status, refused.reason, refused.section)
                return
        content_type = head.headers.get(b"content-type", b"")
        charset = _CHARSET.search(content_type)
        if not _MEDIA_TYPE.match(content_type) or (charset is not None and charset[1].lower() not in (b"utf-8", b"us-ascii")):
            connection.refuse(415, "media-type", f"{SECTION}: text/xml or application/soap+xml in UTF-8, no MTOM")
            return
        try:
            message = decode(post[head_length:], len(post))
        except SoapFaultError as error:
            self._refuse(connection, 400, queue, str(error))
            connection.reply(reply_of_error(error))
            return
        except RemoteProtocolError as error:
            self._tell(queue, connection.peer, str(error))
            connection.refuse(error.status_hint, "malformed", error.section)
            return
        if head.has_credentials:
            post, head_length = without_credentials(post, head_length)
        origin = Origin(connection.peer, connection.sender_name, self._clock.utc())
        arrival = Arrival(origin.created_at, "wsrm", connection.peer, connection.sender_name)
        record = Record(arrival, post, head_length, Form.WSRM)
        if isinstance(message.content, CreateSequence):
            self._create(connection, queue, message, message.content, record, origin)
        else:
            self._receive(connection, queue, message, record, origin)

    def _receive(self, connection: SoapSender, queue: str, message: SoapMessage, record: Record, origin: Origin) -> None:
        if self._queues.is_missing(queue):
            self._tell(queue, connection.peer, "there is no such queue here (--unknown-queue retry)")
            connection.refuse(503, "unknown-queue", SECTION, RETRY_AFTER_SECONDS)
            return
        why = self._queues.refuses(queue)
        if why is not None:  # the queue was deleted under its sequences
            self._refuse(connection, 400, queue, why)
            connection.reply(_refusal(message, why))
            return
        self._queues.receive(queue, message, record, origin, lambda respond: connection.reply(reply_of(respond)))

    # --- CreateSequence -----------------------------------------------------------------------------------------------------

    def _create(
        self, connection: SoapSender, queue: str, message: SoapMessage, content: CreateSequence, record: Record, origin: Origin
    ) -> None:
        named = {each.address for each in (content.acks_to, message.reply_to) if each and is_address(each, message.addressing)}
        if not named:
            self._receive(connection, queue, message, record, origin)
            return
        task = asyncio.ensure_future(self._create_judged(connection, queue, message, sorted(named), record, origin))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _create_judged(
        self, connection: SoapSender, queue: str, message: SoapMessage, named: list[str], record: Record, origin: Origin
    ) -> None:
        try:
            for address in named:
                if not await self._sender.may_call(address, origin):
                    why = (
                        f"{address} may not be called from here; allow it with serve --allow-url, or use the anonymous address."
                    )
                    self._refuse(connection, 403, queue, why)
                    connection.reply(_refusal(message, why))
                    return
            self._receive(connection, queue, message, record, origin)
        except StoreSyncError:
            pass  # the process ends; nothing may be told of this one
        except Exception:  # the last line of defence, as in the port itself
            log.exception("wsrm.create_failed peer=%s", connection.peer)
            connection.refuse(503, "internal", "srmp-spark", RETRY_AFTER_SECONDS)

    # --- refusals -----------------------------------------------------------------------------------------------------------

    def _refuse(self, connection: SoapSender, status: int, queue: str, why: str) -> None:
        self._metrics.refuse(status, "wsrm")
        self._tell(queue, connection.peer, why)

    def _tell(self, queue: str, peer: str, why: str) -> None:
        """Once for each queue and reason: a client seldom shows what it was told."""
        if (queue, why) not in self._told and len(self._told) < TOLD_MAX:
            self._told.add((queue, why))
            log.warning('wsrm.refused queue=%s peer=%s because="%s"', queue, peer, why)


def _refusal(message: SoapMessage, why: str) -> SoapReply:
    """CreateSequenceRefused, or for a message of a sequence that has no queue any more, SequenceTerminated."""
    rm = message.rm
    code = FaultCode.CREATE_SEQUENCE_REFUSED if isinstance(message.content, CreateSequence) else FaultCode.SEQUENCE_TERMINATED
    identifier = "" if message.sequence is None else message.sequence.identifier
    fault = None if rm is None else fault_of(code, rm, identifier, why)
    error = SoapFaultError(
        why, section=SECTION, soap=message.soap, addressing=message.addressing, blame=Blame.SENDER,
        subcode="" if fault is None else fault.subcode, message_id=message.message_id,
    )  # fmt: skip
    if fault is not None:
        error.fault = fault
    return reply_of_error(error)
