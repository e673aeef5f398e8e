"""T8 of the reliability report: flipped bits, zeroed pages, truncation, swapped files. Damage is an error, never a message.

A session is stored and closed; one thing is damaged in a copy; everything is read. Either all of it is as it was, or an error
says that it is not. What a row says may never be something else.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from disk_model import same_inodes
from disk_session import PLAIN, STREAM, Housekeeping, Inbox, Outgoing, message_of, record_of
from outbox_kit import A, B, read_all

from srmp_spark.errors import SrmpSparkError, StoreDamagedError, StoreError
from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.outbox.tables.which_file import WHICH_FILE
from srmp_spark.store.stored_rows import reading
from srmp_spark.store.stored_rows.log import Log

FULL = os.environ.get("SRMP_SPARK_CRASH") == "full"
FLIPS = 10_000 if FULL else 120
PAGES = 10_000 if FULL else 30
MESSAGES = 120
SEALED = 60


Rows = dict[str, list[tuple[int, bytes]]]


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with sealed rows, unsealed ones, and an outbox."""
    root = tmp_path_factory.mktemp("rot")
    inbox = Inbox(root, lambda line: None)
    for first in range(1, SEALED, 10):
        inbox.take(range(first, first + 10))
    Housekeeping(inbox, root).seal()
    for first in range(SEALED + 1, MESSAGES, 10):
        inbox.take(range(first, first + 10))
    inbox.close()
    outgoing = Outgoing(root, lambda line: None, 0)
    for batch in range(6):
        outgoing.send(batch)
    outgoing.close()
    return root / "data"


def read_rows(data: Path) -> dict[str, list[tuple[int, bytes]]]:
    """Everything that the log gives out."""
    found = {}
    with Log(data / "store.db", data / "segments") as log:
        for queue in (PLAIN, STREAM):
            bounds = log.bounds(queue, None)
            found[queue] = [
                (n, record.post)
                for n, record in reading.records(log, queue, None, bounds.first - 1, bounds.end)
            ]
    return found


def expected_rows() -> dict[str, list[tuple[int, bytes]]]:
    numbers = {PLAIN: range(2, MESSAGES + 1, 2), STREAM: range(1, MESSAGES + 1, 2)}
    return {
        queue: [
            (place, record_of(number, message_of(number)).post)
            for place, number in enumerate(each, 1)
        ]
        for queue, each in numbers.items()
    }


def flipped(data: bytes, bit: int) -> bytes:
    return data[: bit // 8] + bytes([data[bit // 8] ^ 1 << bit % 8]) + data[bit // 8 + 1 :]


def zeroed(data: bytes, page: int, size: int = 4096) -> bytes:
    return (
        data[: page * size] + bytes(min(size, len(data) - page * size)) + data[(page + 1) * size :]
    )


# --- segments -------------------------------------------------------------------------------------------------------------


def segment_files(stored: Path) -> list[Path]:
    return sorted(stored.glob("segments/*/*.arrow"))


def mutants(data: bytes, dice: random.Random) -> Iterator[tuple[str, bytes]]:
    header = min(len(data), 256)
    for bit in range(0, header * 8, 1 if FULL else 37):
        yield f"header bit {bit}", flipped(data, bit)
    for _ in range(FLIPS):
        bit = dice.randrange(len(data) * 8)
        yield f"bit {bit}", flipped(data, bit)
    tail = range(max(0, len(data) - 65_536), len(data))
    for size in tail if FULL else dice.sample(tail, 60):
        yield f"cut to {size}", data[:size]
    for page in range(-(-len(data) // 4096)):
        yield f"page {page} zeroed", zeroed(data, page)


def test_every_damage_of_a_segment_is_found_and_stops_its_queue_alone(
    stored: Path, tmp_path: Path
) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored, data)
    dice = random.Random(8)
    judged = 0
    for path in segment_files(data):
        whole = path.read_bytes()
        for _, damaged in mutants(whole, dice):
            if damaged == whole:
                continue
            path.write_bytes(damaged)
            judged += 1
            with Log(data / "store.db", data / "segments") as log:
                queue = next(
                    q for q in (PLAIN, STREAM) if str(path).startswith(str(segment_of(log, q)))
                )
                other = STREAM if queue == PLAIN else PLAIN
                with pytest.raises(StoreDamagedError) as caught:  # or nobody saw it
                    list(reading.records(log, queue, None, 0, SEALED // 2))
                if judged % 50 == 1:
                    assert [n for n, _ in reading.records(log, other, None, 0, SEALED // 2)] == [
                        *range(1, SEALED // 2 + 1)
                    ]
            told = str(caught.value)
            assert path.name in told
            assert "rows 1 to" in told
            assert f"srmp-spark give-up --queue '{queue}'" in told
        path.write_bytes(whole)
    print(f"segments: {judged} damages, {judged} found")


def segment_of(log: Log, queue: str) -> Path:
    (chunk, *_) = log.chunks(queue, None, 0, 1)  # type: ignore[arg-type]
    return chunk.columns.parent / chunk.columns.name.split(".")[0]  # type: ignore[union-attr]


def test_swapped_segments_of_two_queues_are_found(stored: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored, data)
    for ending in ("columns", "posts"):
        one, other = (path for path in segment_files(data) if f".{ending}." in path.name)
        content = one.read_bytes()
        one.write_bytes(other.read_bytes())
        other.write_bytes(content)
    with Log(data / "store.db", data / "segments") as log:
        for queue in (PLAIN, STREAM):
            with pytest.raises(StoreDamagedError, match="not what was sealed"):
                list(reading.records(log, queue, None, 0, SEALED // 2))


# --- the databases ----------------------------------------------------------------------------------------------------------


def damages_of(data: bytes, dice: random.Random) -> Iterator[tuple[str, bytes]]:
    for _ in range(FLIPS):
        bit = dice.randrange(len(data) * 8)
        yield f"bit {bit}", flipped(data, bit)
    for bit in range(100 * 8) if FULL else dice.sample(range(100 * 8), 30):
        yield f"header bit {bit}", flipped(data, bit)
    pages = range(len(data) // 4096)
    for page in pages if FULL else dice.sample(pages, min(PAGES, len(pages))):
        yield f"page {page} zeroed", zeroed(data, page)
    for size in dice.sample(range(len(data)), PAGES):
        yield f"cut to {size}", data[:size]


def verdicts(
    stored: Path, tmp_path: Path, file: str, read: Callable[[Path], Rows], expected: Rows
) -> tuple[Counter[str], list[str]]:
    """How the damages of ``file`` ended, and those in which something else was read than was stored."""
    dice = random.Random(file)
    counts: Counter[str] = Counter()
    lies = []
    data = tmp_path / "data"
    shutil.copytree(stored, data)
    whole = (data / file).read_bytes()
    for what, damaged in damages_of(whole, dice):
        if damaged == whole:
            continue
        for name in (f"{file}-wal", f"{file}-shm"):
            (data / name).unlink(missing_ok=True)
        (data / file).write_bytes(damaged)
        try:
            found = read(data)
        except SrmpSparkError:
            counts["found"] += 1
        except Exception as error:  # an error of another kind is one that nobody explains
            counts[f"found, as {type(error).__name__}"] += 1
        else:
            if found == expected:
                counts["nothing of it is read"] += 1
            elif all(
                set(rows) < set(expected[queue]) or rows == expected[queue]
                for queue, rows in found.items()
            ):
                counts["rows are missing, unsaid"] += 1
            else:
                counts["a lie"] += 1
                lies.append(what)
    return counts, lies


def test_no_damage_of_the_store_becomes_a_message(stored: Path, tmp_path: Path) -> None:
    counts, lies = verdicts(stored, tmp_path, "store.db", read_rows, expected_rows())
    print(f"store.db: {dict(counts)}")
    assert lies == []
    assert counts["found"] > 0


def read_outbox(data: Path) -> dict[str, list[tuple[int, bytes]]]:
    """As the next sender process would, which finds the database that was used here last."""
    for name in (WHICH_FILE, "outbox.lock"):
        if (data.parent / name).exists():
            shutil.copyfile(data.parent / name, data / name)
    same_inodes(data / WHICH_FILE, data / "outbox.db")
    outgoing = Outgoing(data.parent, lambda line: None, 9)
    try:
        assert outgoing.desk.outbox.held == [], outgoing.desk.outbox.database.foreign
        return {
            to: [
                (stored.serial, stored.message.body)
                for stored in read_all(outgoing.desk.outbox, QueueKey(to, "stream"))
            ]
            for to in (A, B)
        }
    finally:
        outgoing.desk.outbox.database.close()


def test_no_damage_of_the_outbox_becomes_a_message(stored: Path, tmp_path: Path) -> None:
    before = tmp_path / "before"
    shutil.copytree(stored, before / "data")
    shutil.copy(stored / WHICH_FILE, tmp_path / WHICH_FILE)
    counts, lies = verdicts(
        stored, tmp_path, "outbox.db", read_outbox, read_outbox(before / "data")
    )
    print(f"outbox.db: {dict(counts)}")
    assert lies == []
    assert counts["found"] > 0


def test_a_wal_that_is_cut_anywhere_loses_only_whole_commits_from_the_end(
    stored: Path, tmp_path: Path
) -> None:
    """Of a process that was killed: the tail of its WAL may be torn, what was synced before it may not be."""
    root = tmp_path / "killed"
    inbox = Inbox(root, lambda line: None)
    for number in range(1, 41):
        inbox.take([number])
    copy = tmp_path / "copy"
    shutil.copytree(root / "data", copy, ignore=shutil.ignore_patterns("*-shm"))
    inbox.close()
    base, wal = (copy / "store.db").read_bytes(), (copy / "store.db-wal").read_bytes()
    dice = random.Random(4)
    lengths = set()
    for size in (
        range(max(0, len(wal) - 65_536), len(wal) + 1)
        if FULL
        else [*dice.sample(range(len(wal)), 60), len(wal)]
    ):
        (copy / "store.db-shm").unlink(missing_ok=True)
        (copy / "store.db").write_bytes(base)
        (copy / "store.db-wal").write_bytes(wal[:size])
        try:
            rows = read_rows(copy)
        except StoreError:
            continue  # not even the queues are there
        numbers = sorted(
            int(post.split(b"message ")[1].split(b" ")[0])
            for queue in rows.values()
            for _, post in queue
        )
        assert numbers == list(range(1, len(numbers) + 1)), "a prefix, in the order of the commits"
        lengths.add(len(numbers))
    assert max(lengths) == 40
    assert len(lengths) > 10


def test_a_missing_segment_is_named_at_the_start(stored: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    shutil.copytree(stored, data)
    (gone, *_) = segment_files(data)
    gone.unlink()
    inbox = Inbox(tmp_path, lambda line: None)
    assert inbox.missing == [gone]
    inbox.close()
