"""A queue manager without sockets and helper processes, for quick tests of queries.

In ``srmp-spark serve`` the accepting process and its reader process communicate over sockets. Here
they are objects in one process and one loop. :class:`StoredQueueManager` calls the ASGI application
of the API with a request, and the reader's commands answer into memory. The store, the engine, the
API and the decoding are the real ones. A call takes a fraction of a millisecond.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO, NamedTuple, cast

from srmp_spark.clock import Clock
from srmp_spark.errors import ApiError, ProcessMustEndError
from srmp_spark.queue_manager.api.app import ApiApp, routes
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.port_side.connection import OWNER
from srmp_spark.queue_manager.api.port_side.guard import Guard
from srmp_spark.queue_manager.api.port_side.router import Router
from srmp_spark.queue_manager.api.status import Transports
from srmp_spark.queue_manager.child.answer import AnswerWriter
from srmp_spark.queue_manager.configuration.config import load
from srmp_spark.queue_manager.configured_queues import ensure_queues
from srmp_spark.queue_manager.reader.crossing import ReaderCommand, ReaderSettings
from srmp_spark.queue_manager.reader.process import ReaderProcess
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.store.database.schema import connect_writer
from srmp_spark.store.directory import DATABASE_FILE, IDENTITY_FILE, DataDirectory
from srmp_spark.store.journal import Journal
from srmp_spark.store.restore.restore import SEQUENCES_SKIPPED
from srmp_spark.store.tables.epochs import end_of

PUBLIC_BASE = "http://127.0.0.1:1801"


class Answer(NamedTuple):
    """The answer of the API to one call."""

    status: int
    headers: dict[str, str]
    body: bytes


class _Collected(AnswerWriter):
    """An answer of the reader process that stays in memory.

    ``value`` is the head of the answer, ``data`` its body, ``refusal`` an error in place of both.
    """

    # The method of the base class needs a socket and is not called.
    def __init__(self) -> None:
        self.value: Any = None
        self.data = bytearray()
        self.refusal: ApiError | None = None

    def begin(self) -> None:
        """Do nothing, because all data is collected."""

    def whole(self, value: object) -> None:
        self.value = value

    def write(self, data: Any) -> int:  # noqa: ANN401  # bytes, or a buffer of Arrow
        view = memoryview(data).cast("B")
        self.data += view
        return len(view)

    def write_file(self, file: BinaryIO, begin: int, end: int) -> None:
        file.seek(begin)
        self.data += file.read(end - begin)

    def end(self) -> None:
        """Do nothing, because no data is held back."""

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def refuse(self, status: int, code: str, message: str, hint: str = "") -> None:
        self.refusal = ApiError(status, code, message, hint)


class _ReaderInside:
    """The reader process's commands, which the main process's code calls directly."""

    is_up = True

    def __init__(self, directory: DataDirectory) -> None:
        control: Any = SimpleNamespace(fileno=lambda: -1)
        settings = ReaderSettings(str(directory.path), directory.queue_manager, None, 5.0)
        self._reader = ReaderProcess(control, settings)

    async def ask(
        self, command: ReaderCommand, kind: type[object], *, seconds: float | None = None
    ) -> Any:  # noqa: ANN401  # a value of the type ``kind``
        """Run ``command`` and return its answer.

        Raises :class:`ApiError` for a refusal.
        """
        return self._run(command).value

    async def open(self, command: ReaderCommand) -> AsyncGenerator[bytes, None]:
        """Run ``command`` and return the data of its answer in pieces.

        Raises :class:`ApiError` for a refusal.
        """
        answer = self._run(command)

        async def pieces() -> AsyncGenerator[bytes, None]:
            yield bytes(answer.data)

        return pieces()

    def _run(self, command: ReaderCommand) -> _Collected:
        answer = _Collected()
        # The threads of the reader call the same method.
        self._reader._answer(command, answer)  # noqa: SLF001
        if answer.refusal is not None:
            raise answer.refusal
        return answer


class _NothingOutgoing:
    """Replaces the sender process; there is nothing to send."""

    def __init__(self) -> None:
        self.seen_at = 0
        self.set_aside: list[Any] = []
        self.last_seen: list[Any] = []
        self.dead_letters: dict[str, int] = {}

    async def status(self) -> list[Any]:
        """Return an empty list, because no messages wait for other hosts."""
        return []


class _CommitHere:
    """The journal's list of jobs; each job is done as soon as it is put.

    There is no other work in the process, so a thread would only cost two switches.
    """

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self._jobs: list[Any] = []
        # The journal's thread ends before this object replaces the list of jobs.
        journal._jobs.put(None)  # noqa: SLF001
        journal._thread.join()  # noqa: SLF001
        journal._jobs = self  # type: ignore[assignment]  # noqa: SLF001

    def put(self, job: Any) -> None:  # noqa: ANN401  # a transaction that is written
        """Commit ``job``, a transaction that is written, at once."""
        if job is not None:
            self._jobs += [None, job]
            # The journal's thread would call the same method.
            self._journal._run()  # noqa: SLF001

    def get(self) -> Any:  # noqa: ANN401
        """Return the job that was put last."""
        return self._jobs.pop()


def restored(directory: Path, lose: Callable[[str], int]) -> dict[str, int]:
    """Turn an unused data directory into the result of ``srmp-spark restore``.

    The restored directory has the rows and the marks, but neither leases nor plans of receivers. A
    new epoch begins after :data:`SEQUENCES_SKIPPED` holes in each queue. ``lose`` returns how many
    of a queue's newest stored groups (commits) the Delta state did not have, by the queue's full
    name. Return the first sequence of each queue that is lost, or that comes after the rows if none
    is lost.
    """
    lost: dict[str, int] = {}
    writer = connect_writer(directory / DATABASE_FILE)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE consumers SET planned = NULL, holder = NULL, lease_until = NULL")
    for queue_id, name in writer.execute(
        "SELECT id, name FROM queues WHERE deleted_at IS NULL"
    ).fetchall():
        end = end_of(writer, queue_id)
        lost[name] = end + 1
        for _ in range(lose(name)):
            newest = "SELECT id, first FROM groups WHERE queue_id = ? AND last = ?"
            group = writer.execute(newest, (queue_id, lost[name] - 1)).fetchone()
            hole = "SELECT 1 FROM holes WHERE queue_id = ? AND last >= ?"
            if group is None or writer.execute(hole, (queue_id, group[1])).fetchone():
                break
            writer.execute("DELETE FROM groups WHERE id = ?", (group[0],))
            lost[name] = group[1]
        skipped = (queue_id, lost[name], end + SEQUENCES_SKIPPED, "restore")
        writer.execute("INSERT INTO holes VALUES (?, ?, ?, ?)", skipped)
    writer.execute("COMMIT")
    writer.close()
    (directory / IDENTITY_FILE).unlink()
    return lost


class StoredQueueManager:
    """One queue manager through restarts and restores.

    ``url`` is its address for clients, but no server listens there. ``guid`` is its identity.
    """

    def __init__(
        self, directory: Path, url: str, clock: Clock, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.url = url
        self.is_away = False
        """Whether clients cannot reach the queue manager.

        The queue manager itself continues to run.
        """
        self.restores = 0
        """Number of restores; each one uses up many of the available message identifiers."""
        self._path = directory
        self._clock = clock
        self._loop = loop
        self._lock = threading.Lock()
        self._config = load(
            {"data_dir": str(directory), "listen": "127.0.0.1:1801", "api": "127.0.0.1:8081"}, {}
        )
        self._open()
        self.guid = self._directory.queue_manager

    def _open(self) -> None:
        self._loop.run_until_complete(self._start())

    async def _start(self) -> None:
        directory = self._directory = DataDirectory.open(self._path, now=self._clock.utc())
        config = self._config
        manager = self._manager = QueueManager(
            config,
            directory,
            config.local_hosts(config.listen),
            PUBLIC_BASE,
            self._clock,
            on_fatal=_fail,
        )
        _CommitHere(manager.journal)
        # The object has only the methods that the API calls.
        manager.reader = _ReaderInside(directory)  # type: ignore[assignment]
        manager.outgoing = _NothingOutgoing()  # type: ignore[assignment]
        await ensure_queues(manager)
        transports = Transports(lambda sees: [], None)
        health = HealthApi(manager, transports, listening=[PUBLIC_BASE], api=self.url)
        health.ready = True
        guard = Guard(loopback=True, own_host="127.0.0.1", tokens=manager.tokens)
        self._app = ApiApp(Router(routes(manager, health, None)), guard, manager.catalogue)

    async def _stop(self) -> None:
        await self._manager.stop_sending()
        await self._manager.journal.drain()
        self._manager.journal.close()
        self._directory.close()

    def close(self) -> None:
        """Stop the queue manager and close its directory."""
        with self._lock:
            self._loop.run_until_complete(self._stop())

    def restart(self) -> None:
        """Stop the queue manager and open its data directory again."""
        self.close()
        self._open()

    def restore(self, lose: Callable[[str], int] = lambda queue: 0) -> dict[str, int]:
        """Stop the queue manager and continue with a restored data directory.

        See :func:`restored` for ``lose`` and the result.
        """
        self.close()
        self.restores += 1
        lost = restored(self._path, lose)
        self._open()
        return lost

    def call(
        self,
        method: str,
        path: str,
        query: bytes = b"",
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """Call the API and return its answer.

        The method may be called from any thread; it makes one call at a time.
        """
        called = self._call(method, path, query, body, headers or {})
        with self._lock:
            return (
                self._at_once(called) if method == "GET" else self._loop.run_until_complete(called)
            )

    def _at_once(self, called: Coroutine[Any, Any, Answer]) -> Answer:
        """Run a call that never waits for another task, and return its answer.

        Without a task and the loop the call costs half. Raises :class:`AssertionError` if the call
        waits.
        """
        # asyncio has no public function for this.
        asyncio.events._set_running_loop(self._loop)  # noqa: SLF001
        try:
            # The call gives others a turn after a long slice of its work.
            while called.send(None) is None:
                pass
        except StopIteration as end:
            return cast("Answer", end.value)
        finally:
            asyncio.events._set_running_loop(None)  # noqa: SLF001
        raise AssertionError("a GET waits for something: call it in the loop")

    async def _call(
        self, method: str, path: str, query: bytes, body: bytes, headers: Mapping[str, str]
    ) -> Answer:
        events = [{"type": "http.request", "body": body, "more_body": False}]
        sent: list[dict[str, Any]] = []

        async def receive() -> dict[str, Any]:
            # The caller never disconnects, so no further event arrives.
            if not events:
                await asyncio.Event().wait()
            return events.pop()

        async def send(event: dict[str, Any]) -> None:
            sent.append(event)

        given = {"host": "127.0.0.1:8081", **headers}
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "headers": [(name.lower().encode(), value.encode()) for name, value in given.items()],
            "extensions": {OWNER: os.getuid()},
        }
        # The arguments have the types of ASGI's events.
        await self._app(scope, receive, send)  # type: ignore[arg-type]
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(event["body"] for event in sent[1:]))

    # --- what is true of it, for who judges -------------------------------------------------------

    def end(self, queue: str) -> int:
        """Return the last sequence of a queue, by its full name."""
        return self._manager.catalogue.find(queue).end

    def marks(self, queue: str, consumer: str) -> list[tuple[int, int]]:
        """Return the received rows of a consumer as pairs of sequences, both included.

        The list is empty if the queue has no such consumer.
        """
        found = self._manager.catalogue.find(queue).consumers.get(consumer)
        return [] if found is None else [(1, found.received), *found.ahead.runs()]


def _fail(error: ProcessMustEndError) -> None:
    raise AssertionError("the store failed") from error
