"""The SRMP port over real sockets, with an inbox that says what the test wants."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from srmp_spark.errors import RemoteProtocolError, StoreSyncError
from srmp_spark.queue_manager.srmp_port import http_limits, port_limits, srmp_endpoint
from srmp_spark.queue_manager.srmp_port.request_head import RequestHead
from srmp_spark.queue_manager.srmp_port.srmp_endpoint import SrmpConnection, SrmpEndpoint

OK: Any = object()
"""Stands for the proof: the endpoint does not look inside."""


class Inbox:
    """Keeps what it is handed; answers 200 at once unless told to wait."""

    def __init__(self) -> None:
        self.posts: list[bytes] = []
        self.heads: list[int] = []
        self.waiting: list[SrmpConnection] = []
        self.answer: Callable[[SrmpConnection, bytes], None] = lambda connection, post: (
            connection.acknowledge(OK)
        )

    def check_target(self, target: bytes) -> None:
        if b".." in target:
            raise RemoteProtocolError("no queue", section="s")

    def accept(
        self, connection: SrmpConnection, head: RequestHead, post: bytes, head_length: int
    ) -> None:
        self.posts.append(post)
        self.heads.append(head_length)
        self.answer(connection, post)

    def hold(self, connection: SrmpConnection, post: bytes) -> None:
        self.waiting.append(connection)


class World:
    """An endpoint, its inbox, and connections to it."""

    def __init__(
        self, endpoint: SrmpEndpoint, inbox: Inbox, port: int, refusals: list[tuple[int, str]]
    ) -> None:
        self.endpoint, self.inbox, self.port, self.refusals = endpoint, inbox, port, refusals

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)

    async def say(self, *pieces: bytes, pause: float = 0.0) -> bytes:
        """Everything that comes back until the endpoint closes or is silent for a while."""
        reader, writer = await self.connect()
        with contextlib.suppress(
            ConnectionResetError
        ):  # it may answer and close while we still write
            for piece in pieces:
                writer.write(piece)
                await writer.drain()
                await asyncio.sleep(pause)
        answer = await read_all(reader)
        writer.close()
        return answer


async def read_all(reader: asyncio.StreamReader, silence: float = 0.3) -> bytes:
    got = b""
    while True:
        try:
            data = await asyncio.wait_for(reader.read(65_536), silence if got else 5)
        except asyncio.TimeoutError:
            return got
        except ConnectionResetError:
            return got + b"<reset>"
        if not data:
            return got + b"<closed>"
        got += data


def run(test: Callable[[World], Awaitable[None]], **options: Any) -> None:
    async def main() -> None:
        inbox, refusals = Inbox(), []
        endpoint = SrmpEndpoint(
            inbox,
            count_refusal=lambda status, reason: refusals.append((status, reason)),
            utc_seconds=lambda: 0.0,
            **options,
        )
        server = await asyncio.get_running_loop().create_server(endpoint.connection, "127.0.0.1", 0)
        try:
            await asyncio.wait_for(
                test(World(endpoint, inbox, server.sockets[0].getsockname()[1], refusals)), 20
            )
        finally:
            server.close()
            await endpoint.drain(0.1)
            assert endpoint.partial_bytes == 0
            assert endpoint.submitted_bytes == 0 or inbox.waiting

    asyncio.run(main())


def request(body: bytes = b"body", *fields: bytes, target: bytes = b"/msmq/q") -> bytes:
    lines = [b"POST %s HTTP/1.1" % target, b"Host: h", b"Content-Length: %d" % len(body), *fields]
    return b"\r\n".join(lines) + b"\r\n\r\n" + body


def statuses(answer: bytes) -> list[int]:
    return [int(part[:3]) for part in answer.split(b"HTTP/1.1 ")[1:]]


def test_the_stored_post_is_what_arrived() -> None:
    async def test(world: World) -> None:
        assert statuses(await world.say(request())) == [200]
        assert world.inbox.posts == [request()]
        assert world.inbox.heads == [len(request()) - 4]

    run(test)


@pytest.mark.parametrize("size", [1, 2, 7, 40])
def test_a_request_may_come_in_any_pieces(size: int) -> None:
    raw = request(b"x" * 50) + request(b"y" * 50, b"Transfer-Encoding: chunked").replace(
        b"Content-Length: 50\r\n", b""
    )
    raw = raw[:-50] + b"a\r\n0123456789\r\n0\r\n\r\n" + request(b"z")

    async def test(world: World) -> None:
        pieces = [raw[at : at + size] for at in range(0, len(raw), size)]
        reader, writer = await world.connect()
        for piece in pieces:
            writer.write(piece)
            await asyncio.sleep(0)
        assert statuses(await read_all(reader)) == [200, 200, 200]
        assert [post.rpartition(b"\r\n\r\n")[2] for post in world.inbox.posts] == [
            b"x" * 50,
            b"0123456789",
            b"z",
        ]
        writer.close()

    run(test)


@pytest.mark.parametrize("size", [1, 3])
def test_empty_lines_before_a_request_are_ignored_however_they_are_cut(size: int) -> None:
    raw = b"\r\n\r\n" + request(b"x")

    async def test(world: World) -> None:
        assert statuses(
            await world.say(*(raw[at : at + size] for at in range(0, len(raw), size)))
        ) == [200]
        assert world.inbox.posts == [request(b"x")]

    run(test)


def test_a_thousand_bad_requests_in_one_segment_do_not_hold_up_another_connection() -> None:
    async def test(world: World) -> None:
        def answer(connection: SrmpConnection, post: bytes) -> None:
            connection.acknowledge(OK) if post.endswith(b"good") else connection.refuse(
                400, "bad", "s"
            )

        world.inbox.answer = answer
        _, bad = await world.connect()
        _, good = await world.connect()
        bad.write(request(b"bad") * 1_000)
        good.write(request(b"good"))
        for _ in range(500):
            await asyncio.sleep(0.01)
            if len(world.inbox.posts) == 1_001:
                break
        assert world.inbox.posts.index(request(b"good")) < 100
        bad.close()
        good.close()

    run(test)


def test_pipelined_requests_are_answered_in_order_one_at_a_time() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = world.inbox.hold
        reader, writer = await world.connect()
        writer.write(b"".join(request(b"%d" % n) for n in range(5)))
        for n in range(5):
            await asyncio.sleep(0.05)
            assert [post[-1:] for post in world.inbox.posts] == [b"%d" % k for k in range(n + 1)], (
                "the next waits for the answer"
            )
            world.inbox.waiting[n].acknowledge(OK)
        assert statuses(await read_all(reader)) == [200] * 5
        writer.close()

    run(test)


def test_a_thousand_refused_requests_in_one_segment() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = lambda connection, post: connection.refuse(400, "malformed", "s")
        assert statuses(await world.say(request() * 1000)) == [400] * 1000
        assert world.refusals == [(400, "malformed")] * 1000

    run(test)


def test_a_refusal_has_no_body_and_says_why_in_a_header() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = lambda connection, post: connection.refuse(
            503, "quo\r\nta", "sec\x00tion é", 30
        )
        answer = await world.say(request())
        assert b"Srmp-Reason: quo??ta; sec?tion ?\r\n" in answer
        assert b"Retry-After: 30\r\n" in answer
        assert answer.endswith(
            b"Content-Length: 0\r\n" + answer.partition(b"Content-Length: 0\r\n")[2]
        )
        assert answer.endswith(b"\r\n\r\n"), "no body, and the connection lives"

    run(test)


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: h\r\n\r\n", 405),
        (b"BREW / HTTP/1.1\r\nHost: h\r\n\r\n", 501),
        (b"GET /\r\n", 400),
        (b"GET /\r\n\r\n", 400),
        (request(target=b"/msmq/" + b"a" * 100_000), 414),
        (request(target=b"/msmq/../x"), 400),
        (b"POST /msmq/q HTTP/1.1\nHost: h\n\n", 400),
        (b"\x16\x03\x01\x00\x05hello", 400),
        (request().replace(b"Content-Length: 4\r\n", b"Transfer-Encoding: chunked\r\n"), 400),
    ],
)
def test_after_a_fault_of_the_head_the_connection_is_over(raw: bytes, status: int) -> None:
    async def test(world: World) -> None:
        answer = await world.say(raw + request(b"smuggled"))
        assert statuses(answer) == [status]
        assert b"Connection: close" in answer
        assert answer.endswith(b"<closed>")
        assert (b"Allow: POST" in answer) is (status == 405)
        assert world.inbox.posts == []

    run(test)


def test_a_refused_probe_is_answered_and_not_counted() -> None:
    """``srmp-spark doctor`` asks for refusals; an alarm on them is about senders."""

    async def test(world: World) -> None:
        world.inbox.answer = lambda connection, post: connection.refuse(400, "unknown-queue", "s")
        probe, message = request(b"body", b"Srmp-Probe: 1"), request()
        assert statuses(await world.say(probe + message + probe + message)) == [400] * 4
        assert world.refusals == [(400, "unknown-queue")] * 2
        knock = b"GET / HTTP/1.1\r\nHost: h\r\n%s\r\n"
        assert statuses(await world.say(knock % b"srmp-probe: 1\r\n")) == [405]
        assert world.refusals[2:] == []
        assert statuses(await world.say(knock % b"")) == [405]
        assert world.refusals[2:] == [(405, "method")]

    run(test)


def test_connection_close_and_http_1_0_close_after_the_answer() -> None:
    async def test(world: World) -> None:
        assert (await world.say(request(b"b", b"Connection: close"))).endswith(b"<closed>")
        assert (await world.say(request().replace(b"HTTP/1.1", b"HTTP/1.0"))).endswith(b"<closed>")
        assert len(world.inbox.posts) == 2

    run(test)


def test_expect_100_continue_is_answered_when_the_head_is_good_and_the_body_not_there() -> None:
    async def test(world: World) -> None:
        raw = request(b"body", b"Expect: 100-continue")
        reader, writer = await world.connect()
        writer.write(raw[:-4])
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        writer.write(raw[-4:])
        assert statuses(await read_all(reader)) == [200]
        writer.close()
        assert statuses(await world.say(raw)) == [200], (
            "nobody waits for it when the body came along"
        )
        bad = request(b"body", b"Expect: 100-continue", target=b"/..")[:-4]
        assert statuses(await world.say(bad)) == [400]

    run(test)


def test_too_large_is_413_before_the_body_and_the_answer_survives_what_is_still_sent() -> None:
    async def test(world: World) -> None:
        answer = await world.say(
            b"POST /msmq/q HTTP/1.1\r\nHost: h\r\nContent-Length: 99999999\r\n\r\n",
            *[b"x" * 100_000] * 20,
        )
        assert statuses(answer) == [413]
        assert b"<reset>" not in answer

    run(test)


def test_half_of_a_request_is_408_and_nothing_is_queued() -> None:
    async def test(world: World) -> None:
        for raw in (request()[:20], request()[:-1]):
            reader, writer = await world.connect()
            writer.write(raw)
            writer.write_eof()
            assert statuses(await read_all(reader)) == [408]
            writer.close()
        assert world.inbox.posts == []
        reader, writer = await world.connect()
        writer.write(request())
        writer.write_eof()
        assert statuses(await read_all(reader)) == [200], (
            "a whole one is answered although no more will come"
        )
        writer.close()

    run(test)


class TestDeadlines:
    @pytest.fixture(autouse=True)
    def short(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for name, value in {
            "SWEEP_SECONDS": 0.05,
            "HEAD_SECONDS": 0.2,
            "BODY_SECONDS": 0.2,
            "IDLE_SECONDS": 0.3,
            "LINGER_SECONDS": 0.2,
        }.items():
            monkeypatch.setattr(http_limits, name, value)

    def test_a_slow_head_and_a_slow_body_are_408(self) -> None:
        async def test(world: World) -> None:
            slow_head = [request()[at : at + 1] for at in range(4)]
            slow_body = [request(b"x" * 100_000)[:300], b"x", b"x"]
            for pieces in (slow_head, slow_body):
                answer = await world.say(*pieces, pause=0.05)
                assert statuses(answer) == [408]
                assert answer.endswith(b"<closed>")
            assert world.refusals == [(408, "slow-head"), (408, "slow-body")]

        run(test)

    def test_an_idle_connection_is_closed_without_a_word(self) -> None:
        async def test(world: World) -> None:
            reader, writer = await world.connect()
            assert await read_all(reader, 2) == b"<closed>"
            writer.close()

        run(test)

    def test_waiting_for_our_commit_is_no_fault_of_the_sender(self) -> None:
        async def test(world: World) -> None:
            world.inbox.answer = world.inbox.hold
            reader, writer = await world.connect()
            writer.write(request())
            await asyncio.sleep(0.6)
            world.inbox.waiting[0].acknowledge(OK)
            assert statuses(await read_all(reader)) == [200]
            writer.close()

        run(test)

    def test_who_never_closes_after_the_last_answer_is_cut_off(self) -> None:
        async def test(world: World) -> None:
            reader, writer = await world.connect()
            writer.write(b"GET / HTTP/1.1\r\n\r\n")
            assert (await read_all(reader, 1)).endswith(b"<closed>")
            await asyncio.sleep(0.5)
            assert not world.endpoint.connections
            writer.close()

        run(test)


class TestAFullPort:
    def test_one_that_waits_for_its_commit_keeps_its_place_and_the_next_gets_503(self) -> None:
        async def test(world: World) -> None:
            world.inbox.answer = world.inbox.hold
            first, writer = await world.connect()
            writer.write(request())
            await asyncio.sleep(0.05)
            answer = await world.say(b"")
            assert statuses(answer) == [503]
            assert answer.endswith(b"<closed>")
            world.inbox.waiting.pop().acknowledge(OK)
            assert statuses(await read_all(first)) == [200]
            writer.close()

        run(test, connections_max=1)

    def test_the_oldest_that_has_proved_nothing_makes_way(self) -> None:
        async def test(world: World) -> None:
            proved, writer = await world.connect()
            writer.write(request())
            assert statuses(await read_all(proved)) == [200]
            (silent, _), (younger, _) = await world.connect(), await world.connect()
            await asyncio.sleep(0.05)
            assert statuses(await world.say(request())) == [200]
            assert await read_all(silent) in (b"<closed>", b"<reset>")
            writer.write(request())
            assert statuses(await read_all(proved)) == [200]
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(younger.read(1), 0.05)
            writer.close()

        run(test, connections_max=3)

    def test_an_idle_one_whose_message_was_accepted_makes_way_when_it_has_been_idle_for_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test(world: World) -> None:
            proved, writer = await world.connect()
            writer.write(request())
            assert statuses(await read_all(proved)) == [200]
            assert statuses(await world.say(request())) == [503]
            monkeypatch.setattr(http_limits, "SPARED_SECONDS", 0.0)
            await asyncio.sleep(http_limits.RANK_SECONDS)
            assert statuses(await world.say(request())) == [200]
            assert await read_all(proved) in (b"<closed>", b"<reset>")

        run(test, connections_max=1)

    def test_a_flood_that_is_not_admitted_holds_no_descriptors(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_limits, "REFUSED_MAX", 3)

        async def test(world: World) -> None:
            world.inbox.answer = world.inbox.hold
            _, writer = await world.connect()
            writer.write(request())
            await asyncio.sleep(0.05)
            flood = [await world.connect() for _ in range(20)]
            await asyncio.sleep(0.1)
            answers = [await read_all(reader) for reader, _ in flood]
            assert 0 < sum(b" 503 " in answer for answer in answers) <= 4
            assert sum(answer in (b"<closed>", b"<reset>") for answer in answers) >= 16
            assert world.refusals == [(503, "too-many-connections")] * 20

        run(test, connections_max=1)

    def test_newcomers_by_the_hundred_cause_few_looks(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(http_limits, "RANK_SECONDS", 0.0)
        ranked: list[None] = []
        rank = SrmpEndpoint._rank
        monkeypatch.setattr(SrmpEndpoint, "_rank", lambda self: (ranked.append(None), rank(self)))

        async def test(world: World) -> None:
            kept = [await world.connect() for _ in range(200)]
            await asyncio.sleep(0.05)
            assert len(world.endpoint.room) == 50
            assert len(kept) == 200
            assert len(ranked) <= 200 // 50 + 2

        run(test, connections_max=50)


class TestAFullShare:
    """Eight places, of which an address has two; loopback counts as an address here."""

    @pytest.fixture(autouse=True)
    def _loopback_has_a_share(self, monkeypatch: pytest.MonkeyPatch) -> None:
        for module in (port_limits, srmp_endpoint):
            monkeypatch.setattr(module, "payer_of", lambda host: host)

    def test_the_idle_connection_of_the_same_address_makes_way_oldest_first(self) -> None:
        async def test(world: World) -> None:
            other = SrmpConnection(world.endpoint)
            other.payer = "192.0.2.1"
            world.endpoint.connections[other] = None
            world.endpoint.room.enter(other, "192.0.2.1")
            (oldest, _), (younger, writer) = await world.connect(), await world.connect()
            await asyncio.sleep(0.05)
            assert statuses(await world.say(request())) == [200]
            assert await read_all(oldest) in (b"<closed>", b"<reset>")
            writer.write(request())
            assert statuses(await read_all(younger)) == [200]
            assert other in world.endpoint.room, "another address keeps its idle connection"
            del world.endpoint.connections[other]
            writer.close()

        run(test, connections_max=8)

    @pytest.mark.parametrize(
        "said", [request()[:9], request()[:-1]], ids=["half-a-head", "half-a-body"]
    )
    def test_one_with_a_request_in_progress_keeps_its_place(self, said: bytes) -> None:
        async def test(world: World) -> None:
            world.inbox.answer = world.inbox.hold
            kept, waits = await world.connect(), await world.connect()
            waits[1].write(request())
            kept[1].write(said)
            await asyncio.sleep(0.05)
            assert statuses(await world.say(request())) == [503]
            kept[1].write(request()[len(said) :])
            await asyncio.sleep(0.05)
            for each in (*world.inbox.waiting,):
                each.acknowledge(OK)
            assert [statuses(await read_all(reader)) for reader, _ in (kept, waits)] == [
                [200],
                [200],
            ]
            world.inbox.waiting.clear()
            for _, writer in (kept, waits):
                writer.close()

        run(test, connections_max=8)

    def test_one_whose_message_was_accepted_makes_way_when_it_has_been_idle_for_long(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def test(world: World) -> None:
            proved = [await world.connect() for _ in range(2)]
            for reader, writer in proved:
                writer.write(request())
                assert statuses(await read_all(reader)) == [200]
            assert statuses(await world.say(request())) == [503]
            monkeypatch.setattr(http_limits, "SPARED_SECONDS", 0.0)
            await asyncio.sleep(http_limits.RANK_SECONDS)
            assert statuses(await world.say(request())) == [200]
            assert await read_all(proved[0][0]) in (b"<closed>", b"<reset>")
            for _, writer in proved:
                writer.close()

        run(test, connections_max=8)


def test_unfinished_requests_together_have_a_limit() -> None:
    async def test(world: World) -> None:
        _, writer = await world.connect()
        writer.write(request(b"x" * 2000)[:900])
        await asyncio.sleep(0.05)
        assert statuses(await world.say(request(b"y" * 2000)[:900])) == [503]
        writer.close()

    run(test, budget=http_limits.BUDGET._replace(partial=1000))


def test_halves_of_heads_count_as_unfinished_requests() -> None:
    async def test(world: World) -> None:
        head = b"POST /msmq/q HTTP/1.1\r\nX: " + b"x" * 800
        _, writer = await world.connect()
        writer.write(head)
        await asyncio.sleep(0.05)
        assert world.endpoint.partial_bytes == len(head)
        assert statuses(await world.say(head)) == [503]
        assert statuses(await world.say(request())) == [200], "a whole request needs no room"
        writer.close()

    run(test, budget=http_limits.BUDGET._replace(partial=1000))


def test_what_follows_a_request_in_flight_counts_too_and_the_request_is_stored() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = world.inbox.hold
        reader, writer = await world.connect()
        writer.write(request())
        await asyncio.sleep(0.05)
        writer.write(request(b"y" * 2_000))
        assert await read_all(reader) in (b"<closed>", b"<reset>")
        assert world.inbox.posts == [request()]
        world.inbox.waiting.pop().acknowledge(OK)  # nobody is there to read it
        assert world.endpoint.partial_bytes == 0

    run(test, budget=http_limits.BUDGET._replace(partial=1000))


def test_unfinished_requests_of_one_address_leave_room_for_others() -> None:
    async def test(world: World) -> None:
        endpoint = world.endpoint
        assert endpoint.hold_partial("192.0.2.1", 250)
        assert not endpoint.hold_partial("192.0.2.1", 1), "a quarter is the share of an address"
        assert endpoint.hold_partial("192.0.2.2", 250)
        assert endpoint.hold_partial(None, 400), "loopback has no share: proxies stand there"
        for payer, count in (("192.0.2.1", 251), ("192.0.2.2", 250), (None, 400)):
            endpoint.forget_partial(payer, count)
        assert endpoint.partial_bytes == 0

    run(test, budget=http_limits.BUDGET._replace(partial=1000))


def test_back_pressure_stops_reading_and_lets_go_again() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = world.inbox.hold
        first, writer = await world.connect()
        other, other_writer = await world.connect()
        writer.write(request(b"x" * 2000))
        await asyncio.sleep(0.1)
        other_writer.write(request(b"y"))
        await asyncio.sleep(0.1)
        assert len(world.inbox.posts) == 1, "the other connection is not read"
        world.inbox.waiting[0].acknowledge(OK)
        await asyncio.sleep(0.1)
        assert len(world.inbox.posts) == 2
        world.inbox.waiting[1].acknowledge(OK)
        assert statuses(await read_all(first)) == statuses(await read_all(other)) == [200]
        writer.close()
        other_writer.close()

    run(test, budget=http_limits.BUDGET._replace(submitted_high=1000, submitted_low=500))


def test_a_bug_of_ours_is_503_and_the_connection_lives(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: World) -> None:
        def broken(connection: SrmpConnection, post: bytes) -> None:
            raise KeyError("bug")

        world.inbox.answer = broken
        reader, writer = await world.connect()
        writer.write(request())
        assert statuses(await read_all(reader)) == [503]
        world.inbox.answer = lambda connection, post: connection.acknowledge(OK)
        writer.write(request())
        assert statuses(await read_all(reader)) == [200]
        writer.close()

    run(test)
    assert "request.failed" in caplog.text


def test_when_the_process_must_end_there_is_no_answer() -> None:
    """The engine may know the message already: a 503 now, a 200 for the repeat, and no row."""

    async def test(world: World) -> None:
        def broken(connection: SrmpConnection, post: bytes) -> None:
            raise StoreSyncError("gone")

        world.inbox.answer = broken
        assert statuses(await world.say(request())) == []
        assert world.refusals == []
        world.endpoint.submitted_bytes = 0

    run(test)


def test_a_folded_content_type_with_an_upgrade_is_answered(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def test(world: World) -> None:
        fields = (b"Content-Type: text/xml;\r\n a=b", b"Connection: upgrade", b"Upgrade: x")
        assert statuses(await world.say(request(b"body", *fields))) == [200]

    run(test)
    assert "Traceback" not in caplog.text


def test_an_answer_to_a_sender_that_went_away_hurts_nobody() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = world.inbox.hold
        _, gone = await world.connect()
        gone.write(request())
        await asyncio.sleep(0.05)
        gone.transport.abort()
        await asyncio.sleep(0.05)
        world.inbox.waiting[0].acknowledge(OK)
        world.inbox.answer = lambda connection, post: connection.acknowledge(OK)
        assert statuses(await world.say(request())) == [200]

    run(test)


def test_draining_answers_what_was_received_and_closes_the_idle() -> None:
    async def test(world: World) -> None:
        world.inbox.answer = world.inbox.hold
        idle, idle_writer = await world.connect()
        busy, busy_writer = await world.connect()
        half, half_writer = await world.connect()
        busy_writer.write(request())
        half_writer.write(request()[:-2])
        await asyncio.sleep(0.05)
        drained = asyncio.ensure_future(world.endpoint.drain(3))
        assert await read_all(idle) == b"<closed>"
        half_writer.write(request()[-2:])
        await asyncio.sleep(0.05)
        for connection in world.inbox.waiting:
            connection.acknowledge(OK)
        for reader in (busy, half):
            answer = await read_all(reader)
            assert statuses(answer) == [200]
            assert b"Connection: close" in answer
        for writer in (idle_writer, busy_writer, half_writer):
            writer.close()
        await drained
        assert not world.endpoint.connections

    run(test)
