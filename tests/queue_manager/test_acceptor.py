"""Between the engine's word and the journal nothing may fail and be survived."""

from __future__ import annotations

import asyncio
import dataclasses
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from srmp_spark.errors import MemoryAheadError, ProcessMustEndError
from srmp_spark.queue_manager.admission.gate import GATE_SECTION
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.queue_manager.srmp_port.srmp_inbox import srmp_endpoint
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from tests.kit.living_manager import living_manager

ROOT = Path(__file__).resolve().parents[2]
SOURCE = "aaaaaaaa-0000-4000-8000-000000000001"


class World:
    """A queue manager with a real SRMP port; what would end the process is kept."""

    def __init__(self, manager: QueueManager, port: int, fatal: list[ProcessMustEndError]) -> None:
        self.manager, self.port, self.fatal = manager, port, fatal

    async def send(self, uniquifier: int = 1) -> bytes:
        """Everything that comes back for a message until the connection ends."""
        message = ForeignMessage(
            to="http://localhost/msmq/private$/orders", lineage=SOURCE, uniquifier=uniquifier, sent_at=1_790_000_000,
            body=b"body", durable=True,
        )  # fmt: skip
        written = post(message)
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        head = (
            f"POST {written.target} HTTP/1.1\r\nHost: localhost\r\nContent-Type: "
            f"{written.content_type}\r\n"
            f"Content-Length: {len(written.content)}\r\nConnection: close\r\n\r\n"
        )
        writer.write(head.encode() + written.content)
        try:
            return await asyncio.wait_for(reader.read(), 5)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()

    def rows(self) -> int:
        return int(
            self.manager.directory.writer.execute(
                "SELECT coalesce(sum(last - first + 1), 0) FROM groups"
            ).fetchone()[0]
        )


def run(directory: Path, test: Callable[[World], Awaitable[None]]) -> None:
    async def main() -> None:
        fatal: list[ProcessMustEndError] = []
        async with living_manager(directory, fatal=fatal, queue=["private$/orders"]) as manager:
            endpoint = srmp_endpoint(manager)
            server = await asyncio.get_running_loop().create_server(
                endpoint.connection, "127.0.0.1", 0
            )
            try:
                port = server.sockets[0].getsockname()[1]
                await asyncio.wait_for(test(World(manager, port, fatal)), 20)
            finally:
                server.close()
                await endpoint.drain(0.1)

    asyncio.run(main())


def broken(*_: object, **__: object) -> None:
    raise ZeroDivisionError("a bug")


def ahead(*_: object, **__: object) -> None:
    raise MemoryAheadError("a bug")


@pytest.mark.parametrize("where", ["record", "lookup", "quota", "receipt"])
def test_a_bug_of_the_engine_before_anything_changed_is_503_once_in_the_log_and_the_process_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    async def test(world: World) -> None:
        receiver = world.manager.receiver
        assert (await world.send(1)).startswith(b"HTTP/1.1 200 ")
        before = (
            receiver.history.rows(),
            receiver.queues["private$/orders"].end,
            world.manager.journal.position,
        )
        if where == "record":
            monkeypatch.setattr("srmp_spark.queue_manager.admission.acceptor.Record", broken)
        elif where == "lookup":
            monkeypatch.setattr(receiver.history, "seen", broken)
        elif where == "quota":
            monkeypatch.setattr(receiver, "_not_now", broken)
        else:
            monkeypatch.setattr(receiver, "_accepted", broken)
        for _ in range(3):
            assert (await world.send(2)).startswith(b"HTTP/1.1 503 ")
        assert (
            receiver.history.rows(),
            receiver.queues["private$/orders"].end,
            world.manager.journal.position,
        ) == before
        told = [each for each in caplog.records if each.getMessage().startswith("request.failed")]
        assert len(told) == 1
        assert told[0].exc_info is not None
        assert "disk" in told[0].getMessage()
        assert world.fatal == []
        monkeypatch.undo()
        assert (await world.send(2)).startswith(b"HTTP/1.1 200 "), (
            "its sender sends again, and it is new"
        )
        assert world.rows() == 2

    run(tmp_path / "d", test)


@pytest.mark.parametrize("where", ["submit", "history", "stream"])
def test_what_fails_after_the_engine_was_asked_ends_the_process_unanswered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """A 503 would make the sender repeat what the engine knows already: 200 without a row."""

    async def test(world: World) -> None:
        assert (await world.send(1)).startswith(b"HTTP/1.1 200 ")
        if where == "submit":
            monkeypatch.setattr(world.manager.journal, "submit", broken)
        elif where == "history":  # the engine itself, when it has moved half of its state
            monkeypatch.setattr(world.manager.receiver.history, "add", broken)
        else:
            monkeypatch.setattr(world.manager.receiver, "_apply", ahead)
        assert await world.send(2) == b""
        assert [type(error) for error in world.fatal] == [MemoryAheadError]
        assert "a bug" in str(world.fatal[0])
        assert "met a bug of srmp-spark" in str(world.fatal[0]), "the log does not blame the disk"
        monkeypatch.undo()
        assert await world.send(2) == b"", (
            "the repeat is not answered either: only the next start knows what is true"
        )
        assert len(world.fatal) == 1
        assert world.rows() == 1

    run(tmp_path / "d", test)


def test_what_is_under_way_when_the_process_must_end_is_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(world: World) -> None:
        real = world.manager.journal.submit
        calls: list[object] = []

        def second_fails(*args: object, **options: object) -> None:
            calls.append(args)
            if len(calls) == 2:
                broken()
            real(*args, **options)  # type: ignore[arg-type]

        world.manager.journal._flush = lambda: None  # type: ignore[method-assign]  # the first stays collected
        monkeypatch.setattr(world.manager.journal, "submit", second_fails)
        first = asyncio.ensure_future(world.send(1))
        await asyncio.sleep(0.1)
        assert await world.send(2) == b""
        await asyncio.sleep(0.1)
        assert not first.done()
        first.cancel()
        assert len(world.fatal) == 1

    run(tmp_path / "d", test)


def test_what_fails_before_the_engine_is_asked_is_503_and_nothing_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(world: World) -> None:
        with monkeypatch.context() as patched:
            patched.setattr("srmp_spark.queue_manager.srmp_port.srmp_inbox.decode_parts", broken)
            assert (await world.send(1)).startswith(b"HTTP/1.1 503 ")
        assert (await world.send(1)).startswith(b"HTTP/1.1 200 ")
        assert (world.rows(), world.fatal) == (1, [])

    run(tmp_path / "d", test)


def test_what_is_stored_is_answered_even_if_nobody_could_be_told_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(world: World) -> None:
        with monkeypatch.context() as patched:
            acceptor = world.manager.acceptor
            effects = dataclasses.replace(acceptor._effects, stored=broken)
            patched.setattr(acceptor, "_effects", effects)
            assert (await world.send(1)).startswith(b"HTTP/1.1 200 ")
        assert (world.rows(), world.fatal) == (1, [])

    run(tmp_path / "d", test)


def test_a_closed_gate_refers_to_something_that_a_user_has(tmp_path: Path) -> None:
    async def test(world: World) -> None:
        world.manager.gate.close("disk-full", "no space")
        answer = await world.send(1)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert f"Srmp-Reason: disk-full; {GATE_SECTION}\r\n".encode() in answer

    run(tmp_path / "d", test)
    document, _, promise = GATE_SECTION.partition(" promise ")
    assert f"\n### {promise}. Each refusal has one meaning\n" in (ROOT / document).read_text()


def test_the_disk_is_looked_at_again_when_the_room_that_was_seen_is_used_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test(world: World) -> None:
        gate = world.manager.gate
        looks: list[int] = []

        def look() -> None:
            looks.append(gate.unwritten_bytes)
            gate.close("disk-full", "no room")

        monkeypatch.setattr(world.manager.disk, "look", look)
        gate.room = 3_000
        answers = [await world.send(number) for number in range(1, 8)]
        taken = sum(answer.startswith(b"HTTP/1.1 200 ") for answer in answers)
        assert 1 <= taken < 7
        assert all(answer.startswith(b"HTTP/1.1 503 ") for answer in answers[taken:])
        assert len(looks) == 1
        assert looks[0] > 0, "the last one is not on the disk yet"
        assert gate.unwritten_bytes == 0
        assert world.rows() == taken

    run(tmp_path / "d", test)
