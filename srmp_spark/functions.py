"""Column functions for the headers that .NET frameworks put into a message's ``extension``.

    from srmp_spark.functions import nservicebus_headers
    rows.withColumn("headers", nservicebus_headers("extension"))

The functions work in classic and in Spark Connect sessions. A null extension gives null. An
extension without such headers also gives null, because a queue may carry messages of several
frameworks and one foreign message must not stop a query. The bytes of such an extension stay in the
column.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from srmp_spark.extras import missing
from srmp_spark.rows import headers

try:
    # "F" is the usual name of this module in Spark programs.
    from pyspark.sql import functions as F  # noqa: N812
except ModuleNotFoundError:
    raise missing("spark", "pyspark") from None

if TYPE_CHECKING:
    from pyspark.sql import Column

_HEADERS = "map<string,string>"


def nservicebus_headers(extension: Column | str) -> Column:
    """Return the NServiceBus headers as a column ``map<string,string>``, or null if there are none.

    ``extension`` is the column with the extension of the message, or its name.
    """
    return F.udf(_or_null(headers.nservicebus_headers), _HEADERS, useArrow=True)(extension)


def rebus_headers(extension: Column | str) -> Column:
    """Return the Rebus headers as a column ``map<string,string>``, or null if there are none.

    ``extension`` is the column with the extension of the message, or its name.
    """
    return F.udf(_or_null(headers.rebus_headers), _HEADERS, useArrow=True)(extension)


def _or_null(
    decode: Callable[[bytes], dict[str, str]],
) -> Callable[[bytes | None], dict[str, str] | None]:
    def headers_or_null(extension: bytes | None) -> dict[str, str] | None:
        try:
            return None if extension is None else decode(bytes(extension))
        except ValueError:
            # Another framework wrote this extension.
            return None

    return headers_or_null
