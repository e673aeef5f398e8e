"""``/wsrm/QUEUE`` of a running queue manager: rows once and in order, acknowledged when stored, the room of the queue told."""

from __future__ import annotations

import re
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import requests
from live_kit import PATIENCE, Callbacks, Client, receive, rows, wait_for
from wsrm_kit import IDS, VERSIONS, sample

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager
from srmp_spark.wsrm.codec.decoder import decode
from srmp_spark.wsrm.codec.elements import (
    Blame,
    CloseSequence,
    CloseSequenceResponse,
    EndpointReference,
    Sequence,
    TerminateSequence,
    TerminateSequenceResponse,
)
from srmp_spark.wsrm.codec.encoder import encode, http_fields
from srmp_spark.wsrm.codec.faults import FaultCode, code_of
from srmp_spark.wsrm.codec.namespaces import RmVersion, SoapVersion

QUEUES = ["private$/orders", "private$/other", "private$/full", "private$/payments:transactional"]
Start = Callable[..., RunningQueueManager]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("wsrm")
    with RunningQueueManager(
        folder / "data", queues=QUEUES, wsrm_buffer=4096, listen_wsrm="127.0.0.1:0"
    ) as queue_manager:
        yield queue_manager


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    started: list[RunningQueueManager] = []

    def begin(name: str = "data", **options: object) -> RunningQueueManager:
        queue_manager = RunningQueueManager(
            tmp_path / name, **{"queues": QUEUES, "listen_wsrm": "127.0.0.1:0", **options}
        )  # type: ignore[arg-type]
        started.append(queue_manager)
        return queue_manager.start()

    yield begin
    for queue_manager in started:
        queue_manager.stop()


@pytest.fixture
def callbacks() -> Iterator[Callbacks]:
    server = Callbacks()
    yield server
    server.close()


# --- rows -------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("versions", VERSIONS, ids=IDS)
def test_a_session_becomes_rows_in_every_version(
    running: RunningQueueManager, versions: tuple[object, ...]
) -> None:
    client = Client(running, versions=versions)  # type: ignore[arg-type]
    identifier = client.open()
    assert [client.told(client.number(number))[0] for number in (1, 3, 2, 2)] == [1, 1, 3, 3]
    if versions[2] is RmVersion.V1_0:
        last = replace(
            client.number(4, is_last=True), action=RmVersion.V1_0.action("LastMessage"), body=b""
        )
        assert client.told(last)[0] == 4
        assert client.say(client.of_rm("TerminateSequence", TerminateSequence(identifier))) == (
            202,
            None,
        )
    else:
        closed = client.answer(client.of_rm("CloseSequence", CloseSequence(identifier, 3)))
        assert closed.content == CloseSequenceResponse(identifier)
        over = client.answer(client.of_rm("TerminateSequence", TerminateSequence(identifier, 3)))
        assert over.content == TerminateSequenceResponse(identifier)
    found = [row for row in rows(running, envelope=True) if row["wsrm_sequence"] == identifier]
    assert [row["wsrm_number"] for row in found] == [1, 2, 3]
    first = found[0]
    assert first["body"] == b'<order xmlns="urn:shop"><n>1</n></order>'
    assert first["body_text"] == '<order xmlns="urn:shop"><n>1</n></order>'
    assert (first["transport"], first["soap_action"], first["delivery"]) == (
        "wsrm",
        "urn:shop/order",
        "recoverable",
    )
    assert (
        first["destination"]
        == f"DIRECT=http://{running.wsrm[0]}:{running.wsrm[1]}/wsrm/private$/orders"
    )
    assert decode(first["envelope"].encode()).message_id == "urn:uuid:m-1"
    assert (first["signature_status"], first["stream_id"], first["class"]) == ("none", None, 0)


def test_a_message_as_cxf_sends_it(running: RunningQueueManager) -> None:
    """Its ReplyTo is none, its prefixes are its own; the acknowledgement comes back all the same."""
    client = Client(running)
    client.open()
    cxf = sample("cxf_wire_rm11_Message.xml").replace(
        b"urn:uuid:4b9315ba-0915-4ae0-b9d5-5a5df71da050", client.identifier.encode()
    )
    fields = {"Content-Type": 'application/soap+xml; action="urn:x"; charset=UTF-8', "Connection": "Upgrade, HTTP2-Settings",
              "Upgrade": "h2c", "HTTP2-Settings": "AAMAAABkAAQBAAAAAAIAAAAA"}  # fmt: skip
    status, _, body = client.post(cxf, fields)
    assert status == 200
    assert decode(body).acknowledgements[0].ranges == ((1, 1),)
    (row,) = [row for row in rows(running) if row["wsrm_sequence"] == client.identifier]
    assert (
        row["body"]
        == b'<ns2:submit xmlns:ns2="urn:srmp-spark:peers:wsrm"><text>m-000001</text></ns2:submit>'
    )


def test_sessions_and_srmp_share_a_queue_and_its_port(running: RunningQueueManager) -> None:
    """Each other's rows are in one log, in the order of arrival."""
    client = Client(running, "private$/other")
    client.open()
    api = QueueManagerClient(running.api, retry_seconds=60)
    for number in (1, 2):
        client.told(client.number(number))
        api.send("private$/other", [{"body_base64": "eA==", "label": "l", "delivery": "express"}])
    assert [row["transport"] for row in rows(running, "private$/other")] == [
        "wsrm",
        "api",
        "wsrm",
        "api",
    ]


def test_a_queue_manager_that_is_started_again_reads_the_same_rows(start: Start) -> None:
    running = start()
    client = Client(running)
    client.open()
    client.told(client.number(1))
    before = rows(running, envelope=True)
    running.stop()
    running.start()
    assert rows(running, envelope=True) == before


def test_capture_leaves_out_what_it_cannot_redact(
    running: RunningQueueManager, tmp_path: Path
) -> None:
    client = Client(running)
    client.open()
    client.told(client.number(1))
    command = [
        sys.executable,
        "-m",
        "srmp_spark.cli",
        "capture",
        "--api",
        running.api,
        "--queue",
        "private$/orders",
    ]
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "out")], capture_output=True, text=True, timeout=90
    )
    assert done.returncode == 0, done.stderr
    assert "are no posts of SRMP and are left out" in done.stderr
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["manifest.jsonl"]


# --- room -------------------------------------------------------------------------------------------------------------------


def test_a_queue_that_nobody_reads_says_0_and_room_returns_with_the_consumer(start: Start) -> None:
    """Spark stopped: the sender polls; Spark started: it goes on. What comes at 0 is taken all the same."""
    running = start(wsrm_buffer=2)
    client = Client(running)
    client.open()
    assert client.told(client.number(1)) == (1, 1)
    assert client.told(client.number(2)) == (2, 0)
    assert client.told(client.ask()) == (2, 0)
    running.kill9()
    running.start()
    assert client_after_restart(client) == (2, 0)
    receive(running, 1)
    assert wait_for(lambda: client.told(client.ask()) == (2, 1))
    assert client.told(client.number(3)) == (3, 0)
    assert client.told(client.number(4)) == (4, 0)
    receive(running, 4)
    assert wait_for(lambda: client.told(client.ask()) == (4, 2))


def client_after_restart(client: Client) -> tuple[int, int]:
    client.close()
    return client.told(client.ask())


def test_the_buffer_is_8_unless_told_otherwise(start: Start) -> None:
    """[MS-WSRVCRM] 3.1.3 <1>."""
    client = Client(start())
    client.open()
    assert client.told(client.ask()) == (0, 8)


def test_a_client_with_an_address_is_told_when_room_returns(
    start: Start, callbacks: Callbacks
) -> None:
    """Several messages in one acknowledgement; unasked, as soon as a consumer has taken something."""
    running = start(wsrm_buffer=2, allow_url=[f"{callbacks.url}*"])
    client = Client(running)
    client.open(EndpointReference(callbacks.url))
    for number in (1, 2):
        assert client.say(client.number(number)) == (202, None)
    wait_for(lambda: callbacks.came and callbacks.came[-1].acknowledgements[0].ranges == ((1, 2),))
    assert callbacks.came[-1].acknowledgements[0].buffer_remaining == 0
    assert callbacks.came[-1].to == callbacks.url
    before = len(callbacks.came)
    receive(running, 1)
    wait_for(lambda: len(callbacks.came) > before)
    assert callbacks.came[-1].acknowledgements[0].buffer_remaining == 1
    assert client.say(client.number(2, asks=True)) == (202, None)
    wait_for(lambda: len(callbacks.came) > before + 1)


def test_a_paused_or_full_queue_keeps_the_message_with_its_sender(start: Start) -> None:
    """No acknowledgement and no room: flow control says what a 503 would, and what is held already is answered."""
    running = start(queue_quota_bytes=200)
    api = QueueManagerClient(running.api, retry_seconds=60)
    client = Client(running, "private$/full")
    client.open()
    api.pause("private$/full")
    assert client.told(client.number(1)) == (0, 0)
    api.resume("private$/full")
    assert client.told(client.number(1))[0] == 1
    assert client.told(client.number(2)) == (1, 0)  # the first was larger than the quota
    assert client.told(client.number(1))[0] == 1
    receive(running, 1, "private$/full")
    assert wait_for(lambda: client.told(client.number(2))[0] == 2)
    assert [row["wsrm_number"] for row in rows(running, "private$/full")] == [1, 2]


# --- who may, and where -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "queue", ["private$/nothing", "private$/payments", "private$/order_queue$"]
)
def test_no_sequence_begins_for_a_queue_that_cannot_take_it(
    running: RunningQueueManager, queue: str
) -> None:
    for versions in (VERSIONS[0], VERSIONS[5]):
        client = Client(running, queue, versions)
        status, fault = client.fault(client.create())
        assert code_of(fault) is FaultCode.CREATE_SEQUENCE_REFUSED
        assert queue in fault.reason
        assert status == (500 if versions[0] is SoapVersion.V1_1 else 400)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "169.254.169.254", "[::1]"])
def test_an_address_that_the_allow_list_has_not_begins_no_sequence_and_is_never_called(
    running: RunningQueueManager, host: str
) -> None:
    """A client chooses AcksTo and ReplyTo: the same rule as for receipts of SRMP."""
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.2)
        url = f"http://{host}:{trap.getsockname()[1]}/acks"
        client = Client(running)
        status, fault = client.fault(client.create(EndpointReference(url)))
        assert (status, code_of(fault)) == (400, FaultCode.CREATE_SEQUENCE_REFUSED)
        assert "--allow-url" in fault.reason
        _, fault = client.fault(replace(client.create(), reply_to=EndpointReference(url)))
        assert code_of(fault) is FaultCode.CREATE_SEQUENCE_REFUSED
        with pytest.raises(TimeoutError):
            trap.accept()


def test_a_fault_never_goes_to_an_address_that_is_not_allowed(running: RunningQueueManager) -> None:
    with socket.create_server(("127.0.0.1", 0)) as trap:
        trap.settimeout(0.5)
        client = Client(running)
        client.identifier = "urn:uuid:never"
        fault_to = EndpointReference(f"http://127.0.0.1:{trap.getsockname()[1]}/faults")
        assert client.say(replace(client.number(1), fault_to=fault_to)) == (202, None)
        with pytest.raises(TimeoutError):
            trap.accept()


def test_what_is_no_message_and_what_is_a_wrong_one(running: RunningQueueManager) -> None:
    client = Client(running)
    soap = {"Content-Type": "application/soap+xml"}
    assert client.post(b"<x>", soap)[:2] == (400, "malformed; SOAP 1.2 part 1 section 5")
    for content_type in (
        "multipart/related; type=x",
        "application/soap+xml; charset=utf-16",
        "text/plain",
    ):
        status, reason, _ = client.post(b"<x/>", {"Content-Type": content_type})
        assert (status, (reason or "").partition(";")[0]) == (415, "media-type")
    wrong = client.number(1)
    client.identifier = "urn:uuid:x"
    bad = encode(client.number(1)).replace(b">1<", b">0<", 1)
    status, reason, body = client.post(bad, http_fields(wrong))
    assert (status, reason) == (400, None)
    fault = decode(body).content
    assert fault is not None
    assert fault.blame is Blame.SENDER  # type: ignore[union-attr]
    for path in ("/wsrm/", "/wsrm/../msmq/x", "/wsrm/private$%2forders"):
        assert client.post(b"<x/>", soap, path)[0] == 400
    for path in ("/wsrmx/private$/orders", "/msmq/private$/orders", "/"):
        assert client.post(b"<x/>", soap, path)[0] == 404
    # WSRMRequired
    assert client.post(encode(client.message(body=b"<x/>")), http_fields(wrong))[0] == 400


def test_only_writers_write(start: Start, tmp_path: Path) -> None:
    config = tmp_path / "writers.toml"
    config.write_text('[[writer]]\nqueue = "private$/orders"\naddress = "192.0.2.0/24"\n')
    client = Client(start(config=str(config)))
    status, reason, _ = client.post(encode(client.create()), http_fields(client.create()))
    assert (status, (reason or "").partition(";")[0]) == (403, "not-a-writer")


# --- crashes ----------------------------------------------------------------------------------------------------------------


def test_a_restart_in_any_state(start: Start) -> None:
    """Sequences go on: open, closed, terminated, and the CreateSequence that made them is known."""
    running = start()
    client = Client(running)
    identifiers = {
        name: client.open(message_id=f"urn:uuid:{name}")
        for name in ("open", "closed", "terminated")
    }
    for name, identifier in identifiers.items():
        client.identifier = identifier
        assert client.told(client.number(1))[0] == 1
        if name != "open":
            client.answer(client.of_rm("CloseSequence", CloseSequence(identifier, 1)))
        if name == "terminated":
            client.answer(client.of_rm("TerminateSequence", TerminateSequence(identifier, 1)))
    running.kill9()
    running.start()
    client.close()
    for name, identifier in identifiers.items():
        assert client.open(message_id=f"urn:uuid:{name}") == identifier
        if name == "open":
            assert client.told(client.number(1))[0] == 1
            assert client.told(client.number(2))[0] == 2
        else:
            code = FaultCode.SEQUENCE_CLOSED if name == "closed" else FaultCode.SEQUENCE_TERMINATED
            assert code_of(client.fault(client.number(2))[1]) is code
    assert sorted(row["wsrm_number"] for row in rows(running)) == [1, 1, 1, 2]


def test_kill_9_again_and_again_loses_nothing_and_doubles_nothing(start: Start) -> None:
    """Four clients send while the queue manager dies: what was acknowledged is a row, each number is one row, in order."""
    running = start(wsrm_buffer=4096)
    count, stop = 150, threading.Event()
    acknowledged = [0, 0, 0, 0]
    names: list[str] = [""] * 4
    failed: list[str] = []

    def client_of(at: int) -> None:
        client, number = Client(running), 1
        while number <= count and not stop.is_set():
            try:
                if not client.identifier:
                    names[at] = client.open(message_id=f"urn:uuid:client-{at}")
                upper, _ = client.told(client.number(number))
            except OSError:
                stop.wait(0.05)
                continue
            except AssertionError as error:
                failed.append(str(error))
                return
            if upper < acknowledged[at]:
                failed.append(f"{at}: {upper} after {acknowledged[at]}")
                return
            acknowledged[at] = upper
            number = upper + 1

    threads = [threading.Thread(target=client_of, args=(at,)) for at in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(4):
        seen = sum(acknowledged)
        wait_for(lambda seen=seen: failed or sum(acknowledged) >= min(seen + 60, 4 * count - 40))
        running.kill9()
        running.start()
    for thread in threads:
        thread.join(90)
    stop.set()
    assert failed == []
    assert acknowledged == [count] * 4
    found = rows(running)
    for name in names:
        assert [row["wsrm_number"] for row in found if row["wsrm_sequence"] == name] == list(
            range(1, count + 1)
        )
    assert len(found) == 4 * count


# --- what is refused is told ------------------------------------------------------------------------------------------------


def test_faults_are_counted_and_the_log_has_them_once(running: RunningQueueManager) -> None:
    client = Client(running)
    client.open()
    stranger = replace(client.number(1), sequence=Sequence("urn:uuid:nobody-began-it", 1, False))
    for _ in range(3):
        _, said = client.fault(stranger)
        assert code_of(said) is FaultCode.UNKNOWN_SEQUENCE
        assert "Begin a new one" in said.reason
    _, said = client.fault(replace(client.number(1), sequence=None))
    assert "reliableSession" in said.reason
    metrics = requests.get(f"{running.api}/metrics", timeout=PATIENCE).text
    counts = dict(
        re.findall(
            r'srmp_messages_refused_total\{reason="wsrm-(\w+)",status="400"\} (\d+)', metrics
        )
    )
    assert int(counts["UnknownSequence"]) >= 3
    assert int(counts["WSRMRequired"]) >= 1


def test_a_queue_that_is_not_there_yet_is_waited_for(start: Start) -> None:
    """``--unknown-queue retry``, as on /msmq/."""
    running = start(unknown_queue="retry")
    client = Client(running, "private$/later")
    created = client.create()
    status, reason, _ = client.post(encode(created), http_fields(created))
    assert (status, str(reason).partition(";")[0]) == (503, "unknown-queue")
    QueueManagerClient(running.api, retry_seconds=60).put_queue("private$/later")
    client.open()
    assert client.told(client.number(1))[0] == 1


def test_sequences_that_come_in_are_shown(start: Start) -> None:
    running = start()
    client = Client(running)
    identifier = client.open()
    client.told(client.number(1))
    client.told(client.number(3))
    api = QueueManagerClient(running.api, retry_seconds=60)
    (shown,) = api.status()["incoming_sequences"]
    assert (shown["queue"], shown["sequence"], shown["state"]) == (
        "private$/orders",
        identifier,
        "OPEN",
    )
    assert (shown["acknowledged"], shown["held"], shown["last_number"]) == (1, 1, None)
    client.answer(client.of_rm("TerminateSequence", TerminateSequence(identifier, 3)))
    (shown,) = api.status()["incoming_sequences"]
    assert (shown["state"], shown["acknowledged"], shown["held"], shown["last_number"]) == (
        "TERMINATED",
        1,
        0,
        3,
    )
