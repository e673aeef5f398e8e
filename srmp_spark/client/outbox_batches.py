"""Calls of ``/v1/outbox/…``: the rows of a batch are staged, then committed, or deleted.

A stage is the rows of one task that the queue manager keeps until the commit.

INTERFACE.md section 3 describes the calls; Spark's sink uses them. Before the commit the rows are
not messages and nothing is sent. After the commit they are messages with a state, as are single
messages of an operator: :mod:`srmp_spark.client.outgoing_messages`.

A stage has a long body that this module cannot produce again by itself, and a commit has a long
answer. So both are repeated by other rules than the short calls of :mod:`srmp_spark.client.api`:
the caller supplies the bytes of a stage again from the start, and a short call must be answered
before anything is repeated. All three calls can be repeated safely: an attempt replaces itself, and
the same commit gets the same answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ApiUnreachableError
from srmp_spark.interface import ARROW_STREAM

STAGE_SECONDS = 300.0
"""Longest wait in seconds from the last byte of a stage to the answer.

In this time the stage is synced to disk and counted.
"""
COMMIT_SECONDS = 600.0
"""Longest wait in seconds for the answer of a commit.

A commit orders and numbers all rows of a batch in some 10 microseconds a row. The time is enough
for sixty million rows.
"""
DELETE_SECONDS = 20.0
"""Longest wait in seconds for the answer of a delete.

A delete cleans up after a failure, and the report of that failure should not be delayed.
"""
PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)
"""Pauses in seconds between the attempts of a call that failed.

The attempt after the last pause is the last one.
"""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class StageAnswer(NamedTuple):
    """The answer of ``POST stage``: the name of the stored rows, their number, and a warning."""

    stage: str
    """Name of these rows in the commit."""
    rows: int
    warning: str | None = None
    """Text for the user, for instance that a queue for dead letters does not exist."""
    bad: int = 0
    """Number of rows that can never be sent, and were taken out."""
    first_bad: str = ""
    """Text that names the first of these rows, and its problem."""


class _Counts(NamedTuple):
    new: int
    """Number of rows that became messages."""
    known: int
    """Number of rows that were messages before."""
    conflicts: int = 0
    """Number of rows that did not become messages because of another content.

    The key or source position of these rows was sent before with another content.
    """


class CommitAnswer(_Counts):
    """The answer of ``POST commit``: how many rows became messages, and how many did not.

    It is a tuple of three numbers, as in version 0.1, so that callers can unpack it. What is known
    of bad rows is not part of the tuple.
    """

    bad: int
    """Number of rows that can never be sent: they are dead letters, or only counted."""
    first_bad: str
    """Text that names the first of these rows and its problem; empty without such rows."""

    def __new__(
        cls, new: int, known: int, conflicts: int = 0, bad: int = 0, first_bad: str = ""
    ) -> CommitAnswer:
        """Make an answer of its numbers."""
        made = super().__new__(cls, new, known, conflicts)
        made.bad, made.first_bad = bad, first_bad
        return made

    def __repr__(self) -> str:
        return (
            f"CommitAnswer(new={self.new}, known={self.known}, conflicts={self.conflicts}, "
            f"bad={self.bad})"
        )


class OutboxClient(QueueManagerClient):
    """Calls the API of one queue manager to stage and commit the rows of Spark's sink."""

    def stage(
        self,
        application: str,
        batch: str,
        *,
        partition: int,
        attempt: int,
        content: Callable[[], Iterable[Any]],
    ) -> StageAnswer:
        """Send rows as a stage, which a later :meth:`commit` makes messages (``POST stage``).

        A second call with the same ``partition`` and ``attempt`` replaces the rows of the first.
        ``content()`` returns the pieces of an Arrow IPC stream from the first byte; it is called
        again if the connection is lost. Raises :class:`ApiError` if the rows are refused. Raises
        :class:`ApiUnreachableError` if no queue manager answers for longer than the repetitions
        last.
        """
        path = _path(application, batch, "/stage")
        parameters = {"partition": partition, "attempt": attempt}
        headers = {"Content-Type": ARROW_STREAM}

        def post() -> StageAnswer:
            response = self._call(
                "POST",
                path,
                parameters=parameters,
                headers=headers,
                content=content(),
                timeout=STAGE_SECONDS,
                retry=False,
            )
            answer = response.json()
            return StageAnswer(
                str(answer["stage"]),
                int(answer["rows"]),
                answer.get("warning"),
                int(answer.get("bad", 0)),
                str(answer.get("first_bad", "")),
            )

        return self._until_answered(post)

    def commit(
        self,
        application: str,
        batch: str,
        stages: Sequence[str],
        *,
        on_key_conflict: str | None = None,
        allow_loop: bool = False,
    ) -> CommitAnswer:
        """Make all rows of the stages messages, or none of them (``POST commit``).

        ``on_key_conflict`` decides about a row whose key or source position was sent with another
        content: ``fail`` (the default), ``ignore`` or ``dead-letter``. With ``allow_loop`` a row
        may return to the queue that it was read from. Raises :class:`ApiError` if the rows are
        refused: 409 for a key conflict, 400 for a loop. The messages are then stored and not yet
        sent.
        """
        path = _path(application, batch, "/commit")
        body: dict[str, object] = {"stages": list(stages)}
        if on_key_conflict is not None:
            body["on_key_conflict"] = on_key_conflict
        if allow_loop:
            body["allow_loop"] = True
        answer = self._until_answered(
            lambda: self._json("POST", path, body=body, timeout=COMMIT_SECONDS, retry=False)
        )
        return _commit_answer(answer)

    def result(self, application: str, batch: str) -> CommitAnswer | None:
        """Return the answer of the last commit of a batch (``GET``).

        Return ``None`` if no row of the batch was committed. Raises :class:`ApiError` and
        :class:`ApiUnreachableError`; a queue manager of version 0.1 answers 405.
        """
        try:
            return _commit_answer(self._json("GET", _path(application, batch)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def delete(self, application: str, batch: str) -> None:
        """Delete the kept rows (stages) of a batch that no commit has named, in one attempt.

        The call is ``DELETE``. Raises :class:`ApiError` and :class:`ApiUnreachableError`.
        """
        self._json("DELETE", _path(application, batch), timeout=DELETE_SECONDS, retry=False)

    def _until_answered(self, call: Callable[[], _T]) -> _T:
        for pause in PAUSES_SECONDS:
            try:
                return call()
            except ApiUnreachableError as error:
                problem: Exception = error
            except ApiError as error:
                if error.status != 503:
                    raise
                problem = error
            _log.info("outbox.repeated pause_s=%s reason=%s", pause, problem)
            time.sleep(pause)
            # This call waits for a restart as long as any other call. It also raises a refusal that
            # a broken body would hide.
            self.status()
        return call()


def _path(application: str, batch: str, action: str = "") -> str:
    return f"/v1/outbox/{quote(application, safe='')}/{quote(batch, safe='')}{action}"


def _commit_answer(answer: Mapping[str, Any]) -> CommitAnswer:
    return CommitAnswer(
        answer["new"],
        answer["known"],
        answer.get("conflicts", 0),
        answer.get("bad", 0),
        answer.get("first_bad", ""),
    )
