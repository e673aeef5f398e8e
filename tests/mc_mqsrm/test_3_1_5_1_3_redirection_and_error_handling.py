"""[MC-MQSRM] 3.1.5.1.3 Redirection and Error Handling: which queue, and 400 for what can never succeed."""

from __future__ import annotations

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.message import Arrival, Receipt, StreamId
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.srmp.receiving.destinations import RETRY_AFTER_S, SPELLINGS_MAX, QueueState
from srmp_spark.srmp.receiving.effects import Refused
from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from tests.kit.playbook import (
    SENDER,
    Playbook,
    ok,
    operator,
    post,
    refused,
    row,
    stream_message,
    synced,
    user_message,
)

ORDERS = "private$/orders"


@pytest.mark.parametrize(
    "to",
    [
        "http://machine2/msmq/private$/orders",
        "HTTP://MACHINE2:8080/MSMQ/PRIVATE$/ORDERS",
        "https://machine2/msmq/private%24/orders",
        "http://machine2/msmq\\private$\\orders",
        "http://localhost/msmq/private$/orders",
        "http://machine2./msmq/private$/orders",
        "http://localhost.:80/msmq/private$/orders",
        "http://127.0.0.1:1801/msmq/private$/orders?SenderStream=XRntV",
    ],
)
def test_to_decides_in_any_spelling_and_the_port_is_not_compared(to: str) -> None:
    assert Playbook() >> post(user_message(destination=to)) << row(ORDERS, 1)


@pytest.mark.parametrize(
    ("to", "reason"),
    [
        ("http://machine2/msmq/private$/other", "unknown-queue"),
        ("http://machine2/msmq/orders", "unknown-queue"),
    ],
)
def test_an_unknown_queue_can_never_succeed_or_is_retried_if_the_operator_says_so(
    to: str, reason: str
) -> None:
    message = user_message(destination=to)
    assert Playbook() >> post(message) << refused(400, reason)
    assert (
        Playbook(ReceiverSettings(unknown_queue="retry")) >> post(message) << refused(503, reason)
    )


@pytest.mark.parametrize(
    "to",
    ["http://machine3/msmq/private$/orders", "http://machine2.evil.example/msmq/private$/orders"],
)
def test_a_foreign_host_is_refused_for_good(to: str) -> None:
    """``--unknown-queue retry`` speaks of queues: we are no open relay that might deliver it one day."""
    for setting in ("reject", "retry"):
        playbook = Playbook(ReceiverSettings(unknown_queue=setting))
        assert playbook >> post(user_message(destination=to)) << refused(400, "foreign-host")


@pytest.mark.parametrize(
    "to",
    ["", "orders", "DIRECT=OS:machine2\\private$\\orders", "http://machine2/", "http://machine2/msmq/../private$/orders",
     "http://machine2@evil/msmq/private$/orders", "ftp://machine2/msmq/private$/orders", "http://machine2/msmq/a/b/c"],
)  # fmt: skip
def test_what_names_no_queue_is_refused_for_good(to: str) -> None:
    message = user_message(destination=to)
    assert Playbook() >> post(message) << refused(400, "bad-destination")
    assert (
        Playbook(ReceiverSettings(unknown_queue="retry"))
        >> post(message)
        << refused(400, "bad-destination")
    )


def test_a_stream_message_can_be_delivered_only_to_a_transactional_queue() -> None:
    assert Playbook() >> post(stream_message(1, queue=ORDERS)) << refused(400, "not-transactional")


def test_a_nonstream_message_can_be_delivered_only_to_a_nontransactional_queue() -> None:
    assert (
        Playbook()
        >> post(user_message(queue="private$/ledger"))
        << refused(400, "transactional-queue")
    )


def test_multicast_goes_to_the_queue_that_listens_there_and_nowhere_else() -> None:
    message = user_message(destination="MSMQ:MULTICAST=234.1.1.1:8001")
    assert Playbook() >> post(message) << refused(400, "multicast")
    assert (
        Playbook()
        >> operator(
            "add a multicast queue", lambda r: r.add_queue("prices", multicast="234.1.1.1:8001")
        )
        >> post(message)
        << row("prices", 1)
        >> post(message._replace(destination="MSMQ:MULTICAST=234.1.1.2:8001"))
        << refused(400, "multicast")
    )


def test_our_order_queue_always_exists() -> None:
    """Peers send stream receipts there (3.1.7.2.4); receipts are no stream messages."""
    receipt = Receipt("stream", stream_id=StreamId(SENDER, 5), last_ordinal=3)
    assert (
        Playbook(queues={})
        >> post(user_message(queue=ORDER_QUEUE, receipt=receipt))
        << row(ORDER_QUEUE, 1)
    )
    receiver = Playbook(queues={}).receiver
    with pytest.raises(ConfigurationError, match="always exists"):
        receiver.remove_queue(ORDER_QUEUE)


def test_a_paused_queue_answers_503_and_loses_nothing() -> None:
    def pause(paused: bool) -> None:
        playbook.receiver.queues[ORDERS].paused = paused

    playbook = Playbook()
    assert (
        playbook
        >> operator("pause", lambda r: pause(True))
        >> post(user_message(1))
        << refused(503, "paused")
        >> operator("resume", lambda r: pause(False))
        >> post(user_message(1))
        << row(ORDERS, 1)
    )


def test_a_refusal_says_what_to_do_and_when_to_come_back() -> None:
    receiver = Playbook(ReceiverSettings(unknown_queue="retry")).receiver
    arrival = Arrival(0, "http", "192.0.2.1:1")
    answer = receiver.receive(user_message(queue="private$/other"), arrival, 0.0)
    assert isinstance(answer, Refused)
    assert answer.retry_after == RETRY_AFTER_S
    assert "--queue private$/other" in answer.message
    answer = receiver.receive(
        user_message(destination="http://nat-name/msmq/private$/orders"), arrival, 0.0
    )
    assert isinstance(answer, Refused)
    assert "--host-name nat-name" in answer.message
    answer = Playbook().receiver.receive(user_message(queue="private$/other"), arrival, 0.0)
    assert isinstance(answer, Refused)
    assert answer.retry_after is None


def test_queues_come_and_go() -> None:
    playbook = Playbook()
    assert (
        playbook
        >> post(user_message(1, queue="late"))
        << refused(400, "unknown-queue")
        >> operator("add", lambda r: r.add_queue("late"))
        >> post(user_message(1, queue="late"))
        << row("late", 1)
        >> post(stream_message(1))
        << row("private$/ledger", 1)
        >> synced()
        << ok(2)
        >> operator("remove", lambda r: r.remove_queue("late"))
        >> operator("remove", lambda r: r.remove_queue("private$/ledger"))
        >> post(user_message(2, queue="late"))
        << refused(400, "unknown-queue")
        >> synced()
    )
    assert len(playbook.disk.streams) == 1, "its senders still await stream receipts"


def test_a_queue_goes_on_where_its_stored_rows_end() -> None:
    assert (
        Playbook()
        >> operator("add", lambda r: r.add_queue("late", end=41))
        >> post(user_message(1, queue="late"))
        << row("late", 42)
    )


def test_a_queue_is_named_once() -> None:
    receiver = Playbook().receiver
    with pytest.raises(ConfigurationError, match="exists already"):
        receiver.add_queue(ORDERS)
    with pytest.raises(ConfigurationError, match="cannot be transactional"):
        receiver.add_queue(ORDER_QUEUE, transactional=True)
    receiver.add_queue("a", multicast="234.1.1.1:1")
    with pytest.raises(ConfigurationError, match="give each its own"):
        receiver.add_queue("b", multicast="234.1.1.1:1")


def test_the_order_queue_is_told_where_its_sequence_stands_before_its_first_message() -> None:
    receiver = Playbook(queues={}).receiver
    receiver.add_queue(ORDER_QUEUE, end=7)
    with pytest.raises(ConfigurationError, match="exists already"):
        receiver.add_queue(ORDER_QUEUE, end=0)
    assert receiver.queues[ORDER_QUEUE].end == 7


def test_the_memory_for_spellings_of_to_is_bounded() -> None:
    playbook = Playbook()
    arrival = Arrival(0, "http", "192.0.2.1:1")
    for number in range(SPELLINGS_MAX + 10):
        to = f"http://machine2:{number % 60000 + 1}/msmq/private$/orders?SenderStream={number}"
        playbook.receiver.receive(user_message(number + 1, destination=to), arrival, 0.0)
    assert len(playbook.receiver._destinations._known) <= SPELLINGS_MAX
    assert playbook.receiver.queues[ORDERS].end == SPELLINGS_MAX + 10


def test_judge_says_where_a_message_would_go_and_changes_nothing() -> None:
    playbook = Playbook()
    found = playbook.receiver.judge(user_message(1))
    assert isinstance(found, QueueState)
    assert found.name == ORDERS
    assert isinstance(playbook.receiver.judge(stream_message(1, queue=ORDERS)), Refused)
    assert isinstance(playbook.receiver.judge(user_message(queue="private$/other")), Refused)
    assert playbook >> post(user_message(1)) << row(ORDERS, 1)
