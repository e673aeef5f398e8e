"""``--on-bad-row`` of the jobs that send: the other rows arrive, the bad ones are letters once or are counted."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.interface import ExitCode
from srmp_spark.jobs import backfill, replay
from srmp_spark.testing.queue_manager import RunningQueueManager

TO = "http://127.0.0.1:9/msmq/private$/nowhere"
FAILED = "private$/failed"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    folder = tmp_path_factory.mktemp("jobs")
    with RunningQueueManager(folder / "qm", queues=[f"{FAILED}:transactional"]) as made:
        yield made


@pytest.fixture
def lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Ten messages, of which two have a label that is too long."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    rows = [
        {"body_text": f"row {n}", "label": "l" * (300 if n in (3, 7) else 1)} for n in range(10)
    ]
    path = tmp_path / "lines.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def job(
    capsys: pytest.CaptureFixture[str], running: RunningQueueManager, path: Path, *flags: str
) -> tuple[dict[str, Any], int, str]:
    """Last line of stdout, exit code, stderr."""
    where = ["--queue-manager", running.api, "--destination", TO, "--yes"]
    code = backfill.main(["--source", "files", "--from", str(path), *where, *flags])
    printed = capsys.readouterr()
    last = printed.out.splitlines()[-1:] or ["{}"]
    return json.loads(last[0]), code, printed.err


def letters(running: RunningQueueManager) -> list[str]:
    client = QueueManagerClient(running.api)
    bounds = client.range(FAILED)
    stream = client.rows(FAILED, epoch=bounds.epoch, after=0, to=bounds.end)
    rows = pa.ipc.open_stream(stream.read()).read_all().to_pylist()
    return [json.loads(row["body_text"])["row"]["body"] for row in rows]


def test_each_fate(
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    running: RunningQueueManager,
    lines: Path,
) -> None:
    last, code, told = job(capsys, running, lines, "--id", "a")
    assert (last["status"], last["rows"], code) == ("failed", 0, ExitCode.REFUSED)
    assert "lines.jsonl#4" in told, "the row is named by its key"

    letter = ["--on-bad-row", "dead-letter", "--dead-letter-queue", FAILED]
    for attempt in range(2):
        note = ["--progress-file", str(lines.with_name(f"notes {attempt}"))]
        last, code, _ = job(capsys, running, lines, "--id", "a", *letter, *note)
        counts = last["rows"], last["known"], last["bad"]
        assert (counts, last["status"], code) == (
            (0, 8, 2) if attempt else (8, 0, 2), "done", 0,
        )  # fmt: skip
    (warning, _) = [record.getMessage() for record in caplog.records if "bad" in record.msg]
    assert warning.startswith("sink.bad_rows application=a batch=files-")
    assert "key 'lines.jsonl#4' (row 3): label has" in warning
    client, deadline = QueueManagerClient(running.api), time.monotonic() + 60
    while client.range(FAILED).end < 2:
        assert time.monotonic() < deadline
        time.sleep(0.02)
    assert letters(running) == ["row 3", "row 7"], "once, although the notes were lost"

    last, code, _ = job(capsys, running, lines, "--id", "b", "--on-bad-row", "skip")
    assert (last["rows"], last["bad"], code) == (8, 2, 0)
    assert letters(running) == ["row 3", "row 7"]


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--on-bad-row", "dead-letter"], "option deadLetterQueue is missing"),
        (
            ["--on-bad-row", "dead-letter", "--dead-letter-queue", "private$/none"],
            "private$/none cannot take the letters of onBadRow=dead-letter",
        ),
    ],
)
def test_a_missing_queue_is_an_error_before_a_row_is_sent(
    capsys: pytest.CaptureFixture[str],
    running: RunningQueueManager,
    lines: Path,
    tmp_path: Path,
    flags: list[str],
    told: str,
) -> None:
    last, code, said = job(capsys, running, lines, "--id", "c", *flags)
    assert (code, last.get("rows", 0)) == (ExitCode.USAGE, 0)
    assert told in said
    table = tmp_path / "table"
    where = ["--queue-manager", running.api, "--destination", TO, "--yes", "--id", "c"]
    assert replay.main(["--table", str(table), *where, *flags]) == ExitCode.USAGE
    assert told in capsys.readouterr().err, "before Spark is started"


def test_an_unknown_fate_is_an_error(
    capsys: pytest.CaptureFixture[str], running: RunningQueueManager, lines: Path
) -> None:
    with pytest.raises(SystemExit):
        job(capsys, running, lines, "--on-bad-row", "drop")
    assert "invalid choice: 'drop'" in capsys.readouterr().err
