"""A glob, one queue of which another receiver holds."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from fake_queue_manager import FakeQueueManager
from reading import EVERYTHING, at, planned, reader_of

from srmp_spark.client import lease
from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, DataLossError

Fake = Callable[..., FakeQueueManager]
GLOB = {"queue": "private$/*", "startingOffsets": "earliest"}


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srmp_spark.spark.reading.logs.DISCOVERY_SECONDS", 0.0)
    monkeypatch.setattr("srmp_spark.spark.reading.elsewhere.AGAIN_SECONDS", 0.0)


@pytest.fixture
def holding() -> Iterator[Callable[[FakeQueueManager, str], lease.LeaseKeeper]]:
    keepers = []

    def hold(qm: FakeQueueManager, queue: str) -> lease.LeaseKeeper:
        keepers.append(lease.LeaseKeeper({"purpose": "another query"}, renew_seconds=0.05))
        keepers[-1].acquire(QueueManagerClient(qm.url), queue, "default")
        return keepers[-1]

    yield hold
    for keeper in keepers:
        keeper.release()


Hold = Callable[[FakeQueueManager, str], lease.LeaseKeeper]


def test_the_others_are_read_and_it_joins_as_at_a_start(
    fake: Fake, holding: Hold, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    qm = fake(orders=10, payments=5)
    keeper = holding(qm, "private$/payments")
    reader = reader_of(qm, **GLOB | {"startingOffsets": "unreceived"})
    start = reader.initialOffset()
    assert start == at((qm, "orders", 0))
    end = reader.latestOffset(start, EVERYTHING)
    assert planned(reader, start, end) == [("private$/orders", 0, 10)]
    for _ in range(3):
        assert reader.latestOffset(end, EVERYTHING) == end
    assert len([each for each in caplog.messages if each.startswith("log.elsewhere")]) == 1, (
        "it is said once"
    )
    assert "another query" in caplog.text
    qm.consumer("private$/payments").received = 2
    keeper.release()
    joined = reader.latestOffset(end, EVERYTHING)
    assert joined == at((qm, "orders", 10), (qm, "payments", 2))
    after = reader.latestOffset(joined, EVERYTHING)
    assert planned(reader, joined, after) == [("private$/payments", 2, 5)]
    assert "log.joined" in caplog.text


def test_a_restarted_query_goes_on_with_the_others_and_where_it_stands(
    fake: Fake, holding: Hold
) -> None:
    qm = fake(orders=10, payments=5)
    first = reader_of(qm, **GLOB)
    start = first.initialOffset()
    end = first.latestOffset(start, EVERYTHING)
    assert end == at((qm, "orders", 10), (qm, "payments", 5))
    first.stop()
    keeper = holding(qm, "private$/payments")
    qm.add("private$/orders", 3)
    qm.add("private$/payments", 4)
    restarted = reader_of(qm, **GLOB)
    later = restarted.latestOffset(end, EVERYTHING)
    assert planned(restarted, end, later) == [("private$/orders", 10, 13)]
    with pytest.raises(ApiError, match="another query"):
        restarted.partitions(start, end)
    assert qm.consumer("private$/payments").received == 0, "no mark is sent without a lease"
    keeper.release()
    joined, ends_at = later, time.monotonic() + 20
    while (
        joined == later and time.monotonic() < ends_at
    ):  # a list of queues tells that the lease is free
        joined = restarted.latestOffset(later, EVERYTHING)
    assert planned(restarted, later, joined) == [("private$/payments", 5, 9)]


def test_a_job_that_must_be_the_only_one_ends(fake: Fake, holding: Hold) -> None:
    """As ``ingest.py``: a second one of the same glob takes the table from nobody."""
    qm = fake(orders=10, payments=5)
    holding(qm, "private$/payments")
    with pytest.raises(ApiError, match="another query") as error:
        reader_of(qm, **GLOB, failOnQueueInUse="true").initialOffset()
    assert error.value.code == "C00E0009"


def test_a_queue_that_is_named_exactly_stays_an_error(fake: Fake, holding: Hold) -> None:
    qm = fake(orders=10, payments=5)
    holding(qm, "private$/payments")
    with pytest.raises(ApiError, match="another query") as error:
        reader_of(qm, queue="private$/*,private$/payments").initialOffset()
    assert error.value.code == "C00E0009"


def test_with_all_queues_elsewhere_a_query_waits(fake: Fake, holding: Hold) -> None:
    qm = fake(orders=10)
    keeper = holding(qm, "private$/orders")
    reader = reader_of(qm, **GLOB)
    start = reader.initialOffset()
    assert start["qm"] == {}
    assert reader.latestOffset(start, EVERYTHING) == start
    keeper.release()
    joined = reader.latestOffset(start, EVERYTHING)
    assert planned(reader, joined, reader.latestOffset(joined, EVERYTHING)) == [
        ("private$/orders", 0, 10)
    ]


def test_peek_needs_no_lease(fake: Fake, holding: Hold) -> None:
    qm = fake(orders=10)
    holding(qm, "private$/orders")
    assert reader_of(qm, readMode="peek", **GLOB).initialOffset() == at((qm, "orders", 0))


def held_until_all_are_asked(qm: FakeQueueManager, *names: str) -> threading.Thread:
    """Another receiver holds these queues, and renews when somebody has asked for all of them. Begin the thread."""
    qm.lease_seconds = 5.0
    consumers = [qm.consumer(f"private$/{name}") for name in names]
    for consumer in consumers:
        consumer.holder = "another query"

    def renew() -> None:
        ends_at = time.monotonic() + 3
        while not all(each.waited for each in consumers) and time.monotonic() < ends_at:
            time.sleep(0.02)
        if all(each.waited for each in consumers):
            for consumer in consumers:
                consumer.renewals += 1

    return threading.Thread(target=renew)


def test_a_restarted_query_asks_for_all_that_are_held_at_once(fake: Fake) -> None:
    """Each answer may take ten seconds, and the rows of the others wait for the last one."""
    qm = fake(orders=10, a=1, b=1, c=1)
    first = reader_of(qm, **GLOB)
    end = first.latestOffset(first.initialOffset(), EVERYTHING)
    first.stop()
    qm.add("private$/orders", 2)
    restarted = reader_of(qm, **GLOB)
    renewing = held_until_all_are_asked(qm, "a", "b", "c")
    renewing.start()
    later = restarted.latestOffset(end, EVERYTHING)
    renewing.join()
    assert [qm.consumer(f"private$/{each}").holder for each in "abc"] == ["another query"] * 3, (
        "each was refused in time"
    )
    assert planned(restarted, end, later) == [("private$/orders", 10, 12)]


def test_queues_that_a_restarted_query_has_never_had_are_asked_for_at_once(fake: Fake) -> None:
    qm = fake(orders=10, a=1, b=1, c=1)
    renewing = held_until_all_are_asked(qm, "a", "b", "c")
    reader = reader_of(qm, **GLOB)
    start = at((qm, "orders", 4))
    renewing.start()
    assert reader.latestOffset(start, EVERYTHING) == at((qm, "orders", 10))
    renewing.join()
    assert [qm.consumer(f"private$/{each}").holder for each in "abc"] == ["another query"] * 3, (
        "each was refused in time"
    )


def test_a_queue_that_is_deleted_while_another_receiver_holds_it_is_lost_rows(
    fake: Fake, holding: Hold
) -> None:
    """It stayed left out for ever, and nobody was told of the rows that the query had not read."""
    qm = fake(orders=10, payments=5)
    first = reader_of(qm, **GLOB)
    end = first.latestOffset(first.initialOffset(), EVERYTHING)
    first.stop()
    keeper = holding(qm, "private$/payments")
    restarted = reader_of(qm, **GLOB)
    assert restarted.latestOffset(end, EVERYTHING) == end
    del qm.logs["private$/payments"]
    keeper.release()
    assert restarted.latestOffset(end, EVERYTHING) == end, (
        "the list of queues tells it; then the lease is asked for"
    )
    with pytest.raises(DataLossError, match=r"payments .* no longer exists"):
        restarted.latestOffset(end, EVERYTHING)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_queue_that_is_deleted_while_its_lease_is_waited_for_ends_no_query(
    fake: Fake, *, is_new: bool
) -> None:
    """A queue for replies: its owner receives from it, and deletes it."""
    qm = fake(orders=10, reply=1)
    qm.consumer("private$/reply").holder = "its owner"
    reader = reader_of(qm, **GLOB)

    def delete() -> None:
        while not any("reply" in path for _, path in qm.calls):
            time.sleep(0.02)
        del qm.logs["private$/reply"]
        qm.consumer("private$/reply").holder = None

    owner = threading.Thread(target=delete)
    owner.start()
    start = reader.initialOffset() if is_new else at((qm, "orders", 0))
    end = reader.latestOffset(start, EVERYTHING)
    owner.join()
    assert planned(reader, start, end) == [("private$/orders", 0, 10)]
