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
from srmp_spark.testing.foreign.receiving import Accepted

WAIT_SECONDS = 30.0
"""Default of the longest wait of :meth:`ForeignDestination.wait_for`, in seconds.

A busy machine needs a second, and a wrong test should fail soon. At the limit :class:`TimeoutError`
is raised.
"""
ALWAYS = 1.0
"""The chance of a fault that strikes every message."""


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A message that a destination has accepted."""

    queue: str
    """Name of the queue in lower case, for example ``private$/orders``."""
    body: bytes
    label: str | None
    extension: bytes
    message_id: str
    r"""The identifier ``{GUID}\N``, as the column ``message_id`` has it."""
    stream_id: str | None
    """Stream of a transactional message; ``None`` for any other message."""
    stream_sequence: int | None
    """Position of the message in its stream, from 1; ``None`` without a stream."""
    received_at: float
    """Time of the arrival, in seconds since 1970."""


class ForeignDestination:
    """A receiving queue manager on a free port of the loopback, open while the context lasts.

    ``queues`` maps the name of each queue to whether the queue is transactional. A message for a
    queue of another name, or of the other kind, is refused (400). With ``None`` every queue exists
    and accepts both kinds.
    """

    def __init__(self, queues: Mapping[str, bool] | None = None) -> None:
        # Its identity comes from the seed, and those of two destinations must differ.
        self._peer = Destination(queues=queues, faults=Faults(seed=secrets.randbits(64)))

    def start(self) -> ForeignDestination:
        """Open the port and return this object."""
        self._peer.start()
        return self

    def stop(self) -> None:
        """Close the port. The messages are kept."""
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
        """Return the URL of a queue, for column or option ``destination``."""
        return self._peer.url(queue)

    def messages(self, queue: str | None = None) -> list[ReceivedMessage]:
        """Return the accepted messages, or those of ``queue``, in the order of their arrival."""
        queues = self._peer.queues
        chosen = queues.values() if queue is None else [queues.get(queue.lower(), [])]
        accepted = sorted((each for some in chosen for each in some), key=lambda each: each.n)
        return [_received(each) for each in accepted]

    def wait_for(
        self, count: int, seconds: float = WAIT_SECONDS, queue: str | None = None
    ) -> list[ReceivedMessage]:
        """Return the accepted messages once there are at least ``count``.

        Raises :class:`TimeoutError` after ``seconds``.
        """
        if not self._peer.wait(count, seconds, queue):
            have = len(self.messages(queue))
            raise TimeoutError(
                f"{have} of {count} messages arrived at {self.url(queue or '')} in {seconds:g} s; "
                "srmp-spark status shows what waits at the sender"
            )
        return self.messages(queue)

    def wait_for_attempts(self, count: int, seconds: float = WAIT_SECONDS) -> None:
        """Wait until ``count`` messages were posted here since the beginning, accepted or not.

        A message that is sent again counts again. Raises :class:`TimeoutError` after ``seconds``.
        """
        if not self._peer.wait_for_posts(count, seconds):
            raise TimeoutError(f"fewer than {count} messages were posted in {seconds:g} s")

    @property
    def violations(self) -> list[str]:
        """Return what its senders did that [MC-MQSRM] does not allow; empty for ``srmp-spark``."""
        return [str(each) for each in self._peer.violations]

    # --- trouble ----------------------------------------------------------------------------------

    def refuse(self) -> None:
        """Answer 400 to every message from now on: it is a dead letter at its sender."""
        self._peer.faults = Faults({"400": (ALWAYS, 0.0)})

    def fail(self, status: int = 503) -> None:
        """Accept no message from now on and answer ``status``: its sender tries again later.

        ``status`` is from 300 to 599, but not 400.
        """
        self._peer.faults = Faults.parse(f"{status}={ALWAYS}")

    def slow_down(self, seconds: float) -> None:
        """Wait ``seconds`` before each message from now on is accepted and answered."""
        self._peer.faults = Faults({"slow": (ALWAYS, seconds)})

    def recover(self) -> None:
        """Accept and answer every message at once from now on, as at the beginning."""
        self._peer.faults = Faults()


def _received(accepted: Accepted) -> ReceivedMessage:
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
