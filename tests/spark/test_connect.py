"""Source and sink in Spark Connect: one session in a process of its own, because a process has either kind of session."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from fake_queue_manager import FakeQueueManager

from tests.kit.outbox_server import OutboxServer

SECONDS = 600
"""For a JVM, its Connect server and a dozen queries on a machine that does much else; half a minute on a quiet one."""
pytestmark = [pytest.mark.spark, pytest.mark.timeout(SECONDS + 60)]
HERE = Path(__file__).resolve().parent
ORDERS = "private$/orders"


class Session(NamedTuple):
    """One run of ``connect_session.py``: what it read from, what it wrote to, what it said."""

    source: FakeQueueManager
    sink: OutboxServer
    said: dict[str, Any]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Session]:
    environment = {
        key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_GATEWAY")
    }
    environment |= {
        "PYTHONPATH": str(HERE.parents[1]),
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
    }
    source = FakeQueueManager(orders=300)
    with OutboxServer() as sink:
        arguments = [source.url, sink.url, str(tmp_path_factory.mktemp("connect"))]
        command = [sys.executable, str(HERE / "connect_session.py"), *arguments]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
        assert done.returncode == 0, done.stderr[-3000:]
        yield Session(source, sink, json.loads(done.stdout.splitlines()[-1]))
    source.close()


def test_the_source_in_a_spark_connect_session(session: Session) -> None:
    assert session.said["source"] == {"batch": 300, "stream": 300, "batches": 3, "declared": 300}
    assert session.source.consumer(ORDERS).received == 300


def test_the_sink_in_a_spark_connect_session(session: Session) -> None:
    model, said = session.sink.model, session.said["sink"]
    assert model.bodies("DIRECT=http://h/msmq/batch") == [str(n).encode() for n in range(100)]
    streamed = [str(n).encode() for n in range(30)]
    assert model.bodies("DIRECT=http://h/msmq/stream") == streamed
    assert model.bodies("DIRECT=http://h/msmq/each") == streamed, (
        "replayed after its commits/N were lost"
    )
    assert (
        "Spark Connect shows no query id to foreachBatch: give SrmpSink(application=…)"
        in said["made"]
    )
    assert (
        "Spark Connect shows no query id to foreachBatch: give SrmpSink(application=…)"
        in said["called"]
    )
    assert "boom" in said["failed"]
    assert "did you mean 'destination'?" in said["option"]
    assert "write .withColumn('label', col('label').cast('string'))" in said["column"]
    assert "was sent with other content" in said["conflict"]
    assert model.stages == {}
    assert model.outgoing.keys() == {
        f"DIRECT=http://h/msmq/{name}" for name in ("batch", "stream", "each", "keys")
    }
