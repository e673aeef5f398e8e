"""``backfill --source mqrr``: a remote queue into a message table, each message once, wherever the job is killed."""

from __future__ import annotations

import argparse
import base64
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark.sql import functions as F  # noqa: N812  # as everybody writes it

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import SrmpSparkError
from srmp_spark.jobs import backfill, remote_messages
from srmp_spark.jobs.running import JobOutcome
from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
QUEUE = "private$/orders"
DIRECT = r"DIRECT=OS:host1\private$\orders"


@pytest.fixture(scope="module")
def remote(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("remote")
    with RunningQueueManager(
        folder / "a", queues=[QUEUE], rpc="127.0.0.1:0", host_name=["host1"]
    ) as running:
        yield running


def send(remote: RunningQueueManager, *bodies: bytes) -> None:
    messages = [
        {"body_base64": base64.b64encode(body).decode(), "priority": n % 8}
        for n, body in enumerate(bodies)
    ]
    QueueManagerClient(remote.api).send(QUEUE, messages)


def waiting(remote: RunningQueueManager) -> int:
    return int(QueueManagerClient(remote.api).queue(QUEUE)["waiting"])


class Killed(BaseException):
    """kill -9."""


def test_a_move_killed_between_the_commit_and_the_removal(
    spark: SparkSession,
    remote: RunningQueueManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    table, host = tmp_path / "messages", remote.ready["rpc"]

    def job(*flags: str) -> JobOutcome:
        parser = argparse.ArgumentParser()
        backfill.add_arguments(parser)
        args = parser.parse_args(
            ["--source", "mqrr", "--from", f"{host}\\{DIRECT}", "--table", str(table), *flags]
        )
        args.id = host
        source = remote_messages.parse_source(args)
        return backfill.append_remote(
            spark, args, source, {"destinations": [args.table], "id": args.id}
        )

    def held() -> list[tuple[str, int, bytes]]:
        found = spark.read.format("delta").load(str(table)).collect()
        return sorted((each["epoch"], each["sequence"], bytes(each["body"])) for each in found)

    send(remote, b"1", b"2", b"3")
    with monkeypatch.context() as patch:

        def die(*_: object) -> None:
            raise Killed

        patch.setattr(remote_messages.RemoteQueueReader, "remove", die)
        with pytest.raises(Killed):
            job("--yes", "--mode", "move")
    assert waiting(remote) == 3
    send(remote, b"4")
    moved = job("--yes", "--mode", "move")
    assert (moved.rows, moved.more["known"], moved.more["removed"], waiting(remote)) == (1, 3, 4, 0)
    assert held() == [(host, n, b"%d" % n) for n in (1, 2, 3, 4)]

    # Another queue manager of that name, which counts from the beginning again.
    args = argparse.Namespace(table=str(table), id=host)
    frame = (
        spark.read.format("delta")
        .load(str(table))
        .limit(1)
        .withColumn("message_id", F.lit("another"))
    )
    with pytest.raises(SrmpSparkError, match="counts from the beginning again"):
        backfill._not_there(spark, args, frame)
