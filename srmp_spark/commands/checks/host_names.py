"""Check that this machine can resolve the host names of the configuration."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from srmp_spark.commands.checks.report import Check
from srmp_spark.names import split_url
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig

NAME = "host-name"
SECONDS_MAX = 5.0
"""Longest wait for all name servers together, in seconds. A unit waits for this check too."""
RETRIED = "give it one in DNS or /etc/hosts; it is looked up again while serve runs"
THEIRS = "those who call this queue manager need its address, in their DNS"
NAMES_MAX = 50
"""Most names that are looked up, each in a thread of its own. Others are counted."""


class _Name(NamedTuple):
    """A host name, and where the configuration has it."""

    host: str
    flag: str
    advice: str
    is_needed: bool = False
    """Whether work that was configured cannot be done without an address."""


def host_name_checks(config: ServeConfig) -> Iterator[Check]:
    """Yield a check for each name without an address here, and one for the others together.

    A name that this queue manager always calls must have an address. A name by which others call
    this queue manager need not have one here.
    """
    names = list({each.host: each for each in reversed(list(_names(config)))}.values())[::-1]
    looked = names[:NAMES_MAX]
    found = _look_up(each.host for each in looked)
    missing = [each for each in looked if not found.get(each.host)]
    for each in missing:
        late = "" if each.host in found else f" within {SECONDS_MAX:g} s"
        detail = f"{each.flag} {each.host} has no address here{late}"
        yield Check(NAME, not each.is_needed, detail, each.advice)
    if good := len(looked) - len(missing):
        more = f"; {len(names) - len(looked)} more were not looked up" if names[NAMES_MAX:] else ""
        yield Check(NAME, True, f"{good} host names have addresses{more}")


def _names(config: ServeConfig) -> Iterator[_Name]:
    for each in config.subscription:
        yield _Name(each.host.name, "[[subscription]]", RETRIED, is_needed=True)
    for rule in config.redirect.outbound.rules:
        yield _Name(split_url(rule.to).host, "[[redirect]]", RETRIED, is_needed=True)
    for pattern in config.allow_url:
        yield _Name(pattern.host, "--allow-url", RETRIED)
    for name in config.host_name:
        yield _Name(name, "--host-name", THEIRS)
    if config.public_url is not None:
        yield _Name(split_url(config.public_url).host, "--public-url", THEIRS)
    for _, to in config.receipt_url.rules:
        yield _Name(split_url(to).host, "[[receipt_url]]", THEIRS)


def _look_up(hosts: Iterable[str]) -> dict[str, bool]:
    """Return whether each host has an address. Hosts without an answer in time are left out."""
    found: dict[str, bool] = {}

    def look(host: str) -> None:
        try:
            socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            found[host] = False
        else:
            found[host] = True

    # The threads are daemons: a name server that does not answer must not delay the end.
    threads = [threading.Thread(target=look, args=(host,), daemon=True) for host in hosts]
    for each in threads:
        each.start()
    end = time.monotonic() + SECONDS_MAX
    for each in threads:
        each.join(max(0.0, end - time.monotonic()))
    return dict(found)
