"""``format("mqrr")`` without a JVM: options, the snapshot of an executor, which log a stream reads."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from remote_kit import Served
from test_pulling_live import subscribe, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import ENDPOINT_FILE
from srmp_spark.rows.columns import arrow_schema, spark_ddl
from srmp_spark.spark.mqrr_options import parse_remote
from srmp_spark.spark.mqrr_source import MqrrBatchReader, MqrrDataSource
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


def streams(options: dict[str, str]) -> tuple[str, ...]:
    """The queues of ours that a stream reads, once it has begun."""
    reader = MqrrDataSource(options).streamReader(StructType())
    try:
        reader._here()
        assert reader._options.consumer == options["consumer"]
        return reader._options.queues
    finally:
        reader.stop()


def test_a_stream_reads_the_log_of_the_subscription_and_makes_one_where_there_is_none(tmp_path: Path, served: Served):
    name, other = served.queue(), served.queue()
    direct = ["DIRECT=OS:host1\\" + each.replace("/", "\\") for each in (name, other)]
    with RunningQueueManager(tmp_path / "b", config=subscribe(tmp_path / "b.toml", served, queue=name)) as running:
        options = {"host": served.ready["rpc"], "queue": direct[0], "queueManager": running.api, "consumer": "reports"}
        assert streams(options) == ("private$/orders",)
        with pytest.raises(ConfigurationError, match="with mode move, not copy"):
            streams({**options, "mode": "copy"})
        both = {**options, "queue": ",".join(direct)}
        made = f"private$/{other.partition('/')[2]}@{served.ready['rpc'].replace(':', '.')}"
        for _ in range(2):
            assert streams(both) == ("private$/orders", made)
        (added,) = (each for each in QueueManagerClient(running.api).status()["subscriptions"] if not each["configured"])
        assert (added["to"], added["mode"]) == (made, "move")
    with pytest.raises(ConfigurationError, match="queueManager is missing"):
        streams({"host": "127.0.0.1:1", "queue": "q", "consumer": "reports"})


def test_an_embedded_queue_manager_pulls(tmp_path: Path, served: Served):
    """It needs neither queues nor a port for senders."""
    name = served.queue()
    served.send(name, 3)
    options = {"host": served.ready["rpc"], "queue": "DIRECT=OS:host1\\" + name.replace("/", "\\"), "consumer": "reports"}
    (to,) = streams({**options, "dataDir": str(tmp_path / "embedded"), "mode": "copy"})
    endpoint = json.loads((tmp_path / "embedded" / ENDPOINT_FILE).read_text())
    try:
        client = QueueManagerClient(endpoint["api"])
        until(lambda: client.range(to).end == 1)
    finally:
        os.kill(endpoint["pid"], signal.SIGKILL)
    assert served.waiting(name) == 1


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"queue": "q"}, "HOST or HOST:PORT"),
        ({"host": "127.0.0.1"}, "option queue names 1 to"),
        ({"host": "127.0.0.1", "queue": "q", "hots": "x"}, "did you mean 'host'"),
        ({"host": "127.0.0.1", "queue": "DIRECT=HTTP://x/msmq/q"}, "cannot be read"),
        ({"host": "windows.example", "queue": "q"}, "give a user and a password"),
        (
            {"host": "127.0.0.1", "queue": "q", "authProtocol": "digest", "username": "u", "password": "p"},
            "ntlm, kerberos or negotiate",
        ),
    ],
)
def test_what_is_refused(options, match):
    with pytest.raises(ConfigurationError, match=match):
        MqrrDataSource(options).schema()


def test_options_of_streams_are_refused_in_a_batch():
    for name, value in (("consumer", "x"), ("mode", "copy")):
        with pytest.raises(ConfigurationError, match=f"option {name} is for streams"):
            MqrrBatchReader(parse_remote({"host": "127.0.0.1", "queue": "q", name: value}))


def test_the_columns_are_those_of_srmp():
    assert MqrrDataSource({"host": "127.0.0.1", "queue": "q"}).schema() == spark_ddl()


def test_no_password_is_in_a_repr():
    options = parse_remote({"host": "windows.example", "queue": "q", "username": "u", "password": "a secret"})
    assert "a secret" not in repr(options)
