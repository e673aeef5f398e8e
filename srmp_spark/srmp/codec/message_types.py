"""The type of a message ([MC-MQSRM] 3.1.5.1.5), as one table.

"Any message that does not match one of the types defined below MUST be ignored." This package does
not ignore such messages: an ignored message is answered 200 and then lost, and MSMQ has more
classes than the table names. A message of another type is :attr:`MessageType.OTHER`. Such a message
becomes a row like any other, gets no receipts, and its content about a stream has no effect.

Only a user message can request receipts (:mod:`.receiver`, :mod:`.decisions`), and only a receipt
about a stream changes an outgoing stream (:mod:`srmp_spark.srmp.sending.sender`). After duplicate
detection, messages of all other types only become rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto

from srmp_spark.message import (
    CLASS_ACK_REACH_QUEUE,
    CLASS_ACK_RECEIVE,
    CLASS_NACK_DELETED,
    CLASS_NACK_Q_DELETED,
    CLASS_NACK_Q_PURGED,
    CLASS_NACK_RECEIVE_REJECTED,
    CLASS_NACK_RECEIVE_TIMEOUT,
    CLASS_NORMAL,
    CLASS_ORDER_ACK,
    Message,
)

ORDERING_ACK_ACTION = "MSMQ:QM Ordering Ack"
"""``<action>`` of stream receipts and final stream receipts."""


class MessageType(Enum):
    """The message types of [MC-MQSRM] 3.1.5.1.5, and ``OTHER`` for the rest."""

    USER = auto()
    DELIVERY_RECEIPT = auto()
    STREAM_RECEIPT = auto()
    FINAL_STREAM_RECEIPT = auto()
    COMMITMENT_RECEIPT = auto()
    OTHER = auto()


_NEGATIVE = (
    CLASS_NACK_DELETED,
    CLASS_NACK_Q_DELETED,
    CLASS_NACK_Q_PURGED,
    CLASS_NACK_RECEIVE_TIMEOUT,
    CLASS_NACK_RECEIVE_REJECTED,
)
"""Message classes of negative receipts.

The last class is missing in 3.1.5.1.5, but 3.1.7.3.1 and 3.1.7.3.3 send it, and a queue manager
that gets this class must stop waiting.
"""

TYPES: Mapping[tuple[str | None, str | None, int], MessageType] = {
    # Each key is (receipt element, <decision>, <Class>).
    (None, None, CLASS_NORMAL): MessageType.USER,
    ("delivery", None, CLASS_ACK_REACH_QUEUE): MessageType.DELIVERY_RECEIPT,
    ("stream", None, CLASS_ORDER_ACK): MessageType.STREAM_RECEIPT,
    ("final_stream", "positive", CLASS_ACK_RECEIVE): MessageType.FINAL_STREAM_RECEIPT,
    **{
        ("final_stream", "negative", number): MessageType.FINAL_STREAM_RECEIPT
        for number in _NEGATIVE
    },
    ("commitment", "positive", CLASS_ACK_RECEIVE): MessageType.COMMITMENT_RECEIPT,
    **{("commitment", "negative", number): MessageType.COMMITMENT_RECEIPT for number in _NEGATIVE},
}

ABOUT_STREAMS = (MessageType.STREAM_RECEIPT, MessageType.FINAL_STREAM_RECEIPT)
"""Types of receipts that are given to the sending engine.

A message has one of these types only if its ``<action>`` is :data:`ORDERING_ACK_ACTION`.
"""


def message_type(message: Message) -> MessageType:
    """Return the type of ``message``, :attr:`MessageType.OTHER` if it matches no type.

    The type follows from its receipt element, its class and, for receipts about streams, its
    action.
    """
    receipt = message.receipt
    if receipt is None:
        key: tuple[str | None, str | None, int] = (None, None, message.message_class)
    else:
        key = (receipt.kind, receipt.decision, message.message_class)
    found = TYPES.get(key, MessageType.OTHER)
    if found in ABOUT_STREAMS and message.action != ORDERING_ACK_ACTION:
        return MessageType.OTHER
    return found
