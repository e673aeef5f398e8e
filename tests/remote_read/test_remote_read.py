"""Remote read of a running queue manager: what MQRR clients see, and what everybody else sees of them."""

from __future__ import annotations

import contextlib
import http.client
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from remote_kit import Served, bodies, move, opened

from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.client.walking import shown
from srmp_spark.errors import ApiError, ConfigurationError, RemoteLostError, RemoteReadError
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.lookup_identifier import rebuilt
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.ndr.methods import (
    ACCESS_RECEIVE,
    SHARE_DENY_SHARE,
    HandleNumberRequest,
    NoParameters,
)
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.queue_format import queue_format_for, queue_format_of
from srmp_spark.mqrr.remote_host import parse_remote_host
from srmp_spark.mqrr.rpc.client_connection import ClientSettings
from srmp_spark.mqrr.status import Status
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.signing_in.credentials import credentials
from srmp_spark.testing.foreign.messages import ForeignMessage, post


def receive_all(queue, wait_s: float = 0.0) -> list[str]:
    """Receive and acknowledge until there is nothing."""
    found = []
    while True:
        request, answer = queue.start(Action.RECEIVE, wait_s=wait_s)
        if answer.status != Status.MQ_OK:
            return found
        found.append(shown(answer).packet.body.decode())
        queue.end(request)


@pytest.mark.parametrize("syntaxes", [(NDR,), (NDR64,), (NDR, NDR64)], ids=["ndr", "ndr64", "both"])
def test_a_queue_is_peeked_and_received_by_priority(served: Served, syntaxes):
    name = served.queue()
    served.send(name, 3, 7, 0, 3, 7)
    order = ["body 2", "body 5", "body 1", "body 4", "body 3"]
    with served.machine(ClientSettings(syntaxes=syntaxes)) as machine:
        with opened(machine, name) as looker:
            assert bodies(looker) == order
        assert served.waiting(name) == 5
        with opened(machine, name, receive=True) as receiver:
            assert receive_all(receiver) == order
    assert served.waiting(name) == 0


def test_the_port_of_the_interface(served: Served):
    with served.machine() as machine:
        assert machine.call(0, NoParameters()).port == served.rpc[1]


def test_a_message_that_came_over_http_is_served_with_its_post(served: Served):
    """[MS-MQRR] 2.2.5.1.2."""
    name = served.queue()
    host, port = served.endpoint
    message = ForeignMessage(
        to=f"http://{host}:{port}/msmq/{name}", lineage="aaaaaaaa-0000-4000-8000-000000000001", uniquifier=77,
        sent_at=1_790_000_000, body=b"what it is about", label="a label", priority=5, durable=True,
    )  # fmt: skip
    written = post(message)
    connection = http.client.HTTPConnection(host, port, timeout=10)
    connection.request(
        "POST",
        written.target,
        written.content,
        {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'},
    )
    assert connection.getresponse().status == 200
    connection.close()
    with served.machine() as machine, opened(machine, name) as queue:
        (found,) = list(queue.walk())
    packet = found.packet
    assert packet.envelope is not None
    assert packet.compound is not None
    assert packet.body == b"what it is about"
    assert packet.envelope.data.encode() in written.content
    assert packet.compound.data.endswith(written.content)
    assert packet.compound.data.startswith(b"POST ")
    assert packet.trailers is not None
    assert packet.trailers.received_from.text == "127.0.0.1"
    read = message_of(packet)
    assert (read.label, read.priority, read.lineage, read.uniquifier) == (
        "a label",
        5,
        message.lineage,
        77,
    )


def test_a_large_message_is_read_in_parts(served: Served):
    name = served.queue()
    body = bytes(range(256)) * 4_096
    served.send(name, 3, body=body)
    with served.machine() as machine, opened(machine, name) as queue:
        (whole,) = list(queue.walk())
        assert whole.packet.body == body
        (head,) = list(queue.walk(max_body=10))
        assert head.packet.body == body[:10]
        assert head.packet.missing == len(body) - 10


def test_who_waits_gets_a_message_as_soon_as_it_comes(served: Served):
    name = served.queue()
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        timer = threading.Timer(0.3, served.send, (name, 3))
        timer.start()
        began = time.monotonic()
        request, answer = queue.start(Action.RECEIVE, wait_s=20)
        assert answer.status == Status.MQ_OK
        assert time.monotonic() - began < 5
        queue.end(request)
        timer.join()


def test_a_waiting_call_is_cancelled_over_a_second_connection(served: Served):
    name = served.queue()
    answers: list[StartReceiveResponse] = []
    with served.machine() as machine, machine.second() as second:
        queue = opened(machine, name, receive=True)
        waits = threading.Thread(
            target=lambda: answers.append(queue.start(Action.RECEIVE, wait_s=60)[1])
        )
        waits.start()
        deadline = time.monotonic() + 30
        while second.call(8, HandleNumberRequest(queue.handle, 1)).status != Status.MQ_OK:
            assert time.monotonic() < deadline, "it never began to wait"
        waits.join(30)
    assert [Status(each.status) for each in answers] == [Status.MQ_ERROR_OPERATION_CANCELLED]


def test_a_lookup_identifier_is_rebuilt_from_an_answer(served: Served):
    name = served.queue()
    served.send(name, 2, 6)
    with served.machine() as machine, opened(machine, name) as queue:
        first = queue.peek()
        assert first is not None
        lookup_id = rebuilt(first.sequence_id, priority=first.packet.priority)
        following = queue.peek(Action.LOOKUP_PEEK_NEXT, lookup_id=lookup_id)
        assert following is not None
        assert following.packet.body == b"body 1"


# --- what is stored --------------------------------------------------------------------------------------------------------


def test_what_was_acknowledged_stays_received_after_kill_9_and_what_was_not_is_there(start):
    """Nothing is removed before it is stored that it was; and nothing that was not acknowledged."""
    names = ["private$/orders", "private$/payments"]
    served = start(queues=[names[0], names[1] + ":transactional", names[0] + ";retry"])
    with served.machine() as machine:
        for name in names:
            served.send(name, *[3] * 6)
            queue = opened(machine, name, receive=True)
            for _ in range(3):
                request, _ = queue.start(Action.RECEIVE)
                queue.end(request)
            _, held = queue.start(Action.RECEIVE)
            assert held.status == Status.MQ_OK
        served.send(names[0], 0)
        with opened(machine, names[0], receive=True) as queue:
            assert (
                move(queue, names[0] + ";retry", lookup_id=rebuilt(7, priority=0)) == Status.MQ_OK
            )
        served.kill9()
    served.restart()
    with served.machine() as machine:
        with opened(machine, names[0] + ";retry") as moved:
            assert bodies(moved) == ["body 1"]
        for name in names:
            with opened(machine, name, receive=True) as queue:
                assert receive_all(queue) == ["body 4", "body 5", "body 6"]


def test_the_consumer_default_is_at_what_mqrr_clients_received(served: Served):
    name = served.queue()
    served.send(name, 0, 7, 3)
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        request, answer = queue.start(Action.RECEIVE)
        assert answer.sequence_id == 2
        queue.end(request)
        (default,) = [
            each for each in served.client.queue(name)["consumers"] if each["name"] == "default"
        ]
        assert default["holder"] == "remote read (MQRR)"
        assert default["received"] == 0, "the mark waits for row 1"
        assert served.waiting(name) == 2


HOLDS = """
import sys, time
from srmp_spark.client.remote_queue import RemoteMachine
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.status import Status
host, port, name = sys.argv[1:]
queue = RemoteMachine.connect(host, int(port)).open(queue_format_for("host1", name), 1)
print(Status(queue.start(Action.RECEIVE)[1].status).name, flush=True)
time.sleep(600)
"""


def test_a_killed_reader_frees_its_messages(served: Served):
    name = served.queue()
    served.send(name, 3)
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS, *map(str, served.rpc), name],
        stdout=subprocess.PIPE,
        text=True,
    ) as killed:
        assert killed.stdout is not None
        assert killed.stdout.readline() == "MQ_OK\n"
        with served.machine() as machine, opened(machine, name, receive=True) as other:
            assert other.start(Action.RECEIVE)[1].status == Status.MQ_ERROR_IO_TIMEOUT
            killed.kill()
            request, answer = other.start(Action.RECEIVE, wait_s=30)
            assert answer.status == Status.MQ_OK
            other.end(request)


def test_a_journal_of_ours_is_read_as_msmq_names_it(served: Served):
    name = served.queue(journal=True)
    served.send(name, 3, 3)
    with served.machine() as machine:
        with opened(machine, name, receive=True) as queue:
            request, _ = queue.start(Action.RECEIVE)
            queue.end(request)
        journal = machine.open(queue_format_for("host1", name.replace("/", "\\") + ";JOURNAL"))
        assert bodies(journal) == ["body 1"]
    assert served.client.queue(name + ";journal")["consumers"][0]["received"] == 0


# --- who may receive -------------------------------------------------------------------------------------------------------


def test_another_receiver_is_told_who_has_the_queue_and_the_other_way_round(served: Served):
    name = served.queue()
    served.send(name, 3)
    client = served.client
    with served.machine() as machine, served.machine() as another:
        with opened(machine, name, receive=True):
            renewed = threading.Timer(0.3, opened, (another, name), {"receive": True})
            renewed.start()
            with pytest.raises(ApiError, match=r"held by remote read \(MQRR\)"):
                client.register(name, "default", epoch=served.epoch, holder="a query")
            renewed.join()
        another.close()
        client.register(name, "default", epoch=served.epoch, holder="a query")
        stop = threading.Event()
        renewing = threading.Thread(target=_renew, args=(served, name, stop))
        renewing.start()
        try:
            with pytest.raises(RemoteReadError, match="MQ_ERROR_SHARING_VIOLATION"):
                opened(machine, name, receive=True)
        finally:
            stop.set()
            renewing.join()
        assert bodies(opened(machine, name)) == ["body 1"], "who looks needs no lease"


def _renew(served: Served, name: str, stop: threading.Event) -> None:
    client = served.client
    while not stop.wait(0.3):
        client.register(name, "default", epoch=served.epoch, holder="a query")


def test_share_modes_hold_between_clients(served: Served):
    name = served.queue()
    with served.machine() as one, served.machine() as two:
        with (
            opened(one, name, receive=True, share=SHARE_DENY_SHARE),
            pytest.raises(RemoteReadError, match="SHARING_VIOLATION"),
        ):
            opened(two, name, receive=True)
        with opened(two, name, receive=True):
            pass


def test_a_purge_over_rpc_spares_what_another_reader_has(served: Served):
    name = served.queue()
    served.send(name, 3, 3, 3)
    with served.machine() as one, served.machine() as two:
        holder, purger = opened(one, name, receive=True), opened(two, name, receive=True)
        request, _ = holder.start(Action.RECEIVE)
        purger.purge()
        assert served.waiting(name) == 1
        holder.end(request)
        served.send(name, 3, body=b"later")
        assert receive_all(purger) == ["later"]
    assert served.waiting(name) == 0


def test_a_purge_that_is_refused_is_an_error(served: Served):
    """[MS-MQRR] 3.1.4.6: whatever the failure is."""
    name = served.queue()
    served.send(name, 3)
    with served.machine() as machine, opened(machine, name) as looker:
        with pytest.raises(RemoteReadError, match="R_PurgeQueue"):
            looker.purge()
        assert bodies(looker) == ["body 1"]


def test_a_purge_of_the_api_takes_what_a_reader_has(served: Served):
    name = served.queue()
    served.send(name, 3, 3)
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        request, _ = queue.start(Action.RECEIVE)
        served.client.purge(name)
        with pytest.raises(RemoteReadError, match="MQ_ERROR_MESSAGE_NOT_FOUND"):
            queue.end(request)
        served.send(name, 3, body=b"later")
        assert receive_all(queue) == ["later"]


def test_a_reader_waits_while_an_operator_pauses_the_readers(served: Served):
    name = served.queue()
    served.send(name, 3, body=b"held")
    with served.machine() as machine, opened(machine, name, receive=True) as queue:
        served.client.pause(name, "out")
        _, answer = queue.start(Action.RECEIVE)
        assert answer.status == Status.MQ_ERROR_IO_TIMEOUT, "as from an empty queue"
        assert served.waiting(name) == 1
        timer = threading.Timer(0.5, served.client.resume, (name,))
        timer.start()
        begun = time.monotonic()
        request, answer = queue.start(Action.RECEIVE, wait_s=20)
        assert answer.status == Status.MQ_OK
        assert 0.3 < time.monotonic() - begun < 10, "the end of the pause ends the wait"
        queue.end(request)
        timer.join()
    assert served.waiting(name) == 0


def test_a_deleted_queue_is_told_to_who_waits(served: Served):
    name = served.queue()
    with served.machine() as machine:
        queue = opened(machine, name, receive=True)
        timer = threading.Timer(0.3, served.client.delete_queue, (name,))
        timer.start()
        _, answer = queue.start(Action.RECEIVE, wait_s=20)
        assert answer.status == Status.MQ_ERROR_QUEUE_DELETED
        timer.join()
        queue.close()
        with pytest.raises(RemoteReadError, match="QUEUE_NOT_FOUND"):
            opened(machine, name)


@pytest.mark.parametrize(
    "queue", [r"DIRECT=OS:elsewhere\private$\orders", r"DIRECT=OS:host1\private$\order_queue$"]
)
def test_what_cannot_be_received_from(served: Served, queue):
    with (
        served.machine() as machine,
        pytest.raises(RemoteReadError, match=r"QUEUE_NOT_FOUND|ACCESS_DENIED"),
    ):
        machine.open(queue_format_of(queue), ACCESS_RECEIVE)


# --- the port --------------------------------------------------------------------------------------------------------------


def test_whoever_sends_something_else_is_cut_off(served: Served):
    with socket.create_connection(served.rpc, 5) as connection:
        connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
        connection.settimeout(5)
        rest = b"".join(iter(lambda: connection.recv(4096), b""))
    assert not rest or rest[0] == 5, "nothing, or a PDU that says no"


def test_sigterm_ends_waiting_readers_and_frees_the_queue(start):
    served = start(queues=["private$/orders"])
    served.send("private$/orders", 3)
    with served.machine() as machine:
        queue = opened(machine, "private$/orders", receive=True)
        assert queue.start(Action.RECEIVE)[1].status == Status.MQ_OK
        timer = threading.Timer(0.3, served.stop)
        timer.start()
        with pytest.raises(RemoteLostError):
            queue.start(Action.RECEIVE, wait_s=30)
        timer.join()
    served.restart()
    (default,) = served.client.queue("private$/orders")["consumers"]
    assert default["holder"] is None
    assert served.waiting("private$/orders") == 1


def test_a_port_that_others_reach_needs_accounts(tmp_path):
    flags = {"data_dir": str(tmp_path), "rpc": "0.0.0.0:0"}
    with pytest.raises(ConfigurationError, match="demands privacy"):
        load(flags, {})
    assert load({**flags, "rpc_min_auth": "none"}, {}).rpc_auth_level == "none"
    assert load({**flags, "rpc": "127.0.0.1:0"}, {}).rpc_auth_level == "none"
    with pytest.raises(ConfigurationError, match="are for --rpc"):
        load({"data_dir": str(tmp_path), "rpc_min_auth": "none"}, {})


def test_who_signs_in_is_served_and_others_are_not(start, tmp_path):
    """NTLM with privacy, both ends ours; foreign clients: make interop-mqrr."""
    accounts = tmp_path / "accounts"
    accounts.write_text("EXAMPLE\\reader:a pass word\n")
    accounts.chmod(0o600)
    served = start(queues=["private$/orders"], rpc_accounts=accounts, rpc_min_auth="privacy")
    served.send("private$/orders", 3)
    host = parse_remote_host("test", served.ready["rpc"])

    def settings(password: str, level: str = "privacy") -> ClientSettings:
        found = credentials(
            "test",
            host,
            level=level,
            protocol=None,
            user="reader",
            password=password,
            domain="example",
        )
        return found.settings(host)

    with (
        served.machine(settings("a pass word")) as machine,
        opened(machine, "private$/orders", receive=True) as queue,
    ):
        assert receive_all(queue) == ["body 1"]
    for wrong in (None, settings("another"), settings("a pass word", "integrity")):
        with pytest.raises((RemoteReadError, RemoteLostError)), served.machine(wrong) as machine:
            opened(machine, "private$/orders")
    assert "a pass word" not in served.stderr()


def test_the_endpoint_mapper_says_where_remote_read_is(served: Served):
    at = next(
        port for port in _listening_ports(served.pid)
        if port not in (served.rpc[1], served.endpoint[1], int(served.api.rpartition(":")[2]))
    )  # fmt: skip
    name = served.queue()
    with RemoteMachine.connect("127.0.0.1", mapper_port=at) as machine:
        assert opened(machine, name).peek() is None
    with socket.create_connection(("127.0.0.1", at), 5) as connection:  # and knows nothing else
        connection.sendall(b"\x05\0")
    with RemoteMachine.connect("127.0.0.1", mapper_port=at) as machine:
        assert opened(machine, name).peek() is None


def _listening_ports(pid: int) -> list[int]:
    inodes = set()
    for each in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed since it was listed
            inodes.add(str(each.readlink()))
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return [
        int(row[1].partition(":")[2], 16)
        for row in rows
        if row[3] == "0A" and f"socket:[{row[9]}]" in inodes
    ]
