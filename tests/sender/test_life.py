"""The life of the sender process and of what waits in it: restarts, copies, ends; and what it may connect to."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import sqlite3
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests
from kit import acknowledged, bodies, commit, outgoing, post, rows_to, sender_of, until

from srmp_spark.testing.queue_manager import RunningQueueManager, ServeFailedError
from tests.kit.certificate import make_certificate
from tests.kit.foreign.destination import Destination

QUEUE = "private$/in"
QUICK = {"resend_table": "1,1,2", "retransmission_timeout": 0.2}


def test_sigterm_keeps_what_waits_and_the_numbers_go_on(tmp_path: Path) -> None:
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm", **QUICK) as running,
    ):
        url = peer.url(QUEUE)
        commit(running.api, "1", rows_to(url, bodies(0, 400)))
        assert running.stop() == 0  # in the middle of it
        running.restart()
        commit(running.api, "2", rows_to(url, bodies(400, 450)))
        acknowledged(running, url)
        verdict = peer.verdict({QUEUE: bodies(0, 450)})
        assert verdict.ok, verdict.complaint()
        assert "Traceback" not in running.stderr()


def test_a_sender_that_dies_is_replaced_and_the_queue_manager_lives_on(tmp_path: Path) -> None:
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm", **QUICK) as running,
    ):
        url = peer.url(QUEUE)
        commit(running.api, "1", rows_to(url, bodies(0, 20)))
        acknowledged(running, url)
        first = sender_of(running)
        assert first is not None
        os.kill(first, signal.SIGKILL)
        answer = requests.post(
            f"{running.api}/v1/outbox/a/b/commit", json={"stages": []}, timeout=30
        )
        assert answer.status_code in (200, 503)
        assert requests.get(f"{running.api}/v1/status", timeout=30).status_code == 200, (
            "while it is away"
        )
        until(lambda: sender_of(running) not in (None, first), "another one")
        until(lambda: requests.post(f"{running.api}/v1/outbox/a/c/commit", json={"stages": []}, timeout=30).status_code == 200,
              "it answers")  # fmt: skip
        commit(running.api, "2", rows_to(url, bodies(20, 40)))
        acknowledged(running, url)
        assert peer.verdict({QUEUE: bodies(0, 40)}).ok
        assert "sender.died" in running.stderr()


def test_a_sender_that_has_packed_rows_with_arrow_holds_no_pandas(tmp_path: Path) -> None:
    """Arrow looks for pandas when it makes an array of a list: 45 MB in each helper process (queue_manager/child)."""
    with (
        Destination(queues={QUEUE: True}, receipt_wait=0.1) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        commit(running.api, "1", rows_to(peer.url(QUEUE), bodies(0, 20)))
        maps = Path(f"/proc/{sender_of(running)}/maps").read_text()
    assert "pyarrow" in maps
    assert "pandas" not in maps


def test_a_receipt_that_came_while_the_sender_was_dead_is_not_lost(tmp_path: Path) -> None:
    """The peer sends it once, was answered 200, and by the document never repeats it."""
    with (
        Destination(queues={QUEUE: True}, receipt_wait=4.0) as peer,
        RunningQueueManager(tmp_path / "qm") as running,
    ):
        url = peer.url(QUEUE)
        commit(running.api, "1", rows_to(url, bodies(0, 20)))
        until(
            lambda: outgoing(running, url).get("awaiting_stream_receipt") == 20,
            "that each was answered is stored",
        )
        pid = sender_of(running)
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)  # it hears nothing
        orders = f"{running.api}/v1/queues/private%24%2Forder_queue%24"
        until(lambda: requests.get(orders, timeout=30).json()["last"] >= 1, "the receipt is a row")
        os.kill(pid, signal.SIGKILL)
        acknowledged(running, url)
        assert len(peer.journal) == 20, "nothing went out again"


def test_in_a_copy_of_the_data_directory_what_waits_is_on_hold(tmp_path: Path) -> None:
    with Destination(queues={QUEUE: True}, receipt_wait=30.0) as peer:
        url = peer.url(QUEUE)
        with RunningQueueManager(tmp_path / "qm", **QUICK) as running:
            commit(running.api, "1", rows_to(url, bodies(0, 10)))
            assert peer.wait(10, 20)
        shutil.copytree(tmp_path / "qm", tmp_path / "copy")
        count = len(peer.journal)
        with RunningQueueManager(tmp_path / "copy", **QUICK) as copy:
            entry = until(lambda: outgoing(copy, url), "it is known")
            assert (entry["state"], entry["in_doubt"]) == ("OnHold", 10)
            assert len(peer.journal) == count
            post(f"{copy.api}/v1/outgoing/{requests.utils.quote(url, safe='')}/drop")
            assert outgoing(copy, url) == {}


def test_destinations_that_are_down_cost_the_others_nothing(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        mute = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(5)]
        peer = stack.enter_context(Destination(queues={QUEUE: True}, receipt_wait=0.1))
        running = stack.enter_context(RunningQueueManager(tmp_path / "qm", **QUICK))
        down = [f"http://127.0.0.1:{each.getsockname()[1]}/msmq/{QUEUE}" for each in mute]
        down += [f"http://127.0.0.1:9/msmq/private$/q{n}" for n in range(200)]
        down += [f"http://nowhere-{n}.invalid/msmq/{QUEUE}" for n in range(20)]
        commit(running.api, "down", [row for url in down for row in rows_to(url, bodies(0, 5))])
        url = peer.url(QUEUE)
        commit(running.api, "up", rows_to(url, bodies(0, 100)))
        acknowledged(running, url, 15)
        assert peer.verdict({QUEUE: bodies(0, 100)}).ok
        states = {
            entry["state"]
            for entry in requests.get(f"{running.api}/v1/status", timeout=30).json()["outgoing"]
        }
        assert states <= {"Connected", "Inactive", "Waiting", "Disconnected"}


def test_an_outbox_of_a_newer_version_is_exit_code_6(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "qm") as running:
        until(lambda: (tmp_path / "qm" / "outbox.db").exists(), "it was made")
        commit(running.api, "1", rows_to("http://127.0.0.1:9/msmq/q", [b"x"]))
    with contextlib.closing(sqlite3.connect(tmp_path / "qm" / "outbox.db")) as connection:
        connection.execute("PRAGMA user_version = 99")
    with pytest.raises(ServeFailedError) as failed:
        RunningQueueManager(tmp_path / "qm").start()
    assert failed.value.code == 6


class Web(BaseHTTPRequestHandler):
    """Some web server: redirects, or takes everything."""

    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:  # http.server calls it
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.paths.append(self.path)  # type: ignore[attr-defined]
        if self.path.endswith("/moved"):
            self.send_response(301)
            self.send_header("Location", f"{self.path}-there")
        else:
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def finish(self) -> None:
        super().finish()
        self.server.ended.set()  # type: ignore[attr-defined]

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002  # its name
        """Be quiet."""


@contextlib.contextmanager
def web(tls: ssl.SSLContext | None = None) -> Iterator[ThreadingHTTPServer]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Web)
    server.paths = []  # type: ignore[attr-defined]
    server.ended = threading.Event()  # type: ignore[attr-defined]
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_pause_closes_the_connection(tmp_path: Path) -> None:
    """[MC-MQSRM] 3.1.7.4. Idle it would be kept for a minute."""
    with web() as server, RunningQueueManager(tmp_path / "qm", **QUICK) as running:
        url = f"http://127.0.0.1:{server.server_port}/msmq/q"
        commit(running.api, "1", rows_to(url, [b"x"], delivery="recoverable"))
        until(
            lambda: outgoing(running, url, "plain").get("last_acknowledged") == 1, "it was answered"
        )
        assert not server.ended.is_set()  # type: ignore[attr-defined]
        post(f"{running.api}/v1/outgoing/{requests.utils.quote(url, safe='')}/pause")
        assert server.ended.wait(5)  # type: ignore[attr-defined]


def test_redirects_are_not_followed(tmp_path: Path) -> None:
    with web() as server, RunningQueueManager(tmp_path / "qm", **QUICK) as running:
        url = f"http://127.0.0.1:{server.server_port}/moved"
        commit(running.api, "1", rows_to(url, [b"x"], delivery="recoverable"))
        entry = until(
            lambda: (e := outgoing(running, url, "plain")) and e["last_error"] and e,
            "it was answered",
        )
        assert entry["last_error"].startswith("301")
        assert entry["queued"] == 1
        assert set(server.paths) == {"/moved"}  # type: ignore[attr-defined]


def test_tls_is_verified(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with web(context) as server:
        url = f"https://localhost:{server.server_port}/msmq/q"
        with RunningQueueManager(tmp_path / "qm", **QUICK) as running:
            commit(running.api, "1", rows_to(url, [b"x"], delivery="recoverable"))
            entry = until(
                lambda: (e := outgoing(running, url, "plain")) and e["last_error"] and e,
                "it was tried",
            )
            assert "certificate" in entry["last_error"].lower()
            assert server.paths == []  # type: ignore[attr-defined]
        with RunningQueueManager(
            tmp_path / "qm", environment={"SSL_CERT_FILE": str(certificate)}, **QUICK
        ) as running:
            until(
                lambda: outgoing(running, url, "plain").get("last_acknowledged") == 1,
                "the CA is trusted",
            )
            assert server.paths == ["/msmq/q"]  # type: ignore[attr-defined]


def test_an_outbox_that_is_gone_is_exit_code_6(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "qm") as running:
        commit(running.api, "1", rows_to("http://127.0.0.1:9/msmq/q", [b"x"]))
    for path in (tmp_path / "qm").glob("outbox.db*"):
        path.unlink()
    with pytest.raises(ServeFailedError) as failed:
        RunningQueueManager(tmp_path / "qm").start()
    assert failed.value.code == 6
