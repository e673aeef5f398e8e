"""failOnDataLoss: an unknown epoch, a sequence past the end, trimmed rows, a missing queue or queue manager."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from fake_queue_manager import FakeQueueManager
from reading import EVERYTHING, at, drain, planned, reader_of

from srmp_spark.errors import ConfigurationError, DataLossError

Fake = Callable[..., FakeQueueManager]


def loss(
    qm: FakeQueueManager, start: dict, caplog: pytest.LogCaptureFixture, *others: FakeQueueManager
) -> tuple[str, dict, str]:
    """(the error with true, where false goes on, what false says in the log)"""
    with pytest.raises(DataLossError) as error:
        reader_of(qm, *others).latestOffset(start, EVERYTHING)
    assert "failOnDataLoss=false" in str(error.value)
    with caplog.at_level(logging.WARNING):
        end = reader_of(qm, *others, failOnDataLoss="false").latestOffset(start, EVERYTHING)
    return str(error.value), end, caplog.text


def test_trimmed_rows(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    qm = fake(orders=100)
    qm.logs["private$/orders"].first = 51
    said, end, logged = loss(qm, at((qm, "orders", 10)), caplog)
    assert "rows up to 50 were deleted by retention" in said
    assert end == at((qm, "orders", 50))
    assert "skips 11 to 50" in logged


def test_an_unknown_epoch(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    qm = fake(orders=100)
    start = at((qm, "orders", 10), epoch="gone")
    said, end, logged = loss(qm, start, caplog)
    assert "epoch gone is unknown" in said
    assert end == at((qm, "orders", 0))
    assert f"continues at sequence 1 of epoch {qm.epoch}" in logged
    assert planned(reader_of(qm, failOnDataLoss="false"), start, end) == [], "a jump reads no row"


def test_a_sequence_past_the_end(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    qm = fake(orders=100)
    said, end, logged = loss(qm, at((qm, "orders", 1000)), caplog)
    assert "ends at 100" in said
    assert end == at((qm, "orders", 100))
    assert "continues after 100" in logged


def test_a_queue_that_is_gone(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    qm = fake(payments=1)
    start = at((qm, "orders", 10))
    said, end, logged = loss(qm, start, caplog)
    assert "no longer exists" in said
    assert end == start
    assert "leaves it out" in logged


def test_a_queue_manager_that_is_missing(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    qm, gone = fake(orders=10), fake(orders=10)
    said, end, _ = loss(qm, at((qm, "orders", 10), (gone, "orders", 5)), caplog)
    assert gone.guid in said
    assert "option queueManager" in said
    assert end == at((qm, "orders", 10), (gone, "orders", 5))


def test_a_batch_that_was_planned_with_a_queue_manager_that_is_missing_now(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    """It was not committed, so Spark plans it again: that was a ``KeyError``."""
    qm, gone = fake(orders=10), fake(orders=10)
    start, end = (
        at((qm, "orders", 0), (gone, "orders", 0)),
        at((qm, "orders", 10), (gone, "orders", 5)),
    )
    with pytest.raises(DataLossError, match="option queueManager"):
        reader_of(qm).partitions(start, end)
    with caplog.at_level(logging.WARNING):
        assert planned(reader_of(qm, failOnDataLoss="false"), start, end) == [
            ("private$/orders", 0, 10)
        ]
    assert "leaves it out" in caplog.text


def test_what_is_lost_is_told_once(fake: Fake, caplog: pytest.LogCaptureFixture) -> None:
    """An idle query looks several times a second: 71 warnings each."""
    qm = fake(payments=1)
    reader, start = reader_of(qm, failOnDataLoss="false"), at((qm, "orders", 10))
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            assert reader.latestOffset(start, EVERYTHING) == start
    assert caplog.text.count("data.lost") == 1


def test_a_queue_manager_is_known_by_its_guid_and_not_by_its_url(fake: Fake) -> None:
    """The log moved to another host: the same GUID at another URL is the same log."""
    old, new = fake(orders=10), fake(orders=10)
    new.guid, new.epoch, new.logs = old.guid, old.epoch, old.logs
    old.close()
    assert reader_of(new).latestOffset(at((old, "orders", 4)), EVERYTHING) == at(
        (old, "orders", 10)
    )


def test_one_queue_manager_under_two_urls_is_read_once(fake: Fake) -> None:
    one, two = fake(orders=10), fake(orders=10)
    two.guid = one.guid
    with pytest.raises(ConfigurationError, match="name it once"):
        reader_of(one, two).initialOffset()


def test_an_old_epoch_is_read_to_its_end_and_followed(fake: Fake) -> None:
    qm = fake(orders=10)
    old = qm.epoch
    start = at((qm, "orders", 4))
    qm.new_epoch()
    middle = qm.new_epoch()
    qm.add("private$/orders", 5)
    reader = reader_of(qm)
    reader.prepareForTriggerAvailableNow()
    ends = drain(reader, start, EVERYTHING)
    assert ends[0] == at((qm, "orders", 10), epoch=old)
    assert ends[-1] == at((qm, "orders", 15))
    begins = [start, *ends[:-1]]
    rows = [
        piece
        for begin, end in zip(begins, ends, strict=True)
        for piece in planned(reader, begin, end)
    ]
    assert rows == [("private$/orders", 4, 10), ("private$/orders", 10, 15)], (
        "each row once, in order"
    )
    assert qm.epoch == middle


def test_a_glob_that_matches_nothing_is_told_once(
    fake: Fake, caplog: pytest.LogCaptureFixture
) -> None:
    """No error: a queue of that name may come. But nothing else would say why there are no rows."""
    qm = fake(orders=3)
    reader = reader_of(qm, queue="private$/nosuch*")
    for _ in range(2):
        assert reader.latestOffset(at(), EVERYTHING) == at()
    told = [record.getMessage() for record in caplog.records if "queues.none" in record.msg]
    assert len(told) == 1
    assert "'private$/nosuch*'" in told[0]
    assert "there are: private$/orders" in told[0]
