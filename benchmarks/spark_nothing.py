"""A Python data source without a queue manager: the least cost of any such source in Spark.

Its rows are born by the clock, a hundred a second, and are made in the task that reads them: no
socket, no other process. A query of it waits only for Spark's own path through Python. A file
contains the time until which rows are born, because a query ends only when nothing is new.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition

NAME = "nothing"


def be_born(clock: Path, rows: int, rate: int) -> None:
    """Let ``rows`` rows be born from now on, ``rate`` a second."""
    part = clock.with_suffix(".part")
    part.write_text(str(time.time() + rows / rate))
    part.replace(clock)


class Nothing(DataSource):
    """Offers one column, ``body``: the microsecond of the row's birth, as text."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the format."""
        return NAME

    def schema(self) -> str:
        """Return the schema, which has one column."""
        return "body BINARY"

    def streamReader(self, schema: Any) -> DataSourceStreamReader:  # noqa: N802  # Spark's name
        """Return the reader of a query."""
        return _Reader(Path(self.options["clock"]), int(self.options["rate"]))


class _Reader(DataSourceStreamReader):
    def __init__(self, clock: Path, rate: int) -> None:
        self._clock = clock
        self._rate = rate

    def initialOffset(self) -> dict[str, int]:  # noqa: N802  # Spark's name
        """Return the row that is born now."""
        return self.latestOffset()

    def latestOffset(  # noqa: N802  # Spark's name
        self, start: dict[str, int] | None = None, limit: object = None
    ) -> dict[str, int]:
        """Return the number of the last row that was born, counted from 1970."""
        until = float(self._clock.read_text())
        return {"born": int(min(time.time(), until) * self._rate)}

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> list[InputPartition]:
        """Return one partition: the rows of the micro-batch."""
        return [InputPartition((start["born"], end["born"]))]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Yield the rows as one Arrow batch."""
        import pyarrow as pa

        after, to = partition.value
        births = [b"%020d" % (number * 1_000_000 // self._rate) for number in range(after, to)]
        yield pa.RecordBatch.from_arrays([pa.array(births, pa.binary())], names=["body"])

    def commit(self, end: dict[str, int]) -> None:
        """Do nothing, because there is no queue manager to notify."""
