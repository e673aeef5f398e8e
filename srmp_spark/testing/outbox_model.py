"""What a queue manager's outbox promises (DESIGN promise 5), in a few lines: stages, commits, identities, order.

No disk, no sending. Plain on purpose: it is what the sink is tested against, and what a real outbox can be compared with.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import pyarrow as pa

POSITION = ("queue_manager", "epoch", "queue", "sequence")
SINK_TYPES: dict[str, pa.DataType] = {
    "body": pa.binary(), "destination": pa.string(), "label": pa.string(), "priority": pa.int32(),
    "correlation_id": pa.binary(), "app_specific": pa.int64(), "body_type": pa.int64(), "response_queue": pa.string(),
    "admin_queue": pa.string(), "time_to_reach_queue": pa.timestamp("us", tz="UTC"), "extension": pa.binary(),
    "key": pa.string(), "delivery": pa.string(), "transaction": pa.string(), "queue_manager": pa.string(),
    "epoch": pa.string(), "queue": pa.string(), "sequence": pa.int64(),
}  # fmt: skip
"""The columns of a stage; ``body`` and ``destination`` are required."""
BODY_MAX = 4_194_304
"""[MC-MQSRM]: MSMQ's own limit of a body."""


class RefusedError(Exception):
    """An answer other than 2xx."""

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status, self.code = status, code


class Slot(NamedTuple):
    """Who staged."""

    application: str
    batch: str
    partition: int
    attempt: int


@dataclass(slots=True)
class Stage:
    """Rows that wait for a commit."""

    slot: Slot
    rows: list[dict[str, Any]]
    order_by: tuple[str, ...]
    dead_letter: bool


@dataclass(slots=True)
class OutboxModel:
    """All of it."""

    stages: dict[str, Stage] = field(default_factory=dict)
    """Not committed yet, by the name that ``stage`` answered."""
    replies: dict[tuple[str, str, frozenset[str]], tuple[int, int]] = field(default_factory=dict)
    """(application, batch, stages) → (new, known): the same commit again."""
    identities: dict[tuple[str, str], dict[tuple[Any, ...], bytes]] = field(default_factory=lambda: defaultdict(dict))
    """(application, destination) → identity → digest of the content."""
    outgoing: dict[str, list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """Destination → rows in the order in which they are sent."""
    names: itertools.count[int] = field(default_factory=itertools.count)

    def stage(self, slot: Slot, table: pa.Table) -> tuple[str, int]:
        """``POST stage`` → (stage, rows)."""
        self._check(slot, table)
        metadata = table.schema.metadata or {}
        for name in [name for name, stage in self.stages.items() if stage.slot == slot]:
            del self.stages[name]
        name = f"s{next(self.names)}"
        order_by = tuple(json.loads(metadata.get(b"srmp.order_by", b"[]")))
        self.stages[name] = Stage(slot, table.to_pylist(), order_by, metadata.get(b"srmp.dead_letter") == b"true")
        return name, table.num_rows

    def _check(self, slot: Slot, table: pa.Table) -> None:
        for required in ("body", "destination"):
            if required not in table.column_names:
                raise RefusedError(400, "no-column", f"column {required} is missing")
        for name, kind in SINK_TYPES.items():
            if name in table.column_names and table.schema.field(name).type != kind:
                raise RefusedError(400, "column-type", f"column {name} is {table.schema.field(name).type}, expected {kind}")
        for number, body in enumerate(table.column("body").to_pylist(), 1):
            if body is None or len(body) > BODY_MAX:
                size = "null" if body is None else f"{len(body)} bytes, more than {BODY_MAX}"
                raise RefusedError(400, "body", f"partition {slot.partition}, row {number}: body is {size}")

    def commit(self, application: str, batch: str, names: Sequence[str]) -> tuple[int, int]:
        """``POST commit`` → (new, known)."""
        reply = (application, batch, frozenset(names))
        if reply in self.replies:
            return self.replies[reply]
        unknown = [name for name in names if name not in self.stages or self.stages[name].slot[:2] != (application, batch)]
        if unknown:
            raise RefusedError(409, "unknown-stage", f"no stage {', '.join(unknown)} of {application}/{batch}")
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
            if planned_before is not None and not by_key:
                raise RefusedError(
                    400, "position-twice", f"two rows of one batch have position {identity[1:]}; add a column key"
                )
            earlier = before or planned_before
            if earlier is not None and earlier != content:
                raise RefusedError(409, "other-content", f"{identity[0]} {identity[1]!r} was sent with other content")
            if earlier is not None:
                known += 1
                continue
            planned[(place, identity)] = content
            fresh.append((place, identity, content, row))
        for place, identity, content, row in fresh:  # nothing above has changed anything
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
        """``DELETE``: stages that no commit has named."""
        for name in [name for name, stage in self.stages.items() if stage.slot[:2] == (application, batch)]:
            del self.stages[name]

    def bodies(self, destination: str) -> list[bytes]:
        """What a peer would get, in order."""
        return [row["body"] for row in self.outgoing[destination]]


class _Nullable:
    """Compares order keys of pairs (is not null, value): nulls first, and two nulls are equal."""

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
    """Of what is sent: neither order nor position nor key belong to the content."""
    sent = {
        name: row.get(name)
        for name in SINK_TYPES
        if name not in (*POSITION, "key", "destination") and row.get(name) is not None
    }
    return hashlib.blake2b(repr(sorted(sent.items())).encode(), digest_size=16).digest()


def _identity(row: dict[str, Any], batch: str, content: bytes, equal: Counter[tuple[Any, ...]]) -> tuple[tuple[Any, ...], bool]:
    """(identity, whether it may repeat within one batch)"""
    if row.get("key") is not None:
        return ("key", row["key"]), True
    position = tuple(row.get(name) for name in POSITION)
    if None not in position:
        return ("position", *position), False
    same = (row["destination"], content)
    equal[same] += 1
    return ("digest", batch, content, equal[same]), True
