"""A backup has the rows of one moment, is whole or marked as incomplete, and comes back byte for byte."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from outbox_kit import A, Desk  # found through conftest.py
from store_kit import NOW, QUEUE, Store, srmp_record

from srmp_spark.cli import run
from srmp_spark.errors import ConfigurationError, StoreDamagedError, StoreError, StoreSyncError
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.store.backup import files, moment, verify
from srmp_spark.store.backup.backup import backup
from srmp_spark.store.backup.manifest import Manifest, read_manifest
from srmp_spark.store.backup.put_back import restore_backup
from srmp_spark.store.backup.segments import SegmentCopies
from srmp_spark.store.directory import BACKUP_FILE, DATABASE_FILE, DataDirectory
from srmp_spark.store.stored_rows import reading, retention, sealing
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import held_copy, state

LATER = NOW + 365 * 86_400_000_000


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    made = Store(tmp_path / "data")
    yield made
    made.close()


def seal(store: Store) -> None:
    with Log(store.directory.database, store.directory.segments) as log:
        plan = sealing.plan(log, QUEUE, LATER)
        assert plan is not None
        sealed = sealing.write_segment(log, plan, store.directory.segments)
    assert store.call(
        lambda transaction: sealing.commit_segment(transaction, sealed, store.directory.segments)
    )


def rows(path: Path, epoch: str | None = None) -> list[tuple[int, bytes]]:
    with Log(path / DATABASE_FILE, path / "segments") as log:
        bounds = log.bounds(QUEUE, epoch)
        found = reading.records(log, QUEUE, epoch, bounds.first - 1, bounds.end)
        return [(n, record.content) for n, record in found]


def expected(first: int, last: int) -> list[tuple[int, bytes]]:
    return [(n, srmp_record(n).content) for n in range(first, last + 1)]


def restored(tmp_path: Path, name: str = "back") -> tuple[Path, list[dict[str, Any]]]:
    report: list[dict[str, Any]] = []
    restore_backup(tmp_path / "backup", tmp_path / name, lambda line: report.append(line.as_dict()))
    return tmp_path / name, report


def left(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()} if folder.exists() else set()


def test_it_has_the_rows_of_its_moment_and_the_source_goes_on(store: Store, tmp_path: Path) -> None:
    """Sealed rows and rows in groups, while the writer is open and its WAL is not copied."""
    store.put(6, together=3, make=srmp_record)
    seal(store)
    store.put(4, make=srmp_record)
    made = backup(store.directory.path, tmp_path / "backup")
    store.put(3, make=srmp_record)
    seal(store)
    assert made == read_manifest(tmp_path / "backup")
    assert (made.queue_manager, made.epoch) == (
        store.directory.queue_manager,
        store.directory.epoch,
    )
    path, report = restored(tmp_path)
    assert rows(path) == expected(1, 10)
    assert rows(store.directory.path) == expected(1, 13)
    (line,) = [each for each in report if (each["finding"], each["what"]) == ("restored", "rows")]
    assert (line["name"], line["first"], line["last"], line["count"]) == (QUEUE, 1, 10, 10)
    assert report[-1]["finding"] == "do"
    assert "srmp-spark activate" in report[-1]["detail"]
    for folder in (tmp_path / "backup", path):
        for each in (folder, *folder.rglob("*")):
            mode = stat.S_IMODE(each.stat().st_mode)
            assert mode == (0o700 if each.is_dir() else 0o600), each
    names = {each.name for each in made.files} | {BACKUP_FILE}
    there = {
        each.relative_to(tmp_path / "backup").as_posix()
        for each in (tmp_path / "backup").rglob("*")
        if each.is_file()
    }
    assert there == names, "nothing else lies there"


def test_a_restored_directory_is_a_copy_with_a_reason_and_a_new_epoch(
    store: Store, tmp_path: Path
) -> None:
    store.put(2, make=srmp_record)
    made = backup(store.directory.path, tmp_path / "backup")
    path, _ = restored(tmp_path)
    for _ in range(2):
        with DataDirectory.open(path, now=7) as opened:
            assert opened.queue_manager == store.directory.queue_manager
            assert opened.epoch != store.directory.epoch
            because = f"it was restored from the backup of {made.made_at}"
            assert opened.held == held_copy.HeldCopy(because, 7), "over restarts"
    with DataDirectory.open(restored(tmp_path, "again")[0], now=7) as again:
        assert again.held is not None, "one backup restored twice: both are held"


def test_what_kill_9_left_in_the_wal_is_in_the_backup(store: Store, tmp_path: Path) -> None:
    """Nothing runs: the directory is as the kill left it, with a WAL that no process has read."""
    store.put(5, make=srmp_record)
    store.settle()
    shutil.copytree(store.directory.path, tmp_path / "killed")
    assert (tmp_path / "killed" / "store.db-wal").stat().st_size
    backup(tmp_path / "killed", tmp_path / "backup")
    assert rows(restored(tmp_path)[0]) == expected(1, 5)


def test_outbox_and_what_waits_in_it_come_back_held(store: Store, tmp_path: Path) -> None:
    desk = Desk(store.directory.path, epoch=store.directory.epoch)
    desk.send([{"body": b"1"}, {"body": b"2"}])
    made = backup(store.directory.path, tmp_path / "backup")
    desk.send([{"body": b"3"}], batch="2")
    desk.close()
    assert made.outbox_position is not None
    path, report = restored(tmp_path)
    (line,) = [each for each in report if each["what"] == "outgoing"]
    assert (line["finding"], line["name"], line["count"]) == ("in_doubt", A, 2)
    with DataDirectory.open(path, now=1) as opened:
        again = Desk(path, epoch=opened.epoch)
    assert [stored.serial for stored in again.read()] == [1, 2]
    assert again.outbox.held, "the original may have sent it"
    again.close()


# --- one moment -----------------------------------------------------------------------------------


def test_a_commit_between_the_two_snapshots_begins_both_anew(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dead letter would be in neither: it left the outbox before one snapshot, and came after the other."""
    desk = Desk(store.directory.path, epoch=store.directory.epoch)
    real, begun = moment._begin, []

    def begin(at: moment.Moment) -> None:
        begun.append(at)
        if len(begun) > 2:
            real(at)
            return
        real(at._replace(outbox=None))
        store.put(1, make=srmp_record)  # the letter becomes a row …
        with desk.outbox.database.transaction() as connection:  # … and only then it is marked
            connection.execute("INSERT OR REPLACE INTO meta VALUES ('letters', ?)", (len(begun),))
        assert at.outbox is not None
        real(moment.Moment(at.outbox, None))

    monkeypatch.setattr(moment, "_begin", begin)
    backup(store.directory.path, tmp_path / "backup")
    desk.close()
    assert len(begun) == 3
    with closing(sqlite3.connect(tmp_path / "backup" / "outbox.db")) as outbox:
        (letters,) = outbox.execute("SELECT value FROM meta WHERE key = 'letters'").fetchone()
    assert letters == 2
    assert rows(tmp_path / "backup") == expected(1, 2), "what the outbox has let go of is a row"


def test_without_a_pause_between_commits_there_is_no_backup(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = moment._begin

    def begin(at: moment.Moment) -> None:
        real(at)
        store.put(1)

    monkeypatch.setattr(moment, "_begin", begin)
    monkeypatch.setattr(moment, "MOMENTS_MAX", 3)
    with pytest.raises(StoreError, match=r"written without a pause.*3 attempts"):
        backup(store.directory.path, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_segment_that_retention_deletes_meanwhile_makes_it_take_another_snapshot(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for _ in range(2):
        store.put(4, make=srmp_record)
        seal(store)
    mark = state.StoredConsumer(QUEUE, "default", 8, SequenceSet(), None, None, None)
    store.call(
        lambda transaction: state.save_consumer(transaction.connection, store.queue_id, mark)
    )
    segments, real, taken = store.directory.segments, moment.copy_database, []

    def copy(*args: Any) -> None:
        real(*args)
        taken.append(1)
        if len(taken) == 1:
            store.call(lambda transaction: retention.trim(transaction, QUEUE, 4, segments))

    monkeypatch.setattr(moment, "copy_database", copy)
    # Sealed between the first copies and the snapshot, which is when no copy exists.
    monkeypatch.setattr(SegmentCopies, "copy_present", lambda _: None)
    made = backup(store.directory.path, tmp_path / "backup")
    assert len(taken) == 2
    assert made.damaged == ()
    assert rows(restored(tmp_path)[0]) == expected(5, 8)


# --- never half a backup --------------------------------------------------------------------------

KILL = """
import os, signal, sys
from pathlib import Path
from srmp_spark.store.backup import backup as module, manifest, moment, verify
from srmp_spark.store.backup.segments import SegmentCopies

def dies(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

step, source, to = sys.argv[1:]
place, name = {
    "marked": (SegmentCopies, "copy_present"), "segments": (moment, "at_one_moment"),
    "databases": (SegmentCopies, "settle"), "written": (verify, "verify_files"),
    "verified": (manifest, "complete"),
}[step]
setattr(place, name, dies)
module.backup(Path(source), Path(to))
"""


@pytest.mark.parametrize("step", ["marked", "databases", "verified"])
def test_a_kill_leaves_nothing_that_looks_whole(store: Store, tmp_path: Path, step: str) -> None:
    store.put(4, make=srmp_record)
    seal(store)
    to = tmp_path / "backup"
    ended = subprocess.run(
        [sys.executable, "-c", KILL, step, str(store.directory.path), str(to)],
        cwd=Path(__file__).parents[2],
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL
    with pytest.raises(StoreDamagedError, match=r"incomplete.*delete the folder"):
        read_manifest(to)
    with pytest.raises(StoreDamagedError, match="incomplete"):
        restored(tmp_path)
    assert not (tmp_path / "back").exists(), "nothing was begun"
    with pytest.raises(ConfigurationError, match="holds an incomplete backup"):
        backup(store.directory.path, to)
    with pytest.raises(ConfigurationError, match=r"is a backup.*restore --backup"):
        DataDirectory.open(to, now=1)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_full_disk_leaves_nothing(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_new: bool
) -> None:
    store.put(4, make=srmp_record)
    seal(store)
    to = tmp_path / "backup"
    if not is_new:
        to.mkdir(mode=0o700)
    copied: list[Path] = []

    def full(source: Path, target: Path, on_bytes: object) -> files.Sums:
        if copied:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        copied.append(target)
        return files.copy_file(source, target, on_bytes)  # type: ignore[arg-type]

    monkeypatch.setattr("srmp_spark.store.backup.segments.copy_file", full)
    with pytest.raises(StoreSyncError, match=r"has no room.*was deleted: make room"):
        backup(store.directory.path, to)
    assert copied
    assert to.exists() is not is_new
    assert left(to) == set()
    monkeypatch.undo()
    backup(store.directory.path, to)


def test_a_disk_that_is_too_small_is_told_before_anything_is_copied(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(1)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(9, 9, 0))
    with pytest.raises(StoreSyncError, match=r"has no room.*bytes are needed and 0 are free"):
        backup(store.directory.path, tmp_path / "backup")


def test_a_full_disk_under_a_restore_is_no_data_directory(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(4, make=srmp_record)
    seal(store)
    backup(store.directory.path, tmp_path / "backup")

    def full(*_: object) -> files.Sums:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("srmp_spark.store.backup.put_back.copy_file", full)
    with pytest.raises(
        StoreSyncError, match=r"No space left on device.*run the same restore again"
    ):
        restored(tmp_path)
    with pytest.raises(StoreDamagedError, match="did not come to its end"):
        DataDirectory.open(tmp_path / "back", now=1)
    monkeypatch.undo()
    assert rows(restored(tmp_path)[0]) == expected(1, 4)


def test_bytes_that_the_disk_did_not_keep_are_no_backup(
    store: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.put(4, make=srmp_record)
    seal(store)
    real = verify.verify_files

    def rots(folder: Path, *args: Any) -> None:
        flip(next((folder / "segments").glob("*/*.posts.arrow")))
        real(folder, *args)

    monkeypatch.setattr(verify, "verify_files", rots)
    with pytest.raises(StoreSyncError, match=r"posts.arrow is not what was written"):
        backup(store.directory.path, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def flip(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(path.stat().st_size // 2)
        byte = file.read(1)
        file.seek(-1, os.SEEK_CUR)
        file.write(bytes([byte[0] ^ 1]))


def test_folders_that_cannot_be_a_backup_are_refused_with_words(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = store.directory.path
    first = backup(data, tmp_path / "backup")
    (tmp_path / "used").mkdir(mode=0o700)
    (tmp_path / "used" / "letter.txt").touch()
    (tmp_path / "wide").mkdir()
    (tmp_path / "wide").chmod(0o755)
    (tmp_path / "none").mkdir()
    for source, to, words in (
        (data, tmp_path / "backup", f"holds the backup of {first.made_at} already: name a new"),
        (data, tmp_path / "used", "is not empty (letter.txt …): name a new folder"),
        (data, tmp_path / "wide", "mode 0755), and a backup holds messages and passwords"),
        (data, data / "backup", "lies in the data directory, and would be lost with it"),
        (tmp_path / "none", tmp_path / "new", "has no store.db: name the data directory of serve"),
        (tmp_path / "backup", tmp_path / "new", "is a backup: copy the folder to have it twice"),
    ):
        assert run(["backup", "--data-dir", str(source), "--to", str(to)]) == 2
        assert words in capsys.readouterr().err
    assert left(tmp_path / "used") == {"letter.txt"}
    assert read_manifest(tmp_path / "backup") == first, "untouched"


# --- restore --------------------------------------------------------------------------------------


def damage(folder: Path, what: str) -> None:
    path = folder / BACKUP_FILE
    content = json.loads(path.read_text())
    if what == "flipped":
        flip(folder / DATABASE_FILE)
    elif what == "gone":
        next((folder / "segments").glob("*/*")).unlink()
    elif what == "newer":
        path.write_text(json.dumps(content | {"format": 2}))
    elif what == "torn":
        path.write_text(path.read_text()[:200])
    elif what == "outside":
        content["files"][0]["name"] = "../../evil"
        path.write_text(json.dumps(content))


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("flipped", "store.db is not what was backed up"),
        ("gone", "is gone from the backup: use another backup"),
        ("newer", "format 2, this version of srmp-spark knows 1"),
        ("torn", "cannot be read .*use another backup"),
        ("outside", "'../../evil' is no path inside a backup"),
    ],
)
def test_a_damaged_backup_is_refused_by_name(
    store: Store, tmp_path: Path, what: str, words: str
) -> None:
    store.put(4, make=srmp_record)
    seal(store)
    backup(store.directory.path, tmp_path / "backup")
    shutil.copytree(tmp_path / "backup", tmp_path / "good")
    damage(tmp_path / "backup", what)
    with pytest.raises(StoreDamagedError, match=words):
        restored(tmp_path)
    assert not (tmp_path.parent / "evil").exists()
    if (tmp_path / "back").exists():
        with pytest.raises(StoreDamagedError, match=r"restore .* did not come to its end"):
            DataDirectory.open(tmp_path / "back", now=1)
    shutil.rmtree(tmp_path / "backup")
    (tmp_path / "good").rename(tmp_path / "backup")
    assert rows(restored(tmp_path)[0]) == expected(1, 4), "the same restore again"


def test_what_is_no_backup_and_what_is_in_use_is_refused(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    backup(store.directory.path, tmp_path / "backup")
    for arguments, code, words in (
        (["--backup", str(tmp_path), "--data-dir", "x"], 2, "so it is no backup: give the folder"),
        (
            ["--backup", str(tmp_path / "backup"), "--data-dir", str(store.directory.path)],
            5,
            "is in use by process",
        ),
        (
            ["--backup", str(tmp_path / "backup"), "--data-dir", "x", "--force"],
            2,
            "only with --state",
        ),
    ):
        assert run(["restore", *arguments]) == code
        assert words in capsys.readouterr().err
    with pytest.raises(SystemExit):
        run(["restore", "--data-dir", "x"])
    assert "one of the arguments --backup --state is required" in capsys.readouterr().err


def test_rows_that_the_source_cannot_read_are_named_and_the_rest_is_saved(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(2):
        store.put(4, make=srmp_record)
        seal(store)
    store.put(2, make=srmp_record)
    flip(next(store.directory.segments.glob("*/1-4.posts.arrow")))
    next(store.directory.segments.glob("*/5-8.columns.arrow")).unlink()
    to = tmp_path / "backup"
    assert run(["backup", "--data-dir", str(store.directory.path), "--to", str(to)]) == 1
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    found = [line["detail"] for line in lines if line["finding"] == "damaged"]
    assert len(found) == 2
    assert "rows 1 to 4" in found[0]
    assert "rows 5 to 8" in found[1]
    path, report = restored(tmp_path)
    assert [line["detail"] for line in report if line["finding"] == "damaged"] == found
    with Log(path / DATABASE_FILE, path / "segments") as log:
        left_over = list(reading.records(log, QUEUE, None, 8, 10))
    assert [(n, each.content) for n, each in left_over] == expected(9, 10)


def test_a_damaged_database_is_no_backup(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.put(300, together=50, make=srmp_record)
    store.close()
    path = store.directory.path / DATABASE_FILE
    with closing(sqlite3.connect(path)) as db:
        (root,) = db.execute("SELECT rootpage FROM sqlite_master WHERE name = 'groups'").fetchone()
        (size,) = db.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((root - 1) * size)
        file.write(b"\xff" * size)
    with pytest.raises(StoreDamagedError, match="no backup was made"):
        backup(store.directory.path, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


def test_a_directory_of_0_1_is_refused_with_what_to_do(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.put(300, together=50, make=srmp_record)
    seal(store)
    store.close()
    with closing(sqlite3.connect(store.directory.path / DATABASE_FILE)) as db:
        db.execute("DROP TABLE wide_parts")
    with pytest.raises(StoreError, match=r"written by 0\.1.*cp -a while it is stopped"):
        backup(store.directory.path, tmp_path / "backup")
    assert not (tmp_path / "backup").exists()


# --- what else is in it ---------------------------------------------------------------------------


def test_passwords_are_saved_and_what_the_configuration_names_is_listed(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = store.directory.path / "subscriptions"
    folder.mkdir(mode=0o700)
    (folder / "a.password").write_text("secret")
    (folder / "a.sent").write_bytes(b"marks")
    token = tmp_path / "api.token"
    token.write_text("0" * 32)
    config = tmp_path / "serve.toml"
    config.write_text(
        f'listen = "127.0.0.1:0"\nqueue = ["private$/orders"]\n[[token]]\nname = "a"\n'
        f'token_file = "{token}"\n'
    )
    to = tmp_path / "backup"
    arguments = ["backup", "--data-dir", str(store.directory.path), "--to", str(to)]
    assert run([*arguments, "--config", str(config)]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    known = [line["name"] for line in lines if line["finding"] == "known"]
    assert known == [str(config), str(token)]
    assert "0" * 32 not in "".join(
        each.read_bytes().decode("latin-1") for each in to.rglob("*") if each.is_file()
    )
    path, _ = restored(tmp_path)
    assert left(path / "subscriptions") == {"a.password"}
    assert (path / "subscriptions" / "a.password").read_text() == "secret"
    assert run([*arguments, "--config", "nowhere.toml"]) == 2
    assert "--config nowhere.toml" in capsys.readouterr().err


def test_progress_is_shown_on_stderr_and_the_output_stays_json(
    store: Store, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store.put(200, together=50, make=srmp_record)
    seal(store)
    to = str(tmp_path / "backup")
    assert run(["backup", "--data-dir", str(store.directory.path), "--to", to]) == 0
    told = capsys.readouterr()
    assert [json.loads(line)["finding"] for line in told.out.splitlines()] == ["saved"] * 3
    assert "copying\n" in told.err
    assert "reading everything again\n" in told.err
    assert "100%" in told.err
    assert "KB/s" in told.err
    assert run(["restore", "--backup", to, "--data-dir", str(tmp_path / "back"), "--table"]) == 0
    told = capsys.readouterr()
    assert told.out.startswith("finding")
    assert "comparing checksums" in told.err


def test_every_byte_is_counted(store: Store, tmp_path: Path) -> None:
    store.put(50, make=srmp_record)
    seal(store)
    counts: dict[str, list[int]] = {}

    def on_step(step: str, total: int) -> Callable[[int], object]:
        counts[step] = [total, 0]

        def add(count: int) -> None:
            counts[step][1] += count

        return add

    made: Manifest = backup(store.directory.path, tmp_path / "backup", on_step=on_step)
    assert counts["verify"] == [made.bytes, made.bytes]
    assert counts["copy"][1] == made.bytes
