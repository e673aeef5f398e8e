"""Count how many messages a destination can take: the advanced flow-control object.

Theory of operation ([MS-WSRVCRM] 3.1). The object has one state, FLOW_CONTROL_STATE, and one
number, Buffer Remaining, from 0 to a maximum. A message that becomes a row of the queue lowers the
number. Every acknowledgement carries the result of GET_BUFFER_REMAINING. A higher layer sets the
room with SET_BUFFER_REMAINING. In srmp-spark the higher layer is the queue, and its free room is
the value. The queue states its room when rows have left it, so there is no MESSAGE_PROCESSED for
each message. MESSAGE_RECEIVED keeps the value right between two readings of the queue's room.

Decisions where the text leaves a choice (``docs/adr/0018``). Only a *new* message lowers the value.
Copies and refused messages take no room, so they would lower the value forever. A value of 0 asks
the source to wait. It does not make the destination refuse messages that arrive nevertheless.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.limits import BUFFER_INITIAL, BUFFER_LIMIT, BUFFER_REMAINING_MAX


class FlowControlState(Enum):
    """The only state of the object (3.1.1.1)."""

    FLOW_CONTROL_STATE = auto()


class FlowControlEvent(Enum):
    """The events of section 3.1.7 that happen here, with its names."""

    GET_BUFFER_REMAINING = auto()
    MESSAGE_RECEIVED = auto()
    SET_BUFFER_REMAINING = auto()


def _unchanged(remaining: int) -> int:
    return remaining


def _received(remaining: int) -> int:
    return max(remaining - 1, 0)


_S, _E = FlowControlState, FlowControlEvent
TRANSITIONS: Mapping[
    tuple[FlowControlState, FlowControlEvent], tuple[FlowControlState, Callable[[int], int]]
] = {
    (_S.FLOW_CONTROL_STATE, _E.GET_BUFFER_REMAINING): (_S.FLOW_CONTROL_STATE, _unchanged),
    (_S.FLOW_CONTROL_STATE, _E.MESSAGE_RECEIVED): (_S.FLOW_CONTROL_STATE, _received),
    (_S.FLOW_CONTROL_STATE, _E.SET_BUFFER_REMAINING): (_S.FLOW_CONTROL_STATE, _unchanged),
}
"""Next state and function for the next value, by (state, event).

The function takes the present value. SET_BUFFER_REMAINING brings its own value.
"""


class FlowControlObject:
    """The advanced flow-control object (AFCO) of one destination.

    The destination chooses ``initial`` and ``maximum`` (3.1.3), in messages. Raises
    :class:`LocalProtocolError` unless 0 ≤ initial ≤ maximum ≤ ``BUFFER_REMAINING_MAX``.
    """

    __slots__ = ("_remaining", "maximum", "state")

    def __init__(self, initial: int = BUFFER_INITIAL, maximum: int = BUFFER_LIMIT) -> None:
        if not 0 <= initial <= maximum <= BUFFER_REMAINING_MAX:
            raise LocalProtocolError(
                f"Buffer Remaining lies between 0 and {maximum}, got {initial}"
            )
        self.maximum = maximum
        self.state = FlowControlState.FLOW_CONTROL_STATE
        self._remaining = initial

    def get_buffer_remaining(self) -> int:
        """Return the free room in messages, for an acknowledgement (3.1.7.1). The room stays."""
        self._happened(FlowControlEvent.GET_BUFFER_REMAINING)
        return self._remaining

    def message_received(self) -> None:
        """Subtract the room of one message, down to 0 (3.1.7.3).

        Called when a new message was accepted.
        """
        self._happened(FlowControlEvent.MESSAGE_RECEIVED)

    def set_buffer_remaining(self, new: int) -> None:
        """Set the free room to ``new`` messages (3.1.7.4).

        Raises :class:`LocalProtocolError` if ``new`` is below 0 or above the maximum.
        """
        if not 0 <= new <= self.maximum:
            raise LocalProtocolError(
                f"Buffer Remaining lies between 0 and {self.maximum}, got {new}"
            )
        self.state, _ = TRANSITIONS[self.state, FlowControlEvent.SET_BUFFER_REMAINING]
        self._remaining = new

    def _happened(self, event: FlowControlEvent) -> None:
        state, changed = TRANSITIONS[self.state, event]
        self.state = state
        new = changed(self._remaining)
        if new != self._remaining:
            self.set_buffer_remaining(new)

    def __repr__(self) -> str:
        return f"<FlowControlObject {self._remaining} of {self.maximum}>"
