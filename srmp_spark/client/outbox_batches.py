"""The sink's two steps, ``/v1/outbox/…``: rows of a batch are staged, then committed, or deleted (INTERFACE.md section 3).

Before the commit they are rows and nothing leaves. What they are afterwards, messages with a state, and single messages that
an operator sends, is :mod:`srmp_spark.client.outgoing_messages`.

A stage is a long body that cannot be made a second time by itself, and a commit a long answer, so both are repeated here by
other rules than the short calls of :mod:`srmp_spark.client.api`: the caller gives a stage's bytes again from the start, and
before anything is repeated a short call must be answered. All three calls may be repeated without harm: an attempt replaces
itself, and the same commit has the same answer.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar
from urllib.parse import quote

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ApiError, ApiUnreachableError
from srmp_spark.interface import ARROW_STREAM

STAGE_SECONDS = 300.0
"""From the last byte of a stage to the answer: it is synced and counted in between."""
COMMIT_SECONDS = 600.0
"""A commit orders and numbers all rows of a batch, some 10 microseconds a row; that is sixty million."""
DELETE_SECONDS = 20.0
"""Deleting tidies up after a failure, which should not be told later for it."""
PAUSES_SECONDS = (0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0)
"""Between the attempts of a call that broke off; the attempt after the last pause is the last."""

_log = logging.getLogger(__name__)
_T = TypeVar("_T")


class StageAnswer(NamedTuple):
    """What ``POST stage`` answers."""

    stage: str
    """Names these rows in the commit."""
    rows: int
    warning: str | None = None
    """What the user should know: a queue for dead letters that is not there."""


class CommitAnswer(NamedTuple):
    """What ``POST commit`` answers."""

    new: int
    """Rows that are messages now."""
    known: int
    """Rows that were messages before."""
    conflicts: int = 0
    """Rows that are no messages, because another content has their key or source position."""


class OutboxClient(QueueManagerClient):
    """One queue manager, by the URL of its API, as Spark's sink uses it."""

    def stage(
        self,
        application: str,
        batch: str,
        *,
        partition: int,
        attempt: int,
        content: Callable[[], Iterable[Any]],
    ) -> StageAnswer:
        """``POST stage``: rows that a commit can make messages. The same attempt again replaces them.

        ``content()`` gives the pieces of an Arrow IPC stream from the first byte; it is called again when a connection breaks.
        Raises :class:`ApiError` when the rows are refused, :class:`ApiUnreachableError` when nobody answers any more.
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
            return StageAnswer(str(answer["stage"]), int(answer["rows"]), answer.get("warning"))

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
        """``POST commit``: all rows of the stages become messages, or none.

        ``on_key_conflict``: ``fail`` (the default), ``ignore`` or ``dead-letter``, what becomes of a row whose key or source
        position was sent with another content. ``allow_loop``: a row may return to the queue that it came from. Raises
        :class:`ApiError` when the rows are refused (409: a row of the first kind, 400: one of the second).
        """
        path = _path(application, batch, "/commit")
        body: dict[str, Any] = {"stages": list(stages)}
        if on_key_conflict is not None:
            body["on_key_conflict"] = on_key_conflict
        if allow_loop:
            body["allow_loop"] = True
        answer = self._until_answered(
            lambda: self._json("POST", path, body=body, timeout=COMMIT_SECONDS, retry=False)
        )
        return _commit_answer(answer)

    def result(self, application: str, batch: str) -> CommitAnswer | None:
        """Return what the last commit of a batch answered (``GET``); ``None`` if nothing of it was committed.

        Raises :class:`ApiError` and :class:`ApiUnreachableError`; a queue manager of version 0.1 answers 405.
        """
        try:
            return _commit_answer(self._json("GET", _path(application, batch)))
        except ApiError as error:
            if error.status == 404:
                return None
            raise

    def delete(self, application: str, batch: str) -> None:
        """``DELETE``: drop the stages of a batch that no commit has named. One attempt."""
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
            self.status()  # waits for a restart as long as any other call, and tells a refusal that a broken body hides
        return call()


def _path(application: str, batch: str, action: str = "") -> str:
    return f"/v1/outbox/{quote(application, safe='')}/{quote(batch, safe='')}{action}"


def _commit_answer(answer: dict[str, Any]) -> CommitAnswer:
    return CommitAnswer(int(answer["new"]), int(answer["known"]), int(answer.get("conflicts", 0)))
