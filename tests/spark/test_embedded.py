"""The embedded queue manager: started if nobody holds the directory, else joined; ends when it is no longer used."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import ENDPOINT_FILE
from srmp_spark.spark import embedded
from srmp_spark.spark.embedded import locate
from srmp_spark.spark.options import parse
from srmp_spark.testing.service import RunningQueueManager

FLAGS = {"listen": "127.0.0.1:0", "queues": "private$/orders:transactional,private$/in"}


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    """A data directory; whatever holds it in the end is ended."""
    path = tmp_path / "data"
    yield path
    endpoint = path / ENDPOINT_FILE
    if endpoint.exists():
        os.kill(json.loads(endpoint.read_text())["pid"], signal.SIGTERM)


def options(directory: Path, **more: str) -> dict[str, str]:
    return {"dataDir": str(directory), **FLAGS, **more}


def test_it_is_started_and_joined(directory: Path) -> None:
    started = locate(parse(options(directory)))
    client = QueueManagerClient(started.urls[0])
    assert {entry["name"] for entry in client.queues()} == {"private$/orders", "private$/in"}
    assert started.host == os.uname().nodename
    assert locate(parse(options(directory))) == started


def test_two_queries_at_once_get_one(directory: Path) -> None:
    with ThreadPoolExecutor(3) as pool:
        places = list(pool.map(lambda _: locate(parse(options(directory))), range(3)))
    assert len(set(places)) == 1


def test_a_running_service_of_the_directory_is_joined(directory: Path) -> None:
    with RunningQueueManager(directory, queues=["private$/orders:transactional"]) as running:
        assert locate(parse(options(directory))).urls == (running.api,)


def test_after_kill_9_a_new_one_is_started(directory: Path) -> None:
    first = locate(parse(options(directory)))
    pid = json.loads((directory / ENDPOINT_FILE).read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    while Path(f"/proc/{pid}").exists() and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]:
        time.sleep(0.02)
    second = locate(parse(options(directory)))
    assert QueueManagerClient(second.urls[0]).is_ready()
    assert first.host == second.host


def test_it_ends_when_nobody_has_used_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "UNUSED_SECONDS", 1)
    client = QueueManagerClient(locate(parse(options(directory))).urls[0])
    client.register("private$/in", "default", holder="a query")
    time.sleep(2.5)
    assert client.is_ready(), "it has a lease"
    client.release("private$/in", "default", holder="a query")
    deadline = time.monotonic() + 15
    while client.is_ready():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_it_does_not_end_under_a_reader_that_only_peeks(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Such a reader has no lease."""
    monkeypatch.setattr(embedded, "UNUSED_SECONDS", 1)
    client = QueueManagerClient(locate(parse(options(directory))).urls[0])
    begun = time.monotonic()
    while time.monotonic() - begun < 3.5:
        assert client.range("private$/in", wait=0.2).end == 0


def test_a_wrong_flag_is_said(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match="allow-url"):
        locate(parse(options(directory, allowUrl="nonsense")))
