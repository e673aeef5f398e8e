"""The options of ``format("mqrr")`` (INTERFACE.md section 4)."""

from __future__ import annotations

import difflib
import ipaddress
from collections.abc import Mapping
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.queue_format import queue_format_for
from srmp_spark.spark.option_values import OptionSpec

QUEUES_MAX = 1_000
"""Queues of one read: each is a task."""

MQRR_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec("host", "both", "HOST or HOST:PORT of the queue manager that has the queues (no port: its endpoint mapper)"),
    OptionSpec("queue", "both", "private$\\orders, orders;JOURNAL, deadletter$ or a format name; several separated by commas"),
    OptionSpec("authLevel", "both", "none; connect, integrity and privacy are not in this version"),
    OptionSpec("queueManager", "stream", "API URL of the queue manager whose [[subscription]] reads the queue"),
)
_LATER = ("username", "password", "domain", "authProtocol")
_STREAM = (
    "queueManager", "readMode", "consumer", "startingOffsets", "startingTimestamp", "maxOffsetsPerTrigger",
    "maxBytesPerTrigger", "minPartitions", "failOnDataLoss", "includeEnvelope", "token",
)  # fmt: skip
"""What a stream has of ``format("srmp")``: it reads the log that the subscription fills."""


class RemoteOptions(NamedTuple):
    """Checked."""

    host: str
    port: int | None
    queues: tuple[str, ...]
    """As they were written."""
    stream: Mapping[str, str]
    """What is for the log of a queue manager of ours."""

    @property
    def place(self) -> str:
        """``HOST`` or ``HOST:PORT``."""
        return self.host if self.port is None else f"{self.host}:{self.port}"


def parse_remote(options: Mapping[str, str]) -> RemoteOptions:
    """Everything that can be checked without knowing stream or batch. Raises :class:`ConfigurationError`."""
    known = {name.lower(): name for name in (*(spec.name for spec in MQRR_OPTIONS), *_LATER, *_STREAM)}
    given: dict[str, str] = {}
    for name, value in options.items():
        canonical = known.get(name.lower())
        if canonical is None:
            close = difflib.get_close_matches(name.lower(), known, 1, 0.5)
            hint = f"did you mean {known[close[0]]!r}?" if close else f"known: {', '.join(sorted(known.values()))}"
            raise ConfigurationError(f"unknown option {name!r} of format mqrr; {hint}")
        given[canonical] = value
    host, port = _host(given.get("host", ""))
    queues = tuple(each.strip() for each in given.get("queue", "").split(",") if each.strip())
    if not queues or len(queues) > QUEUES_MAX:
        raise ConfigurationError(f"option queue names 1 to {QUEUES_MAX} queues of {host}, for example 'private$\\orders'")
    for each in queues:
        queue_format_for(host, each)
    signing = next((name for name in _LATER if name in given), None)
    level = given.get("authLevel", "none" if _is_loopback(host) else "privacy")
    if signing is not None or level != "none":
        raise ConfigurationError(
            f"signing in at {host} is not in this version ({signing or 'authLevel ' + level}): option authLevel 'none' reads "
            "queues of a queue manager that asks for nothing"
        )
    return RemoteOptions(host, port, queues, {name: given[name] for name in _STREAM if name in given})


def _host(text: str) -> tuple[str, int | None]:
    host, colon, port = text.strip().rpartition(":")
    if not colon or "]" in port:
        host, port = text.strip(), ""
    host = host.strip("[]").lower()
    numeric = port.isascii() and port.isdigit() and 0 < int(port) < 65536
    if not host or any(sign in host for sign in "/\\@ ?#;,") or (port and not numeric):
        raise ConfigurationError(f"option host is HOST or HOST:PORT of the queue manager to read from, got {text!r}")
    return host, int(port) if port else None


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
