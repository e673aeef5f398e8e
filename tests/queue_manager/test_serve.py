"""The life of a real ``serve``: ready line, exit codes, kill -9, restarts, the reader below it (INTERFACE.md section 2)."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
import requests
from peer_kit import QUEUES, Peer

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError
from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError
from tests.kit.certificate import make_certificate

Start = Callable[..., RunningQueueManager]


def rows(client: QueueManagerClient, queue: str, *, dense: bool = False) -> pa.Table:
    found = client.range(queue)
    with client.rows(queue, epoch=found.epoch, after=found.first - 1, to=found.end) as stream:
        return pa.ipc.open_stream(stream.as_file()).read_all()


def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.05)


def reader_of(running: RunningQueueManager) -> int:
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    modules = {
        Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[2]: int(pid) for pid in children
    }
    assert len(children) == 2, "a reader, a sender and nothing else"
    return modules[b"srmp_spark.queue_manager.reader.process"]


def test_the_ready_line_is_the_only_thing_on_stdout(tmp_path: Path) -> None:
    running = RunningQueueManager(tmp_path / "data", queues=QUEUES).start()
    assert set(running.ready) == {"listening", "api", "queue_manager", "epoch", "pid"}
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+", running.listening)
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", running.guid)
    assert running.pid == running.process.pid
    endpoint = json.loads((tmp_path / "data" / "endpoint.json").read_text())
    assert {key: endpoint[key] for key in running.ready} == running.ready
    found = (tmp_path / "data").stat()
    assert (endpoint["process"]["pid"], endpoint["directory"]) == (
        running.ready["pid"],
        [found.st_dev, found.st_ino],
    )
    running.process.send_signal(signal.SIGTERM)
    assert running.process.stdout.read() == ""
    assert running.process.wait(20) == 0
    assert not (tmp_path / "data" / "endpoint.json").exists()
    assert "Traceback" not in running.stderr()


def test_no_secret_is_in_the_arguments_of_a_process(start: Start) -> None:
    """Every user of a host may read them. Who knows the address of our receipts could acknowledge what waits to be sent."""
    running = start()
    with contextlib.closing(
        sqlite3.connect(f"file:{running.data_dir / 'store.db'}?mode=ro", uri=True)
    ) as database:
        (secret,) = database.execute("SELECT value FROM meta WHERE key = 'receipts_key'").fetchone()
    children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
    assert len(children) == 2
    for pid in (*children, running.pid):
        arguments = Path(f"/proc/{pid}/cmdline").read_bytes()
        assert secret.encode() not in arguments
        assert b"{" not in arguments, "settings are no arguments"


def test_the_log_tells_once_what_a_400_makes_a_sender_delete(start: Start) -> None:
    running = start(queues=["private$/orders:transactional"])
    peer = Peer(running)
    for _ in range(3):
        assert peer.send(peer.message("private$/nobody")).status == 400
        assert peer.send(peer.message("private$/orders")).status == 400
    told = [line for line in running.stderr().splitlines() if "accept.refused" in line]
    assert len(told) == 2
    assert "status=400 reason=unknown-queue destination='http://127.0.0.1" in told[0]
    assert "the sender deletes it; try srmp-spark doctor" in told[0]
    assert "reason=transactional-queue" in told[1]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_both_signals_end_it_with_0(start: Start, number: int) -> None:
    running = start()
    running.process.send_signal(number)
    assert running.process.wait(20) == 0


def test_exit_codes(start: Start, tmp_path: Path) -> None:
    def fails(data_dir: Path = tmp_path / "other", **options: object) -> ServeFailedError:
        with pytest.raises(ServeFailedError) as failed:
            RunningQueueManager(data_dir, **options).start()
        assert "Traceback" not in failed.value.stderr
        return failed.value

    running = start("data", queues=["private$/orders"])
    in_use = fails(tmp_path / "data")
    assert in_use.code == 5
    assert str(running.pid) in in_use.stderr
    assert socket.gethostname() in in_use.stderr
    assert fails(queues=["a/b/c"]).code == 2
    assert fails(listen=running.listening.partition("://")[2]).code == 2, "the port is taken"
    assert fails(api_listen="0.0.0.0:0").code == 2, "an open API needs a token and TLS"
    running.stop()
    assert fails(tmp_path / "data", queues=["private$/orders:transactional"]).code == 2
    with sqlite3.connect(tmp_path / "data" / "store.db") as database:
        database.execute("PRAGMA user_version = 999")
    newer = fails(tmp_path / "data")
    assert newer.code == 6
    assert "newer version" in newer.stderr
    (tmp_path / "data" / "store.db").write_bytes(b"no database" * 1000)
    assert fails(tmp_path / "data").code == 6


def test_a_start_whose_port_is_taken_leaves_no_directory_behind(tmp_path: Path) -> None:
    """A directory that is there is left as it is: it may have been made with rights of its own."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        for directory, is_left in ((tmp_path / "new", False), (tmp_path / "there", True)):
            if is_left:
                directory.mkdir(mode=0o700)
            arguments = ["serve", "--data-dir", str(directory), "--api", "127.0.0.1:0"]
            done = subprocess.run(
                [sys.executable, "-m", "srmp_spark.cli", *arguments, "--listen", address],
                capture_output=True, text=True, timeout=60,
            )  # fmt: skip
            assert done.returncode == 2, done.stderr
            assert "another process listens there" in done.stderr
            assert directory.exists() is is_left


def test_what_was_acknowledged_survives_kill_9_and_the_numbers_go_on(start: Start) -> None:
    running = start(queues=QUEUES)
    client, peer = QueueManagerClient(running.api), Peer(running)
    for n in range(20):
        assert peer.send(peer.message(body=b"%d" % n)).status == 200
    repeated = peer.message(body=b"repeated")
    assert peer.send(repeated).status == 200
    assert peer.send(peer.stream(1)).status == 200
    client.register("private$/orders", "default", holder="A", first=1)
    client.received("private$/orders", "default", epoch=running.epoch, to=5, holder="A")
    identity = (running.guid, running.epoch, running.listening)
    running.kill9()
    peer.close()
    running.restart()
    assert (running.guid, running.epoch, running.listening) == identity
    assert peer.send(repeated).status == 200, "a repeat after the restart"
    assert peer.send(peer.stream(2)).status == 200
    assert peer.send(peer.message(body=b"after")).status == 200
    table = rows(client, "private$/orders")
    assert table.column("body").to_pylist() == [b"%d" % n for n in range(20)] + [
        b"repeated",
        b"after",
    ]
    assert table.column("sequence").to_pylist() == list(range(1, 23))
    assert rows(client, "private$/payments").column("stream_sequence").to_pylist() == [1, 2]
    assert client.register("private$/orders", "default", holder="A").received == 5
    peer.close()


def test_the_reader_ends_with_its_parent_even_at_kill_9(start: Start) -> None:
    running = start()
    reader = reader_of(running)
    running.kill9()
    until(
        lambda: (
            not Path(f"/proc/{reader}").exists()
            or "Z" in Path(f"/proc/{reader}/stat").read_text().rpartition(")")[2].split()[0]
        ),
        5,
    )


def test_a_reader_that_dies_is_replaced_and_messages_go_on(start: Start) -> None:
    running = start(queues=QUEUES)
    client, peer = QueueManagerClient(running.api, retry_seconds=20), Peer(running)
    assert peer.send(peer.message()).status == 200
    assert rows(client, "private$/orders").num_rows == 1
    os.kill(reader_of(running), signal.SIGKILL)
    assert peer.send(peer.message()).status == 200
    assert rows(client, "private$/orders").num_rows == 2
    assert "reader.died" in running.stderr()
    peer.close()


def test_sigterm_answers_what_it_has_received(start: Start) -> None:
    running = start(queues=QUEUES)
    peer = Peer(running)
    assert peer.send(peer.message()).status == 200
    with socket.create_connection(running.endpoint) as half:
        half.sendall(
            b"POST /msmq/private$/orders HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\n12"
        )
        time.sleep(0.1)
        running.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        half.sendall(b"345")
        assert half.recv(1000).startswith(b"HTTP/1.1 4"), "no message, but an answer"
    assert running.process.wait(20) == 0
    peer.close()


def test_the_quota_answers_503_until_something_is_received(start: Start) -> None:
    running = start(queues=QUEUES, queue_quota_bytes=2500)
    client, peer = QueueManagerClient(running.api), Peer(running)
    replies = [peer.send(peer.message(body=b"x" * 500)) for _ in range(5)]
    assert [reply.status for reply in replies] == [200, 200, 503, 503, 503]
    assert replies[-1].reason.startswith("quota; ")
    given = client.register("private$/orders", "default", holder="A")
    client.received("private$/orders", "default", epoch=given.epoch, to=2, holder="A")
    assert peer.send(peer.message()).status == 200
    peer.close()


def test_the_quota_of_the_machine_counts_all_queues(start: Start) -> None:
    running = start(queues=["private$/a", "private$/b"], machine_quota_bytes=2500)
    client, peer = QueueManagerClient(running.api), Peer(running)
    replies = [
        peer.send(peer.message(queue, body=b"x" * 500))
        for queue in ("private$/a", "private$/b", "private$/b")
    ]
    assert [reply.status for reply in replies] == [200, 200, 503]
    assert replies[-1].reason.startswith("machine-quota; ")
    quota = client.status()["quota"]
    assert (quota["queue_bytes"], quota["machine_bytes"]) == (None, 2500)
    assert quota["machine_bytes_waiting"] >= 2500
    metrics = requests.get(f"{running.api}/metrics", timeout=20).text
    assert 'srmp_quota_bytes{of="machine"} 2500.0' in metrics
    assert 'srmp_queue_bytes{queue="private$/a"}' in metrics
    given = client.register("private$/a", "default", holder="A")
    client.received("private$/a", "default", epoch=given.epoch, to=1, holder="A")
    assert peer.send(peer.message("private$/b")).status == 200
    assert client.purge("private$/b")["purged"] == 2
    assert client.status()["quota"]["machine_bytes_waiting"] == 0
    peer.close()


def test_what_comes_too_late_is_marked_or_discarded(start: Start) -> None:
    """A stream goes on behind it; the metric counts it under the status it was answered with."""
    running = start(queues=QUEUES)
    peer, client = Peer(running), QueueManagerClient(running.api)
    late = {"time_to_reach_queue": 1_700_000_000}
    assert peer.send(peer.message(**late)).status == 200
    assert rows(client, "private$/orders")["expired"].to_pylist() == [True]
    peer.close()
    running = start(queues=QUEUES, expired="refuse", name="refusing")
    peer, client = Peer(running), QueueManagerClient(running.api)
    reply = peer.send(peer.message(**late))
    assert (reply.status, reply.reason.partition(";")[0]) == (400, "expired")
    answers = [peer.send(peer.stream(n, **(late if n == 2 else {}))).status for n in (1, 2, 3)]
    assert answers == [200, 200, 200]
    assert rows(client, "private$/payments")["stream_sequence"].to_pylist() == [1, 3]
    (stream,) = client.status()["incoming_streams"]
    assert (stream["sequence_number"], stream["gap_at"], stream["reject_count"]) == (3, None, 0)
    metrics = requests.get(f"{running.api}/metrics", timeout=20).text
    assert 'srmp_messages_refused_total{reason="expired",status="400"} 1.0' in metrics
    assert 'srmp_messages_refused_total{reason="expired",status="200"} 1.0' in metrics
    peer.close()


def test_unknown_queue_retry_answers_503(start: Start) -> None:
    running = start(unknown_queue="retry")
    peer = Peer(running)
    assert peer.send(peer.message("nobody")).status == 503
    peer.close()


def test_an_unused_embedded_queue_manager_ends_by_itself(start: Start) -> None:
    running = start(exit_when_unused=1)
    client = QueueManagerClient(running.api)
    client.put_queue("q")
    client.register("q", "default", holder="A")
    time.sleep(2.5)
    assert running.process.poll() is None, "somebody holds a lease"
    client.release("q", "default", holder="A")
    assert running.process.wait(10) == 0


def test_sealing_keeps_every_row_and_retention_trims(start: Start, tmp_path: Path) -> None:
    running = start(queues=QUEUES)
    client = QueueManagerClient(running.api)
    for _ in range(5):
        client.send("private$/orders", [{"body_base64": "aGVsbG8gd29ybGQ="}] * 1000)
    segments = tmp_path / "data" / "segments"
    until(lambda: list(segments.glob("*/*.columns.arrow")), 30)
    table = rows(client, "private$/orders")
    assert table.column("sequence").to_pylist() == list(range(1, 5001))
    until(
        lambda: (
            QueueManagerClient(running.api).range("private$/orders", after=0, max_bytes=10_000).last
            < 20
        )
    )
    running.kill9()
    running.restart()
    assert rows(client, "private$/orders").equals(table)
    given = client.register("private$/orders", "default", holder="A")
    client.received("private$/orders", "default", epoch=given.epoch, to=5000, holder="A")
    running.stop()
    trimming = start("data", queues=QUEUES, retention_hours=0.0001)
    client = QueueManagerClient(trimming.api)
    until(lambda: client.range("private$/orders").first > 1, 60)
    with pytest.raises(ApiError) as trimmed:
        client.range("private$/orders", after=0)
    assert (trimmed.value.status, trimmed.value.code) == (410, "trimmed")
    until(lambda: not list(segments.glob("*/*")))


def test_a_copied_directory_is_another_epoch_and_its_old_rows_are_still_there(
    start: Start, tmp_path: Path
) -> None:
    running = start(queues=QUEUES)
    peer = Peer(running)
    assert peer.send(peer.message()).status == 200
    peer.close()
    first = running.epoch
    running.stop()
    subprocess.run(["cp", "-r", tmp_path / "data", tmp_path / "copy"], check=True)
    copied = start("copy", queues=QUEUES)
    assert copied.guid == running.guid
    assert copied.epoch != first
    client = QueueManagerClient(copied.api)
    found = client.range("private$/orders", epoch=first)
    assert (found.first, found.end, found.next_epoch) == (1, 1, copied.epoch)
    assert client.range("private$/orders").first == 2
    peer = Peer(copied)
    assert peer.send(peer.message()).status == 200
    assert rows(client, "private$/orders").column("sequence").to_pylist() == [2]
    peer.close()


@pytest.mark.filterwarnings(
    "ignore:ssl.OP_NO"
)  # to ask for an old version is deprecated, to refuse it is the point
def test_the_api_beyond_loopback_speaks_tls_only(start: Start, tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    token = tmp_path / "token"
    token.touch(0o600)
    token.write_text("0123456789abcdef0123\n")
    running = start(api_listen="0.0.0.0:0", token_file=token, api_cert=certificate, api_key=key)
    assert running.api.startswith("https://")
    port = int(running.api.rpartition(":")[2])
    context = ssl.create_default_context(cafile=str(certificate))
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        context.wrap_socket(plain, server_hostname="localhost") as secure,
    ):
        assert secure.version() in ("TLSv1.2", "TLSv1.3")
        secure.sendall(
            b"GET /v1/status HTTP/1.1\r\nHost: anything\r\nAuthorization: Bearer "
            b"0123456789abcdef0123\r\n"
            b"Connection: close\r\n\r\n"
        )
        assert secure.recv(100).startswith(b"HTTP/1.1 200 ")
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("ALL:@SECLEVEL=0")
    old.options |= ssl.OP_NO_TLSv1_2 | ssl.OP_NO_TLSv1_3
    with (
        socket.create_connection(("127.0.0.1", port)) as plain,
        pytest.raises((ssl.SSLError, OSError)),
    ):
        old.wrap_socket(plain)


def test_a_failed_sync_ends_it_with_1_and_one_clear_line(tmp_path: Path) -> None:
    """The disk refuses: nobody is told 200, and the process does not go on."""
    code = (
        "import sys, sqlite3, srmp_spark.store.journal as j\n"
        "from srmp_spark.cli import run\n"
        "real = j.Journal._run\n"
        "class Broken:\n"
        "    def __init__(self, c): self.c, self.n = c, 0\n"
        "    def execute(self, *a):\n"
        "        if a[0] == 'COMMIT':\n"
        "            self.n += 1\n"
        "            if self.n > 20: raise sqlite3.OperationalError('disk I/O error')\n"
        "        return self.c.execute(*a)\n"
        "def broken(self):\n"
        "    self._connection = Broken(self._connection)\n"
        "    real(self)\n"
        "j.Journal._run = broken\n"
        "sys.exit(run(sys.argv[1:]))\n"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code, "serve", "--data-dir", str(tmp_path / "d"), "--listen", "127.0.0.1:0",
         "--api", "127.0.0.1:0",
         "--queue", "private$/orders"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    running = RunningQueueManager(tmp_path / "d")
    running.ready = json.loads(process.stdout.readline())
    peer = Peer(running)
    answered = 0
    with contextlib.suppress(
        OSError, http.client.HTTPException
    ):  # the connection ends in the middle
        while True:
            assert peer.send(peer.message()).status == 200
            answered += 1
    assert process.wait(20) == 1
    stderr = process.stderr.read()
    assert "disk I/O error" in stderr
    assert "nothing later was acknowledged" in stderr
    assert "Traceback" not in stderr
    with sqlite3.connect(tmp_path / "d" / "store.db") as database:
        (stored,) = database.execute("SELECT coalesce(max(last), 0) FROM groups").fetchone()
    assert stored == answered


@pytest.mark.parametrize("table", ["queues", "history", "streams", "groups", "queue_epochs"])
def test_a_damaged_page_ends_the_start_with_6_and_one_clear_line(
    start: Start, tmp_path: Path, table: str
) -> None:
    running = start(queues=QUEUES)
    peer = Peer(running)
    assert peer.send(peer.message()).status == 200
    assert peer.send(peer.stream(1)).status == 200
    peer.close()
    running.stop()
    database = tmp_path / "data" / "store.db"
    with sqlite3.connect(database) as db:
        (page,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    db.close()
    with database.open("r+b") as file:
        file.seek((page - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(ServeFailedError) as failed:
        running.restart()
    assert failed.value.code == 6
    assert "Traceback" not in failed.value.stderr
    assert "backup" in failed.value.stderr


def test_an_older_copy_takes_nothing_and_ends_with_6(start: Start, tmp_path: Path) -> None:
    """A volume set back as a whole: inodes, births, starts and commits all agree, only the Delta state knows more."""
    data = tmp_path / "data"
    running = start(queues=QUEUES, state=tmp_path / "state", state_interval=0.3)
    peer = Peer(running)
    assert peer.send(peer.message()).status == 200
    peer.close()
    running.stop()
    older = {name: (data / name).read_bytes() for name in ("store.db", "identity")}
    running.start()
    for _ in range(3):
        assert peer.send(peer.message()).status == 200
    peer.close()
    running.stop()  # a clean end publishes
    (data / "store.db").write_bytes(older["store.db"])
    note = json.loads(older["identity"]) | {
        "inodes": json.loads((data / "identity").read_text())["inodes"]
    }
    (data / "identity").write_text(json.dumps(note))
    with pytest.raises(ServeFailedError) as failed:
        running.start()
    assert failed.value.code == 6
    assert "Traceback" not in failed.value.stderr
    told = [line for line in failed.value.stderr.splitlines() if line.startswith("srmp-spark:")]
    assert len(told) == 1
    assert "it is an older copy. Put the newer data directory back" in told[0]
    with sqlite3.connect(data / "store.db") as database:
        (last,) = database.execute("SELECT max(last) FROM groups").fetchone()
    assert last == 1, "not one message was taken"


def test_the_delta_state_is_written_and_its_lag_is_told(start: Start, tmp_path: Path) -> None:
    running = start(queues=QUEUES, state=tmp_path / "state", state_interval=0.3)
    client, peer = QueueManagerClient(running.api), Peer(running)
    assert peer.send(peer.message()).status == 200
    peer.close()
    until(
        lambda: (
            client.status()["state"]["position"] > 0 and client.status()["state"]["lag_seconds"] < 5
        ),
        40,
    )
    assert client.status()["state"]["uri"] == str(tmp_path / "state")
    from deltalake import DeltaTable

    until(
        lambda: DeltaTable(str(tmp_path / "state" / "inbox")).to_pyarrow_table().num_rows == 1, 20
    )


_MEETS = """
import os, sys, time
names = [each for each in sys.orig_argv if each.endswith(("wsrm.gateway", "remote_read.gateway"))]
if names and "-m" in sys.orig_argv:
    folder = os.environ["MEETING"]
    open(os.path.join(folder, names[0]), "w").close()
    end = time.monotonic() + 5
    while len(os.listdir(folder)) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    print("meeting", names[0], len(os.listdir(folder)), file=sys.stderr, flush=True)
"""
"""Each gateway waits at its very beginning until the other one has begun."""


def test_gateways_start_together(tmp_path: Path) -> None:
    (tmp_path / "meeting").mkdir()
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(_MEETS)
    path = os.pathsep.join([str(tmp_path / "site"), *filter(None, [os.environ.get("PYTHONPATH")])])
    running = RunningQueueManager(
        tmp_path / "data", queues=["private$/orders"], listen_wsrm="127.0.0.1:0", rpc="127.0.0.1:0", rpc_min_auth="none",
        environment={"PYTHONPATH": path, "MEETING": str(tmp_path / "meeting")},
    )  # fmt: skip
    with running:
        met = [line for line in running.stderr().splitlines() if line.startswith("meeting ")]
    assert sorted(met) == [
        f"meeting srmp_spark.queue_manager.{each}.gateway 2" for each in ("remote_read", "wsrm")
    ]
