"""Messages that leave by a reliable session (WS-ReliableMessaging): each is finished when its number is acknowledged.

Who numbers them, holds them until their destination has room and sends them again is the session
(:mod:`srmp_spark.queue_manager.sender.reliable_wire`). So they are handed out as many at once as it holds, in their order, and
trouble is told here only of what has no number yet: what has one stays with its session.
"""

from __future__ import annotations

from srmp_spark.srmp.outgoing_effects import OutgoingQueueRow, Send
from srmp_spark.srmp.outgoing_ledger import OutgoingLedger
from srmp_spark.srmp.outgoing_regular import OutgoingRegular
from srmp_spark.srmp.outgoing_states import SenderSettings

HANDED_OUT_MAX = 64
"""Messages of one destination that its session holds: those on their way, and as many that get their numbers in one sync
meanwhile."""


class OutgoingReliable(OutgoingRegular):
    """The messages to one service."""

    def __init__(
        self, row: OutgoingQueueRow, identity: str, settings: SenderSettings, ledger: OutgoingLedger
    ) -> None:
        super().__init__(row, identity, settings, ledger)
        self.window = self.window_max = HANDED_OUT_MAX

    def expired(self, send: Send) -> None:
        """Its time was over before it got a number: it never left."""
        self._ended(send)
        self._not_received(send)
        if send.pass_number == self.pass_number:
            self.bury(send.serial, send.serial, "expired", in_doubt=self.may_be_held(send.serial))
            self._gone(send)

    def resume(self) -> None:
        """As always, but for the window: it is the session that feels its way."""
        super().resume()
        self.window = self.window_max

    def _trouble(self, send: Send, now: float, retry_after: float | None) -> None:
        super()._trouble(send, now, retry_after)
        self.window = self.window_max
