"""Apache CXF and Eclipse Metro clients against our queue manager: ``make interop-wsrm`` (tests/peers/wsrm/README.md).

They are programs of others, in Java, and so no part of an ordinary run. Where they are asked for and cannot be had, that is a
failure. Each message is a row, once and in order, though the proxy between loses a fifth of all requests and answers; every
client ends with all acknowledged; and the acknowledgements carry BufferRemaining, which neither chokes on.
"""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from live_kit import rows

from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.wsrm.limits import ANSWER_HELD

PEERS = Path(__file__).resolve().parents[1] / "peers" / "wsrm"
COUNT = 20
SECONDS = 240
VERSIONS = [("1.0", "2004", "1.1"), ("1.0", "2005", "1.2"), ("1.1", "2005", "1.2")]

pytestmark = [
    pytest.mark.skipif(
        "SRMP_SPARK_INTEROP_WSRM" not in os.environ, reason="foreign programs: make interop-wsrm"
    ),
    pytest.mark.timeout(600),
]


@pytest.fixture(scope="session")
def built() -> None:
    done = subprocess.run([PEERS / "build.sh"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, (
        f"the peers cannot be built:\n{done.stdout[-2000:]}{done.stderr[-2000:]}"
    )


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("interop")
    options = {"wsrm_buffer": 4096, "allow_url": ["http://127.0.0.1:*/*"]}
    with RunningQueueManager(
        folder / "data",
        queues=["private$/interop"],
        listen_wsrm="127.0.0.1:0",
        **options,  # type: ignore[arg-type]
    ) as queue_manager:
        yield queue_manager


class Proxy:
    """Loses, doubles and delays."""

    def __init__(
        self, folder: Path, target: str, loss: float, seed: int, client: int | None
    ) -> None:
        self.flow = folder / "flow.jsonl"
        command = [
            sys.executable,
            str(PEERS / "lossy_proxy.py"),
            "--target",
            target,
            "--loss",
            str(loss),
            "--seed",
            str(seed),
        ]
        command += [
            "--log",
            str(self.flow),
            "--raw",
            str(folder / "raw"),
            "--max-seconds",
            str(2 * SECONDS),
        ]
        if loss:
            command += ["--dup", "0.05", "--delay", "0.1", "--delay-ms", "300"]
        if client is not None:
            command += ["--client", f"http://127.0.0.1:{client}"]
        self._process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self.url: str = json.loads(self._process.stdout.readline())["url"]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(20)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as found:
        return int(found.getsockname()[1])


def texts(running: RunningQueueManager, after: int) -> list[dict[str, Any]]:
    return [row for row in rows(running, "private$/interop") if row["sequence"] > after]


CASES = [
    *product(["cxf", "metro"], VERSIONS, ["anonymous"], [0.0, 0.2]),
    *product(["cxf"], VERSIONS, ["addressable"], [0.0, 0.2]),
    *product(["metro"], [VERSIONS[2]], ["polling"], [0.0, 0.2]),
]


def client_of(
    stack: str, versions: tuple[str, str, str], url: str, count: int, *more: str
) -> subprocess.CompletedProcess[str]:
    rm, wsa, soap = versions
    command = [
        str(PEERS / "peer"),
        stack,
        "client",
        "--url",
        f"{url}/wsrm/private$/interop",
        "--rm",
        rm,
        "--wsa",
        wsa,
    ]
    command += ["--soap", soap, "--op", "submit", "--count", str(count), "--timeout", "90", *more]
    return subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, check=False)


def judge(found: list[dict[str, Any]], count: int, done: subprocess.CompletedProcess[str]) -> None:
    """Each once, in order, in one sequence, and the client knows it."""
    said = done.stdout[-3000:] + done.stderr[-3000:]
    told = [re.findall(r"<text>(.*?)</text>", row["body_text"])[0] for row in found]
    assert told == [f"m-{number:06d}" for number in range(1, count + 1)], said
    assert [row["wsrm_number"] for row in found] == list(range(1, count + 1))
    assert len({row["wsrm_sequence"] for row in found}) == 1
    assert done.returncode == 0, said


@pytest.mark.parametrize(("stack", "versions", "way", "loss"), CASES, ids=lambda value: str(value))
def test_a_foreign_client_delivers_once_and_in_order(
    built: None,
    running: RunningQueueManager,
    tmp_path: Path,
    stack: str,
    versions: tuple[str, str, str],
    way: str,
    loss: float,
) -> None:
    before = len(rows(running, "private$/interop"))
    port = free_port() if way == "addressable" else None
    proxy = Proxy(tmp_path, running.ready["wsrm"], loss, 5, port)
    try:
        more = ("--mc",) if way == "polling" else ()
        more = more if port is None else ("--decoupled", "--decoupled-port", str(port))
        done = client_of(stack, versions, proxy.url, COUNT, *more)
        time.sleep(0.5)
    finally:
        proxy.close()
    judge(texts(running, before), COUNT, done)
    raw = b"".join(path.read_bytes() for path in (tmp_path / "raw").rglob("*") if path.is_file())
    assert b"BufferRemaining" in raw
    if loss:
        assert any(
            json.loads(line)["fate"] == "drop" for line in proxy.flow.read_text().splitlines()
        )


@pytest.mark.parametrize(
    ("stack", "versions"), list(product(["cxf", "metro"], [VERSIONS[0], VERSIONS[2]])), ids=str
)
def test_a_queue_without_room_slows_a_foreign_client_down(
    built: None, tmp_path: Path, stack: str, versions: tuple[str, str, str]
) -> None:
    """Both make an Offer, and neither knows BufferRemaining: their answers come late, and nothing is lost by it."""
    with RunningQueueManager(
        tmp_path / "data",
        queues=["private$/interop"],
        wsrm_buffer=1,
        listen_wsrm="127.0.0.1:0",
    ) as running:
        done = client_of(stack, versions, running.ready["wsrm"], 5)
        judge(rows(running, "private$/interop"), 5, done)
    (summary,) = (json.loads(line) for line in done.stdout.splitlines() if '"summary"' in line)
    assert summary["elapsed_ms"] > 4 * ANSWER_HELD * 1000
