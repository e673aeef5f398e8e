"""The dense form of rows: the reader process writes it into the caller's own connection."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO
from urllib.parse import quote

import pytest
import urllib3
from peer_kit import Peer

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiUnreachableError
from srmp_spark.interface import DENSE_STREAM
from srmp_spark.rows import dense
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import make_certificate

QUEUE = "private$/orders"
LARGE = 1024 * 1024
"""A body of which a few do not fit into the buffers of a connection."""


@pytest.fixture(scope="module")
def large(running: RunningQueueManager) -> int:
    """A backlog of 24 MiB; its last sequence."""
    sender = Peer(running)
    for number in range(24):
        assert sender.send(sender.message(QUEUE, body=bytes([number]) * LARGE)).status == 200
    sender.close()
    return QueueManagerClient(running.api).range(QUEUE).end


def path_of(client: QueueManagerClient, to: int) -> str:
    found = client.range(QUEUE)
    return f"/v1/queues/{quote(QUEUE, safe='')}/rows?epoch={found.epoch}&after=0&to={to}"


def connect(running: RunningQueueManager) -> http.client.HTTPConnection:
    return http.client.HTTPConnection(running.api.partition("://")[2], timeout=20)


def sequences(stream: IO[bytes]) -> list[int]:
    """Of groups or of the segment that they are sealed into: with bodies this large that may have happened already."""
    rows = dense.batches(dense.frames(stream), "", QUEUE, 0, sys.maxsize)
    return [sequence for batch in rows for sequence in batch.column("sequence").to_pylist()]


def test_the_connection_serves_further_calls(
    running: RunningQueueManager, client: QueueManagerClient, large: int
) -> None:
    connection = connect(running)
    for _ in range(2):
        connection.request("GET", path_of(client, large), headers={"Accept": DENSE_STREAM})
        answer = connection.getresponse()
        assert (answer.status, answer.headers["Content-Type"]) == (200, DENSE_STREAM)
        assert sequences(answer) == list(range(1, large + 1))
        assert answer.read() == b""
        connection.request("GET", "/v1/status")
        assert json.load(connection.getresponse())["queue_manager"] == running.guid
    connection.close()


def test_who_has_read_all_rows_uses_the_connection_again(
    running: RunningQueueManager, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    connect = urllib3.util.connection.create_connection
    monkeypatch.setattr(
        urllib3.util.connection,
        "create_connection",
        lambda *a, **k: made.append(a) or connect(*a, **k),
    )
    client = QueueManagerClient(running.api)
    epoch = client.range(QUEUE).epoch
    for _ in range(3):
        with client.rows(QUEUE, epoch=epoch, after=0, to=large, dense=True) as stream:
            assert sequences(stream.as_file())[-1] == large
    assert len(made) == 1
    with client.rows(QUEUE, epoch=epoch, after=0, to=large, dense=True) as stream:
        stream.read(100)
    assert client.range(QUEUE).end == large, "what was not read is not taken for the next answer"
    assert len(made) == 2


def test_a_call_sent_ahead_is_answered_behind_the_rows(
    running: RunningQueueManager, client: QueueManagerClient, large: int
) -> None:
    host, _, port = running.api.partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as both:
        head = (
            f"GET {path_of(client, large)} HTTP/1.1\r\nHost: {host}\r\nAccept: "
            f"{DENSE_STREAM}\r\n\r\n"
        )
        both.sendall(
            head.encode() + b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        )
        time.sleep(0.3)  # both are there before we take a byte
        got = b"".join(iter(lambda: both.recv(1 << 20), b""))
    rows, _, health = got.rpartition(b"0\r\n\r\n")
    assert rows.count(b"HTTP/1.1 200 OK") == 1
    assert len(rows) > 24 * LARGE
    assert health.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("accept", [DENSE_STREAM, "*/*"])
def test_head_is_answered_without_rows_and_the_connection_goes_on(
    running: RunningQueueManager, client: QueueManagerClient, large: int, accept: str
) -> None:
    host, _, port = running.api.partition("://")[2].rpartition(":")
    with socket.create_connection((host, int(port)), timeout=20) as both:
        both.sendall(
            f"HEAD {path_of(client, large)} HTTP/1.1\r\nHost: {host}\r\nAccept: {accept}\r\n\r\n".encode()
        )
        both.sendall(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        got = b"".join(iter(lambda: both.recv(1 << 20), b""))
    head, _, rest = got.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK")
    assert b"content-length" not in head.lower()
    assert rest.startswith(b"HTTP/1.1 200 OK"), rest[:100]
    assert rest.endswith(b"\r\n\r\nok\n")


def test_a_caller_that_goes_away_harms_nobody(
    running: RunningQueueManager, client: QueueManagerClient, large: int
) -> None:
    for _ in range(40):  # more than the reader has threads
        connection = connect(running)
        connection.request("GET", path_of(client, large), headers={"Accept": DENSE_STREAM})
        connection.getresponse().read(100)
        connection.close()
    with client.rows(
        QUEUE, epoch=client.range(QUEUE).epoch, after=0, to=large, dense=True
    ) as stream:
        assert sequences(stream.as_file()) == list(range(1, large + 1))


def test_a_reader_that_dies_is_no_end_of_the_rows(
    start: Callable[..., RunningQueueManager],
) -> None:
    running = start(queues=[QUEUE])
    client = QueueManagerClient(running.api, retry_seconds=10)
    sender = Peer(running)
    for _ in range(24):
        assert sender.send(sender.message(QUEUE, body=bytes(LARGE))).status == 200
    sender.close()
    epoch = client.range(QUEUE).epoch
    with client.rows(QUEUE, epoch=epoch, after=0, to=24, dense=True) as stream:
        stream.read(100)
        for child in children(running.pid):
            os.kill(child, signal.SIGKILL)
        with pytest.raises(ApiUnreachableError):
            sum(len(piece) for piece in iter(lambda: stream.read(LARGE), b""))
    with client.rows(QUEUE, epoch=epoch, after=0, to=24, dense=True) as stream:  # the next reader
        assert sequences(stream.as_file()) == list(range(1, 25))


def test_over_tls_the_rows_go_through_the_server(
    start: Callable[..., RunningQueueManager], tmp_path: Path
) -> None:
    certificate, key = make_certificate(tmp_path)
    running = start(queues=[QUEUE], api_cert=certificate, api_key=key)
    sender = Peer(running)
    for number in range(5):
        assert sender.send(sender.message(QUEUE, body=bytes([number]) * LARGE)).status == 200
    sender.close()
    connection = http.client.HTTPSConnection(
        f"localhost:{running.api.rpartition(':')[2]}",
        context=ssl.create_default_context(cafile=str(certificate)),
        timeout=20,
    )
    with contextlib.closing(connection):
        connection.request("GET", f"/v1/queues/{quote(QUEUE, safe='')}/range")
        epoch = json.load(connection.getresponse())["epoch"]
        path = f"/v1/queues/{quote(QUEUE, safe='')}/rows?epoch={epoch}&after=0&to=5"
        connection.request("GET", path, headers={"Accept": DENSE_STREAM})
        assert sequences(connection.getresponse()) == [1, 2, 3, 4, 5]


def children(pid: int) -> Iterator[int]:
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):
                if int((folder / "stat").read_text().rsplit(")", 1)[1].split()[1]) == pid:
                    yield int(folder.name)
