"""functions.nservicebus_headers and rebus_headers on real columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from srmp_spark.functions import nservicebus_headers, rebus_headers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

NSERVICEBUS = (
    b'<?xml version="1.0"?><ArrayOfHeaderInfo xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance">'
    b"<HeaderInfo><Key>NServiceBus.MessageId</Key><Value>5</Value></HeaderInfo>"
    b"<HeaderInfo><Key>NServiceBus.EnclosedMessageTypes</Key><Value>Shop.Order, "
    b"Shop</Value></HeaderInfo></ArrayOfHeaderInfo>"
)
REBUS = b'{"rbs2-msg-id": "7", "rbs2-content-type": "application/json;charset=utf-8"}'


def test_headers_become_maps_and_strangers_null(spark: SparkSession) -> None:
    rows = [(1, NSERVICEBUS), (2, REBUS), (3, None), (4, b""), (5, b"\x00\xff")]
    frame = spark.createDataFrame(rows, "n int, extension binary")
    found = frame.select(
        "n",
        nservicebus_headers("extension").alias("nsb"),
        rebus_headers(frame.extension).alias("rebus"),
    ).orderBy("n")
    assert found.schema["nsb"].dataType.simpleString() == "map<string,string>"
    nsb, rebus = zip(*[(row.nsb, row.rebus) for row in found.collect()], strict=True)
    assert nsb[0] == {
        "NServiceBus.MessageId": "5",
        "NServiceBus.EnclosedMessageTypes": "Shop.Order, Shop",
    }
    assert rebus[1] == {"rbs2-msg-id": "7", "rbs2-content-type": "application/json;charset=utf-8"}
    assert list(nsb[1:]) == [None, None, {}, None]
    assert [rebus[0], *rebus[2:]] == [None, None, {}, None]
