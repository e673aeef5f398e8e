"""Calls of ``queues/{q}/consumers/{c}``: register, received, release, marks and delete.

INTERFACE.md section 1 describes consumers. The *mark* of a consumer is the sequence up to which it
has received all rows.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.names import FORWARD_QUEUE
from srmp_spark.queue_manager.api.port_side.http import (
    MARKS_BODY_MAX,
    Request,
    Response,
    field_integer,
    field_text,
    usage,
)
from srmp_spark.queue_manager.api.port_side.times import rfc3339
from srmp_spark.queue_manager.queues.consumers import SEQUENCES_MAX, Consumer, parse_holder
from srmp_spark.srmp.receiving.decisions import Reason

if TYPE_CHECKING:
    from srmp_spark.queue_manager.queues.catalogue import Queue
    from srmp_spark.queue_manager.service import QueueManager

AHEAD_RUNS_TOLD_MAX = 1_000
"""Runs of received sequences beyond the mark in one answer.

This number takes less than a millisecond in the loop. If there are more runs, ``ahead_after``
states where the next answer continues.
"""


class ConsumersApi:
    """Handles the calls of ``queues/{q}/consumers/{c}`` and the paths below it."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager

    async def register(self, request: Request) -> Response:
        """Answer ``POST register``: take the lease of the consumer, or renew it.

        The body is ``{"epoch","from","holder"[,"ranged"]}``. ``from`` is the first sequence that
        the caller reads. ``holder`` is a text or an object that names the caller. ``ranged`` states
        that later calls of ``received`` name the sequence at which they begin. The answer is
        ``{"epoch","received","ahead","ahead_after","lease_until","queue_manager"}``. The call waits
        while another holder has the lease. Raises a 409 as soon as that holder renews the lease, or
        if the queue has no such epoch. Raises a 404 if the queue is unknown or is deleted
        meanwhile, a 400 for the consumer ``default`` of ``private$/forward$``, and
        :class:`ConnectionResetError` if the caller disconnects.
        """
        body = await request.json_object()
        # Look the queue up now: while the body was read, another queue may have taken the name.
        queue = self._manager.catalogue.find(request.parameters["queue"])
        _check_not_ours(queue, request.parameters["consumer"])
        span = queue.span(field_text(body, "epoch"))
        planned = field_integer(body, "from", low=1)
        ranged, holder = _true_or_false(body, "ranged"), parse_holder(body.get("holder"))
        gone = asyncio.Event()
        watcher = asyncio.create_task(_watch(request, gone))
        try:
            consumer = await self._manager.leases.register(
                queue, request.parameters["consumer"], holder, planned, gone, ranged=ranged
            )
        finally:
            watcher.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await watcher
        return Response.json(
            {
                "epoch": span.epoch,
                **_marks(consumer, 0),
                "lease_until": rfc3339(consumer.lease_until),
                "queue_manager": self._manager.directory.queue_manager,
            }
        )

    async def marks(self, request: Request) -> Response:
        """Answer ``GET consumers/{c}?after=N``: the mark, and received sequences beyond it.

        The answer is ``{"received","ahead","ahead_after"}``, as in the answer to ``register``. Only
        sequences after ``N`` are listed, which is 0 if it is not given, as runs (first, last), at
        most AHEAD_RUNS_TOLD_MAX; the next ones follow with ``after`` = ``ahead_after``. Nothing is
        changed. An unknown queue or consumer raises a 404.
        """
        queue, name = (
            self._manager.catalogue.find(request.parameters["queue"]),
            request.parameters["consumer"],
        )
        consumer = queue.consumers.get(name)
        if consumer is None:
            said = f"queue {queue.name} has no consumer {name}"
            raise ApiError(404, "unknown-consumer", said, "srmp-spark consumers QUEUE lists them")
        return Response.json(_marks(consumer, request.integer("after") or 0))

    async def received(self, request: Request) -> Response:
        """Answer ``POST received``: store that the consumer has received rows.

        The body is ``{"epoch","to","holder"[,"from"][,"sequences"][,"rejected"]}``. ``sequences``
        lists the rows. Otherwise they are the rows ``from`` to ``to``, both included; without
        ``from`` they begin where the caller's lease began to read. The answer ``{"received"}``
        states the consumer's mark, and is sent when the marks are on stable storage. ``rejected``
        states that the application has read these rows and does not want them. A sender that asked
        for a decision is notified of the rejection. Only the default consumer decides, so another
        one that rejects raises a 400. Raises a 409 if ``holder`` does not have the lease, or if a
        row is past the end of the epoch.
        """
        body = await request.json_object(MARKS_BODY_MAX)
        queue = self._manager.catalogue.find(request.parameters["queue"])
        _check_not_ours(queue, request.parameters["consumer"])
        span = queue.span(field_text(body, "epoch"))
        to = field_integer(body, "to")
        first = field_integer(body, "from", low=1)
        sequences = _sequences(body)
        if to is None and sequences is None:
            raise usage("to is missing")
        name, holder = request.parameters["consumer"], parse_holder(body.get("holder"))
        reason = _reason(body, name)
        consumer = await self._manager.leases.received(
            queue, span, name, holder, to, sequences, first=first, reason=reason
        )
        return Response.json({"received": consumer.received})

    async def delete(self, request: Request) -> Response:
        """Answer ``DELETE consumers/{c}``: delete the consumer and its marks durably.

        The answer is ``{}``. Raises a 409 while somebody holds its lease, a 404 for an unknown
        consumer, and a 400 for the consumer ``default``. Raises the errors of
        :meth:`.Leases.delete_consumer`.
        """
        queue = self._manager.catalogue.find(request.parameters["queue"])
        _check_not_ours(queue, request.parameters["consumer"])
        await self._manager.leases.delete_consumer(queue, request.parameters["consumer"])
        return Response.json({})

    async def release(self, request: Request) -> Response:
        """Answer ``POST release {"holder"}``: end the lease of this holder durably.

        If ``holder`` does not have the lease of the consumer, that is logged, nothing changes, and
        the answer is the same.
        """
        body = await request.json_object()
        queue = self._manager.catalogue.find(request.parameters["queue"])
        await self._manager.leases.release(
            queue, request.parameters["consumer"], parse_holder(body.get("holder"))
        )
        return Response.json({})


def _marks(consumer: Consumer, after: int) -> dict[str, object]:
    """Return the marks of a consumer as the fields ``received``, ``ahead`` and ``ahead_after``.

    ``received`` is the sequence up to which (included) all rows are received. ``ahead`` lists the
    runs (first, last) of received sequences beyond it. Only runs after the sequence ``after`` are
    listed, at most AHEAD_RUNS_TOLD_MAX. ``ahead_after`` is the sequence after which the next runs
    must be asked for, or ``None`` if there are no more.
    """
    runs = list(islice(consumer.ahead.runs(max(after, 0) + 1), AHEAD_RUNS_TOLD_MAX + 1))
    told = runs[:AHEAD_RUNS_TOLD_MAX]
    more = told[-1][1] if len(runs) > len(told) else None
    return {"received": consumer.received, "ahead": told, "ahead_after": more}


def _check_not_ours(queue: Queue, consumer: str) -> None:
    """Raise a 400 for the default consumer of the queue ``private$/forward$``.

    Rows that this consumer has received are deleted later, so only the sender process may mark
    them.
    """
    if queue.name == FORWARD_QUEUE and consumer == queue.default.name:
        message = (
            f"consumer {consumer} of {FORWARD_QUEUE} is the sender process, and "
            "only the sender process knows which messages are forwarded"
        )
        hint = (
            "read the queue as another consumer, or use peek; `srmp-spark purge` "
            "discards the waiting messages"
        )
        raise ApiError(400, "reserved-queue", message, hint)


def _sequences(body: Mapping[str, object]) -> list[int] | None:
    value = body.get("sequences")
    if value is None:
        return None
    if (
        not isinstance(value, list)
        or len(value) > SEQUENCES_MAX
        or not all(type(each) is int and 0 < each < 2**63 for each in value)
    ):
        raise usage(f"sequences is a list of at most {SEQUENCES_MAX} whole numbers above 0")
    return value


def _true_or_false(body: Mapping[str, object], name: str) -> bool:
    value = body.get(name, False)
    if not isinstance(value, bool):
        raise usage(f"{name} is true or false")
    return value


def _reason(body: Mapping[str, object], consumer: str) -> Reason:
    rejected = _true_or_false(body, "rejected")
    if rejected and consumer != DEFAULT_CONSUMER:
        raise usage(
            f"consumer {consumer} decides nothing",
            f"rows are rejected by the consumer {DEFAULT_CONSUMER}",
        )
    return Reason.REJECTED if rejected else Reason.RECEIVED


async def _watch(request: Request, gone: asyncio.Event) -> None:
    """Set ``gone`` when the caller disconnects, because it must not be granted a lease then.

    This returns only after the caller has disconnected.
    """
    while (await request.receive())["type"] != "http.disconnect":
        pass
    gone.set()
