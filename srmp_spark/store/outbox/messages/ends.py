"""The message class of a dead letter or a journal copy ([MS-MQMQ] 2.2.18.1.6).

With a class MSMQ states how a message ended.
"""

from __future__ import annotations

from srmp_spark.message import CLASS_ACK_REACH_QUEUE, CLASS_NACK_DELETED, CLASS_NACK_RECEIVE_TIMEOUT
from srmp_spark.store.outbox.messages.waiting import MovedRow

CLASS_NACK_REACH_QUEUE_TIMEOUT = 0x8002

_CLASS_OF_REASON = {
    "expired": CLASS_NACK_REACH_QUEUE_TIMEOUT,
    "dropped": CLASS_NACK_DELETED,
    "final-receipt-missing": CLASS_NACK_RECEIVE_TIMEOUT,
    "delivered": CLASS_ACK_REACH_QUEUE,
}
"""Message classes by reason, for ends that no peer stated a class for."""


def class_of_end(moved: MovedRow) -> int | None:
    """Return the message class that states how moved messages ended, or ``None``.

    ``None`` means that a peer refused the messages with an HTTP status, or that MSMQ has no class
    for the reason.
    """
    if moved.status is not None:
        return None
    return (
        moved.message_class
        if moved.message_class is not None
        else _CLASS_OF_REASON.get(moved.reason)
    )
