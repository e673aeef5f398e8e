"""What can never become a message is refused while it is staged: before anything of its batch could be sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from outbox_kit import NOW, A, Desk, table_of, write_stage

from srmp_spark.srmp.limits import BODY_MAX
from srmp_spark.store.outbox import stage_file
from srmp_spark.store.outbox.columns import CanonicalDestinations
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.limits import (
    APP_SPECIFIC_MAX,
    KEY_BYTES_MAX,
    LABEL_LENGTH_MAX,
    STAGE_FILE_HOURS,
    STAGE_HOURS,
)
from srmp_spark.store.outbox.staging.refusals import Refusals
from srmp_spark.store.outbox.staging.row_checks import check_rows


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


OK: dict[str, Any] = {"body": b"x", "destination": A}

BAD_ROWS: dict[str, tuple[dict[str, Any], str]] = {
    "no body": ({"body": None}, (r"column body is null; a message has a body; .* write "
r"coalesce\(body, ''\)")),
    "a body too large": ({"body": bytes(BODY_MAX + 1)}, f"BODY_MAX = {BODY_MAX} bytes, got {BODY_MAX + 1}"),
    "body and extension too large": ({"body": bytes(BODY_MAX), "extension": b"x"}, "body and extension"),
    "a label too long": ({"label": "é" * (LABEL_LENGTH_MAX + 1)}, f"label has at most {LABEL_LENGTH_MAX} characters, got 250"),
    "a label too long in UTF-16": ({"label": "😀" * 125}, "label has at most 249 characters, got 250"),
    "a label XML cannot carry": ({"label": "a\x00b"}, "label has a control character"),
    "another one": ({"label": "\ufffe"}, "label has a control character"),
    "a priority of 8": ({"priority": 8}, "priority lies between 0 and 7, got 8"),
    "a priority below 0": ({"priority": -1}, "priority lies between 0 and 7, got -1"),
    "app_specific of 33 bits": ({"app_specific": APP_SPECIFIC_MAX + 1}, "app_specific lies between 0 and"),
    "a body_type of 33 bits": ({"body_type": 2**32}, "body_type lies between"),
    "a correlation of 19 bytes": ({"correlation_id": bytes(19)}, "correlation_id has 20 bytes, got 19"),
    "a key too long": ({"key": "k" * (KEY_BYTES_MAX + 1)}, "key has at most"),
    "a delivery nobody knows": ({"delivery": "fast"}, "delivery is none of .*got fast"),
    "no destination": ({"destination": None}, "destination is null"),
    "an empty destination": ({"destination": ""}, "destination is empty"),
    "a destination in blanks": ({"destination": f" {A}"}, "white space"),
    "no URL": ({"destination": r"DIRECT=OS:host\private$\q"}, "not a destination.*write DIRECT=http"),
    "user info in a destination": ({"destination": "http://127.0.0.1:9@evil/msmq/q"}, "not a destination"),
    "multicast": ({"destination": "MULTICAST=234.1.1.1:8001"}, "this queue manager does not send PGM; start serve with --pgm"),
    "WS-RM": ({"destination": "wsrm:http://h/x"}, "soap_action is missing"),
    "an empty response queue": ({"response_queue": ""}, "response_queue is empty"),
    "a response queue nobody knows": ({"response_queue": "replies"}, "response_queue is no URL and no format name"),
    "an admin queue without HTTP": ({"admin_queue": r"DIRECT=OS:h\private$\q"}, "admin_queue is no http or https URL"),
    "an admin queue too long": ({"admin_queue": "http://h/" + "x" * 2000}, "admin_queue has at most"),
    "a year of five digits": ({"time_to_reach_queue": 260_000_000_000_000_000}, "lies outside 1970 to 9999"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_ROWS)
def test_a_bad_row_is_named_by_partition_and_row(desk: Desk, name: str) -> None:
    columns, message = BAD_ROWS[name]
    types = {
        column: {
            "app_specific": pa.int64(),
            "time_to_reach_queue": pa.timestamp("us", tz="UTC"),
        }.get(column)
        for column in columns
    }
    rows = [OK | dict.fromkeys(columns.keys() - OK.keys()), OK | columns, OK | columns]
    with pytest.raises(BatchError, match=rf"(?s)partition 3: (key '.*' \()?row 1\)?: .*{message}") as caught:
        desk.stage(rows, partition=3, types={c: t for c, t in types.items() if t is not None})
    assert (caught.value.status, caught.value.code) == (400, "bad-stage")
    assert list(desk.outbox.stages.folder.iterdir()) == [], "a refused file is deleted"


BAD_TYPES: dict[str, tuple[pa.DataType, Any, str]] = {
    "body": (pa.int32(), 5, "column body is int32, wanted is binary or string"),
    "label": (pa.binary(), b"x", "column label is binary, wanted is string"),
    "priority": (pa.float64(), 1.0, "column priority is double, wanted is integer"),
    "time_to_reach_queue": (pa.timestamp("us"), 1, "no time zone"),
    "journal": (pa.string(), "true", "wanted is boolean"),
    "sequence": (pa.string(), "1", "wanted is integer"),
    "key": (pa.list_(pa.string()), ["a"], "column key is list<.*wanted is string, binary or integer"),
}  # fmt: skip


@pytest.mark.parametrize("column", BAD_TYPES)
def test_a_type_is_refused_with_what_was_found_and_what_is_wanted(desk: Desk, column: str) -> None:
    type_, value, message = BAD_TYPES[column]
    with pytest.raises(BatchError, match=message):
        desk.stage([OK | {column: value}], types={column: type_})


@pytest.mark.parametrize("type_", [pa.binary(), pa.string(), pa.null()])
def test_a_column_without_any_body_is_refused_by_its_first_row(
    desk: Desk, type_: pa.DataType
) -> None:
    with pytest.raises(BatchError, match="partition 2: row 0: column body is null"):
        desk.stage([OK | {"body": None}] * 3, partition=2, types={"body": type_})
    assert desk.stage([OK | {"body": b""}] * 3), "no bytes are a body"


def test_our_own_rows_need_a_body_too(desk: Desk) -> None:
    for row in ({"destination": A}, {"destination": A, "body": None}):
        with pytest.raises(BatchError, match="partition 0: row 1: column body is null"):
            desk.outbox.prepare_rows("app", "1", [{"destination": A, "body": b""}, row], NOW)


def test_missing_columns(desk: Desk) -> None:
    for missing in ("body", "destination"):
        with pytest.raises(BatchError, match=f"there is no column {missing}"):
            desk.stage(pa.table({name: [value] for name, value in OK.items() if name != missing}))
    with pytest.raises(BatchError, match="there is no column t to order by"):
        desk.stage([OK], order_by=["t"])
    with pytest.raises(BatchError, match="cannot be ordered by t"):
        desk.stage([OK | {"t": [1]}], order_by=["t"])
    with pytest.raises(BatchError, match="two columns have one name"):
        desk.stage(
            pa.Table.from_arrays(
                [pa.array([b"x"]), pa.array([A]), pa.array([A])],
                names=["body", "destination", "destination"],
            )
        )


def test_no_rows_at_all_are_no_fault() -> None:
    refusals = Refusals(0, lambda row, refusal: pytest.fail(f"{row}: {refusal}"))
    check_rows({}, 0, CanonicalDestinations(), refusals)


def test_a_number_that_64_bits_do_not_hold(desk: Desk) -> None:
    with pytest.raises(BatchError, match="column sequence"):
        desk.stage([OK | {"sequence": 2**64 - 1}], types={"sequence": pa.uint64()})


@pytest.mark.parametrize("damage", ["empty", "text", "cut", "flipped"])
def test_what_is_no_arrow_stream(desk: Desk, damage: str) -> None:
    path = desk.outbox.stages.folder / "x"
    write_stage(path, table_of([OK | {"label": "é" * 50}] * 500))
    data = path.read_bytes()
    if damage == "flipped":  # offsets and lengths that lie, at many places
        for at in range(0, len(data), 97):
            path.write_bytes(data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :])
            try:
                desk.outbox.stages.add("a", "b", 0, str(at), "x", NOW)
            except BatchError:
                continue
            path.rename(path.with_name(str(at)))
        return
    path.write_bytes({"empty": b"", "text": b"hello " * 100, "cut": data[: len(data) // 2]}[damage])
    with pytest.raises(BatchError):
        desk.outbox.stages.add("a", "b", 0, "0", "x", NOW)
    assert not path.exists()


def test_limits_of_a_stage(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value, message in (
        ("STAGE_ROWS_MAX", 9, "more than STAGE_ROWS_MAX = 9 rows"),
        ("STAGE_BYTES_MAX", 100, "1 to STAGE_BYTES_MAX = 100 bytes"),
        ("RECORD_BATCH_BYTES_MAX", 50, "write smaller record batches"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(stage_file, name, value)
            with pytest.raises(BatchError, match=message):
                desk.stage([OK] * 10)
    with pytest.raises(BatchError, match="application has 1 to"):
        desk.stage([OK], application="a" * 201)


def test_limits_of_a_batch(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    stages = [desk.stage([OK] * 3, partition=n) for n in range(3)]
    for name, value, message in (
        ("preparing.preparation.BATCH_ROWS_MAX", 8, "at most BATCH_ROWS_MAX = 8 rows, this one 9"),
        (
            "preparing.preparation.BATCH_STAGES_MAX",
            2,
            "at most BATCH_STAGES_MAX = 2 stages, this one 3",
        ),
        ("preparing.scan.BATCH_DESTINATIONS_MAX", 0, "more than BATCH_DESTINATIONS_MAX"),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(f"srmp_spark.store.outbox.{name}", value)
            with pytest.raises(BatchError, match=message):
                desk.commit(stages)
    assert desk.commit(stages).new == 9


def test_stages_of_one_commit_must_agree(desk: Desk) -> None:
    with pytest.raises(BatchError, match=r"differ in srmp\.order_by"):
        desk.commit([desk.stage([OK | {"t": 1}], order_by=["t"]), desk.stage([OK], partition=1)])
    with pytest.raises(BatchError, match=r"differ in srmp\.dead_letter"):
        desk.commit([desk.stage([OK], dead_letter=True), desk.stage([OK], partition=1)])


def test_old_stages_and_files_of_nobody_are_deleted(desk: Desk) -> None:
    import os

    desk.stage([OK])
    stranger = desk.outbox.stages.folder / "stranger.part"
    stranger.write_bytes(b"x")
    assert not desk.outbox.sweep(NOW)
    assert len(list(desk.outbox.stages.folder.iterdir())) == 2, "both are young"
    old = stranger.stat().st_mtime - STAGE_FILE_HOURS * 3600 - 1
    os.utime(stranger, (old, old))
    desk.outbox.sweep(NOW + STAGE_HOURS * 3_600_000_000 + 1)
    assert list(desk.outbox.stages.folder.iterdir()) == []


@pytest.mark.parametrize("value", [2**63, 2**64, 10**400])
def test_a_number_that_no_column_takes_is_refused(tmp_path: Path, value: int) -> None:
    with pytest.raises(BatchError, match="a value has the wrong type"):
        stage_file.write_rows(
            tmp_path, [{"body": b"", "destination": A, "body_type": value}], dead_letter=False
        )
