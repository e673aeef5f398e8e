"""Judge whether a message of a client may enter. The package's docstring has the order of checks.

A verdict changes nothing, and nothing is answered here: the transport answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from srmp_spark.names import OWN_QUEUES
from srmp_spark.queue_manager.admission.gate import RETRY_AFTER_SECONDS
from srmp_spark.queue_manager.trust.writers import Caller
from srmp_spark.srmp.receiving.effects import Refused

if TYPE_CHECKING:
    from srmp_spark.errors import RemoteProtocolError
    from srmp_spark.message import Message
    from srmp_spark.queue_manager.admission.gate import Gate
    from srmp_spark.queue_manager.admission.refusal_log import RefusalLog
    from srmp_spark.queue_manager.admission.requester import SenderConnection
    from srmp_spark.queue_manager.admission.signatures import Signatures
    from srmp_spark.queue_manager.queues.catalogue import Catalogue
    from srmp_spark.queue_manager.trust.writers import Writers
    from srmp_spark.srmp.codec.mime import Parts
    from srmp_spark.srmp.receiving.receiver import Receiver

_SESSIONS = "WS-ReliableMessaging"


class Admission:
    """Judges the messages of all transports in the main process."""

    def __init__(
        self,
        gate: Gate,
        receiver: Receiver,
        catalogue: Catalogue,
        signatures: Signatures,
        writers: Writers | None,
        refusal_log: RefusalLog,
    ) -> None:
        """Prepare to judge. ``writers`` is ``None`` if every client may write to every queue."""
        self.gate = gate
        self._receiver = receiver
        self._catalogue = catalogue
        self._signatures = signatures
        self._writers = writers
        self.log = refusal_log

    def malformed(
        self, sender: SenderConnection, destination: str, error: RemoteProtocolError
    ) -> Refused:
        """Return the refusal of a message that cannot be decoded, and log it."""
        status, text = error.status_hint, str(error)
        self.log.tell(status, "malformed", destination, sender.peer, sender.sender_name, text)
        return Refused(error.status_hint, "malformed", text, error.section)

    def judge(
        self,
        sender: SenderConnection,
        message: Message,
        parts: Parts,
        post: bytes,
        head_length: int,
        authorization: bytes = b"",
    ) -> Message | Refused:
        """Judge signature and sender of a decoded message. Return the message, or the refusal.

        The returned message has the verdict of its signature. ``parts`` states where the parts of
        the message lie in ``post`` after the head. The access check replaces the one of [MC-MQSRM]
        3.1.5.1.12. It precedes the engine, so no state changes when it refuses. Raises
        :class:`RemoteProtocolError` if the signature is :meth:`malformed`.
        """
        if message.signature != "none":
            message = self._signatures.checked(message, post[head_length:], parts)
        if self._writers is not None:
            queue = self._receiver.judge(message)
            if not isinstance(queue, Refused):  # The engine gives the reason of its own refusal.
                caller = Caller(sender.peer, sender.sender_name, authorization)
                refused = self._writers.refuses(queue.name, caller)
                if refused is not None:
                    return refused
        return message

    def refuses_client(self, queue: str, caller: Caller) -> Refused | None:
        """Return the refusal if ``caller`` may not write to ``queue`` at present, or ``None``.

        The gate and the writers are asked. The queue need not exist.
        """
        if (closed := self.gate.closed) is not None:
            return closed
        return None if self._writers is None else self._writers.refuses(queue, caller)

    def refuses_session(self, queue: str) -> Refused | None:
        """Return the refusal if no session can begin for ``queue``, or ``None`` if one can.

        It is a 503 for a queue that is missing, if messages for it must wait at their sender
        (``--unknown-queue retry``), and otherwise a 400 with a sentence for the client.
        """
        found, entry = self._receiver.queues.get(queue), self._catalogue.get(queue)
        takes_messages = found is not None and found.declared
        if not takes_messages and self._receiver.settings.unknown_queue == "retry":
            why = "there is no such queue here (--unknown-queue retry)"
            return Refused(503, "unknown-queue", why, _SESSIONS, RETRY_AFTER_SECONDS)
        if not takes_messages or entry is None or queue in OWN_QUEUES or entry.log_name != queue:
            why = f"There is no queue {queue} here; create it with serve --queue."
        elif entry.state.transactional:
            why = (
                f"{queue} is transactional and takes only streams of MSMQ; send to a "
                "queue that is not."
            )
        else:
            return None
        return Refused(400, "unknown-queue", why, _SESSIONS)
