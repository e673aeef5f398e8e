"""The options of ``format("srmp")``, as one table for the checks and the documentation.

INTERFACE.md section 4 describes the options. Spark passes unknown options on silently, so the
source itself refuses them, and suggests the nearest known name. Options without effect are errors
too, because the user expects an effect.

Spark builds a reader in several processes, and hides an exception of ``streamReader()`` behind an
``UnboundLocalError`` of its own. So everything that can be checked without the mode is checked in
``DataSource.schema()`` (:func:`parse`). The rest is checked when a reader of a known mode first
works (:func:`check_stream`, :func:`check_batch`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timezone
from typing import Any, Literal, NamedTuple

from srmp_spark.client.api import RETRY_SECONDS
from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import DEFAULT_CONSUMER
from srmp_spark.names import CONSUMER_NAME_LENGTH_MAX, local_queue_name, split_queue_suffixes
from srmp_spark.spark.settings.by_queue import ByQueue, parse_by_queue
from srmp_spark.spark.settings.chosen_columns import names_in
from srmp_spark.spark.settings.option_values import (
    OptionSpec,
    api_url,
    boolean,
    choice,
    duration_s,
    token,
)

EARLIEST, LATEST = -2, -1
"""Kafka's numbers in an offsets JSON for the oldest kept row, and for after the last row."""

DELAY_SECONDS = 15 * 60.0
"""Default of ``maxTriggerDelay``, in seconds, as in Spark's Kafka source."""
TIMEOUT_SECONDS_MAX = 24 * 3_600.0
"""Largest ``queueManagerTimeout``, in seconds: longer outages need a person."""

_CONSUMER = re.compile(r"[^\s/\\,]+")


SOURCE_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "queueManager",
        "both",
        "API URLs of the queue managers, comma separated. All are read in parallel.",
        kind="URLs",
        limits="Required, unless dataDir is given. Each URL once, without a path.",
    ),
    OptionSpec(
        "queue",
        "both",
        "Names or globs of the queues to read, comma separated.",
        kind="names",
        limits="Required; with dataDir the default is the names in queues.",
    ),
    OptionSpec(
        "readMode",
        "both",
        "receive takes a lease and moves the mark of the consumer. peek does neither.",
        kind="receive or peek",
        default="receive; in a batch peek",
        limits="A batch refuses receive.",
    ),
    OptionSpec(
        "consumer",
        "both",
        "Consumer whose mark is used. Only the consumer default decides about receipts to "
        "senders, and counts for quotas.",
        kind="name",
        default="default",
        limits="1 to 100 characters, without space, slash and comma.",
    ),
    OptionSpec(
        "startingOffsets",
        "both",
        "Where a new query begins: at the first row that the consumer has not received "
        "(unreceived), at the oldest row (earliest), after the newest row (latest), or at the "
        "sequences of a JSON.",
        kind="unreceived, earliest, latest, JSON {queue: first sequence}, or JSON {queue manager: "
        "{queue: first sequence}}",
        default="unreceived",
        limits=(
            "Not with startingTimestamp. A batch refuses latest. In a JSON, -2 is the oldest row "
            "and -1 is after the newest."
        ),
    ),
    OptionSpec(
        "startingTimestamp",
        "both",
        "Begins at the first row that arrived at or after this time; without such a row after "
        "the newest one.",
        kind="RFC 3339 with time zone, milliseconds since 1970, or JSON as in startingOffsets",
        limits="Not with startingOffsets.",
    ),
    OptionSpec(
        "endingOffsets",
        "batch",
        "Where a batch ends: at the newest row, or at the last sequences of a JSON, which are "
        "included.",
        kind="latest, JSON {queue: last sequence}, or JSON {queue manager: {queue: last sequence}}",
        default="latest",
        limits="Not with endingTimestamp.",
    ),
    OptionSpec(
        "endingTimestamp",
        "batch",
        "Ends before the first row that arrived at or after this time.",
        kind="RFC 3339 with time zone, milliseconds since 1970, or JSON as in startingOffsets",
        limits="Not with endingOffsets.",
    ),
    OptionSpec(
        "maxOffsetsPerTrigger",
        "stream",
        "Most rows of a micro-batch. Counted holes count as rows.",
        kind="whole number",
        limits="Above 0.",
    ),
    OptionSpec(
        "maxBytesPerTrigger",
        "stream",
        "Most stored bytes of a micro-batch. A larger row is a micro-batch alone.",
        kind="whole number",
        limits="Above 0.",
    ),
    OptionSpec(
        "minOffsetsPerTrigger",
        "stream",
        "A micro-batch waits until this many rows are there, but not longer than maxTriggerDelay.",
        kind="whole number",
        limits="Above 0, and at most maxOffsetsPerTrigger.",
    ),
    OptionSpec(
        "maxTriggerDelay",
        "stream",
        "How long minOffsetsPerTrigger waits after the micro-batch before.",
        kind="duration: 500ms, 30s, 15m, 1 minute 30 seconds; a number alone is milliseconds",
        default="15m",
        limits="Only with minOffsetsPerTrigger.",
    ),
    OptionSpec(
        "minPartitions",
        "both",
        "Splits the rows of a batch into at least about this many tasks.",
        kind="whole number",
        limits="Above 0.",
    ),
    OptionSpec(
        "maxRecordsPerPartition",
        "both",
        "Most rows of a task. More rows of a queue become several tasks.",
        kind="whole number",
        limits="Above 0.",
    ),
    OptionSpec(
        "queueManagerTimeout",
        "both",
        "How long a query waits for a queue manager that does not answer, before it ends. A query "
        "of several goes on with the others, and ends if none answers.",
        kind="duration: 500ms, 30s, 15m, 1 minute 30 seconds; a number alone is milliseconds",
        default="30s",
        limits="Above 0, at most 1d.",
    ),
    OptionSpec(
        "failOnDataLoss",
        "both",
        "true ends the query when rows are gone that it planned to read. false leaves them out, "
        "and logs it.",
        kind="true or false",
        default="true",
    ),
    OptionSpec(
        "failOnQueueInUse",
        "stream",
        "true ends the query when another receiver holds a queue of a glob. false reads the "
        "other queues, and logs it.",
        kind="true or false",
        default="false",
    ),
    OptionSpec(
        "columns",
        "both",
        "Columns to read, comma separated, in this order. The rest is not decoded. .schema(…) "
        "does the same.",
        kind="names",
        default="all but the content of envelope",
        limits="Names of the columns page; an unknown one is refused.",
    ),
    OptionSpec(
        "includeEnvelope",
        "both",
        "true fills the column envelope.",
        kind="true or false",
        default="false",
    ),
    OptionSpec(
        "reportTimes",
        "stream",
        "true reports the milliseconds that the reader spent, as ms in sources[].latestOffset of "
        "the progress.",
        kind="true or false",
        default="false",
    ),
    OptionSpec(
        "token",
        "both",
        "Token of the API.",
        default="the variable SRMP_SPARK_TOKEN",
    ),
    OptionSpec(
        "allowPlainToken",
        "both",
        "true sends the token over plain HTTP beyond loopback, where others can read it.",
        kind="true or false",
        default="false",
    ),
    OptionSpec(
        "dataDir",
        "both",
        "Embedded: data directory of the queue manager to start, or to join if it runs.",
        kind="path",
        limits="Not with queueManager. Driver and executors share one host.",
    ),
)

SERVE_OPTIONS: dict[str, str] = {
    "listen": "listen",
    "queues": "queue",
    "api": "api",
    "hostName": "host-name",
    "publicUrl": "public-url",
    "allowUrl": "allow-url",
    "unknownQueue": "unknown-queue",
    "invalidSignature": "invalid-signature",
    "expired": "expired",
    "listenHttps": "listen-https",
    "listenWsrm": "listen-wsrm",
    "listenCert": "listen-cert",
    "listenKey": "listen-key",
    "clientCa": "client-ca",
    "requireClientCert": "require-client-cert",
    "caFile": "ca-file",
    "clientCert": "client-cert",
    "clientKey": "client-key",
    "state": "state",
    "stateInterval": "state-interval",
    "retentionHours": "retention-hours",
    "queueQuotaBytes": "queue-quota-bytes",
    "machineQuotaBytes": "machine-quota-bytes",
    "resendTable": "resend-table",
    "retransmissionTimeout": "retransmission-timeout",
    "tokenFile": "token-file",
    "apiCert": "api-cert",
    "apiKey": "api-key",
    "storeAndForward": "store-and-forward",
    "wsrmBuffer": "wsrm-buffer",
    "wsrmPollInterval": "wsrm-poll-interval",
    "pgm": "pgm",
    "pgmInterface": "pgm-interface",
    "pgmTtl": "pgm-ttl",
    "rpc": "rpc",
    "rpcEndpointMapper": "rpc-endpoint-mapper",
    "rpcAccounts": "rpc-accounts",
    "rpcMinAuth": "rpc-min-auth",
    "logLevel": "log-level",
    "logFormat": "log-format",
    "config": "config",
}
"""Options of an embedded queue manager, each with its flag of ``srmp-spark serve``.

INTERFACE.md section 2 describes the flags.
"""

REPEATED_FLAGS = frozenset({"queues", "hostName", "allowUrl"})
"""Options with comma separated values, each of which is a flag of its own for ``serve``."""

_KNOWN = {name.lower(): name for name in (*(spec.name for spec in SOURCE_OPTIONS), *SERVE_OPTIONS)}
_SPARK_OWN = frozenset({"path"})
"""Options that Spark adds by itself (``load("…")``).

Such options are refused with an error of their own.
"""


class Starting(NamedTuple):
    """Where a new query begins, in exactly one of three ways."""

    keyword: Literal["unreceived", "earliest", "latest"] | None = None
    sequences: ByQueue | None = None
    """First sequence by queue. :data:`EARLIEST` and :data:`LATEST` are allowed."""
    timestamp_us: int | ByQueue | None = None
    """Microseconds since 1970, UTC, for all queues or by queue."""

    @property
    def by_queue(self) -> ByQueue | None:
        """Return the sequences or times by queue, or ``None`` if neither is given by queue."""
        return self.sequences if not isinstance(self.timestamp_us, Mapping) else self.timestamp_us


UNRECEIVED = Starting("unreceived")
"""The default start: the first row that the consumer has not received."""


class Ending(NamedTuple):
    """Where a batch read ends: at the last row now, or in one of two other ways."""

    sequences: ByQueue | None = None
    """Last sequence by queue. :data:`LATEST` is allowed."""
    timestamp_us: int | ByQueue | None = None
    """Microseconds since 1970, UTC, for all queues or by queue.

    The first row that arrived at or after this time is not read, and no row after it.
    """

    @property
    def by_queue(self) -> ByQueue | None:
        """Return the sequences or times by queue, or ``None`` if neither is given by queue."""
        return self.sequences if not isinstance(self.timestamp_us, Mapping) else self.timestamp_us


TO_THE_END = Ending()
"""The default end: the last row at the time of planning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The checked options of a read with ``format("srmp")``.

    The options are pickled into tasks, and no repr shows the token.
    """

    queue_managers: tuple[str, ...] = ()
    """API URLs of the queue managers. Empty if the queue manager is embedded."""
    data_dir: str | None = None
    serve_flags: tuple[tuple[str, str], ...] = ()
    """Flags of an embedded queue manager as (flag, value), in the order of :data:`SERVE_OPTIONS`.
    """
    queues: tuple[str, ...]
    """Names or globs of queues in canonical form."""
    read_mode: Literal["receive", "peek"] | None = None
    """The option ``readMode``, or ``None`` if it was not given."""
    consumer: str = DEFAULT_CONSUMER
    starting: Starting = UNRECEIVED
    ending: Ending = TO_THE_END
    max_rows: int | None = None
    max_bytes: int | None = None
    min_rows: int | None = None
    """Number of rows that a micro-batch waits for."""
    max_delay_s: float = DELAY_SECONDS
    """Longest time that a micro-batch waits for ``min_rows``, in seconds."""
    min_partitions: int | None = None
    rows_per_partition: int | None = None
    timeout_s: float = RETRY_SECONDS
    """Longest wait for a queue manager that does not answer, in seconds."""
    fail_on_data_loss: bool = True
    fail_on_queue_in_use: bool = False
    columns: tuple[str, ...] | None = None
    """Columns that the option ``columns`` names; ``None`` if the option was not given."""
    include_envelope: bool = False
    report_times: bool = False
    token: str | None = field(default=None, repr=False)
    allow_plain_token: bool = False
    given: frozenset[str] = frozenset()
    """Canonical names of the options that the user wrote."""


def parse(options: Mapping[str, str]) -> SourceOptions:
    """Check everything that can be checked without knowing whether it is a stream or a batch.

    Return the checked options. Raises :class:`ConfigurationError` for the first problem.
    """
    values = _canonical(options)
    embedded = _embedded(values)
    queues_text = values.get("queue") or (
        _served_names(values["queues"]) if embedded and values.get("queues") else None
    )
    if not queues_text:
        raise ConfigurationError(
            "option queue is missing: name the queues to read, for example "
            ".option('queue', 'private$/orders')"
        )
    for one, other in (
        ("startingOffsets", "startingTimestamp"),
        ("endingOffsets", "endingTimestamp"),
    ):
        if one in values and other in values:
            raise ConfigurationError(f"{one} and {other} exclude each other: give one of them")
    starting = (
        Starting(timestamp_us=_timestamps("startingTimestamp", values["startingTimestamp"]))
        if "startingTimestamp" in values
        else _starting(values.get("startingOffsets", "unreceived"))
    )
    ending = (
        Ending(timestamp_us=_timestamps("endingTimestamp", values["endingTimestamp"]))
        if "endingTimestamp" in values
        else _ending(values.get("endingOffsets"))
    )
    max_rows, min_rows = (
        _whole(name, values.get(name)) for name in ("maxOffsetsPerTrigger", "minOffsetsPerTrigger")
    )
    if max_rows is not None and min_rows is not None and min_rows > max_rows:
        raise ConfigurationError(
            f"minOffsetsPerTrigger ({min_rows}) is more than maxOffsetsPerTrigger ({max_rows})"
        )
    if "maxTriggerDelay" in values and min_rows is None:
        raise ConfigurationError(
            "option maxTriggerDelay has no effect without minOffsetsPerTrigger; leave it out"
        )
    return SourceOptions(
        queue_managers=() if embedded else _urls(values.get("queueManager")),
        data_dir=values.get("dataDir"),
        serve_flags=_serve_flags(values) if embedded else (),
        queues=tuple(_queue(part) for part in _split("queue", queues_text)),
        read_mode=_read_mode(values.get("readMode")),
        consumer=_consumer(values.get("consumer", DEFAULT_CONSUMER)),
        starting=starting,
        ending=ending,
        max_rows=max_rows,
        max_bytes=_whole("maxBytesPerTrigger", values.get("maxBytesPerTrigger")),
        min_rows=min_rows,
        max_delay_s=duration_s("maxTriggerDelay", values["maxTriggerDelay"])
        if "maxTriggerDelay" in values
        else DELAY_SECONDS,
        min_partitions=_whole("minPartitions", values.get("minPartitions")),
        rows_per_partition=_whole("maxRecordsPerPartition", values.get("maxRecordsPerPartition")),
        timeout_s=_timeout(values.get("queueManagerTimeout")),
        fail_on_data_loss=boolean("failOnDataLoss", values.get("failOnDataLoss", "true")),
        fail_on_queue_in_use=boolean("failOnQueueInUse", values.get("failOnQueueInUse", "false")),
        columns=names_in(values["columns"]) if "columns" in values else None,
        include_envelope=boolean("includeEnvelope", values.get("includeEnvelope", "false")),
        report_times=boolean("reportTimes", values.get("reportTimes", "false")),
        token=token(values),
        allow_plain_token=boolean("allowPlainToken", values.get("allowPlainToken", "false")),
        given=frozenset(values),
    )


def check_stream(options: SourceOptions) -> None:
    """Check the rules of ``spark.readStream``.

    Raises :class:`ConfigurationError` if a rule is broken.
    """
    _no_effect(options, "batch", "a streaming query reads until it is stopped")


def check_batch(options: SourceOptions) -> None:
    """Check the rules of ``spark.read``.

    Raises :class:`ConfigurationError` if a rule is broken.
    """
    if options.read_mode == "receive":
        raise ConfigurationError(
            "readMode=receive needs a streaming query: a batch read may run twice and has "
            "no commit, so it only peeks. "
            "Use readStream with trigger(availableNow=True), or leave readMode out"
        )
    _no_effect(options, "stream", "a batch read has no triggers")
    if options.starting.keyword == "latest" or (
        options.starting.sequences and LATEST in options.starting.sequences.values()
    ):
        raise ConfigurationError(
            "startingOffsets latest would read nothing in a batch; give earliest, "
            "unreceived or JSON"
        )


def _no_effect(options: SourceOptions, mode: str, reason: str) -> None:
    for spec in SOURCE_OPTIONS:
        if spec.applies_to == mode and spec.name in options.given:
            raise ConfigurationError(
                f"option {spec.name} has no effect here: {reason}; leave it out"
            )


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in options.items():
        if key.lower() in _SPARK_OWN:
            raise ConfigurationError(
                f"format('srmp') has no path (got {value!r}): name the queue with "
                ".option('queue', …) and call .load()"
            )
        name = _KNOWN.get(key.lower())
        if name is None:
            known = sorted(_KNOWN.values(), key=str.lower)
            close = difflib.get_close_matches(key.lower(), list(_KNOWN), 1, 0.6)
            advice = (
                f"did you mean {_KNOWN[close[0]]!r}?" if close else f"known: {', '.join(known)}"
            )
            raise ConfigurationError(f"unknown option {key!r}; {advice}")
        values[name] = value.strip()
    return values


def _embedded(values: Mapping[str, str]) -> bool:
    serve = sorted(name for name in SERVE_OPTIONS if name in values)
    if "dataDir" in values:
        if "queueManager" in values:
            raise ConfigurationError(
                "queueManager and dataDir exclude each other: use a running queue "
                "manager, or embed one"
            )
        return True
    if serve:
        raise ConfigurationError(
            f"option {serve[0]} belongs to an embedded queue manager: add dataDir, or "
            "start `srmp-spark serve "
            f"--{SERVE_OPTIONS[serve[0]]} …` yourself and give queueManager"
        )
    if not values.get("queueManager"):
        raise ConfigurationError(
            "option queueManager is missing: the API URL of a queue manager, for example "
            "http://127.0.0.1:8081 "
            "(or dataDir, listen and queues to embed one)"
        )
    return False


def _serve_flags(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    flags: list[tuple[str, str]] = []
    for name, flag in SERVE_OPTIONS.items():
        if name in values:
            parts = _split(name, values[name]) if name in REPEATED_FLAGS else [values[name]]
            flags += ((flag, part) for part in parts)
    return tuple(flags)


def _served_names(queues: str) -> str:
    """Return ``queues`` without its suffixes (``orders:transactional``).

    These are the queues to read if ``queue`` is not given.
    """
    return ",".join(split_queue_suffixes(part)[0] for part in _split("queues", queues))


def _split(name: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise ConfigurationError(f"option {name}: an empty name in {text!r}")
    return parts


def _urls(text: str | None) -> tuple[str, ...]:
    urls = tuple(api_url(url) for url in _split("queueManager", text or ""))
    if len(set(urls)) != len(urls):
        raise ConfigurationError(f"option queueManager names one URL twice: {text}")
    return urls


def _queue(text: str) -> str:
    """Return the canonical name of a queue or glob.

    The signs ``*``, ``?`` and ``[`` of a glob stay, because the check of names accepts them.
    """
    return local_queue_name(text)


def _consumer(text: str) -> str:
    if (
        not _CONSUMER.fullmatch(text)
        or not text.isprintable()
        or len(text) > CONSUMER_NAME_LENGTH_MAX
    ):
        raise ConfigurationError(
            f"option consumer: {text[:150]!r} is no name (no space, slash or comma; 1 to "
            f"{CONSUMER_NAME_LENGTH_MAX} characters)"
        )
    return text


def _read_mode(text: str | None) -> Literal["receive", "peek"] | None:
    return None if text is None else choice("readMode", text, ("receive", "peek"))  # type: ignore[return-value]  # checked by choice()


def _whole(name: str, text: str | None) -> int | None:
    if text is None:
        return None
    if not text.isascii() or not text.isdigit() or not 0 < int(text) < 2**63:
        raise ConfigurationError(f"option {name}: expected a whole number above 0, got {text!r}")
    return int(text)


def _timeout(text: str | None) -> float:
    if text is None:
        return RETRY_SECONDS
    seconds = duration_s("queueManagerTimeout", text)
    if not 0 < seconds <= TIMEOUT_SECONDS_MAX:
        raise ConfigurationError(
            f"option queueManagerTimeout: expected more than 0 and at most 1d, got {text!r}"
        )
    return seconds


def _starting(text: str) -> Starting:
    if text.startswith("{"):
        return Starting(
            sequences=_sequences("startingOffsets", text, "first sequence", lowest=EARLIEST)
        )
    return Starting(choice("startingOffsets", text, ("unreceived", "earliest", "latest")))  # type: ignore[arg-type]  # checked by choice()


def _ending(text: str | None) -> Ending:
    if text is None or text.lower() == "latest":
        return TO_THE_END
    if text.lower() in ("earliest", "unreceived"):
        raise ConfigurationError(
            f"option endingOffsets: {text!r} is no end; expected latest or JSON {{queue: "
            f"last sequence}}"
        )
    if not text.startswith("{"):
        choice("endingOffsets", text, ("latest",))
    return Ending(sequences=_sequences("endingOffsets", text, "last sequence", lowest=LATEST))


def _sequences(name: str, text: str, what: str, *, lowest: int) -> ByQueue:
    def checked(queue: str, sequence: Any) -> int:  # noqa: ANN401  # any JSON value
        if type(sequence) is not int or not lowest <= sequence < 2**63:
            raise ConfigurationError(
                f"option {name}: {queue!r} needs its {what} as a whole number, got {sequence!r}"
            )
        return sequence

    return parse_by_queue(name, text, checked)


def _timestamps(name: str, text: str) -> int | ByQueue:
    if not text.startswith("{"):
        return _timestamp(name, text)

    def checked(queue: str, value: Any) -> int:  # noqa: ANN401  # any JSON value
        if type(value) is not int and not isinstance(value, str):
            raise ConfigurationError(f"option {name}: {queue!r} needs a time, got {value!r}")
        return _timestamp(name, str(value))

    return parse_by_queue(name, text, checked)


def _timestamp(name: str, text: str) -> int:
    """Parse a time into microseconds since 1970, UTC.

    Raises :class:`ConfigurationError` if the text is no time or has no time zone.
    """
    if text.isascii() and text.isdigit():
        return int(text) * 1000
    try:
        moment = datetime.fromisoformat(text[:-1] + "+00:00" if text[-1:] in "zZ" else text)
    except ValueError:
        raise ConfigurationError(
            f"option {name}: {text!r} is no time; expected 2026-11-22T08:00:00Z or "
            "milliseconds since 1970"
        ) from None
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"option {name}: {text!r} has no time zone; write {text}Z if it is UTC"
        )
    difference = moment - datetime(1970, 1, 1, tzinfo=timezone.utc)
    return difference // _MICROSECOND


_MICROSECOND = datetime.resolution
