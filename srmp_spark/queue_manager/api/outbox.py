"""Calls of ``outbox/{application}/{batch}``: stage, commit and delete batches of a sink.

The rows that a sink writes become messages in two steps (ADR 0010). A *stage* has the rows of one
task of a batch: it is an Arrow stream of at most STAGE_BYTES_MAX bytes. This process does not parse
the stage. The stage is written to a file piece by piece, and synced while further pieces are
received. The sender process checks the stage. A *commit* makes the stages of a batch outgoing
together.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncGenerator, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from io import FileIO, RawIOBase
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from srmp_spark.errors import ApiError
from srmp_spark.private_files import FOLDER_MODE, create_private
from srmp_spark.queue_manager.api.port_side.http import Request, Response, usage
from srmp_spark.queue_manager.api.stage_turns import StageTurn, StageTurns
from srmp_spark.queue_manager.sender.crossing import (
    AddStage,
    BatchResult,
    CommitBatch,
    DeleteStages,
    FindBatchResult,
    StageAdded,
    StagesDeleted,
)
from srmp_spark.queue_manager.sender.link import COMMIT_SECONDS, STAGE_SECONDS
from srmp_spark.store.database.durable import sync_directory
from srmp_spark.store.outbox.errors import FAIL, ON_CONFLICT
from srmp_spark.store.outbox.limits import APPLICATION_LENGTH_MAX, BATCH_STAGES_MAX, STAGE_BYTES_MAX

if TYPE_CHECKING:
    from srmp_spark.queue_manager.service import QueueManager

_T = TypeVar("_T")

PIECE_BYTES = 1_048_576
"""Bytes of a stage that are collected before a thread is called to write them."""
SYNC_BYTES = 32 * 1_048_576
"""Bytes of a stage after which the written part is synced.

The sync runs alongside the following writes, so the disk works while the task still sends.
"""


class OutboxApi:
    """Handles the calls of ``outbox/{application}/{batch}`` and the paths below it."""

    def __init__(self, manager: QueueManager) -> None:
        self._manager = manager
        self._turns = StageTurns(lambda: manager.clock.monotonic())

    async def stage(self, request: Request) -> Response:
        """Answer ``POST stage?partition&attempt``: store the body as a stage, after its check.

        The body is an Arrow IPC stream. The answer is ``{"stage","rows"}``, with ``bad``
        if rows that can never be sent were taken out. The call waits for a place among the stages
        that are received. Raises a 400 if the sender process refuses the stage, a 409 if no queue
        takes the letters about its bad rows, a 413 for too many bytes, and a 503 if the body is too
        slow, the disk is full or no messages are accepted. Raises :class:`ConnectionResetError` if
        the caller disconnects.
        """
        application, batch = _names(request)
        partition = request.required_integer("partition")
        attempt = request.text("attempt")
        if not attempt:
            raise usage(
                "attempt is missing",
                "a task's attempt id: two attempts of one partition must differ",
            )
        self._manager.gate.check()
        async with self._turns.turn(request.caller) as turn:
            name = await self._receive(request, turn)
        added = await self._manager.outgoing.ask(
            AddStage(application, batch, partition, attempt, name),
            StageAdded,
            seconds=STAGE_SECONDS,
        )
        warning = {} if added.warning is None else {"warning": added.warning}
        bad = _bad(added.bad, added.first_bad)
        return Response.json({"stage": added.stage, "rows": added.rows} | bad | warning)

    async def _receive(self, request: Request, turn: StageTurn) -> str:
        """Write the body to a file in the folder of stages, sync it, and return the file's name.

        After an error the file is deleted. Raises the errors of :func:`_pieces`, and a 503 if the
        disk refuses to write.
        """
        folder = self._manager.outgoing.folder
        under_way: set[asyncio.Future[Any]] = set()
        in_thread = partial(_in_thread, under_way)
        name = f"{secrets.token_hex(16)}.arrow"
        path = folder / f"{name}.part"
        file = await in_thread(_create, path)
        syncing: asyncio.Future[None] | None = None
        unsynced = 0
        try:
            async for pieces in _pieces(request, turn):
                await in_thread(_write, file, pieces)
                unsynced += sum(map(len, pieces))
                if unsynced >= SYNC_BYTES and (syncing is None or syncing.done()):
                    if syncing is not None:
                        # Report an error of a sync at once: the kernel reports it once, and the
                        # next sync may seem to succeed.
                        syncing.result()
                    syncing, unsynced = in_thread(_sync, file), 0
            if syncing is not None:
                await syncing
            await in_thread(_finish, file, path, folder / name)
        except BaseException:
            if under_way:
                # Threads still use the file. If it were closed now, its descriptor could belong to
                # another file when they write.
                await asyncio.wait(tuple(under_way))
            await in_thread(_give_up, file, path)
            raise
        return name

    async def commit(self, request: Request) -> Response:
        """Answer ``POST commit``: commit stages as one batch, and count its rows by result.

        The body is ``{"stages":[…], "on_key_conflict": "fail", "allow_loop": false}``. The answer
        ``{"new","known","conflicts","bad"}`` is sent when the batch is on stable storage. Raises a
        400 for an invalid body, and the errors by which the sender process refuses the batch. After
        COMMIT_SECONDS the answer is 503, and the commit may still take place.
        """
        application, batch = _names(request)
        body = await request.json_object()
        unknown = sorted(body.keys() - {"stages", "on_key_conflict", "allow_loop"})
        if unknown:
            known = "known: stages, on_key_conflict, allow_loop"
            hint = (
                f"{known}; order_by and dead_letter are metadata of a stage's schema (INTERFACE.md)"
            )
            raise usage(f"unknown: {', '.join(unknown)[:200]}", hint)
        stages = body.get("stages")
        if not isinstance(stages, list) or not all(isinstance(each, str) for each in stages):
            raise usage("stages is a list of what `stage` answered")
        if len(stages) > BATCH_STAGES_MAX:
            raise usage(
                f"a commit has at most {BATCH_STAGES_MAX} stages", "coalesce into fewer tasks"
            )
        on_conflict = body.get("on_key_conflict", FAIL)
        if on_conflict not in ON_CONFLICT:
            raise usage(f"on_key_conflict is one of {', '.join(ON_CONFLICT)}")
        allow_loop = body.get("allow_loop", False)
        if not isinstance(allow_loop, bool):
            raise usage("allow_loop is true or false")
        command = CommitBatch(application, batch, stages, on_conflict, allow_loop, request.caller)
        found = await self._manager.outgoing.ask(command, BatchResult, seconds=COMMIT_SECONDS)
        for result, rows in _counts(found).items():
            self._manager.metrics.sink_rows[result,] += rows
        return Response.json(_answer(found))

    async def result(self, request: Request) -> Response:
        """Answer ``GET``: the number of rows by result at the last commit of this batch.

        Raises a 404 if no such batch was committed, or it was forgotten, and a 503 if the sender
        process does not answer.
        """
        application, batch = _names(request)
        command = FindBatchResult(application, batch)
        return Response.json(_answer(await self._manager.outgoing.ask(command, BatchResult)))

    async def delete(self, request: Request) -> Response:
        """Answer ``DELETE``: delete the stages of this batch that were not committed.

        The answer is ``{"deleted"}``, their number. Raises a 503 if the sender process does not
        answer.
        """
        application, batch = _names(request)
        command = DeleteStages(application, batch)
        found = await self._manager.outgoing.ask(command, StagesDeleted)
        return Response.json({"deleted": found.deleted})


def _counts(result: BatchResult) -> dict[str, int]:
    """Return the number of rows by result, as the API answers it.

    Without conflicts and bad rows the answer is that of the first release, which callers may
    compare as a whole.
    """
    more = {"conflicts": result.conflicts, "bad": result.bad}
    counts = {"new": result.new, "known": result.known}
    return counts | {name: rows for name, rows in more.items() if rows}


def _answer(result: BatchResult) -> dict[str, int | str]:
    return {**_counts(result), **_bad(result.bad, result.first_bad)}


def _bad(rows: int, first: str) -> dict[str, int | str]:
    """Return the part of an answer about rows that can never be sent; empty without such rows."""
    return {"bad": rows, "first_bad": first} if rows else {}


def _in_thread(
    under_way: set[asyncio.Future[Any]], function: Callable[..., _T], *args: object
) -> asyncio.Future[_T]:
    """Run ``function(*args)`` in a thread of the loop's pool, and return the future of its result.

    The future is in ``under_way`` until the call is over, even if the waiting task is cancelled.
    """
    future = asyncio.get_running_loop().run_in_executor(None, partial(function, *args))
    under_way.add(future)
    future.add_done_callback(under_way.discard)
    return asyncio.shield(future)


def _names(request: Request) -> tuple[str, str]:
    names = request.parameters["application"], request.parameters["batch"]
    for what, name in zip(("application", "batch"), names, strict=True):
        if not 0 < len(name) <= APPLICATION_LENGTH_MAX or not name.isprintable():
            raise usage(
                f"the name of the {what} has 1 to {APPLICATION_LENGTH_MAX} printable characters"
            )
    return names


async def _pieces(request: Request, turn: StageTurn) -> AsyncGenerator[list[bytes], None]:
    """Yield the body in lists of pieces, each of at least PIECE_BYTES except the last one.

    No bytes are copied. Raises a 413 beyond STAGE_BYTES_MAX, a 503 if the body is too slow while
    others wait, and :class:`ConnectionResetError` if the caller disconnects.
    """
    pending: list[bytes] = []
    collected, size, more = 0, 0, True
    while more:
        event = await turn.next_event(request.receive)
        if event["type"] == "http.disconnect":
            raise ConnectionResetError
        piece, more = event.get("body", b""), event.get("more_body", False)
        size += len(piece)
        if size > STAGE_BYTES_MAX:
            message = f"a stage has at most STAGE_BYTES_MAX = {STAGE_BYTES_MAX} bytes"
            raise ApiError(413, "too-large", message, "repartition into more tasks")
        if piece:
            pending.append(piece)
            collected += len(piece)
        if pending and (collected >= PIECE_BYTES or not more):
            yield pending
            pending, collected = [], 0


@contextmanager
def _storing() -> Iterator[None]:
    """Raise a 503 in place of an :class:`OSError` that the context raises.

    A full or broken disk is no bug, and the caller may try again.
    """
    try:
        yield
    except OSError as error:
        raise ApiError(
            503, "store", f"a stage cannot be written: {error}", "make room, then try again"
        ) from None


def _create(path: Path) -> RawIOBase:
    with _storing():
        path.parent.mkdir(mode=FOLDER_MODE, exist_ok=True)
        return FileIO(create_private(path), "wb")


def _write(file: RawIOBase, pieces: Sequence[bytes]) -> None:
    """Write all of ``pieces`` to ``file``. Raises a 503 if the disk refuses them.

    A disk that is nearly full accepts fewer bytes than it was given, and reports this only by the
    count.
    """
    with _storing():
        for piece in pieces:
            with memoryview(piece) as left:
                written = 0
                while written < len(left):
                    written += file.write(left[written:]) or 0


def _sync(file: RawIOBase) -> None:
    with _storing():
        os.fdatasync(file.fileno())


def _finish(file: RawIOBase, path: Path, final: Path) -> None:
    """Make the file durable under its own name, and close it.

    The file is synced, closed and renamed from ``path`` to ``final``, and its folder is synced.
    Raises a 503 if the disk refuses.
    """
    with _storing():
        os.fsync(file.fileno())
        file.close()
        path.rename(final)
        sync_directory(final.parent)


def _give_up(file: RawIOBase, path: Path) -> None:
    # The earlier error is reported instead, and a file that is left is swept.
    with suppress(OSError):
        file.close()
        path.unlink(missing_ok=True)
