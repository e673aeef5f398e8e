"""Where a new query begins, and where a batch read ends (options ``startingOffsets``, ``startingTimestamp``, ``endingOffsets``)."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping

import pyarrow as pa

from srmp_spark.client.api import QueueManagerClient, QueueRange
from srmp_spark.errors import ConfigurationError
from srmp_spark.spark.logs import Logs
from srmp_spark.spark.offsets import LogKey, Position
from srmp_spark.spark.options import EARLIEST, LATEST, SourceOptions, Starting


def starting_position(
    key: LogKey, found: QueueRange, starting: Starting, received: int, client: QueueManagerClient
) -> Position:
    """The position before the first row that a new query reads from a log, whose retained range is ``found``.

    ``received``: how far the consumer has received it (used by ``unreceived`` only). What retention has deleted cannot be
    asked for: the first retained row is the least.
    """
    if starting.timestamp_us is not None:
        first = first_at(client, key.queue, found, starting.timestamp_us)
    elif starting.sequences is not None:
        sequence = starting.sequences[key.queue]
        first = {EARLIEST: found.first, LATEST: found.end + 1}.get(sequence, sequence)
        if first > found.end + 1:
            raise ConfigurationError(f"startingOffsets: {key} ends at {found.end}; {first} does not exist yet (use latest)")
    elif starting.keyword == "latest":
        first = found.end + 1
    elif starting.keyword == "earliest":
        first = found.first
    else:
        first = received + 1
    return Position(found.epoch, max(first, found.first, 1) - 1)


def ending_position(key: LogKey, found: QueueRange, ending: Mapping[str, int] | None) -> Position:
    """The last row of a batch read."""
    if ending is None or ending[key.queue] == LATEST:
        return Position(found.epoch, found.end)
    if ending[key.queue] > found.end:
        raise ConfigurationError(f"endingOffsets: {key} ends at {found.end}; {ending[key.queue]} does not exist")
    return Position(found.epoch, ending[key.queue])


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
    logs: Logs, keys: Iterable[LogKey], options: SourceOptions, received: Mapping[LogKey, int]
) -> dict[LogKey, Position]:
    """:func:`starting_position` of every log."""
    keys = list(keys)
    check_named("startingOffsets", options.starting.sequences, keys)
    return {
        key: starting_position(key, logs.whole(key), options.starting, received.get(key, 0), logs.client(key)) for key in keys
    }


def first_at(client: QueueManagerClient, queue: str, found: QueueRange, timestamp_us: int) -> int:
    """The first retained sequence that arrived at or after a time; ``end + 1`` if none did.

    Bisection: rows stand in the order in which they arrived, some twenty small reads find one among a million.
    """
    low, high = found.first, found.end + 1
    while low < high:
        middle = (low + high) // 2
        row = _first_row(client, queue, found.epoch, middle - 1, high - 1)
        if row is None or row[1] >= timestamp_us:  # no row from the middle on: only holes
            high = middle
        else:
            low = row[0] + 1
    return low


def _first_row(client: QueueManagerClient, queue: str, epoch: str, after: int, to: int) -> tuple[int, int] | None:
    """(sequence, arrived_at in microseconds) of the first row in (after, to]."""
    step = 1
    while after < to:  # nearly always one round: holes are rare
        with (
            client.rows(queue, epoch=epoch, after=after, to=min(to, after + step)) as stream,
            pa.ipc.open_stream(stream) as reader,
        ):
            for batch in reader:
                if batch.num_rows:
                    return batch.column("sequence")[0].as_py(), batch.column("arrived_at")[0].value
        after += step
        step *= 16
    return None
