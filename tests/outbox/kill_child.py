"""One life of a sender process: the same batches in every life, the engine's changes in between. It is killed at any moment.

Each line of the report was written after what it says was committed.
"""

from __future__ import annotations

import json
import os
import random
import sys
from pathlib import Path

from outbox_kit import NOW, A, B, Desk
from test_crash import BATCHES, ROWS, destination_of, is_ordered

from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, SerialRun
from srmp_spark.store.outbox.preparing import preparation
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.tables import checkpoints, writes


def main() -> None:
    data, report, seed, life = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4]
    writes.CHUNK_BYTES = 20_000  # type: ignore[misc]  # many transactions for one batch
    preparation.CHUNK_ROWS = 64  # type: ignore[misc]
    checkpoints.CHECKPOINT_BYTES = checkpoints.CHECKPOINT_REST_BYTES = 200_000  # type: ignore[misc]
    checkpoints.WAL_BYTES_MAX = 2_000_000  # type: ignore[misc]
    rng = random.Random(f"{seed} {life}")
    lives = (data / "lives").read_text().count("\n") if (data / "lives").exists() else 0
    desk = Desk(data, first_identifier=1 + lives * 100_000)
    with (data / "lives").open(
        "a"
    ) as file:  # the identifiers that the main process reserves: never twice
        file.write("1\n")

    def tell(**event: object) -> None:
        with report.open("a") as file:
            file.write(json.dumps(event) + "\n")
            file.flush()
            os.fsync(file.fileno())

    tell(life=int(life) if life.isdigit() else life)
    for number in range(BATCHES):
        stages = []
        for partition in range(2):
            rows = [
                {"body": f"{number}:{row}".encode(), "destination": destination_of(number, row), "t": -row,
                 "key": f"{number}:{row}"}
                for row in reversed(range(ROWS))
                if (row < ROWS // 2) == partition
            ]  # fmt: skip
            ordered = is_ordered(number)
            if ordered:
                rng.shuffle(rows)
            order_by = ["t"] if ordered else []
            stages.append(
                desk.stage(
                    rows,
                    batch=str(number),
                    partition=partition,
                    attempt=life,
                    order_by=order_by,
                    record_rows=50,
                )
            )
        prepared = desk.outbox.prepare("app", str(number), stages, NOW)
        assert not isinstance(prepared, CommitResult)
        while not prepared.step():
            if rng.random() < 0.2:
                desk.sender.pause(A, "stream")
                desk.save()
        result = desk.write(prepared)
        assert result in (CommitResult(ROWS, 0), CommitResult(0, ROWS)), result
        tell(committed=True, batch=str(number))
        for destination in (A, B):
            key = QueueKey(destination, "stream")
            loaded = desk.outbox.load(Load(key, 0, 2**40, rng.randrange(1, 200), 1 << 20, 1))
            tell(
                sent=[
                    [stored.message.body.decode(), stored.serial, stored.message.uniquifier]
                    for stored in loaded
                ]
            )
            if loaded:
                changes = desk.sender.changes()._replace(
                    finished=[SerialRun(key, 1, loaded[-1].serial)]
                )
                tell(
                    finished=loaded[-1].serial, destination=destination
                )  # before: whether it counts is for the disk to say
                desk.outbox.write(changes, NOW)
    desk.close()


if __name__ == "__main__":
    main()
