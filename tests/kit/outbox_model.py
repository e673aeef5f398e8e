"""A short model of what a queue manager's outbox promises to Spark's sink.

The model covers stages, commits, identities and order. A *stage* is the Arrow data that one task of
a batch uploads. A *commit* makes the rows of its stages messages, each *identity* (key, position of
the source row, or content) once. The model has no disk and sends no messages. It is simple on
purpose, because the sink is tested against it and a real outbox can be compared with it.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

POSITION = ("queue_manager", "epoch", "queue", "sequence")
TEXT = (pa.types.is_string,)
WHOLE = (pa.types.is_integer,)
BYTES = (pa.types.is_binary, pa.types.is_string)
NAME = (pa.types.is_string, pa.types.is_integer, pa.types.is_binary)
SINK_TYPES: dict[str, tuple[Callable[[pa.DataType], bool], ...]] = {
    "body": BYTES,
    "destination": TEXT,
    "label": TEXT,
    "priority": WHOLE,
    "correlation_id": BYTES,
    "app_specific": WHOLE,
    "body_type": WHOLE,
    "response_queue": TEXT,
    "admin_queue": TEXT,
    "time_to_reach_queue": (pa.types.is_timestamp,),
    "extension": BYTES,
    "key": NAME,
    "delivery": TEXT,
    "transaction": NAME,
    "queue_manager": TEXT,
    "epoch": TEXT,
    "queue": TEXT,
    "sequence": WHOLE,
}
"""The columns of a stage, and tests for the types that each column may have.

The columns ``body`` and ``destination`` are required.
"""
BODY_MAX = 4_194_304
"""Most bytes of a body, as in MSMQ. A stage with a longer body is refused."""
RECORD_BATCH_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of one record batch. A larger batch is refused.

A record batch is read at once.
"""


class RefusedError(Exception):
    """Raised for a call that the outbox answers with a status other than 2xx.

    ``status`` is the HTTP status, ``code`` the machine-readable reason.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Slot(NamedTuple):
    """The writer of a stage: application, batch, partition and attempt."""

    application: str
    batch: str
    partition: int
    attempt: int


@dataclass(slots=True)
class Stage:
    """Rows that wait for a commit, and the columns by which they are ordered."""

    slot: Slot
    rows: list[dict[str, Any]]
    order_by: tuple[str, ...]


@dataclass(slots=True)
class OutboxModel:
    """The whole state of one outbox, and its calls."""

    stages: dict[str, Stage] = field(default_factory=dict)
    """Stages that are not committed yet, by the name that :meth:`stage` returned."""
    replies: dict[tuple[str, str, frozenset[str]], tuple[int, int]] = field(default_factory=dict)
    """Maps a commit (application, batch, stages) to its reply (new, known).

    A repeated commit gets the same reply.
    """
    identities: dict[tuple[str, str], dict[tuple[Any, ...], bytes]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Maps (application, destination) to a map from an identity to the digest of the content."""
    outgoing: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Maps a destination to its rows in sending order, each with its stage's ``dead_letter``."""
    names: itertools.count[int] = field(default_factory=itertools.count)

    def stage(self, slot: Slot, table: pa.Table) -> tuple[str, int]:
        """Carry out the call ``POST stage``; return the name of the stage and its number of rows.

        A stage of the same slot replaces the earlier one. Raises :class:`RefusedError` if a column
        or a row breaks a rule.
        """
        self._check(slot, table)
        metadata = table.schema.metadata or {}
        for name in [name for name, stage in self.stages.items() if stage.slot == slot]:
            del self.stages[name]
        name = f"s{next(self.names)}"
        order_by = tuple(json.loads(metadata.get(b"srmp.order_by", b"[]")))
        dead_letter = metadata.get(b"srmp.dead_letter") == b"true"
        self.stages[name] = Stage(
            slot, [{**row, "dead_letter": dead_letter} for row in table.to_pylist()], order_by
        )
        return name, table.num_rows

    def _check(self, slot: Slot, table: pa.Table) -> None:
        for required in ("body", "destination"):
            if required not in table.column_names:
                raise RefusedError(400, "bad-stage", f"column {required} is missing")
        for name, kinds in SINK_TYPES.items():
            if name in table.column_names and not any(
                kind(table.schema.field(name).type) for kind in kinds
            ):
                raise RefusedError(
                    400, "bad-stage", f"column {name} is {table.schema.field(name).type}"
                )
        for batch in table.to_batches():
            if batch.nbytes > RECORD_BATCH_BYTES_MAX:
                raise RefusedError(400, "bad-stage", f"a record batch has {batch.nbytes} bytes")
        for number, size in enumerate(pc.binary_length(table.column("body")).to_pylist()):
            if size is None:
                raise RefusedError(
                    400,
                    "bad-stage",
                    f"partition {slot.partition}, row {number}: column body is null",
                )
            if size > BODY_MAX:
                what = f"body has more than BODY_MAX = {BODY_MAX} bytes: {size}"
                raise RefusedError(
                    400, "bad-stage", f"partition {slot.partition}, row {number}: {what}"
                )

    def commit(self, application: str, batch: str, names: Sequence[str]) -> tuple[int, int]:
        """Carry out the call ``POST commit``; return the numbers of new and of known rows.

        ``names`` are those of the stages. A repeated commit gets the reply of the first one. All
        stages of the batch are removed. Raises :class:`RefusedError` for an unknown stage, for rows
        that need a key, and for an identity that was sent with other content; then nothing changes.
        """
        reply = (application, batch, frozenset(names))
        if reply in self.replies:
            return self.replies[reply]
        unknown = [
            name
            for name in names
            if name not in self.stages or self.stages[name].slot[:2] != (application, batch)
        ]
        if unknown:
            raise RefusedError(
                404, "unknown-stage", f"no stage {', '.join(unknown)} of {application}/{batch}"
            )
        rows = self._ordered([self.stages[name] for name in names])
        fresh: list[tuple[tuple[str, str], tuple[Any, ...], bytes, dict[str, Any]]] = []
        planned: dict[tuple[tuple[str, str], tuple[Any, ...]], bytes] = {}
        equal: Counter[tuple[Any, ...]] = Counter()
        known = 0
        for row in rows:
            place = (application, row["destination"])
            content = _digest(row)
            identity, by_key = _identity(row, batch, content, equal)
            before = self.identities[place].get(identity)
            planned_before = planned.get((place, identity))
            if planned_before == content and not by_key:
                raise RefusedError(
                    400,
                    "needs-key",
                    f"two rows of one batch have position {identity[1:]}; add a column key",
                )
            earlier = before or planned_before
            if earlier is not None and earlier != content:
                message = f"{identity[0]} {identity[1:]!r} was sent with other content"
                raise RefusedError(409, f"{identity[0]}-conflict", message)
            if earlier is not None:
                known += 1
                continue
            planned[(place, identity)] = content
            fresh.append((place, identity, content, row))
        # The code above this line changes no state, so a refused commit has no effect.
        for place, identity, content, row in fresh:
            self.identities[place][identity] = content
            self.outgoing[place[1]].append(row)
        self.replies[reply] = len(fresh), known
        self.delete(application, batch)
        return len(fresh), known

    @staticmethod
    def _ordered(stages: Sequence[Stage]) -> list[dict[str, Any]]:
        keyed = []
        for stage in stages:
            for number, row in enumerate(stage.rows):
                order = tuple((row[name] is not None, row[name]) for name in stage.order_by)
                keyed.append(((order, stage.slot.partition, number), row))
        return [row for _, row in sorted(keyed, key=lambda pair: _Nullable(pair[0]))]

    def delete(self, application: str, batch: str) -> None:
        """Carry out the call ``DELETE``: remove the batch's stages that are not committed."""
        for name in [
            name for name, stage in self.stages.items() if stage.slot[:2] == (application, batch)
        ]:
            del self.stages[name]

    def bodies(self, destination: str) -> list[bytes]:
        """Return the bodies that the peer at ``destination`` would receive, in order."""
        return [row["body"] for row in self.outgoing[destination]]


class _Nullable:
    """Compares the order key, partition and number of a row.

    The order key has pairs (is not null, value): nulls are first and equal.
    """

    def __init__(self, key: tuple[Any, ...]) -> None:
        self.key = key

    def __lt__(self, other: _Nullable) -> bool:
        for (mine_there, mine), (their_there, their) in zip(self.key[0], other.key[0], strict=True):
            if mine_there != their_there:
                return bool(their_there)
            if mine_there and mine != their:
                return bool(mine < their)
        return bool(self.key[1:] < other.key[1:])


def _digest(row: dict[str, Any]) -> bytes:
    """Return the digest of the content that is sent.

    The order columns, the position, the key and the destination are not part of this content.
    """
    sent = {
        name: row.get(name)
        for name in SINK_TYPES
        if name not in (*POSITION, "key", "destination") and row.get(name) is not None
    }
    return hashlib.blake2b(repr(sorted(sent.items())).encode(), digest_size=16).digest()


def _identity(
    row: dict[str, Any], batch: str, content: bytes, equal: Counter[tuple[Any, ...]]
) -> tuple[tuple[Any, ...], bool]:
    """Return the identity of the row, and whether the identity may repeat within one batch.

    ``content`` is the row's digest. ``equal`` counts the rows without key and position that have
    equal content, so that each gets an identity of its own.
    """
    if row.get("key") is not None:
        return ("key", row["key"]), True
    position = tuple(row.get(name) for name in POSITION)
    if None not in position:
        return ("position", *position), False
    same = (row["destination"], content)
    equal[same] += 1
    return ("digest", batch, content, equal[same]), True
