"""Decide which files of ``outgoing_queue`` stay, which are removed and which are written.

The work is small, whether ten messages wait or a million. A file holds whole groups of the outbox
(up to 256 messages each) in the order of their queues and serials. Its footer notes the groups,
each with a stamp of the values from which its rows were made. In each cycle the stamps are computed
again, a few microseconds a group, and compared:

- A file whose groups all have their stamps stays unchanged.
- A file of which no group is left is removed, and nothing is read or written for it.
- The remaining groups of any other file are written into another file, in the commit that removes
  the first one. These are files at an edge: where messages leave, where receipts arrive, where a
  message died.
- New groups are added.

So an interval costs what changed in it, plus at most the size of one file for each edge that moved.
In every version of the table a message stands once. Small files are joined as soon as there are
SMALL_FILES_MAX of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from srmp_spark.store.delta.tables.actions import LiveFile

FILE_ROWS = 4_096
"""Largest number of rows in one file.

If one row of a file changes, at most that many rows are written again.
"""
FILE_BYTES = 4 << 20
"""Bytes of the bodies in one file.

A single group may have more (a group has about 1 MB, or one message of 4 MB).
"""
FILE_GROUPS = 2_048
"""Largest number of groups in one file, which its footer names.

A queue with a message now and then has groups of one.
"""
COMMIT_BYTES = 32 << 20
"""Bytes of bodies that one commit writes.

Dead letters are published between two commits, so they never wait for a whole backlog.
"""
COMMIT_FILES = 1_000
"""Files that one commit removes or adds, so that the file of the commit stays below a megabyte."""
SMALL_FILES_MAX = 32
"""Number of small files at which they are joined.

With a larger number every reader opens more files, with a smaller one rows are rewritten
needlessly.
"""
SMALL_PART = 4
"""A file with less than 1/SMALL_PART of the rows, bytes and groups of a full one is small."""

NOTE = "srmp.groups"


class HeldGroup(NamedTuple):
    """One group of the outbox whose rows a file holds: rowid and stamp of the group.

    The stamp is the digest (:func:`.outgoing_rows.stamp`) that the group had when the file was
    written.
    """

    id: int
    stamp: str


class HeldFile(NamedTuple):
    """A live file of ``outgoing_queue``, and the groups of the outbox that it holds.

    If ``groups`` is empty, the file is damaged or has no note of its groups.
    """

    file: LiveFile
    groups: tuple[HeldGroup, ...]


class Size(NamedTuple):
    """Size of a group: number of waiting rows, and bytes of the bodies of all its rows."""

    rows: int
    bytes: int


@dataclass(slots=True)
class LayoutCommit:
    """The content of one commit to ``outgoing_queue``: files to remove and groups to write.

    ``bytes`` is the size of the bodies of the groups.
    """

    removed: list[HeldFile] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    """Rowids of the groups to write, in this order."""
    bytes: int = 0


def note_of(groups: Sequence[HeldGroup]) -> str:
    """Return ``groups`` as JSON text, the note for the footer of their file."""
    return json.dumps(groups)


def read_note(text: str | None) -> tuple[HeldGroup, ...]:
    """Return the groups from the note of a file's footer; empty if the file has no note.

    Raises :class:`ValueError` or :class:`TypeError` if ``text`` is no note of :func:`note_of`.
    """
    return tuple(HeldGroup(*group) for group in json.loads(text or "[]"))


def plan(
    held: Sequence[HeldFile], wanted: Mapping[int, str], sizes: Mapping[int, Size]
) -> list[LayoutCommit]:
    """Return the commits, in order, that make the table hold exactly the groups ``wanted``.

    ``held`` are the present files. ``wanted`` has the stamp of each group by its rowid, in the
    order of queues and serials (:func:`.outgoing_rows.stamp`). ``sizes`` has the size of each of
    these groups. Nothing is written.
    """
    taken: set[int] = set()
    stay, dirty = [], []
    for each in held:
        as_wanted = bool(each.groups) and all(
            wanted.get(group.id) == group.stamp for group in each.groups
        )
        if as_wanted and taken.isdisjoint(group.id for group in each.groups):
            stay.append(each)
            taken.update(group.id for group in each.groups)
        else:
            dirty.append(each)
    small = [each for each in stay if _is_small(each, sizes)]
    if len(small) >= SMALL_FILES_MAX:
        dirty += small
        taken.difference_update(group.id for each in small for group in each.groups)
    place = {group: index for index, group in enumerate(wanted)}
    pieces: list[tuple[list[HeldFile], list[int]]] = []
    for each in dirty:
        left = [group.id for group in each.groups if group.id in place and group.id not in taken]
        taken.update(left)
        pieces.append(([each], left))
    pieces.sort(key=lambda piece: place[piece[1][0]] if piece[1] else -1)
    pieces += [([], [group]) for group in wanted if group not in taken]
    steps: list[LayoutCommit] = []
    for removed, groups in pieces:
        size = sum(sizes[group].bytes for group in groups)
        step = steps[-1] if steps else None
        if (
            step is None
            or step.bytes + size > COMMIT_BYTES
            or len(step.removed) + len(removed) > COMMIT_FILES
        ):
            steps.append(step := LayoutCommit())
        step.removed += removed
        step.groups += groups
        step.bytes += size
    for step in steps:
        step.groups.sort(key=place.__getitem__)
    return steps


def files_of(groups: Sequence[int], sizes: Mapping[int, Size]) -> Iterator[list[int]]:
    """Yield the groups of each file, as lists of rowids, for ``groups`` of one commit.

    No file exceeds the limits of this module, unless one group alone does.
    """
    file: list[int] = []
    rows = size = 0
    for group in groups:
        of = sizes[group]
        if file and (
            rows + of.rows > FILE_ROWS or size + of.bytes > FILE_BYTES or len(file) == FILE_GROUPS
        ):
            yield file
            file, rows, size = [], 0, 0
        file.append(group)
        rows, size = rows + of.rows, size + of.bytes
    if file:
        yield file


def _is_small(each: HeldFile, sizes: Mapping[int, Size]) -> bool:
    rows = sum(sizes[group.id].rows for group in each.groups)
    size = sum(sizes[group.id].bytes for group in each.groups)
    return (
        rows * SMALL_PART < FILE_ROWS
        and size * SMALL_PART < FILE_BYTES
        and len(each.groups) * SMALL_PART < FILE_GROUPS
    )
