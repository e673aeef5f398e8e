"""Receive SRMP messages in a test, as a Windows machine would, and keep them.

The receiving queue manager is :class:`.foreign.destination_server.Destination`, written from
[MC-MQSRM] alone. It accepts each message once, in the order of its stream, and sends the stream
receipts that a sender waits for.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType

from srmp_spark.testing.foreign.destination_server import Destination
from srmp_spark.testing.foreign.faults import Faults
from srmp_spark.testing.foreign.receiving import AcceptedMessage

WAIT_SECONDS = 30.0
"""Default time-out of the methods that wait, in seconds.

A message takes a second on a busy machine, and a wrong test should fail soon. At the limit
:class:`TimeoutError` is raised.
"""
ALWAYS = 1.0
"""The chance of a fault that strikes every message, of 0 to 1."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that a destination has accepted.

    ``body`` and ``extension`` are as received; ``extension`` is empty without an extension.
    ``label`` is ``None`` if the ``<action>`` of the message does not begin with ``MSMQ:``.
    """

    queue: str
    """Name of the queue in lower case, for example ``private$/orders``."""
    body: bytes
    label: str | None
    extension: bytes
    message_id: str
    r"""The identifier ``{GUID}\N``, as the column ``message_id`` has it."""
    stream_id: str | None
    r"""Stream of a transactional message, as ``uid:GUID\N``; ``None`` for any other message."""
    stream_sequence: int | None
    """Position of the message in its stream, from 1; ``None`` without a stream."""
    received_at: float
    """Time of the arrival, in seconds since 1970."""


class ForeignDestination:
    """A receiving queue manager on a free port of 127.0.0.1, for one ``with`` statement.

    ``queues`` maps the name of each queue to whether the queue is transactional. A message for a
    queue of another name, or of the other kind, is refused (400). With ``None`` every queue exists
    and accepts both kinds. A destination that was stopped cannot be started again.
    """

    def __init__(self, queues: Mapping[str, bool] | None = None) -> None:
        # Its identity comes from the seed, and those of two destinations must differ.
        self._peer = Destination(queues=queues, faults=Faults(seed=secrets.randbits(64)))

    def start(self) -> ForeignDestination:
        """Open the port and return this object.

        Raises :class:`RuntimeError` if the destination was started before.
        """
        self._peer.start()
        return self

    def stop(self) -> None:
        """Close the port and all connections. :meth:`messages` still returns the messages."""
        self._peer.stop()

    def __enter__(self) -> ForeignDestination:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def url(self, queue: str) -> str:
        """Return the URL of the queue named ``queue``, for column or option ``destination``."""
        return self._peer.url(queue)

    def messages(self, queue: str | None = None) -> list[ReceivedMessage]:
        """Return the accepted messages, or those of ``queue``, in the order of their arrival.

        The list is empty for a queue without messages. The case of ``queue`` does not matter.
        """
        queues = self._peer.queues
        chosen = queues.values() if queue is None else [queues.get(queue.lower(), [])]
        accepted = sorted((each for some in chosen for each in some), key=lambda each: each.n)
        return [_received(each) for each in accepted]

    def wait_for(
        self, count: int, seconds: float = WAIT_SECONDS, queue: str | None = None
    ) -> list[ReceivedMessage]:
        """Wait until at least ``count`` messages are accepted, and return all accepted messages.

        With ``queue`` only the messages of this queue are counted and returned. Raises
        :class:`TimeoutError` after ``seconds``.
        """
        if not self._peer.wait(count, seconds, queue):
            have = len(self.messages(queue))
            raise TimeoutError(
                f"{have} of {count} messages arrived at {self.url(queue or '')} in {seconds:g} s; "
                "srmp-spark status shows what waits at the sender"
            )
        return self.messages(queue)

    def wait_for_attempts(self, count: int, seconds: float = WAIT_SECONDS) -> None:
        """Wait until ``count`` POSTs have arrived since the destination was made, accepted or not.

        A message that is sent again counts again. Raises :class:`TimeoutError` after ``seconds``.
        """
        if not self._peer.wait_for_posts(count, seconds):
            raise TimeoutError(f"fewer than {count} messages were posted in {seconds:g} s")

    @property
    def violations(self) -> list[str]:
        """Return a text for each act of a sender that [MC-MQSRM] does not allow, in order.

        The list is empty if every sender kept the rules, as ``srmp-spark`` does.
        """
        return [str(each) for each in self._peer.violations]

    # --- trouble ----------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Answer 400 to every message from now on.

        The sender then gives the message up as a dead letter.
        """
        self._peer.faults = Faults({"400": (ALWAYS, 0.0)})

    def fail(self, status: int = 503) -> None:
        """Answer ``status`` to every message from now on and accept none.

        The sender tries again later. ``status`` is from 300 to 599; any other value raises
        :class:`ValueError`. The value 400 does the same as :meth:`refuse`.
        """
        self._peer.faults = Faults.parse(f"{status}={ALWAYS}")

    def slow_down(self, seconds: float) -> None:
        """Delay each message from now on by ``seconds`` before it is accepted and answered."""
        self._peer.faults = Faults({"slow": (ALWAYS, seconds)})

    def recover(self) -> None:
        """Accept and answer every message at once from now on, as a new destination does."""
        self._peer.faults = Faults()


def _received(accepted: AcceptedMessage) -> ReceivedMessage:
    return ReceivedMessage(
        queue=accepted.queue,
        body=accepted.body,
        label=accepted.label,
        extension=accepted.extension,
        message_id=f"{{{accepted.lineage}}}\\{accepted.uniquifier}",
        stream_id=accepted.stream_id,
        stream_sequence=None if accepted.stream_id is None else accepted.current,
        received_at=accepted.at,
    )
