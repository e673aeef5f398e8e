"""The foreign destination does what its schedule says, remembers what it must, and its receipts are those of chapter 4."""

from __future__ import annotations

import asyncio
import json
import random
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from dialogue import ORDINAL, QUEUE, SENDER, OrderQueue, Sender

from srmp_spark.testing.foreign.destination_verdict import judge_record
from srmp_spark.testing.foreign.faults import Fate, Faults
from srmp_spark.testing.foreign.form import ReceivedHead, remarks
from srmp_spark.testing.foreign.incoming import MalformedError, read_message
from srmp_spark.testing.foreign.ports import KeptPort
from srmp_spark.testing.foreign.receipts_out import correlation_of
from tests.kit.foreign.destination import Destination, main
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import ForeignQueueManager
from tests.kit.foreign.stream_sender import StreamSender

SAMPLES = Path(__file__).resolve().parent.parent / "data" / "srmp"


def currents(peer: Destination) -> list[int]:
    return [message.current for message in peer.queues.get(QUEUE, [])]


# -- reading


def test_the_bytes_of_4_5_are_read_by_their_lengths() -> None:
    head, content = (
        (SAMPLES / "mqsrm_4.5_pgm_bytes_reconstructed.bin").read_bytes().split(b"\r\n\r\n", 1)
    )
    content_type = re.search(rb"Content-Type: (.*)", head)
    assert content_type
    message = read_message(content_type[1].decode().strip(), content)
    assert (message.lineage, message.uniquifier) == (SENDER, 4494)
    assert message.body.decode("utf-16-le") == "ardenwhite"
    assert message.label == "mqsender label"
    assert message.to == "MSMQ:MULTICAST=234.1.1.1:8001"
    assert (len(message.envelope), len(content)) == (779, 1067)


def test_the_stream_of_4_4_is_accepted_and_receipted_and_its_oddities_are_named() -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=0.05, clock=lambda: 1182272400.0) as peer:  # 2007-06-19T17:00:00
        s = Sender(peer.port)
        for number in (1, 2, 3):
            text = (
                (SAMPLES / f"mqsrm_4.4_stream_{number}_as_printed.txt")
                .read_bytes()
                .replace(b"<b>SenderStream=XRntV</b>", b"")
            )
            text = text.replace(b"http://machine1/MSMQ/private$/receipts", orders.url.encode())
            head, first, rest = text.split(b"\r\n\r\n", 2)
            end = rest.index(b"</se:Envelope>") + 14
            first = re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % end, first)
            content = first + b"\r\n\r\n" + rest
            assert (
                s.say(
                    re.sub(rb"Content-Length: \d+", b"Content-Length: %d" % len(content), head)
                    + b"\r\n\r\n"
                    + content
                )
                == 200
            )
        assert [message.body for message in peer.queues[QUEUE]] == [
            b"First Message",
            b"Message 0",
            b"Last Message",
        ]
        orders.wait(1)
        assert orders.ordinals == [3]
        found = {remark.rule for remark in peer.violations}
        # typed by a test tool: indented, one <id> for three messages, no <durable/>, three source queue managers
        assert {"envelope-flat", "resend-body", "durable", "source-qm", "stream-guid"} <= found
        assert not found & {
            "two-live-streams",
            "first-number",
            "start",
            "number-order",
            "head",
            "content-type",
        }
    orders.close()


def test_mutilated_bytes_are_malformed_and_nothing_else() -> None:
    head, content = Sender(80).stream(1).split(b"\r\n\r\n", 1)
    content_type = ReceivedHead(head.decode()).field("Content-Type")
    assert content_type
    dice, refused = random.Random(4), 0
    for _ in range(600):
        broken = bytearray(content)
        for _ in range(dice.randint(1, 4)):
            at = dice.randrange(len(broken))
            broken[at : at + dice.randint(0, 9)] = dice.randbytes(dice.randint(0, 3))
        try:
            message = read_message(content_type, bytes(broken))
        except MalformedError:
            refused += 1
        else:
            list(remarks(ReceivedHead(head.decode()), bytes(broken), message, 0.0))
    assert refused > 400


# -- receipts


def test_a_stream_receipt_is_written_like_those_of_4_4() -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=0.05) as peer:
        Sender(peer.port, orders.url).say_all(
            *(Sender(peer.port, orders.url).stream(n) for n in (1, 2))
        )
        orders.wait(1)
        time.sleep(0.15)
        heard, port = orders.heard, peer.port
    orders.close()
    assert orders.ordinals[-1] == 2
    sample = (
        (SAMPLES / "mqsrm_4.4_stream_receipt_2_flat.txt")
        .read_text()
        .replace("\r\n", "\n")
        .split("\n\n", 1)
    )
    ours = heard[-1].replace("\r\n", "\n").split("\n\n", 1)

    def shape(text: str) -> str:
        text = re.sub("(?i)http://[^<]*", "URL", re.sub(r"\d{8}T\d{6}", "DATE", text))
        text = re.sub(r"uuid:\d+@[0-9a-f-]+", "ID", re.sub(r"uid:[0-9a-f-]+\\\d+", "STREAM", text))
        return re.sub("<SourceQmGuid>[^<]+", "<SourceQmGuid>QM", text)

    assert shape(ours[1]) == shape(sample[1])
    assert f"<streamId>uid:{SENDER}\\{ORDINAL}</streamId>" in ours[1]
    assert f"<via>http://127.0.0.1:{port}/msmq/private$/tsimpleq</via>" in ours[1]
    assert [line.split(":")[0] for line in ours[0].split("\n")] == [
        line.split(":")[0] for line in sample[0].split("\n")
    ]
    assert ours[0].startswith("POST /msmq/private$/receipts?senderstream=xrntv HTTP/1.1\n")


def test_the_correlation_of_a_receipt_is_that_of_4_3() -> None:
    assert (
        correlation_of("uuid:1@00000000-0000-0000-0000-000000000000")
        == "AAAAAAAAAAAAAAAAAAAAAAEAAAA="
    )


def test_a_receipt_without_an_answer_is_sent_again() -> None:
    orders = OrderQueue()
    orders.answers = [503]
    with Destination(receipt_wait=0.05) as peer:
        s = Sender(peer.port, orders.url)
        s.say(s.stream(1))
        orders.wait(2)
        assert orders.ordinals == [1, 1]
    orders.close()


@pytest.mark.parametrize(("decision", "number"), [("positive", 0x4000), ("negative", 0xC001)])
def test_a_final_stream_receipt_goes_out_when_a_dead_letter_message_leaves_its_queue(
    decision: str, number: int
) -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=60) as peer:
        s = Sender(peer.port, orders.url)
        s.say_all(s.stream(1, dead_letter=True), s.stream(2))
        assert peer.decide(QUEUE, decision) == 1  # the second did not ask
        orders.wait(1)
        assert f"<decision>{decision}</decision><id>uuid:100@{SENDER}</id>" in orders.heard[0]
        assert f"<Class>{number}</Class>" in orders.heard[0]
        assert "<action>MSMQ:QM Ordering Ack</action>" in orders.heard[0]
        assert orders.ordinals == [1]
    orders.close()


def test_delivery_and_commitment_receipts_go_to_whoever_asked() -> None:
    orders = OrderQueue()
    asks = (
        f'<services se:mustUnderstand="1"><deliveryReceiptRequest><sendTo>{orders.url}</se'
        "ndTo></deliveryReceiptRequest>"
        f"<commitmentReceiptRequest><sendTo>{orders.url}</sendTo><negativeOnly/></commitmentReceiptRequest></services>"
    )
    with Destination() as peer:
        s = Sender(peer.port)
        assert s.say(s.plain(5, services=asks)) == 200
        orders.wait(1)
        assert peer.decide(QUEUE, "positive") == 0
        assert peer.decide(QUEUE, "negative") == 1
        orders.wait(2)
        assert peer.violations == []
    assert f"<id>uuid:5@{SENDER}</id></deliveryReceipt>" in orders.heard[0]
    assert "<decision>negative</decision>" in orders.heard[1]
    orders.close()


@pytest.mark.parametrize(
    ("fault", "ordinals"),
    [
        ("receipt-twice=1", [2, 2]),
        ("receipt-old=1", [2, 1]),
        ("receipt-beyond=1", [1_000_002, 2]),
        ("receipt-foreign=1", [2, 2]),
    ],
)
def test_receipts_that_a_sender_must_not_believe(fault: str, ordinals: list[int]) -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=0.2, faults=Faults.parse(fault)) as peer:
        s = Sender(peer.port, orders.url)
        s.say_all(s.stream(1), s.stream(2))
        orders.wait(2)
        assert orders.ordinals == ordinals
        assert ("dead-beef" in "".join(orders.heard)) == (fault == "receipt-foreign=1")
    orders.close()


def test_receipts_come_late_or_not_at_all_for_a_while() -> None:
    for fault in ("receipt-late=1:0.6", "receipt-none=1:0.6"):
        orders = OrderQueue()
        with Destination(receipt_wait=0.05, faults=Faults.parse(fault)) as peer:
            s = Sender(peer.port, orders.url)
            s.say(s.stream(1))
            time.sleep(0.3)
            assert orders.heard == []
            orders.wait(1)
        orders.close()


# -- faults


def test_a_schedule_is_the_same_for_the_same_seed_and_a_typing_error_is_named() -> None:
    text = "drop-before=0.1,503=0.2,slow=0.1:0.5,400=0.3,@3=drop-after"
    one, same, other = Faults.parse(text, 5), Faults.parse(text, 5), Faults.parse(text, 6)
    fates = [one.of_post(n) for n in range(300)]
    assert fates == [same.of_post(n) for n in range(300)]
    assert fates != [other.of_post(n) for n in range(300)]
    assert fates[3] == Fate("drop-after", 1.0)
    assert {fate.name for fate in fates} == {"", "drop-before", "503", "slow", "drop-after"}
    assert 60 < sum(one.refuses(SENDER, n) for n in range(300)) < 120
    with pytest.raises(ValueError, match=r"'dorp=0\.1'.*drop-before"):
        Faults.parse("dorp=0.1")


@pytest.mark.parametrize(
    ("fate", "status", "accepted"),
    [
        ("drop-before", None, []),
        ("drop-after", None, [1]),
        ("drop-middle", None, [1]),
        ("503", 503, []),
        ("500", 500, []),
        ("502", 502, []),
        ("400", 400, []),
        ("404", 404, []),
        ("301", 301, []),
        ("garbage", 0, [1]),
        ("continue", 100, [1]),
        ("huge", 200, [1]),
        ("slow:0.2", 200, [1]),
    ],
)
def test_each_fault_of_a_post(fate: str, status: int | None, accepted: list[int]) -> None:
    with Destination(faults=Faults.parse(f"@1={fate}"), receipt_wait=60) as peer:
        s = Sender(peer.port)
        assert s.say(s.stream(1)) == status
        assert currents(peer) == accepted
        assert peer.struck == {fate.partition(":")[0]: 1}
        assert s.say(s.stream(1)) == 200
        assert currents(peer) == [1]


def test_out_of_order_is_answered_200_and_not_queued() -> None:
    with Destination(receipt_wait=60) as peer:
        s = Sender(peer.port)
        assert (
            s.say_all(s.stream(2), s.stream(1), s.stream(3), s.stream(2), s.stream(3)) == [200] * 5
        )
        assert currents(peer) == [1, 2, 3]


def test_queues_have_a_kind() -> None:
    with Destination(queues={QUEUE: True, "private$/plain": False}, receipt_wait=60) as peer:
        s = Sender(peer.port)
        said = s.say_all(
            s.stream(1),
            s.plain(1),
            s.plain(2, queue="private$/plain"),
            s.plain(3, queue="private$/unknown"),
        )
        assert said == [200, 400, 200, 400]


def test_down_and_up_again() -> None:
    with Destination(faults=Faults.parse("@1=down:0.5"), receipt_wait=60) as peer:
        s = Sender(peer.port)
        assert s.say_all(s.stream(1), s.stream(1)) == [None, None]
        time.sleep(0.8)
        assert s.say(s.stream(1)) == 200


def test_a_restart_keeps_the_state_and_owes_what_was_owed() -> None:
    orders = OrderQueue()
    with Destination(receipt_wait=600, receipt_wait_max=600) as peer:
        s = Sender(peer.port, orders.url)
        s.say_all(s.stream(1), s.stream(2))
        assert currents(peer) == [1, 2]
        assert orders.ordinals == [], "they are owed, and not due"
        peer._waits = 0.3, 1.0  # of its next life
        peer.restart()
        orders.wait(1, 60)
        assert orders.ordinals == [2]
        assert s.say_all(s.stream(2), s.stream(3)) == [200, 200]
        assert currents(peer) == [1, 2, 3]
        orders.wait(2, 60)
        while orders.ordinals[-1] != 3:  # the repeat of 2 may have asked for one of its own
            orders.wait(len(orders.heard) + 1, 60)
        assert peer.violations == []
    orders.close()


def test_a_destination_that_lost_its_memory_waits_for_a_start_and_the_verdict_does_not_blame_the_sender() -> (
    None
):
    with Destination(receipt_wait=60) as peer:
        s = Sender(peer.port)
        s.say_all(s.stream(1), s.stream(2))
        peer.restart(memory_lost=True)
        assert s.say_all(s.stream(3)) == [200]
        assert currents(peer) == []
        s.say_all(s.stream(1), s.stream(2), s.stream(3))
        assert currents(peer) == [1, 2, 3]
        verdict = peer.verdict({QUEUE: [b"message 1", b"message 2", b"message 3"]})
        assert verdict.ok, verdict.complaint()
        assert len(verdict.again_after_memory_loss) == 2


# -- verdict


def test_the_verdict_finds_what_is_missing_doubled_unexpected_and_disordered() -> None:
    with Destination(receipt_wait=60, allow=["id-order"]) as peer:
        s = Sender(peer.port)
        s.say_all(
            s.stream(1, body=b"b"),
            s.stream(2, body=b"a"),
            s.stream(3, body=b"a"),
            s.stream(4, body=b"stray"),
        )
        verdict = peer.verdict({QUEUE: [b"a", b"b", b"c"]})
        assert not verdict.ok
        assert verdict.missing == (f"{QUEUE}: b'c'",)
        assert verdict.doubled == (f"{QUEUE}: b'a'",)
        assert verdict.unexpected == (f"{QUEUE}: b'stray'",)
        assert verdict.disordered == (f"{QUEUE}: b'a'",)
        assert "missing: 1" in verdict.complaint()
        assert peer.verdict({QUEUE: [b"b", b"a", b"a", b"stray"]}).ok
        s.say(s.stream(9))
        assert not peer.verdict({QUEUE: [b"b", b"a", b"a", b"stray"]}).ok


# -- as a process


def run(*arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "tests.kit.foreign.destination", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True)


def test_killed_and_started_again_it_goes_on_where_it_was(tmp_path: Path) -> None:
    kept = KeptPort()
    record, expect, port = tmp_path / "record.jsonl", tmp_path / "expect.json", kept.number
    arguments = ("--record", str(record), "--port", str(port), "--receipt-wait", "60")
    first = run(*arguments)
    assert json.loads(first.stdout.readline())["port"] == port  # type: ignore[union-attr]
    s = Sender(port)
    assert s.say_all(s.stream(1), s.stream(2), s.plain(7, queue="private$/plain")) == [200] * 3
    first.kill()
    first.wait()
    with record.open("a") as file:
        file.write('{"event": "acc')  # torn by the kill
    expect.write_text(
        json.dumps(
            {
                QUEUE: ["message 1", "message 2", "message 3"],
                "private$/plain": [{"base64": "cGxhaW4="}],
            }
        )
    )
    second = run(*arguments, "--expect", str(expect), "--control")
    second.stdout.readline()  # type: ignore[union-attr]
    assert s.say_all(s.stream(2), s.stream(3), s.plain(7, queue="private$/plain")) == [200] * 3
    second.stdin.write("restart\nwhat\n")  # type: ignore[union-attr]
    second.stdin.flush()  # type: ignore[union-attr]
    status = json.loads(second.stdout.readline())  # type: ignore[union-attr]
    assert status["queues"] == {QUEUE: 3, "private$/plain": 1}
    assert "commands are" in json.loads(second.stdout.readline())["error"]  # type: ignore[union-attr]
    second.send_signal(signal.SIGTERM)
    out, _ = second.communicate(timeout=20)
    verdict = json.loads(out.splitlines()[-1])
    assert [text.split(" ")[0] for text in verdict["violations"]] == [
        "after-200"
    ]  # known from before the kill
    assert (verdict["missing"], verdict["doubled"], verdict["accepted"], second.returncode) == (
        [],
        [],
        4,
        1,
    )
    assert main(["--judge", "--record", str(record), "--expect", str(expect)]) == 1


# -- two foreigners


def test_the_foreign_sender_and_the_foreign_destination_agree_in_spite_of_everything() -> None:
    text = (
        "drop-after=0.08,drop-middle=0.08,503=0.08,500=0.04,502=0.04,slow=0.05:0.05,res"
        "tart=0.02:0.1,receipt-late=0.2:0.3"
    )
    faults = Faults.parse(text + ",receipt-twice=0.2,receipt-old=0.3,receipt-foreign=0.3", seed=11)
    bodies = [b"foreign %d" % number for number in range(50)]

    async def drive(peer: Destination) -> Ledger:
        ledger = Ledger()
        async with ReceiptsServer() as receipts:
            manager = ForeignQueueManager(
                endpoint=lambda: ("127.0.0.1", peer.port),
                ledger=ledger,
                receipts_url=receipts.url(),
                seed=3,
                retransmission_timeout=0.05,
                resend_table=(1.5, 2.0),
                reply_timeout=5.0,
            )
            receipts.on_receipt = manager.on_receipt
            sender = StreamSender(manager, QUEUE)
            for body in bodies:
                sender.enqueue(body)
            sender.close()
            await asyncio.wait_for(sender.run(), 60)
        return ledger

    with Destination(faults=faults, receipt_wait=0.1) as peer:
        ledger = asyncio.run(drive(peer))
        verdict = judge_record(peer.record.path, {QUEUE: bodies})
    assert verdict.ok, verdict.complaint()
    assert verdict.accepted == 50
    assert sum(verdict.faults.values()) > 10
    assert ledger.violations == []
