"""The options of ``format("mqrr")`` (INTERFACE.md section 4)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.remote_host import RemoteHost, parse_remote_host
from srmp_spark.signing_in.credentials import Credentials, credentials
from srmp_spark.spark.chosen_columns import names_in
from srmp_spark.spark.option_values import OptionSpec, choice
from srmp_spark.spark.options import SERVE_OPTIONS

QUEUES_MAX = 1_000
"""Queues of one read: each is a task."""

MQRR_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "host",
        "both",
        "HOST or HOST:PORT of the queue manager that has the queues (no port: its endpoint mapper)",
    ),
    OptionSpec(
        "queue",
        "both",
        "private$\\orders, orders;JOURNAL, deadletter$ or a format name; several "
        "separated by commas",
    ),
    OptionSpec("username", "both", "as whom to sign in"),
    OptionSpec("password", "both", "its password"),
    OptionSpec("domain", "both", "its domain, or the name of the other machine"),
    OptionSpec("authProtocol", "both", "ntlm (default), kerberos or negotiate"),
    OptionSpec(
        "authLevel",
        "both",
        "none, connect, integrity or privacy (default: privacy, on loopback none)",
    ),
    OptionSpec("mode", "stream", "move (default): each message is removed there; copy: nothing is"),
    OptionSpec(
        "columns",
        "both",
        "columns to read, comma separated, in this order (default: all); .schema(…) does the same",
    ),
    OptionSpec(
        "queueManager",
        "stream",
        "API URL of the queue manager that pulls the queues into its logs (or dataDir)",
    ),
)
_STREAM = (
    "queueManager",
    "readMode",
    "consumer",
    "startingOffsets",
    "startingTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "failOnQueueInUse",
    "includeEnvelope",
    "reportTimes",
    "token",
    "allowPlainToken",
    "dataDir",
    *SERVE_OPTIONS,
)
"""What a stream has of ``format("srmp")``: it reads the log that the subscription fills."""
_MODES = ("move", "copy")
_ACCOUNT = {
    "username": "username",
    "password": "password",
    "domain": "domain",
    "authProtocol": "auth_protocol",
    "authLevel": "auth_level",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoteOptions:
    """Checked. Pickled into tasks; what is secret is in no repr."""

    host: RemoteHost
    queues: tuple[str, ...]
    """As they were written."""
    stream: Mapping[str, str] = field(repr=False)
    """What is for the log of a queue manager of ours."""
    credentials: Credentials
    """Of a batch, which signs in itself."""
    mode: str | None
    columns: tuple[str, ...] | None = None
    """Those of option ``columns``; None: it was not given."""
    account: Mapping[str, str] = field(repr=False)
    """As it was given, in the words of ``[[subscription]]``; for a stream, whose queue manager signs in."""


def parse_remote(options: Mapping[str, str]) -> RemoteOptions:
    """Everything that can be checked without knowing stream or batch. Raises :class:`ConfigurationError`."""
    known = {name.lower(): name for name in (*(spec.name for spec in MQRR_OPTIONS), *_STREAM)}
    given: dict[str, str] = {}
    for name, value in options.items():
        canonical = known.get(name.lower())
        if canonical is None:
            close = difflib.get_close_matches(name.lower(), known, 1, 0.5)
            hint = (
                f"did you mean {known[close[0]]!r}?"
                if close
                else f"known: {', '.join(sorted(known.values()))}"
            )
            raise ConfigurationError(f"unknown option {name!r} of format mqrr; {hint}")
        given[canonical] = value
    host = parse_remote_host("option host", given.get("host", ""))
    queues = tuple(each.strip() for each in given.get("queue", "").split(",") if each.strip())
    if not queues or len(queues) > QUEUES_MAX:
        raise ConfigurationError(
            f"option queue names 1 to {QUEUES_MAX} queues of {host.text}, for example "
            "'private$\\orders'"
        )
    for each in queues:
        queue_format_for(host.name, each)
    stream = {name: given[name] for name in _STREAM if name in given}
    columns = names_in(given["columns"]) if "columns" in given else None
    mode = choice("mode", given["mode"], _MODES) if "mode" in given else None
    account = {key: given[name] for name, key in _ACCOUNT.items() if name in given}
    if not account and (
        "queueManager" in stream or "dataDir" in stream
    ):  # the subscription may be there, with its account
        return RemoteOptions(
            host=host,
            queues=queues,
            stream=stream,
            credentials=Credentials(),
            mode=mode,
            columns=columns,
            account=account,
        )
    signs_in = credentials(
        "format mqrr",
        host,
        level=given.get("authLevel"),
        protocol=given.get("authProtocol"),
        user=given.get("username"),
        password=given.get("password"),
        domain=given.get("domain"),
    )
    return RemoteOptions(
        host=host,
        queues=queues,
        stream=stream,
        credentials=signs_in,
        mode=mode,
        columns=columns,
        account=account,
    )
