"""Rows that ask to be told of their end: decided once, by the first decision, in slices, whatever happens in between."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest
from store_kit import NOW, QUEUE, SENDER, Store, record

from srmp_spark.message import StreamId
from srmp_spark.srmp.receiving.decisions import Reason, Undecided
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.tables import decisions, queues
from srmp_spark.store.tables.decisions import EXPAND_ROWS_MAX, NO_LANE, OwedDecision

ADMIN = "http://machine1/MSMQ/private$/admin"
ORDERS = "http://machine1/MSMQ/private$/order_queue$"
GUID = "2744e4e1-2b48-43e8-b441-42745f280d53"
LANE = (ADMIN, "192.0.2.1", "", "")
FINAL_LANE = (ORDERS, "192.0.2.1", "", GUID)


def asking(sequence: int, **fields: Any) -> Undecided:
    values: dict[str, Any] = {"commitment_to": ADMIN, "positive": True, "negative": True, "final_to": None, "stream_id": None,
                              "position": 0} | fields  # fmt: skip
    return Undecided(
        QUEUE, sequence, SENDER, 1000 + sequence, "MSMQ:x", "192.0.2.1", None, values["commitment_to"], values["positive"],
        values["negative"], values["final_to"], values["stream_id"], values["position"],
    )  # fmt: skip


def in_stream(sequence: int, ordinal: int = 7) -> Undecided:
    return asking(
        sequence,
        commitment_to=None,
        final_to=ORDERS,
        stream_id=StreamId(GUID, ordinal),
        position=sequence,
    )


class Asking(Store):
    """A store whose rows ask."""

    def put_asking(self, rows: list[Undecided | None]) -> None:
        proofs: list[object] = []
        for row in rows:
            self.sequence += 1
            self.journal.submit(
                (QUEUE, self.sequence, record(self.sequence)), proofs.append, undecided=row
            )
        self.loop.until(lambda: len(proofs) == len(rows))
        self.settle()

    def decide(
        self, *runs: tuple[int, int], reason: Reason = Reason.RECEIVED, at: int = NOW
    ) -> bool:
        return self.call(lambda t: decisions.decide(t, self.queue_id, QUEUE, runs, reason, at))

    def expand_all(self) -> int:
        slices = 0
        while True:
            slices += 1
            if not self.call(decisions.expand).more:
                return slices

    def count(self, table: str) -> int:
        return int(self.directory.writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    def owed(self, lane: decisions.Lane = LANE, limit: int = 10_000) -> list[OwedDecision]:
        return decisions.owed(self.directory.writer, lane, limit)


@pytest.fixture
def store(tmp_path: Path) -> Any:
    made = Asking(tmp_path / "d")
    yield made
    made.close()


def test_only_messages_that_ask_have_a_row_and_others_cost_nothing_when_decided(
    store: Asking,
) -> None:
    store.put_asking([None, None])
    assert store.count("undecided") == 0
    assert not store.decide((1, 2))
    assert store.count("decisions") == 0
    store.put_asking([asking(3), None])
    assert not store.decide((4, 4))
    assert store.decide((3, 4))
    assert (store.count("undecided"), store.count("decisions")) == (1, 1)


def test_it_is_stored_with_its_row_and_read_back_as_it_was(store: Asking) -> None:
    row = in_stream(1)._replace(uniquifier=2**64 - 1, sender_name="CN=a", commitment_to=ADMIN)
    store.put_asking([row._replace(stream_id=StreamId(GUID, 2**64 - 1))])
    store.decide((1, 1), reason=Reason.QUEUE_PURGED, at=5)
    store.expand_all()
    (final,) = store.owed((ORDERS, "192.0.2.1", "CN=a", GUID))
    (commitment,) = store.owed((ADMIN, "192.0.2.1", "CN=a", ""))
    assert (
        final.receipt._replace(kind="commitment", url=ADMIN, stream_id=None, position=0)
        == commitment.receipt
    )
    assert final.receipt.stream_id == StreamId(GUID, 2**64 - 1)
    assert (final.receipt.uniquifier, final.receipt.sender_name, final.receipt.position) == (
        2**64 - 1,
        "CN=a",
        1,
    )
    assert (final.receipt.reason, final.receipt.decided_at) == (Reason.QUEUE_PURGED, 5)


def test_what_its_stream_is_counted_by_is_kept_and_without_it_is_the_queue(store: Asking) -> None:
    """``<to>`` of a redirected message names another queue. Rows that were stored before that was noted name none."""
    store.put_asking(
        [in_stream(1)._replace(stream_name="private$/front"), in_stream(2), in_stream(3)]
    )
    again = in_stream(3, ordinal=8)._replace(stream_name="private$/side")
    store.call(lambda t: decisions.move(t, again))
    store.decide((1, 3))
    store.expand_all()
    found = [each.receipt.counted_by for each in store.owed((ORDERS, "192.0.2.1", "", GUID))]
    assert found == ["private$/front", QUEUE, "private$/side"]
    store.call(lambda t: decisions.move(t, again._replace(stream_name="private$/fourth")))
    found = [each.receipt.counted_by for each in store.owed((ORDERS, "192.0.2.1", "", GUID))]
    assert found == ["private$/front", QUEUE, "private$/fourth"]


def test_tables_that_were_made_without_that_column_get_it(tmp_path: Path) -> None:
    made = Asking(tmp_path / "d")
    made.put_asking([in_stream(1)])
    for table in ("undecided", "decided_receipts"):
        made.directory.writer.execute(f"ALTER TABLE {table} DROP COLUMN stream_name")
    made.close()
    with DataDirectory.open(tmp_path / "d", now=NOW) as directory:
        for table in ("undecided", "decided_receipts"):
            assert list(directory.writer.execute(f"SELECT stream_name FROM {table}")) == [
                (None,)
            ] * (table == "undecided")


def test_a_mark_over_many_rows_is_one_decision_and_many_bounded_slices(store: Asking) -> None:
    rows = 3 * EXPAND_ROWS_MAX + 17
    store.put_asking([asking(n) for n in range(1, rows + 1)])
    store.decide((1, rows))
    assert store.count("decisions") == 1
    changes = store.directory.writer.total_changes
    store.call(decisions.expand)
    assert store.directory.writer.total_changes - changes <= 2 * EXPAND_ROWS_MAX + 10, "one slice"
    assert store.expand_all() == 3
    assert (
        store.count("undecided"),
        store.count("decisions"),
        store.count("decided_receipts"),
    ) == (0, 0, rows)
    assert [each.receipt.uniquifier - 1000 for each in store.owed()] == list(range(1, rows + 1))


def test_the_first_decision_counts(store: Asking) -> None:
    store.put_asking([asking(n) for n in range(1, 5)])
    store.decide((1, 2), reason=Reason.RECEIVED, at=1)
    store.decide((1, 4), reason=Reason.QUEUE_PURGED, at=2)
    store.decide((1, 4), reason=Reason.RECEIVED, at=3)
    store.expand_all()
    assert [each.receipt.reason for each in store.owed()] == [Reason.RECEIVED] * 2 + [
        Reason.QUEUE_PURGED
    ] * 2


def test_a_decision_that_is_taken_back_leaves_nothing(store: Asking) -> None:
    """What a function of a transaction raises undoes its decision too: the row is still there."""
    store.put_asking([asking(1)])

    def fails(transaction: Any) -> None:
        decisions.decide(transaction, store.queue_id, QUEUE, [(1, 1)], Reason.QUEUE_PURGED, 1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.call(fails)
    assert (store.count("decisions"), store.count("undecided")) == (0, 1)


def test_a_deleted_queue_still_owes_and_its_successor_does_not_mix_with_it(store: Asking) -> None:
    store.put_asking([asking(1), asking(2)])
    store.decide((1, 2), reason=Reason.QUEUE_DELETED)
    store.call(lambda t: queues.delete(t, QUEUE, store.directory.segments, NOW))
    store.call(lambda t: queues.create(t, QUEUE, transactional=False))
    store.sequence = store.journal._queues[QUEUE][1]
    store.put_asking([asking(3)])
    store.expand_all()
    assert [each.receipt.reason for each in store.owed()] == [Reason.QUEUE_DELETED] * 2
    assert store.count("undecided") == 1


class TestIdentifiers:
    def test_a_receipt_gets_its_identifier_once(self, store: Asking) -> None:
        store.put_asking([asking(1), asking(2)])
        store.decide((1, 2))
        store.expand_all()
        first = store.owed()
        assert [each.number for each in first] == [None, None]
        numbered = store.call(lambda t: decisions.number(t, first[:1], [70]))
        assert [each.number for each in numbered] == [70]
        again = store.call(lambda t: decisions.number(t, store.owed(), [71]))
        assert [each.number for each in again] == [70, 71]
        assert store.owed() == again

    def test_what_is_forgotten_is_gone_and_nothing_else(self, store: Asking) -> None:
        store.put_asking([asking(1), asking(2)])
        store.decide((1, 2))
        store.expand_all()
        numbered = store.call(lambda t: decisions.number(t, store.owed(), [70, 71]))
        store.call(lambda t: decisions.forget(t, numbered[:1]))
        assert store.owed() == numbered[1:]


class TestAMessageThatComesAgainElsewhere:
    """Its sender gave up the stream in which it stood."""

    def test_before_it_is_decided(self, store: Asking) -> None:
        store.put_asking([in_stream(1)])
        store.call(lambda t: decisions.move(t, in_stream(1, 8)._replace(sequence=0, position=5)))
        store.decide((1, 1))
        store.expand_all()
        (owed,) = store.owed(FINAL_LANE)
        assert (owed.receipt.stream_id, owed.receipt.position) == (StreamId(GUID, 8), 5)

    @pytest.mark.parametrize("decided", [False, True])
    @pytest.mark.parametrize(("addressed_to", "moves"), [(QUEUE, True), ("private$/other", False)])
    def test_by_a_redirection_that_was_made_meanwhile(
        self, store: Asking, decided: bool, addressed_to: str, moves: bool
    ) -> None:
        """``<to>`` is what it was, and a row would now go elsewhere. A copy for another queue of ours is not it."""
        store.call(lambda t: queues.create(t, "private$/b", transactional=True))
        store.put_asking([in_stream(1)._replace(stream_name=QUEUE)])
        if decided:
            store.decide((1, 1))
            store.expand_all()
        again = in_stream(1, 8)._replace(
            queue="private$/b", sequence=0, position=5, stream_name=addressed_to
        )
        store.call(lambda t: decisions.move(t, again))
        if not decided:
            store.decide((1, 1))
            store.expand_all()
        (owed,) = store.owed(FINAL_LANE)
        assert (owed.receipt.stream_id, owed.receipt.position) == (
            StreamId(GUID, 8 if moves else 7),
            5 if moves else 1,
        )

    def test_while_its_receipt_is_under_way_it_becomes_another_receipt(self, store: Asking) -> None:
        store.put_asking([in_stream(1)])
        store.decide((1, 1))
        store.expand_all()
        lane = FINAL_LANE
        sent = store.call(lambda t: decisions.number(t, store.owed(lane), [70]))
        store.call(lambda t: decisions.move(t, in_stream(1, 8)))
        store.call(lambda t: decisions.forget(t, sent))
        (owed,) = store.owed(lane)
        assert (owed.receipt.stream_id, owed.number) == (StreamId(GUID, 8), None), (
            "not a repeat of what was discarded"
        )

    @pytest.mark.parametrize("decided", [False, True])
    def test_after_a_reader_moved_it_to_a_subqueue(self, store: Asking, decided: bool) -> None:
        """What it asked to be told goes along, under the name that its stream is counted by."""
        store.put_asking([in_stream(1), in_stream(2)])
        retry = store.call(lambda t: queues.create(t, f"{QUEUE};retry", transactional=True))
        store.call(
            lambda t: decisions.go_along(
                t, [decisions.MovedRowTarget(store.queue_id, QUEUE, 1, retry.id, 1)]
            )
        )
        store.decide((1, 1))
        assert store.expand_all() == 1
        assert store.count("decided_receipts") == 0, (
            "what left its queue by a move is decided by nobody"
        )
        again = in_stream(1, 8)._replace(sequence=0, position=5)
        if not decided:
            store.call(lambda t: decisions.move(t, again))
        store.call(
            lambda t: decisions.decide(t, retry.id, retry.name, [(1, 1)], Reason.RECEIVED, NOW)
        )
        store.expand_all()
        if decided:
            store.call(lambda t: decisions.move(t, again))
        (owed,) = store.owed(FINAL_LANE)
        assert (owed.receipt.stream_id, owed.receipt.position) == (StreamId(GUID, 8), 5)
        assert owed.receipt.queue == retry.name
        assert store.count("undecided") == 1, "the other one is where it was"

    def test_a_move_keeps_the_name_that_its_stream_is_counted_by(self, store: Asking) -> None:
        store.put_asking([in_stream(1)])
        retry = store.call(lambda t: queues.create(t, f"{QUEUE};retry", transactional=True))
        store.call(
            lambda t: decisions.go_along(
                t, [decisions.MovedRowTarget(store.queue_id, QUEUE, 1, retry.id, 1)]
            )
        )
        store.call(
            lambda t: decisions.decide(t, retry.id, retry.name, [(1, 1)], Reason.RECEIVED, NOW)
        )
        store.expand_all()
        (owed,) = store.owed(FINAL_LANE)
        assert owed.receipt.counted_by == QUEUE

    def test_after_it_was_sent_and_perhaps_discarded(self, store: Asking) -> None:
        store.put_asking([in_stream(1), in_stream(2)])
        store.decide((1, 2), reason=Reason.QUEUE_PURGED)
        store.expand_all()
        lane = FINAL_LANE
        sent = store.call(lambda t: decisions.number(t, store.owed(lane), [70, 71]))
        store.call(lambda t: decisions.delivered(t, sent))
        assert (store.count("decided_receipts"), store.count("told")) == (0, 1)
        store.call(lambda t: decisions.move(t, in_stream(2, 8)))
        (owed,) = store.owed(lane)
        assert (owed.receipt.stream_id, owed.receipt.reason, owed.number) == (
            StreamId(GUID, 8),
            Reason.QUEUE_PURGED,
            None,
        )
        again = store.call(lambda t: decisions.number(t, store.owed(lane), [72]))
        store.call(lambda t: decisions.delivered(t, again))
        assert (store.count("decided_receipts"), store.count("told")) == (0, 1)
        store.call(lambda t: decisions.move(t, in_stream(3, 8)))
        assert store.count("decided_receipts") == 0, "that one was never told of"

    def test_what_was_told_is_kept_in_runs_for_thirty_days(self, store: Asking) -> None:
        store.put_asking([in_stream(n) for n in range(1, 31)])
        store.decide((1, 10), at=NOW)
        store.decide((11, 20), reason=Reason.QUEUE_PURGED, at=NOW)
        store.decide((21, 30), at=NOW + 1)
        store.expand_all()
        store.call(lambda t: decisions.delivered(t, store.owed(FINAL_LANE)))
        told = store.directory.writer.execute(
            "SELECT first - 1000, last - 1000, reason FROM told ORDER BY first"
        ).fetchall()
        assert told == [(1, 10, 0x4000), (11, 20, 0xC001), (21, 30, 0x4000)]
        store.call(
            lambda t: decisions.forget_told(t, NOW + decisions.TOLD_DAYS * 86_400_000_000 + 1)
        )
        assert store.count("told") == 1

    @pytest.mark.parametrize("decided", [False, True])
    def test_of_an_authenticated_sender_s_message_only_that_sender_tells_the_place(
        self, store: Asking, decided: bool
    ) -> None:
        store.put_asking([in_stream(1)._replace(sender_name="CN=a")])
        if decided:
            store.decide((1, 1))
            store.expand_all()
        forged = in_stream(1, 8)._replace(final_to="http://192.0.2.66/msmq/q", peer="192.0.2.66")
        for name in (None, "CN=b"):
            store.call(lambda t, name=name: decisions.move(t, forged._replace(sender_name=name)))
        store.call(
            lambda t: decisions.move(
                t, in_stream(1, 9)._replace(sender_name="CN=a", peer="192.0.2.7")
            )
        )
        if not decided:
            store.decide((1, 1))
            store.expand_all()
        for name in ("", "CN=a", "CN=b"):
            assert store.owed(("http://192.0.2.66/msmq/q", "192.0.2.66", name, GUID)) == []
        (owed,) = store.owed((ORDERS, "192.0.2.7", "CN=a", GUID))
        assert (owed.receipt.stream_id, owed.receipt.sender_name) == (StreamId(GUID, 9), "CN=a")

    @pytest.mark.parametrize(("told_to", "asks", "is_told"), [
        ("CN=a", None, False), ("CN=a", "CN=b", False), ("CN=a", "CN=a", True), (None, None, True), (None, "CN=a", False),
    ])  # fmt: skip
    def test_what_an_authenticated_sender_was_told_nobody_else_is_told_again(
        self, store: Asking, told_to: str | None, asks: str | None, is_told: bool
    ) -> None:
        """Who knows an identifier, which is no secret, would else learn at an address of his own what became of the message.

        What comes under another name is another message, whatever its identifier
        (3.1.5.1.11 and srmp/receiving/trust_domain.py)."""
        store.put_asking([in_stream(1)._replace(sender_name=told_to)])
        store.decide((1, 1))
        store.expand_all()
        sent = store.owed((ORDERS, "192.0.2.1", told_to or "", GUID))
        store.call(lambda t: decisions.delivered(t, sent))
        assert (len(sent), store.count("decided_receipts"), store.count("told")) == (1, 0, 1)
        again = in_stream(1, 8)._replace(
            final_to="http://192.0.2.66/msmq/q", peer="192.0.2.66", sender_name=asks
        )
        store.call(lambda t: decisions.move(t, again))
        assert store.count("decided_receipts") == is_told

    def test_runs_of_what_was_told_do_not_mix_senders(self, store: Asking) -> None:
        names = [None, None, "CN=a", "CN=a", None]
        store.put_asking(
            [in_stream(n)._replace(sender_name=name) for n, name in enumerate(names, 1)]
        )
        store.decide((1, 5))
        store.expand_all()
        for lane in decisions.lanes(store.directory.writer, NO_LANE, 10):
            store.call(lambda t, lane=lane: decisions.delivered(t, store.owed(lane)))
        told = store.directory.writer.execute(
            "SELECT first - 1000, last - 1000, instr(lineage, '/') > 0 FROM told ORDER BY first"
        )
        assert told.fetchall() == [(1, 2, False), (3, 4, True), (5, 5, False)]

    def test_one_identifier_may_be_of_several_senders(self, store: Asking) -> None:
        """Each is told of its own message, and once more of it alone when that comes again elsewhere."""
        names = [None, "CN=a", "CN=b"]
        store.put_asking(
            [
                in_stream(n)._replace(sender_name=name, uniquifier=1001)
                for n, name in enumerate(names, 1)
            ]
        )
        store.call(
            lambda t: decisions.move(
                t, in_stream(2, 8)._replace(sender_name="CN=a", uniquifier=1001)
            )
        )
        store.decide((1, 1))
        store.decide((2, 2), reason=Reason.QUEUE_PURGED)
        store.decide((3, 3))
        store.expand_all()
        told = [
            each
            for lane in decisions.lanes(store.directory.writer, NO_LANE, 10)
            for each in store.owed(lane)
        ]
        assert [(each.receipt.sender_name, each.receipt.position, each.receipt.reason.decision) for each in told] == [
            (None, 1, "positive"), ("CN=a", 2, "negative"), ("CN=b", 3, "positive"),
        ]  # fmt: skip
        assert [each.receipt.stream_id for each in told] == [StreamId(GUID, n) for n in (7, 8, 7)]
        store.call(lambda t: decisions.delivered(t, told))
        store.call(
            lambda t: decisions.move(
                t, in_stream(2, 9)._replace(sender_name="CN=a", uniquifier=1001)
            )
        )
        (again,) = store.owed((ORDERS, "192.0.2.1", "CN=a", GUID))
        assert again.receipt.reason is Reason.QUEUE_PURGED

    def test_a_commitment_receipt_is_not_concerned(self, store: Asking) -> None:
        store.put_asking([asking(1)])
        store.decide((1, 1))
        store.expand_all()
        before = store.owed()
        store.call(lambda t: decisions.move(t, in_stream(1, 8)))
        assert store.owed() == before


def test_lanes_are_found_without_reading_their_receipts(store: Asking) -> None:
    urls = [f"http://h{n}/msmq/q" for n in range(5)]
    store.put_asking([asking(n, commitment_to=urls[n % 5]) for n in range(1, 101)])
    store.decide((1, 100))
    store.expand_all()
    connection = store.directory.writer
    assert decisions.lanes(connection, NO_LANE, 3) == [
        (url, "192.0.2.1", "", "") for url in urls[:3]
    ]
    assert decisions.lanes(connection, (urls[2], "192.0.2.1", "", ""), 10) == [
        (url, "192.0.2.1", "", "") for url in urls[3:]
    ]
    plan = connection.execute(
        "EXPLAIN QUERY PLAN SELECT url, peer, sender_name, stream_guid FROM decided_receipts "
        "WHERE (url, peer, sender_name, stream_guid) > (?, ?, ?, ?) ORDER BY url, peer, "
"sender_name, stream_guid LIMIT 1",
        NO_LANE,
    ).fetchall()  # fmt: skip
    assert "SEARCH" in str(plan)
    assert "SCAN" not in str(plan)
    assert "TEMP B-TREE" not in str(plan)


def test_a_directory_of_an_older_version_gets_the_tables(tmp_path: Path) -> None:
    Asking(tmp_path / "d").close()
    with sqlite3.connect(tmp_path / "d" / "store.db") as connection:
        for table in ("undecided", "decisions", "decided_receipts", "told"):
            connection.execute(f"DROP TABLE {table}")
    with DataDirectory.open(tmp_path / "d", now=NOW) as directory:
        assert not decisions.is_pending(directory.writer)
        assert decisions.lanes(directory.writer, NO_LANE, 1) == []


def test_lanes_of_senders_with_one_address_are_apart(store: Asking) -> None:
    store.put_asking(
        [
            asking(n)._replace(sender_name=name)
            for n, name in enumerate(("CN=a", None, "CN=b", "CN=a"), 1)
        ]
    )
    store.decide((1, 4))
    store.expand_all()
    assert decisions.lanes(store.directory.writer, NO_LANE, 10) == [
        (ADMIN, "192.0.2.1", name, "") for name in ("", "CN=a", "CN=b")
    ]
    for name, sequences in (("", [2]), ("CN=a", [1, 4]), ("CN=b", [3])):
        owed = store.owed((ADMIN, "192.0.2.1", name, ""))
        assert [each.receipt.uniquifier - 1000 for each in owed] == sequences
        assert {each.receipt.sender_name for each in owed} == {name or None}


def test_what_a_build_without_names_left_is_owed_and_told_as_before(tmp_path: Path) -> None:
    """Builds before the first release: a lane had no name, what was told neither."""
    store = Asking(tmp_path / "d")
    store.put_asking([in_stream(1), in_stream(2)])
    store.decide((1, 2))
    store.expand_all()
    store.call(lambda t: decisions.delivered(t, store.owed(FINAL_LANE, 1)))
    store.close()
    with sqlite3.connect(tmp_path / "d" / "store.db") as connection:
        connection.execute("UPDATE decided_receipts SET sender_name = NULL")
        connection.execute("DROP INDEX decided_receipts_by_sender")
        connection.execute(
            "CREATE INDEX decided_receipts_by_lane ON decided_receipts(url, peer, stream_guid, id)"
        )
        connection.execute(
            "CREATE TABLE told_to(lineage TEXT, first INTEGER, sender_name TEXT)"
        )  # of a build between them
    for _ in range(2):
        store = Asking(tmp_path / "d")
        assert decisions.lanes(store.directory.writer, NO_LANE, 10) == [FINAL_LANE]
        (owed,) = store.owed(FINAL_LANE)
        assert (owed.receipt.uniquifier - 1000, owed.receipt.sender_name) == (2, None)
        store.close()
    store = Asking(tmp_path / "d")
    store.call(lambda t: decisions.move(t, in_stream(1, 8)))
    assert len(store.owed(FINAL_LANE)) == 2
    store.close()


@pytest.mark.parametrize("seed", range(5))
def test_against_a_model_with_restarts_at_any_step(tmp_path: Path, seed: int) -> None:
    """Random rows, decisions and slices; the process is gone between any two of them. Each row is decided exactly once."""
    dice = random.Random(seed)
    store = Asking(tmp_path / "d")
    asked: dict[int, Undecided] = {}
    decided: dict[int, Reason] = {}
    receipts: list[tuple[int, str, Reason]] = []

    def take() -> None:
        """Send some: here that is to forget them."""
        for lane in decisions.lanes(store.directory.writer, NO_LANE, 10):
            found = store.owed(lane, dice.randrange(1, 50))
            receipts.extend(
                (each.receipt.uniquifier - 1000, each.receipt.kind, each.receipt.reason)
                for each in found
            )
            store.call(lambda t, found=found: decisions.forget(t, found))

    for _ in range(60):
        step = dice.choice(("put", "put", "decide", "decide", "expand", "take", "restart"))
        if step == "put":
            rows: list[Undecided | None] = []
            for sequence in range(store.sequence + 1, store.sequence + dice.randrange(2, 300)):
                kinds = {
                    "commitment_to": dice.choice((ADMIN, None)), "positive": dice.random() < 0.5,
                    "negative": dice.random() < 0.5, "final_to": dice.choice((ORDERS, None)),
                    "stream_id": StreamId(GUID, 7), "position": sequence,
                }  # fmt: skip
                row = asking(sequence, **kinds) if dice.random() < 0.7 else None
                rows.append(row)
                if row is not None:
                    asked[sequence] = row
            store.put_asking(rows)
        elif step == "decide" and store.sequence:
            first = dice.randrange(1, store.sequence + 1)
            last, reason = (
                min(store.sequence, first + dice.randrange(400)),
                dice.choice(list(Reason)),
            )
            store.decide((first, last), reason=reason)
            for sequence in range(first, last + 1):
                decided.setdefault(sequence, reason)
        elif step == "expand":
            store.call(decisions.expand)
        elif step == "take":
            take()
        elif step == "restart":
            store.close()
            store = Asking(tmp_path / "d")
    store.expand_all()
    while decisions.lanes(store.directory.writer, NO_LANE, 1):
        take()
    expected = []
    for sequence, row in asked.items():
        reason = decided.get(sequence)
        if reason is None:
            continue
        if row.commitment_to and (row.positive if reason is Reason.RECEIVED else row.negative):
            expected.append((sequence, "commitment", reason))
        if row.final_to:
            expected.append((sequence, "final_stream", reason))
    assert sorted(receipts, key=str) == sorted(expected, key=str)
    assert store.count("undecided") == sum(sequence not in decided for sequence in asked)
    store.close()
