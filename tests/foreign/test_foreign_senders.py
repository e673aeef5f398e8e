"""The foreign senders against a stub: they must be right before they may judge anybody."""

from __future__ import annotations

import asyncio
import collections
import json

import pytest
from stub_receiver import StubReceiver

from srmp_spark.testing.foreign.messages import Dialect
from tests.kit.foreign.http import NoAnswerError, ReceiptsServer, Wire
from tests.kit.foreign.ledger import Ledger, digest
from tests.kit.foreign.senders import Faults, ForeignQueueManager, MessageSender
from tests.kit.foreign.stream_sender import StreamSender

ALL_FAULTS = Faults(lost_reply=0.08, duplicate=0.08, reorder=0.1, ghost=0.08, expire=0.1)
"""Of 120 messages none expires in one run of 300,000."""


def manager_of(
    stub: StubReceiver, ledger: Ledger, receipts: ReceiptsServer, seed: int = 1
) -> ForeignQueueManager:
    manager = ForeignQueueManager(
        endpoint=lambda: ("127.0.0.1", stub.port),
        ledger=ledger,
        receipts_url=receipts.url(),
        seed=seed,
        retransmission_timeout=0.02,
        resend_table=(0.4, 0.4, 0.8),
        reply_timeout=5.0,
    )
    receipts.on_receipt = manager.on_receipt
    return manager


def bodies(prefix: str, count: int) -> list[bytes]:
    return [f"{prefix} {number}".encode() for number in range(1, count + 1)]


def test_regular_and_durable_messages_each_arrive_once_in_spite_of_lost_replies_duplicates_and_late_copies() -> (
    None
):
    async def run() -> tuple[Ledger, StubReceiver]:
        ledger = Ledger()
        async with StubReceiver() as stub, ReceiptsServer() as receipts:
            sender = MessageSender(
                manager_of(stub, ledger, receipts), "private$/orders", faults=ALL_FAULTS
            )
            await sender.run(
                [(body, number % 2 == 0) for number, body in enumerate(bodies("order", 200))],
                rate=2000,
            )
            return ledger, stub

    ledger, stub = asyncio.run(run())
    assert ledger.sent == ledger.count("acknowledged_at") == len(stub.rows) == 200
    assert {row[3] for row in stub.rows} == set(bodies("order", 200))
    assert ledger.faults["lost reply"] > 0
    assert ledger.faults["duplicate"] > 0
    assert ledger.faults["ghost"] > 0
    assert sum(entry.attempts for entry in ledger.entries.values()) > 200
    assert len(stub.posts) > 200


def test_two_streams_of_one_sender_arrive_complete_and_in_order_with_every_fault_on() -> None:
    async def run() -> tuple[Ledger, StubReceiver, list[StreamSender]]:
        ledger = Ledger()
        async with StubReceiver() as stub, ReceiptsServer() as receipts:
            manager = manager_of(stub, ledger, receipts)
            senders = [
                StreamSender(manager, queue, faults=ALL_FAULTS, dialect=dialect)
                for queue, dialect in (
                    ("private$/a", Dialect.EXAMPLES),
                    ("private$/b", Dialect.TEXT),
                )
            ]
            for sender in senders:
                for body in bodies(sender.queue, 60):
                    sender.enqueue(body)
                sender.close()
            await asyncio.gather(*(sender.run() for sender in senders))
            return ledger, stub, senders

    ledger, stub, senders = asyncio.run(run())
    assert ledger.violations == []
    assert ledger.count("receipted_at", "stream") == ledger.sent == 120
    for sender in senders:
        assert [row[3] for row in stub.rows if row[0] == sender.queue] == bodies(sender.queue, 60)
        assert sender.streams_started == 1
    assert ledger.faults["reorder"] > 0
    assert ledger.faults["expired unsent"] > 0


def test_a_new_stream_with_a_higher_number_starts_when_everything_was_receipted() -> None:
    """3.1.1.2: "the protocol MUST increment the Stream.ID.Ordinal by 1 and reset the Stream.SequenceNumber to zero"."""

    async def run() -> tuple[Ledger, StubReceiver, StreamSender]:
        ledger = Ledger()
        async with StubReceiver() as stub, ReceiptsServer() as receipts:
            sender = StreamSender(manager_of(stub, ledger, receipts), "private$/a")
            running = asyncio.create_task(sender.run())
            for burst in range(3):
                for body in bodies(f"burst {burst}", 4):
                    sender.enqueue(body)
                while sender.unreceipted:
                    await asyncio.sleep(0.01)
            sender.close()
            await running
            return ledger, stub, sender

    ledger, stub, sender = asyncio.run(run())
    ids = list(dict.fromkeys(entry.stream_id for entry in ledger.entries.values()))
    numbers = [int(str(identifier).split("\\")[1]) for identifier in ids]
    assert sender.streams_started == 3
    assert numbers == sorted(set(numbers))
    assert [entry.position for entry in ledger.entries.values()] == [1, 2, 3, 4] * 3
    assert sum(b"<start>" in post for post in stub.posts) == 3


def test_a_lost_receipt_makes_the_sender_send_again_after_the_resend_interval() -> None:
    async def run() -> tuple[Ledger, StubReceiver]:
        ledger = Ledger()
        async with StubReceiver(silent_receipts=1) as stub, ReceiptsServer() as receipts:
            sender = StreamSender(manager_of(stub, ledger, receipts), "private$/a")
            sender.enqueue(b"one")
            sender.close()
            await sender.run()
            return ledger, stub

    ledger, stub = asyncio.run(run())
    assert ledger.faults["resent for want of a receipt"] == 1
    assert len(stub.posts) == 2
    assert stub.posts[0] == stub.posts[1], "sentAt and all else stay as they were (2.2.5.1.2)"
    assert len(stub.rows) == 1


def test_a_refused_position_answered_200_is_not_taken_for_an_acknowledgement() -> None:
    async def run() -> Ledger:
        ledger = Ledger()
        async with StubReceiver(silent_receipts=1000) as stub, ReceiptsServer() as receipts:
            sender = StreamSender(
                manager_of(stub, ledger, receipts),
                "private$/a",
                faults=Faults(reorder=1.0),
                window=3,
            )
            for body in bodies("x", 3):
                sender.enqueue(body)
            running = asyncio.create_task(sender.run())
            while len(stub.posts) < 3:
                await asyncio.sleep(0.01)
            await asyncio.sleep(0.05)
            running.cancel()
            return ledger

    ledger = asyncio.run(run())
    assert all(entry.answered_at is not None for entry in ledger.entries.values())
    acknowledged = {
        entry.position for entry in ledger.entries.values() if entry.acknowledged_at is not None
    }
    assert acknowledged == {1, 2}


def test_503_is_tried_again_and_400_is_final() -> None:
    async def run() -> tuple[Ledger, StubReceiver]:
        ledger = Ledger()
        async with (
            StubReceiver(status_next=[503, 503, 200, 400]) as stub,
            ReceiptsServer() as receipts,
        ):
            sender = MessageSender(
                manager_of(stub, ledger, receipts), "private$/orders", connections=1
            )
            await sender.run([(b"first", False), (b"second", False)], rate=1000)
            return ledger, stub

    ledger, stub = asyncio.run(run())
    first, second = ledger.entries.values()
    assert (first.attempts, first.refused) == (3, None)
    assert first.acknowledged_at is not None
    assert (second.attempts, second.refused, second.acknowledged_at) == (1, 400, None)
    assert ledger.answers == collections.Counter({"503": 2, "200": 1, "400": 1})
    assert [row[3] for row in stub.rows] == [b"first"]


def test_the_ledger_file_tells_what_happened_as_it_happened(tmp_path) -> None:
    async def run() -> None:
        ledger = Ledger(path=tmp_path / "ledger.jsonl")
        async with StubReceiver() as stub, ReceiptsServer() as receipts:
            sender = MessageSender(
                manager_of(stub, ledger, receipts), "private$/orders", connections=1
            )
            await sender.run([(b"first", False)], rate=1000)
        ledger.close()

    asyncio.run(run())
    lines = [json.loads(line) for line in (tmp_path / "ledger.jsonl").read_text().splitlines()]
    assert [line["event"] for line in lines] == ["sent", "answered", "acknowledged"]
    assert lines[1]["status"] == 200


def test_a_wire_whose_receiver_dies_has_no_answer_and_dials_again() -> None:
    async def run() -> tuple[int, int]:
        async with StubReceiver(crash_after=1) as stub:
            ledger = Ledger()
            async with ReceiptsServer() as receipts:
                manager = manager_of(stub, ledger, receipts)
                item = MessageSender(manager, "private$/q").write(b"x", durable=False)
                wire = Wire(lambda: ("127.0.0.1", stub.port), reply_timeout=5)
                await wire.exchange(item.raw)
                with pytest.raises(NoAnswerError):
                    await wire.exchange(item.raw)
                answer = await wire.exchange(item.raw)
                await wire.close()
                return answer.status, wire.dials

    assert asyncio.run(run()) == (200, 2)


def test_digest_tells_bodies_apart() -> None:
    assert digest(b"a") != digest(b"b")
