"""The publisher over a real data directory: what the journal committed is what the table holds."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from real_log_kit import ORDER_URL, SENDER, RealLog, posted
from store_kit import NOW, QUEUE

from srmp_spark.srmp.receiving.effects import Changes
from srmp_spark.srmp.receiving.history import HistoryChanges, HistoryRun, MessageIdHistory
from srmp_spark.srmp.receiving.stream_effects import IncomingStreamRow
from srmp_spark.store.delta import stored_log
from srmp_spark.store.delta.stored_log import StoredLog
from srmp_spark.store.directory import DATABASE_FILE
from srmp_spark.store.stored_rows import sealing
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import queues, state
from tests.kit.offline_purge import purge


@pytest.fixture
def real(tmp_path: Path) -> Iterator[RealLog]:
    log = RealLog(tmp_path)
    yield log
    log.store.close()


def test_what_was_committed_lands_with_all_columns(real: RealLog) -> None:
    real.put(30)
    publisher = real.publisher()
    report = publisher.publish_once()
    real.put(5)
    publisher.publish_once()
    rows = real.landed()
    assert [row["sequence"] for row in rows] == list(range(1, 36))
    assert [row["body"] for row in rows] == [b"order %d" % n for n in range(1, 36)]
    assert {row["epoch"] for row in rows} == {real.store.directory.epoch}
    assert report.sequences == {real.store.directory.epoch: {QUEUE: 30}}
    assert rows[2]["stream_id"] == f"uid:{SENDER}\\7"
    assert rows[2]["delivery"] == "transactional"


def test_the_report_names_the_commit_of_the_snapshot(real: RealLog) -> None:
    real.put(3)
    assert real.publisher().publish_once().position == real.store.journal.position


def test_purged_rows_are_left_out_and_the_next_ones_follow(real: RealLog) -> None:
    real.put(4)
    publisher = real.publisher()
    publisher.publish_once()
    real.put(3)
    real.store.call(lambda transaction: purge(transaction, QUEUE, real.store.directory.segments))
    real.put(2)
    publisher.publish_once()
    assert [row["sequence"] for row in real.landed()] == [1, 2, 3, 4, 8, 9]


def test_streams_and_history_land_as_the_journal_has_them(real: RealLog) -> None:
    stream = IncomingStreamRow(QUEUE, SENDER, 2**63 + 7, 12, 11, ORDER_URL, "192.0.2.1", None, 1,
                               NOW, NOW + 1, None)  # fmt: skip
    runs = [HistoryRun(SENDER, 1, 12, NOW), HistoryRun(SENDER, 2**64 - 2, 2**64 - 1, NOW)]
    changes = Changes(
        streams=[stream],
        history=HistoryChanges(upserts=runs, deletes=[]),
        dropped_streams=[],
        generation=1,
    )
    real.store.call(lambda transaction: state.save_changes(transaction.connection, changes))
    real.publisher().publish_once()
    (row,) = real.landed("incoming_streams")
    assert (row["source_qm"], row["stream_id"]) == (SENDER, f"uid:{SENDER}\\{2**63 + 7}")
    assert (row["sequence_number"], row["last_acknowledged"], row["reject_count"]) == (12, 11, 1)
    history = {
        (row["uniquifier_first"], row["uniquifier_last"])
        for row in real.landed("message_id_history")
    }
    assert history == {(1, 12), (-2, -1)}, "numbers from 2^63 are shown as two's complement"


def test_a_run_that_grows_over_the_next_page_is_not_missed(
    real: RealLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Millions of runs are read page by page, and messages go on coming: what was known at the beginning must be there."""
    monkeypatch.setattr(stored_log, "PAGE_ROWS", 2)
    history = MessageIdHistory()
    connection = real.store.directory.writer

    def receive(*numbers: int) -> None:
        for number in numbers:
            history.add(SENDER, number, NOW)
        changes = Changes([], history.take_changes(), [], 1)
        real.store.call(lambda transaction: state.save_changes(transaction.connection, changes))

    def known() -> set[int]:
        return {n for run in state.load_history(connection) for n in range(run.first, run.last + 1)}

    receive(1, 2, 3, 5, 7, 8, 9, 11, 13, 15, 17)
    before = known()
    source = StoredLog(real.path, real.guid)
    pages = source.identifiers()
    rows = list(next(pages))
    assert [(row.uniquifier_first, row.uniquifier_last) for row in rows] == [(1, 3), (5, 5)]
    receive(
        4, 6
    )  # 1 to 9 are one run now: the row that the next page would have begun with is gone
    rows += next(pages)
    receive(10, 12, 14)
    rows += [row for page in pages for row in page]
    source.close()
    seen = {n for row in rows for n in range(row.uniquifier_first, row.uniquifier_last + 1)}
    assert before <= seen <= known()
    assert len(rows) > 2


def test_a_damaged_row_stops_its_own_queue_and_is_told(real: RealLog) -> None:
    real.store.call(lambda transaction: queues.create(transaction, "audit", transactional=False))
    real.put(3)
    done: list[object] = []
    real.store.journal.submit(("audit", 1, posted(1)), done.append)
    real.store.loop.until(lambda: done)
    real.store.settle()
    real.store.directory.writer.execute(
        "UPDATE groups SET data = substr(data, 1, length(data) - 1) WHERE queue_id = 2"
    )
    real.store.directory.writer.execute("PRAGMA wal_checkpoint")
    publisher = real.publisher()
    report = publisher.publish_once()
    assert "rows 1 to 1 of audit" in report.damaged["audit"]
    assert report.sequences == {real.store.directory.epoch: {"audit": 0, QUEUE: 3}}
    assert [row["queue"] for row in real.landed()] == [QUEUE] * 3
    real.store.call(
        lambda transaction: queues.give_up(
            transaction, "audit", 1, 1, real.store.directory.segments
        )
    )
    report = publisher.publish_once()
    assert (report.damaged, report.sequences[real.store.directory.epoch]["audit"]) == (
        {},
        1,
    ), "given up, it goes on"


def test_the_publisher_reads_only(real: RealLog) -> None:
    real.put(2)
    log = StoredLog(real.path, real.guid)
    before = (real.path / DATABASE_FILE).stat().st_mtime_ns
    list(log.batches(real.store.directory.epoch, QUEUE, 0, 2))
    log.close()
    assert (real.path / DATABASE_FILE).stat().st_mtime_ns == before


def test_sealed_rows_land_like_unsealed_ones(real: RealLog) -> None:
    real.put(20)
    segments = real.store.directory.segments
    with Log(real.path / DATABASE_FILE, segments) as stored:
        plan = sealing.plan(stored, QUEUE, NOW + 10**12)
        assert plan is not None
        sealed = sealing.write_segment(stored, plan, segments)
    assert real.store.call(
        lambda transaction: sealing.commit_segment(transaction, sealed, segments)
    )
    real.put(3)
    real.publisher().publish_once()
    rows = real.landed()
    assert [row["sequence"] for row in rows] == list(range(1, 24))
    assert [row["body"] for row in rows] == [b"order %d" % n for n in range(1, 24)]
