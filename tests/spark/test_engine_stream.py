"""The streaming source in the real engine. Each pitfall of Spark's Python data sources that applies to us is a test here."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from fake_queue_manager import FakeQueueManager

from srmp_spark.spark.reading.offsets import Offsets

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark
Fake = Callable[..., FakeQueueManager]

ORDERS = "private$/orders"


class Sink:
    """foreachBatch into a list: (batch, queue manager, queue, sequence) of each row."""

    def __init__(self) -> None:
        self.rows: list[tuple[int, str, str, int]] = []
        self.batches: list[int] = []

    def __call__(self, batch: DataFrame, number: int) -> None:
        self.batches.append(number)
        found = batch.select("queue_manager", "queue", "sequence").collect()
        self.rows += [(number, row.queue_manager, row.queue, row.sequence) for row in found]

    def sequences(self, queue: str = ORDERS) -> list[int]:
        return [sequence for _, _, name, sequence in self.rows if name == queue]


def source(spark: SparkSession, *managers: FakeQueueManager, **options: Any) -> DataFrame:
    urls = ",".join(each.url for each in managers)
    return (
        spark.readStream.format("srmp")
        .options(**{"queueManager": urls, "queue": ORDERS, **options})
        .load()
    )


def run(frame: DataFrame, checkpoint: Path, sink: Sink, **trigger: Any) -> StreamingQuery:
    """Until the end of AvailableNow (the default) or Once."""
    query = start(frame, checkpoint, sink, **(trigger or {"availableNow": True}))
    assert query.awaitTermination(60)
    return query


def start(frame: DataFrame, checkpoint: Path, sink: Sink, **trigger: Any) -> StreamingQuery:
    writer = frame.writeStream.foreachBatch(sink).option("checkpointLocation", str(checkpoint))
    return (writer.trigger(**trigger) if trigger else writer).start()


def eventually(what: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.05)


def numbers(checkpoint: Path, kind: str) -> list[int]:
    return sorted(int(file.name) for file in (checkpoint / kind).iterdir() if file.name.isdigit())


def forget(checkpoint: Path, kind: str, *batches: int) -> None:
    for number in batches:
        (checkpoint / kind / str(number)).unlink()
        (checkpoint / kind / f".{number}.crc").unlink(missing_ok=True)


def test_available_now_with_a_limit_of_100_over_1000_rows_is_10_batches(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    """And each mark is sent when the batch's commit is on disk, that of the last batch included."""
    qm, sink = fake(orders=1000), Sink()
    committed: list[tuple[int, bool]] = []

    def on_mark(queue: str, to: int) -> None:
        committed.append((to, (tmp_path / "commits" / str(to // 100 - 1)).exists()))

    qm.on_mark = on_mark
    run(source(spark, qm, maxOffsetsPerTrigger=100), tmp_path, sink)
    assert sink.batches == list(range(10))
    assert sink.sequences() == list(range(1, 1001))
    assert committed == [(n, True) for n in range(100, 1001, 100)]
    offsets = (tmp_path / "offsets" / "9").read_text().splitlines()[2]
    assert (
        str(Offsets.from_text(offsets))
        == f'{{"qm":{{"{qm.guid}":{{"{qm.epoch}":{{"{ORDERS}":1000}}}}}},"v":1}}'
    )
    eventually(lambda: qm.consumer(ORDERS).holder is None)


def test_bytes_limit_available_now_too(spark: SparkSession, fake: Fake, tmp_path: Path) -> None:
    qm, sink = fake(orders=30), Sink()
    run(source(spark, qm, maxBytesPerTrigger=10_000), tmp_path, sink)
    assert sink.batches == [0, 1, 2]


def test_trigger_once_takes_all_and_its_mark_comes_with_the_next_start(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm, sink = fake(orders=1000), Sink()
    frame = source(spark, qm, maxOffsetsPerTrigger=100)
    run(frame, tmp_path, sink, once=True)
    assert sink.batches == [0]
    assert qm.marks == []
    run(frame, tmp_path, sink, once=True)
    assert [to for *_, to in qm.marks] == [1000]


def test_an_idle_query_marks_its_last_batch_does_not_spin_and_stops_at_once(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm, sink = fake(orders=10), Sink()
    query = start(source(spark, qm), tmp_path, sink)
    eventually(lambda: [to for *_, to in qm.marks] == [10])
    qm.add(ORDERS, 1)
    eventually(lambda: sink.sequences() == list(range(1, 12)))
    eventually(lambda: [to for *_, to in qm.marks] == [10, 11])
    qm.calls.clear()
    time.sleep(2)
    assert len(sink.batches) == 2, "no empty batches: one value has one text"
    assert len(qm.calls) <= 2 * 10, "a long poll each 0.15 s, and the list of queues"
    assert query.lastProgress is not None
    begun = time.monotonic()
    query.stop()
    assert time.monotonic() - begun < 20, (
        "it waits for no poll of an idle queue manager, of which there is one after the other"
    )
    eventually(lambda: qm.consumer(ORDERS).holder is None, 30)


def test_without_its_last_commit_a_batch_is_run_again_as_it_was(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    """Pitfall: then `partitions` comes first, in a new process, without initialOffset or latestOffset."""
    qm, sink = fake(orders=25), Sink()
    run(source(spark, qm, maxOffsetsPerTrigger=10), tmp_path, sink)
    forget(tmp_path, "commits", 2)
    qm.add(ORDERS, 100)
    again = Sink()
    run(source(spark, qm), tmp_path, again)
    assert [row for row in again.rows if row[0] == 2] == [row for row in sink.rows if row[0] == 2]
    assert again.sequences() == [*range(21, 26), *range(26, 126)]


def test_without_offsets_and_commit_the_batch_of_that_number_holds_other_rows(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    """Why no sink may skip a batch by its number."""
    qm, sink = fake(orders=15), Sink()
    run(source(spark, qm, maxOffsetsPerTrigger=10), tmp_path, sink)
    forget(tmp_path, "commits", 1)
    forget(tmp_path, "offsets", 1)
    qm.add(ORDERS, 100)
    again = Sink()
    run(source(spark, qm, maxOffsetsPerTrigger=50), tmp_path, again)
    assert [row[3] for row in again.rows if row[0] == 1] == list(range(11, 61))


def test_resume_wins_over_starting_offsets(spark: SparkSession, fake: Fake, tmp_path: Path) -> None:
    qm, sink = fake(orders=10), Sink()
    run(source(spark, qm), tmp_path, sink)
    qm.add(ORDERS, 5)
    run(source(spark, qm, startingOffsets="earliest"), tmp_path, sink)
    assert sink.sequences() == list(range(1, 16))


def test_two_queries_on_two_queues(spark: SparkSession, fake: Fake, tmp_path: Path) -> None:
    qm, orders, payments = fake(orders=10, payments=20), Sink(), Sink()
    one = start(source(spark, qm), tmp_path / "1", orders)
    two = start(source(spark, qm, queue="private$/payments"), tmp_path / "2", payments)
    eventually(lambda: len(orders.rows) == 10 and len(payments.rows) == 20)
    for query in (one, two):
        query.stop()
    assert orders.sequences() == list(range(1, 11))
    assert payments.sequences("private$/payments") == list(range(1, 21))


def test_a_second_receiver_is_refused_by_name_and_a_named_consumer_is_not(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    """Two sinks on one DataFrame are two receivers as well."""
    qm, sink, second, named = fake(orders=10), Sink(), Sink(), Sink()
    qm.lease_seconds = 30.0
    frame = source(spark, qm)
    first = start(frame, tmp_path / "1", sink)
    eventually(lambda: len(sink.rows) == 10)
    refused = start(frame, tmp_path / "2", second)
    run(source(spark, qm, consumer="audit"), tmp_path / "3", named)
    assert named.sequences() == sink.sequences()
    with pytest.raises(Exception, match=r"C00E0009"):
        refused.awaitTermination(20)
    assert f'"host": "{os.uname().nodename}"' in str(refused.exception())
    assert second.rows == []
    first.stop()


def test_one_query_on_two_queue_managers_and_two_queues(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    one, two, sink = fake(orders=30, payments=5), fake(orders=20), Sink()
    run(
        source(spark, one, two, queue="private$/*", maxOffsetsPerTrigger=10, minPartitions=4),
        tmp_path,
        sink,
    )
    for manager, queue, rows in (
        (one, ORDERS, 30),
        (one, "private$/payments", 5),
        (two, ORDERS, 20),
    ):
        got = [
            sequence
            for _, guid, name, sequence in sink.rows
            if (guid, name) == (manager.guid, queue)
        ]
        assert got == list(range(1, rows + 1))
        assert manager.consumer(queue).received == rows


def test_an_epoch_is_followed_in_mid_stream(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm, sink = fake(orders=10), Sink()
    run(source(spark, qm, maxOffsetsPerTrigger=4), tmp_path, sink)
    qm.add(ORDERS, 3)
    qm.new_epoch()
    qm.add(ORDERS, 5)
    run(source(spark, qm, maxOffsetsPerTrigger=4), tmp_path, sink)
    assert sink.sequences() == list(range(1, 19))
    assert qm.consumer(ORDERS).received == 18


def test_data_loss_stops_the_query_in_words(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm, sink = fake(orders=10), Sink()
    run(source(spark, qm), tmp_path, sink)
    qm.add(ORDERS, 100)
    qm.logs[ORDERS].first = 51
    with pytest.raises(
        Exception, match=r"rows up to 50 were deleted by retention.*failOnDataLoss=false"
    ):
        run(source(spark, qm), tmp_path, sink)
    run(source(spark, qm, failOnDataLoss="false"), tmp_path, sink)
    assert sink.sequences() == [*range(1, 11), *range(51, 111)]


def test_a_killed_reader_fails_the_query_and_a_restart_needs_no_help(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm, sink = fake(orders=10), Sink()
    query = start(source(spark, qm), tmp_path, sink)
    eventually(lambda: len(sink.rows) == 10)
    holder: Any = qm.consumer(ORDERS).holder
    os.kill(holder["pid"], signal.SIGKILL)
    with pytest.raises(Exception, match=r"."):
        query.awaitTermination(20)
    assert qm.consumer(ORDERS).holder == holder, "nobody released it"
    qm.add(ORDERS, 5)
    run(source(spark, qm), tmp_path, sink)
    assert sink.sequences() == list(range(1, 16))


def test_a_queue_manager_that_comes_back_is_nothing_special(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    qm, sink = fake(orders=10), Sink()
    query = start(source(spark, qm), tmp_path, sink)
    eventually(lambda: len(sink.rows) == 10)
    qm.close()
    time.sleep(1.5)
    qm.add(ORDERS, 5)
    qm.open()
    eventually(lambda: sink.sequences() == list(range(1, 16)))
    query.stop()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"maxOffsetPerTrigger": 5}, "did you mean 'maxOffsetsPerTrigger'?"),
        ({"queue": "private$/ordesr"}, "did you mean 'private$/orders'?"),
        ({"endingOffsets": "latest"}, "endingOffsets has no effect here"),
    ],
)
def test_a_wrong_option_is_said_in_words(
    spark: SparkSession, fake: Fake, tmp_path: Path, options: dict[str, Any], says: str
) -> None:
    """Pitfall: what streamReader() raises is buried under an UnboundLocalError."""
    with pytest.raises(Exception) as error:
        run(source(spark, fake(orders=1), **options), tmp_path, Sink())
    assert says in str(error.value)
    assert "UnboundLocalError" not in str(error.value)


def test_the_json_of_progress_shows_how_far_behind_the_query_is(
    spark: SparkSession, fake: Fake, tmp_path: Path
) -> None:
    """Pitfall: a Python source has no metrics; `latestOffset` is what there is."""
    qm = fake(orders=100)
    query = run(source(spark, qm, maxOffsetsPerTrigger=60), tmp_path, Sink())
    progress = [
        json.loads(each.json) if hasattr(each, "json") else each for each in query.recentProgress
    ]
    latest = progress[0]["sources"][0]["latestOffset"]
    assert (
        Offsets.from_dict(latest if isinstance(latest, dict) else json.loads(latest)).as_dict()[
            "qm"
        ][qm.guid][qm.epoch][ORDERS]
        == 100
    )
