"""Every call of a process that changes a file, in the order in which it happened: strace, with all the bytes.

SQLite, Arrow and deltalake write by themselves, so nothing above the system call sees everything. What comes out is a list of
events for :mod:`disk_model`. A sync counts from where it *began*: what another thread wrote while it ran is not covered.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

BYTES_MAX = 1 << 26
"""Of one call: all of it must be in the trace."""
CHANGES = (
    "openat", "open", "creat", "write", "pwrite64", "writev", "pwritev", "pwritev2", "fdatasync", "fsync", "sync_file_range",
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat", "ftruncate", "truncate",
    "mkdir", "mkdirat", "rmdir", "fallocate", "copy_file_range", "sendfile", "lseek",
)  # fmt: skip
DURABLE = frozenset(CHANGES) - {"lseek"}
SESSION_SECONDS = 300

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is missing: apt-get install strace"
)


class Created(NamedTuple):
    """A new, empty file."""

    path: str


class Wrote(NamedTuple):
    """Bytes of a file."""

    path: str
    offset: int | None
    """``None``: at its end."""
    data: bytes


class Cut(NamedTuple):
    """Another length; ``None``: grown to at least ``size``."""

    path: str
    size: int
    grow_only: bool = False


class Linked(NamedTuple):
    """A second name for a file."""

    path: str
    name: str


class Renamed(NamedTuple):
    """Another name for a file or folder."""

    path: str
    name: str


class Removed(NamedTuple):
    """A name that is gone."""

    path: str


class MadeFolder(NamedTuple):
    """A new folder."""

    path: str


class SyncBegins(NamedTuple):
    """fsync or fdatasync was called."""

    path: str
    number: int


class SyncEnds(NamedTuple):
    """It returned, and without an error."""

    path: str
    number: int


class Said(NamedTuple):
    """A line of the session's report: what it was promised up to here."""

    line: str


Event = (
    Created | Wrote | Cut | Linked | Renamed | Removed | MadeFolder | SyncBegins | SyncEnds | Said
)

_FD = re.compile(r"^(AT_FDCWD|-?\d+)(?:<([^>]*)>)?")
_HEX = re.compile(r'^"((?:\\x[0-9a-f]{2})*)"(\.\.\.)?$')
_IOV = re.compile(r'iov_base="((?:\\x[0-9a-f]{2})*)"')
_CALL = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+|\?)", re.DOTALL)
_RESUMED = re.compile(r"^<\.\.\. (\w+) resumed>(.*)$", re.DOTALL)
_UNFINISHED = " <unfinished ...>"


def record(
    command: Sequence[str], root: Path, report: Path, log: Path, environment: Mapping[str, str]
) -> list[Event]:
    """Run ``command`` to its end and return what it did below ``root``, and what it wrote to ``report``."""
    line = [
        "strace",
        "-f",
        "-qq",
        "-y",
        "-xx",
        "-s",
        str(BYTES_MAX),
        "-e",
        f"trace={','.join(CHANGES)}",
        "-e",
        "signal=none",
    ]
    done = subprocess.run(
        [*line, "-o", str(log), *command],
        env=dict(environment),
        capture_output=True,
        text=True,
        timeout=SESSION_SECONDS,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    with log.open() as file:
        events = list(parse(file, str(root), str(report)))
    log.unlink()
    return events


def parse(lines: Iterable[str], root: str, report: str) -> Iterator[Event]:
    """The events of a trace."""
    reader = _Reader(root, report)
    waiting: dict[str, tuple[str, int]] = {}
    for number, line in enumerate(lines):
        process, _, rest = line.rstrip("\n").partition(" ")
        rest = rest.strip()
        if rest.endswith(_UNFINISHED):
            begun = rest.removesuffix(_UNFINISHED)
            waiting[process] = begun, number
            yield from reader.begins(begun, number)
            continue
        resumed = _RESUMED.match(rest)
        began = None
        if resumed is not None:
            begun, began = waiting.pop(process)
            rest = begun + resumed[2]
        call = _CALL.match(rest)
        if call is None:
            continue
        if began is None:
            yield from reader.begins(rest, number)
        yield from reader.ended(call[1], call[2], call[3], number if began is None else began)


class _Reader:
    def __init__(self, root: str, report: str) -> None:
        self._root = root.rstrip("/") + "/"
        self._report = report
        self._offsets: dict[str, int | None] = {}

    def _mine(self, path: str) -> bool:
        return path.startswith(self._root) or path + "/" == self._root

    def begins(self, text: str, number: int) -> Iterator[Event]:
        name, _, arguments = text.partition("(")
        if name in ("fsync", "fdatasync"):
            path = _fd(arguments.rstrip(") "))[1]
            if self._mine(path):
                yield SyncBegins(path, number)

    def ended(self, name: str, text: str, result: str, number: int) -> Iterator[Event]:
        if result in ("?", "-1"):
            return
        arguments = text.split(", ")
        if name in ("fsync", "fdatasync"):
            path = _fd(text)[1]
            if self._mine(path):
                yield SyncEnds(path, number)
        elif name == "openat":
            path = _join(arguments[0], arguments[1])
            if self._mine(path):
                flags = arguments[2].split("|")
                self._offsets[result] = None if "O_APPEND" in flags else 0
                if "O_CREAT" in flags:
                    yield Created(path)
                if "O_TRUNC" in flags:
                    yield Cut(path, 0)
        elif name == "lseek":
            descriptor, path = _fd(arguments[0])
            if self._mine(path) and self._offsets.get(descriptor) is not None:
                self._offsets[descriptor] = int(result)
        elif name in ("write", "writev", "pwrite64"):
            yield from self._wrote(name, text, arguments, int(result))
        elif name == "ftruncate":
            path = _fd(arguments[0])[1]
            if self._mine(path):
                yield Cut(path, int(arguments[1]))
        elif name == "fallocate":
            path = _fd(arguments[0])[1]
            if self._mine(path):
                assert arguments[1] == "0", text
                yield Cut(path, int(arguments[2]) + int(arguments[3]), grow_only=True)
        elif name in ("rename", "renameat", "renameat2", "link", "linkat"):
            if name in ("rename", "link"):
                old, new = _text(arguments[0]), _text(arguments[1])
            else:
                old, new = _join(arguments[0], arguments[1]), _join(arguments[2], arguments[3])
            if self._mine(new) or self._mine(old):
                assert self._mine(new), f"{old} was moved away to {new}"
                assert self._mine(old), f"{old} came from elsewhere"
                yield Linked(old, new) if name.startswith("link") else Renamed(old, new)
        elif name in ("unlink", "rmdir", "unlinkat"):
            path = _join(arguments[0], arguments[1]) if name == "unlinkat" else _text(arguments[0])
            if self._mine(path):
                yield Removed(path)
        elif name in ("mkdir", "mkdirat"):
            path = _join(arguments[0], arguments[1]) if name == "mkdirat" else _text(arguments[0])
            if self._mine(path):
                yield MadeFolder(path)
        elif self._root.encode().hex(" ").replace(" ", "\\x") in text:
            raise AssertionError(f"nobody knows what {name} does: {text[:300]}")

    def _wrote(self, name: str, text: str, arguments: list[str], count: int) -> Iterator[Event]:
        descriptor, path = _fd(arguments[0])
        if path != self._report and not self._mine(path):
            return
        if name == "writev":
            data = b"".join(_bytes(each) for each in _IOV.findall(text))[:count]
        else:
            data = _string(arguments[1])[:count]
        assert len(data) == count, f"the trace has {len(data)} bytes of {count}: {path}"
        if path == self._report:
            for line in data.decode().splitlines():
                yield Said(line)
            return
        if name == "pwrite64":
            yield Wrote(path, int(arguments[3]), data)
            return
        at = self._offsets.get(descriptor)
        yield Wrote(path, at, data)
        if at is not None:
            self._offsets[descriptor] = at + count


def _bytes(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _string(argument: str) -> bytes:
    match = _HEX.match(argument)
    assert match is not None, f"no string: {argument[:100]}"
    assert match[2] is None, "the trace was cut: raise BYTES_MAX"
    return _bytes(match[1])


def _text(argument: str) -> str:
    return os.fsdecode(_string(argument))


def _fd(argument: str) -> tuple[str, str]:
    """Number and path; no path for what is no file, or a file that was deleted meanwhile."""
    match = _FD.match(argument)
    assert match is not None, argument[:100]
    if (
        match[2] is None
        or argument[match.end() :].startswith("(deleted)")
        or not match[2].startswith("\\x2f")
    ):
        return match[1], ""
    return match[1], os.fsdecode(_bytes(match[2].split("<")[0]))


def _join(folder: str, name: str) -> str:
    return os.path.normpath(os.path.join(_fd(folder)[1], _text(name)))  # noqa: PTH118  # text, not files
