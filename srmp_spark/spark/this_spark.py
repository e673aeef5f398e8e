"""Check that the installed Spark is new enough for what the data sources are asked to do.

A stream that is read needs ``latestOffset(start, limit)`` and ``ReadLimit``, which are of Spark
4.2. A batch that is read, and rows that are sent, need Spark 4.1, whose writers accept Arrow
batches. The test suite runs on Spark 4.2 alone. What is older is refused in one sentence.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from srmp_spark.errors import ConfigurationError

LEAST = (4, 1)
"""Oldest Spark version for batches and for sinks, as (major, minor)."""
LEAST_FOR_STREAMS = (4, 2)
"""Oldest Spark version for a stream that is read."""


def check_spark(name: str) -> None:
    """Raise :class:`ConfigurationError` if ``format(name)`` cannot work with this PySpark."""
    found = _version()
    if _numbers(found) < LEAST:
        raise ConfigurationError(
            f'format("{name}") needs Spark 4.2 or newer, or 4.1 for batches and sinks alone, and '
            f"this is Spark {found}: take a platform with Spark 4.2"
        )


def refused_stream(name: str) -> DataSourceStreamReader | None:
    """Return a reader that refuses the stream if this PySpark cannot read one, or ``None``."""
    found = _version()
    if _numbers(found) >= LEAST_FOR_STREAMS:
        return None
    return _RefusedStream(
        f'readStream.format("{name}") needs Spark 4.2 or newer (latestOffset(start, limit)), and '
        f"this is Spark {found}: read batches, or take a platform with Spark 4.2"
    )


class _RefusedStream(DataSourceStreamReader):
    """A reader whose first call says why there is none: ``streamReader`` itself must not fail."""

    def __init__(self, why: str) -> None:
        self._why = why

    def initialOffset(self) -> dict[str, str]:  # noqa: N802  # Spark's name
        """Raise :class:`ConfigurationError`."""
        raise ConfigurationError(self._why)

    def latestOffset(self, *_: object) -> dict[str, str]:  # noqa: N802  # Spark's name
        """Raise :class:`ConfigurationError`."""
        raise ConfigurationError(self._why)

    def read(self, partition: InputPartition) -> Iterator[tuple[object, ...]]:
        """Raise :class:`ConfigurationError`."""
        raise ConfigurationError(self._why)


@cache
def _version() -> str:
    from pyspark import __version__

    return str(__version__)


def _numbers(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a version.

    ``4.2.0.dev1`` counts as 4.2.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else LEAST_FOR_STREAMS
