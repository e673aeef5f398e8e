"""On plain HTTP a live stream that comes from another host is taken, and told (docs/GUARANTEES.md, The sender's name)."""

from __future__ import annotations

import http.client
import time
from typing import Any

from srmp_spark.testing.foreign.messages import post
from srmp_spark.testing.queue_manager import RunningQueueManager


def test_another_host_is_one_line_in_the_log(running: RunningQueueManager, peer: Any) -> None:
    for current, host in ((1, "127.0.0.1"), (2, "127.0.0.2"), (3, "127.0.0.2"), (4, "127.0.0.1")):
        written = post(peer.stream(current))
        connection = http.client.HTTPConnection(
            *running.endpoint, timeout=20, source_address=(host, 0)
        )
        connection.request(
            "POST", written.target, written.content, {"Content-Type": written.content_type}
        )
        assert connection.getresponse().status == 200, current
        connection.close()
    deadline = time.monotonic() + 5
    while not (
        told := [
            line for line in running.log.read_text().splitlines() if "stream.other_address" in line
        ]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(told) == 1
    assert "queue=private$/payments" in told[0]
    assert "before=127.0.0.1:" in told[0]
    assert "now=127.0.0.2:" in told[0]


def test_an_earlier_stream_is_one_line_in_the_log(running: RunningQueueManager, peer: Any) -> None:
    """Its messages are answered 200 and not kept: a machine that was put back from an image sends them, and hears nothing."""
    for ordinal, currents in ((8, (1,)), (7, (1, 2, 3))):
        for current in currents:
            assert peer.send(peer.stream(current, ordinal=ordinal)).status == 200
    deadline = time.monotonic() + 30
    while not (
        told := [line for line in running.log.read_text().splitlines() if "stream.stale" in line]
    ):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert len(told) == 1
    assert "queue=private$/payments" in told[0]
    assert "\\7 live=uid:" in told[0]
    assert "srmp-spark streams drop" in told[0]
