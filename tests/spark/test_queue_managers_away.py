"""A query of several queue managers, one of which is away for a while."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

import pytest
from fake_queue_manager import FakeQueueManager
from reading import EVERYTHING, at, planned, reader_of

from srmp_spark.errors import ApiUnreachableError, DataLossError
from srmp_spark.spark.reading import logs, queue_managers
from srmp_spark.spark.reading.batch_reader import SrmpBatchReader
from srmp_spark.spark.reading.marks import Marks
from srmp_spark.spark.reading.offsets import Offsets
from srmp_spark.spark.settings.options import parse

Fake = Callable[..., FakeQueueManager]
ORDERS = "private$/orders"


@pytest.fixture(autouse=True)
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(queue_managers, "AWAY_SECONDS", 0.0)
    monkeypatch.setattr(queue_managers, "ONE_OF_SEVERAL_RETRY_SECONDS", 0.1)


def test_the_rows_of_the_others_come_and_its_own_when_it_is_back(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    here, away = fake(orders=10), fake(orders=10)
    reader = reader_of(here, away)
    start = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    assert start == at((here, "orders", 10), (away, "orders", 10))
    away.close()
    here.add(ORDERS, 5)
    away.add(ORDERS, 3)
    with caplog.at_level(logging.INFO):
        meanwhile = reader.latestOffset(start, EVERYTHING)
        assert reader.latestOffset(meanwhile, EVERYTHING) == meanwhile
    assert meanwhile == at((here, "orders", 15), (away, "orders", 10))
    assert here.consumer(ORDERS).received == 15
    assert caplog.text.count(f"queue_manager.away url={away.url}") == 1
    away.open()
    with caplog.at_level(logging.INFO):
        back = reader.latestOffset(meanwhile, EVERYTHING)
    assert back == at((here, "orders", 15), (away, "orders", 13))
    assert f"queue_manager.back url={away.url}" in caplog.text
    reader.commit(back)
    assert away.consumer(ORDERS).received == 13, "its marks go with the next ones"


def test_one_that_is_away_when_the_query_is_started_again(fake: Fake) -> None:
    """Its GUID is not known yet, so a log that no other has may be its."""
    here, away = fake(orders=10), fake(orders=10)
    start = at((here, "orders", 4), (away, "orders", 4))
    away.close()
    reader = reader_of(here, away)
    meanwhile = reader.latestOffset(start, EVERYTHING)
    assert meanwhile == at((here, "orders", 10), (away, "orders", 4))
    assert planned(reader, start, meanwhile) == [(ORDERS, 4, 10)]
    away.open()
    assert reader.latestOffset(meanwhile, EVERYTHING) == at(
        (here, "orders", 10), (away, "orders", 10)
    )


def test_available_now_leaves_what_comes_back_in_the_middle_to_the_next_run(fake: Fake) -> None:
    """Nobody looked where its logs ended when the run began, so it might never end."""
    here, away = fake(orders=10), fake(orders=10)
    start = at((here, "orders", 0), (away, "orders", 0))
    away.close()
    reader = reader_of(here, away)
    reader.prepareForTriggerAvailableNow()
    away.open()
    reached = reader.latestOffset(start, EVERYTHING)
    assert reached == at((here, "orders", 10), (away, "orders", 0))
    assert reader.latestOffset(reached, EVERYTHING) == reached


def test_a_queue_that_joins_at_one_that_is_away_begins_as_starting_offsets_says(fake: Fake) -> None:
    here, away = fake(orders=10), fake(orders=10, old=10)
    away.close()
    reader = reader_of(here, away, queue="private$/orders,private$/old", startingOffsets="latest")
    meanwhile = reader.latestOffset(at((here, "orders", 10), (away, "orders", 10)), EVERYTHING)
    away.open()
    back = reader.latestOffset(meanwhile, EVERYTHING)
    assert back == at((here, "orders", 10), (away, "orders", 10), (away, "old", 10))


def test_a_batch_that_was_planned_is_not_run_without_the_rows_of_one_that_is_away(
    fake: Fake,
) -> None:
    """It was not committed, and is planned again after a restart. Without them it would be committed, and they marked."""
    here, away = fake(orders=10), fake(orders=10)
    start, end = (
        at((here, "orders", 0), (away, "orders", 0)),
        at((here, "orders", 10), (away, "orders", 10)),
    )
    away.close()
    with pytest.raises(ApiUnreachableError, match=away.url):
        reader_of(here, away).partitions(start, end)
    away.open()
    assert planned(reader_of(here, away), start, end) == [(ORDERS, 0, 10)] * 2


def test_when_all_have_answered_a_log_that_none_has_is_lost(fake: Fake) -> None:
    here, other, gone = fake(orders=10), fake(orders=10), fake(orders=10)
    reader = reader_of(here, other)
    with pytest.raises(DataLossError, match="option queueManager"):
        reader.latestOffset(
            at((here, "orders", 10), (other, "orders", 10), (gone, "orders", 1)), EVERYTHING
        )


def test_where_all_are_away_the_query_ends(fake: Fake) -> None:
    one, two = fake(orders=10), fake(orders=10)
    reader = reader_of(one, two)
    start = reader.initialOffset()
    one.close()
    two.close()
    with pytest.raises(ApiUnreachableError, match=r"127\.0\.0\.1"):
        reader.latestOffset(start, EVERYTHING)


def test_the_only_one_is_waited_for_as_long_as_queue_manager_timeout_says(fake: Fake) -> None:
    """Less than the 30 s that a call is repeated without the option; and on, when it is back in time."""
    qm = fake(orders=10)
    hasty, patient = (
        reader_of(qm, queueManagerTimeout=each, consumer=each) for each in ("300ms", "1m")
    )
    start = at((qm, "orders", 4))
    for reader in (hasty, patient):
        assert reader.latestOffset(start, EVERYTHING) == at((qm, "orders", 10))
    qm.add(ORDERS, 1)
    qm.close()
    began = time.monotonic()
    with pytest.raises(ApiUnreachableError):
        hasty.latestOffset(at((qm, "orders", 10)), EVERYTHING)
    assert time.monotonic() - began < 10.0
    back = threading.Timer(1.0, qm.open)
    back.start()
    assert patient.latestOffset(at((qm, "orders", 10)), EVERYTHING) == at((qm, "orders", 11))
    back.join()


def test_a_new_query_and_a_batch_begin_with_all_of_them(fake: Fake) -> None:
    """Who is away now would be read from another place than ``startingOffsets`` says."""
    here, away = fake(orders=10), fake(orders=10)
    away.close()
    with pytest.raises(ApiUnreachableError, match=away.url):
        reader_of(here, away).initialOffset()
    options = parse(
        {"queueManager": f"{here.url},{away.url}", "queue": ORDERS, "startingOffsets": "earliest"}
    )
    with pytest.raises(ApiUnreachableError, match=away.url):
        SrmpBatchReader(options).partitions()


def test_marks_that_one_was_not_sent_are_sent_when_it_is_back(
    fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It comes back between the mark and the next offset, which leaves no list of what the query has passed: the rows before it
    would be received by nobody."""
    here, away = fake(orders=10), fake(orders=10)
    away.consumer(ORDERS).mark(3, 3)  # out of turn
    reader = reader_of(here, away)
    end = reader.latestOffset(reader.initialOffset(), EVERYTHING)
    monkeypatch.setattr(queue_managers, "AWAY_SECONDS", 1.0)
    away.close()
    assert reader.latestOffset(end, EVERYTHING) == end, "the mark is not sent"
    away.open()
    away.add(ORDERS, 3)
    monkeypatch.setattr(logs, "DISCOVERY_SECONDS", 0.0)
    send = Marks.send

    def send_and_let_it_be_tried_again(self: Marks, offsets: Offsets) -> None:
        send(self, offsets)
        time.sleep(1.0)

    monkeypatch.setattr(Marks, "send", send_and_let_it_be_tried_again)
    after = reader.latestOffset(end, EVERYTHING)
    assert after == at((here, "orders", 10), (away, "orders", 13))
    monkeypatch.setattr(Marks, "send", send)
    reader.stop()  # a kill: Spark has written the offset, and has not called ``commit``
    again = reader_of(here, away)
    again.partitions(end, after)
    again.latestOffset(after, EVERYTHING)
    assert away.consumer(ORDERS).received == 13
