"""Sealing, purging and retention: each step may be the last before a crash, and no row is lost or shown twice."""

from __future__ import annotations

import errno
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from store_kit import NOW, QUEUE, Store, srmp_record

from srmp_spark.errors import StoreDamagedError
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.database import disk_room, sweeper
from srmp_spark.store.database.disk_room import Volume
from srmp_spark.store.stored_rows import reading, retention, sealing
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import queues, state
from tests.kit.offline_purge import purge

DAY = 86_400_000_000


def rows(path: Path, after: int, to: int, epoch: str | None = None) -> list[tuple[int, bytes]]:
    with Log(path / "store.db", path / "segments") as log:
        found = list(reading.records(log, QUEUE, epoch, after, to))
        columns = [
            pair
            for batch in reading.batches(log, "qm", QUEUE, epoch, after, to)
            for pair in zip(
                batch.column("sequence").to_pylist(), batch.column("body").to_pylist(), strict=True
            )
        ]
    assert [(n, record.content) for n, record in found] == [
        (n, srmp_record(n).content) for n, _ in found
    ]
    assert [n for n, _ in columns] == [n for n, _ in found]
    return columns


def plan_of(store: Store, now: int = NOW + 365 * DAY) -> sealing.SealPlan | None:
    with Log(store.directory.database, store.directory.segments) as log:
        return sealing.plan(log, QUEUE, now)


def write(store: Store, plan: sealing.SealPlan) -> sealing.Sealed:
    with Log(store.directory.database, store.directory.segments) as log:
        return sealing.write_segment(log, plan, store.directory.segments)


def seal(store: Store) -> sealing.Sealed:
    plan = plan_of(store)
    assert plan is not None
    sealed = write(store, plan)
    assert commit(store, sealed)
    return sealed


def commit(store: Store, sealed: sealing.Sealed) -> bool:
    return store.call(lambda t: sealing.commit_segment(t, sealed, store.directory.segments))


def sweep(store: Store) -> None:
    while store.call(sweeper.sweep):
        pass


def mark(store: Store, to: int, ahead: list[tuple[int, int]] | None = None) -> None:
    consumer = state.StoredConsumer(
        QUEUE, "default", to, SequenceSet(ahead or []), None, None, None
    )
    store.call(lambda t: state.save_consumer(t.connection, store.queue_id, consumer))


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data")


def groups(store: Store) -> int:
    return int(store.directory.writer.execute("SELECT count(*) FROM groups").fetchone()[0])


def test_little_is_left_alone_until_it_is_old(store: Store) -> None:
    store.put(5, make=srmp_record)
    assert plan_of(store, now=NOW) is None
    late = plan_of(store, now=NOW + int(sealing.SEAL_AGE_S * 1e6) + 10)
    assert late is not None
    assert (late.first, late.last) == (1, 5)


def test_much_is_sealed_in_bounded_pieces(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sealing, "SEAL_ROWS_MIN", 10)
    monkeypatch.setattr(sealing, "SEAL_ROWS_MAX", 16)
    store.put(50, together=5, make=srmp_record)
    pieces = []
    while (plan := plan_of(store, now=NOW)) is not None:
        sealed = write(store, plan)
        assert commit(store, sealed)
        pieces.append((plan.first, plan.last))
    assert pieces == [(1, 15), (16, 30), (31, 45)], "the last five rows are too few"
    monkeypatch.setattr(sealing, "SEAL_BYTES_MAX", 1)
    last = plan_of(store)
    assert last is not None
    assert (last.first, last.last) == (46, 50), "at least one group, however large"


def test_a_segment_stays_in_one_epoch(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.put(3, make=srmp_record)
    store.close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    store = Store(tmp_path / "copy")
    store.put(3, make=srmp_record)
    first = seal(store).plan
    second = seal(store).plan
    assert (first.first, first.last, second.first, second.last) == (1, 3, 4, 6)
    assert first.epoch != second.epoch
    store.close()


def test_a_crash_at_each_step_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The directory is copied between the steps, as a crash would leave it; each copy must hold every row once."""
    monkeypatch.setattr(sweeper, "SWEEP_GROUPS_MAX", 4)
    store = Store(tmp_path / "data")
    store.put(40, together=3, make=srmp_record)
    copies: list[Path] = []
    epoch = store.directory.epoch  # a copy begins a new one; the rows keep theirs

    def crash_here() -> None:
        copies.append(tmp_path / f"crash{len(copies)}")
        shutil.copytree(store.directory.path, copies[-1])

    crash_here()
    plan = plan_of(store)
    assert plan is not None
    write_durably: Callable[..., None] = sealing.write_durably

    def write_and_crash(path: Path, data: bytes, *, sync_folder: bool) -> None:
        path.with_name(path.name + ".new").write_bytes(data[: len(data) // 2])
        crash_here()
        write_durably(path, data, sync_folder=sync_folder)
        crash_here()

    monkeypatch.setattr(sealing, "write_durably", write_and_crash)
    sealed = write(store, plan)
    monkeypatch.setattr(sealing, "write_durably", write_durably)
    assert commit(store, sealed)
    crash_here()
    while store.call(sweeper.sweep):
        crash_here()
    crash_here()
    store.close()
    assert len(copies) >= 10

    for copy in copies:
        again = Store(copy)
        orphans, missing = sealing.remove_orphans(again.directory.writer, again.directory.segments)
        assert missing == []
        assert rows(copy, 0, 40, epoch) == [(n, b"%08d" % n * 37) for n in range(1, 41)], copy
        if plan_of(again) is not None:  # it can be sealed from where it stopped
            seal(again)
        sweep(again)
        assert groups(again) == 0
        assert [n for n, _ in rows(copy, 0, 40, epoch)] == list(range(1, 41))
        again.put(1, make=srmp_record)
        assert again.sequence == 41
        again.close()
        assert all(path.suffix in (".arrow", ".new") for path in orphans)


def test_orphans_are_deleted_and_missing_files_named(store: Store) -> None:
    store.put(5, make=srmp_record)
    sealed = seal(store)
    folder = store.directory.segments / str(sealed.plan.queue_id)
    (folder / "9-12.columns.arrow").write_bytes(b"half")
    (folder / "1-5.posts.arrow").unlink()
    orphans, missing = sealing.remove_orphans(store.directory.writer, store.directory.segments)
    assert [path.name for path in orphans] == ["9-12.columns.arrow"]
    assert [path.name for path in missing] == ["1-5.posts.arrow"]


def test_swapped_segments_are_found(store: Store) -> None:
    """T8: both files are whole, each is only not the one that was sealed there."""
    for _ in range(2):
        store.put(5, make=srmp_record)
        seal(store)
    one, other = (
        store.directory.segments / f"{store.queue_id}/{name}.columns.arrow"
        for name in ("1-5", "6-10")
    )
    data = one.read_bytes()
    one.write_bytes(other.read_bytes())
    other.write_bytes(data)
    for after in (0, 5):
        with pytest.raises(StoreDamagedError, match="not what was sealed"):
            rows(store.directory.path, after, after + 5)


def test_a_segment_is_entered_once(store: Store) -> None:
    store.put(5, make=srmp_record)
    sealed = seal(store)
    assert not commit(store, sealed)
    assert plan_of(store) is None
    assert len(rows(store.directory.path, 0, 5)) == 5, (
        "the files are those of the segment that was entered"
    )


@pytest.mark.parametrize("change", ["purge", "delete", "trim", "file"])
def test_a_plan_that_is_out_of_date_is_not_entered(store: Store, change: str) -> None:
    store.put(5, make=srmp_record)
    plan = plan_of(store)
    assert plan is not None
    sealed = write(store, plan)
    segments = store.directory.segments
    if change == "purge":
        store.call(lambda t: purge(t, QUEUE, segments))
        sweep(store)
    elif change == "delete":
        store.call(lambda t: queues.delete(t, QUEUE, segments, NOW))
    elif change == "trim":
        mark(store, 5)
        store.call(lambda t: retention.trim(t, QUEUE, 5, segments))
    else:
        (segments / (sealed.file + ".posts.arrow")).write_bytes(b"")
    assert not commit(store, sealed)
    assert not list(segments.glob("*/*")), "its files are deleted, and not only by the next start"


@pytest.mark.parametrize("spare", [sealing.SEAL_SPARE_BYTES, None])
def test_a_segment_without_room_leaves_no_file(
    store: Store, monkeypatch: pytest.MonkeyPatch, spare: int | None
) -> None:
    """Messages took the room since it was planned: before the first file is written, or in the middle."""
    store.put(5, make=srmp_record)
    plan = plan_of(store)
    assert plan is not None
    if spare is not None:
        monkeypatch.setattr(
            Volume, "look", lambda _: Volume(free=disk_room.DISK_FREE_MIN + spare, size=1 << 40)
        )
        with pytest.raises(sealing.NoSealRoomError):
            write(store, plan)
    else:
        real = sealing.write_durably

        def full(path: Path, data: bytes, *, sync_folder: bool) -> None:
            if "posts" in path.name:
                raise OSError(errno.ENOSPC, "No space left on device")
            real(path, data, sync_folder=sync_folder)

        monkeypatch.setattr(sealing, "write_durably", full)
        with pytest.raises(OSError, match="No space left"):
            write(store, plan)
    assert not list(store.directory.segments.glob("*/*"))
    monkeypatch.undo()
    assert commit(store, write(store, plan)), "later"


def test_a_damaged_row_is_not_sealed_away(store: Store) -> None:
    store.put(6, together=2, make=srmp_record)
    store.directory.writer.execute("UPDATE groups SET data = substr(data, 1, 100) WHERE first = 3")
    plan = plan_of(store)
    assert plan is not None
    with pytest.raises(StoreDamagedError):
        write(store, plan)
    store.call(lambda t: queues.give_up(t, QUEUE, 3, 4, store.directory.segments))
    seal(store)
    assert [n for n, _ in rows(store.directory.path, 0, 6)] == [1, 2, 5, 6]


@pytest.mark.parametrize("pieces", [[(1, 1), (2, 3)], [(2, 3), (1, 1)], [(2, 2), (1, 1), (3, 3)]])
def test_a_damaged_group_that_is_given_up_in_pieces_does_not_end_sealing(
    store: Store, monkeypatch: pytest.MonkeyPatch, pieces: list[tuple[int, int]]
) -> None:
    monkeypatch.setattr(sealing, "SEAL_ROWS_MAX", 3)
    store.put(9, together=3, make=srmp_record)
    store.directory.writer.execute("UPDATE groups SET data = substr(data, 1, 100) WHERE first = 1")
    for first, last in pieces:
        store.call(
            lambda t, first=first, last=last: queues.give_up(
                t, QUEUE, first, last, store.directory.segments
            )
        )
    assert [(seal(store).plan[4:6]) for _ in range(2)] == [(4, 6), (7, 9)]
    assert holes_of(store) == [(1, 3, "damaged")]
    assert [n for n, _ in rows(store.directory.path, 0, 9)] == [4, 5, 6, 7, 8, 9]
    sweep(store)
    assert groups(store) == 0, "the damaged group is gone too"


@pytest.mark.parametrize("given_up_first", [True, False])
def test_holes_of_two_kinds_that_cover_a_group_together_do_not_end_sealing(
    store: Store, monkeypatch: pytest.MonkeyPatch, *, given_up_first: bool
) -> None:
    """Row 1 of the group is given up and the others are purged, or the other way round."""
    monkeypatch.setattr(sealing, "SEAL_ROWS_MAX", 3)
    store.put(3, together=3, make=srmp_record)
    segments = store.directory.segments
    if given_up_first:
        store.call(lambda t: queues.give_up(t, QUEUE, 1, 1, segments))
    else:
        store.call(lambda t: queues.take_away(t, QUEUE, 1, 3, SequenceSet([(1, 1)]), segments))
        store.call(lambda t: queues.give_up(t, QUEUE, 1, 1, segments))
    store.call(lambda t: purge(t, QUEUE, segments))
    store.put(3, together=3, make=srmp_record)
    assert seal(store).plan[4:6] == (4, 6)
    assert holes_of(store) == [(1, 1, "damaged"), (2, 3, "purged")]
    sweep(store)
    assert groups(store) == 0


def test_a_segment_does_not_span_a_hole_as_long_as_a_queue(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It notes a size for each sequence from its first to its last row."""
    monkeypatch.setattr(sealing, "SEAL_SPAN_MAX", 8)
    store.put(2, make=srmp_record)
    mark(store, 2)
    store.put(20, together=5, make=srmp_record)
    store.call(lambda t: purge(t, QUEUE, store.directory.segments))
    store.put(2, make=srmp_record)
    assert [len(seal(store).sizes) for _ in range(2)] == [8, 8]
    assert [n for n, _ in rows(store.directory.path, 0, 24)] == [1, 2, 23, 24]


def holes_of(store: Store) -> list[tuple[int, int, str]]:
    sql = "SELECT first, last, reason FROM holes WHERE queue_id = ? ORDER BY first"
    return store.directory.writer.execute(sql, (store.queue_id,)).fetchall()


def test_purges_of_a_queue_that_nobody_receives_from_are_one_row(store: Store) -> None:
    for _ in range(30):
        store.put(2, make=srmp_record)
        assert store.call(lambda t: purge(t, QUEUE, store.directory.segments)) == 2
    sweep(store)
    assert holes_of(store) == [(1, 60, "purged")]
    assert groups(store) == 0
    store.put(1, make=srmp_record)
    assert [n for n, _ in rows(store.directory.path, 0, 61)] == [61]


def test_what_an_earlier_version_left_side_by_side_is_joined_at_the_next_start(
    store: Store,
) -> None:
    store.put(12, make=srmp_record)
    writer = store.directory.writer
    left = [
        (1, 2, "purged"),
        (3, 4, "purged"),
        (5, 5, "damaged"),
        (6, 7, "purged"),
        (9, 9, "purged"),
        (10, 10, "purged"),
    ]
    writer.executemany(
        "INSERT INTO holes VALUES (?, ?, ?, ?)", [(store.queue_id, *hole) for hole in left]
    )
    store.close()
    again = Store(store.directory.path)
    assert holes_of(again) == [
        (1, 4, "purged"),
        (5, 5, "damaged"),
        (6, 7, "purged"),
        (9, 10, "purged"),
    ]
    assert [n for n, _ in rows(again.directory.path, 0, 12)] == [8, 11, 12]
    assert again.directory.changed is None
    again.close()


def test_purged_rows_are_not_sealed(store: Store) -> None:
    store.put(10, together=4, make=srmp_record)
    mark(store, 6)
    assert store.call(lambda t: purge(t, QUEUE, store.directory.segments)) == 4
    store.put(4, together=4, make=srmp_record)
    sealed = seal(store)
    assert (sealed.plan.first, sealed.plan.last, sealed.rows) == (1, 14, 10)
    assert [n for n, _ in rows(store.directory.path, 0, 14)] == [1, 2, 3, 4, 5, 6, 11, 12, 13, 14]
    sweep(store)
    assert groups(store) == 0


def test_purging_sealed_rows(store: Store) -> None:
    for _ in range(3):
        store.put(5, make=srmp_record)
        seal(store)
    mark(store, 7, ahead=[(9, 9)])
    assert store.call(lambda t: purge(t, QUEUE, store.directory.segments)) == 7
    assert [n for n, _ in rows(store.directory.path, 0, 15)] == [1, 2, 3, 4, 5, 6, 7, 9]
    assert len(list(store.directory.segments.glob("*/*"))) == 4, (
        "the third segment held nothing but purged rows"
    )
    assert state.received_by_default(store.directory.writer, store.queue_id) == 15
    assert store.call(lambda t: purge(t, QUEUE, store.directory.segments)) == 0


def limits(store: Store, limits: retention.RetentionLimits, queue: str = QUEUE) -> int | None:
    with Log(store.directory.database, store.directory.segments) as log:
        return retention.plan(log, queue, limits)


def test_only_received_and_old_rows_are_deleted(store: Store) -> None:
    store.put(5, make=srmp_record, at=NOW)
    seal(store)
    store.put(5, make=srmp_record, at=NOW + DAY)
    late, old = retention.RetentionLimits(NOW + 10 * DAY), retention.RetentionLimits(NOW + DAY // 2)
    assert limits(store, late) is None, "nothing is received yet, however old"
    mark(store, 7)
    assert limits(store, old) == 5
    assert limits(store, late) == 7
    assert limits(store, retention.RetentionLimits(NOW)) is None


def test_a_whole_segment_waits_for_its_last_row(store: Store) -> None:
    store.put(10, make=srmp_record)
    seal(store)
    mark(store, 9)
    assert limits(store, retention.RetentionLimits(NOW + DAY)) is None
    mark(store, 10)
    assert limits(store, retention.RetentionLimits(NOW + DAY)) == 10


def test_the_byte_cap_takes_only_what_is_synced_elsewhere(store: Store) -> None:
    store.put(10, make=srmp_record)
    mark(store, 10)
    size = len(srmp_record(10).post)
    assert limits(store, retention.RetentionLimits(NOW - DAY, bytes_max=4 * size)) is None
    assert limits(store, retention.RetentionLimits(NOW - DAY, bytes_max=4 * size, synced_to=3)) == 3
    assert (
        limits(store, retention.RetentionLimits(NOW - DAY, bytes_max=4 * size, synced_to=10)) == 6
    )


def test_trimmed_rows_are_gone_and_the_first_moves(store: Store) -> None:
    store.put(5, make=srmp_record)
    sealed = seal(store)
    store.put(5, make=srmp_record)
    mark(store, 10)
    assert store.call(lambda t: retention.trim(t, QUEUE, 8, store.directory.segments)) == 9
    assert not (store.directory.segments / (sealed.file + ".posts.arrow")).exists()
    sweep(store)
    assert groups(store) == 2
    assert [n for n, _ in rows(store.directory.path, 8, 10)] == [9, 10]
    assert store.call(lambda t: retention.trim(t, QUEUE, 10, store.directory.segments)) == 11
    sweep(store)
    store.close()
    again = Store(store.directory.path)
    assert again.sequence == 10, "an empty queue still knows where it was"
    again.close()


def test_an_old_plan_never_deletes_unreceived_rows(store: Store) -> None:
    store.put(5)
    assert store.call(lambda t: retention.trim(t, QUEUE, 5, store.directory.segments)) == 1


def test_our_order_queue_keeps_what_the_sender_process_has_not_read(store: Store) -> None:
    """However old it is, and however tight the disk: a receipt that was answered 200 comes no second time."""
    store.call(lambda t: queues.create(t, ORDER_QUEUE, transactional=False))
    proofs: list[object] = []
    store.journal.submit((ORDER_QUEUE, 1, srmp_record(1)), proofs.append)
    store.loop.until(lambda: proofs)
    assert limits(store, retention.RetentionLimits(NOW + DAY), ORDER_QUEUE) is None
    assert (
        limits(store, retention.RetentionLimits(NOW + DAY, bytes_max=0, synced_to=1), ORDER_QUEUE)
        is None
    )
    assert limits(store, retention.RetentionLimits(NOW + DAY, read_to=1), ORDER_QUEUE) == 1
    assert limits(store, retention.RetentionLimits(0, read_to=1), ORDER_QUEUE) is None, (
        "its time is not over"
    )
    assert (
        limits(store, retention.RetentionLimits(0, bytes_max=0, read_to=1), ORDER_QUEUE) is None
    ), "and it is not published"
    assert limits(store, retention.RetentionLimits(0, unsynced_max=0), ORDER_QUEUE) is None, (
        "beyond the last cap too"
    )
    assert (
        limits(store, retention.RetentionLimits(0, unsynced_max=1_000_000, read_to=1), ORDER_QUEUE)
        is None
    )
    assert (
        limits(store, retention.RetentionLimits(0, unsynced_max=0, read_to=1), ORDER_QUEUE) == 1
    ), "read, published or not"
    assert (
        limits(
            store, retention.RetentionLimits(0, bytes_max=0, synced_to=1, read_to=1), ORDER_QUEUE
        )
        == 1
    )
    assert store.call(lambda t: retention.trim(t, ORDER_QUEUE, 1, store.directory.segments)) == 2


def test_deleting_is_done_in_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweeper, "SWEEP_GROUPS_MAX", 4)
    store.put(10)
    mark(store, 10)
    store.call(lambda t: retention.trim(t, QUEUE, 10, store.directory.segments))
    left = [groups(store)]
    while store.call(sweeper.sweep):
        left.append(groups(store))
    assert left == [10, 6, 2]
    assert groups(store) == 0
    monkeypatch.setattr(sweeper, "SWEEP_BYTES_MAX", 1)
    store.put(2)
    mark(store, 12)
    store.call(lambda t: retention.trim(t, QUEUE, 12, store.directory.segments))
    assert store.call(sweeper.sweep)
    assert groups(store) == 1


def test_an_epoch_that_begins_because_a_hole_is_unreadable_begins_beyond_the_marks(
    store: Store,
) -> None:
    """The hole was the last of its queue: what comes next must not count as received by who received nothing of it."""
    store.put(15, make=srmp_record)
    store.call(lambda t: purge(t, QUEUE, store.directory.segments))
    mark(store, 15, ahead=[(17, 18)])
    sweep(store)
    store.directory.writer.execute("UPDATE holes SET reason = x'00'")
    store.close()
    again = Store(store.directory.path)
    again.put(3, make=srmp_record)
    (queue,) = [each for each in state.load(again.directory.writer).queues if each.name == QUEUE]
    assert (queue.end, queue.epochs[-1][1], queue.received) == (21, 19, 15)
    assert [n for n, _ in rows(again.directory.path, 18, 21)] == [19, 20, 21]
    again.close()


@pytest.mark.parametrize(
    ("received", "ahead"), [(2_000_000, []), (1, [(3, 3), (1_999_990, 2_000_000)])]
)
def test_a_directory_whose_epoch_began_below_a_mark_is_repaired_at_the_next_start(
    store: Store, caplog: pytest.LogCaptureFixture, received: int, ahead: list[tuple[int, int]]
) -> None:
    """As an earlier version has restored it: `received 2000000, last 1048579`, or so much received out of turn."""
    store.put(3, make=srmp_record)
    mark(store, received, ahead=ahead)
    store.close()
    for epochs_known in (2, 2):  # once
        again = Store(store.directory.path)
        (queue,) = [
            each for each in state.load(again.directory.writer).queues if each.name == QUEUE
        ]
        assert (len(queue.epochs), queue.epochs[-1][1], queue.end) == (
            epochs_known,
            2_000_001,
            again.sequence,
        )
        again.put(1, make=srmp_record)
        assert (
            state.load(again.directory.writer).queues[0].waiting.last == again.sequence > 2_000_000
        )
        again.close()
    assert caplog.text.count("epoch.below_a_mark") == 1
    assert "received=2000000 last=3" in caplog.text
