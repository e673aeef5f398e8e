"""One owner, one history: lock, fence, identity and epoch (INTERFACE.md section 1)."""

from __future__ import annotations

import errno
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from itertools import pairwise
from pathlib import Path

import pytest
from store_kit import NOW, QUEUE, Store

from srmp_spark.errors import StoreDamagedError, StoreError, StoreInUseError, StoreSyncError
from srmp_spark.interface import exit_code_of
from srmp_spark.store import directory as directory_module
from srmp_spark.store.database import schema, sqlite_file
from srmp_spark.store.directory import (
    DataDirectory,
    Identity,
    birth_of,
    foreign_because,
    refuse_network_file_system,
)
from srmp_spark.store.tables import state

HOLD = """
import sys, time
from itertools import pairwise
from pathlib import Path
from srmp_spark.store.directory import DataDirectory
held = DataDirectory.open(Path(sys.argv[1]), now=1)
print("up", flush=True)
time.sleep(60)
"""


def start(path: Path) -> tuple[str, str, int, str | None]:
    with DataDirectory.open(path, now=NOW) as opened:
        return opened.queue_manager, opened.epoch, opened.fence, opened.changed


def test_a_restart_keeps_queue_manager_and_epoch(tmp_path: Path) -> None:
    first, second, third = (start(tmp_path / "data") for _ in range(3))
    assert first[:2] == second[:2] == third[:2]
    assert (first[2], second[2], third[2]) == (1, 2, 3), "the fence rises with every owner"
    assert third[3] is None


def test_a_directory_that_was_renamed_is_still_its_own(tmp_path: Path) -> None:
    """Fail-over: the volume is mounted elsewhere, with its GUID and epoch."""
    before = start(tmp_path / "data")
    (tmp_path / "data").rename(tmp_path / "moved")
    assert start(tmp_path / "moved")[:2] == before[:2]


def test_a_copied_directory_has_a_new_epoch(tmp_path: Path) -> None:
    store = Store(tmp_path / "data")
    store.put(3)
    store.close()
    before = start(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    copy = start(tmp_path / "copy")
    assert copy[0] == before[0]
    assert copy[1] != before[1]
    assert "copy" in str(copy[3])
    assert start(tmp_path / "copy")[1] == copy[1], "and keeps it from then on"
    assert start(tmp_path / "data")[1] == before[1], "the original is not touched"


def test_the_key_of_the_receipts_addresses_is_made_once(tmp_path: Path) -> None:
    found = set()
    for path in (tmp_path / "data", tmp_path / "data", tmp_path / "other"):
        with DataDirectory.open(path, now=NOW) as opened:
            found.add(opened.receipts_key)
    assert len(found) == 2
    for each in found:
        assert len(each) == 2 * directory_module.RECEIPTS_KEY_BYTES
    with DataDirectory.open(tmp_path / "data", now=NOW) as opened:
        opened.writer.execute(
            "DELETE FROM meta WHERE key = 'receipts_key'"
        )  # as an older version left it
        opened.writer.execute("INSERT INTO meta VALUES ('sender_stream', ?)", ("f" * 32,))
    with DataDirectory.open(tmp_path / "data", now=NOW) as opened:
        made = opened.receipts_key
    with DataDirectory.open(tmp_path / "data", now=NOW) as opened:
        assert opened.receipts_key == made != ""
    assert "f" * 32 not in made, "all peers were told that"


def ceiling(path: Path) -> int:
    with DataDirectory.open(path, now=NOW) as opened:
        return state.load(opened.writer).ceilings.get(state.MESSAGE_IDENTIFIERS, 0)


def raise_to(path: Path, number: int) -> None:
    with DataDirectory.open(path, now=NOW) as opened:
        state.raise_ceiling(opened.writer, state.MESSAGE_IDENTIFIERS, number)


def test_identifiers_of_a_version_without_domains_are_everybody_s_and_later_ones_are_not(
    tmp_path: Path,
) -> None:
    """Told apart once, at the first open: what comes later has its domain."""

    def add(opened: DataDirectory, *runs: tuple[str, int]) -> None:
        opened.writer.executemany("INSERT INTO history VALUES (?, 1, 1, ?)", runs)

    with DataDirectory.open(tmp_path / "new", now=1) as opened:
        assert state.undivided_until(opened.writer) == 0
        add(opened, ("a", 7))
    with DataDirectory.open(tmp_path / "new", now=2) as opened:
        assert state.undivided_until(opened.writer) == 0
    with DataDirectory.open(tmp_path / "old", now=1) as opened:
        add(opened, ("a", 7), ("b", 9))
        opened.writer.execute(
            "DELETE FROM meta WHERE key = 'undivided_until'"
        )  # as an older version left it
    for _ in range(2):
        with DataDirectory.open(tmp_path / "old", now=2) as opened:
            assert state.undivided_until(opened.writer) == 9
            opened.writer.execute("UPDATE history SET last_received_at = 20 WHERE lineage = 'b'")


def test_a_copy_gives_out_no_message_identifier_that_the_original_used_since(
    tmp_path: Path,
) -> None:
    """A peer that knows the identifier answers 200 and keeps nothing."""
    raise_to(tmp_path / "data", 1_000)
    for copy in ("backup", "again"):
        shutil.copytree(tmp_path / "data", tmp_path / copy)
    raise_to(tmp_path / "data", 50_000)
    assert ceiling(tmp_path / "data") == 50_000, "the original steps nowhere"
    copied, again = ceiling(tmp_path / "backup"), ceiling(tmp_path / "again")
    for each in (copied, again):
        assert 1_000 + state.IDENTIFIERS_SKIPPED <= each <= 1_000 + 2 * state.IDENTIFIERS_SKIPPED
    assert copied != again, "one backup put back twice (equal once in 268 million times)"
    assert ceiling(tmp_path / "backup") == copied, "once per copy, not per start"


def test_a_copy_made_before_the_first_message_identifier_steps_ahead_too(tmp_path: Path) -> None:
    start(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    assert ceiling(tmp_path / "copy") >= state.IDENTIFIERS_SKIPPED


def test_copies_of_copies_never_use_up_the_32_bits_of_an_identifier(tmp_path: Path) -> None:
    connection = sqlite3.connect(":memory:")
    connection.execute(next(part for part in schema.DDL.split(";") if "CREATE TABLE ids" in part))
    reached = [0]
    for _ in range(60):
        state.skip_used_identifiers(connection)
        reached.append(connection.execute("SELECT ceiling FROM ids").fetchone()[0])
    steps = [after - before for before, after in pairwise(reached)]
    assert min(steps[:6]) >= state.IDENTIFIERS_SKIPPED
    assert reached[-1] < state.IDENTIFIER_MAX
    state.raise_ceiling(connection, state.MESSAGE_IDENTIFIERS, state.IDENTIFIER_MAX)
    state.skip_used_identifiers(connection)
    assert connection.execute("SELECT ceiling FROM ids").fetchone()[0] == state.IDENTIFIER_MAX


def test_an_older_database_put_in_place_has_a_new_epoch(tmp_path: Path) -> None:
    """Overwritten in place, so that no inode tells: the counters do."""
    path = tmp_path / "data"
    before = start(path)
    backup = (path / "store.db").read_bytes()
    store = Store(path)
    store.put(5)
    store.close()
    (path / "store.db").write_bytes(backup)
    after = start(path)
    assert after[1] != before[1]
    assert "starts" in str(after[3])


def test_an_older_database_of_the_same_start_has_a_new_epoch(tmp_path: Path) -> None:
    path = tmp_path / "data"
    store = Store(path)
    epoch = store.directory.epoch
    store.put(1)
    store.settle()
    copy = sqlite3.connect(tmp_path / "backup.db")
    store.directory.writer.backup(copy)
    copy.close()
    store.put(5)
    store.close()  # notes its position
    (path / "store.db").write_bytes((tmp_path / "backup.db").read_bytes())
    after = start(path)
    assert after[1] != epoch
    assert "commit" in str(after[3])


def test_a_crash_at_each_step_of_the_start_keeps_the_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "data"
    epoch = start(path)[1]
    write = directory_module._write_identity
    for survivors in (0, 1):
        calls = []

        def dies(*args: object, survivors: int = survivors, calls: list[object] = calls) -> None:
            if len(calls) == survivors:
                raise KeyboardInterrupt
            calls.append(args)
            write(*args)  # type: ignore[arg-type]

        monkeypatch.setattr(directory_module, "_write_identity", dies)
        with pytest.raises(KeyboardInterrupt):
            DataDirectory.open(path, now=NOW)
        monkeypatch.setattr(directory_module, "_write_identity", write)
        assert start(path)[1] == epoch


def test_a_foreign_directory_whose_start_crashed_is_still_foreign(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = start(tmp_path / "data")
    shutil.copytree(tmp_path / "data", tmp_path / "copy")

    def dies(*args: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(directory_module.epochs, "begin", dies)
        with pytest.raises(KeyboardInterrupt):
            DataDirectory.open(tmp_path / "copy", now=NOW)
    assert start(tmp_path / "copy")[1] != before[1]


@pytest.mark.parametrize(
    ("identity", "foreign"),
    [
        (None, "identity"),
        (Identity("g", 3, None, 10, (1, 2, 3)), None),
        (Identity("g", 3, None, 10, (9, 2, 3)), "directory"),
        (Identity("g", 3, None, 10, (1, 9, 3)), "identity file"),
        (Identity("g", 3, None, 10, (1, 2, 9)), "database"),
        (Identity("g", 4, None, 10, (1, 2, 3)), "starts"),
        (Identity("g", 2, 3, 10, (1, 2, 3)), None),
        (Identity("g", 3, 4, 10, (1, 2, 3)), None),
        (Identity("g", 3, None, 11, (1, 2, 3)), "commit"),
        (Identity("g", 3, None, 10, (1, 2, 3), 7), None),
        (Identity("g", 3, None, 10, (1, 2, 3), 8), "born"),
    ],
)
def test_what_makes_a_directory_foreign(identity: Identity | None, foreign: str | None) -> None:
    found = foreign_because(identity, starts=3, position=10, inodes=(1, 2, 3), born=7)
    assert found is None if foreign is None else foreign in str(found)


def test_a_copy_that_got_the_same_inodes_is_known_by_its_birth(tmp_path: Path) -> None:
    """What a restore onto a fresh file system can do; here the inodes stay and the note of the birth differs."""
    path = tmp_path / "data"
    epoch = start(path)[1]
    assert start(path)[1] == epoch
    note = json.loads((path / "identity").read_text())
    assert note["born"] == birth_of(path / "store.db")
    note["born"] = 1
    with (path / "identity").open("r+") as file:  # in place: its inode stays
        file.write(json.dumps(note).ljust(400))
    after = start(path)
    if birth_of(path / "store.db") is None:
        assert after[1] == epoch, "inodes have to do where the file system tells no birth"
    else:
        assert after[1] != epoch
        assert "born" in str(after[3])


def test_a_birth_is_told_once_and_survives_writes_and_chmod(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a")
    born = birth_of(path)
    path.write_text("b")
    path.chmod(0o600)
    assert birth_of(path) == born
    assert birth_of(tmp_path / "none") is None


@pytest.mark.parametrize("page", [b"\0" * schema.PAGE_SIZE_BYTES, b"\xff" * schema.PAGE_SIZE_BYTES])
@pytest.mark.parametrize("table", ["meta", "head", "epochs"])
def test_a_damaged_page_is_damage_and_not_a_traceback(
    tmp_path: Path, table: str, page: bytes
) -> None:
    path = tmp_path / "data"
    start(path)
    overwrite_root(path / "store.db", table, page)
    with pytest.raises(StoreDamagedError, match="Put a backup of the whole data directory back"):
        DataDirectory.open(path, now=NOW)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EIO])
def test_a_full_disk_at_the_start_is_no_wrong_usage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    def full(*args: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(directory_module, "_write_identity", full)
    with pytest.raises(StoreSyncError, match="make room or repair the disk") as failed:
        DataDirectory.open(tmp_path / "data", now=NOW)
    assert exit_code_of(type(failed.value)) == 1
    monkeypatch.undo()
    start(tmp_path / "data")


def test_what_sqlite_says_becomes_the_right_exit_code(tmp_path: Path) -> None:
    for error, code in (
        (sqlite3.OperationalError("database or disk is full"), 1),
        (sqlite3.OperationalError("disk I/O error"), 1),
        (sqlite3.OperationalError("database is locked"), 2),
        (sqlite3.DatabaseError("database disk image is malformed"), 6),
    ):
        assert (
            exit_code_of(type(sqlite_file.store_error(tmp_path, error, schema.RESTORE_HINT)))
            == code
        )


def test_what_is_damaged_names_both_ways_back(tmp_path: Path) -> None:
    start(tmp_path / "data")
    (tmp_path / "data" / "store.db").unlink()
    with pytest.raises(StoreDamagedError) as gone:
        DataDirectory.open(tmp_path / "data", now=NOW)
    damaged_ = sqlite_file.store_error(
        tmp_path, sqlite3.DatabaseError("malformed"), schema.RESTORE_HINT
    )
    for said in (str(gone.value), str(damaged_)):
        assert "srmp-spark restore" in said
        assert "backup" in said
        assert "inbox" in said


def overwrite_root(database: Path, table: str, page: bytes) -> None:
    """Put other bytes where a table begins."""
    with sqlite3.connect(database) as db:
        (number,) = db.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = ?", (table,)
        ).fetchone()
    db.close()
    with database.open("r+b") as file:
        file.seek((number - 1) * schema.PAGE_SIZE_BYTES)
        file.write(page)


def test_a_second_owner_is_refused_by_name(tmp_path: Path) -> None:
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path / "data")],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"up\n"
        with pytest.raises(
            StoreInUseError, match=f"process {holder.pid} on {os.uname().nodename}"
        ) as refused:
            DataDirectory.open(tmp_path / "data", now=NOW)
        assert (refused.value.pid, refused.value.host) == (holder.pid, os.uname().nodename)
        holder.send_signal(signal.SIGKILL)
        holder.wait()
        start(tmp_path / "data")  # a lock dies with its process
    finally:
        holder.kill()
        holder.wait()


def test_an_owner_that_was_paused_leaves_the_identity_of_its_successor_alone(
    tmp_path: Path,
) -> None:
    """Its lock was taken from it; it wakes up and notes how far it came, before a commit tells it that it owns nothing."""
    paused = DataDirectory.open(tmp_path / "data", now=NOW)
    (tmp_path / "data" / "lock").unlink()
    with DataDirectory.open(tmp_path / "data", now=NOW) as successor:
        epoch = successor.epoch
        paused.note_position(7)
    paused.close()
    with DataDirectory.open(tmp_path / "data", now=NOW) as again:
        assert (again.epoch, again.changed) == (epoch, None)


@pytest.mark.parametrize("kind", ["nfs", "nfs4", "cifs", "smb3", "fuse.sshfs"])
def test_a_network_file_system_is_refused(tmp_path: Path, kind: str) -> None:
    data = tmp_path / "with space" / "data"
    data.mkdir(parents=True)
    point = str(tmp_path / "with space").replace(" ", "\\040")
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "22 1 254:0 / / rw - ext4 /dev/vda rw\n"
        f"31 22 0:5 / {point} rw shared:1 - {kind} server:/x rw\n"
        "32 22 0:6 / /x rw - tmpfs t rw\n"
    )
    with pytest.raises(StoreError, match=f"lies on {kind}"):
        refuse_network_file_system(data, mounts)
    refuse_network_file_system(tmp_path, mounts)
    with pytest.raises(StoreError):
        DataDirectory.open(data, now=NOW, mountinfo=mounts)


def test_the_upper_one_of_two_mounts_counts(tmp_path: Path) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        f"1 1 0:1 / / rw - ext4 a rw\n2 1 0:2 / {tmp_path} rw - nfs b rw\n3 2 0:3 / "
        f"{tmp_path} rw - ext4 c rw\n"
    )
    refuse_network_file_system(tmp_path, mounts)


def test_a_newer_format_is_refused_and_not_touched(tmp_path: Path) -> None:
    start(tmp_path / "data")
    db = sqlite3.connect(tmp_path / "data" / "store.db")
    db.execute(f"PRAGMA user_version = {schema.FORMAT + 1}")
    db.close()
    before = (tmp_path / "data" / "store.db").read_bytes()
    with pytest.raises(StoreDamagedError, match="start the newer version"):
        DataDirectory.open(tmp_path / "data", now=NOW)
    assert (tmp_path / "data" / "store.db").read_bytes() == before


def test_what_is_no_database_is_damage(tmp_path: Path) -> None:
    start(tmp_path / "data")
    (tmp_path / "data" / "store.db").write_bytes(b"SQLite format 3\0" + b"\xff" * 5000)
    with pytest.raises(StoreDamagedError):
        DataDirectory.open(tmp_path / "data", now=NOW)
    other = tmp_path / "other"
    other.mkdir(mode=0o700)
    db = sqlite3.connect(other / "store.db")
    db.execute("CREATE TABLE theirs(x)")
    db.close()
    with pytest.raises(StoreDamagedError, match="another program"):
        DataDirectory.open(other, now=NOW)


def test_a_lost_database_is_not_begun_anew_in_silence(tmp_path: Path) -> None:
    start(tmp_path / "data")
    (tmp_path / "data" / "store.db").unlink()
    with pytest.raises(StoreDamagedError, match="is gone"):
        DataDirectory.open(tmp_path / "data", now=NOW)


def test_a_broken_identity_is_said(tmp_path: Path) -> None:
    start(tmp_path / "data")
    (tmp_path / "data" / "identity").write_text("{")
    with pytest.raises(StoreDamagedError, match="remove it"):
        DataDirectory.open(tmp_path / "data", now=NOW)


def test_a_refused_start_gives_the_lock_back(tmp_path: Path) -> None:
    start(tmp_path / "data")
    note = (tmp_path / "data" / "identity").read_text()
    (tmp_path / "data" / "identity").write_text("{")
    with pytest.raises(StoreDamagedError):
        DataDirectory.open(tmp_path / "data", now=NOW)
    (tmp_path / "data" / "identity").write_text(note)
    start(tmp_path / "data")


def test_rows_keep_the_epoch_they_were_accepted_in(tmp_path: Path) -> None:
    from srmp_spark.store.stored_rows.log import Bounds, Log

    store = Store(tmp_path / "data")
    store.put(5)
    first = store.directory.epoch
    store.close()
    shutil.copytree(tmp_path / "data", tmp_path / "copy")
    store = Store(tmp_path / "copy")
    second = store.directory.epoch
    store.put(2)
    with Log(store.directory.database, store.directory.segments) as log:
        assert log.epochs(QUEUE) == [first, second]
        assert log.bounds(QUEUE, first) == Bounds(first, 1, 5, second)
        assert log.bounds(QUEUE) == Bounds(second, 6, 7, None), "sequences go on"
        assert [(c.epoch, c.first, c.last) for c in log.chunks(QUEUE, first, 3, 5)] == [
            (first, 4, 4),
            (first, 5, 5),
        ]
    store.close()


def test_every_setting_that_a_200_promises_is_asserted(tmp_path: Path) -> None:
    with DataDirectory.open(tmp_path / "data", now=NOW) as opened:
        for name, value in schema.WRITER_PRAGMAS.items():
            assert sqlite_file.pragma(opened.writer, name) == value
        for name, other in (("synchronous", 1), ("secure_delete", 1), ("wal_autocheckpoint", 1000)):
            opened.writer.execute(f"PRAGMA {name} = {other}")
            with pytest.raises(StoreError, match=name):
                schema.assert_durable(opened.writer)
            opened.writer.execute(f"PRAGMA {name} = {schema.WRITER_PRAGMAS[name]}")
    memory = sqlite3.connect(":memory:")
    with pytest.raises(StoreError, match="journal_mode=memory"):
        schema.assert_durable(memory)


def test_identity_says_what_an_operator_wants_to_know(tmp_path: Path) -> None:
    queue_manager = start(tmp_path / "data")[0]
    note = json.loads((tmp_path / "data" / "identity").read_text())
    assert note["queue_manager"] == queue_manager
    assert note["starts"] == 1
