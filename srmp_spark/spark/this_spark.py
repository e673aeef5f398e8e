"""Which Spark is here, and whether the data sources can work with it.

``latestOffset(start, limit)`` of a stream reader, ``ReadLimit`` and stream writers that take Arrow
batches are of Spark 4.2. An earlier Spark calls the reader without the limit, so that no option
bounds a micro-batch, and hands the sink rows one by one. Nothing is promised there and nothing
tested, so both formats refuse an earlier Spark in words.
"""

from __future__ import annotations

import re
from functools import cache

from srmp_spark.errors import ConfigurationError

LEAST = (4, 2)
"""Major and minor version."""


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
    """Return major and minor; ``4.2.0.dev1`` counts as 4.2."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else LEAST
