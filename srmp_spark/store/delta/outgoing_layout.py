"""Which files of ``outgoing_queue`` stay, which go and what is written, for a million messages that wait as for ten.

A file holds whole groups of the outbox (up to 256 messages each) in the order of their queues and serials, and notes in its
footer which, with a stamp of what their rows were made from. In each cycle the stamps are worked out anew, a few microseconds a
group, and compared:

- a file whose groups all have their stamps stays untouched;
- a file of which no group is left is removed, and nothing is read or written for it;
- the groups that are left of any other file are written into another file, in the commit that removes it. These are the files
  at an edge: where messages leave, where receipts come in, where one died;
- new groups are added.

So an interval costs what changed in it, plus at most the size of one file for each edge that moved. In every version of the
table a message stands once. Small files are joined as soon as there are SMALL_FILES_MAX of them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from srmp_spark.store.delta.actions import LiveFile

FILE_ROWS = 4_096
"""Rows of one file: an edge that moves writes no more again."""
FILE_BYTES = 4 << 20
"""Bytes of the bodies of one file, but for a single group that has more (a group has about 1 MB, or one message of 4 MB)."""
FILE_GROUPS = 2_048
"""Groups of one file: what its footer names. A queue that gets a message now and then has groups of one."""
COMMIT_BYTES = 32 << 20
"""Bytes of bodies written for one commit. Dead letters are published between two commits, so none waits for a backlog."""
COMMIT_FILES = 1_000
"""Files that one commit removes or adds: its own file stays below a megabyte."""
SMALL_FILES_MAX = 32
"""Small files that are joined. More, and every reader opens them; fewer, and rows are written again needlessly."""
SMALL_PART = 4
"""A file with less than this part of both limits is small."""

NOTE = "srmp.groups"


class HeldGroup(NamedTuple):
    """A group as a file has it."""

    id: int
    stamp: str


class HeldFile(NamedTuple):
    """A live file and what is in it; no groups: damaged, or of nobody knows what."""

    file: LiveFile
    groups: tuple[HeldGroup, ...]


class Size(NamedTuple):
    """Of a group, as far as limits go."""

    rows: int
    bytes: int


@dataclass(slots=True)
class Step:
    """One commit."""

    removed: list[HeldFile] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)
    """To be written, in this order."""
    bytes: int = 0


def note_of(groups: Sequence[HeldGroup]) -> str:
    """For the footer."""
    return json.dumps(groups)


def read_note(text: str | None) -> tuple[HeldGroup, ...]:
    """Back from it; nothing from a file that has none."""
    return tuple(HeldGroup(*group) for group in json.loads(text or "[]"))


def plan(
    held: Sequence[HeldFile], wanted: Mapping[int, str], sizes: Mapping[int, Size]
) -> list[Step]:
    """The commits that make the table hold exactly ``wanted``: stamps by group, in the order of queues and serials."""
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
    steps: list[Step] = []
    for removed, groups in pieces:
        size = sum(sizes[group].bytes for group in groups)
        step = steps[-1] if steps else None
        if (
            step is None
            or step.bytes + size > COMMIT_BYTES
            or len(step.removed) + len(removed) > COMMIT_FILES
        ):
            steps.append(step := Step())
        step.removed += removed
        step.groups += groups
        step.bytes += size
    for step in steps:
        step.groups.sort(key=place.__getitem__)
    return steps


def files_of(groups: Sequence[int], sizes: Mapping[int, Size]) -> Iterator[list[int]]:
    """The groups of each file that a step writes."""
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
