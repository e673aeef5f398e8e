"""``format("mqrr")`` without a JVM: options, the snapshot of an executor, which log a stream reads."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from remote_kit import Served
from test_pulling_live import subscribe

from srmp_spark.errors import ConfigurationError
from srmp_spark.rows.columns import arrow_schema, spark_ddl
from srmp_spark.spark.mqrr_options import parse_remote
from srmp_spark.spark.mqrr_source import MqrrBatchReader, MqrrDataSource, subscribed
from srmp_spark.testing.service import RunningQueueManager


def read(options: dict[str, str]) -> list[list[dict[str, object]]]:
    """The rows of each partition, as executors would have them."""
    reader = MqrrBatchReader(parse_remote(options))
    found = []
    for partition in reader.partitions():
        batches = list(reader.read(partition))
        assert all(batch.schema.equals(arrow_schema()) for batch in batches)
        found.append([row for batch in batches for row in batch.to_pylist()])
    return found


def test_a_batch_is_a_snapshot_of_each_queue_that_takes_nothing(served: Served):
    first, second = served.queue(), served.queue(journal=True)
    served.send(first, 3, 7)
    served.send(second, 1)
    names = ",".join(f"DIRECT=OS:host1\\{name}" for name in (first.replace("/", "\\"), second.replace("/", "\\")))
    options = {"host": served.ready["rpc"], "queue": names}
    for _ in range(2):
        one, two = read(options)
        assert [(row["body"], row["priority"], row["sequence"]) for row in one] == [(b"body 2", 7, 2), (b"body 1", 3, 1)]
        assert [row["lookup_id"] for row in one] == [2, 4 << 56 | 1]
        assert {(row["transport"], row["queue_manager"], row["epoch"], row["peer"]) for row in one} == {
            ("mqrr", None, None, served.ready["rpc"])
        }
        assert [row["body"] for row in two] == [b"body 1"]
    assert served.waiting(first) == 2


def test_an_empty_queue_is_an_empty_partition(served: Served):
    name = served.queue().replace("/", "\\")
    assert read({"host": served.ready["rpc"], "queue": f"DIRECT=OS:host1\\{name}"}) == [[]]


def test_a_stream_reads_the_log_of_the_subscription(tmp_path: Path, served: Served):
    name = served.queue()
    with RunningQueueManager(tmp_path / "b", config=subscribe(tmp_path / "b.toml", served, queue=name)) as running:
        queue = "DIRECT=OS:host1\\" + name.replace("/", "\\")
        options = {"host": served.ready["rpc"], "queue": queue, "queueManager": running.api, "consumer": "reports"}
        assert subscribed(parse_remote(options)) == ["private$/orders"]
        reader = MqrrDataSource(options).streamReader(StructType())
        assert reader._options.queues == ("private$/orders",)
        assert reader._options.consumer == "reports"
        with pytest.raises(ConfigurationError, match=r"\[\[subscription\]\]"):
            subscribed(parse_remote({**options, "queue": "private$\\other"}))
    with pytest.raises(ConfigurationError, match="queueManager is missing"):
        subscribed(parse_remote({"host": "127.0.0.1:1", "queue": "q"}))


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"queue": "q"}, "HOST or HOST:PORT"),
        ({"host": "127.0.0.1"}, "option queue names 1 to"),
        ({"host": "127.0.0.1", "queue": "q", "hots": "x"}, "did you mean 'host'"),
        ({"host": "127.0.0.1", "queue": "DIRECT=HTTP://x/msmq/q"}, "cannot be read"),
        ({"host": "windows.example", "queue": "q"}, "give a user and a password"),
        (
            {"host": "127.0.0.1", "queue": "q", "authProtocol": "kerberos", "username": "u", "password": "p"},
            "not in this version",
        ),
    ],
)
def test_what_is_refused(options, match):
    with pytest.raises(ConfigurationError, match=match):
        MqrrDataSource(options).schema()


def test_options_of_streams_are_refused_in_a_batch():
    with pytest.raises(ConfigurationError, match="is for streams"):
        MqrrBatchReader(parse_remote({"host": "127.0.0.1", "queue": "q", "consumer": "x"}))


def test_the_columns_are_those_of_srmp():
    assert MqrrDataSource({"host": "127.0.0.1", "queue": "q"}).schema() == spark_ddl()


def test_no_password_is_in_a_repr():
    options = parse_remote({"host": "windows.example", "queue": "q", "username": "u", "password": "a secret"})
    assert "a secret" not in repr(options)
