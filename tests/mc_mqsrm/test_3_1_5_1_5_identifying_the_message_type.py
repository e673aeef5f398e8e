"""[MC-MQSRM] 3.1.5.1.5 Identifying the Message Type: elements, class, decision, and for two types the action."""

from __future__ import annotations

import itertools

import pytest

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
    CLASS_REPORT,
    Message,
    Receipt,
    StreamId,
)
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.srmp.effects import Refused
from srmp_spark.srmp.message_types import ORDERING_ACK_ACTION, TYPES, MessageType, message_type
from srmp_spark.testing.playbook import SENDER, Playbook, post, refused, repeated, row, user_message

NEGATIVE = (
    CLASS_NACK_DELETED, CLASS_NACK_Q_DELETED, CLASS_NACK_Q_PURGED, CLASS_NACK_RECEIVE_TIMEOUT, CLASS_NACK_RECEIVE_REJECTED,
)  # fmt: skip
"""The last one stands in 3.1.7.3.1 and 3.1.7.3.3 alone."""


def of(kind: str | None, message_class: int, decision: str | None = None, action: str = ORDERING_ACK_ACTION) -> MessageType:
    receipt = None if kind is None else Receipt(kind, decision=decision)  # type: ignore[arg-type]  # any words
    return message_type(user_message(message_class=message_class, receipt=receipt, action=action))


def test_the_types() -> None:
    assert of(None, CLASS_NORMAL, action="MSMQ:label") is MessageType.USER
    assert of("delivery", CLASS_ACK_REACH_QUEUE, action="MSMQ:label") is MessageType.DELIVERY_RECEIPT
    assert of("stream", CLASS_ORDER_ACK) is MessageType.STREAM_RECEIPT
    assert of("final_stream", CLASS_ACK_RECEIVE, "positive") is MessageType.FINAL_STREAM_RECEIPT
    assert of("commitment", CLASS_ACK_RECEIVE, "positive", action="MSMQ:label") is MessageType.COMMITMENT_RECEIPT


@pytest.mark.parametrize("message_class", NEGATIVE)
def test_five_classes_say_no(message_class: int) -> None:
    assert of("final_stream", message_class, "negative") is MessageType.FINAL_STREAM_RECEIPT
    assert of("commitment", message_class, "negative") is MessageType.COMMITMENT_RECEIPT
    assert of("commitment", message_class, "positive") is MessageType.OTHER


def test_receipts_about_streams_carry_the_ordering_ack_action() -> None:
    assert of("stream", CLASS_ORDER_ACK, action="MSMQ:") is MessageType.OTHER
    assert of("final_stream", CLASS_ACK_RECEIVE, "positive", action="MSMQ:label") is MessageType.OTHER


def test_everything_else_is_other() -> None:
    kinds = (None, "delivery", "stream", "final_stream", "commitment")
    decisions = (None, "positive", "negative")
    classes = (CLASS_NORMAL, CLASS_REPORT, CLASS_ACK_REACH_QUEUE, CLASS_ORDER_ACK, CLASS_ACK_RECEIVE, *NEGATIVE, 0x8002, 77)
    for kind, decision, message_class in itertools.product(kinds, decisions, classes):
        if kind is None and decision is not None:
            continue
        expected = TYPES.get((kind, decision, message_class), MessageType.OTHER)
        assert of(kind, message_class, decision) is expected
    assert len(TYPES) == 15


@pytest.mark.parametrize("message_class", [CLASS_REPORT, 0x8002, 4711])
def test_a_class_that_we_do_not_know_still_becomes_a_row(message_class: int) -> None:
    """ "Any message that does not match … MUST be ignored": we never answer 200 and drop."""
    assert Playbook() >> post(user_message(message_class=message_class)) << row("private$/orders", 1)


@pytest.mark.parametrize(
    ("message_class", "receipt"),
    [
        (CLASS_ACK_REACH_QUEUE, Receipt("delivery", SENDER, 3, 0)),
        (CLASS_ORDER_ACK, Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=3)),
        (CLASS_ACK_RECEIVE, Receipt("final_stream", SENDER, 3, 0, "positive", StreamId(SENDER, 5), 3)),
        (CLASS_ACK_RECEIVE, Receipt("commitment", SENDER, 3, 0, "positive")),
        (CLASS_NACK_Q_PURGED, Receipt("commitment", SENDER, 3, 0, "negative")),
    ],
)
def test_receipts_are_rows_after_duplicate_detection(message_class: int, receipt: Receipt) -> None:
    """3.1.5.1.7, .8, .9, .10: "Duplicate detection. Inserting the message into its destination queue."."""
    for queue in (ORDER_QUEUE, "private$/orders"):
        message = user_message(5, queue=queue, message_class=message_class, action=ORDERING_ACK_ACTION, receipt=receipt)
        assert Playbook() >> post(message) << row(queue, 1) >> post(message) << repeated("identifier")


@pytest.mark.parametrize("unreceived", [user_message(queue=ORDER_QUEUE), user_message(queue=ORDER_QUEUE, message_class=0x8003)])
def test_our_order_queue_takes_receipts_alone(unreceived: Message) -> None:
    """No application receives from it and no quota counts it: what is no receipt would fill the disk."""
    receipt = Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=3)
    playbook = Playbook()
    assert (
        playbook
        >> post(unreceived)
        << refused(400, "order-queue")
        >> post(unreceived)  # a refusal leaves no trace in the history
        << refused(400, "order-queue")
        >> post(unreceived._replace(message_class=CLASS_ORDER_ACK, action=ORDERING_ACK_ACTION, receipt=receipt))
        << row(ORDER_QUEUE, 1)
    )
    judged = playbook.receiver.judge(unreceived)
    assert isinstance(judged, Refused)
    assert judged.reason == "order-queue"
