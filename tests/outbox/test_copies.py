"""An outbox.db that is not the one that was used here last: a copy holds and begins anew, one that is gone is an error."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from outbox_kit import A, B, Desk, bodies
from test_what_waits import STREAM, step

from srmp_spark.errors import StoreDamagedError
from srmp_spark.srmp.sending.outgoing_effects import QueueKey, SerialRun
from srmp_spark.store.outbox.tables.copies import ORDINAL_GAP
from srmp_spark.store.outbox.tables.which_file import WHICH_FILE


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "data")


def opened(desk: Desk) -> Desk:
    return Desk(desk.directory, first_identifier=desk.next_identifier, at=desk.at)


def put_back(desk: Desk, copy: Path, *, in_place: bool) -> None:
    """``in_place``: with the inode and the birth of the newer one, as ``cat copy > outbox.db`` does."""
    path = desk.directory / "outbox.db"
    if in_place:
        path.write_bytes(copy.read_bytes())
    else:
        shutil.copy(copy, path)
        shutil.copy(path, path.with_suffix(".new"))
        path.with_suffix(".new").rename(path)


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("finished", [False, True], ids=["waiting", "idle"])
def test_an_older_copy_holds_what_waits_and_goes_on_in_no_stream(
    desk: Desk, tmp_path: Path, *, in_place: bool, finished: bool
) -> None:
    desk.send([{"body": b"1"}])
    if finished:
        changes = desk.sender.changes()
        queues = [row._replace(acknowledged_to=1) for row in desk.outbox.queue_rows()]
        desk.outbox.write(
            changes._replace(finished=[SerialRun(STREAM, 1, 1)], queues=queues), desk.at
        )
    desk.close()
    shutil.copy(desk.directory / "outbox.db", tmp_path / "copy")
    desk = opened(desk)
    desk.send([{"body": b"2"}, {"body": b"3"}], batch="2")
    desk.send([{"body": b"3", "destination": A}, {"body": b"4", "destination": B}], batch="3")
    lost = {row.stream_ordinal for row in desk.outbox.queue_rows()}
    desk.close()
    put_back(desk, tmp_path / "copy", in_place=in_place)
    desk = opened(desk)
    assert desk.outbox.database.foreign is not None
    assert desk.outbox.held == ([] if finished else [STREAM])
    desk.close()
    desk = opened(desk)
    assert (desk.outbox.database.foreign, desk.outbox.held) == (None, []), "told once"
    (row,) = desk.outbox.queue_rows()
    assert row.paused is not finished
    if not finished:
        assert row.released_to == row.end, "in doubt"
    desk.send([{"body": b"new"}], batch="4")
    assert [each for _ in range(3) for each in step(desk)] == [] or finished
    desk.sender.resume(*STREAM)
    if finished:
        desk.close()
        desk = opened(desk)
    sends = [each for _ in range(6) for each in step(desk)]
    assert sends
    places = [send.message.stream for send in sends]
    assert {place.id.ordinal for place in places if place is not None}.isdisjoint(lost)
    assert places[0] is not None
    assert places[0].current == 1
    assert places[0].id.ordinal & 0xFFFF_FFFF > ORDINAL_GAP
    assert bodies(desk.read()) == ([b"new"] if finished else [b"1", b"new"])


def test_a_process_that_was_killed_is_no_copy(desk: Desk) -> None:
    desk.send([{"body": b"1"}])
    desk.outbox.database._lock.close()  # the kernel does that
    again = opened(desk)
    assert (again.outbox.database.foreign, again.outbox.held) == (None, [])
    assert [stored.serial for stored in again.read()] == [1]


def test_how_far_it_came_is_noted_by_the_sweep(desk: Desk) -> None:
    desk.send([{"body": b"1"}])
    while desk.outbox.sweep(desk.at):
        pass
    noted = json.loads((desk.directory / WHICH_FILE).read_text())
    assert noted["position"] == desk.outbox.database.position


def test_an_outbox_that_is_gone_is_an_error_until_somebody_decides(desk: Desk) -> None:
    desk.send([{"body": b"1"}])
    desk.close()
    for path in desk.directory.glob("outbox.db*"):
        path.unlink()
    with pytest.raises(
        StoreDamagedError,
        match=r"outbox\.db is gone, it had \d+ commits.*remove .*outbox\.identity",
    ):
        opened(desk)
    assert not (desk.directory / "outbox.db").exists()
    (desk.directory / WHICH_FILE).unlink()
    assert opened(desk).read() == []


def test_a_plain_queue_is_held_too(desk: Desk) -> None:
    desk.send([{"body": b"1", "delivery": "express"}])
    desk.close()
    (desk.directory / WHICH_FILE).unlink()
    desk = opened(desk)
    assert desk.outbox.held == [QueueKey(A, "plain")]
    assert desk.outbox.queue_rows()[0].paused
