"""The log of what is forwarded, read by a cursor: each row once, also when a copy of the data directory goes on."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import store_kit
from store_kit import NOW, Store, srmp_record

from srmp_spark.names import FORWARD_QUEUE, LocalHosts
from srmp_spark.queue_manager.sender import forwarder
from srmp_spark.queue_manager.sender.forwarder import ForwardLog
from srmp_spark.rows.group import Record
from srmp_spark.srmp.redirection import Forwarding, Redirection, Redirections
from srmp_spark.store import queues, retention, state
from srmp_spark.store.log import TrimmedError
from srmp_spark.store.outbox.forwarded import Cursor, Incoming, Unsendable

QM, OTHER = "caf195ea-615c-4264-ae08-11a4e60194c0", "32221eda-9376-46df-b6ed-783091123831"


@pytest.fixture(autouse=True)
def forward_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_kit, "QUEUE", FORWARD_QUEUE)


def log_of(path: Path, *hosts: str, inbound: Redirections = Redirections()) -> ForwardLog:  # noqa: B008  # a value
    return ForwardLog(path, QM, Forwarding(inbound=inbound), LocalHosts(frozenset(hosts)))


def bodies(read: forwarder.Read) -> list[int]:
    return [int(row.message.body[:8]) for row in read.rows if isinstance(row, Incoming)]


def test_rows_after_the_cursor_are_read_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "ROWS_MAX", 3)
    store = Store(tmp_path / "d")
    store.put(7, together=4, make=srmp_record)
    log, epoch = log_of(tmp_path / "d"), store.directory.epoch
    first = log.read(None)
    assert (bodies(first), first.to, first.more) == ([1, 2, 3], Cursor(epoch, 3), True)
    second = log.read(first.to)
    assert (bodies(second), second.to) == ([4, 5, 6], Cursor(epoch, 6))
    last = log.read(second.to)
    assert (bodies(last), last.to, last.more) == ([7], Cursor(epoch, 7), False)
    assert bodies(log.read(last.to)) == []
    store.close()


def test_no_queue_is_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store_kit, "QUEUE", "private$/orders")
    store = Store(tmp_path / "d")
    assert log_of(tmp_path / "d").read(None) == forwarder.Read([], None, more=False)
    store.close()


def test_what_an_operator_purged_is_passed_over(tmp_path: Path) -> None:
    store = Store(tmp_path / "d")
    store.put(3, make=srmp_record)
    store.call(lambda transaction: queues.purge(transaction, FORWARD_QUEUE, store.directory.segments))
    store.put(1, make=srmp_record)
    read = log_of(tmp_path / "d").read(None)
    assert (bodies(read), read.to) == ([4], Cursor(store.directory.epoch, 4))
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
    assert (bodies(again), again.to) == ([103, 104], Cursor(copy.directory.epoch, 4))
    assert bodies(log_of(tmp_path / "copy").read(again.to)) == []
    copy.close()


def test_each_row_says_where_it_goes_and_who_forwarded_it(tmp_path: Path) -> None:
    """A redirection is looked up for our own host alone (3.1.5.1.3)."""
    inbound = Redirections((Redirection.parse("http://machine2/*", "http://machine9/msmq/private$/q"),))

    def marked(n: int, size: int, at: int) -> Record:
        made: Any = srmp_record(n, size, at)
        head = made.head.replace(b"\r\n\r\n", b"\r\nVia: 1.1 proxy, 1.1 srmp-%s\r\n\r\n" % OTHER.encode())
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


def receive(store: Store, to: int) -> None:
    """As if a consumer said so that is not the sender process."""
    consumer = state.StoredConsumer(FORWARD_QUEUE, "default", to, [], None, None, None)
    store.call(lambda transaction: state.save_consumer(transaction.connection, store.queue_id, consumer))


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
    cursor = None if after is None else Cursor(store.directory.epoch, after)
    receive(store, 3)
    store.call(lambda transaction: retention.trim(transaction, FORWARD_QUEUE, 3, store.directory.segments))
    assert bodies(log_of(tmp_path / "d").read(cursor)) == [4, 5]
    assert "forward.lost" in caplog.text
    assert f"first={(after or 0) + 1} last=3" in caplog.text
    store.close()


def test_what_an_operator_gave_up_is_not_told_as_lost(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = Store(tmp_path / "d")
    store.put(3, make=srmp_record)
    store.call(lambda transaction: queues.purge(transaction, FORWARD_QUEUE, store.directory.segments))
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
    store.call(lambda transaction: queues.purge(transaction, FORWARD_QUEUE, store.directory.segments))
    assert store.call(lambda transaction: retention.trim(transaction, FORWARD_QUEUE, 5, store.directory.segments)) == 6
    store.put(1, make=srmp_record)
    read = log_of(tmp_path / "d").read(Cursor(store.directory.epoch, 2))
    assert (bodies(read), read.to) == ([6], Cursor(store.directory.epoch, 6))
    assert "forward.lost" not in caplog.text
    assert bodies(log_of(tmp_path / "d").read(Cursor(store.directory.epoch, 1))) == [6]
    assert "first=2 last=5 rows=1:" in caplog.text, "to an older outbox row 2 is lost, and the purged ones are not"
    store.close()


def test_holes_of_other_queues_go_with_their_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asks for them any more: a queue that is purged each minute keeps none for ever."""
    monkeypatch.setattr(store_kit, "QUEUE", "private$/orders")
    store = Store(tmp_path / "d")
    store.put(5, together=5, make=srmp_record)
    store.call(lambda transaction: queues.purge(transaction, "private$/orders", store.directory.segments))
    store.call(lambda transaction: retention.trim(transaction, "private$/orders", 5, store.directory.segments))
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
