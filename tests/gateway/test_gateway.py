"""A gateway process: messages cross whole and in order, and its hang, death or flood harms nobody else."""

from __future__ import annotations

import asyncio
import os
import resource
import socket
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.queue_manager.gateway import link as link_module
from srmp_spark.queue_manager.gateway.channel import TURN_SECONDS, Channel
from srmp_spark.queue_manager.gateway.control import MEMORY_MAX, GatewaySettings
from srmp_spark.queue_manager.gateway.frames import FRAME_MAX, FrameReader, encode_frame
from srmp_spark.queue_manager.gateway.link import GatewayLink
from tests.kit.gateway_echo import Answer, Do, Said


class Echo(GatewayLink[Answer | Do, Said]):
    module = "tests.kit.gateway_echo"
    noun = "echo"


class Service:
    """The main process's half of the echo: answers each line once the test lets it."""

    def __init__(self, listening: socket.socket) -> None:
        self.heard: list[Said] = []
        self.events: list[str] = []
        self.link = Echo(
            GatewaySettings(), {"port": listening}, Said, self._on_message,
            on_up=lambda: self.events.append("up"), on_lost=lambda: self.events.append("lost"),
        )  # fmt: skip

    def _on_message(self, message: Said) -> None:
        self.heard.append(message)
        if message.line == b"bug\n":
            raise ZeroDivisionError
        self.link.send(Answer(message.connection, b"re: " + message.line))


def with_gateway(dialogue: Callable[[Service, int], Awaitable[None]]) -> None:
    """Run ``dialogue`` with a started gateway and its port."""

    async def main() -> None:
        with socket.create_server(("127.0.0.1", 0)) as listening:
            service = Service(listening)
            service.link.start()
            await service.link.started()
            try:
                await dialogue(service, listening.getsockname()[1])
            finally:
                await service.link.stop()

    asyncio.run(main())


async def ask(port: int, line: bytes) -> bytes:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(line)
    answer = await asyncio.wait_for(reader.readline(), 20)
    writer.close()
    return answer


async def until(condition: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never happened"
        await asyncio.sleep(0.01)


def test_a_line_crosses_to_the_main_process_and_its_answer_comes_back() -> None:
    async def dialogue(service: Service, port: int) -> None:
        assert await ask(port, b"hello\n") == b"re: hello\n"
        assert service.events == ["up"]

    with_gateway(dialogue)


def test_one_message_s_bug_costs_no_other_message_anything(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def dialogue(service: Service, port: int) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"bug\nfine\n")
        assert await asyncio.wait_for(reader.readline(), 20) == b"re: fine\n"
        writer.close()

    with_gateway(dialogue)
    assert "gateway.message_failed type=Said" in caplog.text


@pytest.mark.parametrize("what", ["die", "memory"])
def test_a_gateway_that_dies_is_told_as_lost_and_its_port_opens_again(what: str) -> None:
    async def dialogue(service: Service, port: int) -> None:
        assert await ask(port, b"before\n") == b"re: before\n"
        service.link.send(Do(what))
        await until(lambda: "lost" in service.events)
        assert await ask(port, b"after\n") == b"re: after\n", "the client waited in the backlog"
        assert service.events == ["up", "lost", "up"]
        assert service.link.restarts == 1

    with_gateway(dialogue)


def test_a_gateway_whose_last_messages_wait_is_lost_before_the_next_one_is_up() -> None:
    """The main process may be behind: what it has not handled of the one before must not look like the next one's."""

    async def dialogue(service: Service, port: int) -> None:
        assert await ask(port, b"before\n") == b"re: before\n"
        channel = service.link.channel
        assert channel is not None
        channel.hold()  # as a loop that has no time for it: its end waits behind its messages
        writer = (await asyncio.open_connection("127.0.0.1", port))[1]
        writer.write(b"unheard\n")
        await asyncio.sleep(0.2)
        process = service.link._process
        assert process is not None
        process.kill()
        await until(lambda: service.events[-1] == "up" and len(service.events) > 1)
        assert service.events == ["up", "lost", "up"]
        channel.release()
        assert await ask(port, b"after\n") == b"re: after\n"
        assert [each.line for each in service.heard] == [b"before\n", b"after\n"]
        assert service.events == ["up", "lost", "up"], "once"
        writer.close()

    with_gateway(dialogue)


def test_a_gateway_whose_loop_hangs_is_killed_and_started_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(link_module, "WATCH_SECONDS", 0.1)

    async def dialogue(service: Service, port: int) -> None:
        service.link.send(Do("hang"))
        with monkeypatch.context() as patched:  # a start of Python may take longer than that
            patched.setattr(link_module, "SILENCE_SECONDS", 0.5)
            await until(lambda: "lost" in service.events)
        assert await ask(port, b"again\n") == b"re: again\n"

    with_gateway(dialogue)


def test_a_flood_of_messages_leaves_the_loop_to_others() -> None:
    async def dialogue(service: Service, port: int) -> None:
        service.link.send(Do("flood"))
        worst = 0.0
        while len(service.heard) < 200_000:
            began = time.perf_counter()
            await asyncio.sleep(0)
            worst = max(worst, time.perf_counter() - began)
        assert [each.connection for each in service.heard] == list(range(200_000)), "in order"
        assert worst < 0.25, f"one turn took {worst * 1000:.0f} ms, TURN_SECONDS is {TURN_SECONDS}"

    with_gateway(dialogue)


def test_it_ends_with_the_main_process() -> None:
    async def dialogue(service: Service, port: int) -> None:
        process = service.link._process
        assert process is not None
        await service.link.stop()
        assert process.returncode == 0
        assert service.events == ["up"], "a stop is no loss"
        with pytest.raises(ProcessLookupError):
            os.kill(process.pid, 0)

    with_gateway(dialogue)


def test_a_gateway_with_much_to_hold_may_have_more_memory() -> None:
    async def main() -> None:
        for settings, limit in (
            (GatewaySettings(), MEMORY_MAX),
            (GatewaySettings(memory_max=2 * MEMORY_MAX), 2 * MEMORY_MAX),
        ):
            with socket.create_server(("127.0.0.1", 0)) as listening:
                link = Echo(settings, {"port": listening}, Said, lambda message: None)
                link.start()
                await link.started()
                process = link._process
                assert process is not None
                assert resource.prlimit(process.pid, resource.RLIMIT_DATA)[0] == limit
                await link.stop()

    asyncio.run(main())


# --- the channel --------------------------------------------------------------------------------------------


class Pair:
    """Two channels that speak to each other."""

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.lost = 0
        self.room = 0
        self.left: Channel[Said, Answer] = Channel(
            Answer, self.came.append, self._on_lost, self._on_room
        )
        self.right: Channel[Answer, Said] = Channel(Said, self.came.append, self._on_lost)

    def _on_lost(self) -> None:
        self.lost += 1

    def _on_room(self) -> None:
        self.room += 1

    async def connect(self) -> None:
        loop = asyncio.get_running_loop()
        ours, theirs = socket.socketpair()
        for channel, end in ((self.left, ours), (self.right, theirs)):
            end.setblocking(False)
            await loop.create_unix_connection(lambda channel=channel: channel, sock=end)  # type: ignore[misc]


def test_a_held_channel_congests_its_other_end_until_it_is_released() -> None:
    async def main() -> None:
        pair = Pair()
        await pair.connect()
        pair.right.hold()
        sent = 0
        while not pair.left.is_congested:
            pair.left.send(Said(sent, bytes(65_536)))
            sent += 1
            await asyncio.sleep(0)
            assert sent < 1_000, "no back-pressure"
        await asyncio.sleep(0.05)
        assert pair.came == [], "nothing is handled while it is held"
        pair.right.release()
        await until(lambda: len(pair.came) == sent)
        assert (pair.room, pair.left.is_congested) == (1, False)

    asyncio.run(main())


def test_a_channel_that_its_owner_closes_is_not_lost_and_its_other_end_is() -> None:
    async def main() -> None:
        pair = Pair()
        await pair.connect()
        pair.left.send(Said(1, b"last"))
        pair.left.close()
        await until(lambda: pair.lost == 1)
        assert pair.came == [Said(1, b"last")]
        assert not pair.right.send(Answer(1, b"nobody"))

    asyncio.run(main())


# --- frames -------------------------------------------------------------------------------------------------


def test_frames_are_cut_anywhere() -> None:
    sent = [Said(number, bytes(number)) for number in range(40)]
    octets = b"".join(encode_frame(each) for each in sent)
    for size in (1, 3, 7, 1000, len(octets)):
        reader: FrameReader[Said] = FrameReader(Said)
        found = []
        for at in range(0, len(octets), size):
            reader.feed(octets[at : at + size])
            found += reader.messages()
        assert found == sent
        assert len(reader) == 0


def test_a_reader_that_stops_half_way_forgets_nothing() -> None:
    reader: FrameReader[Said] = FrameReader(Said)
    reader.feed(encode_frame(Said(1, b"a")) + encode_frame(Said(2, b"b")))
    messages = reader.messages()
    assert next(messages) == Said(1, b"a")
    messages.close()
    assert list(reader.messages()) == [Said(2, b"b")]


def test_wrong_values_and_long_frames_do_not_pass() -> None:
    class Wrong(msgspec.Struct, tag="Said", frozen=True):
        connection: str
        line: bytes

    reader: FrameReader[Said] = FrameReader(Said)
    reader.feed(encode_frame(Wrong("1", b"")))
    with pytest.raises(RemoteProtocolError, match="Expected `int`"):
        list(reader.messages())
    reader = FrameReader(Said)
    reader.feed((FRAME_MAX + 1).to_bytes(4, "little"))
    with pytest.raises(RemoteProtocolError, match="FRAME_MAX"):
        list(reader.messages())
    with pytest.raises(LimitExceededError, match="FRAME_MAX"):
        encode_frame(Said(1, bytes(FRAME_MAX)))
