"""Column functions for what .NET frameworks put into a message's ``extension``.

    from srmp_spark.functions import nservicebus_headers
    rows.withColumn("headers", nservicebus_headers("extension"))

They work in classic and Spark Connect sessions. A null extension gives null, and so does one that holds no such headers: a
queue may carry messages of several frameworks, and one foreign message must not stop a query; its bytes stay in the column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from srmp_spark.extras import missing
from srmp_spark.rows import headers

try:
    from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it
except ModuleNotFoundError:
    raise missing("spark", "pyspark") from None

if TYPE_CHECKING:
    from pyspark.sql import Column

_HEADERS = "map<string,string>"


def nservicebus_headers(extension: Column | str) -> Column:
    """The headers of NServiceBus as ``map<string,string>``; null where there are none."""
    return F.udf(_or_null(headers.nservicebus_headers), _HEADERS, useArrow=True)(extension)


def rebus_headers(extension: Column | str) -> Column:
    """The headers of Rebus as ``map<string,string>``; null where there are none."""
    return F.udf(_or_null(headers.rebus_headers), _HEADERS, useArrow=True)(extension)


def _or_null(
    decode: Callable[[bytes], dict[str, str]],
) -> Callable[[bytes | None], dict[str, str] | None]:
    def headers_or_null(extension: bytes | None) -> dict[str, str] | None:
        try:
            return None if extension is None else decode(bytes(extension))
        except ValueError:  # another framework's message
            return None

    return headers_or_null
