"""A running queue manager whose ports are full of connections that say nothing: a good sender gets a place all the same."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator

import pytest

from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import Authority

QUEUE = "private$/orders"
LINEAGE = "aaaaaaaa-0000-4000-8000-0000000f0115"
FILES_MAX = 600
"""Open files of the process: 256 are reserved, and SRMP has about 300 of the others."""
SILENT = 500
"""Connections of strangers, more than the port has places."""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("full")
    authority = Authority(folder / "files")
    identity = authority.issue("qm")
    with RunningQueueManager(
        folder / "data", queues=[QUEUE], prefix=["prlimit", f"--nofile={FILES_MAX}:{FILES_MAX}"], host_name="localhost",
        listen_https="127.0.0.1:0", listen_cert=identity.certificate, listen_key=identity.key,
    ) as running:  # fmt: skip
        yield running


def _silent(stack: contextlib.ExitStack, address: tuple[str, int], said: bytes) -> None:
    for number in range(SILENT):
        each = stack.enter_context(socket.socket())
        each.bind((f"127.0.0.{2 + number % 4}", 0))
        each.connect(address)
        with contextlib.suppress(ConnectionError):  # the port may have closed it already
            each.sendall(said)


def _send(
    running: RunningQueueManager, number: int, connection: http.client.HTTPConnection | None = None
) -> int:
    host, port = running.endpoint
    written = post(
        ForeignMessage(
            to=f"http://{host}:{port}/msmq/{QUEUE}",
            lineage=LINEAGE,
            uniquifier=number,
            sent_at=1_790_000_000,
            body=b"x",
        )
    )
    fields = {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'}
    connection = connection or http.client.HTTPConnection(host, port, timeout=10)
    connection.request("POST", written.target, written.content, fields)
    answer = connection.getresponse()
    answer.read()
    return answer.status


@pytest.mark.parametrize(
    "said", [b"", b"POST /msmq/private$/orders HT"], ids=["nothing", "half-a-head"]
)
def test_a_good_sender_gets_the_place_of_one_that_says_nothing(
    running: RunningQueueManager, said: bytes, request: pytest.FixtureRequest
) -> None:
    kept = http.client.HTTPConnection(*running.endpoint, timeout=10)
    first = len(request.node.name) * 1_000
    assert _send(running, first, kept) == 200
    with contextlib.ExitStack() as stack:
        _silent(stack, running.endpoint, said)
        assert _send(running, first + 1) == 200, "a new connection finds a place"
        assert _send(running, first + 2, kept) == 200, (
            "a connection whose message was accepted has kept its own"
        )
        api = http.client.HTTPConnection(*_api(running), timeout=10)
        api.request("GET", "/healthz")
        assert api.getresponse().status == 200, "the API has places of its own"
    assert "Traceback" not in running.stderr()


def test_handshakes_without_an_end_make_way_too(running: RunningQueueManager) -> None:
    port = int(running.ready["https"].rpartition(":")[2])
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with contextlib.ExitStack() as stack:
        _silent(stack, ("127.0.0.1", port), b"\x16\x03\x01")
        assert (
            _send(
                running,
                1,
                http.client.HTTPSConnection("127.0.0.1", port, timeout=10, context=context),
            )
            == 200
        )
        assert _send(running, 2) == 200, "and at the plain port, which has the same places"
    assert "Traceback" not in running.stderr()


def _api(running: RunningQueueManager) -> tuple[str, int]:
    host, _, port = running.api.partition("://")[2].rpartition(":")
    return host, int(port)
