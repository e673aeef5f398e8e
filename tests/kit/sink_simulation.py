"""Random schedules of the sink on a real outbox.

The simulation finds messages that are sent twice, lost, or left out without an error.

1. A schedule is drawn from ``Random(seed)``: a query with one to three sinks, which share the
   query's application or have one each. The rows have keys, positions, both or neither. Each sink
   makes messages of the same source rows, with the same or different content. A micro-batch runs,
   fails before, in or after a commit, and runs again, with its earlier content or with another one.
2. Each commit is compared with the answer of :class:`.sink_model.SinkModel`.
3. At the end the queues and the dead letters of the outbox are compared with the model's, message
   by message.

The option ``--large`` treats each batch as one of millions of rows.

    python -m tests.kit.sink_simulation --seeds 10000
    python -m tests.kit.sink_simulation --seeds 10000 --large

The failures are those that the outbox can see: a commit whose answer is lost, a commit that ends at
any of its steps, and a process that ends at any of these steps. After such an end the database is
opened again.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Any
from unittest.mock import patch

import pyarrow as pa

from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey
from srmp_spark.srmp.sending.outgoing_states import SenderSettings
from srmp_spark.srmp.sending.sender import Sender
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.outbox import Outbox
from srmp_spark.store.outbox.preparing import preparation
from srmp_spark.store.outbox.preparing.identities import Identities
from srmp_spark.store.outbox.preparing.preparation import Preparation
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from tests.kit.sink_model import MODES, Answer, Batch, Row, SinkModel

GUID = "0a11ce00-0000-4000-8000-00000000000a"
NOW = 1_800_000_000_000_000
SCHEDULES_OF_AN_OUTBOX = 100
"""Number of schedules that share an outbox.

Opening an outbox takes as long as ten commits. Each schedule has a query and destinations of its
own.
"""
BATCHES_MAX = 2
SOURCE_ROWS_MAX = 4
FIELDS = {
    "body": pa.binary(),
    "destination": pa.string(),
    "label": pa.string(),
    "key": pa.string(),
    "sequence": pa.int64(),
    "queue_manager": pa.string(),
    "epoch": pa.string(),
    "queue": pa.string(),
    "place": pa.int64(),
}
LOADED_MAX = 10_000
_OUTBOX = "srmp_spark.store.outbox."
LARGE = {
    "preparing.row_numbers.ROWS_AT_ONCE": 2,
    "preparing.sorted_runs.ROWS_AT_ONCE": 2,
    "preparing.sorted_runs.MERGE_BYTES": 40,
    "preparing.preparation.PART_ROWS_MAX": 2,
    "tables.writes.CHUNK_BYTES": 1,
    "stage_file.CHUNK_ROWS": 2,
    "preparing.identities.CHUNK_ROWS": 2,
    "preparing.identities.BLOCKS_AT_ONCE": 1,
    "preparing.packing.GROUP_ROWS": 3,
    "preparing.ordering.BUCKET_BYTES": 150,
    "preparing.ordering.DEAL_BYTES": 1,
    "preparing.leftovers.GROUPS_AT_ONCE": 1,
    "preparing.leftovers.CONTENTS_AT_ONCE": 1,
}
"""Name of a limit below the outbox package → small value.

With these values a few rows make a batch of several parts, files and transactions.
"""


# The exception is no error that is reported, so its name does not end in Error.
class Gone(Exception):  # noqa: N818
    """Raised where the simulated process ends."""


class SinkOutbox:
    """An outbox and its engine, as the sender process holds them, with files in ``directory``."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._identifier = 1
        self._open()

    def _open(self) -> None:
        self.outbox = Outbox.open(
            self._directory, queue_manager=GUID, epoch="e", at=NOW, lock_wait_s=0
        )
        self.sender = Sender.load(
            GUID,
            SenderSettings(),
            self.outbox.queue_rows(),
            self.outbox.proof(),
            finals=self.outbox.finals(),
            last_stream_ordinal=self.outbox.last_stream_ordinal,
            serials_after=self.outbox.serials_after,
        )

    def restart(self) -> None:
        """End the process in the middle of its work, and open the outbox in a new one."""
        # A process that has ended undoes nothing, so the preparation is removed without an abort.
        prepared, self.outbox._preparation = self.outbox._preparation, None  # noqa: SLF001
        if prepared is not None:
            # Otherwise the garbage collector would close it and delete the files of a later batch.
            prepared._steps.close()  # noqa: SLF001
        self.outbox.close()
        self._open()

    def close(self) -> None:
        """Close the outbox and its database."""
        self.outbox.close()

    def stage(self, batch: Batch, rows: Sequence[tuple[int, Row]], partition: int) -> str:
        """Store ``rows`` as a stage of the batch, and return the stage's id.

        Each row comes with its place in the order of the batch.
        """
        columns: dict[str, list[Any]] = {name: [] for name in FIELDS}
        for place, row in rows:
            here = None if row.sequence is None else "source"
            values = (
                row.body,
                row.destination,
                row.label,
                row.key,
                row.sequence,
                here,
                here,
                here,
                place,
            )
            for name, value in zip(FIELDS, values, strict=True):
                columns[name].append(value)
        schema = pa.schema(list(FIELDS.items()), metadata={"srmp.order_by": json.dumps(["place"])})
        name = f"{secrets.token_hex(8)}.arrow"
        with (
            pa.OSFile(str(self.outbox.stages.folder / name), "wb") as file,
            pa.ipc.new_stream(file, schema) as writer,
        ):
            writer.write_table(pa.table(columns, schema=schema))
        return self.outbox.stages.add(
            batch.application, batch.batch, partition, secrets.token_hex(8), name, NOW
        ).stage_id

    def commit(self, batch: Batch, stages: Sequence[str], steps_max: int | None) -> Answer:
        """Commit the stages of the batch and return the answer.

        Raises :class:`Gone` after ``steps_max`` steps of the preparation, as if the process ended
        there. ``None`` means no limit.
        """
        prepared = self.outbox.prepare(
            batch.application, batch.batch, stages, NOW, on_conflict=batch.mode
        )
        if isinstance(prepared, CommitResult):
            return Answer(*prepared[:3])
        try:
            while True:
                if steps_max is not None:
                    steps_max -= 1
                    if steps_max < 0:
                        raise Gone
                if prepared.step():
                    break
        except BatchError as error:
            prepared.abort()
            return Answer(error=error.code)
        return self._write(prepared)

    def _write(self, prepared: Preparation) -> Answer:
        enqueued = [
            self.sender.enqueue(*part.key, part.rows, NOW, receipts_url="http://h/q")
            for part in prepared.parts
        ]
        first, self._identifier = self._identifier, self._identifier + prepared.identifiers
        changes = self.sender.changes()
        self.sender.committed(
            changes, self.outbox.write(changes, NOW, batches=[prepared.numbered(first, enqueued)])
        )
        assert prepared.result is not None, "all steps are done"
        return Answer(*prepared.result[:3])

    def queued(self, destination: str) -> Counter[tuple[bytes, str]]:
        """Return how often each pair (body, label) waits for a destination."""
        found = self.outbox.load(
            Load(QueueKey(destination, "stream"), 0, 2**40, LOADED_MAX, 1 << 30, 1)
        )
        return Counter(
            (stored.message.body, stored.message.action.partition(":")[2]) for stored in found
        )

    def letters(self, destinations: set[str]) -> Counter[tuple[str, bytes, str]]:
        """Return how often each (destination, body, label) is a dead letter.

        Only dead letters for ``destinations`` are counted.
        """
        return Counter(
            (moved.row.destination, stored.message.body, stored.message.action.partition(":")[2])
            for moved in self.outbox.waiting.moved_groups(0, LOADED_MAX)
            if moved.row.destination in destinations
            for stored in moved.messages or []
        )


class Schedule:
    """The life of one query. ``problems`` has the faults, one text each."""

    def __init__(self, seed: int, store: SinkOutbox, *, large: bool = False) -> None:
        self.random = Random(seed)
        self._source_rows_max = 4 * SOURCE_ROWS_MAX if large else SOURCE_ROWS_MAX
        self._gone = (0.15, 120) if large else (0.04, 8)
        """Probability that the process ends in a commit, and the most steps before that end."""
        self.store = store
        self.model = SinkModel()
        self.problems: list[str] = []
        self.marks: Counter[str] = Counter()
        self._name = f"{seed}"
        self._destinations = [
            f"http://h/msmq/private$/{seed}-{n}" for n in range(self.random.choice((1, 1, 2)))
        ]
        count = self.random.choice((1, 2, 2, 2, 3))
        own = self.random.random() < 0.3
        self._sinks = [
            (
                f"{seed}-{n}" if own else f"{seed}",
                self.random.choice(("position", "position", "key", "both", "neither")),
                self.random.choice(MODES),
                self.random.choice(("same", "own")),
            )
            for n in range(count)
        ]

    def run(self) -> None:
        """Run the whole schedule and compare the outbox with the model."""
        random = self.random
        sequence = 0
        for number in range(random.randint(1, BATCHES_MAX)):
            source = [sequence + n for n in range(random.randint(1, self._source_rows_max))]
            sequence = random.choice((source[-1] + 1, source[-1], 4_095))
            runs = random.choice((1, 1, 1, 2))
            for attempt in range(runs):
                # A body that holds the current time has other content when the batch runs again.
                version = attempt if random.random() < 0.2 else 0
                for n in range(len(self._sinks)):
                    # After a refusal Spark runs the batch again, or the query ends.
                    if not self._sink(n, str(number), source, version):
                        break
        self._judge()

    def _rows(self, sink: int, source: Sequence[int], version: int) -> list[Row]:
        random = self.random
        _, how, _, content = self._sinks[sink]
        rows = []
        for sequence in source:
            body = b"%d" % sequence if content == "same" else b"%d of %d" % (sequence, sink)
            destination = self._destinations[sequence % len(self._destinations)]
            row = Row(destination, body + b"+" * version, "label" if sequence % 3 == 0 else "")
            if how in ("key", "both") and (how == "key" or sequence % 2):
                row = row._replace(key=f"k{sequence}" if content == "same" else f"k{sequence % 3}")
            if how in ("position", "both"):
                row = row._replace(sequence=sequence)
            rows.append(row)
            # A join or explode can make several rows of one source row.
            if random.random() < 0.05:
                rows.append(row if random.random() < 0.5 else row._replace(body=row.body + b"!"))
        return rows

    def _sink(self, sink: int, number: str, source: Sequence[int], version: int) -> bool:
        """Write the batch to one sink until it is answered; return whether it is committed.

        ``number`` names the micro-batch, ``source`` has its rows. A higher ``version`` changes
        their content. Only after a success the batch is written to the next sink.
        """
        random = self.random
        application, _, mode, _ = self._sinks[sink]
        batch = Batch(
            application, f"{self._name}:{number}", mode, self._rows(sink, source, version)
        )
        while True:
            stages = self._stage(batch)
            steps_max = (
                random.randint(0, self._gone[1]) if random.random() < self._gone[0] else None
            )
            try:
                found = self.store.commit(batch, stages, steps_max)
            except Gone:
                self.marks["gone"] += 1
                self.store.restart()
                # Spark runs the batch again.
                continue
            wanted = self.model.commit(batch)
            if not found.fits(wanted):
                self.problems.append(f"{batch} is answered {found}, not {wanted}")
            self._count(batch, wanted)
            if (
                not found.error
                and random.random() < 0.1
                and self.store.commit(batch, stages, None) != found
            ):
                self.problems.append(f"{batch} is answered otherwise when its answer was lost")
            if not found.error and random.random() < 0.1:
                # The answer was lost because the driver ended. The batch is staged again.
                continue
            return not found.error

    def _stage(self, batch: Batch) -> list[str]:
        random = self.random
        rows = list(enumerate(batch.rows))
        random.shuffle(rows)
        cut = random.randint(0, len(rows)) if random.random() < 0.3 else len(rows)
        parts = [part for part in (rows[:cut], rows[cut:]) if part]
        if random.random() < 0.1:
            # This attempt of a task is not the one that is committed.
            self.store.stage(batch, parts[0], 0)
        return [self.store.stage(batch, part, partition) for partition, part in enumerate(parts)]

    def _count(self, batch: Batch, answer: Answer) -> None:
        for name in ("new", "known", "conflicts"):
            if getattr(answer, name):
                self.marks[name] += 1
        if answer.conflicts:
            self.marks[f"conflicts: {batch.mode}"] += 1
        for error in answer.error.split(" or ") if answer.error else ():
            self.marks[error] += 1

    def _judge(self) -> None:
        for destination in self._destinations:
            wanted: Counter[tuple[bytes, str]] = Counter()
            for row, count in self.model.sent.items():
                if row.destination == destination:
                    wanted[row.content] += count
            self._differ(f"messages for {destination}", self.store.queued(destination), wanted)
        letters: Counter[tuple[str, bytes, str]] = Counter()
        for row, count in self.model.letters.items():
            letters[row.destination, row.body, row.label] += count
        self._differ("dead letters", self.store.letters(set(self._destinations)), letters)

    def _differ(self, what: str, found: Counter[Any], wanted: Counter[Any]) -> None:
        if found != wanted:
            self.problems.append(
                f"{what}: lost {dict(wanted - found)}, sent though they should not be "
                f"{dict(found - wanted)}"
            )


class Simulation:
    """Runs schedules, one per seed; use it in a ``with`` statement, because it has a folder."""

    def __init__(self, identities: type[Identities] = Identities, *, large: bool = False) -> None:
        """Use the class ``identities`` for decisions, so that bugs can be planted.

        With ``large`` the limits are those of :data:`LARGE`.
        """
        self._large = large
        self._patches: list[Any] = [patch.object(preparation, "Identities", identities)]
        if large:
            self._patches += [patch(_OUTBOX + name, value) for name, value in LARGE.items()]
        self._count = 0
        self._store: SinkOutbox | None = None

    def __enter__(self) -> Simulation:
        # Where a memory disk exists, it is used because it syncs at once.
        memory = Path("/dev/shm")  # noqa: S108
        self._folder = Path(
            tempfile.mkdtemp(
                prefix="srmp-sink-", dir=memory if os.access(memory, os.W_OK) else None
            )
        )
        for each in self._patches:
            each.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for each in self._patches:
            each.stop()
        if self._store is not None:
            self._store.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def run(self, seed: int) -> Schedule:
        """Run the schedule of one seed and return it with its :attr:`Schedule.problems`."""
        if self._store is None or self._count % SCHEDULES_OF_AN_OUTBOX == 0:
            if self._store is not None:
                self._store.close()
            folder = self._folder / str(self._count)
            folder.mkdir()
            self._store = SinkOutbox(folder)
        self._count += 1
        schedule = Schedule(seed, self._store, large=self._large)
        schedule.run()
        return schedule


def main(argv: Sequence[str] | None = None, say: Callable[[str], object] = print) -> int:
    """Run seeds and print each fault with ``say``. Return 1 if there is a fault, else 0."""
    parser = argparse.ArgumentParser(
        description="simulated sinks on a real outbox", allow_abbrev=False
    )
    parser.add_argument("--seeds", type=int, default=1_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--large", action="store_true")
    args = parser.parse_args(argv)
    marks: Counter[str] = Counter()
    wrong = 0
    with Simulation(large=args.large) as simulation:
        for seed in range(args.first, args.first + args.seeds):
            schedule = simulation.run(seed)
            marks += schedule.marks
            for problem in schedule.problems:
                say(f"seed {seed}: {problem}")
            wrong += bool(schedule.problems)
    say(json.dumps({"seeds": args.seeds, "wrong": wrong, "marks": dict(sorted(marks.items()))}))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
