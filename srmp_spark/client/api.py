"""The API of a queue manager, one method for each call (INTERFACE.md section 3).

Theory of operation. A queue manager may be restarted, or killed and restarted, at any moment, and
that is not an error for a reader. Every call that can be repeated safely is repeated with growing
pauses. After :data:`RETRY_SECONDS` without an answer the call raises :class:`ApiUnreachableError`.
A refusal (4xx) is final at once and raises :class:`ApiError` with the code, hint and section that
the queue manager sent. Each thread has its own connection.
"""

from __future__ import annotations

import ipaddress
import json
import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import requests

from srmp_spark.client.rows_stream import RowsStream
from srmp_spark.errors import ApiError, ApiUnreachableError, ConfigurationError, with_hint
from srmp_spark.interface import (
    ANOTHER_QUEUE_MANAGER,
    ARROW_STREAM,
    CLIENT_HEADER,
    DENSE_STREAM,
    QUEUE_MANAGER_HEADER,
)
from srmp_spark.names import quote_queue_name, split_url
from srmp_spark.rows.columns import NAMES

CONNECT_SECONDS = 5.0
"""Longest time in seconds to connect; then the queue manager counts as unreachable."""
SEND_SECONDS = 60.0
"""Longest time in seconds in which a queue manager may accept no byte of a long body.

The disk of the queue manager may be slow. After this time the call fails.
"""
ANSWER_SECONDS = 60.0
"""Longest silence within an answer, in seconds; then the call fails.

The slowest normal answer is a read of rows that are not in memory.
"""
REGISTER_SECONDS = 90.0
"""Longest wait in seconds for the answer of a register call.

The call waits until the lease of the present holder ends, up to 60 s after the holder's last call.
"""
RETRY_SECONDS = 30.0
"""Seconds for which a repeatable call is repeated while no queue manager answers.

A restart takes seconds, and a wrong URL should be reported soon.
"""
RETRY_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses in seconds between attempts; the last pause is repeated."""
WAITING_TOLD_SECONDS = 3.0
"""Seconds without an answer after which a call logs that it is waiting.

A restart is shorter, and a wrong URL should be visible soon. Only calls that wait much longer log
this (those of Spark): a command reports its error in one line soon anyway.
"""
_PLAIN_HTTP_SIGNS = (
    "WRONG_VERSION_NUMBER",
    "wrong version number",
    "record layer failure",
    "RECORD_LAYER_FAILURE",
)
"""Texts in errors of OpenSSL that show that the answer was not TLS."""
ERROR_TEXT_MAX = 500
"""Most characters of an answer that is not JSON (a proxy's page) that are put into an error."""

CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Environment variables that name the CAs of an ``https`` API.

The first variable that is set counts. See :func:`ca_bundle`.
"""

_log = logging.getLogger(__name__)


def ca_bundle(environment: Mapping[str, str]) -> str | None:
    """Return the path of the trusted CAs, or ``None`` for those that come with ``requests``.

    The path is a file, or a folder made by ``openssl rehash``. ``requests`` reads its variable only
    together with the proxies, which must not be used for the loopback of this machine. ``requests``
    does not read ``SSL_CERT_FILE`` at all, although other users of OpenSSL do. So this function
    reads both variables, for every host. Raises :class:`ConfigurationError` if the path does not
    exist.
    """
    for name in CA_VARIABLES:
        path = environment.get(name)
        if path:
            if not Path(path).exists():
                raise ConfigurationError(f"{name}: there is no file or folder {path!r}")
            return path
    return None


def is_loopback(host: str) -> bool:
    """Return whether ``host`` is ``localhost`` or a loopback address.

    Data sent to such a host stay on this machine.

    A name like ``127.example.com`` is not loopback.
    """
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class QueueRange(NamedTuple):
    """The answer of ``GET range``: the retained rows of an epoch and the end of a batch.

    An epoch lasts as long as the queue manager uses the same data directory.
    """

    epoch: str
    first: int
    """Oldest retained sequence; ``end + 1`` if no row is retained."""
    last: int
    """Last sequence of the batch within its limits; ``after`` if the batch is empty."""
    end: int
    """Last committed sequence of the epoch."""
    next_epoch: str | None = None
    """The epoch that follows; its sequences continue those of this epoch."""
    paused: bool = False
    """Whether the readers of the queue are paused: there are rows, but none to receive now."""


class Registration(NamedTuple):
    """The answer of ``POST register`` to the receiver that now holds the lease."""

    epoch: str
    received: int
    """The mark: all sequences up to this one are received."""
    ahead: tuple[tuple[int, int], ...]
    """Closed ranges above ``received`` that are received too.

    If ``ahead_after`` is set, these are only the first ranges.
    """
    queue_manager: str
    ahead_after: int | None = None
    """Sequence after which more received ranges exist; ``None`` if ``ahead`` is complete.

    :meth:`QueueManagerClient.all_ahead` requests the other ranges.
    """


class _Bearer(requests.auth.AuthBase):
    """Sets the token of a request, so that ``requests`` does not use one of a ``.netrc`` file."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class QueueManagerClient:
    """Calls the API of one queue manager.

    ``url`` is the URL of the API. ``token`` is the API token, which is sent as ``Authorization:
    Bearer``. Every method that calls the API raises :class:`ApiError` if the queue manager refuses
    the call, and :class:`ApiUnreachableError` if none answers within the time for repetitions. The
    certificate of an ``https`` URL is always verified. :data:`CA_VARIABLES` name a private CA; they
    are read where the call is made, on Spark executors as on the driver. Raises
    :class:`ConfigurationError` if ``url`` is invalid.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
        allow_plain_token: bool = False,
    ) -> None:
        """Check the URL and store the settings; no connection is made.

        ``retry_seconds`` limits how long a call is repeated. ``allow_plain_token`` sends the token
        over plain HTTP beyond loopback too, where everybody on the path can read it. Raises
        :class:`ConfigurationError` if the URL is invalid, or if the token would be sent over plain
        HTTP.
        """
        try:
            parts = split_url(url.strip())
        except ValueError as error:
            raise ConfigurationError(
                f"queue manager URL: {error}; expected http://HOST:PORT of its API"
            ) from None
        if parts.path not in ("", "/") or parts.query:
            raise ConfigurationError(
                f"queue manager URL {url!r}: give only http://HOST:PORT, without a path"
            )
        self.url = url.strip().rstrip("/")
        self._token = token
        self._retry_seconds = retry_seconds
        self._is_loopback = is_loopback(parts.host)
        if token and parts.scheme == "http" and not self._is_loopback and not allow_plain_token:
            raise ConfigurationError(
                f"the token would be sent to {parts.host} over plain HTTP, where everybody "
                "on the path can read it; write https://, or allow it with the option "
                "allowPlainToken=true or, for a command, --allow-plain-token"
            )
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"<QueueManagerClient {self.url}>"

    # --- reading ----------------------------------------------------------------------------------

    def status(self, *, retry: bool = True, queues: str | None = None) -> dict[str, Any]:
        """Return the status of the queue manager (``GET status``).

        ``queues`` is a name or glob that selects queues and incoming streams. Without ``retry``
        there is a single attempt.
        """
        parameters = {} if queues is None else {"queues": queues}
        return self._object("GET", "/v1/status", parameters=parameters, retry=retry)

    def status_summary(self) -> dict[str, Any]:
        """Return ``totals`` and the entries that need attention (``GET status?summary=1``).

        A queue manager of an earlier version returns the whole status.
        """
        return self._object("GET", "/v1/status", parameters={"summary": 1})

    def delete_consumer(self, queue: str, consumer: str) -> None:
        """Delete a named consumer and its marks (``DELETE consumers/{consumer}``)."""
        self._json("DELETE", _consumer_path(queue, consumer))

    def queues(self) -> list[dict[str, Any]]:
        """Return one object for each queue, as in ``status`` (``GET queues``)."""
        answer = self._json("GET", "/v1/queues")
        found: list[dict[str, Any]] = answer["queues"] if isinstance(answer, dict) else answer
        return found

    def queue(self, queue: str) -> dict[str, Any]:
        """Return the entry of one queue (``GET queues/{q}``).

        The call also works for a queue that is not listed (an empty system queue).
        """
        return self._object("GET", _queue_path(queue))

    def range(
        self,
        queue: str,
        *,
        after: int | None = None,
        epoch: str | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
        peek: bool = False,
    ) -> QueueRange:
        """Return the retained rows of an epoch and the end of the next batch (``GET range``).

        The batch starts after the sequence ``after``, and has at most ``max_rows`` rows and
        ``max_bytes`` bytes. Without ``after`` the batch starts at the oldest retained row. Without
        ``epoch`` the batch is of the current epoch. With ``wait`` (seconds) the call answers as
        soon as a row exists after ``after``. With ``peek`` the caller receives nothing, so that a
        pause of the queue's readers does not concern it. Raises :class:`ApiError` with code
        ``unknown-epoch``, ``trimmed`` or ``past-the-end``.
        """
        parameters = {
            "epoch": epoch,
            "after": after,
            "max_rows": max_rows,
            "max_bytes": max_bytes,
            "wait": wait,
            "peek": 1 if peek else None,
        }
        answer = self._json("GET", _queue_path(queue, "range"), parameters=parameters)
        return QueueRange(
            answer["epoch"],
            answer["first"],
            answer["last"],
            answer["end"],
            answer.get("next_epoch"),
            answer.get("paused", False),
        )

    def holes(self, queue: str, *, epoch: str, after: int, to: int) -> int:
        """Return the number of sequences in (after, to] that are counted holes (``GET holes``).

        A hole is a row that was purged or is damaged.
        """
        return int(
            self._json(
                "GET",
                _queue_path(queue, "holes"),
                parameters={"epoch": epoch, "after": after, "to": to},
            )["count"]
        )

    def first_since(self, queue: str, *, epoch: str, since: int) -> int | None:
        """Return the sequence of the first row of an epoch that arrived at ``since`` or later.

        ``since`` is in microseconds since 1970 and is compared with ``arrived_at``. Rows need not
        be in the order of these times. Return ``None`` if no retained row arrived so late. ``GET
        first`` is called as often as needed. Raises :class:`ApiError`, and
        :class:`ConfigurationError` if the queue manager is of an earlier version that cannot
        search.
        """
        after = 0
        while True:
            parameters = {"epoch": epoch, "since": max(0, since), "after": after}
            try:
                found = self._json("GET", _queue_path(queue, "first"), parameters=parameters)
            except ApiError as error:
                if error.code != "no-such-path":
                    raise
                raise ConfigurationError(
                    f"the queue manager at {self.url} is of an earlier version that "
                    "cannot search by time: start this version there, or give sequences "
                    "(startingOffsets, endingOffsets)"
                ) from error
            if found["sequence"] is not None or found["looked_to"] >= found["end"]:
                return cast("int | None", found["sequence"])
            after = found["looked_to"]

    def rows(
        self,
        queue: str,
        *,
        epoch: str,
        after: int,
        to: int,
        envelope: bool = False,
        dense: bool = False,
        queue_manager: str | None = None,
        columns: Sequence[str] = NAMES,
    ) -> RowsStream:
        """Return the rows of (after, to] as a stream (``GET rows``).

        The stream is Arrow IPC, or, with ``dense``, the denser form of srmp-spark's own readers
        (:mod:`srmp_spark.rows.dense`) if the queue manager supports it. ``columns`` are the columns
        that are needed; the denser form may have other columns too. ``queue_manager`` is the
        identifier of the expected queue manager. Raises :class:`ApiError` ``another-queue-manager``
        if another one answers.
        """
        parameters: dict[str, object] = {
            "epoch": epoch,
            "after": after,
            "to": to,
            "queue_manager": queue_manager,
        }
        if envelope:
            parameters["envelope"] = 1
        if tuple(columns) != NAMES:
            parameters["columns"] = ",".join(columns)
        accept = f"{DENSE_STREAM}, {ARROW_STREAM};q=0.5" if dense else ARROW_STREAM
        response = self._call(
            "GET",
            _queue_path(queue, "rows"),
            parameters=parameters,
            headers={"Accept": accept},
            stream=True,
        )
        answered = response.headers.get(QUEUE_MANAGER_HEADER)
        if queue_manager is not None and answered not in (None, queue_manager):
            response.close()
            message = (
                f"rows of queue manager {queue_manager} were requested, but "
                f"{answered} answers at {self.url}"
            )
            raise ApiError(
                409, ANOTHER_QUEUE_MANAGER, message, "name each queue manager by a URL of its own"
            )
        return RowsStream(response, f"the queue manager at {self.url}")

    # --- consumers --------------------------------------------------------------------------------

    def register(
        self,
        queue: str,
        consumer: str,
        *,
        holder: Mapping[str, Any] | str,
        epoch: str | None = None,
        first: int | None = None,
        ranged: bool = False,
        timeout: float | None = None,
    ) -> Registration:
        """Acquire or renew the lease of a consumer; return the sequences that it has received.

        The call waits while another receiver holds the lease. The call raises :class:`ApiError`
        ``C00E0009`` with the name of the holder as soon as that receiver renews. ``first`` is the
        first sequence that this receiver plans; its marks (calls of :meth:`received`) cover nothing
        below. With ``ranged`` each mark states where it begins, unless that is the first sequence.
        With ``timeout`` there is one attempt of at most that many seconds.
        """
        body: dict[str, object] = {"holder": holder}
        if epoch is not None:
            body["epoch"] = epoch
        if first is not None:
            body["from"] = first
        if ranged:
            body["ranged"] = True
        path = _consumer_path(queue, consumer, "register")
        answer = self._json(
            "POST", path, body=body, timeout=timeout or REGISTER_SECONDS, retry=timeout is None
        )
        return Registration(
            answer["epoch"],
            answer["received"],
            _ranges(answer),
            answer["queue_manager"],
            answer.get("ahead_after"),
        )

    def all_ahead(
        self, queue: str, consumer: str, registration: Registration
    ) -> Iterator[tuple[int, int]]:
        """Yield the closed ranges above the consumer's mark that are received too, ascending.

        The first ranges are from ``registration``; further ones are requested (:meth:`ahead_of`).
        """
        yield from registration.ahead
        if registration.ahead_after is not None:
            yield from self.ahead_of(queue, consumer, registration.ahead_after)

    def ahead_of(self, queue: str, consumer: str, after: int = 0) -> Iterator[tuple[int, int]]:
        """Yield the closed ranges above the consumer's mark and above ``after`` that are received.

        The ranges ascend. Yield nothing if the consumer or the queue is unknown.
        """
        next_after: int | None = after
        while next_after is not None:
            try:
                answer = self._json(
                    "GET", _consumer_path(queue, consumer), parameters={"after": next_after}
                )
            except ApiError as error:
                if error.status != 404:
                    raise
                # No receiver has used this name, or the queue does not exist any longer.
                return
            yield from _ranges(answer)
            next_after = answer.get("ahead_after")

    def received(
        self,
        queue: str,
        consumer: str,
        *,
        epoch: str,
        to: int,
        holder: Mapping[str, Any] | str,
        first: int | None = None,
        sequences: Sequence[int] | None = None,
        rejected: bool = False,
    ) -> int:
        """Mark sequences as received and return the consumer's mark after that.

        The mark is the sequence up to which all are received. The marked sequences are ``first`` to
        ``to``, both included, or exactly ``sequences``. Without both, they are the planned
        sequences of the lease up to ``to``. ``rejected`` means that the rows were read and are not
        wanted; a sender that requested a receipt is notified of the rejection.
        """
        body: dict[str, object] = {"epoch": epoch, "to": to, "holder": holder}
        if first is not None:
            body["from"] = first
        if sequences is not None:
            body["sequences"] = list(sequences)
        if rejected:
            body["rejected"] = True
        return int(
            self._json("POST", _consumer_path(queue, consumer, "received"), body=body)["received"]
        )

    def release(
        self,
        queue: str,
        consumer: str,
        *,
        holder: Mapping[str, Any] | str,
        timeout: float | None = None,
    ) -> None:
        """Release the lease of a consumer.

        With ``timeout`` there is one attempt of at most that many seconds.
        """
        self._json(
            "POST",
            _consumer_path(queue, consumer, "release"),
            body={"holder": holder},
            timeout=timeout,
            retry=timeout is None,
        )

    # --- queues and messages ----------------------------------------------------------------------

    def put_queue(
        self,
        queue: str,
        only: str | None = None,
        **settings: Any,  # noqa: ANN401  # settings of a queue are JSON
    ) -> dict[str, Any]:
        """Create a queue, or change its settings, and return its entry (``PUT queues/{q}``).

        With ``only`` = ``create`` an existing queue is not changed, and must have these settings.
        With ``only`` = ``change`` a missing queue is not created. A queue of another kind raises
        :class:`ApiError` with status 409.
        """
        parameters = {"only": only}
        return self._object("PUT", _queue_path(queue), body=settings, parameters=parameters)

    def delete_queue(self, queue: str, *, unused: bool = False) -> dict[str, Any]:
        """Delete a queue and its rows, and return the answer (``DELETE queues/{q}``).

        With ``unused`` a queue that is in use stays, and :class:`ApiError` is raised.
        """
        parameters = {"unused": 1 if unused else None}
        return self._object("DELETE", _queue_path(queue), parameters=parameters)

    def purge(self, queue: str) -> dict[str, Any]:
        """Purge the rows of a queue and return the answer (``POST queues/{q}/purge``)."""
        return self._object("POST", _queue_path(queue, "purge"), body={})

    def give_up(self, queue: str, first: int, last: int, *, force: bool = False) -> dict[str, Any]:
        """Turn damaged rows ``first`` to ``last``, both included, into counted holes.

        Return the answer of ``POST queues/{q}/give-up``. With ``force`` it also works in a queue
        without damage.
        """
        parameters = {"first": first, "last": last} | ({"force": 1} if force else {})
        return self._object("POST", _queue_path(queue, "give-up"), body={}, parameters=parameters)

    def trim(
        self,
        queue: str,
        *,
        received: bool = False,
        before: int | None = None,
        before_time: int | None = None,
        force: bool = False,
    ) -> dict[str, Any]:
        """Delete rows that are no longer needed, and return the answer (``POST queues/{q}/trim``).

        Give one of ``received``, ``before`` (a sequence) and ``before_time`` (microseconds since
        1970). With ``force`` rows are deleted too that a consumer still needs.
        """
        parameters = {
            "received": 1 if received else None,
            "before": before,
            "before_time": before_time,
            "force": 1 if force else None,
        }
        return self._object("POST", _queue_path(queue, "trim"), body={}, parameters=parameters)

    def pause(self, queue: str, direction: str | None = None) -> dict[str, Any]:
        """Pause a queue and return the answer (``POST queues/{q}/pause``).

        ``direction`` is ``in`` (the default: no messages are accepted) or ``out`` (readers wait).
        """
        parameters = {"direction": direction}
        return self._object("POST", _queue_path(queue, "pause"), body={}, parameters=parameters)

    def resume(self, queue: str, direction: str | None = None) -> dict[str, Any]:
        """End the pause of a queue, of one direction or of both (``POST queues/{q}/resume``)."""
        parameters = {"direction": direction}
        return self._object("POST", _queue_path(queue, "resume"), body={}, parameters=parameters)

    def send(self, queue: str, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Store messages in a queue of the queue manager itself (``POST queues/{q}/messages``).

        Return one entry for each message. The call is not repeated automatically, because a lost
        answer may hide an accepted message.
        """
        answer: list[dict[str, Any]] = self._json(
            "POST", _queue_path(queue, "messages"), body=list(messages), retry=False
        )
        return answer

    def is_ready(self) -> bool:
        """Return whether the queue manager answers that it is ready (``GET /readyz``).

        There is one attempt. Return False if the queue manager is not ready or does not answer.
        """
        try:
            self._call("GET", "/readyz", timeout=CONNECT_SECONDS, retry=False)
        except (ApiError, ApiUnreachableError):
            return False
        return True

    # --- transport --------------------------------------------------------------------------------

    def _json(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401  # JSON
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        retry: bool = True,
    ) -> Any:  # noqa: ANN401  # JSON
        response = self._call(
            method, path, body=body, parameters=parameters, timeout=timeout, retry=retry
        )
        try:
            return response.json() if response.content else {}
        except ValueError:
            raise ApiError(
                response.status_code,
                "no-json",
                f"{self.url} answered {response.text[:ERROR_TEXT_MAX]!r}, not JSON",
                "is this the API port of a queue manager?",
            ) from None

    def _object(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401  # JSON
        parameters: Mapping[str, Any] | None = None,
        retry: bool = True,
    ) -> dict[str, Any]:
        answer: dict[str, Any] = self._json(
            method, path, body=body, parameters=parameters, retry=retry
        )
        return answer

    def _call(
        self,
        method: str,
        path: str,
        *,
        body: Any = None,  # noqa: ANN401  # JSON
        parameters: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        timeout: float | None = None,
        stream: bool = False,
        retry: bool = True,
        content: Iterable[Any] | None = None,
    ) -> requests.Response:
        parameters = {key: value for key, value in (parameters or {}).items() if value is not None}
        data = content if body is None else json.dumps(body).encode()
        sent = (
            {"Content-Type": "application/json", **(headers or {})}
            if data is not None
            else dict(headers or {})
        )
        started = time.monotonic()
        told = False
        for pause in _pauses():
            session = self._session()
            try:
                response = session.request(
                    method,
                    self.url + path,
                    params=parameters,
                    data=data,
                    headers=sent,
                    stream=stream,
                    allow_redirects=False,
                    timeout=(
                        CONNECT_SECONDS if content is None else SEND_SECONDS,
                        timeout or ANSWER_SECONDS,
                    ),
                    verify=session.verify,
                )
            except requests.RequestException as error:
                problem: Exception = ApiUnreachableError(_unreachable(self.url, error))
            else:
                if response.status_code < 300:
                    return response
                problem = _refusal(response)
                response.close()
                if response.status_code != 503:
                    raise problem
            if not retry or time.monotonic() - started + pause > self._retry_seconds:
                raise problem
            waited = time.monotonic() - started + pause
            if (
                not told
                and waited > WAITING_TOLD_SECONDS
                and self._retry_seconds > 2 * WAITING_TOLD_SECONDS
            ):
                told = True
                _log.warning(
                    "call.waiting up to %g s for an answer: %s", self._retry_seconds, problem
                )
            _log.info(
                "call.repeated method=%s path=%s pause_s=%s reason=%s", method, path, pause, problem
            )
            time.sleep(pause)
        raise AssertionError("the pauses never end")

    def _session(self) -> requests.Session:
        session: requests.Session | None = getattr(self._local, "session", None)
        if session is None:
            session = requests.Session()
            session.auth = _Bearer(self._token)
            session.headers[CLIENT_HEADER] = "1"
            # A proxy from the environment cannot reach the loopback of this machine.
            session.trust_env = not self._is_loopback
            session.verify = (
                self.url.lower().startswith("https:") and ca_bundle(os.environ)
            ) or True
            self._local.session = session
        return session

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without connections, so that the client can be pickled into tasks."""
        return {key: value for key, value in self.__dict__.items() if key != "_local"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._local = threading.local()


def _pauses() -> Iterator[float]:
    yield from RETRY_PAUSES_SECONDS
    while True:
        yield RETRY_PAUSES_SECONDS[-1]


def _unreachable(url: str, error: Exception) -> str:
    wrapped = error.args[0] if error.args else error
    # urllib3 writes the repr of an object before the reason.
    reason = str(getattr(wrapped, "reason", None) or wrapped).rpartition("): ")[2]
    if isinstance(error, requests.exceptions.SSLError) and any(
        sign in reason for sign in _PLAIN_HTTP_SIGNS
    ):
        hint = f"it speaks plain HTTP: write http://{url.partition('://')[2]}"
    elif isinstance(error, requests.exceptions.SSLError):
        hint = f"a private CA is named by {' or '.join(CA_VARIABLES)}=FILE"
    elif url.startswith("http://") and "RemoteDisconnected" in reason:
        hint = f"a server there closes the connection: if serve has --api-cert, write https://{url.partition('://')[2]}"
    else:
        hint = "is `srmp-spark serve` running, and is this its --api address?"
    return with_hint(f"no queue manager answers at {url} ({reason})", hint)


def _refusal(response: requests.Response) -> ApiError:
    try:
        error = response.json()["error"]
        return ApiError(
            response.status_code,
            str(error["code"]),
            str(error["message"]),
            str(error.get("hint") or ""),
            str(error.get("section") or ""),
        )
    except (ValueError, KeyError, TypeError):
        text = response.text[:ERROR_TEXT_MAX]
        if response.headers.get("Server", "").startswith("srmp-spark/"):
            parts = split_url(str(response.url))
            return ApiError(
                response.status_code,
                "srmp-port",
                f"port {parts.port} of {parts.host} is a queue manager's SRMP port, not its API",
                "give the API's address: serve prints it when it is ready, by default http://127.0.0.1:8081",
            )
        return ApiError(
            response.status_code,
            f"http-{response.status_code}",
            f"{response.url} answered {response.status_code}: {text!r}",
        )


def _queue_path(queue: str, action: str = "") -> str:
    return f"/v1/queues/{quote_queue_name(queue)}{'/' + action if action else ''}"


def _consumer_path(queue: str, consumer: str, action: str = "") -> str:
    return (
        f"{_queue_path(queue)}/consumers/{quote_queue_name(consumer)}"
        f"{'/' + action if action else ''}"
    )


def _ranges(answer: Mapping[str, Any]) -> tuple[tuple[int, int], ...]:
    return tuple((int(low), int(high)) for low, high in answer.get("ahead", ()))
