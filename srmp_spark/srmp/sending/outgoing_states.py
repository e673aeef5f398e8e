"""The states of an outgoing queue, and the settings of the sending engine.

See [MS-MQDMPR] 3.1.1.3 and [MC-MQSRM] 3.1.7. Theory of operation. ``Disconnected`` becomes
``Waiting`` when a message is to be sent, which needs a connection. ``Waiting`` becomes
``Connected`` with the first answer. The queue becomes ``Inactive`` if there is no connection, no
answer, or an answer that decides nothing about the message (5xx, another 4xx, a redirect). When the
Retransmission Timer ends, one message is tried again. ``OnHold`` is set by an operator, and only an
operator ends it. Redirects are never followed. Only 400 ends a message: a 401, 403, 404 or 413 is
an error of a configuration, and the message stays in its queue until the configuration is repaired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from srmp_spark.errors import ConfigurationError
from srmp_spark.srmp.limits import SEQUENCE_NUMBER_MAX
from srmp_spark.srmp.waits import RESEND_TABLE_S, RETRANSMISSION_TIMEOUT_S

RETRY_AFTER_S_MIN = 1.0
RETRY_AFTER_S_MAX = 300.0
"""Longest wait for a peer's ``Retry-After``, in seconds; ``RETRY_AFTER_S_MIN`` is the shortest.

These limits prevent a tight loop and a silence of a day by mistake of the peer.
"""
FINAL_RECEIPT_WAIT_S = 30 * 86_400.0
"""Longest time without any final stream receipt, in seconds.

After this time the missing receipts are no longer awaited, and their messages become dead letters.
The specification waits for ever.

The wall clock measures the wait across restarts, because no other clock continues while the process
does not run.
"""
FINAL_RECEIPT_GRACE_S = 3_600.0
"""Shortest rest of the wait for final stream receipts after a restart, in seconds.

Receipts that were accepted while the process did not run are in the order queue and are read within
seconds. An operator can use this time to correct a clock that was wrong when the machine started.
"""
IN_FLIGHT_MAX = 1_000
"""Largest window in messages. 1,000 messages on a line of 0.1 s are 10,000 each second."""


class OutgoingState(Enum):
    """OutgoingQueue.State ([MS-MQDMPR] 3.1.1.3), as ``status`` shows it."""

    DISCONNECTED = "Disconnected"
    """There is nothing to send, or sending is about to begin."""
    WAITING = "Waiting"
    """A connection is opened or a message is in flight, and the peer has not answered yet."""
    CONNECTED = "Connected"
    INACTIVE = "Inactive"
    """The peer cannot accept messages, and the Retransmission Timer runs."""
    ON_HOLD = "OnHold"
    """An operator has paused the queue."""


class QueueEvent(Enum):
    """The events that change the state of an outgoing queue."""

    CONNECT = auto()
    """A message is to be sent. The message is read when there is a connection ([MC-MQSRM] 3.1.7.9).
    """
    SEND = auto()
    ANSWERED = auto()
    """The peer answered 200 or 400."""
    TROUBLE = auto()
    """There was any other answer, no answer, or no connection."""
    RETRY = auto()
    """The Retransmission Timer ended, or an operator requested a retry."""
    CLOSED = auto()
    """The connection was closed while idle ([MC-MQSRM] 3.1.6.4)."""
    PAUSE = auto()
    RESUME = auto()


_S, _E = OutgoingState, QueueEvent
TRANSITIONS: Mapping[tuple[OutgoingState, QueueEvent], OutgoingState] = {
    (_S.DISCONNECTED, _E.CONNECT): _S.WAITING,
    (_S.WAITING, _E.CONNECT): _S.WAITING,
    (_S.CONNECTED, _E.CONNECT): _S.CONNECTED,
    (_S.DISCONNECTED, _E.SEND): _S.WAITING,
    (_S.WAITING, _E.SEND): _S.WAITING,
    (_S.CONNECTED, _E.SEND): _S.CONNECTED,
    # This answers a message that was sent before a pause, a retry or a closed connection.
    (_S.DISCONNECTED, _E.ANSWERED): _S.CONNECTED,
    (_S.WAITING, _E.ANSWERED): _S.CONNECTED,
    (_S.CONNECTED, _E.ANSWERED): _S.CONNECTED,
    # This answers another message that was in flight when one failed.
    (_S.INACTIVE, _E.ANSWERED): _S.INACTIVE,
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
"""The next state for each state and event.

A missing pair is a bug of this package and raises :class:`~srmp_spark.errors.LocalProtocolError`.
"""

MAY_SEND = (OutgoingState.DISCONNECTED, OutgoingState.WAITING, OutgoingState.CONNECTED)
"""States in which messages are read and sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SenderSettings:
    """The settings of the sending engine that an operator may choose.

    Raises :class:`ConfigurationError` if a setting is out of its range.
    """

    resend_table: Sequence[float] = RESEND_TABLE_S
    retransmission_timeout: float = RETRANSMISSION_TIMEOUT_S
    in_flight_max: int = 1
    """Most messages in flight to one destination. More than 1 are pipelined on one connection."""
    unacknowledged_max: int = 65_536
    """Most messages that may wait for a stream receipt.

    Receipts are at most 10 s late, so this allows 6,500 messages each second. One time-out sends
    this many messages again.
    """
    stream_length_max: int = SEQUENCE_NUMBER_MAX
    """Last position of a stream.

    A position has 32 bits ([MC-MQSRM] 3.1.1.2), and the next stream begins before the positions
    overflow.
    """
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
