"""Offsets and times for each queue and each queue manager, and where a batch read ends."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from fake_queue_manager import ARRIVED_US, FakeQueueManager
from reading import at, reader_of

from srmp_spark.errors import ConfigurationError
from srmp_spark.spark.reading.batch_reader import SrmpBatchReader
from srmp_spark.spark.reading.partitions import SrmpPartition
from srmp_spark.spark.settings.by_queue import parse_by_queue
from srmp_spark.spark.settings.options import parse

Fake = Callable[..., FakeQueueManager]


def moment(row: float) -> int:
    """When a row arrived, in milliseconds."""
    return int(ARRIVED_US + row * 1_000_000) // 1000


def batch(*managers: FakeQueueManager, **options: str) -> list[tuple[str, int, int]]:
    """(GUID, after, to) of the tasks of a batch read of ``private$/orders``."""
    given = {"queueManager": ",".join(each.url for each in managers), "queue": "private$/orders"}
    tasks = SrmpBatchReader(parse({**given, "startingOffsets": "earliest", **options})).partitions()
    assert all(isinstance(task, SrmpPartition) for task in tasks)
    return [(task.key.queue_manager, task.after, task.to) for task in tasks]  # type: ignore[attr-defined]


def test_sequences_for_each_queue_manager(fake: Fake) -> None:
    one, two = fake(orders=100), fake(orders=100)
    starting = json.dumps(
        {one.guid.upper(): {"private$/orders": 42}, two.url + "/": {"private$/orders": -1}}
    )
    assert reader_of(one, two, startingOffsets=starting).initialOffset() == at(
        (one, "orders", 41), (two, "orders", 100)
    )
    ending = json.dumps({one.url: {"private$/orders": 50}, two.guid: {"private$/orders": -1}})
    starts = json.dumps({one.guid: {"private$/orders": 42}, two.url: {"private$/orders": 91}})
    assert sorted(batch(one, two, startingOffsets=starts, endingOffsets=ending)) == sorted(
        [(one.guid, 41, 50), (two.guid, 90, 100)]
    )


@pytest.mark.parametrize("text", ["[1]", "3", '"x"', "null"])
def test_json_that_is_no_object_is_refused_in_words(text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"option o: expected \{"):
        parse_by_queue("o", text, lambda queue, item: item)


@pytest.mark.parametrize(
    ("named", "says"),
    [
        (lambda one, two: {one.url: {"private$/orders": 1}}, r"does not name 'private\$/orders' of http://127"),
        (lambda one, two: {one.url: {"private$/orders": 1}, one.guid: {"private$/orders": 1}, two.url: {"private$/orders": 1}},
         "names one queue twice"),
        (lambda one, two: {"http://127.0.0.1:1": {"private$/orders": 1}}, "which the query does not read; the query reads"),
        (lambda one, two: {one.url: {"private$/ordres": 1}}, r"did you mean 'private\$/orders'"),
    ],
)  # fmt: skip
def test_a_json_names_each_queue_of_each_queue_manager_once(
    fake: Fake, named: Callable[[FakeQueueManager, FakeQueueManager], dict[str, Any]], says: str
) -> None:
    one, two = fake(orders=10), fake(orders=10)
    with pytest.raises(ConfigurationError, match=says):
        reader_of(one, two, startingOffsets=json.dumps(named(one, two))).initialOffset()


def test_times_for_each_queue(fake: Fake) -> None:
    qm = fake(orders=100, payments=100)
    times = json.dumps({"private$/orders": moment(30), "private$/payments": "2100-01-01T00:00:00Z"})
    start = reader_of(qm, queue="private$/*", startingTimestamp=times).initialOffset()
    assert start == at((qm, "orders", 29), (qm, "payments", 100))
    with pytest.raises(ConfigurationError, match="startingTimestamp does not name"):
        reader_of(
            qm, queue="private$/*", startingTimestamp=json.dumps({"private$/orders": 0})
        ).initialOffset()


@pytest.mark.parametrize(
    ("options", "after", "to"),
    [
        ({"endingTimestamp": str(moment(51))}, 0, 50),
        ({"endingTimestamp": str(moment(50.5))}, 0, 50),
        ({"endingTimestamp": "2100-01-01T00:00:00Z"}, 0, 100),
        ({"startingTimestamp": str(moment(20)), "endingTimestamp": str(moment(51))}, 19, 50),
        ({"endingTimestamp": json.dumps({"private$/orders": moment(7)})}, 0, 6),
    ],
)
def test_a_read_ends_before_the_first_row_that_arrived_at_or_after_a_time(
    fake: Fake, options: dict[str, str], after: int, to: int
) -> None:
    qm = fake(orders=100)
    start = {} if "startingTimestamp" in options else {"startingOffsets": "earliest"}
    given = {"queueManager": qm.url, "queue": "private$/orders", **start, **options}
    (task,) = SrmpBatchReader(parse(given)).partitions()
    assert isinstance(task, SrmpPartition)
    assert (task.after, task.to) == (after, to)


def test_nothing_is_read_where_the_end_lies_before_the_start(fake: Fake) -> None:
    qm = fake(orders=100)
    given = {
        "queueManager": qm.url,
        "queue": "private$/orders",
        "startingTimestamp": str(moment(60)),
    }
    assert SrmpBatchReader(parse({**given, "endingTimestamp": str(moment(20))})).partitions() == []


def test_reads_that_follow_each_other_have_every_row_once_also_where_the_clock_was_set_back(
    fake: Fake,
) -> None:
    """Rows 400 to 900 arrived an hour later by the clock than those around them."""
    qm = fake(orders=2000)
    qm.logs["private$/orders"].arrived = {
        n: ARRIVED_US + (n + 3_600) * 1_000_000 for n in range(400, 901)
    }
    edges = [moment(-10), moment(100), moment(1_500), moment(4_100), moment(4_400), moment(9_999)]
    given = {"queueManager": qm.url, "queue": "private$/orders"}
    rows: list[int] = []
    for since, until in itertools.pairwise(edges):
        options = parse({**given, "startingTimestamp": str(since), "endingTimestamp": str(until)})
        for task in SrmpBatchReader(options).partitions():
            assert isinstance(task, SrmpPartition)
            rows += range(task.after + 1, task.to + 1)
            times = [
                qm.arrived_at("private$/orders", n) for n in range(task.after + 1, task.to + 1)
            ]
            assert max(times) < until * 1000, "what is read arrived before the end"
    assert rows == [*range(1, 2001)]
