"""Check that the installed Spark is new enough for the data sources.

Three things need Spark 4.2: ``latestOffset(start, limit)`` of a stream reader, ``ReadLimit``, and
stream writers that accept Arrow batches. An earlier Spark calls the reader without the limit, so
that no option bounds a micro-batch, and hands rows to the sink one by one. The formats are neither
promised nor tested with an earlier Spark, so both formats refuse to run there.
"""

from __future__ import annotations

import re
from functools import cache

from srmp_spark.errors import ConfigurationError

LEAST = (4, 2)
"""Oldest Spark version that works, as (major, minor). An older Spark is refused."""


def check_spark(name: str) -> None:
    """Raise :class:`ConfigurationError` if ``format(name)`` cannot work with this PySpark."""
    found = _version()
    if _numbers(found) < LEAST:
        raise ConfigurationError(
            f'format("{name}") needs Spark {LEAST[0]}.{LEAST[1]} or newer '
            "(latestOffset(start, limit), "
            f"stream writers of Arrow batches), and this is Spark {found}: take a platform with "
            f"Spark {LEAST[0]}.{LEAST[1]}"
        )


@cache
def _version() -> str:
    from pyspark import __version__

    return str(__version__)


def _numbers(version: str) -> tuple[int, int]:
    """Return the major and the minor number of a version.

    ``4.2.0.dev1`` counts as 4.2.
    """
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else LEAST
