"""Outgoing messages of a reliable session (WS-ReliableMessaging).

A *number* is the message number of WS-ReliableMessaging in its session. Each message is finished
when its number is acknowledged. The session numbers the messages, holds them until their
destination has room, and sends them again
(:mod:`srmp_spark.queue_manager.sender.reliable.reliable_wire`). This queue therefore hands out as
many messages at once as the session holds, in order. A failure is reported to this queue only for a
message without a number; a message with a number stays with its session.
"""

from __future__ import annotations

from srmp_spark.srmp.sending.outgoing_effects import OutgoingQueueRow, Send
from srmp_spark.srmp.sending.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.sending.outgoing_regular import OutgoingRegular
from srmp_spark.srmp.sending.outgoing_states import SenderSettings

HANDED_OUT_MAX = 64
"""Most messages of one destination that its session holds: the messages in flight, and as many that
meanwhile get their numbers in one sync.
"""


class OutgoingReliable(OutgoingRegular):
    """Holds the messages to one service of WS-ReliableMessaging.

    Arguments and serials are those of :class:`.OutgoingQueue`.
    """

    def __init__(
        self, row: OutgoingQueueRow, identity: str, settings: SenderSettings, ledger: OutgoingLedger
    ) -> None:
        super().__init__(row, identity, settings, ledger)
        self.window = self.window_max = HANDED_OUT_MAX

    def expired(self, send: Send) -> None:
        """Make a dead letter of a message that expired before it got a message number.

        The message was never sent in this session.
        """
        self._ended(send)
        self._not_received(send)
        if send.pass_number == self.pass_number:
            self.bury(send.serial, send.serial, "expired", in_doubt=self.may_be_held(send.serial))
            self._gone(send)

    def resume(self) -> None:
        """End the pause that :meth:`pause` began; messages are sent again.

        At once as many messages as ``window_max`` may be in flight, not only one at first, because
        the session limits its own speed.
        """
        super().resume()
        self.window = self.window_max

    def _trouble(self, send: Send, now: float, retry_after: float | None) -> None:
        super()._trouble(send, now, retry_after)
        self.window = self.window_max
