"""The advanced flow-control object of a destination ([MS-WSRVCRM] 3.1): one number, one state, four events.

Theory of operation. ``buffer_remaining`` goes into every acknowledgement. It counts messages that were not read yet, so a
reader that is slow brings it to 0, and the sender then waits. Only a *new* message is MESSAGE_RECEIVED: if copies or refused
ones counted, the number would sink and never rise again (the text leaves that open). Who keeps the queue knows better than a
count of events how much room there is, and says so by SET_BUFFER_REMAINING (3.1.7.4), which wins over everything counted
before.
"""

from __future__ import annotations

from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.limits import BUFFER_INITIAL, BUFFER_LIMIT


class FlowControlState(Enum):
    """3.1.1.1: "The AFCO has a single state"."""

    FLOW_CONTROL_STATE = auto()


class FlowControl:
    """The AFCO."""

    __slots__ = ("_remaining", "maximum", "state")

    def __init__(self, maximum: int = BUFFER_INITIAL, remaining: int | None = None) -> None:
        """3.1.3: both numbers come from the destination; ``remaining`` is ``maximum`` if nothing waits."""
        if not 1 <= maximum <= BUFFER_LIMIT:
            raise LocalProtocolError(f"a buffer of WS-ReliableMessaging holds 1 to {BUFFER_LIMIT} messages, not {maximum}")
        self.state = FlowControlState.FLOW_CONTROL_STATE
        self.maximum = maximum
        self._remaining = maximum
        if remaining is not None:
            self.set_buffer_remaining(remaining)

    def get_buffer_remaining(self) -> int:
        """GET_BUFFER_REMAINING (3.1.7.1): what the next acknowledgement says."""
        return self._remaining

    def message_processed(self) -> None:
        """MESSAGE_PROCESSED (3.1.7.2): a message was read."""
        if self._remaining < self.maximum:
            self.set_buffer_remaining(self._remaining + 1)

    def message_received(self) -> None:
        """MESSAGE_RECEIVED (3.1.7.3): a new message is stored."""
        if self._remaining > 0:
            self.set_buffer_remaining(self._remaining - 1)

    def set_buffer_remaining(self, new: int) -> None:
        """SET_BUFFER_REMAINING (3.1.7.4). Raises :class:`LocalProtocolError` outside of 0 to ``maximum``."""
        if not 0 <= new <= self.maximum:
            raise LocalProtocolError(f"Buffer Remaining lies between 0 and {self.maximum}, not at {new}")
        self._remaining = new
