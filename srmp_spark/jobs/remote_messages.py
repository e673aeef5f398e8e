"""Copy or move a queue of another queue manager into a table ([MS-MQRR]).

The module is ``backfill --source mqrr``. The queue may also be a journal or the dead letters.

Theory of operation. The job reads a batch of messages, appends the rows that the table lacks, and
then, with ``--mode move``, removes the messages. Until then the messages stay locked. Whatever is
killed in between, a message is in its queue or in the table. A message that is in both, because its
removal failed, is found in the table at the next run and is only removed.

A row is identified by (``mqrr``, ``--id``, queue, the seven bytes of its lookup identifier). A
queue manager gives out a lookup identifier once, but one that was set up anew begins again at 1.
Then two messages have one identity. The job detects this by ``message_id``, stops, and reports it
before anything is removed.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from srmp_spark.client.remote_queue import RemoteMachine, RemoteQueue
from srmp_spark.client.walking import Shown, shown
from srmp_spark.errors import ConfigurationError, RemoteProtocolError, SrmpSparkError
from srmp_spark.jobs.sign_in_flags import add_sign_in_flags
from srmp_spark.mqrr.actions import Action
from srmp_spark.mqrr.client.failures import refused
from srmp_spark.mqrr.client.queue_calls import NOTHING
from srmp_spark.mqrr.ndr.methods import ACCESS_PEEK, ACCESS_RECEIVE
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.remote_host import RemoteHost, parse_remote_host
from srmp_spark.mqrr.status import Status
from srmp_spark.private_files import refuse_open_secret
from srmp_spark.signing_in.credentials import Credentials, credentials

if TYPE_CHECKING:
    import argparse

    import pyarrow as pa

REMOTE_QUEUE_MANAGER = "mqrr"
"""Value of the column ``queue_manager`` in these rows.

The protocol does not carry the GUID of the other queue manager.
"""
BATCH_MESSAGES = 2_000
"""Most messages of one commit of Delta.

A commit takes a second or two, and the messages are locked for that long.
"""
BATCH_BYTES = 64 * 1024 * 1024
UNREADABLE_MAX = 1_000
"""Most messages that cannot be read and are skipped. After more the job ends with an error."""
PASSWORD_MAX = 4_096

_FROM = re.compile(r"(?P<host>[^\\/=]+)[\\/](?P<queue>.+)", re.DOTALL)
r"""Pattern of ``HOST\QUEUE``.

The queue may be a format name, because the host name in it need not be the host name that reaches
the machine.
"""
_DIRECT = re.compile(r"DIRECT=(?:OS|TCP):(?P<host>[^\\]+)\\.+", re.IGNORECASE | re.DOTALL)


class RemoteSource(NamedTuple):
    """The remote queue that a job reads, with the account that reads it."""

    host: RemoteHost
    queue: str
    """The name of the queue as the user wrote it."""
    credentials: Credentials

    @property
    def shown_as(self) -> str:
        """Return the value of the column ``queue``, as ``format("mqrr")`` writes it."""
        return self.queue.replace("\\", "/").lower()


class ReadBatch(NamedTuple):
    """One batch of messages that was read."""

    rows: pa.RecordBatch
    message_bytes: int
    requests: tuple[int, ...]
    """Numbers of the receive calls that hold the locks, one for each row.

    Empty if the messages are only copied.
    """


def add_arguments(group: argparse._ActionsContainer) -> None:
    """Add the flags of ``--source mqrr`` to ``group``."""
    group.add_argument(
        "--mode",
        choices=("copy", "move"),
        default=None,
        help="copy (default): remove nothing from the remote queue; move: remove each message when "
        "it is in the table",
    )
    add_sign_in_flags(group)


FLAGS = ("mode", "username", "domain", "password_file", "auth_protocol", "auth_level")


def parse_source(args: argparse.Namespace) -> RemoteSource:
    """Return the source that ``--from`` and the flags name.

    Raises :class:`ConfigurationError` if ``--from`` is malformed or the account cannot be used.
    """
    where = f"--from {args.origin}"
    direct = _DIRECT.fullmatch(args.origin)
    match = direct or _FROM.fullmatch(args.origin)
    if match is None:
        raise ConfigurationError(
            f"{where}: expected HOST[:PORT]\\QUEUE, for example "
            "'windows.example\\private$\\orders;JOURNAL'"
        )
    host = parse_remote_host(where, match["host"])
    queue = args.origin if direct else match["queue"]
    queue_format_for(host.name, queue)
    signs_in = credentials(
        "--source mqrr",
        host,
        level=args.auth_level,
        protocol=args.auth_protocol,
        user=args.username,
        password=_password(args.password_file),
        domain=args.domain,
    )
    return RemoteSource(host, queue, signs_in)


def _password(path: str | None) -> str | None:
    if path is None:
        return None
    try:
        refuse_open_secret("--password-file", path)
        with Path(path).open("rb") as file:
            return file.read(PASSWORD_MAX).decode().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"--password-file {path}: {error}") from None


class RemoteQueueReader:
    """Reads an open remote queue once from its head to its end."""

    def __init__(self, source: RemoteSource, run: str, *, takes: bool) -> None:
        """Connect and open the queue; with ``takes`` messages are locked when they are read.

        ``run`` is the value of ``--id``. Every method raises :class:`RemoteReadError` if the other
        queue manager refuses, and :class:`RemoteLostError` if the connection breaks.
        """
        self._source, self._run, self._takes = source, run, takes
        host = source.host
        self._machine = RemoteMachine.connect(
            host.name, host.port, source.credentials.settings(host)
        )
        try:
            access = ACCESS_RECEIVE if takes else ACCESS_PEEK
            self._queue: RemoteQueue = self._machine.open(
                queue_format_for(host.name, source.queue), access
            )
        except BaseException:
            self._machine.close()
            raise
        self.unreadable = 0
        """Number of messages that cannot be decoded. They stay in their queue."""

    def close(self) -> None:
        """Close the connection. Messages that are still locked become free."""
        self._machine.close()

    def batches(self) -> Iterator[ReadBatch]:
        """Yield all present messages in batches.

        With ``takes`` every message stays locked until :meth:`remove` or :meth:`close`. Raises
        :class:`SrmpSparkError` if more than UNREADABLE_MAX messages cannot be decoded.
        """
        waiting: list[tuple[int | None, Shown]] = []
        size = 0
        for request, found in self._receive_all() if self._takes else self._walked():
            waiting.append((request, found))
            size += len(found.raw)
            if len(waiting) >= BATCH_MESSAGES or size >= BATCH_BYTES:
                yield self._read(waiting, size)
                waiting, size = [], 0
        if waiting:
            yield self._read(waiting, size)

    def remove(self, read: ReadBatch) -> None:
        """Remove the messages of ``read`` from their queue. Call it when the table holds them."""
        for request in read.requests:
            self._queue.end(request)

    def _read(self, waiting: list[tuple[int | None, Shown]], size: int) -> ReadBatch:
        from srmp_spark.rows.decode import rows_of
        from srmp_spark.spark.mqrr_source import record_of

        pairs = [
            (found.sequence_id, record_of(found, self._source.host.text)) for _, found in waiting
        ]
        rows = rows_of(REMOTE_QUEUE_MANAGER, self._run, self._source.shown_as, pairs)
        return ReadBatch(
            rows, size, tuple(request for request, _ in waiting if request is not None)
        )

    def _walked(self) -> Iterator[tuple[None, Shown]]:
        for found in self._queue.walk(unreadable=self._passed_over):
            yield None, found

    def _receive_all(self) -> Iterator[tuple[int, Shown]]:
        while True:
            request, answer = self._queue.start(Action.RECEIVE)
            if answer.status in NOTHING:
                return
            if answer.status != Status.MQ_OK:
                raise refused(
                    answer.status,
                    f"{self._source.host.text} does not hand out messages of {self._source.queue}",
                )
            try:
                yield request, shown(answer)
            # The message stays locked until the connection ends.
            except RemoteProtocolError as error:
                self._passed_over(error)

    def _passed_over(self, error: RemoteProtocolError) -> None:
        self.unreadable += 1
        if self.unreadable > UNREADABLE_MAX:
            raise SrmpSparkError(
                f"more than {UNREADABLE_MAX} messages of {self._source.queue} cannot be "
                f"read: {error}"
            )


def count(source: RemoteSource, run: str) -> tuple[int, int]:
    """Return (number of messages in the queue now, their bytes).

    All messages are read, and none is removed. Raises the errors of :class:`RemoteQueueReader`.
    """
    reader = RemoteQueueReader(source, run, takes=False)
    try:
        rows = size = 0
        for read in reader.batches():
            rows += read.rows.num_rows
            size += read.message_bytes
        return rows, size
    finally:
        reader.close()
