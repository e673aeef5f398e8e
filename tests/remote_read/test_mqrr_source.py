"""``format("mqrr")`` without a JVM: options, the snapshot of an executor, which log a stream reads."""

from __future__ import annotations

import json
import os
import signal
import threading
from pathlib import Path

import pytest
from pyspark.sql.types import StructType
from remote_kit import Served
from test_pulling_live import subscribe, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ConfigurationError, RemoteQueueError
from srmp_spark.interface import ENDPOINT_FILE
from srmp_spark.rows.columns import arrow_schema, spark_ddl
from srmp_spark.spark import mqrr_source
from srmp_spark.spark.mqrr_source import MqrrBatchReader, MqrrDataSource
from srmp_spark.spark.reading import first_pass
from srmp_spark.spark.settings.mqrr_options import parse_remote
from srmp_spark.testing.queue_manager import RunningQueueManager


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
    names = ",".join(
        f"DIRECT=OS:host1\\{name}" for name in (first.replace("/", "\\"), second.replace("/", "\\"))
    )
    options = {"host": served.ready["rpc"], "queue": names}
    for _ in range(2):
        one, two = read(options)
        assert [(row["body"], row["priority"], row["sequence"]) for row in one] == [
            (b"body 2", 7, 2),
            (b"body 1", 3, 1),
        ]
        assert [row["lookup_id"] for row in one] == [2, 4 << 56 | 1]
        assert {
            (row["transport"], row["queue_manager"], row["epoch"], row["peer"]) for row in one
        } == {("mqrr", None, None, served.ready["rpc"])}
        assert [row["body"] for row in two] == [b"body 1"]
    assert served.waiting(first) == 2


def test_who_takes_the_first_rows_alone_leaves_nothing_behind(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    """``limit``, or a task that is killed: the thread that reads ahead and its connection end."""
    monkeypatch.setattr(mqrr_source, "BATCH_ROWS", 10)
    monkeypatch.setattr(mqrr_source, "BATCH_BYTES", 1_000)
    name = served.queue()
    served.send(name, *[3] * 2_000)
    reader = MqrrBatchReader(
        parse_remote(
            {"host": served.ready["rpc"], "queue": "DIRECT=OS:host1\\" + name.replace("/", "\\")}
        )
    )
    (partition,) = reader.partitions()
    rows = reader.read(partition)
    assert next(rows)["sequence"][0].as_py() == 1
    assert any(thread.name == "read-ahead" for thread in threading.enumerate())
    rows.close()
    assert not any(thread.name == "read-ahead" for thread in threading.enumerate())
    assert sum(batch.num_rows for batch in reader.read(partition)) == 2_000


def test_an_empty_queue_is_an_empty_partition(served: Served):
    name = served.queue().replace("/", "\\")
    assert read({"host": served.ready["rpc"], "queue": f"DIRECT=OS:host1\\{name}"}) == [[]]


@pytest.mark.parametrize(
    ("queue", "next_step"),
    [
        ("private$\\missing", "private$"),
        ("private$\\unjournaled;JOURNAL", "declared with :journal"),
    ],
)
def test_an_error_names_the_queue_and_says_what_to_do(served: Served, queue: str, next_step: str):
    served.client.put_queue("private$/unjournaled", transactional=False)
    direct = "DIRECT=OS:host1\\" + queue
    with pytest.raises(RemoteQueueError) as error:
        read({"host": served.ready["rpc"], "queue": direct})
    for what in (
        f"queue {direct} of {served.ready['rpc']} cannot be read",
        "MQ_ERROR_QUEUE_NOT_FOUND",
        next_step,
    ):
        assert what in str(error.value)


def test_a_port_that_is_none_of_remote_read_is_told(served: Served):
    with pytest.raises(RemoteQueueError, match="this is an HTTP server"):
        read(
            {"host": served.ready["listening"].removeprefix("http://"), "queue": "private$\\orders"}
        )
    with pytest.raises(
        RemoteQueueError, match=r"private\$\\orders of 127.0.0.1:9 .* cannot be reached.*2103"
    ):
        read({"host": "127.0.0.1:9", "queue": "private$\\orders"})


def available_now(options: dict[str, str]) -> int:
    """The rows that a run with ``availableNow`` has, asked in Spark's order."""
    reader = MqrrDataSource(options).streamReader(StructType())
    try:
        reader.prepareForTriggerAvailableNow()
        start = reader.initialOffset()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        return sum(
            rows.num_rows for each in reader.partitions(start, end) for rows in reader.read(each)
        )
    finally:
        reader.stop()


@pytest.mark.parametrize("mode", ["move", "copy"])
def test_available_now_has_what_waits_in_the_remote_queue(
    tmp_path: Path, served: Served, mode: str
):
    """Also of a subscription that is there and saw the queue empty a moment ago."""
    name = served.queue()
    served.send(name, *[3] * 40)
    with RunningQueueManager(tmp_path / "b") as running:
        options = {
            "host": served.ready["rpc"],
            "queue": "DIRECT=OS:host1\\" + name.replace("/", "\\"),
            "mode": mode,
        }
        options |= {"queueManager": running.api, "readMode": "peek", "startingOffsets": "earliest"}
        assert available_now(options) == 40
        served.send(name, 3, 3)
        assert available_now(options) == 42


def test_available_now_fails_where_nothing_can_be_read_and_leaves_no_subscription_behind(
    tmp_path: Path, served: Served
):
    with RunningQueueManager(tmp_path / "b") as running:
        client, missing = (
            SubscriptionsClient(running.api, retry_seconds=60),
            "DIRECT=OS:host1\\private$\\missing",
        )
        for host, why in (
            ("127.0.0.1:9", "cannot be reached"),
            (served.ready["rpc"], "MQ_ERROR_QUEUE_NOT_FOUND.*write private"),
        ):
            options = {"host": host, "queue": missing, "queueManager": running.api}
            with pytest.raises(RemoteQueueError, match=f"{why}.*and was removed"):
                available_now(options)
            assert client.subscriptions() == []
        client.subscribe({"host": "127.0.0.1:9", "queue": missing})
        with pytest.raises(
            RemoteQueueError, match=r"cannot be reached.*stays.*subscribe remove --host 127.0.0.1:9"
        ):
            available_now({"host": "127.0.0.1:9", "queue": missing, "queueManager": running.api})
        assert [each["host"] for each in client.subscriptions()] == ["127.0.0.1:9"]


def test_a_query_that_goes_on_says_what_is_wrong_and_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(
        first_pass, "FIRST_BATCH_SECONDS", 120.0
    )  # a busy machine may need so long for a first attempt
    with RunningQueueManager(tmp_path / "b") as running:
        options = {"host": "127.0.0.1:9", "queue": "private$\\orders", "queueManager": running.api}
        reader = MqrrDataSource(options).streamReader(StructType())
        try:
            start = reader.initialOffset()
            for _ in range(3):
                assert reader.latestOffset(start, reader.getDefaultReadLimit()) == start
        finally:
            reader.stop()
        (told,) = (
            each.getMessage() for each in caplog.records if "mqrr.trouble" in each.getMessage()
        )
        assert "127.0.0.1:9 cannot be reached" in told
        assert len(SubscriptionsClient(running.api, retry_seconds=60).subscriptions()) == 1


def streams(options: dict[str, str]) -> tuple[str, ...]:
    """The queues of ours that a stream reads, once it has begun."""
    reader = MqrrDataSource(options).streamReader(StructType())
    try:
        reader._here()
        assert reader._options.consumer == options["consumer"]
        return reader._options.queues
    finally:
        reader.stop()


def test_a_stream_reads_the_log_of_the_subscription_and_makes_one_where_there_is_none(
    tmp_path: Path, served: Served
):
    name, other = served.queue(), served.queue()
    direct = ["DIRECT=OS:host1\\" + each.replace("/", "\\") for each in (name, other)]
    with RunningQueueManager(
        tmp_path / "b", config=subscribe(tmp_path / "b.toml", served, queue=name)
    ) as running:
        options = {
            "host": served.ready["rpc"],
            "queue": direct[0],
            "queueManager": running.api,
            "consumer": "reports",
        }
        assert streams(options) == ("private$/orders",)
        with pytest.raises(ConfigurationError, match="with mode move, not copy"):
            streams({**options, "mode": "copy"})
        both = {**options, "queue": ",".join(direct)}
        made = f"private$/{other.partition('/')[2]}@{served.ready['rpc'].replace(':', '.')}"
        for _ in range(2):
            assert streams(both) == ("private$/orders", made)
        (added,) = (
            each
            for each in QueueManagerClient(running.api).status()["subscriptions"]
            if not each["configured"]
        )
        assert (added["to"], added["mode"]) == (made, "move")
    with pytest.raises(ConfigurationError, match="queueManager is missing"):
        streams({"host": "127.0.0.1:1", "queue": "q", "consumer": "reports"})


def test_an_embedded_queue_manager_pulls(tmp_path: Path, served: Served):
    """It needs neither queues nor a port for senders."""
    name = served.queue()
    served.send(name, 3)
    options = {
        "host": served.ready["rpc"],
        "queue": "DIRECT=OS:host1\\" + name.replace("/", "\\"),
        "consumer": "reports",
    }
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
            {
                "host": "127.0.0.1",
                "queue": "q",
                "authProtocol": "digest",
                "username": "u",
                "password": "p",
            },
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
    options = parse_remote(
        {"host": "windows.example", "queue": "q", "username": "u", "password": "a secret"}
    )
    assert "a secret" not in repr(options)
