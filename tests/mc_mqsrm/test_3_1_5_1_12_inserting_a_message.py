"""[MC-MQSRM] 3.1.5.1.12 Inserting a Message into Its Destination Queue: sequences, and quotas."""

from __future__ import annotations

from srmp_spark.message import CLASS_ORDER_ACK, Message, Receipt, StreamId
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.srmp.codec.message_types import ORDERING_ACK_ACTION
from srmp_spark.srmp.receiving.destinations import ORDER_QUEUE_UNREAD_MAX
from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from tests.kit.playbook import (
    SENDER,
    Playbook,
    commit_begins,
    ok,
    operator,
    post,
    refused,
    repeated,
    restart,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
    user_message,
)

ORDERS, LEDGER = "private$/orders", "private$/ledger"


def test_sequences_count_per_queue_from_1_without_holes() -> None:
    assert (
        Playbook()
        >> post(user_message(1))
        << row(ORDERS, 1)
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(user_message(1))
        << repeated("identifier")
        >> post(user_message(2))
        << row(ORDERS, 2)
        >> synced()
        << ok(4)
        >> restart()
        >> post(user_message(3))
        << row(ORDERS, 3)
    )


def test_a_sequence_that_was_never_committed_is_given_out_again() -> None:
    assert (
        Playbook()
        >> post(user_message(1))
        << row(ORDERS, 1)
        >> commit_begins()
        >> restart(commit_survives=False)
        >> post(user_message(2))
        << row(ORDERS, 1)
    )


def _fill(playbook: Playbook, queue: str, size: int) -> None:
    playbook.receiver.queues[queue].bytes_waiting = size


def test_a_full_queue_answers_503_and_the_sender_keeps_the_message() -> None:
    """The text disregards it, after which a sender that saw 200 would delete it."""
    playbook = Playbook(ReceiverSettings(queue_quota_bytes=1000))
    assert (
        playbook
        >> post(user_message(1))
        << row(ORDERS, 1)
        >> operator("full", lambda r: _fill(playbook, ORDERS, 1000))
        >> post(user_message(2))
        << refused(503, "quota")
        >> post(
            user_message(1)
        )  # what we have is answered 200 whatever waits, or its sender would go on
        << repeated("identifier")
        >> post(stream_message(1))  # another queue
        << row(LEDGER, 1)
        >> operator("received", lambda r: _fill(playbook, ORDERS, 999))
        >> post(user_message(2))
        << row(ORDERS, 2)
        >> synced()
        << ok(4)
    )


def test_a_full_transactional_queue_moves_no_stream() -> None:
    playbook = Playbook(ReceiverSettings(queue_quota_bytes=1000))
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> synced()
        << ok()
        >> operator("full", lambda r: _fill(playbook, LEDGER, 5000))
        >> post(stream_message(2))
        << refused(503, "quota")
        >> tick(0.5)
        << stream_receipt(last_ordinal=1)
        >> operator("received", lambda r: _fill(playbook, LEDGER, 0))
        >> post(stream_message(2))
        << row(LEDGER, 2)
    )


def test_a_new_stream_at_a_full_queue_does_not_begin() -> None:
    playbook = Playbook(ReceiverSettings(queue_quota_bytes=1))
    _fill(playbook, LEDGER, 1)
    assert playbook >> post(stream_message(1)) << refused(503, "quota")
    assert len(playbook.receiver.streams) == 0


def test_the_quota_of_the_machine_counts_all_queues_and_answers_503() -> None:
    """The text answers 500, after which the sender keeps the message as well, and is not told when to come again."""
    playbook = Playbook(ReceiverSettings(machine_quota_bytes=1000))
    queues = playbook.receiver.queues
    queues[ORDERS].weigh(600)
    assert playbook >> post(user_message(1)) << row(ORDERS, 1) >> synced() << ok()
    queues[LEDGER].weigh(400)
    assert (
        playbook
        >> post(user_message(2))
        << refused(503, "machine-quota")
        >> post(stream_message(1))
        << refused(503, "machine-quota")
        >> post(user_message(1))
        << repeated("identifier")
    )
    assert len(playbook.receiver.streams) == 0
    queues[LEDGER].weigh(399)
    assert (
        playbook
        >> post(user_message(2))
        << row(ORDERS, 2)
        >> post(stream_message(1))
        << row(LEDGER, 1)
    )


def test_a_queue_that_is_removed_gives_its_room_back() -> None:
    playbook = Playbook(ReceiverSettings(machine_quota_bytes=1000))
    ledger = playbook.receiver.queues[LEDGER]
    ledger.weigh(5000)
    assert playbook >> post(user_message(1)) << refused(503, "machine-quota")
    playbook.receiver.remove_queue(LEDGER)
    ledger.weigh(9000)  # rows of it that were on their way to the disk
    assert playbook.receiver.machine.bytes == 0
    assert playbook >> post(user_message(1)) << row(ORDERS, 1)


def _receipt(number: int) -> Message:
    receipt = Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=number)
    return user_message(
        number,
        queue=ORDER_QUEUE,
        message_class=CLASS_ORDER_ACK,
        action=ORDERING_ACK_ACTION,
        receipt=receipt,
    )


def test_receipts_that_the_sender_process_does_not_read_are_bounded() -> None:
    """No quota counts our order queue. Who sent one keeps it at 503; what is for applications is taken all the same."""
    playbook = Playbook()

    def unread(size: int) -> None:
        playbook.receiver.queues[ORDER_QUEUE].unread_bytes = size

    assert (
        playbook
        >> post(_receipt(1))
        << row(ORDER_QUEUE, 1)
        >> operator("nobody reads", lambda r: unread(ORDER_QUEUE_UNREAD_MAX))
        >> post(_receipt(2))
        << refused(503, "order-queue-full")
        >> post(_receipt(1))
        << repeated("identifier")
        >> post(user_message(3))
        << row(ORDERS, 1)
        >> operator("some were read", lambda r: unread(ORDER_QUEUE_UNREAD_MAX - 1))
        >> post(_receipt(2))
        << row(ORDER_QUEUE, 2)
        >> synced()
        << ok(4)
    )
