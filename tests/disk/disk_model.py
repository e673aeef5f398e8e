"""What a disk holds after a power loss: the bytes and names that were synced, and of the rest whatever it likes.

Stricter than most file systems: fsync of a file makes its bytes durable and not its name; a name is durable when its folder
was synced. What is not synced yet survives, is lost, or survives in parts (:data:`DAMAGES`).
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import shutil
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from disk_trace import (
    Created,
    Cut,
    Event,
    Linked,
    MadeFolder,
    Removed,
    Renamed,
    Said,
    SyncBegins,
    SyncEnds,
    Wrote,
)

from srmp_spark.store.directory import IDENTITY_FILE, birth_of
from srmp_spark.store.outbox.tables.which_file import WHICH_FILE

PAGE = 4096
SECTOR = 512
ROOT = 0


class Bytes(NamedTuple):
    """A write that is not synced."""

    target: int
    offset: int
    data: bytes


class Length(NamedTuple):
    """A truncation or growth that is not synced."""

    target: int
    size: int
    grow_only: bool


class Entry(NamedTuple):
    """A change of a folder that is not synced: all of its names at once."""

    target: int
    names: tuple[tuple[str, int | None], ...]


Change = Bytes | Length | Entry


class World:
    """Files and folders by number."""

    def __init__(self) -> None:
        self.files: dict[int, bytearray] = {}
        self.folders: dict[int, dict[str, int]] = {ROOT: {}}

    def copy(self) -> World:
        new = World()
        new.files = {number: bytearray(data) for number, data in self.files.items()}
        new.folders = {number: dict(names) for number, names in self.folders.items()}
        return new

    def apply(self, change: Change) -> None:
        if isinstance(change, Entry):
            names = self.folders[change.target]
            for name, number in change.names:
                if number is None:
                    names.pop(name, None)
                else:
                    names[name] = number
            return
        data = self.files[change.target]
        if isinstance(change, Length):
            if change.size > len(data):
                data.extend(bytes(change.size - len(data)))
            elif not change.grow_only:
                del data[change.size :]
            return
        if change.offset > len(data):
            data.extend(bytes(change.offset - len(data)))
        data[change.offset : change.offset + len(change.data)] = change.data

    def paths(self, folder: int = ROOT, at: str = "") -> Iterator[tuple[str, bytes | None]]:
        """Everything that has a name: (path, content); ``None`` for a folder, which comes before what is in it."""
        for name, number in sorted(self.folders[folder].items()):
            path = f"{at}{name}"
            if number in self.folders:
                yield path, None
                yield from self.paths(number, path + "/")
            else:
                yield path, bytes(self.files[number])


class Disk:
    """The disk below one folder, as the calls went by."""

    def __init__(self, root: Path) -> None:
        self._root = str(root).rstrip("/")
        self.now = World()
        """What every process sees; what a kill leaves."""
        self.durable = World()
        """What is synced."""
        self.pending: list[Change] = []
        """What is not, in the order of the calls."""
        self.said: list[str] = []
        self._last = ROOT
        self._covered: dict[int, list[Change]] = {}
        self.changes = 0
        """Calls that changed something or synced it, so far."""

    @classmethod
    def holding(cls, root: Path) -> Disk:
        """A disk that already holds, synced, what is below ``root``."""
        disk = cls(root)
        for path in sorted(root.rglob("*")):
            if path.is_dir():
                disk.feed(MadeFolder(str(path)))
            else:
                disk.feed(Created(str(path)))
                disk.feed(Wrote(str(path), 0, path.read_bytes()))
        disk.durable, disk.pending, disk.changes = disk.now.copy(), [], 0
        return disk

    def feed(self, event: Event) -> None:
        """The next call."""
        if isinstance(event, Said):
            self.said.append(event.line)
            return
        self.changes += 1
        if isinstance(event, SyncBegins):
            number = self._find(event.path)
            self._covered[event.number] = (
                [] if number is None else [c for c in self.pending if c.target == number]
            )
        elif isinstance(event, SyncEnds):
            covered = {id(change) for change in self._covered.pop(event.number)}
            for change in self.pending:
                if id(change) in covered:
                    self.durable.apply(change)
            self.pending = [change for change in self.pending if id(change) not in covered]
        elif isinstance(event, Wrote):
            number = self._find(event.path)
            if number is not None:
                offset = len(self.now.files[number]) if event.offset is None else event.offset
                self._do(Bytes(number, offset, event.data))
        elif isinstance(event, Cut):
            number = self._find(event.path)
            if number is not None:
                self._do(Length(number, event.size, event.grow_only))
        else:
            self._rename(event)

    def _rename(self, event: Created | MadeFolder | Linked | Renamed | Removed) -> None:
        folder, name = self._folder_of(event.path)
        if isinstance(event, Created | MadeFolder):
            if name in self.now.folders[folder]:
                return  # opened, not made
            self._last += 1
            for world in (self.now, self.durable):
                if isinstance(event, Created):
                    world.files[self._last] = bytearray()
                else:
                    world.folders[self._last] = {}
            self._do(Entry(folder, ((name, self._last),)))
        elif isinstance(event, Removed):
            self._do(Entry(folder, ((name, None),)))
        else:
            number = self.now.folders[folder][name]
            to, new = self._folder_of(event.name)
            if isinstance(event, Linked):
                self._do(Entry(to, ((new, number),)))
            elif to == folder:
                self._do(Entry(folder, ((new, number), (name, None))))
            else:
                self._do(Entry(to, ((new, number),)))
                self._do(Entry(folder, ((name, None),)))

    def _do(self, change: Change) -> None:
        self.now.apply(change)
        self.pending.append(change)

    def _find(self, path: str) -> int | None:
        number: int | None = ROOT
        for part in path[len(self._root) :].strip("/").split("/"):
            if part:
                number = self.now.folders.get(number, {}).get(part) if number is not None else None
        return number

    def _folder_of(self, path: str) -> tuple[int, str]:
        folder, _, name = path.rpartition("/")
        number = self._find(folder)
        assert number is not None, f"{folder} is unknown"
        return number, name

    def after(self, kept: Iterable[Change]) -> World:
        """What is synced, and these of the others."""
        world = self.durable.copy()
        for change in kept:
            world.apply(change)
        return world


# --- damages --------------------------------------------------------------------------------------------------------------


def _drop(pending: list[Change], dice: random.Random) -> Iterable[Change]:
    return []


def _prefix(pending: list[Change], dice: random.Random) -> Iterable[Change]:
    return pending[: dice.randrange(len(pending) + 1)]


def _torn(block: int) -> Callable[[list[Change], random.Random], Iterable[Change]]:
    def tear(pending: list[Change], dice: random.Random) -> Iterable[Change]:
        at = dice.randrange(len(pending)) if pending else 0
        everywhere = dice.random() < 0.5
        for n, change in enumerate(pending):
            if not everywhere and n > at:
                return
            if isinstance(change, Bytes) and (everywhere or n == at):
                yield from (piece for piece in _pieces(change, block) if dice.random() < 0.5)
            else:
                yield change

    return tear


def _reordered(pending: list[Change], dice: random.Random) -> Iterable[Change]:
    """Each page goes to the disk when it likes: the disk holds some version of it, of another page an earlier or later one."""
    pieces = [
        piece
        for change in pending
        for piece in (_pieces(change, PAGE) if isinstance(change, Bytes) else [change])
    ]
    versions: dict[tuple[int, int], int] = {}
    for piece in pieces:
        if isinstance(piece, Bytes):
            key = piece.target, piece.offset // PAGE
            versions[key] = versions.get(key, 0) + 1
    kept = {key: dice.randrange(count + 1) for key, count in versions.items()}
    for piece in pieces:
        if isinstance(piece, Bytes):
            key = piece.target, piece.offset // PAGE
            kept[key] -= 1
            if kept[key] >= 0:
                yield piece
        elif isinstance(piece, Entry) or dice.random() < 0.5:
            yield piece


def _names_lost(pending: list[Change], dice: random.Random) -> Iterable[Change]:
    return (change for change in pending if not isinstance(change, Entry))


def _names_first(pending: list[Change], dice: random.Random) -> Iterable[Change]:
    return (change for change in pending if isinstance(change, Entry))


DAMAGES: dict[str, Callable[[list[Change], random.Random], Iterable[Change]]] = {
    "all unsynced is lost": _drop,
    "a prefix survives": _prefix,
    "torn at 512 bytes": _torn(SECTOR),
    "torn at 4 KiB": _torn(PAGE),
    "written in another order": _reordered,
    "names are lost, bytes survive": _names_lost,
    "names survive, bytes are lost": _names_first,
}
"""The five of the reliability report, tearing in two sizes, and what ext4 did to files that were renamed without a sync."""


def _pieces(change: Bytes, block: int) -> Iterator[Bytes]:
    at = change.offset
    end = change.offset + len(change.data)
    while at < end:
        to = min(end, (at // block + 1) * block)
        yield Bytes(change.target, at, change.data[at - change.offset : to - change.offset])
        at = to


# --- back on a real file system -----------------------------------------------------------------------------------------------


def build(world: World, root: Path) -> None:
    """Put ``world`` in place of what is below ``root``, as the same disk would show it.

    Files get other inodes than they had, which the two identity files know: there the present ones are put in.
    """
    for path in root.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    for name, content in world.paths():
        if content is None:
            (root / name).mkdir(mode=0o700)
        else:
            (root / name).write_bytes(content)
    for identity in root.rglob(IDENTITY_FILE):
        same_inodes(identity, identity.with_name("store.db"))
    for identity in root.rglob(WHICH_FILE):
        same_inodes(identity, identity.with_name("outbox.db"))


def same_inodes(identity: Path, database: Path) -> None:
    with contextlib.suppress(
        ValueError, FileNotFoundError
    ):  # torn, or no database: whoever opens it will say so
        found = json.loads(identity.read_bytes())
        if "inodes" in found:
            found["inodes"] = {
                "directory": identity.parent.stat().st_ino,
                "identity": identity.stat().st_ino,
                "database": database.stat().st_ino,
            }
        else:
            found["inode"] = database.stat().st_ino
        found["born"] = birth_of(database)
        identity.write_text(json.dumps(found, indent=1) + "\n")


def holds(root: Path, ignore: tuple[str, ...] = ("-shm",)) -> dict[str, bytes | None]:
    """What is really below ``root``, to compare with a :class:`World`: shared memory of SQLite is mapped, no call writes it."""
    found: dict[str, bytes | None] = {}
    for folder, folders, files in os.walk(root):
        for name in folders:
            found[str((Path(folder) / name).relative_to(root))] = None
        for name in files:
            path = Path(folder) / name
            if not name.endswith(ignore):
                found[str(path.relative_to(root))] = path.read_bytes()
    return found
