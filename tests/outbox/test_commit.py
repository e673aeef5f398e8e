"""A batch becomes outgoing: its order, its numbers, its identities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from outbox_kit import DAY, NOW, QM, A, B, Desk, bodies

from srmp_spark.srmp.sending.outgoing_effects import Send
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.limits import IDENTITY_DAYS
from srmp_spark.store.outbox.preparing.preparation import shown_batch
from srmp_spark.store.outbox.preparing.prepared import CommitResult


def rows(*bodies: str, **columns: Any) -> list[dict[str, Any]]:
    return [
        {"body": body.encode(), **{name: values[n] for name, values in columns.items()}}
        for n, body in enumerate(bodies)
    ]


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


# Order


def test_rows_go_out_by_partition_then_row(desk: Desk) -> None:
    second = desk.stage(rows("c", "d"), partition=1)
    first = desk.stage(rows("a", "b"), partition=0)
    assert desk.commit([second, first]) == CommitResult(4, 0)
    assert bodies(desk.read()) == [b"a", b"b", b"c", b"d"]
    assert [stored.serial for stored in desk.read()] == [1, 2, 3, 4]
    assert [stored.message.uniquifier for stored in desk.read()] == [1, 2, 3, 4]
    assert {stored.message.lineage for stored in desk.read()} == {QM}


def test_order_by_comes_before_partition_nulls_first_ties_by_partition_and_row(desk: Desk) -> None:
    stages = [
        desk.stage(rows("p1r0", "p1r1", "p1r2", t=[3, None, 1]), partition=1, order_by=["t"]),
        desk.stage(rows("p0r0", "p0r1", t=[3, 1]), partition=0, order_by=["t"]),
    ]
    desk.commit(stages)
    assert bodies(desk.read()) == [b"p1r1", b"p0r1", b"p1r2", b"p0r0", b"p1r0"]


@pytest.mark.parametrize(
    ("type_", "ascending"),
    [
        (pa.int32(), [None, -5, 0, 7]),
        (pa.float64(), [None, float("-inf"), -2.5, -0.0, 1.5, float("inf"), float("nan")]),
        (pa.string(), [None, "", "A", "a", "é", "\U0001f600"]),
        (pa.binary(), [None, b"", b"\x00", b"\x7f", b"\x80", b"\xff"]),
        (pa.bool_(), [None, False, True]),
        (pa.decimal128(10, 2), [None, -1, 0, 2]),
        (pa.timestamp("us", tz="UTC"), [None, 0, NOW]),
        (pa.date32(), [None, 0, 20_000]),
        (pa.dictionary(pa.int32(), pa.string()), [None, "a", "b"]),
        (pa.null(), [None]),
    ],
    ids=str,
)
def test_each_type_is_ordered_as_spark_orders_it(
    desk: Desk, type_: pa.DataType, ascending: list[Any]
) -> None:
    names = [str(n) for n in range(len(ascending))]
    for batch, step in (("1", -1), ("2", 1)):
        stage = desk.stage(
            rows(*names[::step], t=ascending[::step]), batch=batch, types={"t": type_}, order_by=["t"],
        )  # fmt: skip
        desk.commit([stage], batch=batch)
    assert bodies(desk.read()) == [name.encode() for name in names * 2]


def test_order_by_two_columns_across_destinations(desk: Desk) -> None:
    to = [A, B, A, B]
    desk.send(
        rows("1", "2", "3", "4", x=["b", "a", "a", "a"], y=[1, 2, 1, 1], destination=to),
        order_by=["x", "y"],
    )
    assert bodies(desk.read(A)) == [b"3", b"1"]
    assert bodies(desk.read(B)) == [b"4", b"2"]


def test_express_rows_are_another_queue_of_the_same_destination(desk: Desk) -> None:
    desk.send(rows("s", "e", "r", delivery=["transactional", "express", "recoverable"]))
    (stream,) = desk.read(A, "stream")
    express, recoverable = desk.read(A, "plain")
    assert (stream.message.durable, express.message.durable, recoverable.message.durable) == (
        True,
        False,
        True,
    )
    assert (stream.message.first_in_transaction, express.message.first_in_transaction) == (
        True,
        False,
    )


def test_rows_of_one_transaction_carry_first_and_last(desk: Desk) -> None:
    desk.send(rows("1", "2", "3", "4", "5", "6", transaction=["x", "x", "y", None, None, "x"]))
    flags = [
        (stored.message.first_in_transaction, stored.message.last_in_transaction)
        for stored in desk.read()
    ]
    assert flags == [
        (True, False),
        (False, True),
        (True, True),
        (True, True),
        (True, True),
        (True, True),
    ]


# Identities


def test_the_same_commit_again_answers_the_same_and_sends_nothing(desk: Desk) -> None:
    stage = desk.stage(rows("a", "b"))
    assert desk.commit([stage]) == CommitResult(2, 0)
    assert desk.commit([stage]) == CommitResult(2, 0), "a lost reply"
    assert len(desk.read()) == 2


def test_a_batch_that_is_run_again_is_known_by_its_rows_not_by_its_number(desk: Desk) -> None:
    desk.send(rows("a", "b", "b"))
    assert desk.send(rows("b", "a", "b")) == CommitResult(0, 3)
    assert desk.send(rows("a", "b", "b", "b", "c")) == CommitResult(2, 3)
    assert desk.send(rows("a"), batch="2") == CommitResult(1, 0), "a digest counts for its batch"
    assert bodies(desk.read()) == [b"a", b"b", b"b", b"b", b"c", b"a"]


def test_a_key_is_known_in_every_batch_of_the_application(desk: Desk) -> None:
    desk.send(rows("a", "b", key=["k1", "k2"]))
    assert desk.send(rows("b", "c", key=["k2", "k3"]), batch="2") == CommitResult(1, 1)
    assert desk.send(rows("a", key=["k1"]), application="other") == CommitResult(1, 0)
    assert desk.send(rows("a", key=["k1"], destination=[B]), batch="3") == CommitResult(1, 0)


def test_a_key_with_another_content_is_an_error_that_names_it(desk: Desk) -> None:
    desk.send(rows("a", key=["k1"]))
    with pytest.raises(
        BatchError, match=r"key 'k1' \(partition 4 row 1\) was sent before with another content"
    ) as caught:
        desk.send(rows("new", "b", key=["k2", "k1"]), batch="2", partition=4)
    assert caught.value.status == 409
    assert bodies(desk.read()) == [b"a"], "nothing of the batch was sent"
    assert desk.send(rows("new", key=["k2"]), batch="2") == CommitResult(1, 0)


@pytest.mark.parametrize(
    "column",
    ["label", "app_specific", "extension", "time_to_reach_queue", "delivery", "transaction"],
)
def test_every_column_of_the_message_is_content(desk: Desk, column: str) -> None:
    values = {
        "label": "x",
        "app_specific": 1,
        "extension": b"x",
        "delivery": "express",
        "transaction": "t",
    }
    desk.send(rows("a", key=["k"]))
    types = {column: pa.timestamp("us", tz="UTC")} if column == "time_to_reach_queue" else None
    with pytest.raises(BatchError, match="another content"):
        desk.send(
            rows("a", key=["k"], **{column: [values.get(column, NOW)]}), batch="2", types=types
        )


def test_what_means_the_same_is_the_same_content(desk: Desk) -> None:
    desk.send(rows("a", key=["k"]))
    same = {
        "label": ([None], None), "delivery": (["transactional"], None), "app_specific": ([0], pa.int16()),
        "body": (["a"], pa.string()), "destination": (["DIRECT=" + A.upper().replace("HTTP", "http")], pa.large_string()),
        "key": ([b"k"], pa.binary()),
    }  # fmt: skip
    for batch, (column, (values, type_)) in enumerate(same.items(), 2):
        row = {"body": b"a", "key": "k", "destination": A, column: values[0]}
        assert desk.send(
            [row], batch=str(batch), types={column: type_} if type_ else None
        ) == CommitResult(0, 1), column


def test_two_rows_of_a_batch_with_one_key(desk: Desk) -> None:
    assert desk.send(
        rows("a", "b", "a", key=["1", "2", "1"], t=[3, 2, 1]), order_by=["t"]
    ) == CommitResult(2, 1)
    assert bodies(desk.read()) == [b"a", b"b"], "the one that comes first in the order"
    with pytest.raises(
        BatchError, match=r"have one key and differ in content: key '7'.*row 0.* and key '7'.*row 1"
    ):
        desk.send(rows("a", "b", key=["7", "7"]), batch="2")


def positions(sequences: list[int], **more: Any) -> dict[str, list[Any]]:
    n = len(sequences)
    return {
        "queue_manager": ["q"] * n,
        "epoch": ["e"] * n,
        "queue": ["private$/in"] * n,
        "sequence": sequences,
        **more,
    }


def test_a_source_position_is_known_in_every_batch(desk: Desk) -> None:
    desk.send(rows("a", "b", **positions([5, 6])))
    assert desk.send(rows("b", "c", **positions([6, 7_000_000])), batch="2") == CommitResult(1, 1)
    other = positions([5, 6]) | {"epoch": ["e2", "e2"]}
    assert desk.send(rows("a", "b", **other), batch="3") == CommitResult(2, 0)
    assert desk.send(rows("c", **positions([7_000_000])), batch="4") == CommitResult(0, 1)


def test_one_position_twice_asks_for_a_key(desk: Desk) -> None:
    with pytest.raises(BatchError, match=r"one source position.*add a column key") as caught:
        desk.send(rows("a", "a", **positions([5, 5])))
    assert (caught.value.status, caught.value.code) == (400, "needs-key")
    assert desk.send(rows("a", "b", **positions([5, 5], key=["x", "y"]))) == CommitResult(2, 0), (
        "a key comes first"
    )


def test_rows_without_a_whole_position_are_known_by_their_digest(desk: Desk) -> None:
    partly = positions([5, 6]) | {"epoch": [None, "e"]}
    assert desk.send(rows("a", "b", **partly)) == CommitResult(2, 0)
    assert desk.send(rows("b", **positions([6])), batch="2") == CommitResult(0, 1)
    assert desk.send(rows("a", **positions([5])), batch="2") == CommitResult(1, 0)


def test_identities_are_forgotten_after_their_time(desk: Desk) -> None:
    desk.send(rows("a", key=["k"]))
    desk.send(rows("p", **positions([1])), batch="2")
    desk.at += (IDENTITY_DAYS - 1) * DAY
    while desk.outbox.sweep(desk.at):
        pass
    assert desk.send(rows("a", key=["k"]), batch="3") == CommitResult(0, 1)
    desk.at += 2 * DAY
    while desk.outbox.sweep(desk.at):
        pass
    assert desk.send(rows("a", key=["k"]), batch="4") == CommitResult(1, 0)
    assert desk.send(rows("p", **positions([1])), batch="5") == CommitResult(1, 0)


@pytest.mark.parametrize("restart", [False, True])
def test_a_wrong_clock_makes_nobody_forget_an_identity(desk: Desk, restart: bool) -> None:
    """The wall clock runs a year ahead, or behind when the batch came; the process may restart under it."""
    for number, wrong in enumerate([400 * DAY, -400 * DAY]):
        right, desk.at = desk.at, desk.at
        key = [str(number)]
        prepared = desk.outbox.prepare(
            "app",
            f"{number}",
            [desk.stage(rows("a", key=key), batch=f"{number}")],
            right + min(wrong, 0),
        )
        desk.write(prepared.run())  # type: ignore[union-attr]  # a Preparation
        desk.at += 60_000_000
        wall = desk.at + max(wrong, 0)
        if restart:
            desk.close()
            desk = Desk(desk.directory, at=wall, first_identifier=desk.next_identifier)
            desk.at += 60_000_000
        while desk.outbox.sweep(wall):
            pass
        assert desk.send(rows("a", key=key), batch="again") == CommitResult(0, 1), wrong
        desk.at = right


# Stages


def test_a_lost_attempt_is_not_sent(desk: Desk) -> None:
    desk.stage(rows("lost"), partition=0, attempt="1")
    won = desk.stage(rows("won"), partition=0, attempt="2")
    desk.commit([won])
    assert bodies(desk.read()) == [b"won"]


def test_a_stage_again_replaces_an_uncommitted_one(desk: Desk) -> None:
    old = desk.stage(rows("old"))
    new = desk.stage(rows("new"))
    with pytest.raises(BatchError, match="there is no stage") as caught:
        desk.commit([old])
    assert caught.value.status == 404
    desk.commit([new])
    assert bodies(desk.read()) == [b"new"]
    assert list(desk.outbox.stages.folder.glob("*.arrow")) == []


def test_a_replaced_file_that_cannot_be_deleted_is_left_and_told(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk.stage(rows("first"), attempt="1")

    def refuse(path: Path, missing_ok: bool = False) -> None:
        raise OSError(30, "read-only file system", str(path))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "unlink", refuse)
        again = desk.stage(rows("second"), attempt="1")
    assert "outbox.stage_file_left" in caplog.text
    desk.commit([again])
    assert bodies(desk.read()) == [b"second"]


def test_two_stages_of_one_partition_are_refused(desk: Desk) -> None:
    stages = [desk.stage(rows("a"), attempt="1"), desk.stage(rows("a"), attempt="2")]
    with pytest.raises(BatchError, match="two stages of partition 0"):
        desk.commit(stages)


def test_a_stage_of_another_batch_is_refused(desk: Desk) -> None:
    stage = desk.stage(rows("a"), batch="2")
    with pytest.raises(BatchError, match="belongs to batch 2"):
        desk.commit([stage], batch="1")


def test_delete_drops_what_is_not_committed(desk: Desk) -> None:
    stage = desk.stage(rows("a"))
    assert desk.outbox.stages.drop("app", "1") == 1
    assert desk.outbox.stages.drop("app", "1") == 0
    with pytest.raises(BatchError):
        desk.commit([stage])
    assert list(desk.outbox.stages.folder.glob("*.arrow")) == []


def test_an_empty_batch_and_an_empty_stage(desk: Desk) -> None:
    assert desk.commit([]) == CommitResult(0, 0)
    assert desk.send(rows()) == CommitResult(0, 0)
    assert desk.read() == []


# With the engine


def test_what_is_committed_is_sent_with_the_numbers_of_its_commit_also_after_a_restart(
    desk: Desk,
) -> None:
    desk.send(rows("a", "b", "c"))
    seen = []
    for _ in range(2):
        while True:
            step = desk.sender.poll(0.0, desk.at)
            sends = [each for each in step if isinstance(each, Send)]
            for each in step:
                if not isinstance(each, Send):
                    desk.sender.loaded(each, desk.outbox.load(each))
            if desk.sender.has_changes:
                desk.save()
            if sends:
                break
        (send,) = sends
        assert send.message.stream is not None
        seen.append(
            (
                send.message.body,
                send.message.uniquifier,
                send.message.stream.id,
                send.message.stream.current,
            )
        )
        desk.close()
        desk = Desk(desk.directory, first_identifier=1000)
    assert seen[0] == seen[1]
    assert seen[0][1:2] + seen[0][3:] == (1, 1)


QUERIES = ("0f8fad5b-d9cb-469f-a165-70867728950e", "7c9e6679-7425-40de-944b-e07fc1f90ae7")


def test_equal_rows_of_two_queries_of_one_application_are_different_rows(tmp_path: Path) -> None:
    """A checkpoint that is begun anew, or a second query, counts its batches from 0 again. The tables show the number."""
    desk = Desk(tmp_path)
    other = desk.stage([{"body": b"a"}], application="plc", batch=f"{QUERIES[1]}:0")
    for _ in range(2):
        assert desk.send([{"body": b"a"}], application="plc", batch=f"{QUERIES[0]}:0").known == _
    assert desk.commit([other], application="plc", batch=f"{QUERIES[1]}:0") == CommitResult(1, 0)
    assert desk.outbox.database.connection.execute(
        "SELECT DISTINCT batch FROM parts"
    ).fetchall() == [("0",)]


@pytest.mark.parametrize(
    "batch", ["0", "of mine:7", f"{QUERIES[0]}:last", f"{QUERIES[0]}:1:2", QUERIES[0]]
)
def test_a_batch_of_another_name_is_shown_as_it_is(batch: str) -> None:
    assert shown_batch(batch) == batch
