"""Driving a stream reader as Spark's engine does, without Spark."""

from __future__ import annotations

from typing import Any

from fake_queue_manager import FakeQueueManager
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit

from srmp_spark.spark.reading.offsets import LogKey, Offsets, Position
from srmp_spark.spark.reading.partitions import SrmpPartition
from srmp_spark.spark.reading.stream_reader import SrmpStreamReader
from srmp_spark.spark.settings.options import parse

EVERYTHING = ReadAllAvailable()


_made: list[SrmpStreamReader] = []


def reader_of(*managers: FakeQueueManager, **options: str) -> SrmpStreamReader:
    """A reader of ``private$/orders``, unless ``queue`` says otherwise."""
    urls = ",".join(each.url for each in managers)
    _made.append(
        SrmpStreamReader(parse({"queueManager": urls, "queue": "private$/orders", **options}))
    )
    return _made[-1]


def stop_all() -> None:
    """Stop every reader that was made: Spark would end its process."""
    while _made:
        _made.pop().stop()


class At(dict[str, Any]):
    """An offset as version 0.1 wrote it; equal to every one with these positions, wherever the query began."""

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, dict) and dict(self) == {
            name: other.get(name) for name in ("qm", "v")
        }

    def __ne__(self, other: object) -> bool:
        return not self == other


def at(*places: tuple[FakeQueueManager, str, int], epoch: str | None = None) -> dict[str, Any]:
    """The offset (queue manager, queue, last sequence)…, in the present epochs unless one is given."""
    return At(
        Offsets(
            {
                LogKey(each.guid, f"private$/{queue}"): Position(epoch or each.epoch, n)
                for each, queue, n in places
            }
        ).as_dict()
    )


def began(offset: dict[str, Any]) -> dict[str, int]:
    """Where the query began in each queue of an offset."""
    return {
        queue: first
        for queues in offset.get("began", {}).values()
        for queue, first in queues.items()
    }


def planned(
    reader: SrmpStreamReader, start: dict[str, Any], end: dict[str, Any]
) -> list[tuple[str, int, int]]:
    """(queue, after, to) of each task."""
    tasks = reader.partitions(start, end)
    assert all(isinstance(task, SrmpPartition) for task in tasks)
    return [(task.key.queue, task.after, task.to) for task in tasks]  # type: ignore[attr-defined]


def drain(
    reader: SrmpStreamReader, start: dict[str, Any], limit: ReadLimit, batches_max: int = 100
) -> list[dict[str, Any]]:
    """The offsets of the batches until one does not move, as AvailableNow does."""
    found = []
    for _ in range(batches_max):
        end = reader.latestOffset(start, limit)
        if end == start:
            return found
        found.append(end)
        start = end
    raise AssertionError(f"no end after {batches_max} batches")
