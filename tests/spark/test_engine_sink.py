"""``df.write.format("srmp")`` in the real engine: all rows of a write become messages, in order, or none does."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from srmp_spark.rows.body_text import body_text
from tests.kit.outbox_server import OutboxServer
from tests.kit.xml_formatter import xml_string

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark
QUEUE = "DIRECT=http://host/msmq/private$/orders"
OTHER = "DIRECT=http://host/msmq/private$/other"


@pytest.fixture
def qm() -> Iterator[OutboxServer]:
    with OutboxServer() as server:
        yield server


def write(frame: DataFrame, qm: OutboxServer, **options: Any) -> None:
    given = {"queueManager": qm.url, "destination": QUEUE, **options}
    frame.write.format("srmp").mode("append").options(
        **{k: v for k, v in given.items() if v is not None}
    ).save()


def numbers(spark: SparkSession, count: int, partitions: int = 3) -> DataFrame:
    return spark.range(0, count, 1, partitions).selectExpr("cast(id as string) as body", "id as n")


def texts(count: int) -> list[bytes]:
    return [str(n).encode() for n in range(count)]


def fails(frame: DataFrame, qm: OutboxServer, **options: Any) -> str:
    with pytest.raises(Exception) as error:
        write(frame, qm, **options)
    assert qm.model.outgoing == {}
    return str(error.value)


# --- what goes out ------------------------------------------------------------------------------------------------------------


def test_rows_become_messages_in_the_order_of_the_frame(
    spark: SparkSession, qm: OutboxServer
) -> None:
    write(numbers(spark, 1000), qm)
    assert qm.model.bodies(QUEUE) == texts(1000)
    assert [status for _, _, status in qm.named("stage")] == [200] * 3, "one stage a task"
    assert len(qm.named("commit")) == 1
    assert qm.model.stages == {}


def test_a_batch_that_shuffles_goes_out_in_the_order_asked_for(
    spark: SparkSession, qm: OutboxServer
) -> None:
    write(numbers(spark, 1000).repartition(4, "body"), qm, orderBy="n")
    assert qm.model.bodies(QUEUE) == texts(1000)


def test_nulls_come_first_and_the_second_column_decides_between_equals(
    spark: SparkSession, qm: OutboxServer
) -> None:
    frame = spark.createDataFrame(
        [("c", 2, 1.0), ("b", None, 9.0), ("d", 2, 2.0), ("a", None, None), ("e", 3, 0.0)],
        "body string, day int, Weight double",
    )
    write(frame.repartition(3), qm, orderBy="day,weight")
    assert qm.model.bodies(QUEUE) == [b"a", b"b", b"c", b"d", b"e"]


def test_every_column_arrives(spark: SparkSession, qm: OutboxServer) -> None:
    frame = spark.sql(
        """select binary('x') body, 'a label' LABEL, tinyint(3) priority, binary('01234567890123456789') correlation_id,
                  7 app_specific, 30L body_type, 'DIRECT=http://h/msmq/r' response_queue, 'DIRECT=http://h/msmq/a' admin_queue,
                  timestamp'2026-11-22 08:00:00 UTC' time_to_reach_queue, binary('ext') extension, 17 key,
                  'transactional' delivery, 3 transaction, 'not ours' whatever, array(1) nor_this"""
    )
    write(frame, qm)
    [row] = qm.model.outgoing[QUEUE]
    assert row.pop("time_to_reach_queue").isoformat() == "2026-11-22T08:00:00+00:00"
    assert row == {
        "body": b"x", "label": "a label", "priority": 3, "correlation_id": b"01234567890123456789", "app_specific": 7,
        "body_type": 30, "response_queue": "DIRECT=http://h/msmq/r", "admin_queue": "DIRECT=http://h/msmq/a",
        "extension": b"ext", "key": 17, "delivery": "transactional", "transaction": 3, "destination": QUEUE,
        "dead_letter": False,
    }  # fmt: skip


def test_the_destination_by_column_and_the_option_wins(
    spark: SparkSession, qm: OutboxServer
) -> None:
    frame = numbers(spark, 10).selectExpr(
        "body", "n", f"if(n % 2 = 0, '{QUEUE}', '{OTHER}') as destination"
    )
    write(frame, qm, destination=None, orderBy="n")
    assert qm.model.bodies(QUEUE) == texts(10)[::2]
    assert qm.model.bodies(OTHER) == texts(10)[1::2]
    write(frame, qm, destination=QUEUE, orderBy="n")
    assert qm.model.bodies(QUEUE) == texts(10)[::2] + texts(10)
    assert len(qm.model.bodies(OTHER)) == 5


@pytest.mark.parametrize(("body_format", "body_type"), [("raw", 0), ("activex", 8), ("xml", 0)])
def test_strings_in_the_form_that_the_receiver_reads(
    spark: SparkSession, qm: OutboxServer, body_format: str, body_type: int
) -> None:
    said = ["", "plain", "a < b & c", "Grüße 𝄞", "\x01"]
    write(
        spark.createDataFrame([(text,) for text in said], "body string").coalesce(1),
        qm,
        bodyFormat=body_format,
    )
    rows = qm.model.outgoing[QUEUE]
    assert [row.get("body_type", 0) for row in rows] == [body_type] * 5
    read = [body_text(body_type, row["body"]) for row in rows]
    if body_format == "xml":
        assert rows[1]["body"] == b'<?xml version="1.0"?>\r\n<string>plain</string>'
        assert [xml_string(text or "") for text in read] == said
    else:
        assert read[:4] == said[:4]


def test_dead_letter_is_asked_for_in_the_stage(spark: SparkSession, qm: OutboxServer) -> None:
    write(numbers(spark, 1, 1), qm, deadLetter="true")
    write(numbers(spark, 1, 1), qm)
    assert [row["dead_letter"] for row in qm.model.outgoing[QUEUE]] == [True, False]


# --- sizes --------------------------------------------------------------------------------------------------------------------


def test_empty_partitions_and_empty_frames_cost_nothing(
    spark: SparkSession, qm: OutboxServer
) -> None:
    write(numbers(spark, 3, 3).where("n = 1"), qm)
    assert len(qm.named("stage")) == 1
    assert qm.model.bodies(QUEUE) == [b"1"]
    qm.calls.clear()
    write(numbers(spark, 10).where("n < 0"), qm)
    assert qm.calls == []


def test_large_rows(spark: SparkSession, qm: OutboxServer) -> None:
    """Spark's batches of 64 MB are cut: the queue manager reads each as a whole. The largest body is MSMQ's."""
    frame = spark.range(0, 30, 1, 1).selectExpr(
        "cast(repeat(char(65 + id), 4194304) as binary) as body"
    )
    write(frame, qm)
    assert [(len(body), body[:1]) for body in qm.model.bodies(QUEUE)] == [
        (4_194_304, bytes([65 + n])) for n in range(30)
    ]


def test_a_body_that_is_too_long_stops_the_whole_write(
    spark: SparkSession, qm: OutboxServer
) -> None:
    frame = spark.range(0, 30, 1, 2).selectExpr("repeat('x', if(id = 20, 4194305, 1)) as body")
    assert "row 5: body has more than BODY_MAX = 4194304 bytes: 4194305" in fails(frame, qm)


def test_a_partition_is_not_held_in_memory(spark: SparkSession) -> None:
    """While 512 MB pass through a task, its worker holds two of Spark's batches of 64 MB and a few pieces."""
    with OutboxServer(discard=True) as qm:
        peak = Peak()
        write(spark.range(0, 512, 1, 1).selectExpr("repeat('x', 1048576) as body"), qm)
        grown = peak.stop()
    assert qm.rows == 512
    assert grown < 200 * 1024 * 1024, f"{grown / 1e6:.0f} MB"


class Peak:
    """The most that any Python worker of this process grows by."""

    def __init__(self) -> None:
        self._done = threading.Event()
        self._before = self._sizes()
        self._most = 0
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._done.wait(0.02):
            for pid, size in self._sizes().items():
                self._most = max(
                    self._most, size - self._before.get(pid, min(self._before.values(), default=0))
                )

    def _sizes(self) -> dict[int, int]:
        found = {}
        for directory in Path("/proc").iterdir():
            try:
                if b"pyspark.daemon" in (directory / "cmdline").read_bytes() and self._ours(
                    directory
                ):
                    found[int(directory.name)] = int(
                        (directory / "statm").read_text().split()[1]
                    ) * os.sysconf("SC_PAGE_SIZE")
            except (OSError, ValueError, IndexError):
                continue
        return found

    @staticmethod
    def _ours(directory: Path) -> bool:
        pid = int(directory.name)
        while pid > 1:
            if pid == os.getpid():
                return True
            pid = int(Path("/proc", str(pid), "stat").read_text().rpartition(")")[2].split()[1])
        return False

    def stop(self) -> int:
        self._done.set()
        self._thread.join()
        return self._most


# --- what is refused ----------------------------------------------------------------------------------------------------------


def test_a_null_body_names_its_row(spark: SparkSession, qm: OutboxServer) -> None:
    frame = numbers(spark, 30_000, 2).selectExpr("if(n = 27001, null, body) as body")
    told = fails(frame, qm)
    assert "RowError: column body is null in row 12001 of partition 1" in told
    assert "write coalesce(col('body'), lit(''))" in told
    assert qm.named("commit") == []


@pytest.mark.parametrize(
    ("columns", "options", "told"),
    [
        (["n"], {}, "column body is missing"),
        (["body", "n as label"], {}, ".withColumn('label', col('label').cast('string'))"),
        (["body"], {"destination": None}, "destination is missing"),
        (["body"], {"destinaton": "x"}, "did you mean 'destination'?"),
        (["body"], {"orderBy": "m"}, "there is no column 'm'"),
    ],
)
def test_a_wrong_write_is_refused_before_a_row_is_read(
    spark: SparkSession, qm: OutboxServer, columns: list[str], options: dict[str, Any], told: str
) -> None:
    assert told in fails(numbers(spark, 1).selectExpr(*columns), qm, **options)
    assert qm.calls == []


def test_the_modes_of_a_write(spark: SparkSession, qm: OutboxServer) -> None:
    """Spark refuses its own default with a text that names the two it knows; of these we take one."""
    writer = numbers(spark, 1).write.format("srmp").options(queueManager=qm.url, destination=QUEUE)
    with pytest.raises(
        Exception, match=r'"ErrorIfExists" mode\. Please use either the "Append" or'
    ):
        writer.save()
    with pytest.raises(Exception, match=r"a queue cannot be overwritten.*write \.mode\('append'\)"):
        writer.mode("overwrite").save()
    with pytest.raises(Exception, match=r"format\('srmp'\) has no path"):
        writer.mode("append").save("/somewhere")
    assert qm.calls == []


def test_a_refusal_is_told_in_the_words_of_the_queue_manager(spark: SparkSession) -> None:
    with OutboxServer(token="t0p") as qm:
        assert "this call needs a token" in fails(numbers(spark, 1), qm)
        write(numbers(spark, 2), qm, token="t0p")
        assert qm.model.bodies(QUEUE) == texts(2)


# --- identity -----------------------------------------------------------------------------------------------------------------


def test_a_write_is_a_new_one_unless_it_has_an_application_and_keys(
    spark: SparkSession, qm: OutboxServer
) -> None:
    frame = numbers(spark, 10).selectExpr("body", "n as key")
    write(frame, qm)
    write(frame, qm)
    assert len(qm.model.bodies(QUEUE)) == 20, "two writes"
    qm.model.outgoing.clear()
    write(frame.where("key < 5"), qm, application="night", orderBy="key")
    write(frame, qm, application="night", orderBy="key")
    assert qm.model.bodies(QUEUE) == texts(10)
    with pytest.raises(Exception, match="was sent with other content"):
        write(frame.selectExpr("concat(body, '!') as body", "key"), qm, application="night")
    assert qm.model.bodies(QUEUE) == texts(10)
    write(frame, qm, application="another")
    assert len(qm.model.bodies(QUEUE)) == 20


# --- faults -------------------------------------------------------------------------------------------------------------------


def test_a_task_that_fails_leaves_nothing_committed_and_nothing_staged(
    spark: SparkSession, qm: OutboxServer
) -> None:
    def fail_late(batches: Any) -> Any:
        """When the others have staged."""
        from pyspark import TaskContext

        for batch in batches:
            if TaskContext.get().partitionId() == 3:  # type: ignore[union-attr]  # in a task there is one
                time.sleep(2)
                raise ValueError("boom")
            yield batch

    frame = numbers(spark, 100, 4)
    assert "boom" in fails(frame.mapInArrow(fail_late, frame.schema), qm)
    assert qm.named("commit") == []
    assert len(qm.named("DELETE")) == 1
    assert qm.model.stages == {}


def test_connections_that_break_while_staging(spark: SparkSession, qm: OutboxServer) -> None:
    """At the first byte, in the middle of a long body, after its last byte: all of it is sent again as the same attempt."""
    qm.cut_stages_after = [1, 3_000_000]
    qm.lose_replies = ["stage"]
    frame = spark.range(0, 20_000, 1, 1).selectExpr("rpad(cast(id as string), 1000, '.') as body")
    write(frame, qm)
    assert [int(body.rstrip(b".")) for body in qm.model.bodies(QUEUE)] == list(range(20_000))
    attempts = [(query["attempt"], status) for _, query, status in qm.named("stage")]
    assert [status for _, status in attempts] == [0, 0, 0, 200]
    assert len({attempt for attempt, _ in attempts}) == 1


def test_a_queue_manager_that_restarts(spark: SparkSession, qm: OutboxServer) -> None:
    qm.cut_stages_after = [500_000]
    watched = threading.Thread(
        target=lambda: (wait_for(lambda: bool(qm.named("stage"))), qm.restart_for(2))
    )
    watched.start()
    write(spark.range(0, 10_000, 1, 1).selectExpr("rpad(cast(id as string), 200, '.') as body"), qm)
    watched.join()
    assert len(qm.model.bodies(QUEUE)) == 10_000


def test_lost_answers_to_a_commit_and_a_sender_that_is_down(
    spark: SparkSession, qm: OutboxServer
) -> None:
    qm.lose_replies = ["commit"]
    qm.refuse = [("stage", 503), ("commit", 503)]
    write(numbers(spark, 10), qm, orderBy="n")
    assert qm.model.bodies(QUEUE) == texts(10)
    assert [status for _, _, status in qm.named("commit")] == [503, 0, 200]


def test_a_commit_that_is_refused_deletes_its_stages(spark: SparkSession, qm: OutboxServer) -> None:
    qm.refuse = [("commit", 409)]
    assert "commit is refused on request" in fails(numbers(spark, 10), qm)
    assert qm.model.stages == {}


def wait_for(what: Any, seconds: float = 30.0) -> None:
    deadline = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.01)
