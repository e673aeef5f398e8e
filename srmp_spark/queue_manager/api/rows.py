"""Calls of readers: ``range``, ``rows``, ``holes`` and ``first`` of ``queues/{q}``.

A range (after, to] excludes the sequence ``after`` and includes ``to``. The reader process
(:mod:`srmp_spark.queue_manager.reader`) reads the rows.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from srmp_spark.errors import ApiError
from srmp_spark.interface import (
    ANOTHER_QUEUE_MANAGER,
    ARROW_STREAM,
    DENSE_STREAM,
    PAST_THE_END,
    QUEUE_MANAGER_HEADER,
    TRIMMED,
)
from srmp_spark.queue_manager.api.port_side.connection import Connection
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.queue_manager.child.link import DirectAnswer, ReadRefusedError
from srmp_spark.queue_manager.queues.catalogue import EpochSpan, Queue
from srmp_spark.queue_manager.reader.crossing import (
    BatchEnd,
    CountHoles,
    FindBatchEnd,
    FindFirstSince,
    FirstRowSince,
    HoleCount,
    ReadRows,
)
from srmp_spark.queue_manager.reader.link import DAMAGED
from srmp_spark.rows.columns import KINDS, NAMES

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

WAIT_SECONDS_MAX = 10.0
"""Longest wait of ``range`` for a new row (long poll), in seconds.

A longer ``wait`` is cut to this time.
"""


class RowsApi:
    """Handles ``range``, ``rows``, ``holes`` and ``first`` of a queue."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._unreadable: dict[str, tuple[int, int]] = {}
        """The last range (after, to] whose read found damaged rows, by queue."""

    async def range(self, request: Request) -> Response:
        """Answer ``GET range?epoch&after&max_rows&max_bytes&wait&peek``: which rows can be read.

        The answer is ``{"epoch","first","last","end"}``. It states the sequences of the existing
        rows (``first`` to ``end``), and ``last``, the last row of a batch that begins after
        ``after`` and respects the limits. Without ``after`` the batch begins at ``first``. If there
        is no new row, the call waits up to ``wait`` seconds, and at most WAIT_SECONDS_MAX. For an
        epoch that is not the newest, ``next_epoch`` names the one after it, and the call does not
        wait. While the readers of the queue are paused, ``after`` counts as the end, and the answer
        has ``"paused": true``; a caller with ``peek=1``, or without ``after``, is not concerned.
        Raises a 409 for an unknown epoch, or if ``after`` is past the end of the epoch, and a 410
        for rows that retention has deleted.
        """
        self._manager.read_at = self._manager.clock.monotonic()
        queue = self._manager.catalogue.find(request.parameters["queue"])
        epoch = request.text("epoch")
        after = request.integer("after")
        max_rows = request.integer("max_rows", low=1)
        max_bytes = request.integer("max_bytes", low=1)
        wait = request.seconds("wait", high=WAIT_SECONDS_MAX)
        receives = after is not None and request.text("peek", "0") != "1"
        span = queue.span(epoch)
        if after is None:
            after = span.first - 1
        after = _after(queue, span, after)
        deadline = self._manager.clock.monotonic() + wait
        while (
            (span.end <= after or (receives and queue.paused_out))
            and (span.next_epoch is None or span.end > after)
            and (left := deadline - self._manager.clock.monotonic()) > 0
        ):
            await queue.changed(left)
            queue = self._manager.catalogue.find(queue.name)
            span = queue.span(span.epoch)
            after = _after(queue, span, after)
        if receives and queue.paused_out and span.end > after:
            told = {"epoch": span.epoch, "first": span.first, "last": after, "end": after}
            return Response.json(told | {"paused": True})
        last = span.end if max_rows is None else min(span.end, queue.behind_hole(after) + max_rows)
        if max_bytes is not None and last > after:
            command = FindBatchEnd(
                request.caller, queue.log_name, span.epoch, after, last, max_bytes
            )
            last = (await self._manager.reader.ask(command, BatchEnd)).last
        answer: dict[str, object] = {
            "epoch": span.epoch,
            "first": span.first,
            "last": last,
            "end": span.end,
        }
        if span.next_epoch is not None:
            answer["next_epoch"] = span.next_epoch
        return Response.json(answer)

    async def holes(self, request: Request) -> Response:
        """Answer ``GET holes?epoch&after&to``: count the sequences in (after, to] without a row.

        The answer is ``{"epoch","count"}``. The rows were purged, given up by an operator, or lost.
        Readers that count rows need this number. Raises a 409 for an unknown epoch.
        """
        queue = self._manager.catalogue.find(request.parameters["queue"])
        span = queue.span(request.text("epoch"))
        command = CountHoles(
            request.caller,
            queue.log_name,
            request.required_integer("after"),
            request.required_integer("to"),
        )
        found = await self._manager.reader.ask(command, HoleCount)
        return Response.json({"epoch": span.epoch, "count": found.count})

    async def first(self, request: Request) -> Response:
        """Answer ``GET first?epoch&since&after``: the first row that arrived at or after ``since``.

        The answer is ``{"epoch","sequence","looked_to","end"}``. Only rows after the sequence
        ``after`` count. ``since`` is in microseconds since 1970. One call searches for two seconds.
        If no such row was found, ``sequence`` is null, ``looked_to`` states the last sequence that
        was examined, and the caller continues from that sequence.
        """
        queue = self._manager.catalogue.find(request.parameters["queue"])
        span = queue.span(request.text("epoch"))
        command = FindFirstSince(
            request.caller,
            queue.log_name,
            span.epoch,
            request.integer("after") or 0,
            request.required_integer("since"),
        )
        found = await self._manager.reader.ask(command, FirstRowSince)
        return Response.json({"epoch": span.epoch} | asdict(found))

    async def rows(self, request: Request) -> Response:
        """Answer ``GET rows``: the rows of (after, to] as an Arrow stream, or as a dense stream.

        A dense stream has the stored pieces unchanged, and is sent if ``Accept`` names
        ``application/vnd.srmp-spark.log``. The query is
        ``?epoch&after&to[&envelope=1][&columns][&queue_manager]``. Raises a 409 if
        ``queue_manager`` is given and names another queue manager, or if the range ends past the
        end of the epoch. Raises a 410 for rows that retention has deleted, and a 400 for an invalid
        query. Raises the errors of the reader process, for example for damaged rows. Such an error
        may also end an answer that has begun: then the connection is cut.
        """
        self._manager.read_at = self._manager.clock.monotonic()
        ours = self._checked_queue_manager(request)
        queue = self._manager.catalogue.find(request.parameters["queue"])
        span = queue.span(request.text("epoch"))
        after = request.required_integer("after")
        to = request.required_integer("to")
        envelope = request.text("envelope", "0")
        if envelope not in ("0", "1", "true", "false"):
            raise usage("envelope is 1 or 0")
        columns = _columns(request.text("columns"))
        if to < after:
            raise usage("to is less than after")
        after = _after(queue, span, after)
        if to > span.end:
            raise ApiError(
                409,
                PAST_THE_END,
                f"epoch {span.epoch} of {queue.name} ends at {span.end}, not {to}",
                "ask for its range",
            )
        dense = DENSE_STREAM in request.headers.get("accept", "")
        if request.method == "HEAD":
            # No read is begun, because its rows would not be sent.
            return Response(
                content_type=DENSE_STREAM if dense else ARROW_STREAM,
                headers=((QUEUE_MANAGER_HEADER, ours),),
            )
        command = ReadRows(
            request.caller,
            queue.log_name,
            queue.name,
            span.epoch,
            after,
            to,
            envelope=envelope in ("1", "true"),
            columns=columns,
            dense=dense,
            direct=dense and request.connection is not None,
        )
        try:
            if dense and request.connection is not None:
                answer = await self._manager.reader.open_direct(command)
                return Response(
                    content_type=DENSE_STREAM,
                    headers=((QUEUE_MANAGER_HEADER, ours),),
                    direct=partial(self._lent, queue, after, to, answer, request.connection),
                )
            pieces = await self._manager.reader.open(command)
        except ApiError as error:
            self._note_damage(queue, after, to, error)
            raise
        return Response(
            content_type=DENSE_STREAM if dense else ARROW_STREAM,
            headers=((QUEUE_MANAGER_HEADER, ours),),
            stream=self._through_here(queue, after, to, pieces),
        )

    def _checked_queue_manager(self, request: Request) -> str:
        """Return the identity of this queue manager. Raise a 409 if the caller means another."""
        ours = self._manager.directory.queue_manager
        if request.text("queue_manager", ours) != ours:
            message = (
                "these rows were planned with queue manager "
                f"{request.text('queue_manager')}, this one is {ours}"
            )
            hint = (
                "a proxy between the caller and the queue managers must not spread the "
                "calls over several of them"
            )
            raise ApiError(409, ANOTHER_QUEUE_MANAGER, message, hint, "INTERFACE.md section 4")
        return ours

    async def _through_here(
        self, queue: Queue, after: int, to: int, pieces: AsyncGenerator[bytes, None]
    ) -> AsyncGenerator[bytes, None]:
        """Yield the reader process's ``pieces`` unchanged, and close them at the end.

        An error about damaged rows is noted for ``status`` (:meth:`_noting_damage`) and raised.
        """
        try:
            with self._noting_damage(queue, after, to):
                async for piece in pieces:
                    yield piece
        finally:
            await pieces.aclose()

    async def _lent(
        self, queue: Queue, after: int, to: int, answer: DirectAnswer, connection: Connection
    ) -> None:
        """Let the reader process write the rows into the caller's connection, and wait for its end.

        If that fails, the connection is cut, and the errors of :meth:`.DirectAnswer.write_to` are
        raised. A caller that disconnects is no error. ``answer`` is closed at the end.
        """
        done = False
        try:
            with self._noting_damage(queue, after, to):
                await answer.write_to(await connection.flushed())
            done = True
        except ConnectionResetError:
            if not connection.is_lost:
                raise
        finally:
            answer.close()
            if not done:
                # The reader process may still be writing.
                connection.cut()

    @contextmanager
    def _noting_damage(self, queue: Queue, after: int, to: int) -> Iterator[None]:
        """Note for ``status`` if a read of (after, to] in the context finds damaged rows.

        The error is raised again. If the read succeeds and (after, to] contains the noted range,
        the note is removed.
        """
        try:
            yield
        except ReadRefusedError as error:
            self._note_damage(queue, after, to, error.refusal)
            raise
        low, high = self._unreadable.get(queue.name, (0, 0))
        if after <= low and high <= to:
            self._unreadable.pop(queue.name, None)
            queue.damage.pop("read", None)

    def _note_damage(self, queue: Queue, after: int, to: int, error: ApiError) -> None:
        if error.code == DAMAGED:
            queue.damage["read"] = error.message
            self._unreadable[queue.name] = after, to


def _columns(text: str | None) -> tuple[str, ...]:
    """Return the columns that ``text`` names (separated by commas), or all columns for ``None``.

    Raises a 400 for an unknown column, or one that is named twice.
    """
    if text is None:
        return NAMES
    names = tuple(text.split(","))
    unknown = [name for name in names if name not in KINDS]
    if unknown or len(set(names)) < len(names):
        raise usage(
            f"columns names {unknown[0][:100]!r}, which no row has"
            if unknown
            else "columns names one of them twice"
        )
    return names


def _after(queue: Queue, span: EpochSpan, after: int) -> int:
    """Return the sequence after which reading begins: ``after``, but not before the epoch.

    Raises a 409 past the end of the epoch, and a 410 for rows that retention has deleted.
    """
    if after > span.end:
        raise ApiError(
            409,
            PAST_THE_END,
            f"epoch {span.epoch} of {queue.name} ends at {span.end}, before {after}",
            "the reader has seen more rows than the queue manager has: was the data "
            "directory replaced by an older copy?",
        )
    after = max(after, span.begin - 1)
    if after < span.first - 1:
        raise ApiError(
            410,
            TRIMMED,
            f"rows {after + 1} to {span.first - 1} of {queue.name} were deleted by retention, by "
            "`queue trim`, or with an earlier queue of this name",
            f"continue at {span.first}; --retention-hours sets how long rows are kept",
        )
    return after
