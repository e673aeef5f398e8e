"""The API port under attack: callers that are silent, greedy, foreign or forged, at a running process."""

from __future__ import annotations

import contextlib
import http.client
import json
import multiprocessing
import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from api_kit import address, call
from peer_kit import Peer

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ConfigurationError
from srmp_spark.queue_manager.api.port_side.http import CALL_BODY_MAX, JSON_ITEMS_MAX
from srmp_spark.queue_manager.api.port_side.port import PIPELINED_MAX
from srmp_spark.queue_manager.queues.consumers import CONSUMERS_MAX
from srmp_spark.queue_manager.srmp_port.http_limits import HEAD_SECONDS
from srmp_spark.queue_manager.srmp_port.port_limits import API_CONNECTIONS_MAX
from srmp_spark.queue_manager.trust.peer_process import owner_of_peer
from srmp_spark.testing.queue_manager import RunningQueueManager

PATIENCE = 30
CHANGES = "/v1/queues/private%24%2Forders/purge"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    running = RunningQueueManager(
        tmp_path_factory.mktemp("attacked") / "data", queues=["private$/orders", "private$/other"]
    )
    yield running.start()
    running.stop()


def connected(running: RunningQueueManager) -> socket.socket:
    """A connection that has said nothing."""
    return socket.create_connection(address(running), timeout=PATIENCE)


def memory_of(process: int) -> int:
    """Bytes that stand in memory."""
    return int(Path(f"/proc/{process}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def cpu_of(process: int) -> float:
    """Seconds of a processor that a process has used."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(") ")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class TestConnections:
    def test_idle_ones_before_any_token_keep_nobody_out(self, running: RunningQueueManager) -> None:
        """More of them than the port admits: the oldest makes way, and senders find descriptors."""
        began = time.monotonic()
        with contextlib.ExitStack() as stack:
            for _ in range(API_CONNECTIONS_MAX + 200):
                stack.enter_context(connected(running))
            assert running.pid is not None
            connecting, before = time.monotonic() - began, cpu_of(running.pid)
            began = time.monotonic()
            assert call(running, "GET", "/v1/status")[0] == 200
            # Without a place of another one it waits until the first is closed, HEAD_SECONDS after it came. A machine that
            # is busy needs longer for both.
            assert time.monotonic() - began < max(HEAD_SECONDS * 0.4, 2 * connecting)
            assert cpu_of(running.pid) - before < 1, "seconds of its processor"
            sender = Peer(running)
            assert sender.send(sender.message("private$/orders")).status == 200
            sender.close()
            assert len(list(Path(f"/proc/{running.pid}/fd").iterdir())) < API_CONNECTIONS_MAX + 150

    def test_one_that_never_sends_a_whole_head_is_closed(
        self, running: RunningQueueManager
    ) -> None:
        slow, silent = connected(running), connected(running)
        slow.sendall(b"GET /v1/status HTTP/1.1\r\nHost: 127.0.0.1\r\nX: ")
        for each in (slow, silent):
            each.settimeout(HEAD_SECONDS + 15)
            assert each.recv(100) == b""
            each.close()


class TestPipelining:
    def test_requests_without_end_cost_one_read(self, running: RunningQueueManager) -> None:
        """Before any token, and without reading an answer."""
        assert running.pid is not None
        before = memory_of(running.pid)
        requests_of_one_write = b"GET / HTTP/1.1\r\n\r\n" * 50_000
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                connection = stack.enter_context(connected(running))
                connection.setblocking(False)
                end = time.monotonic() + 1
                with contextlib.suppress(OSError):
                    while time.monotonic() < end:
                        with contextlib.suppress(BlockingIOError):
                            connection.send(requests_of_one_write)
            began = time.monotonic()
            assert call(running, "GET", "/healthz")[0] == 200
            assert time.monotonic() - began < 2
            assert memory_of(running.pid) - before < 50_000_000

    def test_a_few_are_answered_in_their_order(self, running: RunningQueueManager) -> None:
        with connected(running) as connection:
            paths = ["healthz", "nothing"] * (PIPELINED_MAX // 2)
            connection.sendall(
                b"".join(
                    b"GET /%s HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" % path.encode() for path in paths
                )
            )
            answers = b""
            while answers.count(b"HTTP/1.1 ") < len(paths) or not answers.rstrip().endswith(b"}"):
                answers += connection.recv(65_536)
        statuses = [int(each) for each in re.findall(rb"HTTP/1\.1 (\d+)", answers)]
        assert statuses == [200 if path == "healthz" else 404 for path in paths]


class TestBodies:
    def test_a_call_of_a_holder_has_no_megabytes(self, running: RunningQueueManager) -> None:
        status, answer = call(
            running,
            "POST",
            "/v1/queues/private%24%2Forders/consumers/c/register",
            ["x" * CALL_BODY_MAX],
        )
        assert (status, answer["error"]["code"]) == (413, "too-large")

    def test_many_small_values_are_refused_before_they_are_objects(
        self, running: RunningQueueManager
    ) -> None:
        assert running.pid is not None
        before = memory_of(running.pid)
        body = b'[{"a":[' + b",".join([b"[]"] * (JSON_ITEMS_MAX * 8)) + b"]}]"
        for _ in range(4):
            answer = requests.post(
                f"{running.api}/v1/outgoing/messages",
                body,
                headers={"srmp-client": "1"},
                timeout=PATIENCE,
            )
            assert answer.status_code == 413
        assert memory_of(running.pid) - before < 100_000_000


class TestOrigins:
    @pytest.mark.parametrize(
        ("headers", "code"),
        [
            ({"Origin": "http://localhost:3000", "Content-Type": "text/plain"}, "foreign-origin"),
            ({"Origin": "null"}, "foreign-origin"),
            ({"Host": "[::1]evil"}, "foreign-host"),
            ({"Host": "127.0.0.1.example.com"}, "foreign-host"),
            ({"Content-Type": "text/plain"}, "form"),
            ({"Content-Type": "application/x-www-form-urlencoded"}, "form"),
            ({"Content-Type": "multipart/form-data; boundary=x"}, "form"),
            ({"Sec-Fetch-Site": "same-site"}, "form"),
            ({"Referer": "http://localhost:3000/"}, "form"),
        ],
    )
    def test_a_page_cannot_purge_a_queue(
        self, running: RunningQueueManager, headers: dict[str, str], code: str
    ) -> None:
        connection = http.client.HTTPConnection(*address(running), timeout=PATIENCE)
        connection.request("POST", CHANGES, b"", headers)
        answer = connection.getresponse()
        assert (answer.status, json.loads(answer.read())["error"]["code"]) == (403, code)
        connection.close()

    def test_the_page_of_the_api_itself_and_programs_can(
        self, running: RunningQueueManager
    ) -> None:
        own = running.api
        for headers in (
            {"Origin": own, "Content-Type": "application/json"},
            {"srmp-client": "1"},
            {},
        ):
            assert (
                requests.post(
                    f"{own}{CHANGES}", data=b"", headers=headers, timeout=PATIENCE
                ).status_code
                == 200
            )


class TestOwners:
    def test_the_kernel_names_the_user_at_the_other_end(self) -> None:
        for host, family in (("127.0.0.1", socket.AF_INET), ("::1", socket.AF_INET6)):
            with socket.socket(family) as listening:
                listening.bind((host, 0))
                listening.listen()
                with socket.create_connection(listening.getsockname()[:2]) as calling:
                    accepted, _ = listening.accept()
                    assert owner_of_peer(accepted) == os.geteuid()
                    assert owner_of_peer(calling) == os.geteuid()
                    accepted.close()

    def test_who_has_closed_already_is_nobody(self) -> None:
        """The kernel shows a socket without a process as root's: any user could send a call, close, and be root."""
        with socket.create_server(("127.0.0.1", 0)) as listening:
            calling = socket.create_connection(listening.getsockname())
            calling.sendall(b"DELETE /v1/queues/q HTTP/1.1\r\n\r\n")
            calling.close()
            accepted, _ = listening.accept()
            assert owner_of_peer(accepted) is None
            accepted.close()

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root becomes another user")
    def test_another_user_of_the_host_hears_nothing_without_a_token(
        self, running: RunningQueueManager
    ) -> None:
        status, said = as_nobody(running, "/v1/status")
        assert (status, said["error"]["code"]) == (403, "foreign-user")
        assert as_nobody(running, "/healthz")[0] == 200


def as_nobody(running: RunningQueueManager, path: str) -> Any:
    """A GET from a process of another user of this host."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()

    def child() -> None:
        os.setuid(65534)
        theirs.send(call(running, "GET", path))

    process = context.Process(target=child)
    process.start()
    assert ours.poll(PATIENCE)
    process.join(PATIENCE)
    return ours.recv()


class TestConsumers:
    def test_names_without_marks_make_way_and_a_reader_keeps_nobody_out(
        self, running: RunningQueueManager
    ) -> None:
        client = QueueManagerClient(running.api)
        for number in range(CONSUMERS_MAX + 20):
            client.register("private$/other", f"c{number}", holder="h")
            client.release("private$/other", f"c{number}", holder="h")
        assert len(consumers(client) - {"default"}) == CONSUMERS_MAX
        client.register("private$/other", "honest", holder="h")
        assert "honest" in consumers(client)
        assert "default" in consumers(client)

    def test_one_that_is_not_wanted_any_more_is_deleted(self, running: RunningQueueManager) -> None:
        client = QueueManagerClient(running.api)
        client.register("private$/orders", "report", holder="h")
        with pytest.raises(ApiError, match="report"):  # somebody reads with it
            client.delete_consumer("private$/orders", "report")
        client.release("private$/orders", "report", holder="h")
        client.delete_consumer("private$/orders", "report")
        assert "report" not in consumers(client, "private$/orders")
        with pytest.raises(ApiError, match="no consumer"):
            client.delete_consumer("private$/orders", "report")
        with pytest.raises(ApiError, match="decides about rows"):
            client.delete_consumer("private$/orders", "default")

    def test_the_command_lists_and_deletes(self, running: RunningQueueManager) -> None:
        client = QueueManagerClient(running.api)
        client.register("private$/orders", "old", holder="h")
        client.release("private$/orders", "old", holder="h")

        def command(*words: str) -> set[str]:
            line = [
                sys.executable,
                "-m",
                "srmp_spark.cli",
                "consumers",
                "private$/orders",
                *words,
                "--api",
                running.api,
            ]
            done = subprocess.run(
                line, check=True, capture_output=True, text=True, timeout=PATIENCE
            )
            return {json.loads(each)["name"] for each in done.stdout.splitlines()}

        assert "old" in command()
        assert "old" not in command("--delete", "old")

    def test_one_that_was_deleted_stays_so_after_a_restart(self, tmp_path: Path) -> None:
        with RunningQueueManager(tmp_path / "data", queues=["private$/orders"]) as own:
            client = QueueManagerClient(own.api)
            for name in ("kept", "gone"):
                client.register("private$/orders", name, holder="h")
                client.release("private$/orders", name, holder="h")
            client.delete_consumer("private$/orders", "gone")
            own.kill9()
            own.restart()
            assert "gone" not in consumers(client, "private$/orders")


def consumers(client: QueueManagerClient, queue: str = "private$/other") -> set[str]:
    found = next(each for each in client.queues() if each["name"] == queue)
    return {each["name"] for each in found["consumers"]}


class TestTokens:
    def test_a_token_leaves_for_no_host_in_the_clear(self) -> None:
        for url in ("http://queues.example.com:8081", "http://127.example.com", "http://192.0.2.1"):
            with pytest.raises(ConfigurationError, match=r"plain HTTP.*allowPlainToken=true"):
                QueueManagerClient(url, "secret")
            QueueManagerClient(url, "secret", allow_plain_token=True)
        for url in (
            "https://queues.example.com",
            "http://localhost:1",
            "http://127.9.9.9:1",
            "http://[::1]:1",
        ):
            QueueManagerClient(url, "secret")
