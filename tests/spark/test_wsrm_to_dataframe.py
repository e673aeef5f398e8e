"""A reliable session and a query: while Spark is stopped the sender polls, and when it is started the sender goes on.

The sender is a script of its own: SOAP as text, and the rule of [MS-WSRVCRM] 3.2 with WCF's reading of it (a value is the quota
of new messages), without anything of ours.
"""

from __future__ import annotations

import http.client
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from test_engine_stream import start

from srmp_spark.testing.queue_manager import RunningQueueManager

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(420)]
QUEUE = "private$/orders"
RM = "http://docs.oasis-open.org/ws-rx/wsrm/200702"
WSA = "http://www.w3.org/2005/08/addressing"
BUFFER = 10
COUNT = 25
WAIT_S = 120.0


def envelope(url: str, action: str, header: str, body: str) -> bytes:
    return (
        f'<s:Envelope xmlns:s="http://www.w3.org/2003/05/soap-envelope" xmlns:a="{WSA}" '
        f'xmlns:r="{RM}" '
        'xmlns:netrm="http://schemas.microsoft.com/ws/2006/05/rm"><s:Header><a:Action '
        f's:mustUnderstand="1">{action}</a:Action>'
        f'<a:To s:mustUnderstand="1">{url}</a:To>{header}</s:Header><s:Body>{body}</s:Body'
        "></s:Envelope>"
    ).encode()


class Sender(threading.Thread):
    """Numbers 1 to ``count``; at 0 it asks, and sends nothing new."""

    def __init__(self, running: RunningQueueManager, count: int) -> None:
        super().__init__(daemon=True)
        self._connection = http.client.HTTPConnection(*running.wsrm, timeout=WAIT_S)
        self._url = f"{running.ready['wsrm']}/wsrm/{QUEUE}"
        self._count = count
        self.identifier = ""
        self.sent = self.acknowledged = self.polls = 0
        self.remaining = -1
        self.broken: list[str] = []

    def _say(self, action: str, header: str, body: str = "") -> str:
        fields = {"Content-Type": f'application/soap+xml; charset=utf-8; action="{action}"'}
        self._connection.request(
            "POST", f"/wsrm/{QUEUE}", envelope(self._url, action, header, body), fields
        )
        answer = self._connection.getresponse()
        text = answer.read().decode()
        assert answer.status == 200, (answer.status, text)
        return text

    def run(self) -> None:
        try:
            create = (
                f"<r:CreateSequence><r:AcksTo><a:Address>{WSA}/anonymous</a:Address><"
                "/r:AcksTo></r:CreateSequence>"
            )
            begin = "<a:MessageID>urn:uuid:begin</a:MessageID>"
            (self.identifier,) = re.findall(
                r"<r:Identifier>(.*?)</r:Identifier>",
                self._say(f"{RM}/CreateSequence", begin, create),
            )
            name = f"<r:Identifier>{self.identifier}</r:Identifier>"
            while self.acknowledged < self._count:
                if self.sent < self._count and self.remaining != 0:
                    number = self.sent = self.sent + 1
                    header = (
                        f'<r:Sequence s:mustUnderstand="1">{name}<r:MessageNumber>{number}'
                        "</r:MessageNumber></r:Sequence>"
                    )
                    told = self._say(
                        "urn:shop/order", header, f'<order xmlns="urn:shop">{number}</order>'
                    )
                else:
                    time.sleep(0.2)
                    self.polls += 1
                    told = self._say(
                        f"{RM}/AckRequested", f"<r:AckRequested>{name}</r:AckRequested>"
                    )
                ranges = re.findall(r'Lower="(\d+)" Upper="(\d+)"', told)
                self.acknowledged = int(ranges[-1][1]) if ranges else 0
                self.remaining = int(re.findall(r"<netrm:BufferRemaining[^>]*>(\d+)<", told)[0])
        except Exception as error:  # told by the test
            self.broken.append(repr(error))

    def until(self, what: Callable[[], bool]) -> None:
        end = time.monotonic() + WAIT_S
        while not what():
            assert not self.broken, self.broken
            assert time.monotonic() < end, (
                f"{self.sent} sent, {self.acknowledged} acknowledged, {self.remaining} left"
            )
            time.sleep(0.05)


def test_a_stopped_query_makes_the_sender_poll_and_a_started_one_lets_it_go_on(
    spark: SparkSession, tmp_path: Path
) -> None:
    batches: dict[int, list[Any]] = {}

    def take(batch: DataFrame, number: int) -> None:
        """A batch that was stopped comes again, with its number and its rows."""
        columns = (
            "transport",
            "wsrm_sequence",
            "wsrm_number",
            "soap_action",
            "delivery",
            "body_text",
        )
        batches[number] = batch.select(*columns).collect()

    def came() -> list[Any]:
        return [row for number in sorted(batches) for row in batches[number]]

    def query() -> Any:
        stream = (
            spark.readStream.format("srmp").options(queueManager=running.api, queue=QUEUE).load()
        )
        return start(stream, tmp_path / "checkpoint", take, processingTime="0 seconds")

    with RunningQueueManager(
        tmp_path / "data", queues=[QUEUE], wsrm_buffer=BUFFER, listen_wsrm="127.0.0.1:0"
    ) as running:
        sender = Sender(running, COUNT)
        sender.start()
        sender.until(lambda: sender.polls > 3)
        assert (sender.sent, sender.acknowledged, sender.remaining) == (BUFFER, BUFFER, 0)
        assert came() == []
        reading = query()
        sender.until(lambda: sender.acknowledged > BUFFER)
        reading.stop()
        polls = sender.polls
        sender.until(lambda: sender.polls > polls + 1 or sender.acknowledged == COUNT)
        reading = query()
        sender.until(lambda: sender.acknowledged == COUNT)
        sender.join(WAIT_S)
        end = time.monotonic() + WAIT_S
        while len(came()) < COUNT:
            assert reading.isActive, reading.exception()
            assert time.monotonic() < end, f"{len(came())} of {COUNT} rows"
            time.sleep(0.1)
        reading.stop()
    assert sender.broken == []
    rows = came()
    assert [row.wsrm_number for row in rows] == list(range(1, COUNT + 1))
    assert {(row.transport, row.wsrm_sequence, row.soap_action, row.delivery) for row in rows} == {
        ("wsrm", sender.identifier, "urn:shop/order", "recoverable")
    }
    assert [row.body_text for row in rows] == [
        f'<order xmlns="urn:shop">{number}</order>' for number in range(1, COUNT + 1)
    ]
