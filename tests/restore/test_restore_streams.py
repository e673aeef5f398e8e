"""Streams after a lost disk: counted by what ``<to>`` names, and never beyond what is here or will be sent (ADR 0015)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import outbox_kit  # found through conftest.py
import pytest
from restore_kit import PEER, QUEUE, URL, Manager, stream_row

from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.names import FORWARD_QUEUE, LocalHosts
from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.forward.redirection import Forwarding
from srmp_spark.srmp.receiving.effects import Accepted, Committed
from srmp_spark.srmp.receiving.history import HistoryRun, MessageIdHistory
from srmp_spark.srmp.receiving.incoming_streams import IncomingStreams
from srmp_spark.srmp.receiving.receiver import Receiver, ReceiverSettings
from srmp_spark.srmp.receiving.stream_effects import IncomingStreamRow
from srmp_spark.srmp.receiving.stream_name import name_of_house_stream, name_of_queue
from srmp_spark.srmp.receiving.trust_domain import lineage_key
from srmp_spark.store.delta.log_source import HistoryRow
from srmp_spark.store.delta.publisher import Publisher
from srmp_spark.store.delta.stored_log import StoredLog
from srmp_spark.store.outbox.preparing.forwarded import ForwardedBatch, MessageToForward
from srmp_spark.store.outbox.tables.forward_place import ForwardPlace, read_to
from srmp_spark.store.tables import queues

ELSEWHERE = "http://other/msmq/private$/ledger"
REDIRECTED = "http://machine2/msmq/private$/front"
LED_AWAY = "http://machine2/msmq/private$/away"
NAMES = {ELSEWHERE: ELSEWHERE, REDIRECTED: "private$/front", LED_AWAY: "private$/away"}


@pytest.fixture
def manager(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Manager:
    made = Manager(tmp_path)
    monkeypatch.setattr(outbox_kit, "QM", made.guid)
    return made


def message(n: int, to: str, ordinal: int = 7) -> Message:
    place = StreamPosition(StreamId(PEER, ordinal), n, n - 1, n == 1, URL if n == 1 else None)
    return Message(to, "MSMQ:order", PEER, 100 * ordinal + n, has_msmq=True, source_qm=PEER, sent_at=1_000_000, durable=True,
                   priority=0, stream=place, body=b"%d" % n)  # fmt: skip


HTTP = Arrival(0, "http", "192.0.2.1:4711", None)


def put(
    manager: Manager,
    queue: str,
    first: int,
    last: int,
    to: str,
    ordinal: int = 7,
    arrival: Arrival = HTTP,
) -> None:
    """Rows of ``queue``: positions ``first`` to ``last`` of the stream."""
    known = queue in manager.store.journal._queues
    if not known:
        manager.store.call(
            lambda transaction: queues.create(transaction, queue, transactional=False)
        )
    proofs: list[object] = []
    begin = manager.store.journal._queues[queue][1]
    for n in range(first, last + 1):
        content_type, content = encode(
            message(n, to, ordinal), boundary="MSMQ - SOAP boundary, 53287"
        )
        head = http_head("/msmq/q", "machine2", content_type, len(content))
        record = Record(arrival._replace(at=n), head + content, len(head))
        manager.store.journal.submit((queue, begin + n - first + 1, record), proofs.append)
    manager.store.loop.until(lambda: len(proofs) == last - first + 1)
    manager.store.settle()


def counted(
    to: str, sequence_number: int, acknowledged: int, ordinal: int = 7
) -> IncomingStreamRow:
    return IncomingStreamRow(
        NAMES[to],
        PEER,
        ordinal,
        sequence_number,
        acknowledged,
        URL,
        "192.0.2.1:4711",
        PEER,
        0,
        1,
        1,
        None,
    )


class Restored:
    """The engine on what was restored."""

    def __init__(self, manager: Manager) -> None:
        found = manager.state()
        self.receiver = Receiver(
            manager.guid, LocalHosts(frozenset({"machine2"})), MessageIdHistory.load(manager.identifiers()),
            IncomingStreams.load(found.streams, found.accepted_gaps),
            ReceiverSettings(forwarding=Forwarding(store_and_forward=True, allows=lambda url: True)),
        )  # fmt: skip
        self.position = 0

    def receipts(self, now: float) -> dict[str, int]:
        """Stream receipts that are due: what was said to be here."""
        return {receipt.queue: receipt.last_ordinal for receipt in self.receiver.due(now)}

    def take(self, n: int, to: str, ordinal: int = 7) -> Any:
        """The message comes again: a row, or the kind of repeat."""
        outcome = self.receiver.receive(
            message(n, to, ordinal), Arrival(5, "http", "192.0.2.1:1"), 100.0
        )
        assert not hasattr(outcome, "status"), outcome
        self.receiver.changes()
        self.position += 1
        self.receiver.committed([outcome], Committed(self.position), 100.0)  # type: ignore[list-item]
        return outcome.queue if isinstance(outcome, Accepted) else outcome.kind  # type: ignore[union-attr]


def test_rows_of_a_redirected_stream_are_counted_by_what_to_names(manager: Manager) -> None:
    """Those in a queue here are in the log again. Those that were to leave are not sent from it, wherever ``<to>`` names."""
    manager.note(streams=[counted(REDIRECTED, 2, 2), counted(LED_AWAY, 4, 4, ordinal=8)])
    manager.publish()
    put(manager, QUEUE, 3, 5, REDIRECTED)
    put(manager, FORWARD_QUEUE, 5, 6, LED_AWAY, ordinal=8)
    manager.publish()
    manager.lose()
    manager.restore()
    found = {stream.queue: stream.sequence_number for stream in manager.state().streams}
    assert found == {"private$/front": 5, "private$/away": 4}


def test_a_message_for_another_host_that_will_not_be_sent_is_not_acknowledged_and_is_taken_anew(
    manager: Manager,
) -> None:
    manager.note(streams=[counted(ELSEWHERE, 5, 5)], history=[HistoryRun(PEER, 701, 705, 1)])
    manager.publish()
    put(manager, FORWARD_QUEUE, 6, 8, ELSEWHERE)
    manager.publish()
    manager.lose()
    manager.restore()
    (stream,) = manager.state().streams
    assert (stream.queue, stream.sequence_number) == (ELSEWHERE, 5)
    again = Restored(manager)
    assert again.receipts(0.0) == {}, "its sender keeps 6 to 8"
    assert [again.take(n, ELSEWHERE) for n in (6, 7, 8, 9)] == [FORWARD_QUEUE] * 4
    assert again.receipts(200.0) == {ELSEWHERE: 9}


def test_what_the_tables_count_and_its_sender_was_not_told_is_taken_anew_too(
    manager: Manager,
) -> None:
    """Also when the history is newer than the table of streams, or as new as the rows."""
    put(manager, FORWARD_QUEUE, 1, 4, ELSEWHERE)
    manager.note(streams=[counted(ELSEWHERE, 4, 2)], history=[HistoryRun(PEER, 701, 704, 1)])
    manager.publish()
    manager.lose()
    manager.restore()
    again = Restored(manager)
    assert again.receipts(0.0) == {}
    assert [again.take(n, ELSEWHERE) for n in (3, 4)] == [FORWARD_QUEUE] * 2
    assert again.take(2, ELSEWHERE) == "position"


def test_what_waits_in_the_outbox_again_counts(manager: Manager) -> None:
    """6 and 7 are outgoing, 8 is not; the sender had a receipt for none of them."""
    desk = manager.sends()
    manager.note(streams=[counted(ELSEWHERE, 5, 5)])
    manager.publish()
    put(manager, FORWARD_QUEUE, 6, 8, ELSEWHERE)
    rows = [
        MessageToForward(message(n, ELSEWHERE), ELSEWHERE, "1.1 srmp-" + manager.guid, n)
        for n in (6, 7)
    ]
    database = desk.outbox.database
    batch = ForwardedBatch(database, rows, read_to(database), ForwardPlace(manager.epoch, 2), 1)
    assert batch.step()
    desk.write(batch)
    manager.publish()
    manager.lose()
    manager.restore()
    again = Restored(manager)
    assert again.receipts(0.0) == {ELSEWHERE: 7}
    assert [again.take(n, ELSEWHERE) for n in (7, 8)] == ["position", FORWARD_QUEUE]


def test_a_stream_to_another_host_that_began_after_the_table_shows_what_is_missing(
    manager: Manager,
) -> None:
    manager.note(streams=[counted(ELSEWHERE, 9, 9, ordinal=6)])
    manager.publish()
    put(manager, FORWARD_QUEUE, 1, 3, ELSEWHERE)
    manager.publish()
    manager.lose()
    manager.restore()
    again = Restored(manager)
    assert again.take(5, ELSEWHERE) == "gap", "its sender had a receipt for 4"
    (stream,) = again.receiver.streams
    assert (stream.gap_at, stream.gap_next) == (1, 5)
    assert again.receiver.accept_gap(stream.queue, PEER)
    assert again.take(5, ELSEWHERE) == FORWARD_QUEUE
    (due,) = again.receiver.due(200.0)
    assert (due.url, due.last_ordinal) == (URL, 5), (
        "where receipts go stands in the <start> alone, and was kept"
    )


def test_what_came_while_the_identifiers_were_read_is_a_row_or_is_taken_anew(
    manager: Manager, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read page by page; an identifier that is restored without its row would turn the sender's repeat into a loss."""
    here = f"http://machine2/msmq/{QUEUE}"
    put(manager, QUEUE, 1, 5, here)
    manager.note(streams=[stream_row(5)], history=[HistoryRun(PEER, 701, 705, 1)])
    manager.publish()
    identifiers = StoredLog.identifiers
    came = iter(range(6, 100))

    def busy(log: StoredLog) -> Iterator[list[HistoryRow]]:
        n = next(came)
        put(manager, QUEUE, n, n, here)
        manager.note(streams=[stream_row(n)], history=[HistoryRun(PEER, 701, 700 + n, 1)])
        return identifiers(log)

    def killed(publisher: Publisher, *_: object) -> None:
        raise ConnectionError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(StoredLog, "identifiers", busy)
        patch.setattr(Publisher, "_replace", killed)  # the tables that follow the identifiers
        with pytest.raises(ConnectionError):
            manager.publish()
    manager.lose()
    manager.restore()
    (known,) = manager.identifiers()
    rows = {row["sequence"] for row in manager.rows(manager.epoch)}
    assert {known.last - 700} == {max(rows)} <= {7}, (
        "came twice: once to be compared, once to be written"
    )
    again = Restored(manager)
    again.receiver.add_queue(QUEUE, transactional=True)
    assert again.take(8, here) == QUEUE


def test_our_own_stream_goes_on_where_its_rows_end(manager: Manager) -> None:
    """What came over the wire under our GUID has another count."""
    house = name_of_house_stream(QUEUE)
    begun = IncomingStreamRow(house, PEER, 7, 2, 2, URL, "", PEER, 0, 1, 1, None)
    manager.note(
        streams=[
            begun,
            begun._replace(queue=name_of_queue(QUEUE), sequence_number=9, peer="192.0.2.1:4711"),
        ]
    )
    manager.publish()
    put(manager, QUEUE, 3, 4, f"http://machine2/msmq/{QUEUE}", arrival=Arrival(1, "api", ""))
    manager.publish()
    manager.lose()
    manager.restore()
    assert {stream.queue: stream.sequence_number for stream in manager.state().streams} == {
        house: 4,
        QUEUE: 9,
    }


def test_a_forwarded_message_that_may_be_of_two_senders_is_taken_anew_of_both(
    manager: Manager,
) -> None:
    """Its envelope in the outbox does not say whose it is; the next receiver knows the one that is sent again."""
    desk = manager.sends()
    manager.note(streams=[counted(ELSEWHERE, 5, 5)])
    manager.publish()
    put(manager, FORWARD_QUEUE, 6, 6, ELSEWHERE)
    alice = Arrival(0, "https", "192.0.2.7:1", "CN=alice")
    put(manager, FORWARD_QUEUE, 6, 7, ELSEWHERE, arrival=alice)
    rows = [
        MessageToForward(message(n, ELSEWHERE), ELSEWHERE, "1.1 srmp-" + manager.guid, n)
        for n in (6, 7)
    ]
    database = desk.outbox.database
    batch = ForwardedBatch(database, rows, read_to(database), ForwardPlace(manager.epoch, 3), 1)
    assert batch.step()
    desk.write(batch)
    manager.publish()
    manager.lose()
    manager.restore()
    (known,) = manager.identifiers()
    assert (known.lineage, known.first, known.last) == (
        lineage_key(PEER, "https", "CN=alice"),
        707,
        707,
    )
