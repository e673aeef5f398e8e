"""Messages for ``wsrm:URL`` to services of Apache CXF and Eclipse Metro: ``make interop-wsrm`` (tests/peers/wsrm/README.md).

Each message is delivered once and in order though the proxy between loses a fifth of all requests and answers, every sequence
is ended as its version wants it, and neither service knows BufferRemaining: without it our side sends all the same.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from live_kit import wait_for
from out_kit import client, finished, status
from test_wsrm_interop import PEERS, SECONDS, VERSIONS, Proxy
from test_wsrm_interop import built as built  # a fixture

from srmp_spark.testing.queue_manager import RunningQueueManager

COUNT = 20
ACTION = "urn:srmp-spark:peers:wsrm:submit"

pytestmark = [
    pytest.mark.skipif(
        "SRMP_SPARK_INTEROP_WSRM" not in os.environ, reason="foreign programs: make interop-wsrm"
    ),
    pytest.mark.timeout(600),
]


class Server:
    """A foreign service, and what it says that reached its application."""

    def __init__(self, stack: str) -> None:
        command = [str(PEERS / "peer"), stack, "server", "--max-seconds", "3600"]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: list[dict[str, Any]] = []
        self.ready = self._line()
        threading.Thread(target=self._read, daemon=True).start()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        return json.loads(self._process.stdout.readline())  # type: ignore[no-any-return]

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self.lines.append(json.loads(line))

    def url(self, rm: str, wsa: str, soap: str) -> tuple[str, str]:
        """Base and path."""
        name = f"soap{soap.replace('.', '')}"
        if self.ready["stack"] == "metro":
            name = {"1.0": f"rm10{'a04' if wsa == '2004' else ''}", "1.1": "rm11"}[rm] + name
        base = f"http://127.0.0.1:{self.ready['port']}"
        return base, self.ready[name].removeprefix(base)

    def delivered(self, prefix: str) -> list[dict[str, Any]]:
        return [line for line in self.lines if line.get("text", "").startswith(prefix)]

    def close(self) -> None:
        self._process.terminate()
        self._process.wait(30)


@pytest.fixture(scope="module")
def servers(built: None) -> Iterator[dict[str, Server]]:
    found = {stack: Server(stack) for stack in ("cxf", "metro")}
    yield found
    for server in found.values():
        server.close()


@pytest.fixture(scope="module")
def sending(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(
        tmp_path_factory.mktemp("interop-out") / "data", retransmission_timeout=1
    ) as running:
        yield running


def send_texts(
    running: RunningQueueManager, destination: str, prefix: str, versions: tuple[str, str, str]
) -> None:
    rm, wsa, soap = versions
    more = {
        "wsrm_version": rm,
        "soap_version": soap,
        "wsa_version": {"2004": "2004/08", "2005": "2005/08"}[wsa],
    }
    texts = [f"{prefix}{number:06d}" for number in range(1, COUNT + 1)]
    bodies = [
        f'<n:submit xmlns:n="urn:srmp-spark:peers:wsrm"><text>{text}</text></n:submit>'
        for text in texts
    ]
    client(running).send_away([
        {"destination": destination, "soap_action": ACTION, "body_base64": base64.b64encode(each.encode()).decode(), **more}
        for each in bodies
    ])  # fmt: skip


@pytest.mark.parametrize(
    ("stack", "versions", "loss"),
    [*product(["cxf", "metro"], VERSIONS, [0.0, 0.2])],
    ids=lambda value: str(value),
)
def test_a_foreign_service_gets_everything_once_and_in_order(
    servers: dict[str, Server],
    sending: RunningQueueManager,
    tmp_path: Path,
    stack: str,
    versions: tuple[str, str, str],
    loss: float,
) -> None:
    server = servers[stack]
    base, path = server.url(*versions)
    proxy = Proxy(tmp_path, base, loss, 5, None)
    prefix = f"{stack}-{'-'.join(versions)}-{loss}-"
    try:
        destination = f"wsrm:{proxy.url}{path}"
        send_texts(sending, destination, prefix, versions)
        wait_for(lambda: len(server.delivered(prefix)) >= COUNT, SECONDS)
        finished(sending, destination)
        wait_for(
            lambda: status(sending, destination)["wsrm"] is None, SECONDS
        )  # closed and terminated, or given up
    finally:
        proxy.close()
    found = server.delivered(prefix)
    assert [line["text"] for line in found] == [
        f"{prefix}{number:06d}" for number in range(1, COUNT + 1)
    ]
    assert [int(line["number"]) for line in found] == list(range(1, COUNT + 1))
    assert len({line["sequence"] for line in found}) == 1
    raw = b"".join(each.read_bytes() for each in (tmp_path / "raw").rglob("*") if each.is_file())
    assert b"TerminateSequence" in raw
    assert (b"CloseSequence" in raw) == (versions[0] == "1.1")
    assert (b"LastMessage" in raw) == (versions[0] == "1.0")
    if loss:
        assert any(
            json.loads(line)["fate"] == "drop" for line in proxy.flow.read_text().splitlines()
        )
