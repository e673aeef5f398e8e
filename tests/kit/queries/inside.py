"""Runs clients and queue managers in one process and one thread, with a simulated time.

Clients call queue managers as functions. While :func:`inside` lasts, it replaces the surroundings
of a query's reader and of the commands: the session of a client, threads, the clock, and the
process that a lease names. No code that makes a decision is replaced.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import json
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Generic, TypeVar
from unittest import mock
from urllib.parse import urlencode

import requests

from srmp_spark import holder
from srmp_spark.client import api, lease
from srmp_spark.interface import CLIENT_HEADER
from srmp_spark.spark.reading import logs, marks, partitions, queue_managers, stream_reader
from tests.kit.queries.store import Answer, StoredQueueManager
from tests.kit.sim_clock import SimClock

T = TypeVar("T")


class Processes:
    """The simulated processes that hold leases: each query and each command is one.

    ``current`` is the name of the process that makes the calls now.
    """

    def __init__(self) -> None:
        self._numbers = itertools.count(1)
        self.current = "0"
        self._gone: set[str] = set()

    def begin(self) -> str:
        """Begin a process and make it the current one; return its name."""
        self.current = str(next(self._numbers))
        return self.current

    def end(self, process: str) -> None:
        """End a process.

        From now on a queue manager on the same host sees that the process is gone.
        """
        self._gone.add(process)

    def is_gone(self, process: str) -> bool:
        """Return whether the process has ended."""
        return process in self._gone


class _Body:
    """The body of an answer, for :class:`~srmp_spark.client.rows_stream.RowsStream`.

    The reader expects a body of ``http.client``.
    """

    will_close = False
    length = 0
    fp = None

    def __init__(self, data: bytes) -> None:
        self._data = io.BytesIO(data)

    def read(self, size: int | None = None) -> bytes:
        return self._data.read(size)

    def readinto(self, buffer: bytearray | memoryview) -> int:
        return self._data.readinto(buffer)

    def isclosed(self) -> bool:
        return True


class _Response:
    """The part of :class:`requests.Response` that the client uses."""

    def __init__(self, url: str, answer: Answer) -> None:
        self.url = url
        self.status_code = answer.status
        self.content = answer.body
        self.headers = requests.structures.CaseInsensitiveDict(answer.headers)
        self.raw = SimpleNamespace(_original_response=_Body(answer.body), release_conn=lambda: None)

    @property
    def text(self) -> str:
        return self.content.decode(errors="replace")

    def json(self) -> Any:  # noqa: ANN401  # JSON
        return json.loads(self.content)

    def close(self) -> None:
        """Do nothing, because nothing is open."""


class _Session:
    """A client's session with one queue manager."""

    verify = True

    def __init__(self, queue_manager: StoredQueueManager, clock: SimClock) -> None:
        self._queue_manager = queue_manager
        self._clock = clock

    def request(
        self,
        method: str,
        url: str,
        *,
        params: Mapping[str, Any],
        data: bytes | None,
        headers: Mapping[str, str],
        **_: object,
    ) -> _Response:
        """Call the queue manager as a function and return its answer.

        Raises :class:`requests.ConnectionError` if the queue manager is away. A call with ``wait``
        does not wait, but moves the clock, because no other process could change anything
        meanwhile.
        """
        if self._queue_manager.is_away:
            raise requests.ConnectionError("nobody listens there")
        asked = dict(params)
        self._clock.now += float(asked.pop("wait", 0.0))
        path = url[len(self._queue_manager.url) :]
        answer = self._queue_manager.call(
            method, path, urlencode(asked).encode(), data or b"", {**headers, CLIENT_HEADER: "1"}
        )
        return _Response(url, answer)


class _Thread(threading.Thread):
    """A thread whose work is done by :meth:`start` itself.

    The thread that renews leases does nothing, because no query lives as long as a lease.
    """

    def start(self) -> None:
        if self.name != "srmp-lease":
            self.run()

    def join(self, timeout: float | None = None) -> None:
        """Do nothing, because the thread has ended."""


class _ReadInTurn(Generic[T]):
    """Reads an item when it is requested.

    The class replaces :class:`~srmp_spark.client.read_ahead.ReadAhead`, which reads ahead.
    """

    def __init__(self, source: Iterator[T], **_: object) -> None:
        self._source = source

    def __enter__(self) -> Iterator[T]:
        return self._source

    def __exit__(self, *_: object) -> None:
        """Do nothing, because the object holds no resource."""


def _in_turn(
    calls: Sequence[Callable[[], T]], enough: Callable[[T], bool] | None = None
) -> list[T]:
    """Make the calls one after the other and return their results, in order.

    This function replaces :func:`srmp_spark.spark.reading.parallel.gather`. No further call is made
    after a result for which ``enough`` returns true.
    """
    results: list[T] = []
    for call in calls:
        results.append(call())
        if enough is not None and enough(results[-1]):
            break
    return results


@contextlib.contextmanager
def inside(
    queue_managers_by_url: Mapping[str, StoredQueueManager], clock: SimClock, processes: Processes
) -> Iterator[None]:
    """Make every client in this process call these queue managers, at the time of ``clock``.

    The context manager ends this at the end of its block. ``processes`` says which process makes
    the calls.
    """

    def session(client: api.QueueManagerClient) -> _Session:
        return _Session(queue_managers_by_url[client.url], clock)

    def sleep(seconds: float) -> None:
        clock.now += seconds

    time = SimpleNamespace(monotonic=clock.monotonic, sleep=sleep)
    threads = SimpleNamespace(Thread=_Thread, Lock=threading.Lock, Event=threading.Event)
    with contextlib.ExitStack() as stack:
        for module in (api, logs, queue_managers, partitions):
            stack.enter_context(mock.patch.object(module, "time", time))
        for module in (logs, marks, queue_managers, stream_reader):
            stack.enter_context(mock.patch.object(module, "gather", _in_turn))
        for owner, name, value in (
            (api.QueueManagerClient, "_session", session),
            (lease, "threading", threads),
            (lease, "time", time),
            (partitions, "ReadAhead", _ReadInTurn),
            (marks, "of_driver", lambda: ""),
            (stream_reader, "_end_on_sigterm", lambda: None),
            (stream_reader, "atexit", SimpleNamespace(register=lambda function: None)),
            (holder, "process_started_at", lambda pid: processes.current),
            (holder.Holder, "is_gone", lambda held: processes.is_gone(held.started)),
        ):
            stack.enter_context(mock.patch.object(owner, name, value))
        yield
