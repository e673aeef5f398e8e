"""``serve`` under another ``--public-url`` than before, while a peer still owes receipts for a stream.

Only ``<start>`` says where they go (``<sendReceiptsTo>``, [MC-MQSRM] 2.2.5.3.4), and a peer calls that address for as long as
the stream lives. So a stream of which something is acknowledged keeps its address, and what goes again is what went before.
"""

from __future__ import annotations

import time
import uuid
from pathlib import Path
from typing import Any

from kit import acknowledged, bodies, commit, outgoing, post, rows_to, until
from requests.utils import quote

from srmp_spark.names import ORDER_QUEUE
from srmp_spark.testing.foreign import receipts_out
from srmp_spark.testing.foreign.ports import KeptPort
from srmp_spark.testing.foreign.receiving import CLASS_ORDER_ACK, Owed
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"


def serve(folder: Path, port: int, public_url: str) -> RunningQueueManager:
    return RunningQueueManager(
        folder / "qm",
        listen=f"127.0.0.1:{port}",
        public_url=public_url,
        resend_table="1,1,2",
        retransmission_timeout=0.2,
    )


def sent(peer: Destination) -> list[dict[str, Any]]:
    """What the peer was posted, the oldest first."""
    return [event for event in peer.record.events() if event["event"] == "sight"]


def waiting(running: RunningQueueManager, url: str, count: int) -> dict[str, Any]:
    found: dict[str, Any] = until(
        lambda: (
            (entry := outgoing(running, url))
            and entry["awaiting_stream_receipt"] == count
            and entry
        ),
        f"{count} wait",
    )
    return found


def receipt(posts: list[dict[str, Any]], last: int) -> Owed:
    """The peer's stream receipt, to where the first ``<start>`` said."""
    guid, ordinal = posts[0]["stream"]
    return Owed(
        posts[0]["receipts_to"],
        QUEUE,
        "QM Ordering Ack",
        CLASS_ORDER_ACK,
        "",
        (guid, ordinal),
        last,
    )


def post_receipt(owed: Owed) -> int | None:
    """While the peer withholds its own."""
    content = receipts_out.envelope(
        owed, guid=str(uuid.uuid4()), number=1, via=owed.to, now=time.time()
    )
    return receipts_out.post(owed.to, content, 10)


def went_again(
    peer: Destination, before: list[dict[str, Any]], numbers: range
) -> list[dict[str, Any]]:
    """Wait until these numbers of the stream were posted again; what they were then, each as it was before."""

    def again() -> list[dict[str, Any]]:
        found = {each["current"]: each for each in sent(peer)[len(before) :]}
        return [found[number] for number in numbers] if set(numbers) <= found.keys() else []

    found: list[dict[str, Any]] = until(again, f"{numbers} go again")
    first = {each["current"]: each for each in reversed(before)}
    same = ("key", "stream", "current", "digest", "sent_at", "start")
    for each in found:
        assert {name: each[name] for name in same} == {
            name: first[each["current"]][name] for name in same
        }
    return found


def test_a_stream_keeps_the_address_that_its_start_told_and_its_receipts_count(
    tmp_path: Path,
) -> None:
    kept = KeptPort()
    port = kept.number
    old, new = f"http://localhost:{port}", f"http://127.0.0.1:{port}"
    with Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer:
        url = peer.url(QUEUE)
        with serve(tmp_path, port, old) as running:
            peer.withhold_receipts(3600)
            commit(running.api, "1", rows_to(url, bodies(0, 10)))
            waiting(running, url, 10)
            before = sent(peer)
            assert post_receipt(receipt(before, 5)) == 200
            stream = waiting(running, url, 5)["stream_id"]
            running.kill9()
        posted = sent(peer)
        with serve(tmp_path, port, new) as running:
            assert not any(each["start"] for each in went_again(peer, posted, range(6, 11)))
            entry = outgoing(running, url)
            assert (entry["stream_id"], entry["last_acknowledged"]) == (stream, 5)
            assert entry["send_receipts_to"] == f"{old}/msmq/{ORDER_QUEUE}?SenderStream=…", (
                "what the peer was told"
            )
            assert f"sender.receipts_elsewhere destination={url}" in running.stderr()
            told = len(peer.receipts.sent)
            peer.withhold_receipts(0)
            peer.send_receipt(receipt(before, 10))
            assert acknowledged(running, url)["last_acknowledged"] == 10
            assert {
                (owed.to.partition("/msmq/")[0], status)
                for owed, status in peer.receipts.sent[told:]
            } == {(old, 200)}
            commit(running.api, "2", rows_to(url, bodies(10, 15)))
            entry = acknowledged(running, url)
            assert entry["stream_id"] != stream, "the old one had ended"
            assert entry["send_receipts_to"] == f"{new}/msmq/{ORDER_QUEUE}?SenderStream=…"
            assert {owed.to.partition("/msmq/")[0] for owed, _ in peer.receipts.sent[-1:]} == {new}
        assert peer.violations == []
        verdict = peer.verdict({QUEUE: bodies(0, 15)})
        assert verdict.ok, verdict.complaint()


def test_a_start_of_which_nothing_is_acknowledged_tells_the_new_address_and_receipts_of_both_count(
    tmp_path: Path,
) -> None:
    """The peer may never have seen the first ``<start>``; if it did it keeps the first address, and this one still leads here.

    To the watcher a resend that says anything new is none (rule ``start``): that is the one thing it may complain about.
    """
    kept = KeptPort()
    port = kept.number
    old, new = f"http://localhost:{port}", f"http://127.0.0.1:{port}"
    with Destination(queues={QUEUE: True}, receipt_wait=0.1, allow=("start",)) as peer:
        url = peer.url(QUEUE)
        peer.withhold_receipts(3600)
        with serve(tmp_path, port, old) as running:
            commit(running.api, "1", rows_to(url, bodies(0, 5)))
            waiting(running, url, 5)
            running.kill9()
        before = sent(peer)
        with serve(tmp_path, port, new) as running:
            first, *others = went_again(peer, before, range(1, 6))
            assert first["start"] is True
            assert (
                first["receipts_to"].partition("?")[2] == before[0]["receipts_to"].partition("?")[2]
            ), "one secret"
            assert [each["receipts_to"].partition("/msmq/")[0] for each in (before[0], first)] == [
                old,
                new,
            ]
            assert [each["receipts_to"] for each in others] == [None] * 4
            assert "sender.receipts_elsewhere" not in running.stderr()
            peer.withhold_receipts(0)
            peer.send_receipt(receipt(before, 5))
            assert acknowledged(running, url)["last_acknowledged"] == 5
            until(
                lambda: peer.receipts.sent,
                "the peer has heard what became of its receipt, which we know before it does",
            )
            assert {
                (owed.to.partition("/msmq/")[0], status) for owed, status in peer.receipts.sent
            } == {(old, 200)}
        assert peer.violations == []
        verdict = peer.verdict({QUEUE: bodies(0, 5)})
        assert verdict.ok, verdict.complaint()


def test_where_the_old_address_leads_nowhere_a_new_stream_says_the_new_one(tmp_path: Path) -> None:
    kept, nowhere = KeptPort(), KeptPort()
    port, gone = kept.number, nowhere.number
    with Destination(queues={QUEUE: True}, receipt_wait=0.1, allow=("start",)) as peer:
        url = peer.url(QUEUE)
        with serve(tmp_path, port, f"http://127.0.0.1:{gone}") as running:
            commit(running.api, "1", rows_to(url, bodies(0, 5)))
            stream = waiting(running, url, 5)["stream_id"]
        before = sent(peer)
        with serve(tmp_path, port, f"http://127.0.0.1:{port}") as running:
            went_again(peer, before, range(1, 6))
            assert outgoing(running, url)["last_acknowledged"] == 0, (
                "its receipts go where nobody is"
            )
            post(f"{running.api}/v1/outgoing/{quote(url, safe='')}/reset")
            entry = acknowledged(running, url)
            assert entry["stream_id"] != stream
        keys = {tuple(each["key"]) for each in sent(peer)}
        assert len(keys) == 5, "whoever knows identifiers knows what came before"
