"""The log of the real ``serve``: each line of each of its processes has the form that was asked for."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil
import pytest

from srmp_spark.logs.fields import FIXED
from srmp_spark.logs.json_lines import LINE_BYTES_MAX
from srmp_spark.testing.queue_manager import RunningQueueManager

HOSTILE = 'x" rows=9","level":"critical\x1b[2J\u2028'
TEXT = re.compile(
    r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} (DEBUG|INFO|WARNING|ERROR) [a-z_]+\.[a-z_]+( |:|$)"
)


ROOT = Path(__file__).resolve().parents[2]
WAIT_S = 30.0


def until(condition: Callable[[], object], what: str) -> None:
    """Wait until the condition holds."""
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end, what
        time.sleep(0.02)


def lines_of(text: str) -> list[dict[str, Any]]:
    """Each line of a log, which must be an object with the fixed names in their order."""
    found = []
    for line in text.splitlines():
        assert line.isascii(), line
        read = json.loads(line)
        assert list(read)[:6] == list(FIXED)[:6], line
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", read["time"])
        datetime.fromisoformat(read["time"].replace("Z", "+00:00"))
        assert read["level"] in ("debug", "info", "warning", "error", "critical")
        found.append(read)
    return found


def child(running: RunningQueueManager, module: str) -> psutil.Process:
    """The process of ``serve`` that runs this module."""
    found = []
    for each in psutil.Process(running.pid).children():
        with contextlib.suppress(psutil.ZombieProcess):  # It was killed, and is not waited for yet.
            if any(word.endswith(module) for word in each.cmdline()):
                found.append(each)
    (child,) = found
    return child


def post(running: RunningQueueManager, path: str, body: bytes, **headers: str) -> int:
    """POST to the SRMP port. The target may have any bytes that http.client lets pass."""
    connection = http.client.HTTPConnection(*running.endpoint, timeout=10)
    try:
        connection.request("POST", path, body, headers)
        return connection.getresponse().status
    finally:
        connection.close()


def envelope(to: str) -> bytes:
    """A message to a destination that a stranger wrote."""
    return (
        '<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" '
        'xmlns="http://schemas.xmlsoap.org/srmp/"><se:Header>'
        '<path xmlns="http://schemas.xmlsoap.org/rp/" se:mustUnderstand="1">'
        f"<action>MSMQ:a</action><to>{to}</to><id>uuid:1@00000000-0000-0000-0000-00000000d0c7</id>"
        '</path><properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt>'
        "<sentAt>20070719T032454</sentAt></properties></se:Header><se:Body/></se:Envelope>"
    ).encode()


def test_each_line_of_each_process_is_one_object(tmp_path: Path) -> None:
    """Also what strangers send, a child that is killed, and warnings of Python."""
    running = RunningQueueManager(
        tmp_path / "qm",
        queues=["private$/orders"],
        listen_wsrm="127.0.0.1:0",
        rpc="127.0.0.1:0",
        log_format="json",
        log_level="debug",
        environment={"PYTHONWARNINGS": "always"},
    )
    with running:
        hostile = HOSTILE.replace('"', "&quot;").replace("\x1b", "%1B")
        for to in (
            f"http://{hostile}/msmq/private$/orders",
            f"http://localhost/msmq/private$/{hostile}",
        ):
            assert (
                post(running, "/msmq/private$/orders", envelope(to), **{"Content-Type": "text/xml"})
                == 400
            )
        with socket.create_connection(
            ("127.0.0.1", int(running.ready["rpc"].rpartition(":")[2]))
        ) as rpc:
            rpc.sendall(b"GET / HTTP/1.1\r\n\r\n" + HOSTILE.encode())
            rpc.settimeout(10)
            assert rpc.recv(100) == b"", "it closes"
        for module in ("reader.process", "wsrm.gateway"):
            os.kill(child(running, module).pid, signal.SIGKILL)
        until(lambda: running.stderr().count('.died","message"') == 2, "both deaths are told")
        until(lambda: "sender.ready" in running.stderr(), "the sender is ready")
    found = lines_of(running.stderr())
    by_event = {each["event"]: each for each in found}
    assert {each["process"] for each in found} >= {"serve", "sender"}
    assert by_event["process.ready"]["queues"] == 2
    assert by_event["reader.died"]["code"] == -signal.SIGKILL
    assert by_event["wsrm.died"]["restart_in"] > 0
    refused = [each for each in found if each["event"] == "accept.refused"]
    assert {each["status"] for each in refused} == {"400"}
    assert not any("rows" in each for each in refused)
    assert {each["level"] for each in found} <= {"debug", "info", "warning", "error"}


MANY = """
import logging
from srmp_spark.logs.form import LogForm, log_to_stderr

log_to_stderr(LogForm(format="json"), "one")
for number in range(300):
    logging.getLogger("srmp_spark.x").info("a.b rows=%d queue=%s other=%s", number, "é" * 700, "x" * 5000)
"""


def test_lines_of_several_processes_do_not_mix() -> None:
    """In one pipe that is full most of the time, lines as long as they may be."""
    read, write = os.pipe()
    try:
        writers = [
            subprocess.Popen([sys.executable, "-c", MANY], stderr=write, cwd=ROOT) for _ in range(3)
        ]
    finally:
        os.close(write)
    with os.fdopen(read, encoding="ascii") as pipe:
        found = lines_of(pipe.read())
    assert [each.wait(30) for each in writers] == [0, 0, 0]
    assert sorted(each["rows"] for each in found) == sorted([*range(300)] * 3)
    assert max(len(json.dumps(each, separators=(",", ":"))) for each in found) > LINE_BYTES_MAX // 2


def test_a_start_that_fails_ends_with_a_line_of_json(tmp_path: Path) -> None:
    with RunningQueueManager(tmp_path / "qm", log_format="json") as running:
        command = [*running.command()]
        command[command.index("--listen") + 1] = command[command.index("--api") + 1] = "127.0.0.1:0"
        second = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
        # What logrotate does with copytruncate, to a file that was opened for appending.
        os.truncate(running.log, 0)
        running.queue("private$/made-later")
        (line,) = lines_of(running.stderr())
        assert (line["event"], line["name"]) == ("queue.created", "private$/made-later")
    assert second.returncode == 5
    assert second.stdout == ""
    last = lines_of(second.stderr)[-1]
    assert (last["event"], last["level"], last["code"]) == ("process.failed", "critical", 5)
    assert f"process {running.pid}" in last["reason"]


@contextmanager
def served(folder: Path, *flags: str, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """``serve`` with flags, until the test ends it."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")}
    command = [sys.executable, "-m", "srmp_spark.cli", "serve", "--data-dir", str(folder)]
    command += ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", *flags]
    with (folder.parent / "log").open("w") as log:
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=log, text=True, env=env | environment
        )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ended(process: subprocess.Popen[str]) -> int:
    assert process.stdout is not None
    assert process.stdout.readline()
    process.send_signal(signal.SIGTERM)
    return process.wait(30)


@pytest.mark.parametrize(
    ("flags", "environment"),
    [
        ((), {}),
        (("--log-format", "text", "--log-level", "info"), {"SRMP_SPARK_LOG_FORMAT": "json"}),
    ],
)
def test_text_is_the_default_and_what_it_was(
    tmp_path: Path, flags: Sequence[str], environment: dict[str, str]
) -> None:
    with served(tmp_path / "qm", *flags, **environment) as process:
        assert ended(process) == 0
    lines = (tmp_path / "log").read_text().splitlines()
    assert [line for line in lines if not TEXT.match(line)] == []
    assert [line.split()[2] for line in lines if "sender." not in line] == ["INFO"] * 4
    words = [line.split(maxsplit=3)[3].partition(" ")[0] for line in lines]
    assert [word for word in words if not word.startswith("sender.")] == [
        "queue.created",
        "process.ready",
        "process.draining",
        "process.stopped",
    ]


def test_a_level_leaves_lines_below_it_out_in_each_process(tmp_path: Path) -> None:
    (tmp_path / "serve.toml").write_text('log_level = "error"\nlog_format = "json"\n')
    with served(tmp_path / "qm", "--config", str(tmp_path / "serve.toml")) as process:
        os.kill(child_of(process, "reader.process"), signal.SIGKILL)
        until(lambda: "reader.died" in (tmp_path / "log").read_text(), "its death is told")
        assert ended(process) == 0
    assert {each["level"] for each in lines_of((tmp_path / "log").read_text())} == {"error"}


def child_of(process: subprocess.Popen[str], module: str) -> int:
    def find() -> list[int]:
        return [
            each.pid
            for each in psutil.Process(process.pid).children()
            if any(word.endswith(module) for word in each.cmdline())
        ]

    until(find, "the process runs")
    return find()[0]


def test_a_full_disk_under_the_log_costs_lines_and_nothing_else(tmp_path: Path) -> None:
    env = {key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")}
    command = [sys.executable, "-m", "srmp_spark.cli", "serve", "--data-dir", str(tmp_path / "qm")]
    command += ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--log-format", "json"]
    with Path("/dev/full").open("w") as full:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=full, text=True, env=env)
    try:
        assert ended(process) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_form_that_is_unknown_is_an_error_that_names_the_known_ones(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "srmp_spark.cli", "serve", "--data-dir", str(tmp_path / "qm")]
    found = subprocess.run(
        [*command, "--log-format", "jsno"], capture_output=True, text=True, timeout=60, check=False
    )
    assert found.returncode == 2
    assert "did you mean 'json'?" in found.stderr
    assert not (tmp_path / "qm").exists()
