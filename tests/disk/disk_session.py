"""A session of messages over the real store; what is there afterwards, :mod:`disk_judge` judges.

    python disk_session.py in|seal|out ROOT REPORT MESSAGES LIFE [SABOTAGE]

Three kinds of session. ``in``: the receiving engine, journal and checkpoints. ``seal``: the same with segments, the Delta state
and retention. ``out``: stages, batches and what the sending engine finishes. Every promise is one line of REPORT, written when
it is made. A session sends everything from the start, as senders do that heard no answer: run again on what a crash left, it
goes on; LIFE counts the runs. It restarts once in the middle.

``SABOTAGE`` breaks one thing on purpose, so that it can be seen that the tests see it.
"""

from __future__ import annotations

import os
import random
import re
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from outbox_kit import A, B, Desk, table_of  # found through PYTHONPATH or conftest.py
from store_kit import HandLoop

from srmp_spark.message import Arrival, Message, StreamId, StreamPosition
from srmp_spark.names import LocalHosts
from srmp_spark.rows.group import Record
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.srmp.codec.encoder import encode, http_head
from srmp_spark.srmp.receiving.effects import Accepted, Committed, Pending, Refused
from srmp_spark.srmp.receiving.history import MessageIdHistory
from srmp_spark.srmp.receiving.incoming_streams import IncomingStreams
from srmp_spark.srmp.receiving.receiver import Receiver, ReceiverSettings
from srmp_spark.srmp.sending.outgoing_effects import Load, QueueKey, SerialRun
from srmp_spark.store.database import checkpointer, sweeper
from srmp_spark.store.database.durable import make_directory
from srmp_spark.store.database.transaction import Transaction
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.journal import Journal
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from srmp_spark.store.outbox.tables import database as outbox_database
from srmp_spark.store.outbox.tables import writes
from srmp_spark.store.stored_rows import reading, retention, sealing
from srmp_spark.store.stored_rows.log import Log
from srmp_spark.store.tables import queues, state

NOW = 1_800_000_000_000_000
SENDER = "32221eda-9376-46df-b6ed-783091123831"
PLAIN, STREAM = "private$/orders", "private$/payments"
ORDER_URL = "http://peer/msmq/private$/order_queue$"
BATCH = 20
"""Rows of one batch that goes out, half of them to each destination."""
TOGETHER = 8
"""Messages that share a commit, at most."""
SEAL_EVERY, PUBLISH_EVERY, TRIM_EVERY = 40, 24, 64
"""Messages between two segments, two publications, two deletions."""
FAILED = 1
"""Exit code after an error of the store, as that of ``serve``."""

Tell = Callable[[str], object]


def small(kind: str) -> None:
    """Checkpoints, chunks and compactions at sizes that a short session reaches."""
    checkpointer.CHECKPOINT_BYTES = 192 * 1024  # type: ignore[misc]
    outbox_database.CHECKPOINT_BYTES = 192 * 1024  # type: ignore[misc,attr-defined]
    writes.CHUNK_BYTES = 2_000  # type: ignore[misc]
    if kind == "seal":
        from srmp_spark.store.delta.tables import state_table

        state_table.CHECKPOINT_COMMITS = state_table.COMPACT_FILES_MIN = 3  # type: ignore[misc]


# --- messages ---------------------------------------------------------------------------------------------------------------


def message_of(number: int) -> Message:
    """Even numbers are plain messages, odd ones are the stream."""
    queue, stream = PLAIN, None
    if number % 2:
        place = number // 2 + 1
        url = ORDER_URL if place == 1 else None
        queue, stream = (
            STREAM,
            StreamPosition(StreamId(SENDER, 7), place, place - 1, place == 1, url),
        )
    return Message(
        destination=f"http://qm.example/msmq/{queue}", action="MSMQ:x", lineage=SENDER, uniquifier=number, has_msmq=True,
        source_qm=SENDER, body=b"message %d " % number * (1 + number % 7 * 8), stream=stream,
    )  # fmt: skip


def record_of(number: int, message: Message) -> Record:
    content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 1")
    head = http_head(
        f"/msmq/{STREAM if number % 2 else PLAIN}", "qm.example", content_type, len(content)
    )
    return Record(Arrival(NOW + number, "http", "192.0.2.1:4711", None), head + content, len(head))


def number_in(post: bytes) -> int:
    found = re.search(rb"message (\d+) ", post)
    assert found is not None, "not one of our messages"
    return int(found[1])


class Inbox:
    """What the queue manager's process does with messages, without its sockets."""

    def __init__(self, root: Path, tell: Tell, *, early: bool = False) -> None:
        self._tell = tell
        self._early = early
        self._answered: set[int] = set()
        self.loop = HandLoop()
        self.directory = DataDirectory.open(root / "data", now=NOW)
        stored = state.load(self.directory.writer)
        self.receiver = Receiver(
            self.directory.queue_manager, LocalHosts(frozenset({"qm.example"})),
            MessageIdHistory.load(state.load_history(self.directory.writer)),
            IncomingStreams.load(stored.streams), ReceiverSettings(),
        )  # fmt: skip
        self.journal = Journal(
            self.directory, self.loop, changes=self.receiver.changes, on_fatal=self._fatal
        )
        for queue in stored.queues:
            self.receiver.add_queue(queue.name, queue.transactional, queue.end)
        for name in (PLAIN, STREAM):
            if name not in {queue.name for queue in stored.queues}:
                self.call(
                    lambda transaction, name=name: queues.create(
                        transaction, name, transactional=name == STREAM
                    )
                )
                self.receiver.add_queue(name, name == STREAM)
        self.missing = sealing.remove_orphans(self.directory.writer, self.directory.segments)[1]

    @staticmethod
    def _fatal(error: Exception) -> None:
        print(f"journal.failed {error}", file=sys.stderr, flush=True)
        os._exit(FAILED)

    def call(self, function: Callable[[Transaction], Any]) -> Any:
        results: list[tuple[Any, BaseException | None]] = []
        self.journal.call(function, lambda result, error: results.append((result, error)))
        self.loop.until(lambda: results)
        self.settle()
        result, error = results[0]
        if error is not None:
            raise error
        return result

    def settle(self) -> None:
        self.loop.until(lambda: self.journal._state.name in ("IDLE", "FAILED"))

    def take(self, numbers: Iterable[int]) -> None:
        """Messages that come together; returns when all are answered."""
        wanted = set(numbers)
        self._answered = set()
        for number in sorted(wanted):
            message = message_of(number)
            record = record_of(number, message)
            outcome = self.receiver.receive(message, record.arrival, 0.0)
            assert not isinstance(outcome, Refused), outcome
            done = partial(self._committed, number, outcome)
            if isinstance(outcome, Accepted):
                self.journal.submit(
                    (outcome.queue, outcome.sequence, record), done, owed=outcome.owed
                )
            else:
                self.journal.submit(None, done, must_commit=outcome.needs_commit)
            if self._early:
                self._answer(number, outcome)
        self.loop.until(lambda: self._answered == wanted)
        self.settle()

    def _committed(self, number: int, outcome: Pending, proof: Committed) -> None:
        self.receiver.committed([outcome], proof, 0.0)
        self._answered.add(number)
        if not self._early:
            self._answer(number, outcome)

    def _answer(self, number: int, outcome: Pending) -> None:
        sequence = outcome.sequence if isinstance(outcome, Accepted) else 0
        self._tell(f"accepted {number} {sequence}")

    def rows(self) -> dict[str, list[tuple[int, int]]]:
        """(sequence, number) of what the log holds, by queue, and nothing else than what can be read there."""
        found = {}
        with Log(self.directory.database, self.directory.segments) as log:
            for queue in (PLAIN, STREAM):
                bounds = log.bounds(queue, None)
                rows = reading.records(log, queue, None, bounds.first - 1, bounds.end)
                found[queue] = [(sequence, number_in(record.content)) for sequence, record in rows]
        return found

    def close(self) -> None:
        self.settle()
        self.journal.close()
        self.directory.close()


# --- sealing, Delta and retention -------------------------------------------------------------------------------------------


class Housekeeping:
    """What the reader process and the maintenance of the main process do."""

    def __init__(self, inbox: Inbox, root: Path) -> None:
        from srmp_spark.store.delta.publisher import Publisher

        self._inbox = inbox
        directory = inbox.directory
        self._publisher = Publisher(
            directory.path, str(root / "state"), directory.queue_manager, 0.05
        )
        self._synced: dict[str, int] = {}

    def publish(self) -> None:
        report = self._publisher.publish_once()
        assert report.damaged == {}, report.damaged
        self._synced = report.sequences.get(self._inbox.directory.epoch, {})

    def seal(self) -> None:
        inbox, directory = self._inbox, self._inbox.directory
        for queue in (PLAIN, STREAM):
            with Log(directory.database, directory.segments) as log:
                plan = sealing.plan(log, queue, NOW + 10**15)
                if plan is None:
                    continue
                sealed = sealing.write_segment(log, plan, directory.segments)
            assert inbox.call(
                lambda t, sealed=sealed: sealing.commit_segment(t, sealed, directory.segments)
            )
        while inbox.call(sweeper.sweep):
            pass

    def trim(self) -> None:
        """A disk that is nearly full: what Delta holds goes first, and at once."""
        inbox, directory = self._inbox, self._inbox.directory
        for queue, synced in self._synced.items():
            (number,) = directory.writer.execute(
                "SELECT id FROM queues WHERE name = ?", (queue,)
            ).fetchone()
            mark = state.StoredConsumer(queue, "default", synced, SequenceSet(), None, None, None)
            inbox.call(
                lambda t, number=number, mark=mark: state.save_consumer(t.connection, number, mark)
            )
            with Log(directory.database, directory.segments) as log:
                to = retention.plan(
                    log, queue, retention.RetentionLimits(before=0, bytes_max=0, synced_to=synced)
                )
            if to is not None:
                inbox.call(
                    lambda t, queue=queue, to=to: retention.trim(t, queue, to, directory.segments)
                )
        while inbox.call(sweeper.sweep):
            pass


def published(root: Path) -> Counter[tuple[str, int, int]]:
    """(queue, sequence, number) of the rows of the Delta table ``inbox``."""
    from deltalake import DeltaTable

    rows = DeltaTable(str(root / "state" / "inbox")).to_pyarrow_table(
        columns=["queue", "sequence", "uniquifier"]
    )
    return Counter((row["queue"], row["sequence"], row["uniquifier"]) for row in rows.to_pylist())


# --- the way out --------------------------------------------------------------------------------------------------------------


def body_of(batch: int, row: int) -> str:
    return f"{batch}:{row}"


def expected(batch: int, destination: str) -> list[str]:
    return [body_of(batch, row) for row in reversed(range(BATCH)) if (A, B)[row % 2] == destination]


class Outgoing:
    """What the sender process does, and of the main process the writing of stages."""

    def __init__(self, root: Path, tell: Tell, life: int) -> None:
        self._tell = tell
        self._life = life
        make_directory(root / "data")
        self.desk = Desk(root / "data", first_identifier=1 + life * 1_000_000)

    def send(self, batch: int) -> CommitResult:
        """Stage and commit a batch, in two tasks; a driver that heard no answer does it again."""
        stages = []
        for partition in range(2):
            rows = [
                {
                    "body": body_of(batch, row).encode(),
                    "destination": (A, B)[row % 2],
                    "t": -row,
                    "key": body_of(batch, row),
                }
                for row in range(BATCH)
                if row % 4 // 2 == partition
            ]
            stages.append(self._stage(batch, partition, rows))
        outbox = self.desk.outbox
        prepared = outbox.prepare("app", str(batch), stages, NOW)
        if not isinstance(prepared, CommitResult):
            prepared.run()
            prepared = self.desk.write(prepared)
        return prepared

    def _stage(self, batch: int, partition: int, rows: Sequence[dict[str, Any]]) -> str:
        import json

        import pyarrow as pa

        from srmp_spark.queue_manager.api import outbox as api

        table = table_of(rows).replace_schema_metadata(
            {"srmp.order_by": json.dumps(["t"]), "srmp.dead_letter": "false"}
        )
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        folder = self.desk.outbox.stages.folder
        name = f"{batch}-{partition}-{self._life}-{os.getpid()}.arrow"
        file = api._create(folder / f"{name}.part")
        api._write(file, [sink.getvalue().to_pybytes()])
        api._finish(file, folder / f"{name}.part", folder / name)
        return self.desk.outbox.stages.add(
            "app", str(batch), partition, str(self._life), name, NOW
        ).stage_id

    def finish_some(self, dice: random.Random) -> None:
        """As if messages left, and a stream receipt came for some of them."""
        for destination in (A, B):
            key = QueueKey(destination, "stream")
            loaded = self.desk.outbox.load(
                Load(key, 0, 2**40, dice.randrange(1, 2 * BATCH), 1 << 20, 1)
            )
            for stored in loaded:
                self._tell(
                    f"sent {stored.message.body.decode()} {stored.serial} "
                    f"{stored.message.uniquifier}"
                )
            if loaded:
                last = loaded[-1].serial
                self._tell(f"finishing {destination} {last}")
                changes = self.desk.sender.changes()._replace(finished=[SerialRun(key, 1, last)])
                self.desk.sender.committed(changes, self.desk.outbox.write(changes, NOW))
                self._tell(f"finished {destination} {last}")

    def close(self) -> None:
        self.desk.close()


# --- sessions -----------------------------------------------------------------------------------------------------------------


def run(
    kind: str, root: Path, tell: Tell, messages: int, life: int, *, early: bool = False
) -> None:
    """One session from its first message to a clean end."""
    dice = random.Random(f"{kind} {messages}")
    if kind == "out":
        _run_out(root, tell, messages // BATCH, life, dice)
        return
    inbox = Inbox(root, tell, early=early)
    housekeeping = Housekeeping(inbox, root) if kind == "seal" else None
    if housekeeping is not None and messages == 0:  # nothing but what a start does
        housekeeping.publish()
    number = 0
    while number < messages:
        to = min(messages, number + dice.randrange(1, TOGETHER + 1))
        inbox.take(range(number + 1, to + 1))
        if housekeeping is not None:
            for every, step in (
                (SEAL_EVERY, housekeeping.seal), (PUBLISH_EVERY, housekeeping.publish), (TRIM_EVERY, housekeeping.trim),
            ):  # fmt: skip
                if number // every != to // every:
                    step()
        if number < messages // 2 <= to:
            inbox.directory.note_position(inbox.journal.position)
            inbox.close()
            inbox = Inbox(root, tell, early=early)
            housekeeping = Housekeeping(inbox, root) if kind == "seal" else None
        number = to
    inbox.close()


def _run_out(root: Path, tell: Tell, batches: int, life: int, dice: random.Random) -> None:
    outgoing = Outgoing(root, tell, 2 * life)
    for batch in range(batches):
        result = outgoing.send(batch)
        assert result in (CommitResult(BATCH, 0), CommitResult(0, BATCH)), result
        tell(f"committed {batch}")
        if batch % 3 == 2:
            outgoing.finish_some(dice)
        if batch == batches // 2:
            outgoing.close()
            outgoing = Outgoing(root, tell, 2 * life + 1)
        while outgoing.desk.outbox.sweep(NOW):
            pass
    outgoing.close()


# --- as a process -----------------------------------------------------------------------------------------------------------


def sabotage(how: str) -> None:
    """Break one thing that the promise needs."""
    from srmp_spark.store.database import schema
    from srmp_spark.store.outbox.tables.schema import OUTBOX

    if how == "synchronous=NORMAL":
        schema.WRITER_PRAGMAS["synchronous"] = 1
        OUTBOX.pragmas["synchronous"] = 1  # type: ignore[index]  # a dict
    elif how == "no sync of folders":
        import srmp_spark.queue_manager.api.outbox
        import srmp_spark.store.delta.tables.data_files
        import srmp_spark.store.delta.tables.shadow  # so that they are among the modules below

        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("srmp_spark.") and hasattr(
                module, "sync_directory"
            ):
                module.sync_directory = lambda path: None  # type: ignore[attr-defined]
    elif how == "no sync of files":
        import srmp_spark.store.delta.tables.data_files
        import srmp_spark.store.delta.tables.shadow  # noqa: F401

        for module in list(sys.modules.values()):
            if getattr(module, "__name__", "").startswith("srmp_spark.") and hasattr(
                module, "sync_file"
            ):
                module.sync_file = lambda path: None  # type: ignore[attr-defined]
    else:
        assert how in ("", "answer before sync"), how


def main() -> None:
    kind, root, report, messages, life = (
        sys.argv[1],
        Path(sys.argv[2]),
        sys.argv[3],
        int(sys.argv[4]),
        int(sys.argv[5]),
    )
    how = sys.argv[6] if len(sys.argv) > 6 else ""
    small(kind)
    sabotage(how)
    descriptor = os.open(report, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    run(
        kind,
        root,
        lambda line: os.write(descriptor, line.encode() + b"\n"),
        messages,
        life,
        early=how == "answer before sync",
    )


if __name__ == "__main__":
    main()
