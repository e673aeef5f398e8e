"""The log of what is forwarded, read by a cursor: each row once, also when a copy of the data directory goes on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import store_kit
from store_kit import NOW, Store, srmp_record

from srmp_spark.names import FORWARD_QUEUE, LocalHosts
from srmp_spark.queue_manager.sender import forwarder
from srmp_spark.queue_manager.sender.forward_rules import (
    RULES,
    RULES_MAX,
    ForwardRules,
    Rules,
    load_rules,
)
from srmp_spark.queue_manager.sender.forwarder import ForwardLog
from srmp_spark.rows.decode import rows_of
from srmp_spark.rows.group import Record
from srmp_spark.rows.kept_columns import record_of_columns
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.forward.redirection import Redirection, Redirections
from srmp_spark.store.outbox.preparing.forwarded import MessageToForward, Unsendable
from srmp_spark.store.outbox.tables.database import OutboxDatabase
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace
from srmp_spark.store.stored_rows import retention
from srmp_spark.store.stored_rows.log import TrimmedError
from srmp_spark.store.tables import state
from tests.kit.offline_purge import purge

QM, OTHER = "caf195ea-615c-4264-ae08-11a4e60194c0", "32221eda-9376-46df-b6ed-783091123831"


@pytest.fixture(autouse=True)
def forward_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_kit, "QUEUE", FORWARD_QUEUE)


def log_of(path: Path, *hosts: str, inbound: Redirections = Redirections()) -> ForwardLog:  # noqa: B008  # a value
    return ForwardLog(path, QM, ForwardRules((Rules(inbound, LocalHosts(frozenset(hosts))),)))


def bodies(read: forwarder.ForwardRows) -> list[int]:
    return [int(row.message.body[:8]) for row in read.rows if isinstance(row, MessageToForward)]


def test_rows_after_the_cursor_are_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "ROWS_MAX", 3)
    store = Store(tmp_path / "d")
    store.put(7, together=4, make=srmp_record)
    log, epoch = log_of(tmp_path / "d"), store.directory.epoch
    first = log.read(None)
    assert (bodies(first), first.to, first.more) == ([1, 2, 3], ForwardPlace(epoch, 3), True)
    second = log.read(first.to)
    assert (bodies(second), second.to) == ([4, 5, 6], ForwardPlace(epoch, 6))
    last = log.read(second.to)
    assert (bodies(last), last.to, last.more) == ([7], ForwardPlace(epoch, 7), False)
    assert bodies(log.read(last.to)) == []
    store.close()


def test_no_queue_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_kit, "QUEUE", "private$/orders")
    store = Store(tmp_path / "d")
    assert log_of(tmp_path / "d").read(None) == forwarder.ForwardRows([], None, more=False)
    store.close()


def test_what_an_operator_purged_is_passed_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "d")
    store.put(3, make=srmp_record)
    store.call(lambda transaction: purge(transaction, FORWARD_QUEUE, store.directory.segments))
    store.put(1, make=srmp_record)
    read = log_of(tmp_path / "d").read(None)
    assert (bodies(read), read.to) == ([4], ForwardPlace(store.directory.epoch, 4))
    store.close()


def test_a_copy_that_goes_on_gives_its_new_rows_and_no_old_ones(tmp_path: Path) -> None:
    """Its sequences were given out before: the cursor knows the epoch."""
    store = Store(tmp_path / "d")
    store.put(2, make=srmp_record)
    store.close()
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    store = Store(tmp_path / "d")
    store.put(3, make=srmp_record)
    read = log_of(tmp_path / "d").read(None)
    assert bodies(read) == [1, 2, 3, 4, 5]
    store.close()
    copy = Store(tmp_path / "copy")
    assert copy.directory.epoch != read.to.epoch if read.to else None
    copy.put(2, make=lambda n, size, at: srmp_record(n + 100, size, at))
    again = log_of(tmp_path / "copy").read(read.to)
    assert (bodies(again), again.to) == ([103, 104], ForwardPlace(copy.directory.epoch, 4))
    assert bodies(log_of(tmp_path / "copy").read(again.to)) == []
    copy.close()


def test_each_row_says_where_it_goes_and_who_forwarded_it(tmp_path: Path) -> None:
    """A redirection is looked up for our own host alone (3.1.5.1.3)."""
    inbound = Redirections(
        (Redirection.parse("http://machine2/*", "http://machine9/msmq/private$/q"),)
    )

    def marked(n: int, size: int, at: int) -> Record:
        made: Any = srmp_record(n, size, at)
        head = made.head.replace(
            b"\r\n\r\n", b"\r\nVia: 1.1 proxy, 1.1 srmp-%s\r\n\r\n" % OTHER.encode()
        )
        return Record(made.arrival, head + made.content, len(head))

    store = Store(tmp_path / "d")
    store.put(1, make=marked)
    (redirected,) = log_of(tmp_path / "d", "machine2", inbound=inbound).read(None).rows
    assert redirected.to == "http://machine9/msmq/private$/q"
    assert redirected.via == f"1.1 srmp-{OTHER}, 1.1 srmp-{QM}"
    (foreign,) = log_of(tmp_path / "d", inbound=inbound).read(None).rows
    assert foreign.to == "http://machine2/msmq/private$/orders"
    assert redirected.message.sent_at == NOW
    store.close()


def test_a_restored_row_is_told_and_kept_and_stops_nothing(tmp_path: Path) -> None:
    """It is here if somebody moved it away and back: what a restore finds here counts as forwarded."""

    def restored(n: int, size: int, at: int) -> Record:
        made = srmp_record(n, size, at)
        (columns,) = rows_of(
            "", "", FORWARD_QUEUE, [(n, made)], names=("destination", "body", "label")
        ).to_pylist()
        return record_of_columns(made.arrival, columns)

    store = Store(tmp_path / "d")
    store.put(1, make=restored)
    store.put(1, make=srmp_record)
    told, sent = log_of(tmp_path / "d").read(None).rows
    assert isinstance(told, Unsendable)
    assert (told.to, told.sequence, told.post[:8]) == (
        "http://machine2/msmq/private$/orders",
        1,
        b"00000001",
    )
    assert "restored without its POST" in told.why
    assert isinstance(sent, MessageToForward)
    store.close()


NINE = Redirections((Redirection.parse("http://machine2/*", "http://machine9/msmq/private$/q"),))
EIGHT = Redirections((Redirection.parse("http://machine2/*", "http://machine8/msmq/private$/q"),))
MACHINE2 = LocalHosts(frozenset({"machine2"}))


def destinations(read: forwarder.ForwardRows) -> list[str]:
    return [
        row.to.partition("//")[2].partition("/")[0]
        for row in read.rows
        if isinstance(row, MessageToForward)
    ]


def test_a_row_goes_where_the_redirections_led_it_when_it_was_accepted(tmp_path: Path) -> None:
    """Its sender was told 200. By later rules it may be for a queue of ours, which would refuse it as a loop."""
    store = Store(tmp_path / "d")
    epoch = store.directory.epoch
    outbox = OutboxDatabase.open(tmp_path / "d")

    def begins(inbound: Redirections, end: int, read_to: int = 0) -> ForwardLog:
        cursor = ForwardPlace(epoch, read_to) if read_to else None
        return ForwardLog(
            tmp_path / "d",
            QM,
            load_rules(outbox, Rules(inbound, MACHINE2), ForwardPlace(epoch, end), cursor, 0),
        )

    begins(NINE, 0)
    store.put(2, make=srmp_record)
    begins(EIGHT, 2)
    store.put(1, make=srmp_record)
    assert destinations(begins(EIGHT, 3).read(None)) == ["machine9", "machine9", "machine8"], (
        "a start that changes nothing"
    )
    log = begins(Redirections(), 3)
    assert destinations(log.read(None)) == ["machine9", "machine9", "machine8"]
    assert destinations(log.read(ForwardPlace(epoch, 2))) == ["machine8"]
    store.put(1, make=srmp_record)
    (last,) = log.read(ForwardPlace(epoch, 3)).rows
    assert isinstance(last, Unsendable), (
        "nothing leads it anywhere: it is kept, and not sent to ourselves"
    )
    assert "no redirection leads http://machine2/msmq/private$/orders" in last.why
    begins(NINE, 4, read_to=3)
    (text,) = outbox.connection.execute("SELECT value FROM meta WHERE key = ?", (RULES,)).fetchone()
    assert [each["until"] for each in json.loads(text)] == [[epoch, 4], None], (
        "of what is outgoing nothing is kept"
    )
    outbox.close()
    store.close()


def test_rows_of_an_older_epoch_were_accepted_before(tmp_path: Path) -> None:
    rules = ForwardRules((Rules(NINE, MACHINE2, ForwardPlace("b", 5)), Rules(EIGHT, MACHINE2)))
    for row, expected in ((ForwardPlace("a", 9), "machine9"), (ForwardPlace("b", 5), "machine9"), (ForwardPlace("b", 6), "machine8"),
                          (ForwardPlace("c", 1), "machine8")):  # fmt: skip
        assert (
            rules.forward_to("http://machine2/msmq/q", row, ["a", "b", "c"])
            == f"http://{expected}/msmq/private$/q"
        )
    assert (
        rules.forward_to("http://machine2/msmq/q", ForwardPlace("c", 1), ["c"])
        == "http://machine8/msmq/private$/q"
    )


def test_without_redirections_nothing_is_noted_and_with_many_no_more_than_a_few(
    tmp_path: Path,
) -> None:
    outbox = OutboxDatabase.open(tmp_path)
    load_rules(outbox, Rules(Redirections(), MACHINE2), ForwardPlace("e", 7), None, 0)
    assert (
        outbox.connection.execute("SELECT 1 FROM meta WHERE key = ?", (RULES,)).fetchone() is None
    )
    for n in range(1, RULES_MAX + 5):
        rules = load_rules(
            outbox, Rules(NINE if n % 2 else EIGHT, MACHINE2), ForwardPlace("e", n), None, 0
        )
    assert len(rules.kept) == RULES_MAX
    assert (rules.kept[-2].until, rules.present.until) == (ForwardPlace("e", RULES_MAX + 4), None)
    outbox.close()


def receive(store: Store, to: int) -> None:
    """As if a consumer said so that is not the sender process."""
    consumer = state.StoredConsumer(FORWARD_QUEUE, "default", to, SequenceSet(), None, None, None)
    store.call(
        lambda transaction: state.save_consumer(transaction.connection, store.queue_id, consumer)
    )


def test_a_row_that_is_no_message_is_handed_on_as_it_came(tmp_path: Path) -> None:
    """And not passed over: its sender was told 200."""
    store = Store(tmp_path / "d")
    store.put(1, make=srmp_record)
    store.put(1)  # its content is no envelope
    store.put(1, make=srmp_record)
    read = log_of(tmp_path / "d").read(None)
    assert bodies(read) == [1, 3]
    bad = read.rows[1]
    assert isinstance(bad, Unsendable)
    assert (bad.sequence, bad.to) == (2, FORWARD_QUEUE)
    assert bad.post == store_kit.record(2).post
    assert bad.why
    store.close()


@pytest.mark.parametrize("after", [None, 1])
def test_rows_that_are_gone_before_they_were_outgoing_are_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, after: int | None
) -> None:
    store = Store(tmp_path / "d")
    store.put(5, make=srmp_record)
    cursor = None if after is None else ForwardPlace(store.directory.epoch, after)
    receive(store, 3)
    store.call(
        lambda transaction: retention.trim(transaction, FORWARD_QUEUE, 3, store.directory.segments)
    )
    assert bodies(log_of(tmp_path / "d").read(cursor)) == [4, 5]
    assert "forward.lost" in caplog.text
    assert f"first={(after or 0) + 1} last=3" in caplog.text
    store.close()


def test_what_an_operator_gave_up_is_not_told_as_lost(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = Store(tmp_path / "d")
    store.put(3, make=srmp_record)
    store.call(lambda transaction: purge(transaction, FORWARD_QUEUE, store.directory.segments))
    store.put(1, make=srmp_record)
    assert bodies(log_of(tmp_path / "d").read(None)) == [4]
    assert "forward.lost" not in caplog.text
    store.close()


def test_nor_when_retention_deletes_its_group_before_the_cursor_came_by(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Rows 1 and 2 are outgoing, 3 to 5 were purged; their one group goes when all of it is past its time."""
    store = Store(tmp_path / "d")
    store.put(5, together=5, make=srmp_record)
    receive(store, 2)
    store.call(lambda transaction: purge(transaction, FORWARD_QUEUE, store.directory.segments))
    assert (
        store.call(
            lambda transaction: retention.trim(
                transaction, FORWARD_QUEUE, 5, store.directory.segments
            )
        )
        == 6
    )
    store.put(1, make=srmp_record)
    read = log_of(tmp_path / "d").read(ForwardPlace(store.directory.epoch, 2))
    assert (bodies(read), read.to) == ([6], ForwardPlace(store.directory.epoch, 6))
    assert "forward.lost" not in caplog.text
    assert bodies(log_of(tmp_path / "d").read(ForwardPlace(store.directory.epoch, 1))) == [6]
    assert "first=2 last=5 rows=1:" in caplog.text, (
        "to an older outbox row 2 is lost, and the purged ones are not"
    )
    store.close()


def test_the_oldest_of_many_purges_are_forgotten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retention, "FORWARD_HOLES_MAX", 3)
    store = Store(tmp_path / "d")
    for number in range(6):
        store.put(1, make=srmp_record)
        receive(store, 2 * number + 1)
        store.put(1, make=srmp_record)
        store.call(lambda transaction: purge(transaction, FORWARD_QUEUE, store.directory.segments))
    store.call(
        lambda transaction: retention.trim(transaction, FORWARD_QUEUE, 11, store.directory.segments)
    )
    assert store.directory.writer.execute("SELECT first FROM holes ORDER BY first").fetchall() == [
        (6,),
        (8,),
        (10,),
        (12,),
    ]
    store.close()


def test_holes_of_other_queues_go_with_their_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody asks for them any more: a queue that is purged each minute keeps none for ever."""
    monkeypatch.setattr(store_kit, "QUEUE", "private$/orders")
    store = Store(tmp_path / "d")
    store.put(5, together=5, make=srmp_record)
    store.call(lambda transaction: purge(transaction, "private$/orders", store.directory.segments))
    store.call(
        lambda transaction: retention.trim(
            transaction, "private$/orders", 5, store.directory.segments
        )
    )
    assert store.directory.writer.execute("SELECT count(*) FROM holes").fetchone() == (0,)
    store.close()


def test_rows_that_are_deleted_while_they_are_read_take_no_others_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next read begins where the log begins then."""
    store = Store(tmp_path / "d")
    store.put(5, make=srmp_record)

    def trimmed(*args: object) -> object:
        raise TrimmedError(FORWARD_QUEUE, 0, 3)

    log = log_of(tmp_path / "d")
    with monkeypatch.context() as patch:
        patch.setattr(forwarder, "records", trimmed)
        with pytest.raises(TrimmedError):
            log.read(None)
    assert bodies(log.read(None)) == [1, 2, 3, 4, 5]
    store.close()
