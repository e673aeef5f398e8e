"""SRMP over HTTPS: who connects, what the rows say of it, whose a stream is, and certificates that are renewed meanwhile.

T20 of the list of acceptance tests: bad certificates, forgeries, rotation. The other direction: tests/sender/test_https_out.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import itertools
import os
import socket
import sqlite3
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import pyarrow as pa
import pytest
import requests
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from peer_kit import Peer

from srmp_spark.queue_manager.srmp_port.handshake_turns import HANDSHAKE_SECONDS
from srmp_spark.testing.foreign.messages import ForeignMessage, ForeignStream, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import Authority, Identity, issued_by_a_leaf
from tests.kit.foreign.http import ReceiptsServer
from tests.kit.foreign.ledger import Ledger
from tests.kit.foreign.senders import ForeignQueueManager, MessageSender
from tests.kit.foreign.stream_sender import StreamSender

ORDERS, PAYMENTS = "private$/orders", "private$/payments"
FORGERIES = int(os.environ.get("SRMP_SPARK_FORGERIES", "1000"))
"""Of each kind; ``make proof`` sends 10,000."""
VICTIM = "aaaaaaaa-0000-4000-8000-00000000000a"
SENDER = "aaaaaaaa-0000-4000-8000-00000000000b"
_numbers = itertools.count(1)


def client_context(
    authority: Authority, identity: Identity | None = None, *, weak: bool = False
) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(authority.ca))
    if weak:
        context.set_ciphers("ALL:@SECLEVEL=0")
    if identity is not None:
        context.load_cert_chain(*identity)
    return context


class World(NamedTuple):
    """A queue manager that asks for certificates of one authority, and takes who shows none."""

    running: RunningQueueManager
    authority: Authority
    directory: Path

    @property
    def port(self) -> int:
        return int(self.running.ready["https"].rpartition(":")[2])

    def connect(self, context: ssl.SSLContext) -> http.client.HTTPSConnection:
        return http.client.HTTPSConnection("localhost", self.port, context=context, timeout=20)

    def message(self, queue: str = ORDERS, **values: Any) -> ForeignMessage:
        return ForeignMessage(**{
            "to": f"https://localhost:{self.port}/msmq/{queue}", "lineage": SENDER, "uniquifier": next(_numbers),
            "sent_at": 1_790_000_000, "body": b"x", "durable": True, **values,
        })  # fmt: skip

    def stream(
        self,
        current: int,
        *,
        ordinal: int = 1,
        guid: str = VICTIM,
        to: str = "http://127.0.0.1:9/x",
    ) -> ForeignMessage:
        stream = ForeignStream(
            guid=guid,
            ordinal=ordinal,
            current=current,
            previous=current - 1,
            receipts_to=to if current == 1 else None,
        )
        return self.message(PAYMENTS, stream=stream, priority=0)

    def rows(self, queue: str) -> list[dict[str, Any]]:
        quoted = quote(queue, safe="")
        base = f"{self.running.api}/v1/queues/{quoted}"
        last = requests.get(base, timeout=20).json()["last"]
        if not last:
            return []
        with pa.ipc.open_stream(
            requests.get(f"{base}/rows?after=0&to={last}", timeout=20).content
        ) as reader:
            return list(reader.read_all().to_pylist())

    def streams(self) -> list[dict[str, Any]]:
        return list(
            requests.get(f"{self.running.api}/v1/status", timeout=20).json()["incoming_streams"]
        )

    def metric(self, name: str) -> float:
        text = requests.get(f"{self.running.api}/metrics", timeout=20).text
        return sum(
            float(line.rpartition(" ")[2]) for line in text.splitlines() if line.startswith(name)
        )


def send(connection: http.client.HTTPConnection, message: ForeignMessage) -> tuple[int, str | None]:
    written = post(message)
    connection.request(
        "POST",
        written.target,
        written.content,
        {"Content-Type": written.content_type, "SOAPAction": '"MSMQMessage"'},
    )
    answer = connection.getresponse()
    answer.read()
    return answer.status, answer.headers.get("Srmp-Reason")


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    directory = tmp_path_factory.mktemp("https")
    authority = Authority(directory / "files")
    identity = authority.issue("qm")
    with RunningQueueManager(
        directory / "data", queues=[ORDERS, f"{PAYMENTS}:transactional"], listen_https="127.0.0.1:0", host_name="qm.example",
        listen_cert=identity.certificate, listen_key=identity.key, client_ca=authority.ca, retransmission_timeout=1,
    ) as running:  # fmt: skip
        yield World(running, authority, directory)


class TestWhoSends:
    def test_a_sender_without_a_certificate_is_a_row_of_https_without_a_name(
        self, world: World
    ) -> None:
        connection = world.connect(client_context(world.authority))
        assert send(connection, world.message(body=b"without")) == (200, None)
        assert send(connection, world.message(body=b"again")) == (200, None), "kept alive"
        connection.close()
        found = [row for row in world.rows(ORDERS) if row["body"] in (b"without", b"again")]
        assert [(row["transport"], row["sender_name"]) for row in found] == [("https", None)] * 2
        assert found[0]["peer"].startswith("127.0.0.1:")

    def test_a_certificate_names_the_sender(self, world: World) -> None:
        parts = [
            (NameOID.COUNTRY_NAME, "DE"),
            (NameOID.ORGANIZATION_NAME, "Ex, Inc"),
            (NameOID.COMMON_NAME, "machine1"),
        ]
        subject = x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])
        identity = world.authority.issue("named", subject=subject)
        assert (
            send(
                world.connect(client_context(world.authority, identity)),
                world.message(body=b"named"),
            )[0]
            == 200
        )
        (row,) = [row for row in world.rows(ORDERS) if row["body"] == b"named"]
        assert (row["transport"], row["sender_name"]) == ("https", "CN=machine1,O=Ex\\, Inc,C=DE")
        assert (
            world.metric(f'srmp_messages_accepted_total{{queue="{ORDERS}",transport="https"}}') >= 1
        )

    def test_plain_http_goes_on_beside_it(self, world: World) -> None:
        plain = Peer(world.running)
        assert plain.send(plain.message(body=b"plain")).status == 200
        plain.close()
        (row,) = [row for row in world.rows(ORDERS) if row["body"] == b"plain"]
        assert (row["transport"], row["sender_name"]) == ("http", None)

    def test_status_and_ready_line_name_the_port(self, world: World) -> None:
        status = requests.get(f"{world.running.api}/v1/status", timeout=20).json()
        assert status["listening"] == [world.running.listening, world.running.ready["https"]]
        assert world.running.ready["https"].startswith("https://127.0.0.1:")

    def test_a_request_that_closes_and_a_bad_one_are_answered(self, world: World) -> None:
        connection = world.connect(client_context(world.authority))
        connection.request("GET", "/")
        answer = connection.getresponse()
        assert (answer.status, answer.read(), answer.headers["Connection"]) == (405, b"", "close")
        connection.close()
        written = post(world.message(body=b"half " * 20_000))
        with (
            socket.create_connection(("127.0.0.1", world.port)) as raw,
            client_context(world.authority).wrap_socket(raw, server_hostname="localhost") as tls,
        ):
            tls.sendall(written.raw[:-1])
            time.sleep(0.1)
            tls.sendall(written.raw[-1:])
            assert tls.recv(100).startswith(b"HTTP/1.1 200 OK\r\n"), "in pieces, over many records"
            tls.sendall(written.raw + written.raw)  # pipelined
            got = b""
            while got.count(b"HTTP/1.1 200 OK") < 2:
                got += tls.recv(4096)


BAD: dict[str, Callable[[World], tuple[Identity, str]]] = {
    "expired": lambda w: (w.authority.issue("machine1", file="expired", ends=timedelta(minutes=-1)), "certificate"),
    "not yet valid": lambda w: (w.authority.issue("machine1", file="early", begins=timedelta(minutes=30)), "certificate"),
    "of another authority": lambda w: (Authority(w.directory / "b", "Other").issue("machine1"), "certificate"),
    "of an authority of the same name": lambda w: (Authority(w.directory / "c").issue("machine1"), "certificate"),
    "self-signed": lambda w: (w.authority.issue("machine1", file="self", self_signed=True), "certificate"),
    "self-signed authority": lambda w: (
        w.authority.issue("Test Authority", file="self-ca", self_signed=True, is_authority=True), "certificate",
    ),
    "weak key": lambda w: (w.authority.issue("machine1", file="weak", rsa_bits=1024), "certificate"),
    "for servers only": lambda w: (
        w.authority.issue("machine1", file="server", purposes=[ExtendedKeyUsageOID.SERVER_AUTH]), "certificate",
    ),
    "for signing code only": lambda w: (
        w.authority.issue("machine1", file="code", purposes=[ExtendedKeyUsageOID.CODE_SIGNING]), "certificate",
    ),
}  # fmt: skip


class TestBadCertificates:
    """T20, one direction: none of them gets a byte in, whether or not a certificate is required."""

    @pytest.mark.parametrize("kind", BAD)
    def test_it_is_refused(self, kind: str, world: World) -> None:
        identity, why = BAD[kind](world)
        before = world.metric(f'srmp_tls_refused_total{{why="{why}"}}')
        rows = len(world.rows(ORDERS))
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            send(
                world.connect(client_context(world.authority, identity, weak=True)), world.message()
            )
        assert len(world.rows(ORDERS)) == rows
        assert world.metric(f'srmp_tls_refused_total{{why="{why}"}}') == before + 1

    def test_one_that_a_leaf_has_issued_is_refused(self, world: World) -> None:
        inner = issued_by_a_leaf(world.authority, world.directory)
        with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
            send(world.connect(client_context(world.authority, inner)), world.message())

    @pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
    @pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
    def test_versions_before_1_2_are_refused(self, version: ssl.TLSVersion, world: World) -> None:
        context = client_context(world.authority, weak=True)
        context.minimum_version = context.maximum_version = version
        with pytest.raises((ssl.SSLError, OSError)):
            world.connect(context).connect()

    def test_plain_http_at_this_port_is_no_request(self, world: World) -> None:
        before = world.metric("srmp_tls_refused_total")
        written = post(world.message())
        with socket.create_connection(("127.0.0.1", world.port), timeout=5) as raw:
            raw.sendall(written.raw)
            got = b""
            with contextlib.suppress(ConnectionResetError):
                got = raw.recv(100)
            assert not got.startswith(b"HTTP")
        assert world.metric("srmp_tls_refused_total") == before + 1

    def test_a_revoked_one_and_none_where_one_is_required(
        self, start: Callable[..., RunningQueueManager], tmp_path: Path
    ) -> None:
        authority = Authority(tmp_path / "files")
        server, good, revoked = (authority.issue(name) for name in ("qm", "good", "revoked"))
        running = start(
            queues=[ORDERS], listen_https="127.0.0.1:0", listen_cert=server.certificate, listen_key=server.key,
            client_ca=authority.revoke(revoked), require_client_cert="true",
        )  # fmt: skip
        strict = World(running, authority, tmp_path)
        assert send(strict.connect(client_context(authority, good)), strict.message())[0] == 200
        for identity in (revoked, None):
            with pytest.raises((ssl.SSLError, OSError, http.client.HTTPException)):
                send(strict.connect(client_context(authority, identity)), strict.message())
        assert strict.metric('srmp_tls_refused_total{why="certificate"}') == 1
        assert strict.metric('srmp_tls_refused_total{why="no-certificate"}') == 1
        assert [row["sender_name"] for row in strict.rows(ORDERS)] == ["CN=good"]
        assert "Traceback" not in running.stderr()


class TestWhoseStream:
    @pytest.mark.timeout(300 + FORGERIES // 20)
    def test_no_forgery_changes_a_stream(self, world: World) -> None:
        """T20: who began a stream with a certificate is the only one who goes on with it, replaces it or repeats in it."""
        owner = world.connect(client_context(world.authority, world.authority.issue("machine1")))
        for current in (1, 2):
            assert send(owner, world.stream(current, ordinal=5))[0] == 200
        before = world.streams()
        assert [(each["sequence_number"], each["reject_count"]) for each in before] == [(2, 0)]
        forgers: list[http.client.HTTPConnection] = [
            world.connect(
                client_context(world.authority, world.authority.issue("mallory"))
            ),  # another certificate
            world.connect(client_context(world.authority)),  # none
            http.client.HTTPConnection(*world.running.endpoint, timeout=20),  # plain HTTP
        ]
        rows = len(world.rows(PAYMENTS))
        for number in range(FORGERIES):
            for forger in forgers:
                forged = (
                    world.stream(1, ordinal=6 + number)
                    if number % 2
                    else world.stream(1 + number % 7, ordinal=5)
                )
                assert send(forger, forged) == (403, "stream-sender; [MC-MQSRM] 5.1")
        assert world.streams() == before
        assert len(world.rows(PAYMENTS)) == rows
        assert (
            world.metric('srmp_messages_refused_total{reason="stream-sender",status="403"}')
            == 3 * FORGERIES
        )
        assert send(owner, world.stream(3, ordinal=5))[0] == 200, "the owner goes on"
        assert send(owner, world.stream(1, ordinal=7))[0] == 200, "and begins the next"
        assert [each["sequence_number"] for each in world.streams()] == [1]
        for connection in (*forgers, owner):
            connection.close()
        log = world.running.stderr()
        assert log.count("accept.refused status=403") == 1, (
            "the stream is explained once, whoever forges how often"
        )
        assert "srmp-spark streams drop --queue private$/payments" in log

    def test_it_is_its_owners_after_kill_9(
        self, start: Callable[..., RunningQueueManager], tmp_path: Path
    ) -> None:
        authority = Authority(tmp_path / "files")
        server, machine = authority.issue("qm"), authority.issue("machine1")
        running = start(
            queues=[f"{PAYMENTS}:transactional"], listen_https="127.0.0.1:0", listen_cert=server.certificate,
            listen_key=server.key, client_ca=authority.ca,
        )  # fmt: skip
        world = World(running, authority, tmp_path)
        assert send(world.connect(client_context(authority, machine)), world.stream(1))[0] == 200
        running.kill9()
        with sqlite3.connect(f"file:{running.data_dir}/store.db?mode=ro", uri=True) as database:
            assert database.execute("SELECT sender_name FROM streams").fetchall() == [
                ("CN=machine1",)
            ]
        running.restart()
        assert send(world.connect(client_context(authority)), world.stream(2))[0] == 403
        renewed = authority.issue("machine1", file="renewed")
        assert send(world.connect(client_context(authority, renewed)), world.stream(2))[0] == 200, (
            "the same subject"
        )


class TestUnderLoad:
    def test_certificates_are_renewed_and_no_request_is_lost(self, world: World) -> None:
        """T20: rotation with 0 failed requests."""
        names = world.authority.directory / "qm.pem", world.authority.directory / "qm.key"
        stop, failures, sent = threading.Event(), [], []

        def work() -> None:
            while not stop.is_set():
                connection = world.connect(client_context(world.authority))
                try:
                    for _ in range(3):
                        sent.append(send(connection, world.message(body=b"rotation"))[0])
                except Exception as error:
                    failures.append(error)
                finally:
                    connection.close()

        def serial() -> int:
            der = ssl.get_server_certificate(("localhost", world.port))
            return x509.load_pem_x509_certificate(der.encode()).serial_number

        workers = [threading.Thread(target=work) for _ in range(3)]
        for worker in workers:
            worker.start()
        seen = {serial()}
        for turn in range(3):
            new = world.authority.issue("qm", file=f"renewed{turn}")
            new.key.replace(names[1])
            time.sleep(0.05)  # a handshake now finds a key that is not that of its certificate
            new.certificate.replace(names[0])
            time.sleep(1.3)
            seen.add(serial())
        stop.set()
        for worker in workers:
            worker.join()
        assert failures == []
        assert set(sent) == {200}
        assert len(seen) == 4, "each new certificate was shown"
        assert sum(row["body"] == b"rotation" for row in world.rows(ORDERS)) == len(sent)

    def test_who_connects_and_says_nothing_is_given_up(self, world: World) -> None:
        before = world.metric('srmp_tls_refused_total{why="too-slow"}')
        silent = [socket.create_connection(("127.0.0.1", world.port)) for _ in range(20)]
        assert send(world.connect(client_context(world.authority)), world.message())[0] == 200, (
            "they are in nobody's way"
        )
        for each in silent:
            each.settimeout(HANDSHAKE_SECONDS + 5)
            assert each.recv(1) == b""
            each.close()
        assert world.metric('srmp_tls_refused_total{why="too-slow"}') == before + 20

    def test_an_end_in_the_middle_of_anything_hurts_nobody(self, world: World) -> None:
        written = post(world.message())
        hello = ssl.MemoryBIO()
        with pytest.raises(ssl.SSLWantReadError):
            client_context(world.authority).wrap_bio(
                ssl.MemoryBIO(), hello, server_hostname="localhost"
            ).do_handshake()
        first = hello.read()
        for length in (0, 1, 5, 100, len(first)):
            with socket.create_connection(("127.0.0.1", world.port)) as raw:
                raw.sendall(first[:length])
        for length in (1, 100, len(written.raw)):
            with socket.create_connection(("127.0.0.1", world.port)) as raw:
                tls = client_context(world.authority).wrap_socket(raw, server_hostname="localhost")
                tls.sendall(written.raw[:length])
                tls.close()
        assert send(world.connect(client_context(world.authority)), world.message())[0] == 200
        log = world.running.stderr()
        assert "Traceback" not in log, log[log.find("Traceback") :][:3000]
        assert "eof_received" not in log

    def test_sigterm_answers_what_was_received(
        self, start: Callable[..., RunningQueueManager], tmp_path: Path
    ) -> None:
        authority = Authority(tmp_path / "files")
        server = authority.issue("qm")
        running = start(
            queues=[ORDERS], listen_https="127.0.0.1:0", listen_cert=server.certificate, listen_key=server.key
        )  # fmt: skip
        world = World(running, authority, tmp_path)
        idle = world.connect(client_context(authority))
        assert send(idle, world.message())[0] == 200
        silent = socket.create_connection(("127.0.0.1", world.port))
        begun = time.monotonic()
        assert running.stop() == 0
        assert time.monotonic() - begun < HANDSHAKE_SECONDS
        silent.close()
        idle.close()
        assert "Traceback" not in running.stderr()


def test_a_foreign_sender_over_tls_with_its_certificate(world: World) -> None:
    """Written from the document alone: plain and stream messages, and the receipts that set its queue free."""
    identity = world.authority.issue("foreign")

    async def run(running: RunningQueueManager, port: int) -> Ledger:
        ledger = Ledger()
        async with ReceiptsServer() as receipts:
            manager = ForeignQueueManager(
                lambda: ("localhost", port), ledger, receipts_url=receipts.url(), host_name="qm.example",
                tls=client_context(world.authority, identity),
            )  # fmt: skip
            receipts.on_receipt = manager.on_receipt
            stream = StreamSender(manager, PAYMENTS)
            for number in range(30):
                stream.enqueue(b"stream %d" % number)
            stream.close()
            plain = MessageSender(manager, ORDERS, connections=2)
            await asyncio.gather(
                stream.run(), plain.run([(b"foreign %d" % n, True) for n in range(30)], rate=1000)
            )
        return ledger

    directory = world.directory / "foreign"
    server = world.authority.issue("server")
    with RunningQueueManager(
        directory, queues=[ORDERS, f"{PAYMENTS}:transactional"], listen_https="127.0.0.1:0", host_name="qm.example",
        listen_cert=server.certificate, listen_key=server.key, client_ca=world.authority.ca, allow_url=["http://127.0.0.1:*"],
    ) as running:  # fmt: skip
        there = World(running, world.authority, directory)
        ledger = asyncio.run(run(running, there.port))
        assert ledger.violations == []
        assert ledger.count("receipted_at", "stream") == 30
        rows = there.rows(PAYMENTS)
        assert [row["body"] for row in rows] == [b"stream %d" % n for n in range(30)]
        assert {(row["transport"], row["sender_name"]) for row in rows} == {("https", "CN=foreign")}
        assert len(there.rows(ORDERS)) == 30
