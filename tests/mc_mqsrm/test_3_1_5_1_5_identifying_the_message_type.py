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
    Arrival,
    Message,
    Receipt,
    StreamId,
)
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.srmp.codec.message_types import (
    ORDERING_ACK_ACTION,
    TYPES,
    MessageType,
    message_type,
)
from srmp_spark.srmp.receiving.effects import Accepted, Refused
from srmp_spark.srmp.sending.outgoing_stream import OutgoingStream
from tests.kit.playbook import SENDER, Playbook, post, refused, repeated, row, user_message
from tests.kit.sending_playbook import (
    IDENTITY,
    RECEIPTS_URL,
    SendingPlaybook,
    answer,
    enqueue,
    sends,
)

ADMIN = "http://192.0.2.1/msmq/private$/admin"

NEGATIVE = (
    CLASS_NACK_DELETED, CLASS_NACK_Q_DELETED, CLASS_NACK_Q_PURGED, CLASS_NACK_RECEIVE_TIMEOUT, CLASS_NACK_RECEIVE_REJECTED,
)  # fmt: skip
"""The last one stands in 3.1.7.3.1 and 3.1.7.3.3 alone."""


def of(
    kind: str | None,
    message_class: int,
    decision: str | None = None,
    action: str = ORDERING_ACK_ACTION,
) -> MessageType:
    receipt = None if kind is None else Receipt(kind, decision=decision)  # type: ignore[arg-type]  # any words
    return message_type(user_message(message_class=message_class, receipt=receipt, action=action))


def test_the_types() -> None:
    assert of(None, CLASS_NORMAL, action="MSMQ:label") is MessageType.USER
    assert (
        of("delivery", CLASS_ACK_REACH_QUEUE, action="MSMQ:label") is MessageType.DELIVERY_RECEIPT
    )
    assert of("stream", CLASS_ORDER_ACK) is MessageType.STREAM_RECEIPT
    assert of("final_stream", CLASS_ACK_RECEIVE, "positive") is MessageType.FINAL_STREAM_RECEIPT
    assert (
        of("commitment", CLASS_ACK_RECEIVE, "positive", action="MSMQ:label")
        is MessageType.COMMITMENT_RECEIPT
    )


@pytest.mark.parametrize("message_class", NEGATIVE)
def test_five_classes_say_no(message_class: int) -> None:
    assert of("final_stream", message_class, "negative") is MessageType.FINAL_STREAM_RECEIPT
    assert of("commitment", message_class, "negative") is MessageType.COMMITMENT_RECEIPT
    assert of("commitment", message_class, "positive") is MessageType.OTHER


def test_receipts_about_streams_carry_the_ordering_ack_action() -> None:
    assert of("stream", CLASS_ORDER_ACK, action="MSMQ:") is MessageType.OTHER
    assert (
        of("final_stream", CLASS_ACK_RECEIVE, "positive", action="MSMQ:label") is MessageType.OTHER
    )


def test_everything_else_is_other() -> None:
    kinds = (None, "delivery", "stream", "final_stream", "commitment")
    decisions = (None, "positive", "negative")
    classes = (
        CLASS_NORMAL,
        CLASS_REPORT,
        CLASS_ACK_REACH_QUEUE,
        CLASS_ORDER_ACK,
        CLASS_ACK_RECEIVE,
        *NEGATIVE,
        0x8002,
        77,
    )
    for kind, decision, message_class in itertools.product(kinds, decisions, classes):
        if kind is None and decision is not None:
            continue
        expected = TYPES.get((kind, decision, message_class), MessageType.OTHER)
        assert of(kind, message_class, decision) is expected
    assert len(TYPES) == 15


CLASSES = (
    CLASS_NORMAL,
    CLASS_REPORT,
    CLASS_ACK_REACH_QUEUE,
    CLASS_ORDER_ACK,
    CLASS_ACK_RECEIVE,
    *NEGATIVE,
    0x8002,
    0x8003,
)


def two_sent() -> SendingPlaybook:
    """Both wait for their stream receipt, and for a final one."""
    playbook = SendingPlaybook()
    assert (
        playbook
        >> enqueue(2, final=True)
        << sends(1, start=True)
        >> answer(200)
        << sends(2)
        >> answer(200)
    )
    return playbook


def hears(
    playbook: SendingPlaybook, kind: str, message_class: int, decision: str | None, action: str
) -> str | None:
    """The sending engine hears of the first message of its stream; what that did."""
    (stream,) = playbook.sender
    assert isinstance(stream, OutgoingStream)
    receipt = Receipt(kind, IDENTITY, 1, 0, decision, stream.id, 1)  # type: ignore[arg-type]  # any words
    message = Message(
        RECEIPTS_URL, action, has_msmq=True, message_class=message_class, receipt=receipt
    )
    return playbook.sender.receipt(message, 0.0, 0)


@pytest.mark.parametrize(
    "action", ["MSMQ:", "MSMQ:hello", "MSMQ:QM Ordering Ack ", "QM Ordering Ack"]
)
def test_without_the_ordering_ack_action_no_receipt_moves_a_stream(action: str) -> None:
    playbook = two_sent()
    assert hears(playbook, "stream", CLASS_ORDER_ACK, None, action) == "another-type"
    assert hears(playbook, "final_stream", CLASS_ACK_RECEIVE, "positive", action) == "another-type"
    assert not playbook.sender.has_changes
    assert playbook.sender.receipts == {"another-type": 2}, "they are counted"


def test_a_stream_receipt_moves_a_stream_with_its_class_alone() -> None:
    for message_class in CLASSES:
        playbook = two_sent()
        expected = "progress" if message_class == CLASS_ORDER_ACK else "another-type"
        assert hears(playbook, "stream", message_class, None, ORDERING_ACK_ACTION) == expected, hex(
            message_class
        )
        assert playbook.sender.has_changes is (expected == "progress")


def test_a_final_stream_receipt_says_yes_or_no_in_class_and_decision_alike() -> None:
    agree = {("positive", CLASS_ACK_RECEIVE), *(("negative", each) for each in NEGATIVE)}
    for decision, message_class in itertools.product((None, "positive", "negative"), CLASSES):
        playbook = two_sent()
        expected = "final" if (decision, message_class) in agree else "another-type"
        found = hears(playbook, "final_stream", message_class, decision, ORDERING_ACK_ACTION)
        assert found == expected, (decision, hex(message_class))
        assert playbook.sender.has_changes is (expected == "final")


ASKS = {
    "delivery_receipt_to": ADMIN,
    "commitment_receipt_to": ADMIN,
    "commitment_positive": True,
    "commitment_negative": True,
}
RECEIPTS = (
    None,
    Receipt("delivery", SENDER, 3, 0),
    Receipt("commitment", SENDER, 3, 0, "positive"),
    Receipt("commitment", SENDER, 3, 0, "negative"),
    Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=3),
)


@pytest.mark.parametrize("receipt", RECEIPTS)
def test_only_a_user_message_is_told_of(receipt: Receipt | None) -> None:
    """Two queue managers that answer receipts with receipts would go on writing to each other."""
    for message_class in CLASSES:
        message = user_message(5, message_class=message_class, receipt=receipt, **ASKS)
        taken = Playbook().receiver.receive(message, Arrival(0, "http", "192.0.2.1:1"), 0.0)
        assert isinstance(taken, Accepted)
        is_user = receipt is None and message_class == CLASS_NORMAL
        assert [each.kind for each in taken.owed] == ["delivery"] * is_user
        assert (taken.undecided is not None) is is_user


@pytest.mark.parametrize("message_class", [CLASS_REPORT, 0x8002, 4711])
def test_a_class_that_we_do_not_know_still_becomes_a_row(message_class: int) -> None:
    """ "Any message that does not match … MUST be ignored": we never answer 200 and drop."""
    assert (
        Playbook() >> post(user_message(message_class=message_class)) << row("private$/orders", 1)
    )


@pytest.mark.parametrize(
    ("message_class", "receipt"),
    [
        (CLASS_ACK_REACH_QUEUE, Receipt("delivery", SENDER, 3, 0)),
        (CLASS_ORDER_ACK, Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=3)),
        (
            CLASS_ACK_RECEIVE,
            Receipt("final_stream", SENDER, 3, 0, "positive", StreamId(SENDER, 5), 3),
        ),
        (CLASS_ACK_RECEIVE, Receipt("commitment", SENDER, 3, 0, "positive")),
        (CLASS_NACK_Q_PURGED, Receipt("commitment", SENDER, 3, 0, "negative")),
    ],
)
def test_receipts_are_rows_after_duplicate_detection(message_class: int, receipt: Receipt) -> None:
    """3.1.5.1.7, .8, .9, .10: "Duplicate detection. Inserting the message into its destination queue."."""
    for queue in (ORDER_QUEUE, "private$/orders"):
        message = user_message(
            5, queue=queue, message_class=message_class, action=ORDERING_ACK_ACTION, receipt=receipt
        )
        assert (
            Playbook() >> post(message) << row(queue, 1) >> post(message) << repeated("identifier")
        )


@pytest.mark.parametrize(
    "unreceived",
    [user_message(queue=ORDER_QUEUE), user_message(queue=ORDER_QUEUE, message_class=0x8003)],
)
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
        >> post(
            unreceived._replace(
                message_class=CLASS_ORDER_ACK, action=ORDERING_ACK_ACTION, receipt=receipt
            )
        )
        << row(ORDER_QUEUE, 1)
    )
    judged = playbook.receiver.judge(unreceived)
    assert isinstance(judged, Refused)
    assert judged.reason == "order-queue"
