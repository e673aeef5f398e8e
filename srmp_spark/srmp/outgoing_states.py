"""The states of an outgoing queue ([MS-MQDMPR] 3.1.1.3, [MC-MQSRM] 3.1.7), and the settings of the sending engine.

Theory of operation. ``Disconnected`` becomes ``Waiting`` when something is to leave, which needs a connection, and
``Connected`` with the first answer. No connection, or an
answer that says nothing about the message (5xx, another 4xx, a redirect), or none at all, makes it ``Inactive`` until the
Retransmission Timer ends; then one message tries again. ``OnHold`` is an operator's word and only an operator ends it.
Redirects are never followed, and only 400 ends a message: a 401, 403, 404 or 413 is a fault of a configuration, and the
message is ours until somebody repaired it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from srmp_spark.errors import ConfigurationError
from srmp_spark.srmp.limits import SEQUENCE_NUMBER_MAX

RESEND_TABLE_S = (30.0,) * 3 + (300.0,) * 3 + (1800.0,) * 3 + (21600.0,)
"""SRMPState.ResendTimerTable ([MC-MQSRM] 3.1.3.1)."""
RETRANSMISSION_TIMEOUT_S = 20.0
"""SRMPState.RetransmissionTimeout, Windows' value on a local network (appendix A <25>)."""
RETRY_AFTER_S_MIN = 1.0
RETRY_AFTER_S_MAX = 300.0
"""A peer's ``Retry-After`` counts within these: neither a tight loop nor a day's silence by a slip of the peer."""
FINAL_RECEIPT_WAIT_S = 30 * 86_400.0
"""Without any final stream receipt for this long those that are missing are given up. The text waits for ever.

The wall clock measures the wait across restarts, because no other clock goes on while the process does not run."""
FINAL_RECEIPT_GRACE_S = 3_600.0
"""What is left of that wait after a restart, at least. Receipts that were accepted while the process did not run lie in the
order queue and are read within seconds. It is also the time to set a clock right that was wrong when the machine started."""
IN_FLIGHT_MAX = 1_000
"""The largest window: 1,000 messages on a line of 0.1 s are 10,000 a second."""


class QueueState(Enum):
    """OutgoingQueue.State ([MS-MQDMPR] 3.1.1.3), as ``status`` shows it."""

    DISCONNECTED = "Disconnected"
    """Nothing is to be sent, or it is about to be."""
    WAITING = "Waiting"
    """A connection is made, or something is under way, and the peer has not answered yet."""
    CONNECTED = "Connected"
    INACTIVE = "Inactive"
    """The peer cannot take messages; the Retransmission Timer runs."""
    ON_HOLD = "OnHold"
    """Paused by an operator."""


class QueueEvent(Enum):
    """What moves an outgoing queue."""

    CONNECT = auto()
    """Something is to leave, and is read when there is a connection ([MC-MQSRM] 3.1.7.9)."""
    SEND = auto()
    ANSWERED = auto()
    """200 or 400."""
    TROUBLE = auto()
    """Any other answer, or none, or no connection."""
    RETRY = auto()
    """The Retransmission Timer ran out, or an operator asked."""
    CLOSED = auto()
    """The connection was closed while idle ([MC-MQSRM] 3.1.6.4)."""
    PAUSE = auto()
    RESUME = auto()


_S, _E = QueueState, QueueEvent
TRANSITIONS: Mapping[tuple[QueueState, QueueEvent], QueueState] = {
    (_S.DISCONNECTED, _E.CONNECT): _S.WAITING,
    (_S.WAITING, _E.CONNECT): _S.WAITING,
    (_S.CONNECTED, _E.CONNECT): _S.CONNECTED,
    (_S.DISCONNECTED, _E.SEND): _S.WAITING,
    (_S.WAITING, _E.SEND): _S.WAITING,
    (_S.CONNECTED, _E.SEND): _S.CONNECTED,
    (
        _S.DISCONNECTED,
        _E.ANSWERED,
    ): _S.CONNECTED,  # to what left before a pause, a retry or a closed connection
    (_S.WAITING, _E.ANSWERED): _S.CONNECTED,
    (_S.CONNECTED, _E.ANSWERED): _S.CONNECTED,
    (_S.INACTIVE, _E.ANSWERED): _S.INACTIVE,  # of what was under way beside the one in trouble
    (_S.ON_HOLD, _E.ANSWERED): _S.ON_HOLD,
    (_S.DISCONNECTED, _E.TROUBLE): _S.INACTIVE,
    (_S.WAITING, _E.TROUBLE): _S.INACTIVE,
    (_S.CONNECTED, _E.TROUBLE): _S.INACTIVE,
    (_S.INACTIVE, _E.TROUBLE): _S.INACTIVE,
    (_S.ON_HOLD, _E.TROUBLE): _S.ON_HOLD,
    (_S.DISCONNECTED, _E.RETRY): _S.DISCONNECTED,
    (_S.WAITING, _E.RETRY): _S.WAITING,
    (_S.CONNECTED, _E.RETRY): _S.CONNECTED,
    (_S.INACTIVE, _E.RETRY): _S.DISCONNECTED,
    (_S.ON_HOLD, _E.RETRY): _S.ON_HOLD,
    (_S.DISCONNECTED, _E.CLOSED): _S.DISCONNECTED,
    (_S.WAITING, _E.CLOSED): _S.DISCONNECTED,
    (_S.CONNECTED, _E.CLOSED): _S.DISCONNECTED,
    (_S.INACTIVE, _E.CLOSED): _S.INACTIVE,
    (_S.ON_HOLD, _E.CLOSED): _S.ON_HOLD,
    **{(state, _E.PAUSE): _S.ON_HOLD for state in _S},
    (_S.ON_HOLD, _E.RESUME): _S.DISCONNECTED,
    **{(state, _E.RESUME): state for state in _S if state is not _S.ON_HOLD},
}
"""An absent pair is our own bug: :class:`~srmp_spark.errors.LocalProtocolError`."""

MAY_SEND = (QueueState.DISCONNECTED, QueueState.WAITING, QueueState.CONNECTED)
"""Where messages leave and are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """What an operator may choose. Raises :class:`ConfigurationError` for what makes no sense."""

    resend_table: Sequence[float] = RESEND_TABLE_S
    retransmission_timeout: float = RETRANSMISSION_TIMEOUT_S
    in_flight_max: int = 1
    """Messages under way at once per destination; above 1 they are pipelined on its connection."""
    unacknowledged_max: int = 65_536
    """Messages that may wait for a stream receipt. Receipts come at most 10 s late, so this allows 6,500 a second; it is
    also what one time-out sends again."""
    stream_length_max: int = SEQUENCE_NUMBER_MAX
    """A position has 32 bits ([MC-MQSRM] 3.1.1.2): before they wrap the next stream begins."""
    final_receipt_wait: float = FINAL_RECEIPT_WAIT_S

    def __post_init__(self) -> None:
        if not self.resend_table or min(self.resend_table) <= 0 or self.retransmission_timeout <= 0:
            raise ConfigurationError(
                "--resend-table and --retransmission-timeout are seconds above 0"
            )
        if not 1 <= self.in_flight_max <= IN_FLIGHT_MAX:
            raise ConfigurationError(f"in_flight_max lies between 1 and {IN_FLIGHT_MAX}")
        if not 2 <= self.stream_length_max <= SEQUENCE_NUMBER_MAX:
            raise ConfigurationError(f"stream_length_max lies between 2 and {SEQUENCE_NUMBER_MAX}")
        if self.unacknowledged_max < 1 or self.final_receipt_wait <= 0:
            raise ConfigurationError(
                "unacknowledged_max is at least 1, final_receipt_wait is seconds above 0"
            )
