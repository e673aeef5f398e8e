"""The API of a queue manager, one method a call (INTERFACE.md section 3).

Theory of operation: a queue manager may be restarted, or killed and restarted, at any moment, and that is no error for a
reader: every call that can be repeated without harm is repeated with growing pauses until :data:`RETRY_SECONDS` have
passed without any answer; only then it is :class:`ApiUnreachableError`. A refusal (4xx) is final at once and becomes
:class:`ApiError` with the code, hint and section that the queue manager gave. Each thread has its own connection.
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
"""A queue manager that does not take a connection within this is not there."""
SEND_SECONDS = 60.0
"""Longest a queue manager may take no byte of a long body: its disk may be slow."""
ANSWER_SECONDS = 60.0
"""Longest silence within an answer; the slowest normal one is a read of a cold range."""
REGISTER_SECONDS = 90.0
"""A register call waits for the present holder's lease to end, up to 60 s after its last call."""
RETRY_SECONDS = 30.0
"""How long a repeatable call is tried again while nobody answers: a restart takes seconds; a wrong URL should be told soon."""
RETRY_PAUSES_SECONDS = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
"""Pauses between attempts; the last one repeats."""
WAITING_TOLD_SECONDS = 3.0
"""After this long without an answer a call says that it is waiting: a restart is shorter, a wrong URL should be seen soon.
Only a call that waits much longer says it (Spark's): a command's error is one line, and comes soon anyway."""
_PLAIN_HTTP_SIGNS = (
    "WRONG_VERSION_NUMBER",
    "wrong version number",
    "record layer failure",
    "RECORD_LAYER_FAILURE",
)
"""What OpenSSL says of an answer that is no TLS."""
ERROR_TEXT_MAX = 500
"""Characters of an answer that is no JSON (a proxy's page) that stand in an error."""

CA_VARIABLES = ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE")
"""Environment variables that name the CAs of an ``https`` API; the first one that is set counts. See :func:`ca_bundle`."""

_log = logging.getLogger(__name__)


def ca_bundle(environment: Mapping[str, str]) -> str | None:
    """The file, or the folder made by ``openssl rehash``, with the CAs to trust; ``None``: those that come with ``requests``.

    ``requests`` reads its variable only together with the proxies, which must not stand between us and our own loopback;
    and ``SSL_CERT_FILE``, which OpenSSL's other users go by, not at all. So both are read here, for every host.
    Raises :class:`ConfigurationError` if there is nothing at the path.
    """
    for name in CA_VARIABLES:
        path = environment.get(name)
        if path:
            if not Path(path).exists():
                raise ConfigurationError(f"{name}: there is no file or folder {path!r}")
            return path
    return None


def is_loopback(host: str) -> bool:
    """Return whether nothing that is sent to ``host`` leaves this machine. A name like ``127.example.com`` does."""
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return host.lower() == "localhost"


class QueueRange(NamedTuple):
    """What ``GET range`` answers: the retained rows of an epoch, and where a batch that starts after ``after`` ends."""

    epoch: str
    first: int
    """Oldest retained sequence; ``end + 1`` if none is."""
    last: int
    """Where the batch ends under its limits; ``after`` if there is nothing."""
    end: int
    """Last committed sequence of the epoch."""
    next_epoch: str | None = None
    """The epoch that follows; sequences go on counting in it."""


class Registration(NamedTuple):
    """What ``POST register`` answers to the receiver that now holds the lease."""

    epoch: str
    received: int
    """All sequences up to here are received."""
    ahead: tuple[tuple[int, int], ...]
    """Closed ranges above ``received`` that are received too; the first ones, if ``ahead_after`` says so."""
    queue_manager: str
    ahead_after: int | None = None
    """There are more of them, above this sequence: :meth:`QueueManagerClient.all_ahead` asks for them."""


class _Bearer(requests.auth.AuthBase):
    """Sets the token, and keeps ``requests`` from taking one out of a ``.netrc`` instead."""

    def __init__(self, token: str | None) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        if self._token:
            request.headers["Authorization"] = f"Bearer {self._token}"
        return request


class QueueManagerClient:
    """One queue manager, by the URL of its API.

    ``token`` is sent as ``Authorization: Bearer``. The certificate of an ``https`` URL is always checked;
    :data:`CA_VARIABLES` name a private CA, and count where the call is made: on Spark executors as on the driver.
    Raises :class:`ConfigurationError` for a URL that is none.
    """

    def __init__(
        self,
        url: str,
        token: str | None = None,
        *,
        retry_seconds: float = RETRY_SECONDS,
        allow_plain_token: bool = False,
    ) -> None:
        """``allow_plain_token``: send the token over plain HTTP beyond loopback, where everybody on the way can read it."""
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
                f"the token would be sent to {parts.host} over plain HTTP, and everybody "
                "on the way could read it; write "
                "https://, or accept it: option allowPlainToken=true, of commands "
                "--allow-plain-token"
            )
        self._local = threading.local()

    def __repr__(self) -> str:
        return f"<QueueManagerClient {self.url}>"

    # --- reading -----------------------------------------------------------------------------------------------------

    def status(self, *, retry: bool = True, queues: str | None = None) -> dict[str, Any]:
        """``GET status``; without ``retry`` one attempt; ``queues``: a name or glob, of queues and incoming streams."""
        parameters = {} if queues is None else {"queues": queues}
        return cast(
            "dict[str, Any]", self._json("GET", "/v1/status", parameters=parameters, retry=retry)
        )

    def status_summary(self) -> dict[str, Any]:
        """``GET status?summary=1``: ``totals``, and what needs a look. A queue manager of before it answers with everything."""
        return cast("dict[str, Any]", self._json("GET", "/v1/status", parameters={"summary": 1}))

    def delete_consumer(self, queue: str, consumer: str) -> None:
        """``DELETE consumers/{consumer}``: forget a named consumer and its marks."""
        self._json("DELETE", _consumer_path(queue, consumer))

    def queues(self) -> list[dict[str, Any]]:
        """``GET queues``: one object a queue, as in ``status``."""
        answer = self._json("GET", "/v1/queues")
        return cast(
            "list[dict[str, Any]]", answer["queues"] if isinstance(answer, dict) else answer
        )

    def queue(self, queue: str) -> dict[str, Any]:
        """``GET queues/{q}``: the entry of one queue, also of one that is not listed (an empty system queue)."""
        return cast("dict[str, Any]", self._json("GET", _queue_path(queue)))

    def range(
        self,
        queue: str,
        *,
        after: int | None = None,
        epoch: str | None = None,
        max_rows: int | None = None,
        max_bytes: int | None = None,
        wait: float | None = None,
    ) -> QueueRange:
        """``GET range``. Without ``after``: from the oldest retained row; without ``epoch``: the current one.

        ``wait`` (seconds): answer as soon as something lies behind ``after``. Raises :class:`ApiError` with code
        ``unknown-epoch``, ``trimmed`` or ``past-the-end``.
        """
        parameters = {
            "epoch": epoch,
            "after": after,
            "max_rows": max_rows,
            "max_bytes": max_bytes,
            "wait": wait,
        }
        answer = self._json("GET", _queue_path(queue, "range"), parameters=parameters)
        return QueueRange(
            answer["epoch"],
            answer["first"],
            answer["last"],
            answer["end"],
            answer.get("next_epoch"),
        )

    def holes(self, queue: str, *, epoch: str, after: int, to: int) -> int:
        """``GET holes``: how many sequences of (after, to] are counted holes (purged or damaged rows)."""
        return int(
            self._json(
                "GET",
                _queue_path(queue, "holes"),
                parameters={"epoch": epoch, "after": after, "to": to},
            )["count"]
        )

    def first_since(self, queue: str, *, epoch: str, since: int) -> int | None:
        """``GET first``, as often as it takes: the first row of an epoch with ``arrived_at`` of at least ``since``.

        ``since`` is microseconds since 1970; ``None``: no retained row has arrived so late. Rows need not lie in the order of
        these times. Raises :class:`ApiError`, and :class:`ConfigurationError` for a queue manager that cannot search.
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
                    f"the queue manager at {self.url} is of an earlier version, which "
                    "cannot search for a time: "
                    "start this version of it there, or give sequences (startingOffsets, "
                    "endingOffsets)"
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
        """``GET rows``: the rows of (after, to] as an Arrow IPC stream, or in the denser form of our own readers.

        ``columns``: those that are needed; the denser form may have others as well.
        ``queue_manager``: whose rows they are. Raises :class:`ApiError` ``another-queue-manager`` if another one answers.
        """
        parameters: dict[str, Any] = {
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
                f"rows of queue manager {queue_manager} were asked for, and "
                f"{answered} answers at {self.url}"
            )
            raise ApiError(
                409, ANOTHER_QUEUE_MANAGER, message, "name each queue manager by a URL of its own"
            )
        return RowsStream(response, f"the queue manager at {self.url}")

    # --- consumers ---------------------------------------------------------------------------------------------------

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
        """Take the lease of a consumer, or renew it.

        Waits while another receiver holds it: :class:`ApiError` ``C00E0009`` naming the holder as soon as that one
        renews. ``first``: the first sequence this receiver plans; its marks cover nothing below. ``ranged``: its marks say
        themselves where they begin, unless that is the first sequence.
        With ``timeout``: one attempt of at most that many seconds.
        """
        body: dict[str, Any] = {"holder": holder}
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
        """Yield every closed range above the mark that is received too, ascending: also those that the answer left out."""
        yield from registration.ahead
        if registration.ahead_after is not None:
            yield from self.ahead_of(queue, consumer, registration.ahead_after)

    def ahead_of(self, queue: str, consumer: str, after: int = 0) -> Iterator[tuple[int, int]]:
        """Yield every closed range above the mark and above ``after`` that is received, ascending; none of a consumer that is
        not known."""
        next_after: int | None = after
        while next_after is not None:
            try:
                answer = self._json(
                    "GET", _consumer_path(queue, consumer), parameters={"after": next_after}
                )
            except ApiError as error:
                if error.status != 404:
                    raise
                return  # nobody has read anything by that name, or the queue is gone
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
        """Mark ``first`` to ``to`` as received, or just ``sequences``; answers the consumer's mark.

        Without both: what was planned with the lease, up to ``to``.
        ``rejected``: these rows were read and are not wanted; whoever asked for their end is told so.
        """
        body: dict[str, Any] = {"epoch": epoch, "to": to, "holder": holder}
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
        """Give the lease up. With ``timeout``: one attempt of at most that many seconds."""
        self._json(
            "POST",
            _consumer_path(queue, consumer, "release"),
            body={"holder": holder},
            timeout=timeout,
            retry=timeout is None,
        )

    # --- queues and messages -----------------------------------------------------------------------------------------

    def put_queue(self, queue: str, **settings: Any) -> dict[str, Any]:  # noqa: ANN401  # settings of a queue are JSON
        """``PUT queues/{q}``: create it, or look that it is there; one of the other kind is a 409."""
        return cast("dict[str, Any]", self._json("PUT", _queue_path(queue), body=settings))

    def delete_queue(self, queue: str) -> None:
        """``DELETE queues/{q}``."""
        self._json("DELETE", _queue_path(queue))

    def purge(self, queue: str) -> dict[str, Any]:
        """``POST queues/{q}/purge``."""
        return cast("dict[str, Any]", self._json("POST", _queue_path(queue, "purge"), body={}))

    def give_up(self, queue: str, first: int, last: int, *, force: bool = False) -> dict[str, Any]:
        """``POST queues/{q}/give-up``: damaged rows become counted holes; ``force``: also in a queue without damage."""
        parameters = {"first": first, "last": last} | ({"force": 1} if force else {})
        return cast(
            "dict[str, Any]",
            self._json("POST", _queue_path(queue, "give-up"), body={}, parameters=parameters),
        )

    def pause(self, queue: str) -> None:
        """``POST queues/{q}/pause``."""
        self._json("POST", _queue_path(queue, "pause"), body={})

    def resume(self, queue: str) -> None:
        """``POST queues/{q}/resume``."""
        self._json("POST", _queue_path(queue, "resume"), body={})

    def send(self, queue: str, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """``POST queues/{q}/messages``. Not repeated by itself: a lost answer may hide an accepted message."""
        body = list(messages)
        return cast(
            "list[dict[str, Any]]",
            self._json("POST", _queue_path(queue, "messages"), body=body, retry=False),
        )

    def is_ready(self) -> bool:
        """``GET /readyz``, one attempt."""
        try:
            self._call("GET", "/readyz", timeout=CONNECT_SECONDS, retry=False)
        except (ApiError, ApiUnreachableError):
            return False
        return True

    # --- transport ---------------------------------------------------------------------------------------------------

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
            # A proxy from the environment cannot reach our own loopback
            session.trust_env = not self._is_loopback
            session.verify = (
                self.url.lower().startswith("https:") and ca_bundle(os.environ)
            ) or True
            self._local.session = session
        return session

    def __getstate__(self) -> dict[str, Any]:
        """Pickled into tasks without its connections."""
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
    reason = str(getattr(wrapped, "reason", None) or wrapped).rpartition("): ")[
        2
    ]  # urllib3 puts an object's repr in front
    if isinstance(error, requests.exceptions.SSLError) and any(
        sign in reason for sign in _PLAIN_HTTP_SIGNS
    ):
        hint = f"it speaks plain HTTP: write http://{url.partition('://')[2]}"
    elif isinstance(error, requests.exceptions.SSLError):
        hint = f"a private CA is named by {' or '.join(CA_VARIABLES)}=FILE"
    elif url.startswith("http://") and "RemoteDisconnected" in reason:
        hint = f"somebody listens there and hangs up: if serve has --api-cert, write https://{url.partition('://')[2]}"
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
