"""The advanced flow-control object of a destination: how many messages it can take ([MS-WSRVCRM] 3.1).

Theory of operation. There is one state, FLOW_CONTROL_STATE, and one number, Buffer Remaining, from 0 to a maximum. A message
that becomes a row of the queue lowers it, one that is processed raises it, GET_BUFFER_REMAINING is what every acknowledgement
carries, and SET_BUFFER_REMAINING is how a higher layer says how much room there is. Here that layer is the queue: its free
room counts, and the two others keep the value right between two looks at it.

What the text leaves open (``docs/adr/0018``): only a *new* message lowers the value, as copies and refused messages take no
room and the value would sink for ever; and 0 asks the source to wait, it does not make us refuse what comes all the same.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum, auto

from srmp_spark.errors import LocalProtocolError
from srmp_spark.wsrm.limits import BUFFER_INITIAL, BUFFER_LIMIT, BUFFER_REMAINING_MAX


class FlowControlState(Enum):
    """3.1.1.1: the only one."""

    FLOW_CONTROL_STATE = auto()


class FlowControlEvent(Enum):
    """3.1.7, in its names."""

    GET_BUFFER_REMAINING = auto()
    MESSAGE_PROCESSED = auto()
    MESSAGE_RECEIVED = auto()
    SET_BUFFER_REMAINING = auto()


def _unchanged(remaining: int, _maximum: int) -> int:
    return remaining


def _processed(remaining: int, maximum: int) -> int:
    return min(remaining + 1, maximum)


def _received(remaining: int, _maximum: int) -> int:
    return max(remaining - 1, 0)


_S, _E = FlowControlState, FlowControlEvent
TRANSITIONS: Mapping[
    tuple[FlowControlState, FlowControlEvent], tuple[FlowControlState, Callable[[int, int], int]]
] = {
    (_S.FLOW_CONTROL_STATE, _E.GET_BUFFER_REMAINING): (_S.FLOW_CONTROL_STATE, _unchanged),
    (_S.FLOW_CONTROL_STATE, _E.MESSAGE_PROCESSED): (_S.FLOW_CONTROL_STATE, _processed),
    (_S.FLOW_CONTROL_STATE, _E.MESSAGE_RECEIVED): (_S.FLOW_CONTROL_STATE, _received),
    (_S.FLOW_CONTROL_STATE, _E.SET_BUFFER_REMAINING): (_S.FLOW_CONTROL_STATE, _unchanged),
}
"""The state, and the value that is set next, from the present one and the maximum. SET_BUFFER_REMAINING brings its own."""


class FlowControlObject:
    """The AFCO. ``initial`` and ``maximum`` are given by the destination (3.1.3)."""

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
        """3.1.7.1: for an acknowledgement."""
        self._happened(FlowControlEvent.GET_BUFFER_REMAINING)
        return self._remaining

    def message_processed(self) -> None:
        """3.1.7.2: the application took one."""
        self._happened(FlowControlEvent.MESSAGE_PROCESSED)

    def message_received(self) -> None:
        """3.1.7.3: a new one is here."""
        self._happened(FlowControlEvent.MESSAGE_RECEIVED)

    def set_buffer_remaining(self, new: int) -> None:
        """3.1.7.4. Raises :class:`LocalProtocolError` for a value that the maximum does not allow."""
        if not 0 <= new <= self.maximum:
            raise LocalProtocolError(
                f"Buffer Remaining lies between 0 and {self.maximum}, got {new}"
            )
        self.state, _ = TRANSITIONS[self.state, FlowControlEvent.SET_BUFFER_REMAINING]
        self._remaining = new

    def _happened(self, event: FlowControlEvent) -> None:
        state, changed = TRANSITIONS[self.state, event]
        self.state = state
        new = changed(self._remaining, self.maximum)
        if new != self._remaining:
            self.set_buffer_remaining(new)

    def __repr__(self) -> str:
        return f"<FlowControlObject {self._remaining} of {self.maximum}>"
