"""Slow clients against a real ``serve``, a healthy one beside them (T18). The long version: ``make slow CONNECTIONS=5000``."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from srmp_spark.queue_manager.srmp_port.http_limits import BODY_SECONDS, HEAD_SECONDS, SWEEP_SECONDS
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.fuzz.slow_clients import Summary
from tests.kit.stalls import MachineStalls

CONNECTIONS = int(os.environ.get("SRMP_SPARK_SLOW_CONNECTIONS", "500"))
SECONDS = float(os.environ.get("SRMP_SPARK_SLOW_SECONDS", "16"))
HARD_SECONDS = 20.0
"""No slow request may live longer, however loaded the machine."""
IDLE_BYTES_MAX = 64 * 1024
"""Of the process for each connection that does nothing."""
LATENCY_FLOOR = 0.1
"""Seconds: below this, twice the baseline is what any disk and any scheduler does now and then."""
DEAF = 3
"""Clients that do not read their answers."""
FILL_SECONDS = 10.0
"""Until their buffers are full, on a busy machine; from then on they have as long as the others."""
BASELINE = 400
"""Messages before the attack."""


class Healthy:
    """A sender that keeps to the rules, one message at a time."""

    def __init__(self, endpoint: tuple[str, int]) -> None:
        self._connection = socket.create_connection(endpoint, timeout=10)
        self._number = 0
        self.failed = 0

    def send(self) -> float:
        """Seconds until its 200."""
        self._number += 1
        to = "http://127.0.0.1/msmq/private$/healthy"
        message = ForeignMessage(
            to=to,
            lineage="0a0b0c0d-1234-1234-1234-444455556666",
            uniquifier=self._number,
            sent_at=1_790_000_000,
            durable=True,
        )
        begun = time.perf_counter()
        self._connection.sendall(post(message).raw)
        answer = self._connection.recv(65_536)
        self.failed += not (answer.startswith(b"HTTP/1.1 200 ") and answer.endswith(b"\r\n\r\n"))
        return time.perf_counter() - begun


def resident(pid: int) -> int:
    match = re.search(r"VmRSS:\s*(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    return int(match[1]) * 1024


def attack(
    endpoint: tuple[str, int], kinds: str, connections: int, seconds: float
) -> subprocess.Popen[str]:
    """Under way, its connections made."""
    command = [
        sys.executable,
        "-m",
        "tests.kit.fuzz.slow_clients",
        *map(str, endpoint),
        kinds,
    ]
    process = subprocess.Popen(
        [*command, str(connections), str(seconds)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def ended(process: subprocess.Popen[str]) -> dict[str, Summary]:
    out, _ = process.communicate(timeout=60)
    found: dict[str, Summary] = json.loads(out)
    return found


def p99(seconds: list[float]) -> float:
    return sorted(seconds)[len(seconds) * 99 // 100]


class Siege(NamedTuple):
    """What was measured."""

    idle_bytes: float
    baseline: float
    loaded: float
    allowance: float
    """Seconds that the machine kept ready processes waiting meanwhile."""
    messages: int
    failed: int
    kinds: dict[str, Summary]
    log: str


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    directory = tmp_path_factory.mktemp("slow") / "data"
    with RunningQueueManager(directory, queues=["private$/healthy", "private$/slow"]) as running:
        healthy = Healthy(running.endpoint)
        before_attack = [healthy.send() for _ in range(BASELINE)]
        before = resident(running.pid)
        idle = attack(running.endpoint, "idle", CONNECTIONS, 3.0)
        grown = resident(running.pid) - before
        assert ended(idle)["idle"]["opened"] == CONNECTIONS
        process = attack(running.endpoint, "idle,head,body", CONNECTIONS, SECONDS)
        deaf = attack(running.endpoint, "answers", DEAF, SECONDS + FILL_SECONDS)
        during: list[float] = []
        with MachineStalls() as stalls:
            while process.poll() is None:
                during.append(healthy.send())
                time.sleep(0.005)
        result = Siege(
            grown / CONNECTIONS, p99(before_attack), p99(during), stalls.allowance, len(during), healthy.failed,
            ended(process) | ended(deaf), running.stderr(),
        )  # fmt: skip
        print(
            f"\n{CONNECTIONS} slow connections for {SECONDS:g} s: "
            f"{result.idle_bytes / 1024:.1f} KiB for each idle one; "
            f"p99 of a healthy sender {result.loaded * 1000:.1f} ms, before "
            f"{result.baseline * 1000:.1f} ms, "
            f"{result.messages} messages; {result.kinds}"
        )
        yield result


def test_an_idle_connection_costs_little(siege: Siege) -> None:
    assert siege.idle_bytes <= IDLE_BYTES_MAX


@pytest.mark.parametrize(("kind", "seconds"), [("head", HEAD_SECONDS), ("body", BODY_SECONDS)])
def test_a_slow_request_is_answered_408_in_time(siege: Siege, kind: str, seconds: float) -> None:
    found = siege.kinds[kind]
    assert set(found["ended"]) == {"408"}
    assert found["ended"]["408"] >= CONNECTIONS // 4
    assert found["first"] >= seconds - SWEEP_SECONDS
    assert found["last"] <= HARD_SECONDS


def test_who_does_not_read_answers_is_cut_off(siege: Siege) -> None:
    found = siege.kinds["answers"]
    assert found["ended"] == {"cut": DEAF}
    assert found["last"] <= HARD_SECONDS


def test_who_says_nothing_is_left_alone_for_a_while(siege: Siege) -> None:
    assert siege.kinds["idle"]["ended"] == {}


def test_everybody_could_connect(siege: Siege) -> None:
    assert {kind: found["failed"] for kind, found in siege.kinds.items()} == dict.fromkeys(
        siege.kinds, 0
    )


def test_a_healthy_sender_notices_nothing(siege: Siege) -> None:
    assert siege.failed == 0
    assert siege.messages > 50
    assert siege.loaded <= 2 * max(siege.baseline, LATENCY_FLOOR) + siege.allowance


def test_nothing_was_logged_as_our_fault(siege: Siege) -> None:
    assert "Traceback" not in siege.log
    assert "ERROR" not in siege.log
