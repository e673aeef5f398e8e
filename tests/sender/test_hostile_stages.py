"""Stages whose bytes are made to harm who reads them, sent to a queue manager that runs."""

from __future__ import annotations

import io
import os
import signal
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pytest

from srmp_spark.client.outbox_batches import OutboxClient
from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.sender.staging import stage_readers
from srmp_spark.queue_manager.sender.staging.stage_readers import StageReaders
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.testing.queue_manager import RunningQueueManager

ROOT = Path(__file__).resolve().parents[2]
URL = "http://127.0.0.1:9/msmq/private$/q"
ROWS = 1234
POISON = b"this body ends its reader"
PATCH = f"""
import os, signal, sys
if any("stage_reader" in each for each in sys.orig_argv):
    from srmp_spark.store.outbox import stage_file
    _check = stage_file.StageFile.check
    def check(self, **options):
        if {POISON!r} in self.path.read_bytes():
            os.kill(os.getpid(), signal.SIGSEGV)
        return _check(self, **options)
    stage_file.StageFile.check = check
"""
"""A stand-in for an error of Arrow that nobody knows yet: a reader of the poisoned stage has a segmentation fault."""


def stream(batch: pa.RecordBatch, compression: str | None = None) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(
        sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)
    ) as writer:
        writer.write_batch(batch)
    return sink.getvalue()


def rows(bodies: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch(
        {"body": pa.array(bodies, pa.binary()), "destination": pa.array([URL] * len(bodies))}
    )


def more_rows_than_offsets(count: int) -> bytes:
    """A record batch that says it has ``count`` rows, with the buffers of :data:`ROWS`."""
    return stream(rows([b"abcd"] * ROWS)).replace(struct.pack("<q", ROWS), struct.pack("<q", count))


def bomb() -> bytes:
    """20 KB that become 650 MB."""
    return stream(rows([bytes(650 * 1024 * 1024)]), "zstd")


def dictionary_bomb() -> bytes:
    """One value of 1 MB that each of 4,000 rows repeats: 4 GB."""
    values = pa.array([b"x" * 1024 * 1024], pa.binary())
    body = pa.DictionaryArray.from_arrays(pa.array([0] * 4_000, pa.int32()), values)
    return stream(pa.record_batch({"body": body, "destination": pa.array([URL] * 4_000)}))


def view_bomb() -> bytes:
    """The same with views: each of 4,000 rows names the same megabyte."""
    text = pa.array(["x" * 1024 * 1024]).cast(pa.string_view())
    view = text.buffers()[1].to_pybytes()[:16]
    body = pa.Array.from_buffers(
        pa.string_view(), 4_000, [None, pa.py_buffer(view * 4_000), *text.buffers()[2:]]
    )
    return stream(pa.record_batch({"body": body, "destination": pa.array([URL] * 4_000)}))


def lying_length() -> bytes:
    """A compressed buffer that says it becomes 2 ** 62 bytes."""
    data = bytearray(stream(rows([b"a" * 54321]), "zstd"))
    at = data.rindex(struct.pack("<q", 54321))
    data[at : at + 8] = struct.pack("<q", 2**62)
    return bytes(data)


class Served:
    def __init__(self, running: RunningQueueManager) -> None:
        assert running.process is not None
        self.main = psutil.Process(running.process.pid)
        self.client = OutboxClient(running.api)
        self.running = running
        self.batches = 0

    def stage(self, data: bytes) -> str:
        self.batches += 1
        answer = self.client.stage(
            "app", str(self.batches), partition=7, attempt=0, content=lambda: iter([data])
        )
        return answer.stage

    def sender(self) -> psutil.Process:
        (found,) = (
            each
            for each in self.main.children()
            if "srmp_spark.queue_manager.sender.process" in each.cmdline()
        )
        return found

    def still_works(self, sender: psutil.Process) -> None:
        """The same sender process takes an honest batch."""
        stage = self.stage(stream(rows([b"honest"] * 3), "zstd"))
        assert self.client.commit("app", str(self.batches), [stage]).new == 3
        assert self.sender().pid == sender.pid


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("hostile")
    (folder / "patch").mkdir()
    (folder / "patch" / "sitecustomize.py").write_text(PATCH)
    environment = {"PYTHONPATH": f"{folder / 'patch'}:{ROOT}"}
    with RunningQueueManager(
        folder / "data", queues=["private$/q"], environment=environment
    ) as running:
        yield Served(running)


@pytest.mark.parametrize("count", [100_000, 4_000_000, 10**12])
def test_a_record_batch_with_more_rows_than_offsets_ends_nobody(served: Served, count: int) -> None:
    sender = served.sender()
    with pytest.raises(ApiError, match=r"partition 7: .*(too small|RECORD_BATCH_ROWS_MAX)"):
        served.stage(more_rows_than_offsets(count))
    served.still_works(sender)


@pytest.mark.parametrize("make", [bomb, dictionary_bomb, view_bomb, lying_length])
def test_a_small_stage_that_becomes_large_is_refused_before_it_does(
    served: Served, make: object
) -> None:
    served.still_works(sender := served.sender())
    before = sender.memory_info().rss
    data = make()  # type: ignore[operator]
    assert len(data) < 2 * 1024 * 1024
    with pytest.raises(ApiError, match=r"partition 7: .*RECORD_BATCH_BYTES_MAX is 67108864"):
        served.stage(data)
    readers = [
        each for each in served.sender().children() if "stage_reader" in " ".join(each.cmdline())
    ]
    assert readers
    assert max(each.memory_info().rss for each in readers) < 250 * 1024 * 1024
    assert sender.memory_info().rss - before < 32 * 1024 * 1024
    served.still_works(sender)


def test_a_stage_that_ends_its_reader_is_refused_at_the_second_try_and_the_sender_process_lives(
    served: Served,
) -> None:
    sender = served.sender()
    with pytest.raises(
        ApiError,
        match=r"partition 7: the stage ended the process that reads stages, 2 times "
        r"\(signal SIGSEGV\)",
    ):
        served.stage(stream(rows([POISON])))
    assert served.running.stderr().count("sender.stage_reader_ended") == 2
    stages = served.running.data_dir / "stages"
    assert not any(POISON in each.read_bytes() for each in stages.glob("*.arrow")), (
        "what is refused is deleted"
    )
    served.still_works(sender)


def test_a_reader_that_was_killed_for_something_else_costs_a_second_reader_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As by the kernel, when memory is short."""
    (tmp_path / "good.arrow").write_bytes(stream(rows([b"hello"])))
    once = tmp_path / "once"
    script = f"""
import os, pathlib, signal, sys
once = pathlib.Path({str(once)!r})
if not once.exists():
    once.touch()
    sys.stdin.readline()
    os.kill(os.getpid(), signal.SIGKILL)
from srmp_spark.queue_manager.sender.staging.stage_reader import main
main()
"""
    readers = StageReaders(tmp_path, multicast=False, command=[sys.executable, "-c", script])
    try:
        assert readers.check("good.arrow", 0).rows == 1
        assert once.exists()
    finally:
        readers.close()


def test_a_reader_that_does_not_come_to_an_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stage_readers, "READ_SECONDS_MAX", 0.5)
    (tmp_path / "slow.arrow").write_bytes(b"x")
    readers = StageReaders(
        tmp_path, multicast=False, command=[sys.executable, "-c", "import time; time.sleep(60)"]
    )
    with pytest.raises(BatchError, match="SIGKILL"):
        readers.check("slow.arrow", 0)
    assert not (tmp_path / "slow.arrow").exists()


def test_a_reader_that_ended_while_it_was_idle_is_replaced(tmp_path: Path) -> None:
    readers = StageReaders(tmp_path, multicast=False)
    try:
        for name in ("first.arrow", "second.arrow"):
            (tmp_path / name).write_bytes(stream(rows([b"hello"])))
            assert readers.check(name, 0).rows == 1
            (reader,) = readers._idle
            os.kill(reader._process.pid, signal.SIGKILL)
            reader._process.wait()
    finally:
        readers.close()
