"""``backfill --source files``: bodies and JSON lines become messages, each once, without Spark. Against the outbox model."""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.jobs import backfill
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.outbox_server import OutboxServer

ROOT = Path(__file__).resolve().parents[2]
TO = "DIRECT=http://127.0.0.1:1/msmq/private$/again"
QM = "caf195ea-615c-4264-ae08-11a4e60194c0"


class Server(OutboxServer):
    def answer(
        self, method: str, path: list[str], query: dict[str, str], body: Any
    ) -> dict[str, Any]:
        found = super().answer(method, path, query, body)
        return {**found, "queue_manager": QM, "epoch": "e"} if path == ["status"] else found


@pytest.fixture
def server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    with Server() as running:
        yield running


def job(
    capsys: pytest.CaptureFixture[str], server: Server, origin: Path | str, *flags: str
) -> tuple[list[Any], int, str]:
    """(JSON lines of stdout, exit code, stderr)"""
    where = ["--queue-manager", server.url, "--destination", TO]
    code = backfill.main(["--source", "files", "--from", str(origin), *where, "--id", "x", *flags])
    printed = capsys.readouterr()
    return [json.loads(line) for line in printed.out.splitlines()], code, printed.err


def peeked(number: int, content: bytes, /, **more: Any) -> str:
    columns = {"queue_manager": QM, "epoch": "e", "sequence": number, "queue": "private$/orders", "label": f"nr {number}",
               "arrived_at": "2026-11-22T10:00:00.000000Z", "body": base64.b64encode(content).decode(), "body_type": 0,
               "body_text": content.decode(), "lookup_id": None, **more}  # fmt: skip
    return json.dumps(columns) + "\n"


def test_bodies_below_a_folder_by_path(
    capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path
) -> None:
    folder = tmp_path / "bodies"
    (folder / "b").mkdir(parents=True)
    for name, body in (("b/2.xml", b"<two/>"), ("a.bin", b"\x00one"), (".hidden", b"no")):
        (folder / name).write_bytes(body)
    lines, code, _ = job(capsys, server, folder)
    assert lines[0] == {"rows": 2, "bytes": 10, "destinations": [TO]}
    assert (lines[-1]["job"], lines[-1]["status"], lines[-1]["batches"], code) == (
        "backfill",
        "dry-run",
        1,
        0,
    )
    assert server.calls == []
    lines, _, err = job(capsys, server, folder, "--yes")
    assert (lines[-1]["rows"], lines[-1]["batches"], lines[-1]["status"]) == (2, 1, "done")
    assert "100%" in err
    assert [(row["key"], row["body"], row["delivery"]) for row in server.model.outgoing[TO]] == [
        ("a.bin#1", b"\x00one", "transactional"), ("b/2.xml#1", b"<two/>", "transactional"),
    ]  # fmt: skip
    lines, _, _ = job(capsys, server, folder, "--yes")
    assert (lines[-1]["rows"], lines[-1]["known"], len(server.named("stage"))) == (0, 2, 1)
    (folder / "a.bin").write_bytes(b"changed")
    lines, code, err = job(capsys, server, folder, "--yes")
    assert (lines[-1]["status"], code) == ("failed", 4)
    assert "a.bin#1" in err, "the same place with another content is an error, never a silent skip"


def test_lines_as_peek_prints_them_keep_position_and_properties(
    capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path
) -> None:
    first = tmp_path / "one.jsonl"
    first.write_text(peeked(1, b"a", delivery="express") + "\n" + peeked(2, "ä".encode()))
    job(capsys, server, first, "--yes", "--delivery", "original")
    other = tmp_path / "two.ndjson"
    other.write_text(
        peeked(2, "ä".encode())
        + peeked(3, b"", correlation_id=base64.b64encode(b"c" * 20).decode())
    )
    lines, _, _ = job(capsys, server, other, "--yes", "--delivery", "original")
    assert (lines[-1]["rows"], lines[-1]["known"]) == (1, 1), (
        "a position counts once, in whatever file it stands"
    )
    rows = server.model.outgoing[TO]
    assert [(row["sequence"], row["body"], row["label"], row["key"]) for row in rows] == [
        (1, b"a", "nr 1", None), (2, "ä".encode(), "nr 2", None), (3, b"", "nr 3", None),
    ]  # fmt: skip
    assert [row["delivery"] for row in rows] == ["express", "recoverable", "recoverable"]
    assert rows[2]["correlation_id"] == b"c" * 20


def test_lines_that_somebody_wrote(
    capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "mine.jsonl"
    path.write_text('{"body_text": "x", "body_type": 8}\n{"body_text": "x", "label": "l"}\n')
    job(capsys, server, path, "--yes")
    assert [(r["key"], r["body"], r["label"]) for r in server.model.outgoing[TO]] == [
        ("mine.jsonl#1", b"x\0", None), ("mine.jsonl#2", b"x", "l"),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            peeked(1, b"hello", body="hello"),
            "line 1: column body is not base64: 'hello'; was it printed with --body text",
        ),
        (
            peeked(1, b"x", body=None, body_text=None),
            "line 1 has no body; print lines with `srmp-spark peek --body base64`",
        ),
        (peeked(1, b"x") + "nonsense\n", "line 2: not a JSON object"),
        (peeked(1, b"x", arrived_at="yesterday"), "line 1: column arrived_at is not timestamp"),
        (peeked(1, b"x", sequence="one"), "line 1: column sequence is not int64"),
        ('{"file": "../secret", "head_bytes": 3}', "names secret, which is not in the same folder"),
    ],
)
def test_a_bad_line_is_told_before_anything_is_sent(
    text: str, told: str, capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text(text)
    lines, code, err = job(capsys, server, path, "--yes", "--rate", "1")
    assert (lines[-1], code) == (
        {"job": "backfill", "rows": 0, "batches": 0, "status": "failed"},
        2,
    )
    assert told in err
    assert server.calls == []


def test_what_peek_and_capture_print_goes_in_again(
    capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path
) -> None:
    """From a real queue manager: the bytes of the bodies come back."""
    bodies = [b"plain", "ünï".encode("utf-16-le"), b"\x00\xff" * 300]
    with RunningQueueManager(tmp_path / "qm", queues=["private$/orders"]) as manager:
        types = (0, 8, 0)
        messages = [
            {
                "body_base64": base64.b64encode(body).decode(),
                "body_type": kind,
                "label": "l",
                "app_specific": 7,
            }
            for body, kind in zip(bodies, types, strict=True)
        ]
        QueueManagerClient(manager.api).send("private$/orders", messages)
        command = [sys.executable, "-m", "srmp_spark.cli"]
        run = {"capture_output": True, "text": True, "check": True, "cwd": ROOT}
        peek = subprocess.run(
            [*command, "peek", "--queue", "private$/orders", "--api", manager.api], **run
        )
        capture = [
            *command,
            "capture",
            "--queue",
            "private$/orders",
            "--out",
            str(tmp_path / "captured"),
            "--api",
            manager.api,
        ]
        subprocess.run(capture, **run)
    (tmp_path / "peek.jsonl").write_text(peek.stdout)
    lines, _, _ = job(capsys, server, tmp_path / "peek.jsonl", "--yes")
    rows = server.model.outgoing[TO]
    assert [row["body"] for row in rows] == bodies
    assert [(row["body_type"], row["sequence"], row["app_specific"]) for row in rows] == [
        (0, 1, 7),
        (8, 2, 7),
        (0, 3, 7),
    ]
    lines, _, _ = job(capsys, server, tmp_path / "captured", "--yes")
    assert lines[-1]["rows"] == 3, "redacted, so they are other messages, known by manifest and row"
    captured = server.model.outgoing[TO][3:]
    assert [(len(row["body"]), row["key"]) for row in captured] == [
        (len(body), f"manifest.jsonl#{number}") for number, body in enumerate(bodies, 1)
    ]


def test_killed_in_the_middle_and_started_again_nothing_is_doubled(
    capsys: pytest.CaptureFixture[str], server: Server, tmp_path: Path
) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps({"body_text": f"row {n}"}) + "\n" for n in range(200)))
    command = [
        sys.executable,
        str(ROOT / "jobs" / "backfill.py"),
        "--source",
        "files",
        "--from",
        str(path),
        "--yes",
    ]
    command += ["--queue-manager", server.url, "--destination", TO, "--id", "x", "--rate", "50"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while len(server.named("commit")) < 2:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    sent = len(server.model.outgoing[TO])
    assert 0 < sent < 200
    lines, code, _ = job(capsys, server, path, "--yes", "--rate", "5000")
    assert (lines[-1]["rows"], lines[-1]["known"], code) == (200 - sent, sent, 0)
    assert server.model.bodies(TO) == [f"row {n}".encode() for n in range(200)]


def test_sigterm_finishes_the_batch_and_says_stopped(server: Server, tmp_path: Path) -> None:
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps({"body_text": f"row {n}"}) + "\n" for n in range(200)))
    command = [
        sys.executable,
        str(ROOT / "jobs" / "backfill.py"),
        "--source",
        "files",
        "--from",
        str(path),
        "--yes",
    ]
    command += ["--queue-manager", server.url, "--destination", TO, "--id", "x", "--rate", "10"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        deadline = time.monotonic() + 60
        while len(server.named("commit")) < 1:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        process.terminate()
        out, _ = process.communicate(timeout=20)
    last = json.loads(out.splitlines()[-1])
    assert (last["status"], process.returncode) == ("stopped", 0)
    assert last["rows"] == len(server.model.outgoing[TO]) == 10 * last["batches"]
    assert last["batches"] < 20


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--source", "mqrr", "--from", "q", "--table", "t"], "expected HOST[:PORT]\\QUEUE"),
        (["--source", "mqrr", "--from", "h\\q", "--table", "t"], "give a user and a password"),
        (
            [
                "--source",
                "mqrr",
                "--from",
                "h\\q",
                "--queue-manager",
                "x",
                "--destination",
                "http://y/q",
            ],
            "--source mqrr writes into a table",
        ),
        (
            ["--source", "files", "--from", "q", "--table", "t", "--mode", "move"],
            "--mode can be given only with --source mqrr",
        ),
        (
            ["--source", "files", "--from", "f"],
            "give either --table PATH, or --queue-manager URL and --destination NAME",
        ),
        (
            ["--source", "files", "--from", "f", "--table", "t", "--destination", "d"],
            "give either --table PATH",
        ),
        (
            ["--source", "files", "--from", "f", "--destination", "http://y/q"],
            "queueManager is missing",
        ),
        (
            [
                "--source",
                "files",
                "--from",
                "/nowhere/*.x",
                "--queue-manager",
                "http://h:1",
                "--destination",
                "http://y/q",
            ],
            "no file there",
        ),
        (
            [
                "--source",
                "files",
                "--from",
                "f",
                "--queue-manager",
                "http://h:1",
                "--destination",
                "http://y/q",
                "--rate",
                "0",
            ],
            "--rate 0",
        ),
        (
            [
                "--source",
                "files",
                "--from",
                "f",
                "--queue-manager",
                "http://h:1",
                "--destination",
                "private$/orders",
            ],
            "option destination: not a destination: not an http or https URL: 'private$/orders'",
        ),
    ],
)
def test_usage(flags: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert backfill.main(flags) == 2
    printed = capsys.readouterr()
    assert told in printed.err
    assert json.loads(printed.out.splitlines()[-1]) == {
        "job": "backfill",
        "rows": 0,
        "batches": 0,
        "status": "failed",
    }
