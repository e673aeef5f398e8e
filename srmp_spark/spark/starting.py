"""Where a new query begins and a batch read ends (``startingOffsets``, ``startingTimestamp``, ``endingOffsets``)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.sequences.as_json import set_as_json
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.spark.logs import LogFacts, Logs
from srmp_spark.spark.offsets import Began, LogKey, Position
from srmp_spark.spark.options import EARLIEST, LATEST, UNRECEIVED, SourceOptions, Starting

TAKEN_TEXT_MAX = 1 << 20
"""Characters of what a query leaves out, in each of its offsets: some million rows that every second one was taken from."""


def starting_position(key: LogKey, facts: LogFacts, starting: Starting, received: int, client: QueueManagerClient) -> Position:
    """Return the position before the first row that a new query reads from a log.

    ``received``: how far the consumer has received it (``unreceived`` only). What retention has deleted cannot be asked for:
    the first retained row is the least.
    """
    if starting.timestamp_us is not None:
        first = first_at(client, key.queue, facts, starting.timestamp_us)
    elif starting.sequences is not None:
        sequence = starting.sequences[key.queue]
        first = {EARLIEST: facts.first, LATEST: facts.end + 1}.get(sequence, sequence)
        if first > facts.end + 1:
            raise ConfigurationError(f"startingOffsets: {key} ends at {facts.end}; {first} does not exist yet (use latest)")
    elif starting.keyword == "latest":
        first = facts.end + 1
    elif starting.keyword == "earliest":
        first = facts.first
    else:
        first = received + 1
    first = max(first, facts.first, 1)
    return Position(facts.epoch_of(first), first - 1)


def began_at(
    key: LogKey, position: Position, facts: LogFacts, starting: Starting, consumer: str, client: QueueManagerClient
) -> Began:
    """Return what a query notes that begins at ``position``: also which rows beyond it ``consumer`` has received out of turn,
    if it wants those that are not received.

    Raises :class:`ConfigurationError` if these are too many to be noted in every offset.
    """
    if starting.keyword != "unreceived":
        return Began(position.sequence + 1)
    taken = SequenceSet()
    for first, last in client.ahead_of(key.queue, consumer, position.sequence):
        if first > facts.end:
            break
        taken.add(max(first, position.sequence + 1), last)
    if len(str(set_as_json(taken))) > TAKEN_TEXT_MAX:
        raise ConfigurationError(
            f"consumer {consumer} has received {len(taken)} rows of {key} out of turn, too scattered for a new query to leave "
            "them out: let the receiver that took them go on, or begin with startingOffsets earliest, which reads them again"
        )
    return Began(position.sequence + 1, taken)


def of_newcomer(key: LogKey, starting: Starting, *, joined: bool) -> Starting:
    """Return the rule by which a query begins to read a log that it meets later; ``joined``: at a restart, so the log may have
    rows from before the query.

    An offsets JSON that does not name it says nothing of it: what its consumer has not received is read.
    """
    if starting.keyword == "unreceived":
        return starting
    if not joined:
        return Starting("earliest")
    if starting.sequences is not None and key.queue not in starting.sequences:
        return UNRECEIVED
    return starting


def ending_sequence(key: LogKey, facts: LogFacts, ending: Mapping[str, int] | None) -> int:
    """The last row of a batch read."""
    if ending is None or ending[key.queue] == LATEST:
        return facts.end
    if ending[key.queue] > facts.end:
        raise ConfigurationError(f"endingOffsets: {key} ends at {facts.end}; {ending[key.queue]} does not exist")
    return ending[key.queue]


def check_named(option: str, named: Mapping[str, int] | None, keys: Iterable[LogKey]) -> None:
    """An offsets JSON names every queue that is read, and no other. Raises :class:`ConfigurationError`."""
    if named is None:
        return
    queues = {key.queue for key in keys}
    for queue in named:
        if queue not in queues:
            close = difflib.get_close_matches(queue, queues, 1, 0.5)
            advice = f"did you mean {close[0]!r}?" if close else f"the query reads {', '.join(sorted(queues)) or 'none'}"
            raise ConfigurationError(f"{option} names {queue!r}, which the query does not read; {advice}")
    for queue in sorted(queues):
        if queue not in named:
            raise ConfigurationError(
                f"{option} does not name {queue!r}; name every queue ({EARLIEST} = earliest, {LATEST} = latest)"
            )


def starting_positions(
    logs: Logs, found: Mapping[LogKey, LogFacts], options: SourceOptions, received: Mapping[LogKey, int]
) -> dict[LogKey, Position]:
    """:func:`starting_position` of every log."""
    check_named("startingOffsets", options.starting.sequences, found)
    return {
        key: starting_position(key, facts, options.starting, received.get(key, facts.received), logs.client(key))
        for key, facts in found.items()
    }


def first_at(client: QueueManagerClient, queue: str, facts: LogFacts, timestamp_us: int) -> int:
    """Return the first retained sequence that arrived at or after a time; ``end + 1`` if none did.

    The times of a log need not ascend, because a clock may have been set back: the queue manager looks at all of them.
    """
    for epoch, _, _ in facts.pieces(facts.first - 1, facts.end):
        found = client.first_since(queue, epoch=epoch, since=timestamp_us)
        if found is not None:
            return min(found, facts.end + 1)
    return facts.end + 1
