"""T14 of the reliability report: two services on one data directory, an owner that was paused, one stream to two receivers.

Two jobs on one table are in ``spark/test_exactly_once.py``, racing publications in ``delta/test_publisher_race.py``.
``SRMP_SPARK_PAUSE_SECONDS=60`` is the long version of the pause.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from peer_kit import QUEUES, SOURCE, Peer

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import StoreInUseError
from srmp_spark.store.directory import DataDirectory
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError

Start = Callable[..., RunningQueueManager]
PAUSE_SECONDS = float(os.environ.get("SRMP_SPARK_PAUSE_SECONDS", "0.5"))
REFUSED_SECONDS = 1.0
"""From the look at the directory to the refusal; a process needs as long again to load its interpreter."""
END_SECONDS = 20.0


def descendants(pid: int) -> list[int]:
    """The process and all below it."""
    found = [pid]
    with contextlib.suppress(OSError):  # one that ends while we look is not there
        for task in Path(f"/proc/{pid}/task").iterdir():
            with contextlib.suppress(OSError):
                for child in (task / "children").read_text().split():
                    found += descendants(int(child))
    return found


def labels(api: str, queue: str = "private$/orders") -> list[bytes]:
    client = QueueManagerClient(api)
    found = client.range(queue)
    with client.rows(queue, epoch=found.epoch, after=0, to=found.end) as stream:
        import pyarrow as pa

        return list(pa.ipc.open_stream(stream).read_all().column("body").to_pylist())


def test_a_second_service_is_refused_in_a_second_and_told_who_is_there(
    start: Start, tmp_path: Path
) -> None:
    running = start("data", queues=QUEUES)
    begun = time.monotonic()
    with pytest.raises(StoreInUseError) as refused:
        DataDirectory.open(tmp_path / "data", now=1)
    assert time.monotonic() - begun < REFUSED_SECONDS
    assert (refused.value.pid, refused.value.host) == (running.pid, os.uname().nodename)
    with Peer_of(running) as peer:
        for turn in range(3):  # a supervisor that starts the next one too early
            with pytest.raises(ServeFailedError) as failed:
                RunningQueueManager(tmp_path / "data", queues=QUEUES).start()
            assert failed.value.code == 5
            assert f"process {running.pid} on {os.uname().nodename}" in failed.value.stderr
            assert peer.send(peer.message(body=b"%d" % turn)).status == 200, (
                "the first one noticed nothing"
            )
    assert labels(running.api) == [b"0", b"1", b"2"]


class Peer_of:  # noqa: N801  # reads like a function
    def __init__(self, running: RunningQueueManager) -> None:
        self._peer = Peer(running)

    def __enter__(self) -> Peer:
        return self._peer

    def __exit__(self, *_: object) -> None:
        self._peer.close()


@pytest.mark.timeout(PAUSE_SECONDS + 120)
def test_a_paused_owner_that_wakes_writes_nothing_more(start: Start, tmp_path: Path) -> None:
    """The machine stood still, its locks were taken from it, another service owns the directory; then the first one goes on."""
    old = start("data", queues=QUEUES)
    peer = Peer(old)
    before = [b"before %d" % n for n in range(5)]
    assert [peer.send(peer.message(body=body)).status for body in before] == [200] * 5
    paused = descendants(old.pid)
    for pid in paused:
        os.kill(pid, signal.SIGSTOP)
    for lock in (tmp_path / "data").rglob("*lock"):
        lock.unlink()
    new = start("data", queues=QUEUES)
    successor = Peer(new)
    assert successor.send(successor.message(body=b"new 1")).status == 200
    time.sleep(PAUSE_SECONDS)
    for pid in paused:
        os.kill(pid, signal.SIGCONT)
    with pytest.raises(OSError, match=r"."):  # not answered
        peer.send(peer.message(body=b"to the old one"))
    assert old.process is not None
    assert old.process.wait(END_SECONDS) == 1
    assert "taken over" in old.stderr()
    assert successor.send(successor.message(body=b"new 2")).status == 200
    assert labels(new.api) == [*before, b"new 1", b"new 2"]
    epoch = new.epoch
    successor.close()
    new.kill9()
    new.restart()
    assert new.epoch == epoch, "what the old owner did last made no foreign directory of it"
    assert labels(new.api) == [*before, b"new 1", b"new 2"]


def test_one_stream_to_two_receivers_is_in_order_and_once_at_each(start: Start) -> None:
    """A name that means two machines: who did not get the beginning takes nothing, and tells nobody that it did."""
    one, two = start("one", queues=QUEUES), start("two", queues=QUEUES)
    with Peer_of(one) as first, Peer_of(two) as second:
        for current in range(1, 21):
            message = first.stream(current)
            receivers = [first, second] if current % 3 else [second, first]
            for peer in receivers if current != 1 else [first]:
                assert peer.send(message).status == 200
                assert peer.send(message).status == 200, "and again: its answer was lost"
    found = {
        stream["queue"]: stream
        for stream in QueueManagerClient(one.api).status()["incoming_streams"]
    }
    assert found["private$/payments"]["sequence_number"] == 20
    assert QueueManagerClient(two.api).status()["incoming_streams"] == [], SOURCE
    assert labels(one.api, "private$/payments") == sorted(
        labels(one.api, "private$/payments"), key=lambda b: int(b.split()[1])
    )
    assert len(labels(one.api, "private$/payments")) == 20
    assert QueueManagerClient(two.api).range("private$/payments").end == 0
