"""What an operator decides about a stream that comes in: accept a gap, or forget the stream."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
import requests
from kit import post

from srmp_spark.testing.foreign.messages import ForeignMessage, ForeignStream
from srmp_spark.testing.foreign.messages import post as written
from srmp_spark.testing.queue_manager import RunningQueueManager

QUEUE = "private$/payments"
SOURCE = "aaaaaaaa-0000-4000-8000-000000000001"


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path / "qm", queues=[f"{QUEUE}:transactional"]) as queue_manager:
        yield queue_manager


def send(
    running: RunningQueueManager, number: int, current: int, previous: int, ordinal: int = 7
) -> None:
    host, port = running.endpoint
    to = "http://127.0.0.1:9/msmq/private$/order_queue$" if current == 1 else None
    message = ForeignMessage(
        to=f"http://{host}:{port}/msmq/{QUEUE}", lineage=SOURCE, uniquifier=number, sent_at=1_790_000_000, body=b"%d" % number,
        durable=True, priority=0,
        stream=ForeignStream(guid=SOURCE, ordinal=ordinal, current=current, previous=previous, receipts_to=to),
    )  # fmt: skip
    request = written(message)
    connection = http.client.HTTPConnection(host, port, timeout=20)
    connection.request(
        "POST", request.target, request.content, {"Content-Type": request.content_type}
    )
    assert connection.getresponse().status == 200
    connection.close()


def last(running: RunningQueueManager) -> int:
    return int(
        requests.get(f"{running.api}/v1/queues/{quote(QUEUE, safe='')}", timeout=30).json()["last"]
    )


def decide(running: RunningQueueManager, action: str, stream: str) -> None:
    post(
        f"{running.api}/v1/streams/{quote(QUEUE, safe='')}/{action}?stream={quote(stream, safe='')}"
    )


def test_a_gap_that_is_accepted_lets_the_stream_go_on(running: RunningQueueManager) -> None:
    """Also after a kill: the answer says that it is stored, and the message behind the gap may come hours later."""
    send(running, 1, 1, 0)
    url = f"{running.api}/v1/streams/{quote(QUEUE, safe='')}/accept-gap"
    answer = requests.post(url, params={"stream": f"uid:{SOURCE}\\7"}, timeout=30)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"]) == (409, "no-gap"), "as far as anybody knows"
    assert "gap_at" in error["hint"]
    send(running, 5, 5, 4)
    assert last(running) == 1, "2 is missing"
    answer = requests.post(url, params={"stream": f"uid:{SOURCE}\\7", "gap_at": "4"}, timeout=30)
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, "another-gap"), (
        "not the one that the operator saw"
    )
    decide(running, "accept-gap", f"uid:{SOURCE}\\7")
    running.kill9()
    running.restart()
    (stream,) = requests.get(f"{running.api}/v1/status", timeout=30).json()["incoming_streams"]
    assert (stream["gap_at"], stream["gap_to"]) == (2, 4)
    send(running, 6, 6, 5)
    assert last(running) == 1, "the gap ends at 5"
    send(running, 5, 5, 4)
    send(running, 6, 6, 5)
    assert last(running) == 3


def test_a_stream_that_is_forgotten_begins_again_whatever_its_number(
    running: RunningQueueManager,
) -> None:
    send(running, 1, 1, 0)
    send(running, 11, 1, 0, ordinal=3)
    assert last(running) == 1, "a lower number is a late copy"
    decide(running, "reset", f"uid:{SOURCE}\\7")
    send(running, 11, 1, 0, ordinal=3)
    assert last(running) == 2
    running.kill9()
    running.restart()
    (stream,) = requests.get(f"{running.api}/v1/status", timeout=30).json()["incoming_streams"]
    assert stream["stream_id"] == f"uid:{SOURCE}\\3"
