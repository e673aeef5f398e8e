"""Promise 1: 200 leaves only after the transaction that holds the message is synced."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from store_kit import NOW, QUEUE, HandLoop, Store, record

from srmp_spark.errors import StoreError, StoreSyncError
from srmp_spark.message import Arrival
from srmp_spark.rows.group import Record, unpack_group
from srmp_spark.srmp.receiving.effects import Changes, Committed, OwedReceipt
from srmp_spark.srmp.receiving.history import HistoryChanges, HistoryRun
from srmp_spark.srmp.receiving.stream_effects import AcceptedGap, IncomingStreamRow
from srmp_spark.store import journal as journal_module
from srmp_spark.store.database.schema import PAGE_SIZE_BYTES, connect_reader
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.journal import Journal
from srmp_spark.store.journal_states import TRANSITIONS, JournalEvent, JournalState
from srmp_spark.store.tables import queues, state


@pytest.fixture
def store(tmp_path: Path) -> Any:
    opened = Store(tmp_path / "data")
    yield opened
    if opened.journal._state not in (JournalState.CLOSED, JournalState.FAILED):
        opened.close()


def groups(store: Store) -> list[tuple[int, int, int]]:
    reader = connect_reader(store.directory.database)
    found = reader.execute("SELECT first, last, position FROM groups ORDER BY id").fetchall()
    reader.close()
    return found


class SpyConnection:
    """The writer, with a COMMIT that the test lets through or breaks."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self.log: list[str] = []
        self.broken: sqlite3.Error | None = None

    def execute(self, sql: str, *args: Any) -> Any:
        word = sql.split()[0]
        self.log.append(word)
        if word == "COMMIT" and self.broken:
            raise self.broken
        return self._connection.execute(sql, *args)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def spy(store: Store) -> SpyConnection:
    """Put a spy between the journal and SQLite; the commit thread has to begin anew to see it."""
    watched = SpyConnection(store.directory.writer)
    store.journal._jobs.put(None)
    store.journal._thread.join()
    store.journal._connection = watched  # type: ignore[assignment]
    store.journal._thread = journal_module.threading.Thread(target=store.journal._run, daemon=True)
    store.journal._thread.start()
    return watched


def test_the_proof_comes_after_the_commit_and_never_in_the_turn_of_the_message(
    store: Store,
) -> None:
    watched, seen = spy(store), []
    store.journal.submit(
        (QUEUE, 1, record(1)), lambda proof: seen.append((proof, list(watched.log)))
    )
    assert seen == []
    store.loop.turn()  # INSERT, hand over to the commit thread
    assert seen == []
    store.loop.until(lambda: seen)
    proof, log_before = seen[0]
    assert type(proof) is Committed
    assert proof.position == store.journal.position
    assert log_before[-1] == "COMMIT"


def test_a_turn_of_the_loop_is_one_group(store: Store) -> None:
    proofs: list[Committed] = []
    for n in (1, 2, 3):
        store.journal.submit((QUEUE, n, record(n)), proofs.append)
    store.loop.until(lambda: len(proofs) == 3)
    (group,) = groups(store)
    assert group[:2] == (1, 3)
    assert {proof.position for proof in proofs} == {group[2]}


def test_what_comes_during_a_commit_joins_the_next_one(store: Store) -> None:
    """Group commit without a timer: messages 2 to 9 arrive while 1 is being synced."""
    proofs: list[Committed] = []
    store.journal.submit((QUEUE, 1, record(1)), proofs.append)
    store.loop.turn()
    for n in range(2, 10):
        store.journal.submit((QUEUE, n, record(n)), proofs.append)
    store.loop.until(lambda: len(proofs) == 9)
    assert [group[:2] for group in groups(store)] == [(1, 1), (2, 9)]


def test_two_queues_in_one_turn_are_two_groups_of_one_commit(store: Store) -> None:
    store.call(lambda transaction: queues.create(transaction, "other", transactional=True))
    proofs: list[Committed] = []
    store.journal.submit((QUEUE, 1, record(1)), proofs.append)
    store.journal.submit(("other", 1, record(2)), proofs.append)
    store.loop.until(lambda: len(proofs) == 2)
    assert len(groups(store)) == 2
    assert len({position for _, _, position in groups(store)}) == 1


def test_a_large_turn_is_split_into_groups_that_can_be_read(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal_module, "GROUP_BYTES_MAX", 1000)
    store.put(5, together=5, size=400)
    assert [group[:2] for group in groups(store)] == [(1, 2), (3, 4), (5, 5)]


def test_what_is_stored_is_what_came(store: Store) -> None:
    arrived = Record(
        Arrival(NOW, "https", "[2001:db8::1]:9", "CN=Müller"),
        b"POST / HTTP/1.1\r\n\r\n\x00\xff",
        19,
    )
    proofs: list[Committed] = []
    store.journal.submit((QUEUE, 1, arrived), proofs.append)
    store.loop.until(lambda: proofs)
    (blob,) = store.directory.writer.execute("SELECT data FROM groups").fetchone()
    assert list(unpack_group(blob)) == [(1, arrived)]


def test_one_callback_may_answer_for_a_whole_transaction(store: Store) -> None:
    """The token changes with the transaction, and with it the callback that answers."""
    answers: list[tuple[str, int]] = []
    first = store.journal.collecting
    store.journal.submit(
        (QUEUE, 1, record(1)), lambda proof: answers.append(("first", proof.position))
    )
    assert store.journal.collecting is first
    store.journal.submit((QUEUE, 2, record(2)), None)
    store.loop.turn()
    assert store.journal.collecting is not first
    store.journal.submit(
        (QUEUE, 3, record(3)), lambda proof: answers.append(("second", proof.position))
    )
    store.loop.until(lambda: len(answers) == 2)
    assert [name for name, _ in answers] == ["first", "second"]
    assert [group[:2] for group in groups(store)] == [(1, 2), (3, 3)]


def test_a_repeat_alone_needs_no_commit_but_has_a_proof(store: Store) -> None:
    store.put(1)
    position, watched = store.journal.position, spy(store)
    proofs: list[Committed] = []
    store.journal.submit(None, proofs.append)
    store.loop.turn()
    assert [proof.position for proof in proofs] == [position]
    assert "COMMIT" not in watched.log


def test_a_repeat_rides_behind_the_commit_of_what_it_repeats(store: Store) -> None:
    order: list[str] = []
    store.journal.submit((QUEUE, 1, record(1)), lambda proof: order.append("original"))
    store.loop.turn()
    store.journal.submit(None, lambda proof: order.append("repeat"))
    for _ in range(3):
        store.loop.turn() if not order else None
    store.loop.until(lambda: len(order) == 2)
    assert order == ["original", "repeat"]


def test_a_repeat_in_the_turn_of_its_original_waits_with_it(store: Store) -> None:
    proofs: list[int] = []
    before = store.journal.position
    store.journal.submit((QUEUE, 1, record(1)), lambda proof: proofs.append(proof.position))
    store.journal.submit(None, lambda proof: proofs.append(proof.position))
    store.loop.until(lambda: len(proofs) == 2)
    assert proofs == [before + 1, before + 1]


def test_a_repeat_that_moved_a_position_is_committed(store: Store) -> None:
    before, proofs = store.journal.position, []
    store.journal.submit(None, proofs.append, must_commit=True)
    store.loop.until(lambda: proofs)
    assert proofs[0].position == before + 1


def test_one_failing_callback_does_not_stop_the_rest(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    answered: list[int] = []

    def breaks(proof: Committed) -> None:
        raise RuntimeError("write() on a closed transport")

    store.journal.submit((QUEUE, 1, record(1)), breaks)
    store.journal.submit((QUEUE, 2, record(2)), lambda proof: answered.append(2))
    store.loop.until(lambda: answered)
    assert "journal.callback_failed" in caplog.text
    store.sequence = 2
    store.put(1)  # and the next commit goes on


def test_rows_streams_history_and_receipts_are_one_transaction(tmp_path: Path) -> None:
    guid = "ff3af301-3196-497a-a918-72147c871a13"
    stream = IncomingStreamRow(
        QUEUE, guid, 2**63 + 5, 3, 2, "http://x/", "192.0.2.1:1", None, 0, NOW, NOW, None
    )
    run = HistoryRun(guid, 1, 2**64 - 1, NOW)
    pending = [Changes([stream], HistoryChanges([run], []), [], 1)]
    nothing = Changes([], HistoryChanges([], []), [], 2)
    owed = OwedReceipt(
        "delivery", "http://x/msmq/private$/admin", QUEUE, guid, 7, NOW, "MSMQ:label", "192.0.2.1:1"
    )
    told: list[Any] = []
    store = Store(tmp_path / "data", on_owed=told.extend)
    store.journal._changes = lambda: pending.pop() if pending else nothing
    proofs: list[Committed] = []
    store.journal.submit((QUEUE, 1, record(1)), proofs.append, owed=[owed])
    store.loop.until(lambda: told)
    store.close()

    directory = DataDirectory.open(tmp_path / "data", now=NOW)
    loaded = state.load(directory.writer)
    assert loaded.streams == [stream]
    assert list(state.load_history(directory.writer)) == [run]
    assert [stored.receipt for stored in loaded.owed] == [owed]
    assert loaded.owed == told
    assert [(queue.name, queue.end, queue.waiting.bytes) for queue in loaded.queues] == [
        (QUEUE, 1, len(record(1).post))
    ]
    directory.close()


def test_the_pages_of_other_senders_count_for_the_checkpoint(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Identifiers of ten senders lie in ten pages, once there are many: counted as one, the WAL would grow to a multiple."""
    runs = [
        HistoryRun(f"{number:08x}-0000-4000-8000-000000000000", 1, 1, NOW) for number in range(10)
    ]
    changes = [Changes([], HistoryChanges(runs, []), [], 1)]
    store.journal._changes = lambda: (
        changes.pop() if changes else Changes([], HistoryChanges([], []), [], 1)
    )
    wrote: list[int] = []
    monkeypatch.setattr(store.journal._checkpointer, "wrote", wrote.append)
    for number in (1, 2):
        done: list[Committed] = []
        store.journal.submit((QUEUE, number, record(number)), done.append)
        store.loop.until(lambda done=done: done)
    size = len(record(1).post)
    assert wrote == [size + 9 * PAGE_SIZE_BYTES, size]


def test_changes_are_deleted_before_they_are_written(store: Store) -> None:
    guid = "ff3af301-3196-497a-a918-72147c871a13"
    stream = IncomingStreamRow(QUEUE, guid, 1, 1, 0, "http://x/", "p", None, 0, NOW, NOW, None)
    script = [
        Changes(
            [stream],
            HistoryChanges([HistoryRun(guid, 1, 1, NOW), HistoryRun(guid, 3, 3, NOW)], []),
            [],
            1,
        ),
        Changes(
            [stream], HistoryChanges([HistoryRun(guid, 1, 3, NOW)], [(guid, 3)]), [(QUEUE, guid)], 2
        ),
        Changes([], HistoryChanges([], []), [(QUEUE, guid)], 3),
    ]
    store.journal._changes = lambda: script.pop(0)
    seen = []
    for _ in range(3):
        before = store.journal.position
        store.journal.touch()
        store.loop.until(lambda before=before: store.journal.position > before)
        store.settle()
        db = store.directory.writer
        seen.append(
            (len(state.load_streams(db)), [(run.first, run.last) for run in state.load_history(db)])
        )
    assert seen == [(1, [(1, 1), (3, 3)]), (1, [(1, 3)]), (0, [(1, 3)])]
    store.journal._changes = None


def test_gaps_that_were_accepted_are_kept_until_their_stream_is_dropped(tmp_path: Path) -> None:
    guid = "ff3af301-3196-497a-a918-72147c871a13"
    stream = IncomingStreamRow(
        QUEUE, guid, 2**63 + 5, 3, 2, "http://x/", "192.0.2.1:1", None, 0, NOW, NOW, None
    )
    gap = AcceptedGap(QUEUE, guid, 2**63 + 5, NOW, 3, 9)
    script = [
        (Changes([stream], HistoryChanges([], []), [], 1, [gap]), [gap]),
        (
            Changes([], HistoryChanges([], []), [], 2, [gap._replace(to=None)]),
            [gap._replace(to=None)],
        ),
        (Changes([], HistoryChanges([], []), [(QUEUE, guid)], 3), []),
    ]
    for changes, left in script:
        assert changes, "it is a reason to write"
        with DataDirectory.open(tmp_path / "data", now=NOW) as directory:
            directory.writer.execute("BEGIN")
            state.save_changes(directory.writer, changes)
            directory.writer.execute("COMMIT")
        with DataDirectory.open(tmp_path / "data", now=NOW) as directory:
            assert state.load(directory.writer).accepted_gaps == left


def test_streams_end_with_their_queue_only_if_the_engine_says_so(store: Store) -> None:
    """A redirection may have led their rows to another queue."""
    guid = "ff3af301-3196-497a-a918-72147c871a13"
    stream = IncomingStreamRow(QUEUE, guid, 1, 1, 0, "http://x/", "p", None, 0, NOW, NOW, None)
    changes = Changes([stream], HistoryChanges([], []), [], 1)
    store.call(lambda transaction: state.save_changes(transaction.connection, changes))
    store.call(lambda transaction: queues.delete(transaction, QUEUE, store.directory.segments, NOW))
    assert state.load_streams(store.directory.writer) == [stream]


def test_a_function_that_fails_undoes_only_its_own_changes(store: Store) -> None:
    def breaks(transaction: Any) -> None:
        transaction.connection.execute("INSERT INTO ids VALUES ('broken', 1)")
        transaction.after_commit.append(lambda: pytest.fail("it was undone"))
        transaction.queues_opened["ghost"] = (99, 0)
        raise ValueError("no such queue")

    errors: list[BaseException | None] = []
    proofs: list[Committed] = []
    store.journal.call(
        lambda t: t.connection.execute("INSERT INTO ids VALUES ('before', 1)"),
        lambda r, e: errors.append(e),
    )
    store.journal.call(breaks, lambda r, e: errors.append(e))
    store.journal.submit((QUEUE, 1, record(1)), proofs.append)
    store.loop.until(lambda: len(errors) == 2 and proofs)
    assert errors[0] is None
    assert isinstance(errors[1], ValueError)
    assert store.directory.writer.execute("SELECT name FROM ids").fetchall() == [("before",)]
    with pytest.raises(KeyError):
        store.journal.submit(("ghost", 1, record(1)), proofs.append)


def test_a_failed_commit_answers_nobody_and_lets_nobody_in(tmp_path: Path) -> None:
    fatal: list[StoreSyncError] = []
    store = Store(tmp_path / "data", on_fatal=fatal.append)
    watched = spy(store)
    watched.broken = sqlite3.OperationalError("disk I/O error")
    answered: list[object] = []
    errors: list[BaseException | None] = []
    store.journal.submit((QUEUE, 1, record(1)), answered.append)
    store.loop.turn()
    store.journal.submit((QUEUE, 2, record(2)), answered.append)
    store.journal.call(lambda t: 1, lambda result, error: errors.append(error))
    store.loop.until(lambda: fatal)
    store.loop.turn()
    assert answered == []
    assert isinstance(errors[0], StoreSyncError)
    with pytest.raises(StoreSyncError, match="disk I/O error"):
        store.journal.submit((QUEUE, 3, record(3)), answered.append)
    assert watched.log.count("COMMIT") == 1, "a failed sync is never tried again"
    assert store.journal._state is JournalState.FAILED


def test_a_failed_checkpoint_is_final_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its sync is of the only other copy of what the WAL will be begun anew over."""
    from srmp_spark.store.database import checkpointer

    def fails(connection: sqlite3.Connection) -> int:
        raise sqlite3.OperationalError("disk I/O error")

    for broken in ("bulk", "rest"):
        fatal: list[StoreSyncError] = []
        store = Store(tmp_path / broken, on_fatal=fatal.append)
        with monkeypatch.context() as patched:
            patched.setattr(checkpointer, "_checkpoint", fails)
            if broken == "bulk":
                store.journal._checkpointer.wrote(checkpointer.CHECKPOINT_BYTES)
            else:
                store.journal._checkpointer.finish_due = True
                store.journal.touch()
            store.loop.until(lambda fatal=fatal: fatal)
        with pytest.raises(StoreSyncError, match="checkpoint failed"):
            store.journal.submit(None, lambda proof: None)


def test_a_full_disk_does_not_end_a_checkpoint_for_ever(store: Store) -> None:

    class Full:
        def execute(self, sql: str) -> None:
            raise sqlite3.OperationalError("database or disk is full")

    store.journal._checkpointer.finished(Full())  # type: ignore[arg-type]
    assert not store.journal._checkpointer.finish_due
    store.put(1)


def test_a_bug_while_writing_is_final_too(tmp_path: Path) -> None:
    fatal: list[StoreSyncError] = []
    store = Store(tmp_path / "data", on_fatal=fatal.append)

    def broken() -> Changes:
        raise ZeroDivisionError

    store.journal._changes = broken
    answered: list[object] = []
    store.journal.submit((QUEUE, 1, record(1)), answered.append)
    store.loop.until(lambda: fatal)
    assert answered == []


def test_an_owner_whose_fence_is_outdated_cannot_commit(tmp_path: Path) -> None:
    """The volume moved to another host; the old owner wakes up and goes on."""
    fatal: list[StoreSyncError] = []
    store = Store(tmp_path / "data", on_fatal=fatal.append)
    store.put(1)
    other = sqlite3.connect(store.directory.database)
    other.execute("UPDATE head SET fence = fence + 1")
    other.commit()
    answered: list[object] = []
    store.journal.submit((QUEUE, 2, record(2)), answered.append)
    store.loop.until(lambda: fatal)
    assert answered == []
    assert "taken over" in str(fatal[0])
    assert groups(store) == [(1, 1, groups(store)[0][2])]


def test_a_hole_in_the_sequences_is_our_bug(store: Store) -> None:
    with pytest.raises(AssertionError, match="follows 0"):
        store.journal.submit((QUEUE, 2, record(2)), lambda proof: None)


def test_the_queue_goes_on_counting_after_a_restart(tmp_path: Path) -> None:
    for start in (0, 7, 14):
        store = Store(tmp_path / "data")
        assert store.sequence == start
        store.put(7, together=3)
        store.close()


def test_synchronous_normal_is_found_at_open(store: Store, tmp_path: Path) -> None:
    """A kill cannot show a missing sync: the setting itself is asserted (reliability.md, finding 7)."""
    store.directory.writer.execute("PRAGMA synchronous = NORMAL")
    with pytest.raises(StoreError, match="synchronous=1"):
        Journal(store.directory, HandLoop())


def test_the_wal_is_copied_and_begun_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from srmp_spark.store.database import checkpointer

    monkeypatch.setattr(checkpointer, "CHECKPOINT_BYTES", 256 * 1024)
    store = Store(tmp_path / "data")
    store.put(400, size=4000)
    wal = store.directory.database.with_name("store.db-wal").stat().st_size
    assert 0 < store.journal.wal_bytes < 2 * 1024 * 1024
    assert wal < 4 * 1024 * 1024 < store.directory.database.stat().st_size + wal + 4 * 1024 * 1024
    store.close()
    assert not store.directory.database.with_name("store.db-wal").exists()


def test_every_pair_of_state_and_event_is_allowed_or_a_bug(store: Store) -> None:
    for origin in JournalState:
        for event in JournalEvent:
            store.journal._state = origin
            if (origin, event) in TRANSITIONS:
                store.journal._move(event)
                assert store.journal._state is TRANSITIONS[origin, event]
            else:
                with pytest.raises(KeyError):
                    store.journal._move(event)
    store.journal._state = JournalState.IDLE


def test_with_asyncio(tmp_path: Path) -> None:
    async def run() -> tuple[int, int]:
        directory = DataDirectory.open(tmp_path / "data", now=NOW)
        journal = Journal(directory, asyncio.get_running_loop())
        queue = await journal.transact(
            lambda transaction: queues.create(transaction, QUEUE, transactional=False)
        )
        with pytest.raises(StoreError, match="no queue"):
            await journal.transact(
                lambda transaction: queues.delete(transaction, "nothing", directory.segments, NOW)
            )
        answered: list[Committed] = []
        for n in range(1, 101):
            journal.submit((QUEUE, n, record(n)), answered.append)
        await journal.drain()
        journal.close()
        directory.close()
        return queue.end, len(answered)

    assert asyncio.run(run()) == (0, 100)
