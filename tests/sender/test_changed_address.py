"""``serve`` at another port and under another name, while streams live in both directions.

docs/changing-the-address.md says what an operator does. A name is what a sender wrote, and it is kept by whoever knows it:
senders in their outgoing queues, peers in the streams that they receive from here.
"""

from __future__ import annotations

import http.client
import time
import uuid
from pathlib import Path

import pytest
import requests
from kit import acknowledged, bodies, commit, outgoing, rows_to, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.names import ORDER_QUEUE
from srmp_spark.testing.foreign import receipts_out
from srmp_spark.testing.foreign.messages import ForeignMessage, ForeignStream, envelope
from srmp_spark.testing.foreign.receiving import CLASS_ORDER_ACK, Owed
from srmp_spark.testing.queue_handle import QueueHandle
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.foreign.destination import Destination

OLD, NEW = "old.example", "new.example"
QUEUE = "private$/orders"
GUID = str(uuid.UUID(int=7))


def serve(folder: Path, **flags: object) -> RunningQueueManager:
    """The data directory at a port of its own, each time another one."""
    return RunningQueueManager(
        folder / "qm", queues=[f"{QUEUE}:transactional"], resend_table="1,1,2",
        retransmission_timeout=0.2, **flags,
    )  # fmt: skip


def post(
    running: RunningQueueManager, url: str, content: bytes, **headers: str
) -> tuple[int, str | None]:
    """POST to ``url`` by the port that listens now, as an alias in DNS or a forwarded port does."""
    host, _, path = url.removeprefix("http://").partition("/")
    connection = http.client.HTTPConnection(*running.endpoint, timeout=30)
    try:
        given = {"Host": host, "Content-Type": "text/xml", "SOAPAction": '"MSMQMessage"', **headers}
        connection.request("POST", f"/{path}", content, given)
        answer = connection.getresponse()
        return answer.status, answer.headers.get("Srmp-Reason")
    finally:
        connection.close()


def send(
    running: RunningQueueManager, host: str, ordinal: int, current: int, **headers: str
) -> tuple[int, str | None]:
    """A sender's message in a stream that it addresses to ``host``."""
    url = f"http://{host}/msmq/{QUEUE}"
    stream = ForeignStream(
        guid=GUID, ordinal=ordinal, current=current, previous=current - 1,
        receipts_to=f"http://sender.example/msmq/{ORDER_QUEUE}" if current == 1 else None,
    )  # fmt: skip
    message = ForeignMessage(
        to=url, lineage=GUID, uniquifier=100 * ordinal + current, label=f"{ordinal}.{current}",
        sent_at=int(time.time()), durable=True, stream=stream,
    )  # fmt: skip
    return post(running, url, envelope(message).encode(), **headers)


def rows(running: RunningQueueManager, queue: str = QUEUE) -> list[tuple[str, str]]:
    """Label and destination of each row, as ``peek`` prints them."""
    handle = QueueHandle(queue, running.listening, QueueManagerClient(running.api))
    return [(row["label"], row["destination"]) for row in handle.rows()]


def test_a_sender_goes_on_by_the_old_name_and_changes_when_nothing_waits_for_it(
    tmp_path: Path,
) -> None:
    with serve(tmp_path, host_name=[OLD]) as running:
        assert [send(running, OLD, 1, each)[0] for each in (1, 2, 3)] == [200] * 3
    with serve(tmp_path, host_name=[NEW]) as running:
        status, reason = send(running, OLD, 1, 4, **{"Srmp-Probe": "1"})
        assert (status, (reason or "").partition(";")[0]) == (400, "foreign-host"), (
            "senders would delete it"
        )
        assert send(running, NEW, 2, 1, **{"Srmp-Probe": "1"})[0] == 204
    with serve(tmp_path, host_name=[NEW, OLD], public_url=f"http://{NEW}") as running:
        assert [send(running, OLD, 1, each)[0] for each in (3, 4)] == [200] * 2
        assert [label for label, _ in rows(running)] == ["1.1", "1.2", "1.3", "1.4"], (
            "the same stream, no row twice"
        )
        assert [send(running, NEW, 2, each)[0] for each in (1, 2)] == [200] * 2
        assert [to.split("/")[2] for _, to in rows(running)] == [OLD] * 4 + [NEW] * 2, (
            "who still writes the old name"
        )
        # Both names at once are two streams of one sender to one queue, and a queue manager keeps the newer one.
        assert send(running, OLD, 1, 5)[0] == 200
        assert [label for label, _ in rows(running)][4:] == ["2.1", "2.2"]
        assert "stream.stale" in running.stderr()


@pytest.mark.parametrize("keeps_old_name", [True, False])
def test_receipts_for_a_stream_come_to_the_name_that_its_start_told(
    tmp_path: Path, keeps_old_name: bool
) -> None:
    with Destination(queues={"private$/in": True}, receipt_wait=0.1) as peer:
        url = peer.url("private$/in")

        def receipt(running: RunningQueueManager, last: int) -> int:
            """What the peer owes, to the address that it was told."""
            start = next(
                each for each in peer.record.events() if each["event"] == "sight" and each["start"]
            )
            guid, ordinal = start["stream"]
            owed = Owed(
                start["receipts_to"],
                "private$/in",
                "QM Ordering Ack",
                CLASS_ORDER_ACK,
                "",
                (guid, ordinal),
                last,
            )
            content = receipts_out.envelope(
                owed, guid=str(uuid.uuid4()), number=1, via=owed.to, now=time.time()
            )
            return post(running, owed.to, content)[0]

        def old_ones(running: RunningQueueManager) -> list[str]:
            """Destinations whose receipts still come to the old name, as the page finds them."""
            status = requests.get(f"{running.api}/v1/status", timeout=30).json()
            return [
                each["destination"]
                for each in status["outgoing"]
                if OLD in (each["send_receipts_to"] or "") and each["awaiting_stream_receipt"]
            ]

        with serve(tmp_path, host_name=[OLD], public_url=f"http://{OLD}") as running:
            peer.withhold_receipts(3600)
            commit(running.api, "1", rows_to(url, bodies(0, 5)))
            until(lambda: outgoing(running, url).get("awaiting_stream_receipt") == 5, "5 wait")
            assert receipt(running, 2) == 200
            until(lambda: outgoing(running, url)["awaiting_stream_receipt"] == 3, "2 are told")
        names = [NEW, OLD] if keeps_old_name else [NEW]
        with serve(tmp_path, host_name=names, public_url=f"http://{NEW}") as running:
            until(lambda: old_ones(running) == [url], "the stream keeps its address")
            assert f"sender.receipts_elsewhere destination={url}" in running.stderr()
            if not keeps_old_name:
                assert receipt(running, 5) == 400, (
                    "the peer gives the receipt up, and the messages go again for ever"
                )
                assert outgoing(running, url)["awaiting_stream_receipt"] == 3
                return
            assert receipt(running, 5) == 200
            acknowledged(running, url)
            assert old_ones(running) == []
            assert [OLD in to for _, to in rows(running, ORDER_QUEUE)] == [True] * 2
            commit(running.api, "2", rows_to(url, bodies(5, 6)))
            until(
                lambda: NEW in (outgoing(running, url)["send_receipts_to"] or ""),
                "the next stream tells the new name",
            )
