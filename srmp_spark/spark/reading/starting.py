"""Where a new query begins and where a batch read ends.

The options are ``startingOffsets``, ``startingTimestamp``, ``endingOffsets`` and
``endingTimestamp``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.sequences.as_json import set_as_json
from srmp_spark.sequences.sequence_set import SequenceSet
from srmp_spark.spark.reading.logs import LogFacts, Logs
from srmp_spark.spark.reading.offsets import Began, LogKey, Position
from srmp_spark.spark.settings.by_queue import ByQueue, ReadQueue, check_named
from srmp_spark.spark.settings.options import (
    EARLIEST,
    LATEST,
    UNRECEIVED,
    Ending,
    SourceOptions,
    Starting,
)

TAKEN_TEXT_MAX = 1 << 20
"""Largest length, in characters, of the left-out rows in an offset.

This length is enough for some million rows of which every second one is left out. A query that
would need more is refused.
"""


def starting_position(
    key: LogKey, facts: LogFacts, starting: Starting, received: int, client: QueueManagerClient
) -> Position:
    """Return the position before the first row that a new query reads from a log.

    ``received`` is how far the consumer has received the log (only for ``unreceived``). Rows that
    retention has deleted cannot be read, so the query begins no earlier than at the first kept row.
    Raises :class:`ConfigurationError` for a sequence that does not exist yet.
    """
    if starting.timestamp_us is not None:
        first = first_at(client, key.queue, facts, _of(key, client, starting.timestamp_us))
    elif starting.sequences is not None:
        sequence = _of(key, client, starting.sequences)
        first = {EARLIEST: facts.first, LATEST: facts.end + 1}.get(sequence, sequence)
        if first > facts.end + 1:
            raise ConfigurationError(
                f"startingOffsets: {key} ends at {facts.end}; {first} does not exist yet "
                "(use latest)"
            )
    elif starting.keyword == "latest":
        first = facts.end + 1
    elif starting.keyword == "earliest":
        first = facts.first
    else:
        first = received + 1
    first = max(first, facts.first, 1)
    return Position(facts.epoch_of(first), first - 1)


def began_at(
    key: LogKey, position: Position, starting: Starting, consumer: str, client: QueueManagerClient
) -> Began:
    """Return the beginning (:class:`.Began`) that a query at ``position`` notes in its offsets.

    If the query wants unreceived rows, it also notes the later rows that ``consumer`` has received
    out of turn, that is, before rows of lower sequences. Raises :class:`ConfigurationError` if
    these rows are too many to be noted in every offset.
    """
    if starting.keyword != "unreceived":
        return Began(position.sequence + 1)
    taken = SequenceSet()
    for first, last in client.ahead_of(key.queue, consumer, position.sequence):
        taken.add(max(first, position.sequence + 1), last)
    if len(str(set_as_json(taken))) > TAKEN_TEXT_MAX:
        raise ConfigurationError(
            f"consumer {consumer} has received {len(taken)} rows of {key} out of turn, "
            "too scattered for a new query to leave "
            "them out: let the receiver of these rows continue, or begin with "
            "startingOffsets earliest, which reads them again"
        )
    return Began(position.sequence + 1, taken)


def of_newcomer(
    key: LogKey, starting: Starting, client: QueueManagerClient, *, joined: bool
) -> Starting:
    """Return the rule by which a running query begins to read a log that it meets later.

    ``joined`` says that the query met the log at a restart, or that another receiver held it. Then
    the log may have rows from before the query. If an offsets JSON does not name the log, the query
    reads what its consumer has not received.
    """
    if starting.keyword == "unreceived":
        return starting
    if not joined:
        return Starting("earliest")
    if starting.by_queue is not None and _read(key, client).value_in(starting.by_queue) is None:
        return UNRECEIVED
    return starting


def ending_sequence(
    key: LogKey, facts: LogFacts, ending: Ending, client: QueueManagerClient
) -> int:
    """Return the sequence of the last row of a batch read.

    With ``endingTimestamp`` it is the row before the first row that arrived at or after that time.
    So every row that is read arrived before that time. A later read that begins there
    (``startingTimestamp``) has all rows that this read does not have. Raises
    :class:`ConfigurationError` for a sequence that does not exist.
    """
    if ending.timestamp_us is not None:
        return first_at(client, key.queue, facts, _of(key, client, ending.timestamp_us)) - 1
    sequence = LATEST if ending.sequences is None else _of(key, client, ending.sequences)
    if sequence > facts.end:
        raise ConfigurationError(
            f"endingOffsets: {key} ends at {facts.end}; {sequence} does not exist"
        )
    return facts.end if sequence == LATEST else sequence


def check_starting(starting: Starting, logs: Logs, keys: Iterable[LogKey]) -> None:
    """Raise :class:`ConfigurationError` unless a JSON names every queue that is read.

    The JSON must name no other queue.
    """
    reads = [_read(key, logs.client(key)) for key in keys]
    check_named(
        "startingOffsets", starting.sequences, reads, f" ({EARLIEST} = earliest, {LATEST} = latest)"
    )
    check_named(
        "startingTimestamp", starting.by_queue if starting.sequences is None else None, reads, ""
    )


def check_ending(ending: Ending, logs: Logs, keys: Iterable[LogKey]) -> None:
    """Check that the ending options name exactly the queues that are read.

    The options are ``endingOffsets`` and ``endingTimestamp``. Raises :class:`ConfigurationError`
    like :func:`check_starting`.
    """
    reads = [_read(key, logs.client(key)) for key in keys]
    check_named("endingOffsets", ending.sequences, reads, f" ({LATEST} = latest)")
    check_named("endingTimestamp", ending.by_queue if ending.sequences is None else None, reads, "")


def _read(key: LogKey, client: QueueManagerClient) -> ReadQueue:
    return ReadQueue(key.queue_manager, client.url, key.queue)


def _of(key: LogKey, client: QueueManagerClient, values: int | ByQueue) -> int:
    if isinstance(values, int):
        return values
    value = _read(key, client).value_in(values)
    assert value is not None, f"{key} was checked to be named"
    return value


def starting_positions(
    logs: Logs,
    found: Mapping[LogKey, LogFacts],
    options: SourceOptions,
    received: Mapping[LogKey, int],
) -> dict[LogKey, Position]:
    """Return for every log the position before the first row that a new query reads.

    :func:`starting_position` computes each of them. Raises :class:`ConfigurationError` if the
    options do not fit the logs.
    """
    check_starting(options.starting, logs, found)
    return {
        key: starting_position(
            key, facts, options.starting, received.get(key, facts.received), logs.client(key)
        )
        for key, facts in found.items()
    }


def first_at(client: QueueManagerClient, queue: str, facts: LogFacts, timestamp_us: int) -> int:
    """Return the first kept sequence that arrived at ``timestamp_us`` or later, or ``end + 1``.

    ``timestamp_us`` is in microseconds since 1970, UTC. ``end + 1`` means that no row arrived so
    late. The times of a log need not ascend, because a clock may have been set back. So the queue
    manager compares all of them.
    """
    for epoch, _, _ in facts.pieces(facts.first - 1, facts.end):
        found = client.first_since(queue, epoch=epoch, since=timestamp_us)
        if found is not None:
            return min(found, facts.end + 1)
    return facts.end + 1
