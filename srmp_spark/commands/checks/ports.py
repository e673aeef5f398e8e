"""Check that the ports of ``serve`` are free, or held by the queue manager that it replaces."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from srmp_spark.commands.checks.knock import knock, reachable
from srmp_spark.commands.checks.report import Check
from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.interface import EndpointFile
from srmp_spark.names import split_url
from srmp_spark.queue_manager.configuration.endpoint import Endpoint
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
from srmp_spark.queue_manager.multicast.groups import check_multicast
from srmp_spark.queue_manager.srmp_port.sockets import (
    DESCRIPTORS_WANTED,
    FEW_DESCRIPTORS_ADVICE,
    bind,
    reachable_descriptors,
)

NAME = "port"
FILES = "open-files"


class _Port(NamedTuple):
    """One port of the configuration."""

    flag: str
    endpoint: Endpoint
    scheme: str | None
    """Scheme of the port, if it answers HTTP."""


def port_checks(config: ServeConfig, running: EndpointFile | None) -> Iterator[Check]:
    """Yield whether each port could be opened, and whether there are descriptors for connections.

    ``running`` is the endpoint file of a queue manager that serves the same data directory. Its
    ports are in use, and will be free when it ends.
    """
    for port in _ports(config):
        yield _port_check(port, running)
    if config.multicast is not None:
        try:
            check_multicast(config.multicast)
        except (SrmpSparkError, OSError) as error:
            text, _, hint = str(error).partition("; ")
            yield Check("multicast", False, text, hint or "look at --pgm and --pgm-interface")
        else:
            yield Check("multicast", True, f"interface {config.multicast.interface} can be used")
    yield from _descriptors()


def _descriptors() -> Iterator[Check]:
    """Yield whether the limit of open files is enough, if it is not."""
    try:
        limit = reachable_descriptors()
    except ConfigurationError as error:
        text, _, hint = str(error).partition(": ")
        yield Check(FILES, False, text, hint)
        return
    if limit < DESCRIPTORS_WANTED:
        detail = f"the limit of open files is {limit}, wanted are {DESCRIPTORS_WANTED}"
        yield Check(FILES, True, detail, FEW_DESCRIPTORS_ADVICE)


def _ports(config: ServeConfig) -> Iterator[_Port]:
    yield _Port("--listen", config.listen, "http")
    yield _Port("--api", config.api, "https" if config.api_cert else "http")
    if config.listen_https is not None:
        yield _Port("--listen-https", config.listen_https, "https")
    if (wsrm := config.listen_wsrm) is not None:
        yield _Port("--listen-wsrm", wsrm.endpoint, "https" if wsrm.is_tls else "http")
    if config.rpc is not None:
        yield _Port("--rpc", config.rpc, None)
    if config.rpc_endpoint_mapper is not None:
        mapper = config.rpc_endpoint_mapper
        yield _Port("--rpc-endpoint-mapper", mapper, None)


def _port_check(port: _Port, running: EndpointFile | None) -> Check:
    where = f"{port.flag} {port.endpoint.host}:{port.endpoint.port}"
    if port.endpoint.port == 0:
        return Check(NAME, True, f"{where}: a free port is chosen at each start")
    try:
        bound, _ = bind(port.endpoint, port.flag)
    except ConfigurationError as error:
        if running is not None and port.endpoint.port in _ports_of(running):
            pid = running.get("pid")
            detail = f"{where} is held by the queue manager of this data directory (process {pid})"
            return Check(NAME, True, detail)
        text, _, hint = str(error).partition("; ")
        if port.scheme is not None and "in use" in text:
            url = reachable(split_url(port.endpoint.url(port.scheme)))
            text = f"{text}: {knock(url).detail}"
        return Check(NAME, False, text, hint or "name an address of this machine and a free port")
    bound.close()
    return Check(NAME, True, f"{where} is free")


def _ports_of(running: EndpointFile) -> set[int]:
    """Return the numbers of the ports of the queue manager that runs. All are free when it ends."""
    members = ("listening", "api", "https", "wsrm", "rpc", "rpc_endpoint_mapper")
    found = (str(running.get(member, "")).rpartition(":")[2] for member in members)
    return {int(port) for port in found if port.isdigit()}
