"""Receipts go where the rule allows, once, at a limited rate, and until they are delivered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from srmp_spark.clock import SystemClock
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.queue_manager.queues.identifiers import Identifiers
from srmp_spark.queue_manager.receipts import receipts_sender
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.srmp.receiving.effects import Ok
from srmp_spark.store.tables.state import IDENTIFIER_MAX
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.living_manager import living_manager

SOURCE = "aaaaaaaa-0000-4000-8000-000000000001"


class Recorder:
    """Stands where a sender waits for its 200."""

    read_at = 0.0

    def __init__(self) -> None:
        self.stored = asyncio.Event()
        self.refused: list[int] = []

    def acknowledge(self, ok: Ok) -> None:
        self.stored.set()

    def refuse(
        self, status: int, reason: str, section: str, retry_after: int | None = None
    ) -> None:
        self.refused.append(status)


class Rig:
    """A queue manager without ports."""

    def __init__(self, manager: QueueManager) -> None:
        self.manager = manager
        self.numbers = iter(range(1, 10_000))

    async def take(
        self, *, queue: str = "private$/orders", peer: str = "127.0.0.1:5000", sender_name: str | None = None,
        to: str = "http://localhost", **values: Any,
    ) -> None:  # fmt: skip
        message = Message(
            destination=f"{to}/msmq/{queue}", action="MSMQ:a label", lineage=SOURCE, uniquifier=next(self.numbers),
            has_msmq=True, durable=True,
            **values,
        )  # fmt: skip
        waiting = Recorder()
        arrival = Arrival(
            self.manager.clock.utc(), "https" if sender_name else "http", peer, sender_name
        )
        self.manager.acceptor.take(message, arrival, b"POST", 4, waiting)
        assert waiting.refused == []
        await asyncio.wait_for(waiting.stored.wait(), 5)


class SetClock(SystemClock):
    """This machine's clock, moved by a test."""

    def __init__(self) -> None:
        self.passed = 0.0
        """Seconds that went by besides."""
        self.wrong = 0.0
        """Seconds by which somebody set the wall clock."""

    def monotonic(self) -> float:
        return super().monotonic() + self.passed

    def utc(self) -> int:
        return super().utc() + int((self.passed + self.wrong) * 1e6)


def rig(
    directory: Path,
    test: Callable[[Rig], Awaitable[None]],
    *allow: str,
    clock: SystemClock | None = None,
    **options: object,
) -> None:
    async def main() -> None:
        flags: dict[str, object] = {
            "queue": ["private$/orders", "private$/payments:transactional"],
            "allow_url": list(allow),
            **options,
        }
        base = "http://gateway:8080"
        async with living_manager(directory, clock, public_base=base, **flags) as manager:
            manager.start_sending()
            await asyncio.wait_for(test(Rig(manager)), 20)

    asyncio.run(main())


async def until(condition: Callable[[], Any], seconds: float = 5.0) -> None:
    for _ in range(int(seconds / 0.02)):
        if condition():
            return
        await asyncio.sleep(0.02)
    pytest.fail("it did not happen in time")


def owed(manager: QueueManager) -> int:
    return int(manager.directory.writer.execute("SELECT count(*) FROM owed_receipts").fetchone()[0])


def test_a_delivery_receipt_is_sent_once_and_forgotten_when_it_is_delivered(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async with ReceiptsServer() as server:
            to = server.url("private$/receipts", "?SenderStream=XRntV")
            await rig.take(delivery_receipt_to=to)
            await until(lambda: server.receipts and owed(rig.manager) == 0)
            await asyncio.sleep(0.2)
            (receipt,) = server.receipts
            assert (receipt.target, receipt.to) == (
                "/msmq/private$/receipts?SenderStream=XRntV",
                to,
            ), "2.2.5.2.2"
            assert receipt.headers["host"] == f"127.0.0.1:{server.port}"
            assert receipt.delivery_of == f"uuid:1@{SOURCE}"
            assert "<via>http://gateway:8080/msmq/private$/orders</via>" in receipt.envelope
            assert rig.manager.metrics.receipts_sent == {"delivery": 1}

    rig(tmp_path / "d", test, "http://127.0.0.1:*")


def test_what_is_owed_survives_a_restart(tmp_path: Path) -> None:
    async def before(rig: Rig) -> None:
        await rig.take(delivery_receipt_to="http://127.0.0.1:1/msmq/private$/r")
        await asyncio.sleep(0.3)
        assert owed(rig.manager) == 1

    async def after(rig: Rig) -> None:
        await until(
            lambda: (
                not rig.manager.receipts._owed[:1] or rig.manager.receipts._owed[0].attempts >= 1
            )
        )
        assert owed(rig.manager) == 1, "not delivered, so still owed"

    rig(tmp_path / "d", before, "http://127.0.0.1:*")
    rig(tmp_path / "d", after, "http://127.0.0.1:*")


def test_a_receipt_that_fails_is_tried_again_by_the_resend_table(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async with ReceiptsServer() as server:
            server.refuse_next = 2
            await rig.take(delivery_receipt_to=server.url("private$/r"))
            await until(lambda: owed(rig.manager) == 0)

    rig(tmp_path / "d", test, "http://127.0.0.1:*", resend_table="0.1")


def test_a_blocked_receipt_is_one_warning_with_the_flag_a_metric_and_a_line_in_status(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        for _ in range(3):
            await rig.take(delivery_receipt_to="http://169.254.169.254/latest")
        await rig.take(delivery_receipt_to="http://127.0.0.1:9@evil/q")
        await until(lambda: rig.manager.metrics.receipts_blocked == 4)
        assert rig.manager.receipts.blocked == {"169.254.169.254": 3, "(malformed)": 1}
        await rig.take(delivery_receipt_to="http://169.254.169.254:8080/latest")
        await until(lambda: rig.manager.metrics.receipts_blocked == 5)
        of_host = ["http://169.254.169.254", "http://169.254.169.254:8080"]
        assert rig.manager.receipts.blocked_patterns == {
            "169.254.169.254": of_host,
            "(malformed)": [],
        }

    rig(tmp_path / "d", test)
    warnings = [
        record.getMessage() for record in caplog.records if "receipt.blocked" in record.getMessage()
    ]
    assert len(warnings) == 3
    assert "--allow-url http://169.254.169.254" in warnings[0]


def test_a_host_that_has_no_address_is_as_visible_as_one_that_is_not_allowed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A NetBIOS name that only Windows knows: the sender waits for receipts that nobody can send."""

    async def test(rig: Rig) -> None:
        async def resolve(host: str, port: int) -> Sequence[str]:
            return []

        rig.manager.receipts._resolve = resolve
        for _ in range(2):
            await rig.take(delivery_receipt_to="http://machine1/msmq/private$/receipts")
        await until(lambda: rig.manager.receipts.blocked == {"machine1": 2})
        assert rig.manager.metrics.receipts_blocked == 2

    rig(tmp_path / "d", test)
    (warning,) = [
        record.getMessage() for record in caplog.records if "receipt.blocked" in record.getMessage()
    ]
    assert "make machine1 known to this host" in warning


def test_the_host_is_resolved_once_and_the_judged_address_is_called(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DNS rebinding: the second answer of the resolver would be another host."""
    asked: list[str] = []

    async def test(rig: Rig) -> None:
        async with ReceiptsServer() as server:
            port = server.port

            async def resolve(host: str, port: int) -> Sequence[str]:
                asked.append(host)
                return ["127.0.0.1"] if len(asked) == 1 else ["198.51.100.1"]

            rig.manager.receipts._resolve = resolve
            await rig.take(delivery_receipt_to=f"http://rebinding.example:{port}/msmq/private$/r")
            await until(lambda: server.receipts)
            assert asked == ["rebinding.example"]
            assert server.receipts[0].headers["host"] == f"rebinding.example:{port}"

    rig(tmp_path / "d", test, "http://rebinding.example:*")


def test_slow_names_of_one_peer_do_not_hold_up_the_stream_receipts_of_another(
    tmp_path: Path,
) -> None:
    async def test(rig: Rig) -> None:
        asked: list[str] = []

        async def resolve(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            if host.startswith("slow"):
                await asyncio.sleep(3_600)
            return ["127.0.0.1"]

        rig.manager.receipts._resolve = resolve
        async with ReceiptsServer() as server:
            honest = f"http://honest.example:{server.port}/msmq/private$/order_queue$"
            for n in range(20):
                await rig.take(
                    delivery_receipt_to=f"http://slow{n}.example/q", peer="198.51.100.1:5000"
                )
            for _ in range(
                20
            ):  # the attacker names the honest host too: that takes none of the host's turns
                await rig.take(
                    delivery_receipt_to=honest.replace("/msmq/", "/elsewhere/"),
                    peer="198.51.100.1:5000",
                )
            await until(lambda: asked)
            position = StreamPosition(StreamId(SOURCE, 1), 1, 0, True, honest)
            await rig.take(
                queue="private$/payments", stream=position, priority=0, peer="198.51.100.2:5000"
            )
            await until(lambda: server.receipts, 3)
            assert asked == ["slow0.example", "honest.example"]

    rig(tmp_path / "d", test, "http://honest.example:*/msmq/*")


def test_a_url_that_is_none_is_never_looked_up(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        asked: list[str] = []

        async def resolve(host: str, port: int) -> Sequence[str]:
            asked.append(host)
            return []

        rig.manager.receipts._resolve = resolve
        for url in (
            "http://a@b.example/q",
            "ftp://b.example/q",
            "http://b.example/../q",
            "http://b.example:99999/q",
        ):
            await rig.take(delivery_receipt_to=url)
        await until(lambda: rig.manager.metrics.receipts_blocked == 4)
        assert asked == []

    rig(tmp_path / "d", test)


@pytest.mark.parametrize("own", [True, False])
def test_one_host_gets_a_limited_number_a_second(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, own: bool
) -> None:
    rates = {
        "OWN_SENDER_RECEIPTS_PER_SECOND": 20.0 if own else 1e6,
        "HOST_RECEIPTS_PER_SECOND": 1e6 if own else 20.0,
    }
    for rate, value in rates.items():
        monkeypatch.setattr(receipts_sender, rate, value)
    monkeypatch.setattr(
        receipts_sender, "address_of", (lambda _: "the sender's") if own else (lambda _: object())
    )
    monkeypatch.setattr(receipts_sender, "HOST_PENDING_MAX", 5)

    async def test(rig: Rig) -> None:
        async with ReceiptsServer() as server:
            loop = asyncio.get_running_loop()
            begun = loop.time()
            for _ in range(30):
                await rig.take(delivery_receipt_to=server.url("private$/r"))
            await asyncio.sleep(0.5)
            assert 3 <= len(server.receipts) <= 20.0 * (loop.time() - begun) + 2
            assert len(server.receipts) + owed(rig.manager) >= 30, "what was not sent is still owed"

    rig(tmp_path / "d", test, "http://127.0.0.1:*")


def test_a_flood_beyond_the_limit_is_dropped_and_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts_sender, "OWED_MAX", 10)

    async def test(rig: Rig) -> None:
        for _ in range(25):
            await rig.take(delivery_receipt_to="http://192.0.2.99/q")
        await until(lambda: rig.manager.metrics.receipts_dropped == 15 and owed(rig.manager) == 10)

    rig(tmp_path / "d", test)


def test_a_stream_receipt_comes_half_a_second_after_the_last_message(tmp_path: Path) -> None:
    async def test(rig: Rig) -> None:
        async with ReceiptsServer() as server:
            for current in (1, 2, 3):
                to = (
                    server.url("private$/order_queue$", "?SenderStream=XRntV")
                    if current == 1
                    else None
                )
                position = StreamPosition(
                    StreamId(SOURCE, 1), current, current - 1, current == 1, to
                )
                await rig.take(queue="private$/payments", stream=position, priority=0)
            await asyncio.sleep(0.3)
            assert server.receipts == []
            await until(lambda: server.receipts)
            assert [(each.stream_id, each.last_ordinal) for each in server.receipts] == [
                (f"uid:{SOURCE}\\1", 3)
            ]
            (receipt,) = server.receipts
            assert receipt.target == "/msmq/private$/order_queue$?SenderStream=XRntV", (
                "3.1.6.3: the sender's order queue"
            )
            assert (receipt.to, receipt.headers["host"]) == (
                server.url("private$/order_queue$", "?SenderStream=XRntV"), f"127.0.0.1:{server.port}",
            )  # fmt: skip
            await until(lambda: next(iter(rig.manager.receiver.streams)).last_acknowledged == 3)

    rig(tmp_path / "d", test, "http://127.0.0.1:*")


def test_numbers_of_receipts_are_never_used_twice(tmp_path: Path) -> None:
    seen: list[int] = []

    async def test(rig: Rig) -> None:
        seen.extend([await rig.manager.identifiers.take() for _ in range(3)])

    rig(tmp_path / "d", test)
    rig(tmp_path / "d", test)
    assert len(set(seen)) == 6
    assert seen == sorted(seen)
    assert seen[0] == 1, "a new directory has given out none (3.1.3.1)"


def test_a_receipt_for_which_no_number_is_left_stays_owed_and_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(rig: Rig) -> None:
        async with ReceiptsServer() as server:
            rig.manager.receipts._identifiers = Identifiers(
                rig.manager.journal, "message_id", IDENTIFIER_MAX
            )
            await rig.take(delivery_receipt_to=server.url("private$/r"))
            await until(lambda: "receipt.not_made" in caplog.text)
            await until(lambda: not rig.manager.receipts._tasks)
            assert [(each.id, each.attempts > 0) for each in rig.manager.receipts._owed] == [
                (1, True)
            ], "it is tried again"
            assert owed(rig.manager) == 1
            assert "begin a new data directory" in caplog.text
            assert "Traceback" not in caplog.text
            assert server.receipts == []

    rig(tmp_path / "d", test, "http://127.0.0.1:*")


# --- four days, whatever the wall clock says ---------------------------------------------------------------------------------

DAY = 86_400.0
UNREACHABLE = "http://127.0.0.1:1/msmq/private$/r"


async def settled(rig: Rig, clock: SetClock, seconds: float) -> None:
    """Let ``seconds`` go by, and what is due then be done."""
    await until(lambda: rig.manager.receipts._owed or owed(rig.manager) == 0)
    clock.passed += seconds
    rig.manager.receipts._owed_due()
    await until(lambda: not rig.manager.receipts._tasks)
    await rig.manager.journal.drain()


def over(
    directory: Path, clock: SetClock, *steps: tuple[float, float], take: bool = False
) -> list[int]:
    """Start; for each step (seconds that pass, how wrong the wall clock is by then): how many receipts are owed after it."""
    seen: list[int] = []

    async def test(rig: Rig) -> None:
        if take:
            await rig.take(delivery_receipt_to=UNREACHABLE)
        for seconds, wrong in steps:
            clock.wrong = wrong
            await settled(rig, clock, seconds)
            seen.append(owed(rig.manager))

    rig(directory, test, "http://127.0.0.1:*", clock=clock)
    return seen


@pytest.mark.parametrize(
    "wrong", [0.0, 3650 * DAY, -3650 * DAY], ids=["right", "ten years ahead", "ten years back"]
)
def test_a_receipt_is_given_up_after_four_days_however_the_wall_clock_is_set_meanwhile(
    tmp_path: Path, wrong: float
) -> None:
    assert over(
        tmp_path / "d", SetClock(), (DAY, wrong), (2.9 * DAY, wrong), (0.2 * DAY, wrong), take=True
    ) == [1, 1, 0]


def test_a_receipt_of_a_time_when_the_clock_was_ahead_is_given_up_four_days_after_the_next_start(
    tmp_path: Path,
) -> None:
    clock = SetClock()
    assert over(tmp_path / "d", clock, (0, 3650 * DAY), take=True) == [1]
    assert over(tmp_path / "d", clock, (3.9 * DAY, 0), (0.2 * DAY, 0)) == [1, 0]


def test_a_start_under_a_clock_that_is_ahead_gives_time_to_set_it_right(tmp_path: Path) -> None:
    clock = SetClock()
    assert over(tmp_path / "d", clock, (0, 0), take=True) == [1]
    clock.wrong = 3650 * DAY
    hour = 3600.0
    assert over(
        tmp_path / "d", clock, (5 * hour, 3650 * DAY), (2 * hour, 0), (3 * DAY, 0), (DAY, 0)
    ) == [1, 1, 1, 0]


def test_what_is_old_is_tried_for_six_hours_after_a_start_and_then_given_up(tmp_path: Path) -> None:
    """So a machine that is started every night does not keep it for ever."""
    clock = SetClock()
    assert over(tmp_path / "d", clock, (0, 0), take=True) == [1]
    clock.passed += 30 * DAY
    assert over(tmp_path / "d", clock, (3600, 0), (6 * 3600, 0)) == [1, 0]
