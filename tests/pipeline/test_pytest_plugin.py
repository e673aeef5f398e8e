"""``srmp_spark.testing``: the classes and fixtures that users test their pipelines with."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srmp_spark import testing
from srmp_spark.client.outgoing_messages import OutgoingClient
from srmp_spark.commands.messages import shape
from srmp_spark.testing import (
    ForeignDestination,
    ForeignSender,
    PostRefusedError,
    RunningQueueManager,
)
from srmp_spark.testing.pytest_plugin import RECEIPTS

HEAVY = ("srmp_spark.testing.queue_manager", "srmp_spark.client", "pyarrow", "requests", "pyspark")


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("queue-manager") / "data"
    with RunningQueueManager(folder, allow_url=RECEIPTS, resend_table="1,1,2") as manager:
        yield manager


@pytest.fixture
def sender(running: RunningQueueManager) -> Iterator[ForeignSender]:
    with ForeignSender(running.listening) as made:
        yield made


@pytest.fixture
def destination() -> Iterator[ForeignDestination]:
    with ForeignDestination() as made:
        yield made


def send(client: OutgoingClient, to: str, count: int) -> list[dict[str, Any]]:
    """Messages through the outbox, by the API that ``srmp-spark send`` calls."""
    return client.send_away(
        [{"destination": to, "label": f"no {n}", "body_base64": ""} for n in range(count)]
    )


def test_what_is_posted_is_in_the_queue_once(
    running: RunningQueueManager, sender: ForeignSender
) -> None:
    orders = running.queue("private$/orders")
    identifiers = [
        sender.post(orders.name, b"\x00\xff", label="bytes", extension=b"more"),
        sender.post(orders.name, "Bestellung über 3 €", label="text", priority=7),
    ]
    first, second = orders.wait_for(2)
    assert [first["message_id"], second["message_id"]] == identifiers
    assert (first["body"], first["extension"], first["label"]) == (b"\x00\xff", b"more", "bytes")
    assert shape(second, "text")["body"] == "Bestellung über 3 €"
    assert (second["priority"], second["body_type"], second["source_qm"]) == (7, 8, sender.guid)
    assert orders.waiting() == 2
    assert running.queue("private$/orders").rows() == [first, second], "the same queue"


def test_a_transactional_queue_gets_a_stream_in_order(
    running: RunningQueueManager, sender: ForeignSender
) -> None:
    payments = running.queue("private$/payments", transactional=True)
    for number in range(5):
        sender.post(payments.name, f"payment {number}", transactional=True)
    rows = payments.wait_for(5)
    assert [row["stream_sequence"] for row in rows] == [1, 2, 3, 4, 5]
    assert {row["delivery"] for row in rows} == {"transactional"}
    assert {row["stream_id"] is None for row in rows} == {False}


def test_a_stream_receipt_arrives_at_the_sender(
    running: RunningQueueManager, sender: ForeignSender
) -> None:
    queue = running.queue("private$/receipted", transactional=True)
    sender.post(queue.name, b"one", transactional=True)
    (receipt,) = sender.wait_for_receipts(1)
    assert receipt.last_ordinal == 1


def test_a_message_for_no_queue_is_refused_in_words(sender: ForeignSender) -> None:
    with pytest.raises(
        PostRefusedError, match=r"message 1 to private\$/nobody was refused"
    ) as said:
        sender.post("private$/nobody", b"x")
    assert said.value.status is not None
    assert 400 <= said.value.status < 500


def test_a_message_is_accepted_once_though_the_queue_manager_was_killed(tmp_path: Path) -> None:
    with (
        RunningQueueManager(tmp_path / "data") as manager,
        ForeignSender(manager.listening) as made,
    ):
        queue = manager.queue("private$/orders")
        stream = manager.queue("private$/payments", transactional=True)
        made.post(queue.name, b"before")
        made.post(stream.name, b"before", transactional=True)
        manager.kill9()
        for name, transactional in ((queue.name, False), (stream.name, True)):
            with pytest.raises(PostRefusedError, match="was not accepted in 0 s") as said:
                made.post(name, b"lost", transactional=transactional, seconds=0.0)
            assert said.value.status is None
        manager.restart()
        made.post(queue.name, b"after")
        made.post(stream.name, b"after", transactional=True)
        for each in (queue, stream):
            assert [row["body"] for row in each.wait_for(2)] == [b"before", b"after"]
        assert [row["stream_sequence"] for row in stream.rows()] == [1, 1], "a new stream"


def test_a_wait_that_is_too_short_says_what_is_there(
    running: RunningQueueManager, destination: ForeignDestination
) -> None:
    queue = running.queue("private$/empty")
    with pytest.raises(TimeoutError, match=r"private\$/empty has 0 of 1 rows"):
        queue.wait_for(1, seconds=0.1)
    assert queue.rows() == []
    assert queue.waiting() == 0
    with pytest.raises(TimeoutError, match=r"0 of 2 messages arrived"):
        destination.wait_for(2, seconds=0.1)


def test_a_destination_keeps_what_it_acknowledged(
    running: RunningQueueManager, destination: ForeignDestination
) -> None:
    send(OutgoingClient(running.api), destination.url("private$/Replies"), 3)
    messages = destination.wait_for(3, queue="private$/replies")
    assert [message.label for message in messages] == ["no 0", "no 1", "no 2"]
    assert [message.stream_sequence for message in messages] == [1, 2, 3]
    assert destination.messages("private$/other") == []
    assert destination.violations == []


def test_a_destination_that_fails_gets_the_message_when_it_recovers(
    running: RunningQueueManager, destination: ForeignDestination
) -> None:
    destination.fail(503)
    send(OutgoingClient(running.api), destination.url("private$/later"), 1)
    destination.wait_for_attempts(1)
    assert destination.messages() == []
    destination.recover()
    assert len(destination.wait_for(1)) == 1


def test_a_refused_message_never_arrives(
    running: RunningQueueManager, destination: ForeignDestination
) -> None:
    destination.refuse()
    client, to = OutgoingClient(running.api), destination.url("private$/refusing")
    (answer,) = send(client, to, 1)
    serial, kind = answer["serial"], answer["kind"]
    assert client.states(answer["destination"], kind, [serial], wait=20.0) == ["dead"]
    destination.recover()
    assert destination.messages() == []


def test_every_public_name_is_there() -> None:
    assert [name for name in testing.__all__ if getattr(testing, name, None) is None] == []
    with pytest.raises(AttributeError):
        testing.Nothing  # noqa: B018  # asked for


def test_a_run_of_pytest_that_uses_no_fixture_loads_nothing_of_them() -> None:
    code = (
        "import sys, srmp_spark.testing.pytest_plugin; "
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
