"""Driving a stream reader as Spark's engine does, without Spark."""

from __future__ import annotations

from typing import Any

from fake_queue_manager import FakeQueueManager
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from srmp_spark.spark.offsets import LogKey, Offsets, Position
from srmp_spark.spark.options import parse
from srmp_spark.spark.partitions import SrmpPartition
from srmp_spark.spark.stream_reader import SrmpStreamReader

EVERYTHING = ReadAllAvailable()


_made: list[SrmpStreamReader] = []


def reader_of(*managers: FakeQueueManager, **options: str) -> SrmpStreamReader:
    """A reader of ``private$/orders``, unless ``queue`` says otherwise."""
    urls = ",".join(each.url for each in managers)
    _made.append(SrmpStreamReader(parse({"queueManager": urls, "queue": "private$/orders", **options})))
    return _made[-1]


def stop_all() -> None:
    """Stop every reader that was made: Spark would end its process."""
    while _made:
        _made.pop().stop()


def at(*places: tuple[FakeQueueManager, str, int], epoch: str | None = None) -> dict[str, Any]:
    """The offset (queue manager, queue, last sequence)…, in the present epochs unless one is given."""
    return Offsets(
        {LogKey(each.guid, f"private$/{queue}"): Position(epoch or each.epoch, n) for each, queue, n in places}
    ).as_dict()


def planned(reader: SrmpStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[str, int, int]]:
    """(queue, after, to) of each task."""
    tasks = reader.partitions(start, end)
    assert all(isinstance(task, SrmpPartition) for task in tasks)
    return [(task.key.queue, task.after, task.to) for task in tasks]  # type: ignore[attr-defined]


def drain(reader: SrmpStreamReader, start: dict[str, Any], limit: ReadLimit, batches_max: int = 100) -> list[dict[str, Any]]:
    """The offsets of the batches until one does not move, as AvailableNow does."""
    found = []
    for _ in range(batches_max):
        end = reader.latestOffset(start, limit)
        if end == start:
            return found
        found.append(end)
        start = end
    raise AssertionError(f"no end after {batches_max} batches")
