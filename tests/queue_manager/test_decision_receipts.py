"""Commitment receipts and final stream receipts of a queue manager: when, to whom, once, and through every restart."""

from __future__ import annotations

import asyncio
import shutil
import socket
from pathlib import Path
from typing import Any

import pytest
from test_receipts_sender import SOURCE, Recorder, Rig, SetClock, rig, until

from srmp_spark.errors import ApiError
from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.queue_manager.api.give_up import GiveUpApi
from srmp_spark.queue_manager.receipts import decision_receipts
from srmp_spark.rows.group import Record
from srmp_spark.srmp.receiving.decisions import Reason, undecided_of
from srmp_spark.srmp.receiving.effects import Repeated
from srmp_spark.srmp.receiving.stream_effects import RepeatKind
from srmp_spark.testing.foreign.messages import ForeignReceipt
from tests.kit.foreign.http import ReceiptsServer

with socket.create_server(("127.0.0.1", 0)) as free:
    PORT = free.getsockname()[1]
ALLOW = "http://127.0.0.1:*"
ORDERS, PAYMENTS = "private$/orders", "private$/payments"
NOBODY = "http://127.0.0.1:1/msmq/private$/admin"


def both(url: str) -> dict[str, Any]:
    return {"commitment_receipt_to": url, "commitment_positive": True, "commitment_negative": True}


def place(current: int, to: str | None, *, ordinal: int = 7) -> dict[str, Any]:
    position = StreamPosition(
        StreamId(SOURCE, ordinal), current, current - 1, current == 1, to if current == 1 else None
    )
    return {"queue": PAYMENTS, "stream": position, "dead_letter": True, "priority": 0}


async def mark(
    it: Rig,
    to: int,
    queue: str = ORDERS,
    reason: Reason = Reason.RECEIVED,
    *,
    consumer: str = "default",
) -> None:
    found = it.manager.catalogue.find(queue)
    await it.manager.leases.register(found, consumer, "A", None, asyncio.Event())
    await it.manager.leases.received(
        found, found.span(None), consumer, "A", to, None, reason=reason
    )


def left(it: Rig, table: str = "decided_receipts") -> int:
    return int(it.manager.directory.writer.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def told(receipts: list[ForeignReceipt]) -> list[tuple[str | None, str | None, int]]:
    return [
        (each.commitment_of, each.decision, each.message_class)
        for each in receipts
        if each.decision
    ]


class TestReasons:
    @pytest.mark.parametrize(
        ("how", "decision", "number"),
        [
            ("received", "positive", 0x4000), ("purged", "negative", 0xC001), ("deleted", "negative", 0xC000),
            ("given up", "negative", 0x8001), ("rejected", "negative", 0xC004),
        ],
    )  # fmt: skip
    def test_each_way_out_of_the_queue(
        self, tmp_path: Path, how: str, decision: str, number: int
    ) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                await it.take(**both(server.url("private$/admin")))
                await asyncio.sleep(0.2)
                assert server.receipts == [], "nothing is decided yet"
                if how == "received":
                    await mark(it, 1)
                elif how == "rejected":
                    await mark(it, 1, reason=Reason.REJECTED)
                elif how == "purged":
                    assert await it.manager.queues.purge(ORDERS) == 1
                elif how == "deleted":
                    await it.manager.queues.delete(ORDERS)
                else:
                    request: Any = type(
                        "R",
                        (),
                        {
                            "parameters": {"queue": ORDERS},
                            "required_integer": lambda s, n: 1,
                            "integer": lambda s, n: 1,
                        },
                    )()
                    await GiveUpApi(it.manager).post(request)
                await until(lambda: server.receipts and left(it) == 0)
                assert told(server.receipts) == [(f"uuid:1@{SOURCE}", decision, number)]
                assert server.receipts[0].action == "MSMQ:a label"
                assert it.manager.metrics.receipts_sent == {"commitment": 1}

        rig(tmp_path / "d", test, ALLOW)

    @pytest.mark.parametrize(
        ("kind", "number"), [("expired", 0xC002), ("invalid-signature", 0xC004)]
    )
    def test_a_message_that_is_discarded(
        self, tmp_path: Path, kind: RepeatKind, number: int
    ) -> None:
        """NackReceiveTimeout, NackReceiveRejected; what finds it too old, or its signature wrong, is not here."""

        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                arrival = Arrival(it.manager.clock.utc(), "http", "127.0.0.1:5000")
                message = Message("http://localhost/msmq/private$/orders", "MSMQ:late", SOURCE, 9, has_msmq=True,
                                  **both(server.url("private$/admin")))  # fmt: skip
                row = undecided_of(message, ORDERS, 0, arrival)
                waiting = Recorder()
                outcome = Repeated(ORDERS, kind, None, 0, discarded=row)
                it.manager.acceptor._submit(outcome, Record(arrival, b"POST", 4), waiting)
                await waiting.stored.wait()
                await until(lambda: server.receipts and left(it) == 0)
                assert told(server.receipts) == [(f"uuid:9@{SOURCE}", "negative", number)]
                assert it.manager.metrics.refused == {("200", kind): 1}

        rig(tmp_path / "d", test, ALLOW)

    def test_another_consumer_decides_nothing(self, tmp_path: Path) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                await it.take(**both(server.url("private$/admin")))
                await mark(it, 1, consumer="audit")
                await asyncio.sleep(0.3)
                assert (server.receipts, left(it, "undecided")) == ([], 1)

        rig(tmp_path / "d", test, ALLOW)

    def test_what_is_marked_and_not_saved_yet_is_received_and_not_purged_or_deleted(
        self, tmp_path: Path
    ) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                for _ in range(4):
                    await it.take(**both(server.url("private$/admin")))
                found = it.manager.catalogue.find(ORDERS)
                await it.manager.leases.register(found, "default", "A", None, asyncio.Event())
                delete = asyncio.create_task(it.manager.queues.delete(ORDERS))
                # The deletion is first in line; the mark is made before it runs.
                marks = asyncio.create_task(
                    it.manager.leases.received(found, found.span(None), "default", "A", 2, None)
                )
                await asyncio.gather(marks, delete)
                await until(lambda: len(server.receipts) == 4 and left(it) == 0)
                assert [each[1] for each in sorted(told(server.receipts))] == ["positive"] * 2 + [
                    "negative"
                ] * 2

        rig(tmp_path / "d", test, ALLOW)


class TestFinalStreamReceipts:
    def test_after_the_stream_receipt_to_the_order_queue_of_the_stream(
        self, tmp_path: Path
    ) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                for current in (1, 2, 3):
                    await it.take(**place(current, server.url()))
                await mark(it, 2, PAYMENTS)
                await it.manager.queues.purge(PAYMENTS)
                await until(lambda: len(told(server.receipts)) == 3)
                assert [each.decision for each in server.receipts] == [
                    None,
                    "positive",
                    "positive",
                    "negative",
                ]
                stream = server.receipts[0]
                assert stream.last_ordinal == 3
                assert [each.last_ordinal for each in server.receipts[1:]] == [1, 2, 3]
                assert {each.stream_id for each in server.receipts} == {f"uid:{SOURCE}\\7"}
                assert {each.action for each in server.receipts} == {"MSMQ:QM Ordering Ack"}
                await until(lambda: left(it) == 0)

        rig(tmp_path / "d", test, ALLOW)

    def test_beside_a_commitment_receipt_with_the_same_decision(self, tmp_path: Path) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                await it.take(**place(1, server.url()), **both(server.url("private$/admin")))
                await mark(it, 1, PAYMENTS)
                await until(lambda: len(told(server.receipts)) == 2)
                assert {each.decision for each in server.receipts if each.decision} == {"positive"}

        rig(tmp_path / "d", test, ALLOW)

    def test_a_message_that_comes_again_in_a_new_stream_is_told_of_there(
        self, tmp_path: Path
    ) -> None:
        """Neither receipt of the old stream arrived, so its sender gave it up; the row is decided by then."""

        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                await it.take(**place(1, NOBODY))
                await mark(it, 1, PAYMENTS)
                await asyncio.sleep(0.3)
                it.numbers = iter([1])
                await it.take(**place(1, server.url(), ordinal=8))
                await until(lambda: told(server.receipts))
                (final,) = (each for each in server.receipts if each.decision)
                assert (final.stream_id, final.last_ordinal) == (f"uid:{SOURCE}\\8", 1)
                await until(lambda: left(it) == 0)
                assert it.manager.catalogue.find(PAYMENTS).end == 1

        rig(tmp_path / "d", test, ALLOW)

    def test_what_a_sender_may_have_discarded_is_told_again_under_another_identifier(
        self, tmp_path: Path
    ) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                await it.take(**place(1, server.url()))
                it.manager.receiver.drop_stream(PAYMENTS, SOURCE)
                await mark(it, 1, PAYMENTS)
                await until(lambda: told(server.receipts))
                it.numbers = iter([1])
                await it.take(**place(1, server.url(), ordinal=8))
                await until(lambda: len(told(server.receipts)) == 2)
                first, second = (each for each in server.receipts if each.decision)
                assert (first.stream_id, second.stream_id) == (
                    f"uid:{SOURCE}\\7",
                    f"uid:{SOURCE}\\8",
                )
                assert identifier(first) != identifier(second)

        rig(tmp_path / "d", test, ALLOW)

    def test_what_came_too_late_to_a_stream_is_told_of_and_the_stream_goes_on(
        self, tmp_path: Path
    ) -> None:
        """``--expired refuse``: NackReceiveTimeout, after the stream receipt that covers the position."""

        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                await it.take(**place(1, server.url()))
                await it.take(
                    **place(2, None), time_to_reach_queue=1, **both(server.url("private$/admin"))
                )
                await it.take(**place(3, None))
                await until(lambda: len(told(server.receipts)) == 2)
                commitment, stream, final = server.receipts
                assert {(each.decision, each.message_class) for each in (commitment, final)} == {
                    ("negative", 0xC002)
                }
                assert (stream.decision, stream.last_ordinal) == (None, 3)
                assert commitment.commitment_of == f"uuid:2@{SOURCE}"
                assert (final.stream_id, final.last_ordinal) == (f"uid:{SOURCE}\\7", 2)
                await until(lambda: left(it) == 0)
                assert it.manager.catalogue.find(PAYMENTS).end == 2, (
                    "rows of 1 and 3, which are not decided"
                )
                assert left(it, "undecided") == 2

        rig(tmp_path / "d", test, ALLOW, expired="refuse")

    def test_it_may_come_again_in_the_next_stream_before_that_is_stored(
        self, tmp_path: Path
    ) -> None:
        """Its sender discards what names a stream that it gave up: one commit, and the receipt names the new place alone."""

        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                late = {"time_to_reach_queue": 1}
                it.numbers = iter([1, 1])
                both_places = asyncio.gather(
                    it.take(**place(1, server.url()), **late),
                    it.take(**place(1, server.url(), ordinal=8), **late),
                )
                await asyncio.sleep(0)
                assert len(it.manager.acceptor._waiting._items) == 2, "one commit"
                await both_places
                await until(lambda: told(server.receipts) and left(it) == 0)
                assert [each.stream_id for each in server.receipts if each.decision] == [
                    f"uid:{SOURCE}\\8"
                ]

        rig(tmp_path / "d", test, ALLOW, expired="refuse")


def identifier(receipt: ForeignReceipt) -> str:
    return receipt.envelope.partition("<id>")[2].partition("</id>")[0]


class TestDelivery:
    def test_one_identifier_and_the_same_bytes_over_repeats_and_restarts(
        self, tmp_path: Path
    ) -> None:
        """The peer keeps it and its answer is lost: it drops the repeat by the identifier (3.1.5.1.11)."""
        seen: list[str] = []

        def life(lost: int) -> None:
            async def test(it: Rig) -> None:
                async with ReceiptsServer(port=PORT, lose_next=lost) as server:
                    if not seen:
                        await it.take(**both(server.url("private$/admin")))
                        await mark(it, 1)
                    await until(lambda: len(server.receipts) >= (2 if lost else 1), 10)
                    seen.extend(each.envelope for each in server.receipts)
                    if not lost:
                        await until(lambda: left(it) == 0)

            rig(tmp_path / "d", test, ALLOW, resend_table="0.1")

        life(lost=1_000)
        life(lost=0)
        assert len(seen) >= 3
        assert len(set(seen)) == 1

    def test_a_decision_that_was_not_expanded_before_the_end_is_by_the_next_start(
        self, tmp_path: Path
    ) -> None:
        async def before(it: Rig) -> None:
            for _ in range(3):
                await it.take(**both(f"http://127.0.0.1:{PORT}/msmq/private$/admin"))
            await it.manager.decision_receipts.close()
            await mark(it, 3)
            assert (left(it, "undecided"), left(it, "decisions")) == (3, 1)

        async def after(it: Rig) -> None:
            async with ReceiptsServer(port=PORT) as server:
                await until(lambda: len(server.receipts) == 3 and left(it) == 0, 10)
                assert [each[0] for each in told(server.receipts)] == [
                    f"uuid:{n}@{SOURCE}" for n in (1, 2, 3)
                ]

        rig(tmp_path / "d", before, ALLOW, resend_table="0.1")
        rig(tmp_path / "d", after, ALLOW, resend_table="0.1")

    def test_a_host_that_is_away_and_a_url_that_nobody_allows_cost_the_others_nothing(
        self, tmp_path: Path
    ) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                for n in range(60):
                    url = (NOBODY, "http://[::1]:9/msmq/a", server.url("private$/admin"))[n % 3]
                    await it.take(**both(url))
                await mark(it, 60)
                await until(lambda: len(server.receipts) == 20)
                await until(lambda: left(it) == 40)
                assert it.manager.receipts.blocked == {"::1": 1}

        rig(tmp_path / "d", test, ALLOW)

    def test_400_is_for_good(self, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                server.refuse_next, server.refuse_status = 1, 400
                await it.take(**both(server.url("private$/admin")))
                await mark(it, 1)
                await until(lambda: "receipt.refused" in caplog.text and left(it) == 0)
                assert server.receipts == []

        rig(tmp_path / "d", test, ALLOW)

    def test_after_four_days_its_time_is_over(self, tmp_path: Path) -> None:
        """``<TTrq>`` of the samples; nobody ends it by setting the wall clock, nor by a restart under a wrong one."""
        clock = SetClock()

        async def before(it: Rig) -> None:
            await it.take(**both(NOBODY))
            await mark(it, 1)
            clock.wrong = 10 * 86_400.0
            await asyncio.sleep(0.5)
            assert left(it) == 1

        async def after(it: Rig) -> None:
            await asyncio.sleep(0.3)
            assert left(it) == 1, "a wrong clock at the start"
            clock.passed += decision_receipts.FOUND_TRIED_SECONDS
            await until(lambda: left(it) == 0)
            assert it.manager.metrics.receipts_dropped == 1

        rig(tmp_path / "d", before, ALLOW, clock=clock, resend_table="0.1")
        rig(tmp_path / "d", after, ALLOW, clock=clock, resend_table="0.1")

    @pytest.mark.parametrize("limit", ["LANES_MAX", "PEER_LANES_MAX"])
    def test_lanes_beyond_the_limit_wait_for_their_turn(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str
    ) -> None:
        monkeypatch.setattr(decision_receipts, limit, 2)
        monkeypatch.setattr(decision_receipts, "LOOK_SECONDS", 0.05)

        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                for n in range(9):
                    await it.take(**both(server.url(f"private$/admin{n}")))
                await mark(it, 9)
                await until(lambda: len(server.receipts) == 9 and left(it) == 0, 10)

        rig(tmp_path / "d", test, ALLOW)

    def test_a_sender_that_names_dead_addresses_holds_up_nobody_else(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(decision_receipts, "PEER_LANES_MAX", 2)

        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                for n in range(9):
                    await it.take(
                        **both(f"http://127.0.0.1:1/msmq/private$/a{n}"), peer="192.0.2.1:9"
                    )
                await it.take(**both(server.url("private$/admin")))
                await mark(it, 10)
                await until(lambda: (len(server.receipts), left(it)) == (1, 9))

        rig(tmp_path / "d", test, ALLOW)

    @pytest.mark.parametrize("peer_lanes_max", [decision_receipts.PEER_LANES_MAX, 1])
    def test_behind_one_address_a_sender_holds_up_no_other(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, peer_lanes_max: int
    ) -> None:
        """A URL whose host is the TLS name of one sender is allowed to that one alone: each has its lane, and its limit."""
        monkeypatch.setattr(decision_receipts, "PEER_LANES_MAX", peer_lanes_max)

        async def test(it: Rig) -> None:
            tried: list[tuple[str | None, bool]] = []

            async def deliver(
                url: str, build: object, *, peer: str, sender_name: str | None, first: bool
            ) -> str:
                tried.append((sender_name, first))
                return "delivered" if sender_name == "CN=machine1" else "failed"

            monkeypatch.setattr(it.manager.receipts, "deliver", deliver)
            for name in (None, "CN=machine2", "CN=machine1") * 3:
                await it.take(
                    **both("https://machine1/msmq/private$/admin"),
                    peer="192.0.2.9:5",
                    sender_name=name,
                )
            await mark(it, 9)
            await until(lambda: left(it) == 6)
            assert [name for name, _ in tried].count("CN=machine1") == 3
            assert {name for name, first in tried if first} == {None, "CN=machine1", "CN=machine2"}

        rig(tmp_path / "d", test)

    def test_many_go_out_in_the_order_of_their_decisions(self, tmp_path: Path) -> None:
        async def test(it: Rig) -> None:
            async with ReceiptsServer() as server:
                for _ in range(350):
                    await it.take(**both(server.url("private$/admin")))
                await mark(it, 350)
                await until(lambda: left(it) == 0 and left(it, "undecided") == 0, 15)
                assert len(server.receipts) == 350
                assert len({identifier(each) for each in server.receipts}) == 350
                assert {each[0] for each in told(server.receipts)} == {
                    f"uuid:{n}@{SOURCE}" for n in range(1, 351)
                }

        rig(tmp_path / "d", test, ALLOW)


def test_a_rejection_is_a_word_of_the_default_consumer_alone(tmp_path: Path) -> None:
    from srmp_spark.queue_manager.api.consumers import ConsumersApi

    async def test(it: Rig) -> None:
        await it.take(**both(NOBODY))
        found = it.manager.catalogue.find(ORDERS)
        for consumer in ("default", "audit"):
            await it.manager.leases.register(found, consumer, "A", None, asyncio.Event())

        async def reject(consumer: str, value: object) -> None:
            async def json_object(_limit: int) -> dict[str, Any]:
                return {"holder": "A", "to": 1, "rejected": value}

            request: Any = type("R", (), {"parameters": {"queue": ORDERS, "consumer": consumer}})()
            request.json_object = json_object
            await ConsumersApi(it.manager).received(request)

        for consumer, value in (("audit", True), ("default", 1)):
            with pytest.raises(ApiError) as refused:
                await reject(consumer, value)
            assert refused.value.status == 400
        await reject("default", True)
        await until(lambda: left(it) == 1)
        assert it.manager.directory.writer.execute(
            "SELECT reason FROM decided_receipts"
        ).fetchone() == (0xC004,)

    rig(tmp_path / "d", test)


def test_a_held_copy_sends_no_receipt_of_any_kind_until_it_is_activated(tmp_path: Path) -> None:
    """Of a stream, of a delivery, of a decision: one of each was due when the copy was told to live."""

    async def nothing(_: Rig) -> None:
        return

    async def test(it: Rig) -> None:
        async with ReceiptsServer() as server:
            to = server.url("private$/r")
            await it.take(delivery_receipt_to=to, **both(to))
            await it.take(**place(1, to))
            await mark(it, 1)
            due = it.manager.receiver.next_timer()
            assert due is not None
            await until(lambda: it.manager.clock.monotonic() > due + 0.2)
            assert it.manager.activation.held is not None
            assert server.receipts == []
            remote: Any = type("NoSubscriptions", (), {"resume_all": staticmethod(nothing_async)})()
            held = await it.manager.activation.activate(remote)
            assert held is not None
            await until(lambda: len(server.receipts) >= 3)
            kinds = {
                "stream" if each.last_ordinal is not None else
                "delivery" if each.delivery_of is not None else "commitment"
                for each in server.receipts
            }  # fmt: skip
            assert kinds == {"stream", "delivery", "commitment"}
            assert it.manager.activation.held is None

    async def nothing_async() -> None:
        return

    rig(tmp_path / "d", nothing, ALLOW)
    shutil.copytree(tmp_path / "d", tmp_path / "copy")
    rig(tmp_path / "copy", test, ALLOW)
