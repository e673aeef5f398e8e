"""Received marks and leases of a streaming query, without Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest
from fake_queue_manager import FakeQueueManager
from pyspark.sql.streaming.datasource import ReadMaxRows
from reading import EVERYTHING, at, reader_of

from srmp_spark.client import lease
from srmp_spark.errors import ApiError, DataLossError

Fake = Callable[..., FakeQueueManager]


def marks(qm: FakeQueueManager) -> list[tuple[str, str, int]]:
    return [(queue, consumer, to) for _, queue, consumer, to in qm.marks]


def test_the_mark_rides_on_latest_offset(fake: Fake) -> None:
    qm = fake(orders=30)
    reader = reader_of(qm)
    start = reader.initialOffset()
    first = reader.latestOffset(start, ReadMaxRows(10))
    assert marks(qm) == [], "nothing is committed yet"
    reader.latestOffset(first, ReadMaxRows(10))
    assert marks(qm) == [("private$/orders", "default", 10)]
    reader.latestOffset(first, ReadMaxRows(10))
    assert len(qm.marks) == 1, "an idle query does not repeat itself"


def test_commit_is_a_second_road(fake: Fake) -> None:
    qm = fake(orders=30)
    reader = reader_of(qm)
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    reader.commit(end)
    reader.latestOffset(end, ReadMaxRows(10))
    assert marks(qm) == [("private$/orders", "default", 10)]


def test_without_a_commit_before_the_next_plan_marks_follow_the_commits_of_spark(
    fake: Fake,
) -> None:
    """Asynchronous progress: ``latestOffset`` names batches of which nothing is on disk yet."""
    qm = fake(orders=40)
    reader = reader_of(qm)
    ends = [reader.initialOffset()]
    for _ in range(3):
        ends.append(reader.latestOffset(ends[-1], ReadMaxRows(10)))
        reader.partitions(ends[-2], ends[-1])
    assert marks(qm) == [("private$/orders", "default", 10)], (
        "the first batch of a run is always logged"
    )
    reader.latestOffset(ends[-1], ReadMaxRows(10))
    reader.commit(ends[2])
    assert marks(qm)[1:] == [("private$/orders", "default", 20)]
    reader.latestOffset(ends[-1], ReadMaxRows(10))
    assert len(qm.marks) == 2
    reader.stop()

    again = reader_of(qm)  # a run begins where Spark has found a commit
    again.latestOffset(ends[3], ReadMaxRows(10))
    assert marks(qm)[2:] == [("private$/orders", "default", 30)]


def test_a_commit_before_each_plan_is_a_query_that_waits(fake: Fake) -> None:
    """Also where a batch is run again first, an empty one is planned, or one batch is planned twice."""
    qm = fake(orders=40)
    reader = reader_of(qm)
    start = reader.initialOffset()
    reader.partitions(start, start)
    for number in range(3):
        end = reader.latestOffset(start, ReadMaxRows(10))
        reader.commit(start)
        reader.partitions(start, end)
        reader.partitions(start, end)
        reader.latestOffset(end, ReadMaxRows(10))
        assert marks(qm)[-1] == ("private$/orders", "default", (number + 1) * 10)
        start = end


def test_a_run_of_available_now_waits_for_its_commits(fake: Fake) -> None:
    qm = fake(orders=40)
    reader = reader_of(qm)
    reader.prepareForTriggerAvailableNow()
    ends = [reader.initialOffset()]
    for _ in range(3):
        ends.append(reader.latestOffset(ends[-1], ReadMaxRows(10)))
        reader.partitions(ends[-2], ends[-1])
    reader.latestOffset(ends[-1], ReadMaxRows(10))
    assert marks(qm)[-1] == ("private$/orders", "default", 30)


def test_a_named_consumer_has_its_own_marks(fake: Fake) -> None:
    qm = fake(orders=30)
    reader = reader_of(qm, consumer="audit")
    reader.commit(reader.latestOffset(reader.initialOffset(), EVERYTHING))
    assert marks(qm) == [("private$/orders", "audit", 30)]
    assert qm.consumer("private$/orders").received == 0


def test_peek_registers_nothing_and_marks_nothing(fake: Fake) -> None:
    qm = fake(orders=30)
    reader = reader_of(qm, readMode="peek")
    end = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    assert reader.partitions(reader.initialOffset(), end)
    reader.commit(end)
    reader.latestOffset(end, EVERYTHING)
    reader.stop()
    assert [path for method, path in qm.calls if method != "GET"] == []


def test_a_mark_covers_only_what_this_query_planned(fake: Fake) -> None:
    qm = fake(orders=100)
    qm.consumer("private$/orders").received = 10
    reader = reader_of(qm, startingOffsets="latest")
    start = reader.initialOffset()
    qm.add("private$/orders", 5)
    reader.commit(reader.latestOffset(start, EVERYTHING))
    consumer = qm.consumer("private$/orders")
    assert (consumer.received, consumer.ahead) == (10, [(101, 105)])


def test_so_does_the_mark_of_a_query_that_was_killed_before_its_first_one(fake: Fake) -> None:
    qm = fake(orders=100)
    first = reader_of(qm, startingOffsets="latest")
    start = first.initialOffset()
    qm.add("private$/orders", 5)
    end = first.latestOffset(start, EVERYTHING)
    first.stop()
    restarted = reader_of(qm)
    restarted.partitions(start, end)
    restarted.latestOffset(end, EVERYTHING)
    consumer = qm.consumer("private$/orders")
    assert (consumer.received, consumer.ahead) == (0, [(101, 105)])


def test_a_second_receiver_is_told_who_holds_the_queue(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lease, "RENEW_SECONDS", 0.1)
    qm = fake(orders=10)
    qm.lease_seconds = 10.0
    keeper = lease.LeaseKeeper({"purpose": "the first query"}, renew_seconds=0.1)
    from srmp_spark.client.api import QueueManagerClient

    keeper.acquire(QueueManagerClient(qm.url), "private$/orders", "default")
    begun = time.monotonic()
    with pytest.raises(ApiError, match=r"held by .*the first query") as error:
        reader_of(qm).initialOffset()
    assert error.value.code == "C00E0009"
    assert time.monotonic() - begun < 5, "as soon as the holder renews"
    keeper.release()
    reader = reader_of(qm)
    reader.initialOffset()
    reader.stop()


def test_a_second_receiver_takes_over_from_one_that_is_gone(fake: Fake) -> None:
    qm = fake(orders=10)
    qm.lease_seconds = 0.5
    qm.consumer("private$/orders").holder = "killed"
    reader = reader_of(qm)
    assert reader.initialOffset() == at((qm, "orders", 0))
    reader.stop()


def test_a_queue_manager_that_hangs_costs_no_lease_at_another(fake: Fake) -> None:
    from srmp_spark.client.api import QueueManagerClient

    hanging, healthy = fake(orders=10), fake(orders=10)
    keeper = lease.LeaseKeeper({"purpose": "both"}, renew_seconds=0.05)
    for qm in (hanging, healthy):
        keeper.acquire(QueueManagerClient(qm.url), "private$/orders", "default")
    hanging.lease_seconds = 5.0
    hanging.consumer("private$/orders").holder = "silent"  # its next renewal hangs
    time.sleep(0.3)
    renewals = healthy.consumer("private$/orders").renewals
    deadline = time.monotonic() + 2
    while (
        healthy.consumer("private$/orders").renewals < renewals + 3 and time.monotonic() < deadline
    ):
        time.sleep(0.02)
    assert healthy.consumer("private$/orders").renewals >= renewals + 3
    keeper.release()


def test_a_refused_mark_is_lost_rows(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    """The data directory was put back from a copy while the query ran."""
    qm = fake(orders=30)
    strict, lax = reader_of(qm), reader_of(qm, failOnDataLoss="false", consumer="lax")
    ends = [reader.latestOffset(reader.initialOffset(), EVERYTHING) for reader in (strict, lax)]
    qm.logs["private$/orders"].end = 5
    for _ in range(2):
        with pytest.raises(DataLossError, match="ends at 5"):
            strict.commit(ends[0])
    lax.commit(ends[1])
    assert "data.lost" in caplog.text
    assert marks(qm) == []
    qm.add("private$/orders", 25)
    strict.commit(ends[0])
    assert marks(qm) == [("private$/orders", "default", 30)], (
        "a refused mark does not count as sent"
    )


def test_marks_go_on_in_an_epoch_that_counts_from_below(fake: Fake) -> None:
    """failOnDataLoss=false behind an empty data directory: its sequences are smaller than the marks sent before."""
    qm = fake(orders=30)
    reader = reader_of(qm, failOnDataLoss="false")
    end = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    reader.commit(end)
    log = qm.logs["private$/orders"]
    log.epochs, log.end = [("second", 1)], 0
    consumer = qm.consumer("private$/orders")
    consumer.received = 0
    jumped = reader.latestOffset(end, EVERYTHING)
    qm.add("private$/orders", 4)
    reader.commit(reader.latestOffset(jumped, EVERYTHING))
    assert consumer.received == 4


def test_a_lost_lease_stops_the_query(fake: Fake) -> None:
    """This process was frozen for longer than a lease lasts, and another receiver took over."""
    qm = fake(orders=10)
    keeper = lease.LeaseKeeper({"purpose": "frozen"}, renew_seconds=0.05)
    from srmp_spark.client.api import QueueManagerClient

    keeper.acquire(QueueManagerClient(qm.url), "private$/orders", "default")
    keeper.check()
    consumer = qm.consumer("private$/orders")
    stop = threading.Event()

    def live() -> None:
        while not stop.wait(0.05):
            consumer.holder, consumer.renewals = "the other", consumer.renewals + 1

    threading.Thread(target=live, daemon=True).start()
    deadline = time.monotonic() + 5

    def check_until_lost() -> None:
        while time.monotonic() < deadline:
            keeper.check()
            time.sleep(0.05)

    with pytest.raises(ApiError, match="the other"):
        check_until_lost()
    stop.set()
    keeper.release()


def test_leases_are_released_at_the_end(fake: Fake) -> None:
    qm = fake(orders=1, payments=1)
    reader = reader_of(qm, queue="private$/*")
    reader.initialOffset()
    assert all(qm.consumer(queue).holder for queue in qm.logs)
    reader.stop()
    assert [qm.consumer(queue).holder for queue in qm.logs] == [None, None]
