"""What a task does with its partition: exact schema, good batch sizes, the plan checked against what came."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pyarrow as pa
import pytest
from fake_queue_manager import FakeQueueManager

from srmp_spark.errors import ApiError, ApiUnreachableError, DataLossError, SrmpSparkError
from srmp_spark.rows.columns import arrow_schema
from srmp_spark.spark.reading import partitions
from srmp_spark.spark.reading.offsets import LogKey
from srmp_spark.spark.reading.partitions import (
    BATCH_ROWS_MAX,
    BATCH_ROWS_MIN,
    SrmpPartition,
    merged,
    read_partition,
)
from srmp_spark.spark.settings.options import SourceOptions, parse

Fake = Callable[..., FakeQueueManager]


def partition(qm: FakeQueueManager, after: int, to: int, **more: str) -> SrmpPartition:
    return SrmpPartition(
        qm.url, LogKey(qm.guid, "private$/orders"), more.pop("epoch", qm.epoch), after, to, **more
    )


def options(**more: str) -> SourceOptions:
    return parse({"queueManager": "http://unused:1", "queue": "private$/orders", **more})


def sequences(batches: list[pa.RecordBatch]) -> list[int]:
    return [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]


def test_rows_come_in_order_in_large_batches_of_the_exact_schema(fake: Fake) -> None:
    """Pitfall: Spark checks the first batch only; the source sends 700 rows each."""
    batches = list(read_partition(partition(fake(orders=10_000), 1_000, 9_000), options()))
    assert sequences(batches) == list(range(1_001, 9_001))
    assert all(batch.schema.equals(arrow_schema()) for batch in batches)
    assert all(BATCH_ROWS_MIN <= batch.num_rows <= BATCH_ROWS_MAX for batch in batches[:-1])


def test_large_bodies_make_small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "BATCH_BYTES_MAX", 10_000)
    batch = pa.record_batch({"body": pa.array([b"x" * 1_000] * 100)})
    cut = list(merged(iter([batch])))
    assert sum(each.num_rows for each in cut) == 100
    assert all(each.nbytes <= 11_000 for each in cut)


def test_a_body_larger_than_a_batch_is_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "BATCH_BYTES_MAX", 10)
    assert [
        each.num_rows
        for each in merged(iter([pa.record_batch({"body": pa.array([b"x" * 1_000] * 3)})]))
    ] == [1, 1, 1]


def test_the_envelope_comes_on_request(fake: Fake) -> None:
    part = partition(fake(orders=2), 0, 2)
    assert next(read_partition(part, options())).column("envelope").to_pylist() == [None, None]
    assert next(read_partition(part, options(includeEnvelope="true"))).column(
        "envelope"
    ).to_pylist() == ["<e/>", "<e/>"]


def test_a_broken_answer_is_taken_up_behind_its_last_row(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "RESUME_PAUSE_SECONDS", 0.01)
    qm = fake(orders=5_000)
    qm.break_reads = 3
    assert sequences(list(read_partition(partition(qm, 0, 5_000), options()))) == list(
        range(1, 5_001)
    )
    assert sum(path.endswith("/rows") for _, path in qm.calls) == 4


def test_a_read_without_progress_ends(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(partitions, "RESUME_SECONDS", 0.3)
    monkeypatch.setattr(partitions, "RESUME_PAUSE_SECONDS", 0.05)
    qm = fake(orders=1)
    qm.break_reads = 1_000
    with pytest.raises(ApiUnreachableError):
        list(read_partition(partition(qm, 0, 1), options()))


def test_a_read_waits_as_long_as_queue_manager_timeout_says(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partitions, "RESUME_SECONDS", 0.0)
    monkeypatch.setattr(partitions, "RESUME_PAUSE_SECONDS", 0.05)
    qm = fake(orders=3)
    qm.break_reads = 5
    waiting = options(queueManagerTimeout="1m")
    assert sequences(list(read_partition(partition(qm, 0, 3), waiting))) == [1, 2, 3]
    qm.break_reads = 1_000
    with pytest.raises(ApiUnreachableError):
        list(read_partition(partition(qm, 0, 3), options(queueManagerTimeout="10ms")))


def test_counted_holes_are_no_loss(fake: Fake) -> None:
    qm = fake(orders=100)
    qm.logs["private$/orders"].holes = [(1, 10), (50, 50), (96, 100)]
    got = sequences(list(read_partition(partition(qm, 4, 98), options())))
    assert got == [n for n in range(11, 96) if n != 50]


def test_missing_rows_are_a_loss(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    qm = fake(orders=100)
    qm.logs["private$/orders"].holes = [(5, 6)]
    qm.logs["private$/orders"].lost = {50, 100}
    with pytest.raises(
        DataLossError, match="4 rows of 1 to 100 were not received, 2 are known holes"
    ):
        list(read_partition(partition(qm, 0, 100), options()))
    with caplog.at_level(logging.WARNING):
        assert (
            len(
                sequences(
                    list(read_partition(partition(qm, 0, 100), options(failOnDataLoss="false")))
                )
            )
            == 96
        )
    assert "2 are known holes" in caplog.text


def test_rows_trimmed_between_plan_and_read(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    qm = fake(orders=100)
    qm.logs["private$/orders"].first = 51
    with pytest.raises(DataLossError, match="planned 11 to 100"):
        list(read_partition(partition(qm, 10, 100), options()))
    with caplog.at_level(logging.WARNING):
        assert sequences(
            list(read_partition(partition(qm, 10, 100), options(failOnDataLoss="false")))
        ) == list(range(51, 101))
    assert "skips 11 to 50" in caplog.text


def test_another_log_under_the_same_url(fake: Fake) -> None:
    """The queue manager was replaced after the plan was made: its epoch is another one."""
    with pytest.raises(DataLossError, match="epoch gone"):
        list(read_partition(partition(fake(orders=100), 0, 100, epoch="gone"), options()))


@pytest.mark.parametrize("gone", ["epoch", "queue"])
def test_a_planned_batch_whose_log_is_gone_is_passed_if_the_options_allow_it(
    fake: Fake, gone: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Nobody can say which of its rows were holes; the query could never go on."""
    qm = fake(orders=100) if gone == "epoch" else fake(payments=1)
    planned = partition(qm, 0, 100, epoch="gone") if gone == "epoch" else partition(qm, 0, 100)
    with caplog.at_level(logging.WARNING):
        assert list(read_partition(planned, options(failOnDataLoss="false"))) == []
    assert "skips 1 to 100" in caplog.text


def test_rows_of_another_queue_manager_are_refused(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load balancer spread the calls over two: the rows would be those of another queue of the same name."""
    planned_with, answers = fake(orders=10), fake(orders=10)
    answers.epoch, answers.logs = planned_with.epoch, planned_with.logs
    elsewhere = SrmpPartition(
        answers.url, LogKey(planned_with.guid, "private$/orders"), planned_with.epoch, 0, 10
    )
    with pytest.raises(ApiError, match=answers.guid) as refused:
        list(read_partition(elsewhere, options()))
    assert refused.value.code == "another-queue-manager"


def test_a_loopback_address_on_another_host_is_told_at_once(fake: Fake) -> None:
    qm = fake(orders=10)
    elsewhere = partition(qm, 0, 10, planned_on="driver.example")
    assert sequences(list(read_partition(elsewhere, options()))) == [*range(1, 11)], (
        "it may be a network that both share"
    )
    qm.close()
    with pytest.raises(
        SrmpSparkError,
        match=r"option queueManager is .*driver\.example.* address that executors reach",
    ):
        list(read_partition(elsewhere, options()))


def test_rows_outside_the_plan_are_refused(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    qm = fake(orders=100)
    rows = qm.rows
    monkeypatch.setattr(qm, "rows", lambda queue, q: rows(queue, {**q, "after": "0", "to": "100"}))
    with pytest.raises(DataLossError, match="planned 11 to 20"):
        list(read_partition(partition(qm, 10, 20), options()))


def test_other_columns_are_refused(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    qm = fake(orders=1)
    narrow = pa.schema([pa.field("sequence", pa.int64())])
    monkeypatch.setattr("fake_queue_manager.arrow_schema", lambda: narrow)
    monkeypatch.setattr(
        qm, "rows", lambda queue, q: [pa.record_batch([pa.array([1])], schema=narrow)]
    )
    with pytest.raises(SrmpSparkError, match="install one srmp-spark"):
        list(read_partition(partition(qm, 0, 1), options()))


def test_an_embedded_queue_manager_is_on_one_host(fake: Fake) -> None:
    with pytest.raises(
        SrmpSparkError, match="embedded queue manager is on elsewhere; run srmp-spark serve"
    ):
        read_partition(partition(fake(orders=1), 0, 1, host="elsewhere"), options())


def test_an_answer_is_read_as_it_comes(fake: Fake) -> None:
    """A large range is never held in memory: the first batch is there while the rest is still on its way."""
    qm = fake(orders=50_000)
    rows = read_partition(partition(qm, 0, 50_000), options())
    first = next(rows)
    assert qm.answered == 0
    assert first.num_rows + sum(batch.num_rows for batch in rows) == 50_000
    assert qm.answered == 1
