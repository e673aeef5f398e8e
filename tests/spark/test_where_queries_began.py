"""A mark covers what its own query has read, and a query reads what its consumer has not received.

Each dialogue is one of the ways of use that lost rows in silence, or read them twice.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pyarrow as pa
import pytest
from fake_queue_manager import FakeQueueManager
from pyspark.sql.streaming.datasource import ReadMaxRows
from reading import EVERYTHING, at, began, drain, reader_of

from srmp_spark.errors import ConfigurationError
from srmp_spark.spark.reading.offsets import Offsets
from srmp_spark.spark.reading.stream_reader import SrmpStreamReader

Fake = Callable[..., FakeQueueManager]
ORDERS = "private$/orders"


def marks(qm: FakeQueueManager, consumer: str = "default") -> tuple[int, list[tuple[int, int]]]:
    found = qm.consumer(ORDERS, consumer) if consumer != "default" else qm.consumer(ORDERS)
    return found.received, found.ahead


def sequences(reader: SrmpStreamReader, start: dict, end: dict) -> list[int]:
    """What the executors read of a batch."""
    batches: list[pa.RecordBatch] = []
    for partition in reader.partitions(start, end):
        batches += reader.read(partition)
    return [sequence for batch in batches for sequence in batch.column("sequence").to_pylist()]


def run(reader: SrmpStreamReader, start: dict, limit: object = EVERYTHING) -> dict:
    """Read what there is and commit it; the offset that was reached."""
    end = reader.latestOffset(start, limit)  # type: ignore[arg-type]
    reader.latestOffset(end, EVERYTHING) if end != start else None
    reader.commit(end)
    return end


def test_a_checkpoint_that_was_a_peek_marks_what_it_has_read(fake: Fake) -> None:
    """900 rows wait for their consumer; the query began behind them."""
    qm = fake(orders=900)
    peek = reader_of(qm, readMode="peek", startingOffsets="latest")
    start = peek.initialOffset()
    qm.add(ORDERS, 100)
    end = peek.latestOffset(start, EVERYTHING)
    peek.stop()
    receive = reader_of(qm)
    run(receive, end)
    assert marks(qm) == (0, [(901, 1000)]), "900 rows wait still"


def test_a_query_that_comes_back_marks_what_it_has_read_whatever_another_did_meanwhile(
    fake: Fake,
) -> None:
    qm = fake(orders=900)
    one = reader_of(qm, startingOffsets="latest")
    start = one.initialOffset()
    qm.add(ORDERS, 100)
    end = one.latestOffset(start, EVERYTHING)
    one.stop()
    two = reader_of(qm)
    run(two, two.initialOffset(), ReadMaxRows(500))
    two.stop()
    again = reader_of(qm, startingOffsets="latest")
    run(again, end)
    received, ahead = marks(qm)
    assert (received, ahead) != (1000, []), "501 to 900 were read by nobody"
    assert ahead == [(901, 1000)]


def test_a_queue_manager_that_forgot_what_was_planned_marks_no_more_than_was_read(
    fake: Fake,
) -> None:
    """After a restore."""
    qm = fake(orders=900)
    query = reader_of(qm, startingOffsets="latest")
    start = query.initialOffset()
    qm.add(ORDERS, 100)
    end = query.latestOffset(start, EVERYTHING)
    query.stop()
    qm.consumers.clear()
    run(reader_of(qm), end)
    assert marks(qm) == (0, [(901, 1000)])


def test_another_consumer_gets_the_marks_of_what_the_query_has_read(fake: Fake) -> None:
    qm = fake(orders=50)
    query = reader_of(qm)
    end = run(query, query.initialOffset())
    query.stop()
    qm.add(ORDERS, 5)
    run(reader_of(qm, consumer="audit"), end)
    assert marks(qm, "audit") == (55, [])


def test_a_mark_begins_behind_the_one_before(fake: Fake) -> None:
    qm = fake(orders=30)
    reader = reader_of(qm, startingOffsets='{"private$/orders": 6}')
    bodies: list[dict] = []
    received = qm.received
    qm.received = lambda queue, name, body: bodies.append(body) or received(queue, name, body)  # type: ignore[method-assign,func-returns-value]
    drain(reader, reader.initialOffset(), ReadMaxRows(10))
    assert [(body["from"], body["to"]) for body in bodies] == [(6, 15), (16, 25), (26, 30)]


def test_unreceived_leaves_out_what_was_received_out_of_turn(fake: Fake) -> None:
    """`receive` took row 6 by priority, and rows 8 and 9."""
    qm = fake(orders=12)
    qm.consumer(ORDERS).mark(1, 2)
    qm.consumer(ORDERS).mark(6, 6)
    qm.consumer(ORDERS).mark(8, 9)
    reader = reader_of(qm)
    start = reader.initialOffset()
    assert began(start) == {ORDERS: 3}
    first = reader.latestOffset(start, ReadMaxRows(5))
    assert sequences(reader, start, first) == [3, 4, 5, 7]
    last = reader.latestOffset(first, EVERYTHING)
    reader.commit(first)
    assert sequences(reader, first, last) == [10, 11, 12]
    qm.add(ORDERS, 1)
    end = reader.latestOffset(last, EVERYTHING)
    reader.commit(last)
    assert sequences(reader, last, end) == [13]
    assert "taken" not in end, "what it has passed and marked needs no place in its offsets"
    assert began(end) == {ORDERS: 13}
    again = reader_of(qm)
    assert sequences(again, start, first) == [3, 4, 5, 7], (
        "a batch that runs again is the same batch"
    )


def test_unreceived_leaves_out_what_was_received_while_the_query_waited_for_the_lease(
    fake: Fake,
) -> None:
    """The list of queues is older than the lease: rows that came in between lie behind the end that it tells."""
    qm = fake(orders=4)
    consumer = qm.consumer(ORDERS)
    consumer.holder = "receive"

    def receive() -> None:
        while not any(path.endswith("register") for _, path in qm.calls):
            time.sleep(0.02)
        qm.add(ORDERS, 3)
        consumer.mark(6, 6)  # by priority
        consumer.holder = None

    command = threading.Thread(target=receive)
    command.start()
    reader = reader_of(qm)
    start = reader.initialOffset()
    command.join()
    assert sequences(reader, start, reader.latestOffset(start, EVERYTHING)) == [1, 2, 3, 4, 5, 7]


@pytest.mark.parametrize("starting", ["latest", '{"private$/orders": 11}'])
def test_the_first_batch_that_runs_again_is_the_same_batch(fake: Fake, starting: str) -> None:
    """Its start is in no offset: Spark asks for the initial offset anew, and ``latest`` is another one by then."""
    qm = fake(orders=10)
    killed = reader_of(qm, startingOffsets=starting)
    start = killed.initialOffset()
    qm.add(ORDERS, 2)
    end = killed.latestOffset(start, EVERYTHING)
    killed.stop()
    qm.add(ORDERS, 5)
    again = reader_of(qm, startingOffsets="latest")
    assert sequences(again, again.initialOffset(), end) == [11, 12]
    run(again, end)
    assert marks(qm) == (0, [(11, 17)])


def test_the_first_batch_that_runs_again_is_of_the_epoch_that_it_had(fake: Fake) -> None:
    """A restore came between the rows and the query: by now it would begin in the epoch after them."""
    qm = fake(orders=4)
    qm.new_epoch()
    killed = reader_of(qm, startingOffsets="earliest")
    end = killed.latestOffset(killed.initialOffset(), EVERYTHING)
    killed.stop()
    again = reader_of(qm, startingOffsets="latest")
    assert sequences(again, again.initialOffset(), end) == [1, 2, 3, 4]


def test_the_first_batch_that_runs_again_without_a_queue_of_it_is_the_same_batch(
    fake: Fake,
) -> None:
    """The options name another queue now, and the rows of the first one would be passed."""
    qm = fake(orders=3, bills=2)
    killed = reader_of(qm, queue="private$/*", startingOffsets="earliest")
    end = killed.latestOffset(killed.initialOffset(), EVERYTHING)
    killed.stop()
    again = reader_of(qm, queue="private$/bills", startingOffsets="earliest")
    assert sequences(again, again.initialOffset(), end) == [1, 2, 1, 2, 3]


def test_a_first_batch_of_0_1_that_runs_again_begins_at_the_first_row_that_is_there(
    fake: Fake,
) -> None:
    """Its offset does not say where it began: nothing is lost, and what retention has deleted is not asked for."""
    qm = fake(orders=20)
    qm.logs[ORDERS].first = 8
    again = reader_of(qm)
    assert sequences(again, again.initialOffset(), dict(at((qm, "orders", 12)))) == [
        8,
        9,
        10,
        11,
        12,
    ]


def test_rows_that_a_first_batch_has_again_although_they_were_received_are_told(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    qm = fake(orders=12)
    killed = reader_of(qm)
    end = killed.latestOffset(killed.initialOffset(), EVERYTHING)
    killed.stop()
    qm.consumer(ORDERS).mark(1, 5)
    again = reader_of(qm)
    start = again.initialOffset()
    caplog.clear()
    assert sequences(again, start, end) == list(range(1, 13)), (
        "a batch that runs again is the same batch"
    )
    assert "rows up to 5" in caplog.text
    other = reader_of(fake(orders=12))
    other.partitions(start := other.initialOffset(), other.latestOffset(start, EVERYTHING))
    assert caplog.text.count("log.read_again") == 1


def test_what_the_first_batch_had_is_marked_although_the_query_would_begin_behind_it_now(
    fake: Fake,
) -> None:
    qm = fake(orders=0)
    killed = reader_of(qm, startingOffsets="latest")
    first = killed.latestOffset(killed.initialOffset(), EVERYTHING)
    killed.stop()
    qm.add(ORDERS, 2)
    again = reader_of(qm, startingOffsets="latest")
    assert sequences(again, again.initialOffset(), first) == []
    run(again, first)
    assert marks(qm) == (2, []), "they wait for nobody"


@pytest.mark.parametrize(("starting", "first"), [("latest", 4), ("earliest", 1)])
def test_a_queue_that_is_added_while_the_first_batch_runs_again_begins_as_starting_offsets_says(
    fake: Fake, starting: str, first: int
) -> None:
    qm = fake(orders=1, old=3)
    killed = reader_of(qm, startingOffsets=starting)
    end = killed.latestOffset(killed.initialOffset(), EVERYTHING)
    killed.stop()
    again = reader_of(qm, queue="private$/orders,private$/old", startingOffsets=starting)
    again.partitions(again.initialOffset(), end)
    assert began(again.latestOffset(end, EVERYTHING)).get("private$/old", 1) == first


def test_another_consumer_does_not_receive_what_the_query_has_left_out(fake: Fake) -> None:
    """``default`` had received row 3 out of turn; ``audit`` has not."""
    qm = fake(orders=6)
    qm.consumer(ORDERS).mark(3, 3)
    query = reader_of(qm)
    start = query.initialOffset()
    end = query.latestOffset(start, EVERYTHING)
    assert sequences(query, start, end) == [1, 2, 4, 5, 6]
    query.stop()
    run(reader_of(qm, consumer="audit"), end)
    assert marks(qm, "audit") == (2, [(4, 6)]), "row 3 waits for it"
    run(reader_of(qm), end)
    assert marks(qm) == (6, [])


def test_what_was_left_out_and_is_received_is_marked_in_one_call(fake: Fake) -> None:
    """However many gaps there are."""
    qm = fake(orders=9)
    for each in (2, 4, 6, 8):
        qm.consumer(ORDERS).mark(each, each)
    reader = reader_of(qm)
    run(reader, reader.initialOffset())
    assert [to for _, _, _, to in qm.marks] == [9]


def test_what_is_received_while_the_query_is_away_does_not_change_its_batches(fake: Fake) -> None:
    """They follow from two offsets; a receiver that took rows meanwhile is told by the marks."""
    qm = fake(orders=12)
    reader = reader_of(qm)
    start = reader.initialOffset()
    end = reader.latestOffset(start, EVERYTHING)
    reader.stop()
    qm.consumer(ORDERS).mark(6, 6)
    assert sequences(reader_of(qm), start, end) == [*range(1, 13)]


def test_a_batch_read_of_unreceived_leaves_them_out_too(fake: Fake) -> None:
    from srmp_spark.spark.reading.batch_reader import SrmpBatchReader
    from srmp_spark.spark.settings.options import parse

    qm = fake(orders=5)
    qm.consumer(ORDERS).mark(2, 3)
    reader = SrmpBatchReader(
        parse({"queueManager": qm.url, "queue": ORDERS, "startingOffsets": "unreceived"})
    )
    rows = [
        batch.column("sequence").to_pylist()
        for each in reader.partitions()
        for batch in reader.read(each)
    ]
    assert rows == [[1, 4, 5]]


@pytest.mark.parametrize(
    ("starting", "first"), [("unreceived", 41), ("earliest", 1), ("latest", 101), ('{"private$/orders": 1}', 41),
                            ('{"private$/orders": 1, "private$/old": 7}', 7)]
)  # fmt: skip
def test_a_queue_that_is_added_at_a_restart_begins_as_starting_offsets_says(
    fake: Fake, starting: str, first: int, caplog: pytest.LogCaptureFixture
) -> None:
    qm = fake(orders=10)
    query = reader_of(qm)
    end = run(query, query.initialOffset())
    query.stop()
    qm.add("private$/old", 100)
    qm.consumer("private$/old").mark(1, 40)
    with caplog.at_level(logging.INFO):
        joined = reader_of(
            qm, queue="private$/orders,private$/old", startingOffsets=starting
        ).latestOffset(end, EVERYTHING)
    assert began(joined) == ({"private$/old": first} if first > 1 else {})
    assert f"log.joined log=private$/old of queue manager {qm.guid} first={first}" in caplog.text


def test_a_queue_that_is_made_while_the_query_runs_is_read_from_its_first_row(fake: Fake) -> None:
    qm = fake(orders=10)
    query = reader_of(qm, queue="private$/*", startingOffsets="latest")
    start = query.latestOffset(query.initialOffset(), EVERYTHING)
    qm.add("private$/new", 3)
    query._here()._logs._found_at = float("-inf")  # the queues are listed again
    assert began(query.latestOffset(start, EVERYTHING)) == {ORDERS: 11}, "at its first row"


def test_available_now_that_is_resumed_with_a_misspelt_queue_says_so(fake: Fake) -> None:
    """It ended with 0 rows and exit code 0, every time."""
    qm = fake(orders=10)
    query = reader_of(qm)
    end = run(query, query.initialOffset())
    query.stop()
    misspelt = reader_of(qm, queue="private$/order")
    misspelt.prepareForTriggerAvailableNow()
    with pytest.raises(
        ConfigurationError, match=r"no queue 'private\$/order' .*did you mean 'private\$/orders'"
    ):
        misspelt.latestOffset(end, EVERYTHING)


def test_a_log_that_begins_again_is_marked_from_there(fake: Fake) -> None:
    """Another data directory, ``failOnDataLoss=false``: sequences 1 to 3 are other rows than those that were read."""
    qm = fake(orders=900)
    query = reader_of(qm, startingOffsets="latest")
    start = query.initialOffset()
    qm.add(ORDERS, 100)
    end = run(query, start)
    query.stop()
    other = fake(orders=3)
    other.guid = qm.guid
    reader = reader_of(other, failOnDataLoss="false")
    reached = reader.latestOffset(end, EVERYTHING)
    assert began(reached) == {}, "at the first row of what is there now"
    run(reader, reached)
    assert marks(other) == (3, [])


def test_a_checkpoint_that_does_not_say_it_is_marked_from_what_was_registered(fake: Fake) -> None:
    """One of the first, of a query that began at ``latest``: the queue manager knows where."""
    qm = fake(orders=20)
    qm.consumer(ORDERS).planned = 16
    reader = reader_of(qm)
    end = run(reader, at((qm, "orders", 20)))
    assert dict(end) == dict(at((qm, "orders", 20))), "its offsets keep their text"
    assert marks(qm) == (0, [(16, 20)])


def test_what_began_and_what_is_left_out_have_one_text() -> None:
    text = (
        '{"began":{"aa":{"private$/a":3}},"qm":{"aa":{"e":{"private$/a":4,"private$/b":0}}},'
        '"taken":{"aa":{"private$/a":[[6,6],[8,9]]}},"v":1}'
    )
    assert str(Offsets.from_text(text)) == text


def test_a_queue_that_is_made_while_the_first_batch_runs_again_is_read_from_its_first_row(
    fake: Fake,
) -> None:
    """It has no rows from before the query, whatever ``startingOffsets`` says."""
    qm = fake(orders=1)
    killed = reader_of(qm, queue="private$/*", startingOffsets="latest")
    start = killed.initialOffset()
    qm.add(ORDERS, 2)
    end = killed.latestOffset(start, EVERYTHING)
    killed.stop()
    again = reader_of(qm, queue="private$/*", startingOffsets="latest")
    start = again.initialOffset()
    qm.add("private$/new", 2)
    assert sequences(again, start, end) == [2, 3]
    joined = again.latestOffset(end, EVERYTHING)
    assert began(joined).get("private$/new", 1) == 1
    again.commit(end)
    assert sequences(again, joined, again.latestOffset(joined, EVERYTHING)) == [1, 2]
