"""Store-and-forward and redirection between processes: a foreign sender, queue managers of ours, a foreign destination."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import deltalake
import pytest
import requests
from forwarding_kit import (
    ELSEWHERE,
    LOOPBACK,
    forward_queue,
    free_address,
    send,
    send_stream,
    status,
    toml,
)
from kit import acknowledged, bodies, commit, outgoing, rows_to, until

from srmp_spark.cli import run
from srmp_spark.interface import ExitCode
from srmp_spark.testing.foreign.messages import ForeignMessage
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"
SENDER = "caf195ea-615c-4264-ae08-11a4e60194c0"
FORWARDED = ["stream-guid"]
"""What only a forwarder may do: the stream is its own, the messages in it have the identifiers of their senders."""
ALLOW = [LOOPBACK, f"http://{ELSEWHERE}:*"]


def regular(to: str, number: int, **fields: object) -> ForeignMessage:
    values: dict[str, object] = {
        "label": "a label",
        "sent_at": int(time.time()),
        "body": b"x",
        "durable": True,
    } | fields
    return ForeignMessage(to=to, lineage=SENDER, uniquifier=number, **values)  # type: ignore[arg-type]  # fields of a message


def test_a_stream_goes_through_a_store_and_forward_queue_manager(tmp_path: Path) -> None:
    """The sender's stream ends at ours, with its receipts; a stream of ours begins."""
    with (
        Destination(
            host=ELSEWHERE, queues={QUEUE: True}, receipt_wait=0.1, allow=FORWARDED
        ) as peer,
        RunningQueueManager(tmp_path / "qm", allow_url=ALLOW, store_and_forward="true") as running,
    ):
        ledger = send_stream(running, peer.url, QUEUE, bodies(0, 60))
        assert ledger.violations == []
        acknowledged(running, peer.url(QUEUE))
        arrived = peer.queues[QUEUE]
        assert [message.body for message in arrived] == bodies(0, 60)
        assert {message.stream_guid for message in arrived} == {running.guid}
        assert running.guid not in {message.lineage for message in arrived}, (
            "each message keeps its sender's identifier"
        )
        assert peer.violations == []
        found = until(
            lambda: forward_queue(running) if forward_queue(running)["waiting"] == 0 else None,
            "all is forwarded",
        )
        assert (found["last"], found["received"]) == (60, 60)
        (stream,) = status(running)["incoming_streams"]
        assert stream["queue"] == peer.url(QUEUE), "where it was for"
        assert running.stop() == 0


def test_all_properties_of_a_message_survive(tmp_path: Path) -> None:
    with (
        Destination(host=ELSEWHERE, queues={QUEUE: False}) as peer,
        RunningQueueManager(tmp_path / "qm", allow_url=ALLOW, store_and_forward="true") as running,
    ):
        receipts = "http://machine1/msmq/private$/receipts"
        message = regular(
            peer.url(QUEUE), 77, label="order <1> & Größe", body="ardenwhite".encode("utf-16-le"), body_type=8,
            extension=b"\x00\x01extension", priority=6, commitment_receipt_to=receipts, positive_only=True,
            delivery_receipt_to=receipts, time_to_reach_queue=int(time.time()) + 3600, app=36, correlation=bytes(range(20)),
        )  # fmt: skip
        assert send(running, message) == 200
        assert send(running, message) == 200, "a repeat is forwarded once"
        assert peer.wait(1, 20)
        time.sleep(0.5)
        (arrived,) = peer.queues[QUEUE]
        assert (arrived.lineage, arrived.uniquifier) == (SENDER, 77)
        assert (arrived.label, arrived.body, arrived.extension) == (
            "order <1> & Größe",
            message.body,
            message.extension,
        )
        assert arrived.commitment_receipt_to == arrived.delivery_receipt_to == receipts
        assert arrived.decisions == ("positive",)
        assert peer.violations == []


def test_what_no_pattern_names_is_refused_for_good(tmp_path: Path) -> None:
    """The queue manager is no open relay."""
    with (
        Destination(host=ELSEWHERE, queues={QUEUE: False}) as peer,
        RunningQueueManager(tmp_path / "on", allow_url=[LOOPBACK], store_and_forward="true") as on,
        RunningQueueManager(tmp_path / "off", allow_url=ALLOW) as off,
    ):
        assert send(on, regular(peer.url(QUEUE), 1)) == 400
        assert send(off, regular(peer.url(QUEUE), 2)) == 400
        time.sleep(0.5)
        assert peer.journal == []


def test_outgoing_messages_go_by_a_gateway_and_receipts_come_back_by_another_address(
    tmp_path: Path,
) -> None:
    """3.1.7.9: the connection goes to the host of **To**, ``<to>`` stays. 3.1.7.2.4: ``<sendReceiptsTo>``."""
    with Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer:
        file = toml(tmp_path, f"""
            [[redirect]]
            direction = "out"
            from = "http://orders.invalid/msmq/*"
            to = "http://127.0.0.1:{peer.port}/"
            except = ["http://orders.invalid/msmq/private$/direct"]

            [[receipt_url]]
            from = "http://orders.invalid/*"
            to = "http://localhost:8/msmq/private$/order_queue$"
        """)  # fmt: skip
        with RunningQueueManager(
            tmp_path / "qm", config=file, resend_table="0.5", retransmission_timeout=0.2
        ) as running:
            to, direct = (
                f"http://orders.invalid/msmq/{QUEUE}",
                "http://orders.invalid/msmq/private$/direct",
            )
            commit(running.api, "1", [*rows_to(to, bodies(0, 3)), *rows_to(direct, bodies(3, 4))])
            assert peer.wait(3, 20)
            arrived = peer.queues[QUEUE]
            assert [message.body for message in arrived] == bodies(0, 3)
            assert arrived[0].receipts_to is not None
            assert arrived[0].receipts_to.startswith(
                "http://localhost:8/msmq/private$/order_queue$?SenderStream="
            )
            error = until(
                lambda: outgoing(running, direct)["last_error"],
                "it is sought itself, and not found",
            )
            assert "orders.invalid" in error
            assert {post["to"] for post in peer.journal if "to" in post} <= {to}


def test_redirections_of_what_comes_in(tmp_path: Path) -> None:
    with Destination(host=ELSEWHERE, queues={QUEUE: False}) as peer:
        file = toml(tmp_path, f"""
            [[redirect]]
            direction = "in"
            from = "http://front.example/msmq/private$/a"
            to = "http://127.0.0.1/msmq/private$/orders"

            [[redirect]]
            direction = "in"
            from = "http://front.example/msmq/private$/b"
            to = "{peer.url(QUEUE)}"
        """)  # fmt: skip
        with RunningQueueManager(
            tmp_path / "qm", config=file, queues=["private$/orders"], host_name=["front.example"]
        ) as running:  # fmt: skip
            assert send(running, regular("http://front.example/msmq/private$/a", 1)) == 200
            assert send(running, regular("http://front.example/msmq/private$/b", 2)) == 200
            assert send(running, regular("http://front.example/msmq/private$/c", 3)) == 400
            assert peer.wait(1, 20)
            assert [message.uniquifier for message in peer.queues[QUEUE]] == [2]
            orders = next(
                each for each in status(running)["queues"] if each["name"] == "private$/orders"
            )
            assert orders["last"] == 1


def test_a_redirection_leads_to_another_port_of_our_own_host(tmp_path: Path) -> None:
    """A second queue manager there is not ourselves: host and port say who that is."""
    with Destination(queues={QUEUE: False}) as peer:
        assert peer.url(QUEUE).startswith("http://127.0.0.1:"), "the host of ours"
        file = toml(tmp_path, f"""
            [[redirect]]
            direction = "in"
            from = "http://front.example/msmq/private$/orders"
            to = "{peer.url(QUEUE)}"
        """)  # fmt: skip
        with RunningQueueManager(
            tmp_path / "qm", config=file, queues=["private$/orders", QUEUE], host_name=["front.example"]
        ) as running:  # fmt: skip
            assert send(running, regular("http://front.example/msmq/private$/orders", 1)) == 200
            assert peer.wait(1, 60)
            assert [message.uniquifier for message in peer.queues[QUEUE]] == [1]
            assert all(
                each["last"] == 0 for each in status(running)["queues"] if each["name"] == QUEUE
            )


def test_what_send_tells_of_a_queue_of_ours_that_is_redirected(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is acknowledged where it stays, and queued where it is only on its way."""
    with Destination(host=ELSEWHERE, queues={QUEUE: False}) as peer:
        file = toml(tmp_path, f"""
            [[redirect]]
            direction = "in"
            from = "http://127.0.0.1:*/msmq/private$/away"
            to = "{peer.url(QUEUE)}"

            [[redirect]]
            direction = "in"
            from = "http://127.0.0.1:*/msmq/private$/renamed"
            to = "http://127.0.0.1/msmq/private$/here"
        """)  # fmt: skip
        names = ["private$/away", "private$/renamed", "private$/here"]
        with RunningQueueManager(
            tmp_path / "qm", config=file, queues=names, resend_table="0.5"
        ) as running:

            def told(name: str, *more: str) -> tuple[int, dict[str, Any]]:
                code = run(
                    ["send", "--api", running.api, "--destination", name, "--body", "x", *more]
                )
                return code, json.loads(capsys.readouterr().out)

            assert told("private$/here")[1]["state"] == "acknowledged"
            code, renamed = told("private$/renamed", "--wait", "5")
            assert (code, renamed["state"], renamed["destination"]) == (
                0,
                "acknowledged",
                "private$/here",
            )
            code, away = told("private$/away")
            assert (code, away["state"], away["destination"]) == (0, "queued", peer.url(QUEUE))
            assert away["stream_id"] is None
            assert peer.wait(1, 20)
            assert told("private$/away", "--wait", "5")[0] == ExitCode.REFUSED


def test_what_a_purge_counts_does_not_leave(tmp_path: Path) -> None:
    """Each message is either given up or sent on, however close the purge comes to it."""
    with (
        Destination(host=ELSEWHERE, queues={QUEUE: False}) as peer,
        RunningQueueManager(tmp_path / "qm", allow_url=ALLOW, store_and_forward="true") as running,
    ):
        purged = 0
        with requests.Session() as session:
            for number in range(1, 41):
                assert send(running, regular(peer.url(QUEUE), number)) == 200
                time.sleep(number % 10 / 1000)  # what it is in the middle of must not matter
                answer = session.post(
                    f"{running.api}/v1/queues/private%24%2Fforward%24/purge", timeout=30
                )
                purged += answer.json()["purged"]
        assert send(running, regular(peer.url(QUEUE), 99)) == 200
        until(
            lambda: [each for each in peer.queues.get(QUEUE, []) if each.uniquifier == 99],
            "it goes on after a purge",
        )
        assert purged + len(peer.queues[QUEUE]) == 41
        until(lambda: forward_queue(running)["waiting"] == 0, "what left counts as received")
        assert "purge.uncertain" not in running.stderr()


def test_two_that_forward_to_each_other_end_it_with_a_dead_letter(tmp_path: Path) -> None:
    """The mark in ``Via`` shows the loop: the second one refuses, so the first one knows that it arrives nowhere."""
    sought = f"http://nowhere.example/msmq/{QUEUE}"
    for name in ("a", "b"):
        (tmp_path / name).mkdir()

    def led_to(name: str, target: str) -> str:
        return toml(tmp_path / name, f"""
            [[redirect]]
            direction = "out"
            from = "http://nowhere.example/*"
            to = "{target}/"
        """)  # fmt: skip

    options = {
        "store_and_forward": "true",
        "resend_table": "0.5",
        "allow_url": [LOOPBACK, "http://nowhere.example"],
    }
    first, second = free_address(), free_address()
    with (
        RunningQueueManager(
            tmp_path / "a" / "qm", config=led_to("a", f"http://{second}"), listen=first, **options
        ) as a,  # type: ignore[arg-type]
        RunningQueueManager(
            tmp_path / "b" / "qm", config=led_to("b", f"http://{first}"), listen=second, **options
        ) as b,  # type: ignore[arg-type]
    ):
        assert send(a, regular(sought, 1)) == 200
        until(
            lambda: "sender.dead destination=http://nowhere.example" in b.stderr(),
            "b is refused by a",
        )
        assert "reason=refused status=400" in b.stderr()
        assert forward_queue(a)["last"] == forward_queue(b)["last"] == 1
        assert outgoing(a, sought, "plain")["queued"] == 0, "b has taken it from a"


def test_what_waits_to_be_forwarded_is_in_the_delta_state(tmp_path: Path) -> None:
    """Its receiver does not answer; a lost disk would cost nothing of it."""
    to = f"http://{free_address().replace('127.0.0.1', ELSEWHERE)}/msmq/{QUEUE}"
    options = {
        "store_and_forward": "true",
        "state": str(tmp_path / "state"),
        "state_interval": 0.5,
        "resend_table": "0.5",
    }
    with RunningQueueManager(tmp_path / "qm", allow_url=ALLOW, **options) as running:  # type: ignore[arg-type]
        assert (
            send(
                running,
                regular(to, 5, label="waits", body=b"content", extension=b"ext", priority=6, app=9),
            )
            == 200
        )

        def found() -> list[dict[str, object]]:
            try:
                return (
                    deltalake.DeltaTable(tmp_path / "state" / "outgoing_queue")
                    .to_pyarrow_table()
                    .to_pylist()
                )
            except deltalake.exceptions.TableNotFoundError:
                return []

        (row,) = until(found, "it is published")
        shown = {
            name: row[name]
            for name in (
                "destination",
                "application",
                "label",
                "body",
                "extension",
                "priority",
                "app_specific",
            )
        }
        assert shown == {
            "destination": to, "application": "srmp-spark forward", "label": "waits", "body": b"content", "extension": b"ext",
            "priority": 6, "app_specific": 9,
        }  # fmt: skip


def test_nobody_but_the_sender_process_receives_what_is_to_be_forwarded(tmp_path: Path) -> None:
    """What is received is deleted in time: it would be lost, and its sender was told 200."""
    to = f"http://{free_address().replace('127.0.0.1', ELSEWHERE)}/msmq/{QUEUE}"
    with RunningQueueManager(tmp_path / "qm", allow_url=ALLOW, store_and_forward="true") as running:
        assert send(running, regular(to, 1)) == 200
        epoch = until(lambda: forward_queue(running), "it is shown")["epochs"][-1]["epoch"]
        url = f"{running.api}/v1/queues/private%24%2Fforward%24/consumers"
        body = {"epoch": epoch, "holder": "me", "to": 1, "from": 1}
        for verb in ("register", "received"):
            answer = requests.post(f"{url}/default/{verb}", json=body, timeout=30)
            assert (answer.status_code, answer.json()["error"]["code"]) == (400, "reserved-queue")
        assert requests.post(f"{url}/mine/register", json=body, timeout=30).status_code == 200
