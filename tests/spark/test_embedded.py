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
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.holder import Holder
from srmp_spark.interface import ENDPOINT_FILE
from srmp_spark.spark import embedded
from srmp_spark.spark.embedded import locate
from srmp_spark.spark.reading.stream_reader import SrmpStreamReader
from srmp_spark.spark.settings.options import parse
from srmp_spark.testing.queue_manager import RunningQueueManager

UNUSED = 8
"""Seconds: on a busy machine a call comes late. The tests wait so long and compute nothing meanwhile."""
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


def test_who_joins_needs_neither_listen_nor_queues_and_who_starts_is_told_values(
    directory: Path,
) -> None:
    joining = parse({"dataDir": str(directory), "queue": "private$/orders"})
    with pytest.raises(
        ConfigurationError,
        match=r"to start one also give .*'listen', '127\.0\.0\.1:0'.*'queues', 'private",
    ):
        locate(joining)
    assert not directory.exists(), "nothing was made"
    with RunningQueueManager(directory, queues=["private$/orders:transactional"]) as running:
        assert locate(joining).urls == (running.api,)


def test_after_kill_9_a_new_one_is_started(directory: Path) -> None:
    first = locate(parse(options(directory)))
    pid = json.loads((directory / ENDPOINT_FILE).read_text())["pid"]
    os.kill(pid, signal.SIGKILL)
    while (
        Path(f"/proc/{pid}").exists()
        and "Z" not in Path(f"/proc/{pid}/stat").read_text().split(")")[1][:3]
    ):
        time.sleep(0.02)
    second = locate(parse(options(directory)))
    assert QueueManagerClient(second.urls[0]).is_ready()
    assert first.host == second.host


class TestAFileThatIsNotOurs:
    """What a kill or a copy left behind names somebody else: that one is not joined."""

    @pytest.fixture(scope="class")
    def other(self, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
        with RunningQueueManager(
            tmp_path_factory.mktemp("other") / "data", queues=["private$/orders"]
        ) as running:
            yield running

    def written(self, folder: Path, other: RunningQueueManager, **changes: object) -> None:
        folder.mkdir(mode=0o700)
        found = folder.stat()
        own = {"directory": [found.st_dev, found.st_ino], "process": Holder.here("test").as_dict()}
        (folder / ENDPOINT_FILE).write_text(json.dumps({**other.ready, **own, **changes}))

    def test_all_of_it_fits(self, directory: Path, other: RunningQueueManager) -> None:
        self.written(directory, other)
        assert embedded._living(directory, None) == other.api
        (directory / ENDPOINT_FILE).unlink()

    @pytest.mark.parametrize(
        "changes",
        [
            {"queue_manager": "00000000-0000-4000-8000-000000000001"},
            {"process": {**Holder.here("test").as_dict(), "started": "1"}},
            {"process": {**Holder.here("test").as_dict(), "pid": 4_194_305}},
            {"process": {"pid": 1}},
            {"directory": [1, 2]},
            {"api": "http://127.0.0.1:1"},
        ],
    )
    def test_it_is_passed_over(
        self, directory: Path, other: RunningQueueManager, changes: dict[str, object]
    ) -> None:
        self.written(directory, other, **changes)
        assert embedded._living(directory, None) is None
        (directory / ENDPOINT_FILE).unlink()

    def test_a_new_one_is_started_beside_a_stranger_on_the_old_port(
        self, directory: Path, other: RunningQueueManager
    ) -> None:
        self.written(directory, other, queue_manager="00000000-0000-4000-8000-000000000001")
        url = locate(parse(options(directory))).urls[0]
        assert url != other.api
        assert {each["name"] for each in QueueManagerClient(url).queues()} == {
            "private$/orders",
            "private$/in",
        }


def test_a_service_with_a_token_is_joined_by_who_has_it(directory: Path, tmp_path: Path) -> None:
    token = "a-token-of-sixteen-letters"
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text(token)
    with RunningQueueManager(
        directory, queues=["private$/orders"], token_file=tmp_path / "token"
    ) as running:
        assert locate(parse(options(directory, token=token))).urls == (running.api,)
        with pytest.raises(ApiError, match="token"):
            locate(parse(options(directory)))


def test_it_ends_when_nobody_has_used_it(directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(embedded, "UNUSED_SECONDS", UNUSED)
    client = QueueManagerClient(locate(parse(options(directory))).urls[0])
    client.register("private$/in", "default", holder="a query")
    time.sleep(UNUSED + 2)
    assert client.is_ready(), "it has a lease"
    client.release("private$/in", "default", holder="a query")
    deadline = time.monotonic() + 60
    while client.is_ready():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_it_does_not_end_under_a_reader_that_only_peeks(
    directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such a reader has no lease."""
    monkeypatch.setattr(embedded, "UNUSED_SECONDS", UNUSED)
    client = QueueManagerClient(locate(parse(options(directory))).urls[0])
    begun = time.monotonic()
    while time.monotonic() - begun < UNUSED + 4:
        assert client.range("private$/in", wait=0.2).end == 0


@pytest.mark.parametrize(
    "queue", ["private$/in", pytest.param("private$/nothing*", marks=pytest.mark.long)]
)
def test_it_lives_as_long_as_a_query_that_calls_too_seldom(
    directory: Path, monkeypatch: pytest.MonkeyPatch, queue: str
) -> None:
    """A query that peeks, or whose glob matches nothing, has no lease; its trigger may be an hour."""
    monkeypatch.setattr(embedded, "UNUSED_SECONDS", UNUSED)
    monkeypatch.setattr(embedded, "USE_SECONDS", 0.5)
    reader = SrmpStreamReader(parse(options(directory, queue=queue, readMode="peek")))
    reader.initialOffset()
    client = QueueManagerClient(json.loads((directory / ENDPOINT_FILE).read_text())["api"])
    time.sleep(UNUSED + 3)  # a trigger that is longer than the limit
    assert client.is_ready(), "the query is there"
    reader.stop()
    deadline = time.monotonic() + 60
    while client.is_ready():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_wrong_flag_is_said(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match="allow-url"):
        locate(parse(options(directory, allowUrl="nonsense")))
