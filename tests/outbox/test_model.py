"""Identities and order against a small model: random batches, replays, reorderings, changed contents, destinations."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from outbox_kit import A, B, Desk, bodies, make_large

from srmp_spark.store.outbox import stage_file
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.preparing import packing
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.tables import writes

TO = [A, B, "http://c.example/msmq/private$/c"]

row_strategy = st.fixed_dictionaries(
    {
        "body": st.sampled_from([b"a", b"b", b"c", b"", None]),
        "destination": st.sampled_from(TO),
        "t": st.one_of(st.none(), st.integers(0, 3)),
        "key": st.one_of(st.none(), st.sampled_from(["k1", "k2", "k3", "k4"])),
        "sequence": st.one_of(st.none(), st.integers(-3, 5000)),
        "delivery": st.sampled_from([None, "transactional", "express"]),
    }
)
batch_strategy = st.fixed_dictionaries(
    {
        "application": st.sampled_from(["x", "y"]),
        "batch": st.sampled_from(["1", "2", "3"]),
        "order_by": st.booleans(),
        "plain": st.booleans(),
        "stages": st.lists(st.lists(row_strategy, max_size=6), max_size=3),
        "replay": st.one_of(st.none(), st.integers(0, 5)),
        "shuffle": st.randoms(use_true_random=False),
    }
)


class Model:
    """What has been sent, and why a row is known."""

    def __init__(self) -> None:
        self.known: dict[tuple[Any, ...], Any] = {}
        self.queues: dict[tuple[str, str], list[bytes]] = {}

    def commit(
        self, application: str, batch: str, order_by: bool, stages: list[list[dict[str, Any]]]
    ) -> tuple[int, int] | str:
        if any(row["body"] is None for stage in stages for row in stage):
            return "bad-stage"
        rows = [
            (row, partition, n)
            for partition, stage in enumerate(stages)
            for n, row in enumerate(stage)
        ]
        if order_by:
            rows.sort(key=lambda each: (each[0]["t"] is not None, each[0]["t"] or 0))
        fresh: dict[tuple[Any, ...], Any] = {}
        counted: Counter[tuple[Any, ...]] = Counter()
        send, known = [], 0
        for row, _, _ in rows:
            scope = (application, row["destination"])
            content = (row["body"], row["delivery"] == "express")
            if row["key"] is not None:
                identity = (*scope, "key", row["key"])
            elif row["sequence"] is not None:
                identity = (*scope, "position", row["sequence"])
                if fresh.get(identity, "new") == content:
                    return "needs-key"
            else:
                digest = (*scope, batch, "digest", content)
                identity = (*digest, counted[digest])
                counted[digest] += 1
                content = None
            seen = {**self.known, **fresh}.get(identity, "new")
            if seen == "new":
                send.append(row)
            elif seen != content:
                return "position-conflict" if identity[2] == "position" else "key-conflict"
            else:
                known += 1
            fresh[identity] = content
        self.known |= fresh
        for row in send:
            kind = "plain" if row["delivery"] == "express" else "stream"
            self.queues.setdefault((row["destination"], kind), []).append(row["body"])
        return len(send), known


@pytest.fixture(params=["one transaction", "many", "large"])
def sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "large":
        make_large(monkeypatch)
    if request.param != "one transaction":
        monkeypatch.setattr(writes, "CHUNK_BYTES", 1)
        monkeypatch.setattr(stage_file, "CHUNK_ROWS", 2)
        monkeypatch.setattr(packing, "GROUP_ROWS", 3)
        monkeypatch.setattr("srmp_spark.store.outbox.preparing.identities.CHUNK_ROWS", 2)
        monkeypatch.setattr("srmp_spark.store.outbox.preparing.ordering.BUCKET_BYTES", 150)
        monkeypatch.setattr("srmp_spark.store.outbox.preparing.ordering.DEAL_BYTES", 1)


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(batches=st.lists(batch_strategy, min_size=1, max_size=6))
def test_the_outbox_does_what_the_model_does(sizes: None, batches: list[dict[str, Any]]) -> None:
    model = Model()
    with tempfile.TemporaryDirectory() as folder:
        desk = Desk(Path(folder))
        done: list[tuple[str, str, bool, list[list[dict[str, Any]]]]] = []
        for number, each in enumerate(batches):
            application, batch, order_by, stages = (
                each["application"],
                each["batch"],
                each["order_by"],
                each["stages"],
            )
            if each["replay"] is not None and done:  # the same rows, dealt out otherwise
                application, batch, order_by, before = done[each["replay"] % len(done)]
                rows = [row for stage in before for row in stage]
                each["shuffle"].shuffle(rows)
                stages = [rows[: len(rows) // 2], rows[len(rows) // 2 :]]
            if each[
                "plain"
            ]:  # without positions, and most for one queue: packed while it is scanned
                stages = [
                    [row | {"sequence": None, "destination": A} for row in stage]
                    for stage in stages
                ]
            wanted = model.commit(application, batch, order_by, stages)
            if not isinstance(wanted, str):
                done.append((application, batch, order_by, stages))
            names: list[str] = []
            try:
                names += [
                    desk.stage(
                        [filled(row, plain=each["plain"]) for row in stage], application=application, batch=batch,
                        partition=partition, attempt=str(number), order_by=["t"] if order_by else [], types=TYPES,
                    )
                    for partition, stage in enumerate(stages) if stage
                ]  # fmt: skip
                found: Any = tuple(desk.commit(names, application=application, batch=batch))[:2]
            except BatchError as error:
                found = error.code
            if not any(stages):
                assert isinstance(found, tuple)
                assert CommitResult(*found) == CommitResult(0, 0)
                continue
            both = {wanted, found}
            errors = {"needs-key", "key-conflict", "position-conflict"}
            assert wanted == found or both <= errors, "of two errors either may be told"
            for (destination, kind), sent in model.queues.items():
                assert bodies(desk.read(destination, kind)) == sent
            everything = [stored for queue in model.queues for stored in desk.read(*queue)]
            identifiers = [stored.message.uniquifier for stored in everything]
            assert sorted(identifiers) == [*range(1, len(everything) + 1)], (
                "each is given out once, and none is wasted"
            )
        desk.close()


def filled(row: dict[str, Any], *, plain: bool) -> dict[str, Any]:
    if plain:
        return {name: value for name, value in row.items() if name != "sequence"}
    here = row["sequence"] is not None
    return row | dict.fromkeys(("queue_manager", "epoch", "queue"), "s" if here else None)


TYPES = {
    "t": pa.int64(), "key": pa.string(), "sequence": pa.int64(), "delivery": pa.string(), "body": pa.binary(),
    "queue_manager": pa.string(), "epoch": pa.string(), "queue": pa.string(),
}  # fmt: skip
