"""Bytes of a stage on their way to a disk that is nearly full, and its check beside the outbox."""

from __future__ import annotations

import asyncio
import errno
import io
import socket
import threading
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api import outbox as outbox_api
from srmp_spark.queue_manager.api.outbox import OutboxApi
from srmp_spark.queue_manager.api.stage_turns import StageTurn
from srmp_spark.queue_manager.sender.commands import SenderCommands
from srmp_spark.queue_manager.sender.crossing import AddStage, StageAdded
from srmp_spark.srmp.sending.outgoing_room import OutgoingRoom
from srmp_spark.store.outbox.staging.stages import Staged


class NearlyFull(io.FileIO):
    """Takes seven bytes at a time; ``room`` in all."""

    room = 10**9

    def write(self, data: Any) -> int:
        if self.room <= 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        written = super().write(bytes(data)[: min(7, self.room)])
        self.room -= written
        return written


class Full(NearlyFull):
    room = 20


def receive(
    folder: Path, kind: type[NearlyFull], monkeypatch: pytest.MonkeyPatch, pieces: list[bytes]
) -> Path:
    events = [
        {"type": "http.request", "body": piece, "more_body": piece is not pieces[-1]}
        for piece in pieces
    ]

    async def receive_() -> dict[str, Any]:
        return events.pop(0)

    async def run() -> str:
        api = OutboxApi(cast("Any", SimpleNamespace(outgoing=SimpleNamespace(folder=folder))))
        return await api._receive(
            cast("Any", SimpleNamespace(receive=receive_)), StageTurn(None, time.monotonic)
        )

    with monkeypatch.context() as patch:
        patch.setattr(outbox_api, "FileIO", kind)
        name = asyncio.run(run())
    return folder / name


def test_a_disk_that_takes_little_at_a_time_gets_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (
        receive(tmp_path, NearlyFull, monkeypatch, [b"x" * 1000, b"y" * 99]).read_bytes()
        == b"x" * 1000 + b"y" * 99
    )


def test_a_full_disk_is_a_503_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ApiError) as raised:
        receive(tmp_path, Full, monkeypatch, [b"x" * 1000])
    assert (raised.value.status, raised.value.code) == (503, "store")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("failing", [0, 1])
def test_a_sync_that_fails_beside_the_writing_is_a_503_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """The kernel tells an error once: the sync at the end would succeed."""
    calls: list[int] = []

    def fdatasync(descriptor: int) -> None:
        calls.append(descriptor)
        if len(calls) == failing + 1:
            raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(outbox_api, "SYNC_BYTES", 1)
    monkeypatch.setattr(outbox_api, "PIECE_BYTES", 1)
    monkeypatch.setattr("srmp_spark.queue_manager.api.outbox.os.fdatasync", fdatasync)
    with pytest.raises(ApiError, match="Input/output error") as raised:
        receive(tmp_path, NearlyFull, monkeypatch, [bytes([n]) * 50 for n in range(20)])
    assert raised.value.status == 503
    assert list(tmp_path.iterdir()) == []


def test_a_stage_is_judged_beside_the_outbox(tmp_path: Path) -> None:
    names: dict[str, str] = {}

    class Readers:
        def check(
            self, file: str, partition: int, application: str, batch: str
        ) -> SimpleNamespace:
            names["check"] = threading.current_thread().name
            schema = SimpleNamespace(dead_letter_queue=None)
            return SimpleNamespace(file=f"checked {file}", schema=schema, bad=None)

    class Stages:
        folder, multicast = tmp_path, False

        def add(
            self, application: str, batch: str, partition: int, attempt: str, checked: Any, at: int
        ) -> Staged:
            assert checked.file == "checked f"
            return Staged("s", 3)

    class Store:
        def run(self, job: Any, *, later: bool) -> Any:
            found = asyncio.get_running_loop().create_future()
            found.set_result(job())
            return found

    async def run() -> StageAdded:
        ours, theirs = socket.socketpair()
        with ours, theirs:
            outbox, clock = SimpleNamespace(stages=Stages()), SimpleNamespace(utc=lambda: 1)
            dispatcher = SimpleNamespace(sender=SimpleNamespace(room=OutgoingRoom()))
            found = SenderCommands(
                ours,
                cast("Any", outbox),
                cast("Any", Store()),
                cast("Any", dispatcher),
                cast("Any", clock),
            )
            found._readers = cast("Any", Readers())
            return await found._stage(AddStage("a", "b", 0, "0", "f"))

    assert asyncio.run(run()) == StageAdded("s", 3, None)
    assert names["check"].startswith("check")
