"""The options of ``format("mqrr")`` (INTERFACE.md section 4)."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.mqrr.remote_host import RemoteHost, parse_remote_host
from srmp_spark.signing_in.credentials import Credentials, credentials
from srmp_spark.spark.settings.chosen_columns import names_in
from srmp_spark.spark.settings.option_values import OptionSpec, choice
from srmp_spark.spark.settings.options import SERVE_OPTIONS, SOURCE_OPTIONS

QUEUES_MAX = 1_000
"""Largest number of queues in one read, because each is a task. More queues are refused."""

MQRR_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "host",
        "both",
        "Machine of the queue manager that has the queues. Without a port its endpoint mapper is "
        "asked.",
        kind="HOST or HOST:PORT",
        limits="Required.",
    ),
    OptionSpec(
        "queue",
        "both",
        "Queues to read, separated by commas: private$\\orders, orders;JOURNAL, deadletter$ or a "
        "format name. A batch has a task for each.",
        kind="names",
        limits="Required; at most 1,000.",
    ),
    OptionSpec(
        "username",
        "both",
        "Account that signs in.",
        limits="Needed for NTLM, but not for a loopback host.",
    ),
    OptionSpec(
        "password",
        "both",
        "Password of the account.",
    ),
    OptionSpec(
        "domain",
        "both",
        "Domain of the account, or the name of the other machine.",
    ),
    OptionSpec(
        "authProtocol",
        "both",
        "Protocol of the sign-in.",
        kind="ntlm, kerberos or negotiate",
        default="ntlm",
        limits="kerberos and negotiate need the extra kerberos.",
    ),
    OptionSpec(
        "authLevel",
        "both",
        "Protection of the calls.",
        kind="none, connect, integrity or privacy",
        default="privacy; for a loopback host none",
    ),
    OptionSpec(
        "mode",
        "stream",
        "move removes each message there when it is stored here. copy removes nothing.",
        kind="move or copy",
        default="move",
        limits="It must be that of the subscription, if there is one.",
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
        "queueManager",
        "stream",
        "API URL of the queue manager that pulls the queues into its logs.",
        kind="URL",
        limits="A stream needs one, or dataDir.",
    ),
)
_OF_MQRR = {spec.name for spec in MQRR_OPTIONS}
_STREAM = (
    "queueManager",
    *(
        spec.name
        for spec in SOURCE_OPTIONS
        if spec.applies_to != "batch" and spec.name not in _OF_MQRR
    ),
    *SERVE_OPTIONS,
)
"""Options of ``format("srmp")`` that a stream has too, because it reads the subscription's log."""
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
    """The checked options of ``format("mqrr")``.

    The options are pickled into tasks, and no repr shows secrets.
    """

    host: RemoteHost
    queues: tuple[str, ...]
    """Names of the queues, as they were written."""
    stream: Mapping[str, str] = field(repr=False)
    """Options of ``format("srmp")`` for a stream, by name.

    A stream reads the log of the subscription at the local queue manager.
    """
    credentials: Credentials
    """Credentials of a batch read, which signs in itself."""
    mode: str | None
    columns: tuple[str, ...] | None = None
    """Columns that the option ``columns`` names; ``None`` if the option was not given."""
    account: Mapping[str, str] = field(repr=False)
    """The given account, with the keys of ``[[subscription]]``.

    The account is for a stream, whose queue manager signs in.
    """


def parse_remote(options: Mapping[str, str]) -> RemoteOptions:
    """Check everything that can be checked without knowing whether it is a stream or a batch.

    Return the checked options. Raises :class:`ConfigurationError` for the first problem.
    """
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
    # The subscription may exist already, with its own account.
    if not account and ("queueManager" in stream or "dataDir" in stream):
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
