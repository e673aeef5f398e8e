"""What of the promises of a session is broken: the real store opens what is there, reads it, and goes on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from disk_session import (
    BATCH,
    PLAIN,
    STREAM,
    TOGETHER,
    Housekeeping,
    Inbox,
    Outgoing,
    expected,
    published,
)
from outbox_kit import A, B, read_all

from srmp_spark.srmp.sending.outgoing_effects import QueueKey
from srmp_spark.store.outbox.preparing.prepared import CommitResult
from tests.kit.oracle import Oracle


def judge(kind: str, root: Path, said: Sequence[str]) -> str:
    """What of the promises in ``said`` is broken below ``root``; empty if nothing is. Opens it as a restart does."""
    try:
        return (
            _judge_out(root, said)
            if kind == "out"
            else _judge_in(root, said, sealing_too=kind == "seal")
        )
    except Exception as error:  # whatever it is: after a crash it must open, read and go on
        return f"{type(error).__name__}: {error}"


def _judge_in(root: Path, said: Sequence[str], *, sealing_too: bool) -> str:
    answered: dict[int, int] = {}
    for line in said:
        _, number, sequence = line.split()
        answered[int(number)] = int(sequence) or answered.get(int(number), 0)
    inbox = Inbox(root, lambda line: None)
    try:
        if inbox.directory.changed is not None and said:
            return f"a new epoch began: {inbox.directory.changed}"
        if inbox.missing:
            return f"segments are gone: {inbox.missing}"
        delta: Counter[tuple[str, int, int]] = Counter()
        if sealing_too:
            Housekeeping(inbox, root).publish()
            delta = published(root)
        before = _all_rows(inbox.rows(), delta)
        for number, sequence in answered.items():
            if sequence and before.get((queue_of(number), sequence)) not in (number, None):
                return (
                    f"sequence {sequence} of {queue_of(number)} was {number} and is "
                    f"{before[queue_of(number), sequence]}"
                )
        there = set(before.values())
        oracle = _oracle(answered, before)
        if not oracle.verdict().clean:
            return f"{oracle.verdict()}: {_examples(oracle)}"
        top = max([*answered, *there, 1]) + TOGETHER
        first = next(number for number in range(1, top + 2) if number not in there)
        inbox.take(
            range(max(1, first - TOGETHER), top + 1)
        )  # the senders repeat what they heard no answer for, and some more
        if sealing_too:
            Housekeeping(inbox, root).publish()
            delta = published(root)
        after = _all_rows(inbox.rows(), delta)
        oracle = _oracle(range(1, top + 1), after)
        if not oracle.verdict().clean:
            return f"after the repeats {oracle.verdict()}: {_examples(oracle)}"
        if any(count != 1 for count in delta.values()):
            return "a row is twice in Delta"
        for queue in (PLAIN, STREAM):
            sequences = sorted(sequence for name, sequence in after if name == queue)
            if sequences != list(range(1, len(sequences) + 1)):
                return f"{queue} has holes: {sequences}"
        if sealing_too and {
            (queue, sequence, number) for (queue, sequence), number in after.items()
        } != set(delta):
            return "Delta does not hold what the log holds"
        return ""
    finally:
        with suppress(Exception):  # what broke is told above
            inbox.close()


def queue_of(number: int) -> str:
    return STREAM if number % 2 else PLAIN


def _all_rows(
    log: dict[str, list[tuple[int, int]]], delta: Counter[tuple[str, int, int]]
) -> dict[tuple[str, int], int]:
    """Number by queue and sequence, of the log and of what retention has left to Delta alone."""
    found = {(queue, sequence): number for queue, sequence, number in delta}
    for queue, rows in log.items():
        for sequence, number in rows:
            assert found.setdefault((queue, sequence), number) == number, (
                f"{queue} {sequence}: the log and Delta differ"
            )
    return found


def _oracle(acknowledged: Iterable[int], rows: dict[tuple[str, int], int]) -> Oracle:
    oracle = Oracle()
    known = set(acknowledged)
    for number in range(1, max([*known, *rows.values(), 0]) + 1):
        oracle.sent(str(number), stream=STREAM if number % 2 else None)
    for number in sorted(known):
        oracle.acknowledged(str(number))
    for _, number in sorted(rows.items()):
        oracle.landed(str(number))
    return oracle


def _examples(oracle: Oracle) -> str:
    verdict = oracle.verdict()
    return ", ".join(
        [*verdict.lost, *verdict.unexpected, *verdict.doubled, *verdict.disordered][:5]
    )


def _judge_out(root: Path, said: Sequence[str]) -> str:
    committed: dict[int, None] = {}
    numbers: dict[str, tuple[int, int]] = {}
    finishing: dict[str, int] = {}
    finished: dict[str, int] = {}
    for line in said:
        what, *rest = line.split()
        if what == "committed":
            committed[int(rest[0])] = None
        elif what == "sent":
            at = int(rest[1]), int(rest[2])
            if numbers.setdefault(rest[0], at) != at:
                return f"{rest[0]} went out as {numbers[rest[0]]} and as {at}"
        else:
            table = finishing if what == "finishing" else finished
            table[rest[0]] = max(int(rest[1]), table.get(rest[0], 0))
    outgoing = Outgoing(root, lambda line: None, 500)
    try:
        desk = outgoing.desk
        if desk.outbox.held:
            return f"put on hold as a copy: {desk.outbox.database.foreign}"
        last = max(committed, default=-1) + 1
        for again in range(
            max(0, last - 2), last + 2
        ):  # the driver repeats what it heard no answer for
            result = outgoing.send(again)
            wanted = CommitResult(0, BATCH) if again in committed else None
            if wanted not in (result, None) or result not in (
                CommitResult(0, BATCH),
                CommitResult(BATCH, 0),
            ):
                return (
                    f"batch {again} was "
                    f"{'committed' if again in committed else 'not answered'}, and now "
                    f"is {result}"
                )
            committed[again] = None
        for destination in (A, B):
            found = read_all(desk.outbox, QueueKey(destination, "stream"))
            serials = [stored.serial for stored in found]
            bodies = [stored.message.body.decode() for stored in found]
            if serials != sorted(set(serials)) or len(bodies) != len(set(bodies)):
                return f"{destination}: doubled or out of order"
            for stored, body in zip(found, bodies, strict=True):
                at = stored.serial, stored.message.uniquifier
                if numbers.setdefault(body, at) != at:
                    return f"{body} went out as {numbers[body]} and would go out as {at}"
            if serials and serials[0] <= finished.get(destination, 0):
                return f"{destination}: {serials[0]} was finished and waits again"
            done = finishing.get(destination, 0)
            there = {
                body for stored, body in zip(found, bodies, strict=True) if stored.serial > done
            }
            for batch in committed:
                order = [
                    body
                    for body in expected(batch, destination)
                    if numbers.get(body, (done + 1, 0))[0] > done
                ]
                missing = [body for body in order if body not in there]
                if missing:
                    return f"{destination}: lost {missing[:3]} of batch {batch}"
                if [body for body in bodies if body in set(order)] != order:
                    return f"{destination}: batch {batch} is out of order"
        identifiers = [at[1] for at in numbers.values()]
        return (
            "" if len(identifiers) == len(set(identifiers)) else "an identifier was given out twice"
        )
    finally:
        with suppress(Exception):
            outgoing.close()
