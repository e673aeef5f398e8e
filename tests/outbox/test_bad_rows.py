"""Rows that can never be sent: the rest of their batch is sent as if they had not been there, and each is told of once."""

from __future__ import annotations

import base64
import errno
import json
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from outbox_kit import DAY, NOW, A, B, Desk, bodies, make_large, table_of, write_stage

from srmp_spark.names import LocalHosts
from srmp_spark.queue_manager.sender.staging.stage_reader import Question, UnreadableStage, judge
from srmp_spark.queue_manager.sender.staging.stage_readers import StageReaders
from srmp_spark.srmp.limits import BODY_MAX
from srmp_spark.store.outbox import stage_file
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.limits import IDENTITY_DAYS, KEY_BYTES_MAX, STAGE_FILE_HOURS
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.staging import bad_row_letters, bad_rows
from srmp_spark.store.outbox.staging.loops import OwnQueues
from srmp_spark.store.outbox.staging.refusals import REASONS
from srmp_spark.store.outbox.tables import writes

FAILED = "private$/failed"
LETTERS: dict[str, Any] = {"on_bad_row": "dead-letter", "dead_letter_queue": FAILED}
SKIP: dict[str, Any] = {"on_bad_row": "skip"}
GROUP = "MULTICAST=234.1.1.1:8001"
SERVICE = "wsrm:http://h/x"
SOAP = {"destination": SERVICE, "soap_action": "http://tempuri.org/I/S", "body": b"<a/>"}
POSITION = {"queue_manager": "q", "epoch": "e", "queue": "private$/in"}
LONG = "x" * 300


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    made = Desk(tmp_path / "data")
    made.outbox.waiting.takes_dead_letters = lambda queue: queue == FAILED
    yield made
    made.close()


@pytest.fixture(params=["one transaction", "many", "large"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param != "one transaction":
        monkeypatch.setattr(writes, "CHUNK_BYTES", 1)
        monkeypatch.setattr(stage_file, "CHUNK_ROWS", 2)
        monkeypatch.setattr(bad_rows, "CHUNK_BYTES", 1)
    if request.param == "large":
        make_large(monkeypatch)


def letters(desk: Desk) -> list[dict[str, Any]]:
    """The documents of the dead letters, in their order."""
    found = []
    for moved in desk.outbox.waiting.moved_groups(0, 100_000):
        assert (moved.row.reason, moved.row.target) == ("bad-row", FAILED)
        for stored in moved.messages or []:
            document = json.loads(stored.message.body)
            assert stored.message.action == f"MSMQ:bad row: {document['bad_row']}"
            assert stored.message.destination == f"http://localhost/msmq/{FAILED}"
            found.append(document)
    return found


def good(n: int, **more: Any) -> dict[str, Any]:
    return {"body": b"good %d" % n, "destination": A, **more}


def bad(n: int, **more: Any) -> dict[str, Any]:
    return {"body": b"bad %d" % n, "destination": A, "label": LONG, **more}


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "no body": ({"body": None}, "no-body"),
    "a body too large": ({"body": bytes(BODY_MAX + 1)}, "too-large"),
    "an extension too large": ({"extension": bytes(BODY_MAX)}, "too-large"),
    "no destination": ({"destination": None}, "no-destination"),
    "an empty destination": ({"destination": ""}, "bad-destination"),
    "no URL": ({"destination": r"DIRECT=OS:host\private$\q"}, "bad-destination"),
    "one queue twice": ({"destination": f"{A},{A}"}, "bad-destination"),
    "a label too long": ({"label": LONG}, "bad-label"),
    "a label XML cannot carry": ({"label": "a\x00b"}, "bad-label"),
    "a response queue nobody knows": ({"response_queue": "replies"}, "bad-response-queue"),
    "a list with one": ({"admin_queue": rf"{A},DIRECT=OS:h\private$\q"}, "bad-admin-queue"),
    "an admin queue without HTTP": ({"admin_queue": r"DIRECT=OS:h\private$\q"}, "bad-admin-queue"),
    "a priority of 8": ({"priority": 8}, "bad-priority"),
    "app_specific of 33 bits": ({"app_specific": 2**32}, "bad-app-specific"),
    "a body_type below 0": ({"body_type": -1}, "bad-body-type"),
    "a correlation of 19 bytes": ({"correlation_id": bytes(19)}, "bad-correlation-id"),
    "a key too long": ({"key": "k" * (KEY_BYTES_MAX + 1)}, "bad-key"),
    "a year of five digits": ({"time_to_reach_queue": 260_000_000_000_000_000}, "bad-time"),
    "a delivery nobody knows": ({"delivery": "fast"}, "bad-delivery"),
    "a group and a delivery": ({"destination": GROUP, "delivery": "recoverable"}, "bad-delivery"),
    "too large for a group": ({"destination": GROUP, "body": bytes(70_000)}, "too-large"),
    "not XML for a group": (
        {"destination": GROUP, "response_queue": "DIRECT=OS:" + "&" * 1_000, "body": bytes(60_000)},
        "too-large",
    ),
    "a label for a service": (SOAP | {"label": "l"}, "not-for-soap"),
    "a transactional row for a service": (SOAP | {"delivery": "transactional"}, "bad-delivery"),
    "no action for a service": (SOAP | {"soap_action": None}, "bad-soap-action"),
    "a version nobody knows": (SOAP | {"wsrm_version": "9"}, "bad-soap-action"),
    "no XML for a service": (SOAP | {"body": b"<a>"}, "bad-soap-body"),
}  # fmt: skip
"""One row for each way in which a row can be refused while it is staged, with its reason."""

TYPES = {
    "app_specific": pa.int64(),
    "body_type": pa.int64(),
    "time_to_reach_queue": pa.timestamp("us", tz="UTC"),
}


@pytest.mark.parametrize("name", BAD)
def test_each_reason(desk: Desk, name: str) -> None:
    """The rows before and after it are sent, in order; it is a letter with the reason."""
    columns, reason = BAD[name]
    desk.outbox.stages.multicast = True
    row = {"body": b"bad", "destination": A, **columns}
    rows = [good(1), row, good(2), row, good(3, destination=B)]
    result = desk.send(rows, types={c: TYPES[c] for c in columns.keys() & TYPES}, **LETTERS)
    assert (result.new, result.bad) == (3, 2)
    assert reason in result.first_bad
    assert "partition 0: " in result.first_bad
    assert bodies(desk.read(A)) == [b"good 1", b"good 2"]
    assert bodies(desk.read(B)) == [b"good 3"]
    found = letters(desk)
    # Rows that are one by their key are told of once.
    assert [letter["bad_row"] for letter in found] == [reason] * (1 if "key" in columns else 2)
    assert found[0]["message"]
    assert (found[0]["application"], found[0]["batch"]) == ("app", "1")


def test_the_table_of_reasons_has_all_of_them() -> None:
    tested = {reason for _, reason in BAD.values()} | {"no-multicast", "loop", "not-encodable"}
    assert tested == set(REASONS)
    page = Path(__file__).parents[2].joinpath("docs", "poison-rows.md").read_text()
    assert [
        line for line in page.splitlines() if line.startswith("| `") and line in _LINES
    ] == _LINES


_LINES = [f"| `{reason}` | {meaning} |" for reason, meaning in REASONS.items()]


def test_multicast_without_pgm_and_a_message_that_cannot_be_encoded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    from srmp_spark.errors import LocalProtocolError
    from srmp_spark.srmp.codec import apdu

    rows = [good(1), {"body": bytes(70_000), "destination": GROUP}]
    assert desk.send(rows, **LETTERS).bad == 1
    desk.outbox.stages.multicast = True

    def fails(*_: object) -> bytes:
        raise LocalProtocolError("no")

    monkeypatch.setattr(apdu, "apdu_of", fails)
    assert desk.send(rows, batch="2", **LETTERS).bad == 1
    assert [letter["bad_row"] for letter in letters(desk)] == ["no-multicast", "not-encodable"]


def test_order_and_identities_are_those_without_the_bad_rows(desk: Desk, sizes: None) -> None:
    """Three stages with an order of their own; equal rows; a row for two queues; rows that are known."""
    both = f"{A},{B}"
    parts = [
        [good(7, t=7), bad(6, t=6), good(5, t=5), bad(5, t=5)],
        [bad(1, t=1), bad(2, t=2)],
        [good(4, t=4), good(0, t=0, destination=both), bad(3, t=3, destination=both)],
    ]
    again = []
    for attempt in range(2):
        stages = [
            desk.stage(part, partition=n, attempt=str(attempt), order_by=["t"], **LETTERS)
            for n, part in enumerate(parts)
        ]
        again.append(desk.commit(stages))
        assert desk.commit(stages) == again[-1], "the answer of a lost reply"
    assert [(each.new, each.known, each.bad) for each in again] == [(5, 0, 5), (0, 5, 5)]
    assert again[0].first_bad.startswith("partition 0: t 6 (row 1): label has at most 249")
    assert bodies(desk.read(A)) == [b"good 0", b"good 4", b"good 5", b"good 7"]
    assert bodies(desk.read(B)) == [b"good 0"]
    found = letters(desk)
    assert [letter["row"]["body"] for letter in found] == [f"bad {n}" for n in (1, 2, 3, 5, 6)]
    assert [letter["row"]["t"] for letter in found] == [1, 2, 3, 5, 6]
    assert desk.outbox.result("app", "1") == again[-1]
    # Identifiers are given out without gaps: 5 messages, then 5 letters.
    assert desk.next_identifier == 11


def test_equal_bad_rows_are_as_many_letters_and_no_more(desk: Desk, sizes: None) -> None:
    rows = [bad(1), good(1), bad(1), good(1), bad(1)]
    assert desk.send(rows, **LETTERS)[:4] == (2, 0, 0, 3)
    assert desk.send(rows, **LETTERS)[:4] == (0, 2, 0, 3)
    assert len(letters(desk)) == 3
    assert desk.send(rows, batch="2", **LETTERS)[:4] == (2, 0, 0, 3), "another batch, other rows"
    assert len(letters(desk)) == 6


def test_a_corrected_row_with_the_same_key_is_sent(desk: Desk, sizes: None) -> None:
    """And the bad one is told of once, in whatever batch it comes again."""
    for batch in ("1", "2"):
        rows = [bad(1, key="k1"), good(2, key="k2"), bad(3, **POSITION, sequence=3)]
        desk.send(rows, batch=batch, types={"sequence": pa.int64()}, **LETTERS)
    found = letters(desk)
    assert [letter["row"].get("key") or letter["row"]["sequence"] for letter in found] == ["k1", 3]
    assert desk.send([good(1, key="k1")], batch="3", **LETTERS) == CommitResult(1, 0)
    assert desk.send([bad(9, key="k1")], batch="4", **LETTERS).bad == 1, "another content"
    assert [letter["row"]["body"] for letter in letters(desk)] == ["bad 1", "bad 3", "bad 9"]
    assert bodies(desk.read(A)) == [b"good 2", b"good 1"]


def test_skipped_rows_are_counted_and_named(desk: Desk, sizes: None) -> None:
    rows = [good(1), bad(2, **POSITION, sequence=42), good(3)]
    result = desk.send(rows, types={"sequence": pa.int64()}, **SKIP)
    assert (result.new, result.bad) == (2, 1)
    assert result.first_bad == (
        "partition 0: private$/in 42 of epoch e (row 1): label has at most 249 characters, got 300 "
        "(bad-label)"
    )
    assert letters(desk) == []
    assert bodies(desk.read(A)) == [b"good 1", b"good 3"]


def test_a_value_of_a_row_makes_no_line_of_the_log(desk: Desk) -> None:
    result = desk.send([bad(1, delivery="a\nsender.dead rows=7"), bad(2, label="l")], **SKIP)
    assert result.first_bad.isprintable()
    result = desk.send([good(1, delivery="a\nsender.dead " + "x" * 5_000)], batch="2", **SKIP)
    assert "got a\ufffdsender.dead x" in result.first_bad
    assert len(result.first_bad) == bad_rows.FIRST_LENGTH_MAX


def test_nothing_but_bad_rows(desk: Desk) -> None:
    assert desk.send([bad(1), bad(2)], **LETTERS)[:4] == (0, 0, 0, 2)
    assert desk.send([bad(1), bad(2)], batch="2", **SKIP)[:4] == (0, 0, 0, 2)
    assert len(letters(desk)) == 2
    assert desk.read(A) == []


def test_without_the_option_the_stage_is_refused_and_the_row_is_named(desk: Desk) -> None:
    for rows, name in (
        ([good(1, key="a"), bad(2, key="b")], r"key 'b' \(row 1\)"),
        ([good(1, **POSITION, sequence=1), bad(2, **POSITION, sequence=2)],
         r"private\$/in 2 of epoch e \(row 1\)"),
        ([good(1), bad(2)], "row 1"),
    ):  # fmt: skip
        with pytest.raises(BatchError, match=rf"partition 0: {name}: label has"):
            desk.stage(rows, dead_letter_queue=FAILED)
    assert list(desk.outbox.stages.folder.iterdir()) == []


def test_a_stage_says_what_becomes_of_bad_rows_or_is_refused(desk: Desk) -> None:
    with pytest.raises(BatchError, match=r"there is no srmp\.dead_letter_queue"):
        desk.stage([good(1)], on_bad_row="dead-letter")
    with pytest.raises(BatchError, match="one of fail, dead-letter, skip"):
        desk.stage([good(1)], on_bad_row="drop")
    stages = [desk.stage([good(1)], **SKIP), desk.stage([good(2)], partition=1)]
    with pytest.raises(BatchError, match=r"differ in srmp\.on_bad_row"):
        desk.commit(stages)


def test_damage_of_the_whole_stage_is_no_bad_row(desk: Desk) -> None:
    with pytest.raises(BatchError, match="column sequence"):
        desk.stage([good(1, sequence=2**64 - 1)], types={"sequence": pa.uint64()}, **SKIP)


# --- rows that would loop -------------------------------------------------------------------------

HERE = "http://here.example/msmq/private$/in"
OWN = OwnQueues("q", LocalHosts(frozenset(["here.example"])))


@pytest.mark.parametrize("fate", [LETTERS, SKIP])
def test_rows_that_would_return_to_their_queue(
    desk: Desk, sizes: None, fate: dict[str, Any]
) -> None:
    """This is found at the commit alone. A row that goes elsewhere too is bad as a whole."""

    def row(n: int, destination: str) -> dict[str, Any]:
        return good(n, destination=destination, **POSITION, sequence=n)

    parts = [
        [row(1, A), row(2, HERE), row(3, A)],
        [row(4, HERE), row(5, f"{A},{HERE}"), row(6, A), {**row(7, A), "label": LONG}],
        [row(8, A)],
    ]
    results = []
    for _ in range(2):
        stages = [desk.stage(part, partition=n, **fate) for n, part in enumerate(parts)]
        results.append(desk.commit(stages, own=OWN))
    assert [(each.new, each.known, each.bad) for each in results] == [(4, 0, 4), (0, 4, 4)]
    assert bodies(desk.read(A)) == [b"good 1", b"good 3", b"good 6", b"good 8"]
    told = [(letter["row"]["sequence"], letter["bad_row"]) for letter in letters(desk)]
    assert sorted(told) == (
        [] if fate is SKIP else [(2, "loop"), (4, "loop"), (5, "loop"), (7, "bad-label")]
    )
    stage = desk.stage([row(9, HERE)], **fate, batch="2")
    assert desk.commit([stage], batch="2") == CommitResult(1, 0), "allowed"
    assert [path for path in desk.outbox.stages.folder.iterdir() if path.is_file()] == []


def test_rows_that_would_loop_are_refused_without_the_option(desk: Desk) -> None:
    stage = desk.stage([good(1, destination=HERE, **POSITION, sequence=1)])
    with pytest.raises(BatchError, match="would return to its own queue"):
        desk.commit([stage], own=OWN)


# --- the letter -----------------------------------------------------------------------------------


def test_a_letter_has_every_column(desk: Desk) -> None:
    row = bad(
        1,
        destination=A,
        correlation_id=bytes(range(20)),
        app_specific=7,
        time_to_reach_queue=datetime(2026, 11, 22, 8, tzinfo=timezone.utc),
        extension="é".encode(),
        key=17,
        **POSITION,
        sequence=5,
    )
    desk.send([row], types={"sequence": pa.int64(), **TYPES}, **LETTERS)
    assert letters(desk) == [
        {
            "bad_row": "bad-label",
            "message": "label has at most 249 characters, got 300",
            "hint": "shorten it",
            "application": "app",
            "batch": "1",
            "row": {
                "body": "bad 1",
                "destination": A,
                "label": LONG,
                "correlation_id_base64": base64.b64encode(bytes(range(20))).decode(),
                "app_specific": 7,
                "time_to_reach_queue": "2026-11-22T08:00:00+00:00",
                "extension": "é",
                "key": 17,
                **POSITION,
                "sequence": 5,
            },
        }
    ]


@pytest.mark.parametrize("byte", [b"x", b'"', b"\n", b"\x00", "é".encode(), "😀".encode()])
def test_a_letter_fits_into_a_message(desk: Desk, byte: bytes) -> None:
    """What does not fit is cut, and its length is told."""
    body = byte * (2 * BODY_MAX // len(byte))
    desk.send([{"body": body, "label": LONG, "response_queue": "r" * 20_000}], **LETTERS)
    (moved,) = desk.outbox.waiting.moved_groups(0, 10)
    (stored,) = moved.messages or []
    assert BODY_MAX // 2 < len(stored.message.body) <= BODY_MAX
    (letter,) = letters(desk)
    assert letter["cut"] == {"body": len(body), "response_queue": 20_000}
    kept = letter["row"].get("body") or base64.b64decode(letter["row"]["body_base64"]).decode()
    assert body.decode().startswith(kept)
    assert len(kept) > 500_000


@pytest.mark.parametrize("before", range(8))
@pytest.mark.parametrize("one", ["\x01", '"', "é", "😀", "x"])
def test_a_value_is_cut_between_characters(one: str, before: int) -> None:
    text = "x" * before + one * 100
    shown, is_whole = bad_row_letters._fitting("body", text, 60)
    assert not is_whole
    assert text.startswith(shown["body"])
    size = len(bad_row_letters._json(shown))
    assert 60 - bad_row_letters.ESCAPE_BYTES_MAX < size <= 60


@pytest.mark.parametrize("room", range(60, 68))
def test_bytes_are_cut_to_whole_base64(room: int) -> None:
    shown, is_whole = bad_row_letters._fitting("body", b"\xff" * 100, room)
    assert not is_whole
    assert set(base64.b64decode(shown["body_base64"], validate=True)) == {0xFF}
    assert room - 4 < len(bad_row_letters._json(shown)) <= room


def test_columns_beyond_the_room_for_values_are_named(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bad_row_letters, "VALUES_BYTES_MAX", 400)
    desk.send([bad(1, t="y" * 200)], order_by=["t"], **LETTERS)
    (letter,) = letters(desk)
    assert (letter["cut"], letter["row"]["label"]) == ({"t": 200}, LONG)


# --- the files ------------------------------------------------------------------------------------


def test_a_crash_while_bad_rows_are_taken_out_repeats_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client's file is whole until the other files are."""
    folder = desk.outbox.stages.folder
    with monkeypatch.context() as patch:

        def dies(*_: object, **__: object) -> None:
            raise KeyboardInterrupt

        patch.setattr(bad_rows, "write_durably", dies)
        with pytest.raises(KeyboardInterrupt):
            desk.stage([good(1), bad(2)], **LETTERS)
    (left,) = [path for path in folder.iterdir() if path.suffix == ".arrow"]
    stage = desk.outbox.stages.add("app", "1", 0, "0", left.name, NOW)
    assert stage.rows == 2
    assert desk.commit([stage.stage_id])[:4] == (1, 0, 0, 1)
    assert len(letters(desk)) == 1
    assert list(folder.iterdir()) == []


def test_files_go_with_their_stage(desk: Desk) -> None:
    import os

    folder = desk.outbox.stages.folder
    desk.stage([good(1), bad(2)], **LETTERS)
    names = sorted(path.name.partition(".arrow")[2] for path in folder.iterdir())
    assert names == [".good", ".good.bad", ".good.letters"], "the client's file is gone"
    old = NOW / 1e6 - STAGE_FILE_HOURS * 3600
    for path in folder.iterdir():
        os.utime(path, (1, min(1, old)))
    assert desk.outbox.stages.sweep_files() == 0, "they are registered"
    assert desk.outbox.stages.drop("app", "1") == 1
    assert list(folder.iterdir()) == []


def test_more_letters_than_one_stage_may_have(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bad_rows, "LETTERS_MAX", 2)
    desk.stage([bad(1), bad(2)], **LETTERS)
    with pytest.raises(BatchError, match=r"more than LETTERS_MAX = 2 rows can .*: row 0\)?: label"):
        desk.stage([bad(1), bad(2), bad(3)], partition=1, **LETTERS)
    assert desk.outbox.stages.drop("app", "1") == 1
    assert list(desk.outbox.stages.folder.iterdir()) == []
    stage = desk.stage([bad(1), bad(2), bad(3)], partition=1, **SKIP)
    assert desk.commit([stage]).bad == 3


def test_a_full_disk_while_bad_rows_are_taken_out_is_a_503(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = desk.outbox.stages.folder
    rows = [good(1), bad(2)]
    write_stage(folder / "x.arrow", table_of(rows), **LETTERS)

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(bad_rows, "write_durably", full)
    verdict = judge(Question(str(folder), "x.arrow", 0, False))
    assert isinstance(verdict, UnreadableStage)
    assert (verdict.status, verdict.code) == (503, "no-room")


DIES_ONCE = """
import os, runpy, sys
from pathlib import Path
folder = Path(sys.argv[1])
if not (folder / "died").exists():
    (folder / "died").touch()
    sys.stdin.readline()
    (folder / "x.arrow.good").write_bytes(b"half")
    (folder / "x.arrow.good.letters").write_bytes(b"half")
    os._exit(9)
sys.argv = ["", *sys.argv[2:]]
runpy.run_module("srmp_spark.queue_manager.sender.staging.stage_reader", run_name="__main__")
"""


def test_a_reader_that_dies_while_it_takes_bad_rows_out_is_asked_again(
    desk: Desk,
) -> None:
    folder = desk.outbox.stages.folder
    write_stage(folder / "x.arrow", table_of([good(1), bad(2)]), **LETTERS)
    command = [sys.executable, "-c", DIES_ONCE, str(folder)]
    readers = StageReaders(folder, multicast=False, command=command)
    checked = readers.check("x.arrow", 0, "app", "1")
    readers.close()
    (folder / "died").unlink()
    assert (checked.file, checked.rows, checked.bad and checked.bad.rows) == ("x.arrow.good", 1, 1)
    stage = desk.outbox.stages.add("app", "1", 0, "0", checked, NOW)
    assert desk.commit([stage.stage_id])[:4] == (1, 0, 0, 1)
    assert len(letters(desk)) == 1
    assert list(folder.iterdir()) == []


def test_a_letter_file_that_is_gone_is_an_unknown_stage(desk: Desk) -> None:
    stage = desk.stage([good(1), bad(2)], **LETTERS)
    (path,) = desk.outbox.stages.folder.glob("*.letters")
    path.unlink()
    with pytest.raises(BatchError, match="the bad rows of a stage cannot be read") as caught:
        desk.commit([stage])
    assert (caught.value.status, caught.value.code) == (404, "unknown-stage")


def test_what_is_known_of_bad_rows_is_forgotten_with_their_batch(desk: Desk) -> None:
    desk.send([good(1), bad(2, key="k")], **LETTERS)
    counted = "SELECT count(*) FROM batch_bad_rows"
    assert desk.outbox.database.connection.execute(counted).fetchone() == (1,)
    later = NOW + (IDENTITY_DAYS + 2) * DAY
    desk.at = later
    while desk.outbox.sweep(later):
        pass
    assert desk.outbox.database.connection.execute(counted).fetchone() == (0,)
    assert desk.outbox.result("app", "1") is None
