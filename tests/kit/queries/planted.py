"""Planted bugs: repairs of the reader are removed, and the model must find each removal."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

from srmp_spark.client.api import QueueManagerClient, Registration
from srmp_spark.spark.reading import marks, stream_reader
from srmp_spark.spark.reading.offsets import AT_THE_FIRST, Began, LogKey, Offsets, Position
from srmp_spark.spark.settings.options import Starting

# The bugs are planted in this private class.
_Driver = stream_reader._Driver  # noqa: SLF001
Marks = marks.Marks


def _mark_what_the_queue_manager_thinks(
    self: Any,  # noqa: ANN401
    key: LogKey,
    position: Position,
    first: int | None,
    taken: object,
    client: QueueManagerClient,
) -> int:
    holder = self._keeper.holder
    return client.received(
        key.queue, self._consumer, epoch=position.epoch, to=position.sequence, holder=holder
    )


def _lease_with_a_plan(self: Any, key: LogKey, client: QueueManagerClient) -> Registration:  # noqa: ANN401  # Marks
    return self._keeper.acquire(client, key.queue, self._consumer)  # type: ignore[no-any-return]


def _begin_with_a_plan(self: Any, key: LogKey, first: int | None = None) -> int:  # noqa: ANN401  # Marks
    answer = self._keeper.acquire(self._logs.client(key), key.queue, self._consumer, first=first)
    self._sent[key] = Position(
        answer.epoch, answer.received if first is None else max(answer.received, first - 1)
    )
    return int(answer.received)


def _begin_at_the_start(self: Any, start: Offsets, end: Offsets) -> dict[LogKey, Began]:  # noqa: ANN401  # _Driver
    return {
        key: Began(start[key].sequence + 1, start.began.get(key, AT_THE_FIRST).left_out)
        for key, to in end.items()
        if key in start and start[key].epoch == to.epoch
    }


def _mark_what_was_left_out(
    self: Any,  # noqa: ANN401
    key: LogKey,
    position: Position,
    first: int | None,
    taken: object,
    client: QueueManagerClient,
) -> int:
    holder = self._keeper.holder
    return client.received(
        key.queue,
        self._consumer,
        epoch=position.epoch,
        first=first,
        to=position.sequence,
        holder=holder,
    )


_newcomers = _Driver._newcomers  # noqa: SLF001


def _newcomers_of_any_name(self: Any, start: Offsets) -> dict[LogKey, tuple[Position, Began]]:  # noqa: ANN401  # _Driver
    if self._goal is None:
        return _newcomers(self, start)
    with mock.patch.object(self._logs, "check_names"):
        return _newcomers(self, start)


def _newcomers_of_a_query_that_began(
    self: Any,  # noqa: ANN401
    start: Offsets,
) -> dict[LogKey, tuple[Position, Began]]:
    if self._initial is not None:
        self._looked |= set(self._logs.managers)
    with mock.patch.object(self, "_retained", {}):
        return _newcomers(self, start)


PLANTS: dict[str, tuple[tuple[object, str, Callable[..., object]], ...]] = {
    "mark-covers-what-nobody-read": (
        (Marks, "_mark", _mark_what_the_queue_manager_thinks),
        (Marks, "_lease", _lease_with_a_plan),
        (Marks, "begin", _begin_with_a_plan),
    ),
    "available-now-takes-any-name": ((_Driver, "_newcomers", _newcomers_of_any_name),),
    "unreceived-ignores-out-of-turn": (
        (stream_reader, "began_at", lambda key, position, *_: Began(position.sequence + 1)),
    ),
    "joined-queue-from-its-beginning": (
        (stream_reader, "of_newcomer", lambda key, starting, *, joined: Starting("earliest")),
    ),
    "mark-covers-what-was-left-out": ((Marks, "_mark", _mark_what_was_left_out),),
    "first-batch-again-from-a-new-beginning": ((_Driver, "_beginnings", _begin_at_the_start),),
    "queue-that-joins-with-the-first-batch-again": (
        (_Driver, "_newcomers", _newcomers_of_a_query_that_began),
    ),
}
"""Name of a bug → the replacements (owner, attribute, value) that plant it.

The first four bugs are bugs that users met.
"""


@contextlib.contextmanager
def planted(name: str | None) -> Iterator[None]:
    """Plant the bug ``name`` while the context lasts. ``None`` plants nothing."""
    with contextlib.ExitStack() as stack:
        for owner, attribute, value in () if name is None else PLANTS[name]:
            stack.enter_context(mock.patch.object(owner, attribute, value))
        yield
