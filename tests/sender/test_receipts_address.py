"""The address for stream receipts holds a secret (``?SenderStream=…``, [MC-MQSRM] 4.4), another one for each destination: who
was not told it frees nothing."""

from __future__ import annotations

import os
import random
import re
import time
import uuid
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from kit import acknowledged, bodies, commit, outgoing, rows_to, until

from srmp_spark.names import ORDER_QUEUE
from srmp_spark.testing.foreign import receipts_out
from srmp_spark.testing.foreign.receiving import CLASS_ORDER_ACK, Owed
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"
FORGERIES = int(os.environ.get("SRMP_SPARK_FORGERIES", "20"))
"""Receipts whose sender guesses; ``make proof`` sends 10,000."""
ADDRESS = re.compile(r"http://[^/]+/msmq/private\$/order_queue\$\?SenderStream=([0-9a-f]{32})")


def secrets_told(peer: Destination) -> set[str]:
    """What the peer was told, by where its receipts went."""
    found = set()
    for owed, status in peer.receipts.sent:
        match = ADDRESS.fullmatch(owed.to)
        assert match is not None, owed.to
        assert status == 200
        found.add(match[1])
    return found


def column(running: RunningQueueManager, queue: str, name: str) -> list[str]:
    """One column of all rows of a queue."""
    address = f"{running.api}/v1/queues/{requests.utils.quote(queue, safe='')}/rows?after=0&to="
    end = requests.get(address.partition("/rows")[0], timeout=30).json()["last"]
    with pa.ipc.open_stream(requests.get(f"{address}{end}", timeout=30).content) as reader:
        found: list[str] = reader.read_all()[name].to_pylist()
        return found


def forged(to: str, stream: tuple[str, int], last: int, number: int) -> int | None:
    """Post a stream receipt to ``to``."""
    owed = Owed(to, QUEUE, "QM Ordering Ack", CLASS_ORDER_ACK, "", stream, last)
    content = receipts_out.envelope(
        owed, guid=str(uuid.uuid4()), number=number, via=to, now=time.time()
    )
    return receipts_out.post(to, content, 10)


def test_one_secret_per_destination_is_told_to_its_peer_and_kept(tmp_path: Path) -> None:
    with Destination(queues={QUEUE: True, f"{QUEUE}2": True}, receipt_wait=0.1) as peer:
        with RunningQueueManager(tmp_path / "qm") as running:
            commit(running.api, "1", rows_to(peer.url(QUEUE), bodies(0, 20)))
            told = acknowledged(running, peer.url(QUEUE))["send_receipts_to"]
            assert told == f"{running.listening}/msmq/{ORDER_QUEUE}?SenderStream=…", (
                "status keeps the secret"
            )
            (secret,) = secrets_told(peer)
            # The foreign peer calls it in lower case, as Windows does; <to> is verbatim.
            to = f"{running.listening}/msmq/{ORDER_QUEUE}?SenderStream={secret}"
            assert f"DIRECT={to}" in column(running, ORDER_QUEUE, "destination"), (
                "others may call what was their port"
            )
            assert running.stop() == 0
            running.restart()
            commit(running.api, "2", rows_to(peer.url(QUEUE), bodies(20, 40)))
            acknowledged(running, peer.url(QUEUE))
            assert secrets_told(peer) == {secret}, "another stream, another start"
            commit(running.api, "3", rows_to(peer.url(f"{QUEUE}2"), bodies(0, 20)))
            acknowledged(running, peer.url(f"{QUEUE}2"))
            assert len(secrets_told(peer)) == 2, "another destination"
            assert peer.violations == []
        with RunningQueueManager(tmp_path / "other") as other:
            commit(other.api, "1", rows_to(peer.url(f"{QUEUE}2"), bodies(40, 60)))
            acknowledged(other, peer.url(f"{QUEUE}2"))
            assert len(secrets_told(peer)) == 3, "another key"


def test_who_was_told_the_secret_of_another_destination_frees_nothing(tmp_path: Path) -> None:
    """Both peers know how the streams of the other are called: our GUID is in all that we send, ordinals follow each other."""
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as honest,
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as forger,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        honest.withhold_receipts(3600)
        commit(running.api, "1", rows_to(honest.url(QUEUE), bodies(0, 3)))
        commit(running.api, "2", rows_to(forger.url(QUEUE), bodies(0, 3)))
        acknowledged(running, forger.url(QUEUE))
        url = honest.url(QUEUE)
        waiting = until(
            lambda: (found := outgoing(running, url))["awaiting_stream_receipt"] == 3 and found,
            "they are sent",
        )
        guid, _, ordinal = waiting["stream_id"].removeprefix("uid:").partition("\\")
        (secret,) = secrets_told(forger)
        to = f"{running.listening}/msmq/{ORDER_QUEUE}?SenderStream={secret}"
        assert forged(to, (guid, int(ordinal)), 3, 1) == 200
        until(lambda: "verdict=another-address" in running.stderr(), "it is told")
        assert outgoing(running, url)["awaiting_stream_receipt"] == 3
        (told,) = {
            event["receipts_to"]
            for event in honest.record.events()
            if event["event"] == "sight" and event["start"]
        }
        assert forged(told, (guid, int(ordinal)), 3, 2) == 200
        assert acknowledged(running, url)["last_acknowledged"] == 3


@pytest.mark.timeout(300 + FORGERIES // 10)
def test_a_receipt_that_does_not_know_the_secret_frees_nothing(tmp_path: Path) -> None:
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        url, orders = peer.url(QUEUE), f"{running.listening}/msmq/{ORDER_QUEUE}"
        commit(running.api, "1", rows_to(url, bodies(0, 5)))
        acknowledged(running, url)
        (secret,) = secrets_told(peer)
        peer.withhold_receipts(60 + FORGERIES / 20)
        commit(running.api, "2", rows_to(url, bodies(5, 10)))
        waiting = until(
            lambda: (found := outgoing(running, url))["awaiting_stream_receipt"] == 5 and found,
            "they are sent",
        )
        guid, _, ordinal = waiting["stream_id"].removeprefix("uid:").partition("\\")
        stream, last = (guid, int(ordinal)), waiting["last_acknowledged"] + 5
        for number, to in enumerate(
            (orders, f"{orders}?SenderStream=", f"{orders}?SenderStream={'0' * 32}")
        ):
            assert forged(to, stream, last, number + 1) == 200, (
                "to whoever posts it, it looks like any other"
            )
        dice = random.Random(20)
        for number in range(FORGERIES):
            guess = f"{dice.getrandbits(128):032x}"
            assert (
                forged(
                    f"{orders}?SenderStream={guess}",
                    stream,
                    last + dice.randint(-5, 5),
                    number + 10,
                )
                == 200
            )
        until(
            lambda: running.stderr().count("verdict=another-address") == 3 + FORGERIES,
            "they are told",
            60 + FORGERIES / 50,
        )
        entry = outgoing(running, url)
        assert (entry["awaiting_stream_receipt"], entry["last_acknowledged"]) == (5, last - 5)
        assert (
            forged(
                f"{orders.upper().replace('HTTP', 'http')}?SENDERSTREAM={secret.upper()}",
                stream,
                last,
                9,
            )
            == 200
        )
        assert acknowledged(running, url)["last_acknowledged"] == last, "Windows changes the case"


def test_a_queue_manager_of_ours_keeps_the_address_verbatim(tmp_path: Path) -> None:
    with (
        RunningQueueManager(
            tmp_path / "there", queues=[f"{QUEUE}:transactional"], allow_url=["http://127.0.0.1:*"]
        ) as there,
        RunningQueueManager(tmp_path / "here") as here,
    ):
        url = f"{there.listening}/msmq/{QUEUE}"
        commit(here.api, "1", rows_to(url, bodies(0, 10)))
        acknowledged(here, url)
        (first,) = set(column(here, ORDER_QUEUE, "destination"))
        assert ADDRESS.fullmatch(first.removeprefix("DIRECT=")), first
        commit(here.api, "2", rows_to(url, bodies(10, 20)))
        until(
            lambda: outgoing(here, url)["queued"] == 0,
            "they are there, and their receipt waits half a second",
        )
        there.kill9()
        there.restart()
        acknowledged(here, url)
        assert set(column(here, ORDER_QUEUE, "destination")) == {first}, (
            "also behind a restart in the middle of a stream"
        )
