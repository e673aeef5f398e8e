"""The driver-side reader without Spark: where a query begins, what a batch holds, what AvailableNow and limits do."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from fake_queue_manager import ARRIVED_US, FakeQueueManager, RefusedError
from pyspark.sql.streaming.datasource import ReadMaxBytes, ReadMaxRows
from reading import EVERYTHING, at, began, drain, planned, reader_of

from srmp_spark.errors import ConfigurationError
from srmp_spark.spark.reading.stream_reader import IDLE_WAIT_SECONDS

Fake = Callable[..., FakeQueueManager]


# --- where a new query begins ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "last_before"),
    [
        ({}, 30),
        ({"startingOffsets": "earliest"}, 10),
        ({"startingOffsets": "latest"}, 100),
        ({"startingOffsets": '{"private$/orders": 42}'}, 41),
        ({"startingOffsets": '{"private$/orders": -2}'}, 10),
        ({"startingOffsets": '{"PRIVATE$/orders": -1}'}, 100),
        ({"startingOffsets": '{"private$/orders": 5}'}, 10),
        ({"startingTimestamp": str((ARRIVED_US + 50_000_000) // 1000)}, 49),
        ({"startingTimestamp": "2000-01-01T00:00:00Z"}, 10),
        ({"startingTimestamp": "2100-01-01T00:00:00Z"}, 100),
    ],
)
def test_a_new_query_begins_where_the_option_says(
    fake: Fake, options: dict[str, str], last_before: int
) -> None:
    """Rows 1 to 10 are deleted by retention, 1 to 30 are received."""
    qm = fake(orders=100)
    qm.logs["private$/orders"].first = 11
    qm.consumer("private$/orders").received = 30
    reader = reader_of(qm, **options)
    assert reader.initialOffset() == at((qm, "orders", last_before))
    assert reader.initialOffset() == at((qm, "orders", last_before)), "Spark asks twice"
    assert began(reader.initialOffset()) == {"private$/orders": last_before + 1}, (
        "marks cover what this query plans"
    )


def test_a_starting_timestamp_looks_over_holes(fake: Fake) -> None:
    qm = fake(orders=200)
    qm.logs["private$/orders"].holes = [(20, 150)]
    moment = str((ARRIVED_US + 60_000_000) // 1000)
    start = reader_of(qm, startingTimestamp=moment).initialOffset()
    assert start["qm"][qm.guid][qm.epoch]["private$/orders"] == 150


def test_a_starting_timestamp_skips_no_matching_row_after_the_clock_was_set_back(
    fake: Fake,
) -> None:
    """Rows 400 to 900 arrived an hour later by the clock than those around them: 501 of them match."""
    qm = fake(orders=2000)
    qm.logs["private$/orders"].arrived = {
        n: ARRIVED_US + (n + 3_600) * 1_000_000 for n in range(400, 901)
    }
    moment = str((ARRIVED_US + 3_900 * 1_000_000) // 1000)
    assert reader_of(qm, startingTimestamp=moment).initialOffset() == at((qm, "orders", 399))


def test_a_starting_timestamp_is_found_in_an_older_epoch(fake: Fake) -> None:
    qm = fake(orders=10)
    old = qm.epoch
    qm.new_epoch()
    qm.add("private$/orders", 5)
    moment = str((ARRIVED_US + 4_000_000) // 1000)
    assert reader_of(qm, startingTimestamp=moment).initialOffset() == at(
        (qm, "orders", 3), epoch=old
    )


def test_a_queue_manager_that_cannot_search_for_a_time_is_told(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(self: FakeQueueManager, queue: str, q: dict[str, str]) -> dict:
        raise RefusedError(404, "no-such-path", "the API has no such path")

    monkeypatch.setattr(FakeQueueManager, "first_since", unknown)
    with pytest.raises(ConfigurationError, match="is of an earlier version"):
        reader_of(fake(orders=10), startingTimestamp="0").initialOffset()


def test_the_oldest_row_may_lie_in_an_older_epoch(fake: Fake) -> None:
    qm = fake(orders=10)
    old = qm.epoch
    qm.new_epoch()
    qm.add("private$/orders", 5)
    assert reader_of(qm, startingOffsets="earliest").initialOffset() == at(
        (qm, "orders", 0), epoch=old
    )
    assert reader_of(qm, startingOffsets='{"private$/orders": 12}').initialOffset() == at(
        (qm, "orders", 11)
    )


@pytest.mark.parametrize(
    ("sequences", "says"),
    [
        ('{"private$/ordres": 1}', "did you mean 'private$/orders'?"),
        ('{"private$/orders": 102}', "does not exist yet"),
        ('{"private$/orders": 1, "private$/payments": 1}', "which the query does not read"),
    ],
)
def test_offsets_that_name_the_wrong_thing(fake: Fake, sequences: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        reader_of(fake(orders=100, payments=1), startingOffsets=sequences).initialOffset()
    assert says in str(error.value)


def test_offsets_name_every_queue(fake: Fake) -> None:
    with pytest.raises(ConfigurationError, match="does not name 'private\\$/payments'"):
        reader_of(
            fake(orders=1, payments=1), queue="private$/*", startingOffsets='{"private$/orders": 1}'
        ).initialOffset()


def test_a_queue_that_does_not_exist_is_told_at_once(fake: Fake) -> None:
    with pytest.raises(ConfigurationError, match=r"did you mean 'private\$/orders'\?"):
        reader_of(fake(orders=1), queue="private$/order").initialOffset()


# --- which queues ---------------------------------------------------------------------------------------------------------


def test_system_queues_are_read_only_by_their_exact_name(fake: Fake) -> None:
    qm = fake(orders=3)
    qm.add("private$/order_queue$", 2)
    assert reader_of(qm, queue="*", startingOffsets="earliest").initialOffset() == at(
        (qm, "orders", 0)
    )
    exact = reader_of(qm, queue="private$/order_queue$", startingOffsets="earliest")
    assert exact.initialOffset() == at((qm, "order_queue$", 0))


def test_a_queue_that_appears_later_starts_at_its_first_row(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srmp_spark.spark.reading.logs.DISCOVERY_SECONDS", 0.0)
    qm = fake(orders=3)
    reader = reader_of(qm, queue="private$/*", startingOffsets="latest")
    start = reader.initialOffset()
    qm.add("private$/new", 7)
    entered = reader.latestOffset(start, EVERYTHING)
    assert entered == at((qm, "orders", 3), (qm, "new", 0))
    assert planned(reader, start, entered) == []
    end = reader.latestOffset(entered, EVERYTHING)
    assert planned(reader, entered, end) == [("private$/new", 0, 7)]


def test_a_queue_that_is_no_longer_named_keeps_its_place(fake: Fake) -> None:
    qm = fake(orders=10, payments=10)
    start = at((qm, "orders", 5), (qm, "payments", 5))
    assert reader_of(qm, queue="private$/orders").latestOffset(start, EVERYTHING) == at(
        (qm, "orders", 10), (qm, "payments", 5)
    )


# --- limits ---------------------------------------------------------------------------------------------------------------


def test_the_default_limit_is_the_row_limit(fake: Fake) -> None:
    qm = fake(orders=1)
    assert reader_of(
        qm, maxOffsetsPerTrigger="100", maxBytesPerTrigger="5"
    ).getDefaultReadLimit() == ReadMaxRows(100)
    assert reader_of(qm, maxBytesPerTrigger="5000").getDefaultReadLimit() == ReadMaxBytes(5000)
    assert reader_of(qm).getDefaultReadLimit() == EVERYTHING
    assert qm.calls == [], "options need no network"


def test_the_row_limit_is_split_in_proportion(fake: Fake) -> None:
    qm = fake(orders=900, payments=100)
    reader = reader_of(qm, queue="private$/*", maxOffsetsPerTrigger="100")
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(100))
    assert planned(reader, reader.initialOffset(), end) == [
        ("private$/orders", 0, 90),
        ("private$/payments", 0, 10),
    ]


def test_the_row_limit_is_exact_to_the_end(fake: Fake) -> None:
    qm, other = fake(orders=333, payments=10), fake(orders=77)
    reader = reader_of(qm, other, queue="private$/*", maxOffsetsPerTrigger="100")
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    sizes = []
    for end in drain(reader, start, ReadMaxRows(100)):
        sizes.append(sum(to - after for _, after, to in planned(reader, start, end)))
        start = end
    assert sizes == [100, 100, 100, 100, 20]


def test_the_byte_limit_holds_beside_the_row_limit(fake: Fake) -> None:
    qm = fake(orders=100)
    reader = reader_of(qm, maxOffsetsPerTrigger="50", maxBytesPerTrigger="10000")
    assert reader.latestOffset(reader.initialOffset(), ReadMaxRows(50)) == at((qm, "orders", 10)), (
        "rows of 1,000 bytes"
    )
    assert reader.latestOffset(reader.initialOffset(), ReadMaxBytes(1)) == at((qm, "orders", 1)), (
        "at least one row"
    )


def test_trigger_once_takes_everything(fake: Fake) -> None:
    qm = fake(orders=100)
    reader = reader_of(qm, maxOffsetsPerTrigger="5", maxBytesPerTrigger="5000")
    assert reader.latestOffset(reader.initialOffset(), EVERYTHING) == at((qm, "orders", 100))


def test_available_now_ends_at_the_tail_of_its_start(fake: Fake) -> None:
    qm = fake(orders=250)
    reader = reader_of(qm, maxOffsetsPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    qm.add("private$/orders", 1000)
    assert drain(reader, start, ReadMaxRows(100)) == [
        at((qm, "orders", n)) for n in (100, 200, 250)
    ]


def test_available_now_finds_its_end_after_a_restart(fake: Fake) -> None:
    """The mixin's contract: finally the start comes back unchanged, new queues included."""
    qm = fake(orders=250, payments=5)
    reader = reader_of(qm, queue="private$/*", maxOffsetsPerTrigger="100")
    reader.prepareForTriggerAvailableNow()
    assert drain(reader, at((qm, "orders", 240)), ReadMaxRows(100))[-1] == at(
        (qm, "orders", 250), (qm, "payments", 5)
    )


# --- tasks ----------------------------------------------------------------------------------------------------------------


def test_ranges_are_cut_into_tasks(fake: Fake) -> None:
    qm = fake(orders=1000)
    reader = reader_of(qm, minPartitions="4")
    assert planned(reader, at((qm, "orders", 0)), at((qm, "orders", 1000))) == [
        ("private$/orders", n, n + 250) for n in (0, 250, 500, 750)
    ]


def test_a_batch_follows_from_its_offsets_alone(fake: Fake) -> None:
    """Pitfall: after a crash a new reader is asked for partitions without initialOffset or latestOffset."""
    qm = fake(orders=1000)
    assert planned(reader_of(qm), at((qm, "orders", 100)), at((qm, "orders", 200))) == [
        ("private$/orders", 100, 200)
    ]


# --- calls ----------------------------------------------------------------------------------------------------------------


def test_an_idle_reader_waits_in_the_queue_manager(fake: Fake) -> None:
    """Pitfall: with the default trigger Spark asks every 10 ms."""
    qm = fake(orders=3, payments=3)
    for queues in ("private$/orders", "private$/*"):
        reader = reader_of(qm, queue=queues, readMode="peek", startingOffsets="latest")
        start = reader.initialOffset()
        qm.calls.clear()
        begun = time.monotonic()
        for _ in range(5):
            assert reader.latestOffset(start, EVERYTHING) == start
        assert time.monotonic() - begun >= 5 * IDLE_WAIT_SECONDS
        assert len(qm.calls) <= 5 * (1 if queues == "private$/orders" else 6) + 1


def test_a_row_ends_the_wait(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("srmp_spark.spark.reading.stream_reader.IDLE_WAIT_SECONDS", 60.0)
    qm = fake(orders=3, payments=3)
    reader = reader_of(qm, queue="private$/*", startingOffsets="latest")
    start = reader.initialOffset()
    from threading import Timer

    Timer(0.2, qm.add, ("private$/payments", 1)).start()
    begun = time.monotonic()
    assert reader.latestOffset(start, EVERYTHING) == at((qm, "orders", 3), (qm, "payments", 4))
    assert time.monotonic() - begun < 30


def test_report_latest_offset_asks_nobody(fake: Fake) -> None:
    qm = fake(orders=100)
    reader = reader_of(qm)
    assert reader.reportLatestOffset() is None
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(10))
    before = len(qm.calls)
    assert reader.reportLatestOffset() == at((qm, "orders", 100))
    assert len(qm.calls) == before


def test_report_latest_offset_says_where_the_time_went_if_it_is_asked_to(fake: Fake) -> None:
    qm = fake(orders=100)
    reader = reader_of(qm, reportTimes="true")
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(10))
    told = reader.reportLatestOffset()
    assert told is not None
    assert list(told.pop("ms")) == ["marks", "queues", "range"]
    assert told == at((qm, "orders", 100))
    reader.partitions(start, end)
    reader.commit(end)
    reader.latestOffset(end, ReadMaxRows(10))
    told = reader.reportLatestOffset()
    assert told is not None
    assert list(told["ms"]) == ["marks", "queues", "range", "plan", "commit"], (
        "plan and commit of the batch before"
    )


def test_a_reader_that_only_reads_connects_to_nobody(fake: Fake) -> None:
    """Pitfall: Spark builds readers in planning processes and pickles them to executors."""
    import pickle

    qm = fake(orders=1)
    reader = pickle.loads(pickle.dumps(reader_of(qm)))
    assert reader.reportLatestOffset() is None
    reader.stop()
    assert qm.calls == []


def test_a_task_has_at_most_maxRecordsPerPartition_rows(fake: Fake) -> None:  # noqa: N802  # the option's name
    qm = fake(orders=25, payments=5)
    reader = reader_of(
        qm, queue="private$/*", startingOffsets="earliest", maxRecordsPerPartition="10"
    )
    start = reader.initialOffset()
    tasks = planned(reader, start, reader.latestOffset(start, EVERYTHING))
    assert [(queue, to - after) for queue, after, to in tasks] == [
        ("private$/orders", 8), ("private$/orders", 8), ("private$/orders", 9), ("private$/payments", 5),
    ]  # fmt: skip


def test_a_batch_waits_for_minOffsetsPerTrigger_rows(fake: Fake) -> None:  # noqa: N802  # the option's name
    """The first one does not, whatever is there."""
    qm = fake(orders=3, payments=0)
    reader = reader_of(
        qm,
        queue="private$/*",
        startingOffsets="earliest",
        minOffsetsPerTrigger="10",
        maxOffsetsPerTrigger="10",
    )
    start = reader.initialOffset()
    first = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert first == at((qm, "orders", 3), (qm, "payments", 0))
    qm.add("private$/orders", 5)
    qm.add("private$/payments", 4)
    assert reader.latestOffset(first, reader.getDefaultReadLimit()) == first
    assert reader.reportLatestOffset() == at((qm, "orders", 8), (qm, "payments", 4)), (
        "what waits is told all the same"
    )
    qm.add("private$/payments", 3)
    second = reader.latestOffset(first, reader.getDefaultReadLimit())
    assert sum(to - after for _, after, to in planned(reader, first, second)) == 10
    assert reader.latestOffset(second, reader.getDefaultReadLimit()) == second


def test_the_first_batch_of_a_query_at_the_end_is_empty_and_the_next_one_waits(fake: Fake) -> None:
    qm = fake(orders=3)
    reader = reader_of(qm, startingOffsets="latest", minOffsetsPerTrigger="10")
    first = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    assert first == at((qm, "orders", 3))
    qm.add("private$/orders", 1)
    assert reader.latestOffset(first, EVERYTHING) == first


def test_a_batch_waits_no_longer_than_maxTriggerDelay(fake: Fake) -> None:  # noqa: N802  # the option's name
    qm = fake(orders=1)
    reader = reader_of(
        qm, startingOffsets="earliest", minOffsetsPerTrigger="10", maxTriggerDelay="1s"
    )
    first = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    began = time.monotonic()
    qm.add("private$/orders", 1)
    held = 0
    while (second := reader.latestOffset(first, EVERYTHING)) == first:
        held += 1
        assert time.monotonic() < began + 10
    assert second == at((qm, "orders", 2))
    assert time.monotonic() - began > 0.9
    assert 0 < held < 20, "it asks at a measured pace"


def test_availableNow_does_not_wait_for_more_rows(fake: Fake) -> None:  # noqa: N802  # the trigger's name
    qm = fake(orders=12)
    reader = reader_of(
        qm, startingOffsets="earliest", minOffsetsPerTrigger="10", maxOffsetsPerTrigger="10"
    )
    start = reader.initialOffset()
    reader.prepareForTriggerAvailableNow()
    assert drain(reader, start, ReadMaxRows(10))[-1] == at((qm, "orders", 12))


def test_a_new_epoch_is_entered_while_a_batch_waits(fake: Fake) -> None:
    qm = fake(orders=3)
    reader = reader_of(qm, startingOffsets="earliest", minOffsetsPerTrigger="10")
    first = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    qm.new_epoch()
    entered = reader.latestOffset(first, EVERYTHING)
    assert entered == at((qm, "orders", 3))
    qm.add("private$/orders", 2)
    assert reader.latestOffset(entered, EVERYTHING) == entered


# --- readers that an operator paused --------------------------------------------------------------------------------------


def test_a_paused_log_plans_nothing_and_goes_on_where_it_was(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    qm = fake(orders=10, payments=5)
    reader = reader_of(qm, queue="private$/orders,private$/payments")
    start = reader.initialOffset()
    qm.paused_out.add("private$/orders")
    end = reader.latestOffset(start, EVERYTHING)
    assert end == at((qm, "orders", 0), (qm, "payments", 5))
    assert reader.latestOffset(end, ReadMaxRows(3)) == end, "a limit admits no row either"
    assert caplog.text.count("log.paused") == 1, "it is told once"
    assert "srmp-spark queue resume 'private$/orders'" in caplog.text
    qm.paused_out.clear()
    assert reader.latestOffset(end, EVERYTHING) == at((qm, "orders", 10), (qm, "payments", 5))


def test_a_batch_that_was_planned_before_the_pause_is_finished(fake: Fake) -> None:
    qm = fake(orders=10)
    reader = reader_of(qm)
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    qm.paused_out.add("private$/orders")
    assert planned(reader, start, end) == [("private$/orders", 0, 10)]
    assert reader.latestOffset(end, EVERYTHING) == end
    assert qm.consumer("private$/orders").received == 10, "its mark counts"


def test_a_paused_log_of_an_older_epoch_is_not_skipped(fake: Fake) -> None:
    qm = fake(orders=10)
    reader = reader_of(qm)
    start = reader.initialOffset()
    qm.new_epoch()
    qm.add("private$/orders", 5)
    qm.paused_out.add("private$/orders")
    assert reader.latestOffset(start, EVERYTHING) == start
