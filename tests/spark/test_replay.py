"""``replay``: which rows go out, in which order, and that one name sends none of them twice. Against the outbox model."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from srmp_spark.errors import ConfigurationError
from srmp_spark.jobs import replay as job
from srmp_spark.jobs import running
from srmp_spark.jobs.ranges import plan
from srmp_spark.jobs.selection import Selection
from srmp_spark.rows.columns import spark_ddl
from tests.kit.outbox_server import OutboxServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark
TO = "DIRECT=http://127.0.0.1:1/msmq/private$/again"
TEN = datetime(2026, 11, 22, 10, tzinfo=timezone.utc)
QM = "caf195ea-615c-4264-ae08-11a4e60194c0"


class Server(OutboxServer):
    """The model, with the names that a real queue manager tells in its status."""

    epoch = "e1"

    def answer(
        self, method: str, path: list[str], query: dict[str, str], body: Any
    ) -> dict[str, Any]:
        found = super().answer(method, path, query, body)
        return {**found, "queue_manager": QM, "epoch": self.epoch} if path == ["status"] else found

    def sent(self) -> list[str]:
        return [body.decode() for body in self.model.bodies(TO)]


@pytest.fixture
def server() -> Iterator[Server]:
    with Server() as running_server:
        yield running_server


def row(queue: str, sequence: int, minute: float, **more: Any) -> dict[str, Any]:
    return {
        "queue_manager": QM, "epoch": "e", "queue": f"private$/{queue}", "sequence": sequence, "class": 0, "priority": 3,
        "arrived_at": TEN + timedelta(minutes=minute), "body": f"{queue} {sequence}".encode(), "body_type": 0,
        "label": "even" if sequence % 2 == 0 else "odd", "delivery": "recoverable", **more,
    }  # fmt: skip


@pytest.fixture(scope="module")
def table(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Version 0: 60 orders, one a minute from 10:00. Version 1: 3 payments at 10:30 and a receipt."""
    path = str(tmp_path_factory.mktemp("replay") / "table")
    orders = [row("orders", n, n - 1) for n in range(1, 61)]
    payments = [row("payments", n, 30) for n in (1, 2, 3)]
    receipt = row("order_queue$", 1, 30, receipt_kind="stream")
    for rows in (orders, [*payments, receipt]):
        frame = spark.createDataFrame(rows, spark_ddl()).repartition(2)
        frame.write.format("delta").mode("append").save(path)
    return path


Replay = Callable[..., tuple[list[dict[str, Any]], int]]


@pytest.fixture
def replay(
    spark: SparkSession, table: str, server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Replay:
    """Run the job on the session of the tests: (JSON lines of stdout, exit code)."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    def run(*flags: str) -> tuple[list[dict[str, Any]], int]:
        parser = argparse.ArgumentParser()
        job.add_arguments(parser)
        args = parser.parse_args(
            ["--table", table, "--queue-manager", server.url, "--destination", TO, *flags]
        )
        printed: list[dict[str, Any]] = []
        with monkeypatch.context() as patched:
            patched.setattr(
                "builtins.print",
                lambda *texts, file=None, **_: file or printed.append(json.loads(texts[0])),
            )
            code = running.run_job(
                "replay",
                lambda: job.replay(spark, Selection.of(args), running.sink_options(args), args),
            )
        return printed, code

    return run


def orders(first: int, last: int) -> list[str]:
    return [f"orders {n}" for n in range(first, last + 1)]


def test_a_dry_run_tells_and_sends_nothing(replay: Replay, server: Server) -> None:
    lines, code = replay("--id", "x", "--from", "2026-11-22T10:00Z", "--to", "2026-11-22T10:10Z")
    size = sum(len(body) for body in orders(1, 10))
    assert lines[0] == {"rows": 10, "bytes": size, "destinations": [TO]}
    assert (
        lines[-1].items()
        >= {"job": "replay", "rows": 10, "batches": 1, "status": "dry-run"}.items()
    )
    assert code == 0
    assert server.calls == []


def test_times_are_half_open_and_two_hours_that_meet_share_no_row(
    replay: Replay, server: Server
) -> None:
    replay(
        "--id",
        "x",
        "--yes",
        "--queue",
        "private$/orders",
        "--from",
        "2026-11-22 10:05",
        "--to",
        "2026-11-22T11:10:00+01:00",
    )
    assert server.sent() == orders(6, 10)
    replay(
        "--id",
        "y",
        "--yes",
        "--queue",
        "private$/orders",
        "--from",
        "2026-11-22T10:10Z",
        "--to",
        "2026-11-22T10:12Z",
    )
    assert server.sent() == orders(6, 12)


def test_queue_label_sql_and_version_narrow_it_down(replay: Replay, server: Server) -> None:
    lines, _ = replay("--queue", "private$/pay*", "--label", "odd")
    assert lines[0]["rows"] == 2
    assert replay("--version", "0")[0][0]["rows"] == 60
    assert replay()[0][0]["rows"] == 63, "a receipt is no message of an application"
    assert replay("--where", "sequence > 50 AND queue LIKE '%orders'")[0][0]["rows"] == 10
    lines, code = replay("--where", "sequenze > 50")
    assert (lines[-1]["status"], code) == ("failed", 2)


def test_the_same_name_sends_nothing_twice_with_and_without_what_it_noted(
    replay: Replay, server: Server, tmp_path: Path
) -> None:
    """The note is worth time only: a second run with it stages nothing, one without it stages all; neither sends."""
    lines, _ = replay(
        "--id",
        "x",
        "--yes",
        "--rate",
        "25",
        "--from",
        "2026-11-22T10:00Z",
        "--to",
        "2026-11-22T10:40Z",
    )
    assert (lines[-1]["rows"], lines[-1]["known"], lines[-1]["status"]) == (43, 0, "done")
    sent = server.sent()
    assert [body for body in sent if "orders" in body] == orders(1, 40)
    staged = len(server.named("stage"))
    lines, _ = replay(
        "--id",
        "x",
        "--yes",
        "--rate",
        "25",
        "--from",
        "2026-11-22T10:00Z",
        "--to",
        "2026-11-22T10:40Z",
    )
    assert (lines[-1]["rows"], lines[-1]["known"], lines[-1]["batches"]) == (0, 43, 0)
    assert len(server.named("stage")) == staged
    for note in (tmp_path / "state").rglob("*.jsonl"):
        note.unlink()
    lines, _ = replay("--id", "x", "--yes")  # other batches, and more rows
    assert (lines[-1]["rows"], lines[-1]["known"]) == (20, 43)
    assert sorted(server.sent()) == sorted([*sent, *orders(41, 60)])


def test_what_was_noted_counts_for_the_rows_and_the_epoch_it_was_noted_for(
    replay: Replay, server: Server
) -> None:
    hour = ("--id", "x", "--yes", "--queue", "private$/orders")
    replay(*hour, "--label", "odd")
    lines, _ = replay(*hour)  # the same range of sequences, other rows in it
    assert (lines[-1]["rows"], lines[-1]["known"]) == (30, 30)
    server.epoch = "e2"  # a data directory that was put back: it may have lost what was committed
    server.model.identities.clear()
    server.model.outgoing.clear()
    server.model.replies.clear()
    lines, _ = replay(*hour)
    assert lines[-1]["rows"] == 60
    assert server.sent() == orders(1, 60)


def test_a_failure_in_the_middle_is_told_and_the_next_start_goes_on(
    replay: Replay, server: Server
) -> None:
    hour = ("--id", "x", "--yes", "--queue", "private$/orders", "--rate", "20")
    server.refuse = [("commit", 409)]
    lines, code = replay(*hour)
    assert (lines[-1]["status"], lines[-1]["rows"], code) == ("failed", 0, 4)
    server.lose_replies = ["stage", "commit"]
    lines, code = replay(*hour)
    assert (lines[-1]["status"], lines[-1]["rows"], code) == ("done", 60, 0)
    assert server.sent() == orders(1, 60)


def test_delivery_and_what_is_sent_again(replay: Replay, server: Server) -> None:
    replay("--id", "x", "--yes", "--version", "0", "--where", "sequence = 1")
    replay(
        "--id", "y", "--yes", "--version", "0", "--where", "sequence = 1", "--delivery", "original"
    )
    first, second = server.model.outgoing[TO]
    assert (first["delivery"], second["delivery"]) == ("transactional", "recoverable")
    assert (first["label"], first["priority"], first["body_type"]) == ("odd", 3, 0)
    assert {"time_to_reach_queue", "admin_queue", "key"}.isdisjoint(first)
    assert (first["queue"], first["sequence"]) == ("private$/orders", 1)


def test_a_table_without_positions_is_refused_with_the_way_out(
    spark: SparkSession, tmp_path: Path
) -> None:
    spark.range(3).selectExpr("cast('x' as binary) body").write.format("delta").save(
        str(tmp_path / "t")
    )
    with pytest.raises(
        ConfigurationError, match=r"no column epoch, queue, queue_manager, sequence.*column key"
    ):
        Selection(table=str(tmp_path / "t")).rows(spark)
    spark.createDataFrame([row("a", 1, 0, epoch=None)], spark_ddl()).write.format("delta").save(
        str(tmp_path / "nowhere known")
    )
    with pytest.raises(ConfigurationError, match="1 rows have no source position"):
        plan(Selection(table=str(tmp_path / "nowhere known")).rows(spark), ["sequence"])
    with pytest.raises(ConfigurationError, match="is not a Delta table"):
        Selection(table=str(tmp_path / "nowhere")).rows(spark)
