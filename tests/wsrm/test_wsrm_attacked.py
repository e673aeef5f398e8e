"""The port of WS-ReliableMessaging under attack: sequences of requests at a running process, and what it costs the others."""

from __future__ import annotations

import http.client
import os
import signal
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from live_kit import PATIENCE, Client, rows, wait_for
from roles_kit import NEW, OLD
from test_wsrm_any_sequence import request, with_parameter

from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.wsrm.codec.elements import CreateSequenceResponse, SoapFault
from srmp_spark.wsrm.codec.encoder import encode, http_fields

SOAP = {NEW[0]: "application/soap+xml", OLD[0]: "text/xml"}


@pytest.fixture
def running(tmp_path: Path) -> Iterator[RunningQueueManager]:
    queue_manager = RunningQueueManager(
        tmp_path / "data",
        queues=["private$/orders", "private$/other"],
        listen_wsrm="127.0.0.1:0",
        wsrm_buffer=16,
    )
    yield queue_manager.start()
    queue_manager.stop()


def post(
    running: RunningQueueManager,
    envelope: bytes,
    versions: tuple[object, ...] = NEW,
    queue: str = "orders",
) -> int:
    """The status of the answer, on a connection of its own."""
    connection = http.client.HTTPConnection(*running.wsrm, timeout=PATIENCE)
    try:
        connection.request(
            "POST", f"/wsrm/private$/{queue}", envelope, {"Content-Type": SOAP[versions[0]]}
        )  # type: ignore[index]
        return connection.getresponse().status
    finally:
        connection.close()


def gateway_of(running: RunningQueueManager) -> int:
    """The process id of the gateway: the child that runs its module."""
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                line = (entry / "cmdline").read_bytes()
                parent = int((entry / "stat").read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
            if parent == running.pid and b"queue_manager.wsrm.gateway" in line:
                return int(entry.name)
    raise AssertionError("no gateway runs")


def test_three_requests_of_two_versions_end_nothing(running: RunningQueueManager) -> None:
    old = Client(running, versions=OLD)
    identifier = old.open()
    assert post(running, request(NEW, "CloseSequence", identifier, 2, acks_to="")) in (400, 500)
    assert old.told(old.number(1))[0] == 1
    assert running.process is not None
    assert running.process.poll() is None
    assert "Traceback" not in running.stderr()


def test_a_row_that_a_stranger_left_can_be_read_at_the_next_start(
    running: RunningQueueManager,
) -> None:
    """A CreateSequence with 55 prefixes on Envelope and Body each, and a reference parameter: 2.5 KB."""
    assert (
        post(running, with_parameter(55, "<e7:session>b5:x</e7:session>", NEW[1].anonymous)) == 200
    )
    client = Client(running)
    client.open()
    client.told(client.number(1))
    running.kill9()
    running.restart()
    client.close()
    assert client.told(client.number(2))[0] == 2
    assert requests.get(f"{running.api}/v1/status", timeout=PATIENCE).json()["set_aside"] == []


def test_a_row_that_cannot_be_read_is_set_aside_and_everything_else_starts(
    running: RunningQueueManager,
) -> None:
    import sqlite3

    bad, good = Client(running), Client(running)
    identifier = bad.open()
    good.open()
    good.told(good.number(1))
    running.stop()
    with sqlite3.connect(running.data_dir / "store.db") as database:
        database.execute(
            "UPDATE wsrm_sequences SET acks_to = '<broken' WHERE identifier = ?", (identifier,)
        )
    database.close()
    running.start()
    bad.close()
    good.close()
    assert good.told(good.number(2))[0] == 2
    assert isinstance(bad.answer(bad.number(1)).content, SoapFault)
    (told,) = requests.get(f"{running.api}/v1/status", timeout=PATIENCE).json()["set_aside"]
    assert (told["table"], told["key"]) == ("wsrm_sequences", f"private$/orders {identifier}")
    assert "store.set_aside" in running.stderr()


def test_a_body_that_is_hard_to_read_delays_no_sender_of_srmp(running: RunningQueueManager) -> None:
    """4 MB with 100,000 elements, ten at once: the API answers within 250 ms all the while."""
    soap, addressing, _ = NEW
    declared = "".join(f' xmlns:e{number}="urn:{number}"' for number in range(60))
    body = "".join(f"<e1:a b='{'e2:c ' * 6}'/>" for _ in range(80_000))
    envelope = (
        f'<s:Envelope xmlns:s="{soap.value}" xmlns:a="{addressing.value}"><s:Header><a:Act'
        "ion>urn:a</a:Action></s:Header>"
        f"<s:Body{declared}>{body}</s:Body></s:Envelope>"
    ).encode()
    assert len(envelope) > 3_000_000
    head = (
        b"POST /wsrm/private$/orders HTTP/1.1\r\nHost: h\r\nContent-Type: "
        b"application/soap+xml\r\nContent-Length: %d\r\n\r\n"
    )
    sockets = [socket.create_connection(running.wsrm) for _ in range(10)]
    for each in sockets:
        each.sendall(head % len(envelope) + envelope)
    worst = 0.0
    session = requests.Session()
    for _ in range(40):
        began = time.monotonic()
        assert session.get(f"{running.api}/healthz", timeout=10).status_code == 200
        worst = max(worst, time.monotonic() - began)
        time.sleep(0.02)
    for each in sockets:
        each.close()
    assert worst < 0.25, f"{worst * 1000:.0f} ms"


def test_a_large_message_for_a_queue_that_is_not_there_is_not_parsed(
    running: RunningQueueManager,
) -> None:
    envelope = request(NEW, "Sequence", "urn:x", 1, acks_to="").replace(
        b"<n/>", b"<n>" + b"x" * 400_000 + b"</n>"
    )
    assert post(running, envelope, queue="nobody") == 400
    assert post(running, envelope) in (400, 500), "UnknownSequence, in SOAP"


def test_one_address_cannot_use_up_the_sequences_of_a_queue(running: RunningQueueManager) -> None:
    connection = http.client.HTTPConnection(*running.wsrm, timeout=PATIENCE)
    for number in range(1_200):
        envelope = request(NEW, "CreateSequence", "", number, acks_to=NEW[1].anonymous).replace(
            b"urn:m", b"urn:flood"
        )
        connection.request(
            "POST", "/wsrm/private$/orders", envelope, {"Content-Type": SOAP[NEW[0]]}
        )
        connection.getresponse().read()
    connection.close()
    other = http.client.HTTPConnection(
        *running.wsrm, timeout=PATIENCE, source_address=("127.0.0.7", 0)
    )
    honest = Client(running)
    sent = honest.create()
    other.request("POST", "/wsrm/private$/orders", encode(sent), http_fields(sent))
    assert other.getresponse().status == 200
    other.close()

    def begins() -> bool:
        return isinstance(honest.answer(honest.create()).content, CreateSequenceResponse)

    wait_for(begins)  # from the flood's own address, too: what it began and left makes way


def test_one_client_s_gap_stops_no_other_client(running: RunningQueueManager) -> None:
    gap, other = Client(running), Client(running)
    gap.open()
    for number in range(2, 18):
        gap.told(gap.number(number))
    other.open()
    assert other.told(other.number(1)) == (1, 15), "16 places, and one row in the queue"


def test_the_srmp_port_carries_srmp_alone(running: RunningQueueManager) -> None:
    connection = http.client.HTTPConnection(*running.endpoint, timeout=PATIENCE)
    sent = Client(running).create()
    connection.request("POST", "/wsrm/private$/orders", encode(sent), http_fields(sent))
    assert connection.getresponse().status == 404
    connection.close()


def test_without_the_option_there_is_no_port(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "data", queues=["q"]) as plain:
        assert "wsrm" not in plain.ready


def test_the_gateway_s_death_closes_its_connections_and_nothing_else(
    running: RunningQueueManager,
) -> None:
    client = Client(running)
    client.open()
    assert client.told(client.number(1))[0] == 1
    sender = http.client.HTTPConnection(*running.endpoint, timeout=PATIENCE)
    sender.connect()
    for number in (2, 3, 4):
        os.kill(gateway_of(running), signal.SIGKILL)
        client.close()
        assert client.told(client.number(number))[0] == number, (
            "the same sequence, at the next gateway"
        )
    assert client.told(client.number(2))[0] == 4, "a copy"
    assert [row["wsrm_number"] for row in rows(running)] == [1, 2, 3, 4]
    sender.request("POST", "/msmq/private$/orders", b"", {"Content-Type": "text/xml"})
    assert sender.getresponse().status == 400, "its connection never noticed"
    sender.close()


def test_a_thousand_requests_behind_each_other_that_are_answered_at_once(
    running: RunningQueueManager,
) -> None:
    """Each answer began the next request within the one before: 300 of them were deeper than Python's stack."""
    envelope = request(NEW, "CreateSequence", "", 0, acks_to="<a:Address>x y</a:Address>")
    head = (
        f"POST /wsrm/private$/orders HTTP/1.1\r\nHost: h\r\nContent-Type: {SOAP[NEW[0]]}\r\n"
        f"Content-Length: {len(envelope)}\r\n\r\n"
    ).encode()
    with socket.create_connection(running.wsrm, timeout=PATIENCE) as connection:
        connection.sendall((head + envelope) * 1_000)
        answered = b""
        while answered.count(b"HTTP/1.1 ") < 1_000:
            more = connection.recv(1 << 20)
            assert more, f"closed after {answered.count(b'HTTP/1.1 ')} answers"
            answered += more
    assert b"HTTP/1.1 503" not in answered
    assert "Traceback" not in running.stderr()
