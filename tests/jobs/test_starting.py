"""What is wrong with a job's flags or its queue manager is told before Spark starts."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import NoReturn

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.jobs import backfill, ingest, replay, running
from srmp_spark.jobs.selection import Selection
from srmp_spark.spark import session
from srmp_spark.testing.queue_manager import RunningQueueManager

QUEUE = "private$/orders"
SENDING = ["--destination", "DIRECT=http://127.0.0.1:1/msmq/private$/again", "--id", "x", "--yes"]


class SparkStartedError(Exception):
    """The job got as far as Spark."""


@pytest.fixture(scope="module")
def qm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data", queues=[QUEUE]) as started:
        yield started


@pytest.fixture(autouse=True)
def no_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """A session is what these tests must not reach; Java is there."""

    def started(*_: object, **__: object) -> NoReturn:
        raise SparkStartedError

    monkeypatch.setattr(session, "delta_session", started)
    monkeypatch.setattr(session, "check_java", lambda: None)


def ingest_from(queue_manager: str, tmp_path: Path, *more: str, queue: str = QUEUE) -> int:
    places = ["--table", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint")]
    return ingest.main(["--queue-manager", queue_manager, "--queue", queue, *places, *more])


def test_ingest_tells_the_wrong_port(
    qm: RunningQueueManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = ingest_from(qm.listening, tmp_path)
    printed = capsys.readouterr()
    assert code == 4
    assert "is a queue manager's SRMP port, not its API" in printed.err
    assert json.loads(printed.out) == {"job": "ingest", "rows": 0, "batches": 0, "status": "failed"}


@pytest.mark.parametrize("job", [replay, backfill])
def test_a_job_that_sends_tells_the_wrong_port(
    job: ModuleType, qm: RunningQueueManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    table = (
        ["--table", str(tmp_path)]
        if job is replay
        else ["--source", "table", "--from", str(tmp_path)]
    )
    assert job.main([*table, "--queue-manager", qm.listening, *SENDING]) == 4
    assert "is a queue manager's SRMP port, not its API" in capsys.readouterr().err


def test_a_queue_manager_that_does_not_answer_is_not_waited_for_as_long_as_a_restart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "START_SECONDS", 0.1)
    assert ingest_from("http://127.0.0.1:1", tmp_path) == 3
    assert replay.main(["--table", "t", "--queue-manager", "http://127.0.0.1:1", *SENDING]) == 3
    assert capsys.readouterr().err.count("no queue manager answers at http://127.0.0.1:1") >= 2


@pytest.mark.parametrize(
    ("flags", "queue", "told"),
    [
        ([], "private$/ordres", "no queue 'private$/ordres' at"),
        ([], "private$/ordres", "did you mean 'private$/orders'?"),
        (["--option", "maxOffsetPerTrigger=5"], QUEUE, "did you mean 'maxOffsetsPerTrigger'?"),
        (["--option", "endingOffsets=latest"], QUEUE, "option endingOffsets has no effect here"),
        (["--max-offsets-per-trigger", "0"], QUEUE, "expected a whole number above 0"),
        (["--columns", "label,bodyy"], QUEUE, "which is no column; did you mean 'body'?"),
        (
            ["--columns", "label", "--option", "Columns=body"],
            QUEUE,
            "choose the same columns: give one of them, once",
        ),
    ],
)
def test_ingest_tells_a_wrong_queue_or_option(
    flags: list[str],
    queue: str,
    told: str,
    qm: RunningQueueManager,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert ingest_from(qm.api, tmp_path, *flags, queue=queue) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags", [("--columns", "label, sequence,body"), ("--option", "COLUMNS=label,sequence, body")]
)
def test_ingest_always_reads_the_columns_that_a_row_is_known_by(flags: tuple[str, str]) -> None:
    places = [
        "--queue-manager",
        "http://127.0.0.1:1",
        "--queue",
        QUEUE,
        "--table",
        "t",
        "--checkpoint",
        "c",
    ]
    options = ingest.source_options(ingest.arguments([*places, *flags]))
    assert options["columns"] == "queue_manager,epoch,queue,sequence,label,body"
    assert [key for key in options if key.lower() == "columns"] == ["columns"]
    assert "columns" not in ingest.source_options(ingest.arguments(places))


@pytest.mark.parametrize(
    "trigger", ["5", "soon", "5 parsecs", "-1 seconds", "1 month", "5seconds", ""]
)
def test_ingest_tells_a_wrong_trigger(
    trigger: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        ingest_from("http://127.0.0.1:1", tmp_path, f"--trigger={trigger}")
    assert ended.value.code == 2
    assert (
        f'--trigger {trigger!r}: no time between batches; write it like "5 seconds"'
        in capsys.readouterr().err
    )


@pytest.mark.parametrize(
    "trigger",
    [
        "5 seconds",
        "0 seconds",
        " 1 Minute ",
        "interval 1 hour 30 minutes",
        "0.5 seconds",
        "1 minute -30 seconds",
        "2 weeks",
    ],
)
def test_ingest_takes_what_spark_takes(trigger: str) -> None:
    assert ingest.is_trigger(trigger)


def test_a_destination_that_is_none_is_told_before_spark(
    qm: RunningQueueManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the words that the queue manager has for it, which judged the first batch."""
    where = [
        "--table",
        str(tmp_path),
        "--queue-manager",
        qm.api,
        "--destination",
        "private$/orders",
        "--yes",
    ]
    assert replay.main(where) == 2
    assert backfill.main(["--source", "table", "--from", *where[1:]]) == 2
    told = "option destination: not a destination: not an http or https URL: 'private$/orders'"
    assert capsys.readouterr().err.count(told) == 2


def test_what_may_be_right_is_left_to_spark(
    qm: RunningQueueManager, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A queue that is there; a glob without one yet; and a name that only the checkpoint may know."""
    for queue in (QUEUE, "private$/later*"):
        assert ingest_from(qm.api, tmp_path, queue=queue) == 1
    (tmp_path / "checkpoint" / "offsets").mkdir(parents=True)
    assert ingest_from(qm.api, tmp_path, queue="private$/gone") == 1
    assert capsys.readouterr().err.count(f"ingest: {SparkStartedError.__name__}") == 3


def test_a_dry_run_needs_no_queue_manager(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "_delta_log").mkdir()
    assert (
        replay.main(
            ["--table", str(tmp_path), "--queue-manager", "http://127.0.0.1:1", *SENDING[:-1]]
        )
        == 1
    )
    assert SparkStartedError.__name__ in capsys.readouterr().err


@pytest.mark.parametrize(
    ("job", "flags"),
    [
        (
            ingest,
            ["--queue-man", "http://h:1", "--queue", "q", "--table", "t", "--checkpoint", "c"],
        ),
        (replay, ["--tab", "t", "--queue-manager", "http://h:1", "--destination", "d"]),
        (backfill, ["--sourc", "files", "--from", "f", "--table", "t"]),
    ],
)
def test_flags_are_written_in_full(
    job: ModuleType, flags: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """An abbreviation would change its meaning with the next flag."""
    with pytest.raises(SystemExit) as ended:
        job.main(flags)
    assert ended.value.code == 2
    assert f"the following arguments are required: {flags[0]}" in capsys.readouterr().err


def test_help_of_ingest_names_defaults_only_where_there_are_some(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit):
        ingest.main(["--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert "(default: default)" in text
    assert "default: None" not in text
    assert "default: False" not in text
    assert "default: []" not in text


@pytest.mark.parametrize("job", [replay, backfill])
def test_a_dry_run_tells_a_missing_table_before_spark(
    job: ModuleType,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    missing = str(tmp_path / "nosuch")
    rows = ["--table", missing] if job is replay else ["--source", "table", "--from", missing]
    code = job.main(
        [
            *rows,
            "--queue-manager",
            "http://127.0.0.1:9",
            "--destination",
            "DIRECT=http://a.example/msmq/b",
        ]
    )
    assert code == 2
    assert f"{missing} is not a Delta table" in capsys.readouterr().err


@pytest.mark.parametrize("job", ["ingest", "replay"])
def test_ctrl_c_while_spark_starts_is_no_failure(
    job: str,
    qm: RunningQueueManager,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def interrupted(*_: object, **__: object) -> NoReturn:
        raise KeyboardInterrupt

    monkeypatch.setattr(session, "delta_session", interrupted)
    (tmp_path / "table" / "_delta_log").mkdir(parents=True)
    sending = ["--table", str(tmp_path / "table"), "--queue-manager", qm.api, *SENDING]
    code = ingest_from(qm.api, tmp_path) if job == "ingest" else replay.main(sending)
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert (code, last["job"], last["status"]) == (0, job, "stopped")


@pytest.mark.parametrize(
    "table", ["dbfs:/mnt/orders", "hdfs:/orders", "s3a://bucket/orders", "file:/tmp/orders"]
)
def test_a_table_elsewhere_is_left_to_spark(table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PYSPARK_GATEWAY_PORT", "HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    Selection(table=table).check_path()
    with pytest.raises(ConfigurationError):
        Selection(table="/" + table).check_path()


def test_ingest_takes_the_token_of_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "token").touch(0o600)
    (tmp_path / "token").write_text("0123456789abcdef-secret\n")
    flags = [
        "--queue-manager",
        "http://127.0.0.1:9",
        "--queue",
        "q",
        "--table",
        "t",
        "--checkpoint",
        "c",
    ]
    found = ingest.arguments([*flags, "--token-file", str(tmp_path / "token")])
    assert ingest.source_options(found)["token"] == "0123456789abcdef-secret"
    assert ingest.main([*flags, "--token-file", str(tmp_path / "none")]) == 2
    assert "--token-file" in capsys.readouterr().err
