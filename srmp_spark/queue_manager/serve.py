"""Run a queue manager process: open, serve, drain, close (INTERFACE.md section 2).

    lock the directory ▶ bind all ports ▶ load ▶ start the reader ▶ listen
    ▶ one JSON line on stdout ▶ …
    … SIGTERM ▶ not ready ▶ stop listening ▶ answer what was received ▶ commit ▶ close ▶ exit 0

A failed write or sync ends the process at once, without another sync. After such a failure the
state in memory cannot be trusted.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from xml.parsers import expat

import uvicorn
import uvloop

from srmp_spark import interface
from srmp_spark.clock import SystemClock
from srmp_spark.errors import ConfigurationError, MemoryAheadError, ProcessMustEndError, with_hint
from srmp_spark.holder import Holder
from srmp_spark.names import FORWARD_QUEUE, ORDER_QUEUE, MulticastAddress
from srmp_spark.private_files import refuse_open_secret, replace_private
from srmp_spark.queue_manager.api.app import ApiApp, routes
from srmp_spark.queue_manager.api.gauges import counters, gauges
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.port_side.guard import Guard
from srmp_spark.queue_manager.api.port_side.port import ApiPort
from srmp_spark.queue_manager.api.port_side.router import Router
from srmp_spark.queue_manager.child.log_lines import log_to_stderr
from srmp_spark.queue_manager.configuration.config import ServeConfig
from srmp_spark.queue_manager.configuration.endpoint import Endpoint, SchemedEndpoint
from srmp_spark.queue_manager.configured_queues import ensure_queues
from srmp_spark.queue_manager.maintenance import Maintenance
from srmp_spark.queue_manager.multicast.groups import check_multicast
from srmp_spark.queue_manager.multicast.ports import MulticastPorts
from srmp_spark.queue_manager.puller.circles import Circles
from srmp_spark.queue_manager.puller.pullers import Pullers
from srmp_spark.queue_manager.sender.dead_letters import DeadLetters
from srmp_spark.queue_manager.sender.link import Outgoing, check_outbox
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.queue_manager.srmp_port.http_limits import HEAD_MAX
from srmp_spark.queue_manager.srmp_port.sockets import (
    BACKLOG,
    Descriptors,
    bind,
    listen,
    share_descriptors,
)
from srmp_spark.queue_manager.srmp_port.srmp_endpoint import SrmpEndpoint
from srmp_spark.queue_manager.srmp_port.srmp_tls import TlsPort
from srmp_spark.queue_manager.trust.tls import ClientTls, ServerTls
from srmp_spark.queue_manager.trust.tokens import VERBS
from srmp_spark.queue_manager.wsrm.port import ReliablePort
from srmp_spark.store.database.schema import readable
from srmp_spark.store.directory import DataDirectory
from srmp_spark.store.outbox.tables.which_file import read_which

API_KEEP_ALIVE_SECONDS = 75
"""Seconds after which an idle connection of the API is closed.

This is longer than the pause between two renewals of a lease.
"""
API_SHUTDOWN_SECONDS = 2
"""Seconds that API calls in progress get at the end. Longer ones, such as long polls, are cut off.
"""
GARBAGE_THRESHOLD = 50_000
"""New objects until Python searches for reference cycles.

The accepting code makes no cycles, and each search costs a pause.
"""

if TYPE_CHECKING:
    from srmp_spark.queue_manager.remote_read.port import RpcPort

EXPAT_WANTED = (2, 6, 0)
"""First version of expat that does not read a long token again and again.

An older one is only logged: :mod:`srmp_spark.srmp.codec.xml_tree` explains why it suffices.
"""

log = logging.getLogger(__name__)


def server_tls(config: ServeConfig) -> ServerTls:
    """Load the certificate of ``--listen-https`` and ``--listen-wsrm``. Return the TLS settings.

    Raises :class:`ConfigurationError` for files that cannot be used.
    """
    assert config.listen_cert is not None, "checked by load"
    assert config.listen_key is not None, "checked by load"
    return ServerTls(
        config.listen_cert,
        config.listen_key,
        config.client_ca,
        require_client_certificate=config.require_client_cert,
    )


def _groups(config: ServeConfig) -> dict[str, MulticastAddress]:
    """Return the multicast address of each queue that has one, by queue name.

    Raises :class:`ConfigurationError` if multicast is configured and this process cannot use it,
    even if no queue listens.
    """
    settings = config.multicast
    if settings is None:
        return {}
    check_multicast(settings)
    return {spec.name: spec.multicast for spec in config.queue if spec.multicast is not None}


class _ApiServer(uvicorn.Server):
    """A uvicorn server that installs no handlers for signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def serve(config: ServeConfig) -> int:
    """Run a queue manager until SIGTERM or SIGINT, or until it is unused. Return 0.

    Raises :class:`ConfigurationError`, :class:`StoreError` and other errors of srmp-spark, which
    the command line turns into exit codes. A failed write ends the process with code 1.
    """
    log_to_stderr()
    logging.Formatter.converter = time.gmtime
    for name in ("uvicorn", "uvicorn.error"):
        # The API logs its own faults, without tracebacks for faults of clients.
        logging.getLogger(name).setLevel(logging.CRITICAL)
    descriptors = share_descriptors(
        rpc=config.rpc is not None, mapper=config.rpc_endpoint_mapper is not None
    )
    if expat.version_info < EXPAT_WANTED:
        log.debug(
            'xml.old_parser version=%s because="envelopes are fed to it whole, so its '
            'known slowness is out of reach"',
            expat.EXPAT_VERSION,
        )
    clock = SystemClock()
    # A start that fails, for example because its port is taken, leaves no new directory behind. If
    # the directory exists, its owner is named before the port that this owner has.
    is_there = os.path.exists(config.data_dir)  # noqa: PTH110  # Path.exists raises without a right
    ports = None if is_there else _bind_ports(config)
    with DataDirectory.open(config.data_dir, now=clock.utc()) as directory:
        if directory.changed is not None:
            log.warning('epoch.changed epoch=%s because="%s"', directory.epoch, directory.changed)
        if ports is None:
            ports = _bind_ports(config)
        process = _Process(config, directory, clock, ports)
        try:
            uvloop.run(process.run(ports, descriptors))
        finally:
            for each in ports.sockets:
                each.close()
    return 0


@dataclass(frozen=True, slots=True)
class _Ports:
    """The bound ports of a queue manager, and the groups that its queues listen on."""

    srmp: socket.socket
    listening: Endpoint
    api: socket.socket
    api_endpoint: Endpoint
    https: socket.socket | None
    https_endpoint: Endpoint | None
    rpc: socket.socket | None
    rpc_endpoint: Endpoint | None
    wsrm: socket.socket | None
    wsrm_endpoint: SchemedEndpoint | None
    mapper: socket.socket | None
    groups: Mapping[str, MulticastAddress]

    @property
    def sockets(self) -> list[socket.socket]:
        """Return the sockets of all ports that are open."""
        every = (self.srmp, self.api, self.https, self.rpc, self.wsrm, self.mapper)
        return [each for each in every if each is not None]


def _bind_ports(config: ServeConfig) -> _Ports:
    """Bind every port that ``config`` names.

    Raises :class:`ConfigurationError` if a port cannot be bound, or multicast cannot be used.
    """
    srmp, listening = bind(config.listen, "--listen")
    api, api_endpoint = bind(config.api, "--api")
    https, https_endpoint = (
        bind(config.listen_https, "--listen-https") if config.listen_https else (None, None)
    )
    rpc, rpc_endpoint = bind(config.rpc, "--rpc") if config.rpc else (None, None)
    wsrm, wsrm_endpoint = None, config.listen_wsrm
    if wsrm_endpoint is not None:
        wsrm, bound = bind(wsrm_endpoint.endpoint, "--listen-wsrm")
        wsrm_endpoint = wsrm_endpoint._replace(endpoint=bound)
    mapper_endpoint = config.rpc_endpoint_mapper
    mapper = bind(mapper_endpoint, "--rpc-endpoint-mapper")[0] if mapper_endpoint else None
    return _Ports(
        srmp,
        listening,
        api,
        api_endpoint,
        https,
        https_endpoint,
        rpc,
        rpc_endpoint,
        wsrm,
        wsrm_endpoint,
        mapper,
        _groups(config),
    )


class _Process:
    """Builds, runs and ends the parts of one queue manager."""

    def __init__(
        self,
        config: ServeConfig,
        directory: DataDirectory,
        clock: SystemClock,
        ports: _Ports,
    ) -> None:
        https, wsrm = ports.https_endpoint, ports.wsrm_endpoint
        self._config = config
        self._directory = directory
        self._clock = clock
        self._listening = ports.listening
        self._api = ports.api_endpoint
        self._groups = ports.groups
        self._https = https
        self._https_url = https.url("https") if https is not None else None
        self._rpc = ports.rpc_endpoint
        self._wsrm = wsrm
        tls = (
            server_tls(config) if https is not None or (wsrm is not None and wsrm.is_tls) else None
        )
        self._server_tls = tls if https is not None else None
        self._client_tls = ClientTls(config.ca_file, config.client_cert, config.client_key)
        self._api_url = self._api.url("https" if config.api_cert else "http")

    async def run(
        self,
        ports: _Ports,
        descriptors: Descriptors,
    ) -> None:
        """Start all parts, serve until a signal arrives or the process is unused, drain and close.

        Raises :class:`ConfigurationError` if a part cannot start, and :class:`StoreDamagedError` if
        the data directory is an older copy.
        """
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        config = self._config
        public_base = config.public_base(self._listening)
        gc.collect()
        # Loaded objects stay. To look through them again and again takes as long as to load them.
        gc.disable()
        with readable(self._directory.database):
            hosts = config.local_hosts(self._listening, self._https)
            manager = QueueManager(
                config,
                self._directory,
                hosts,
                public_base,
                self._clock,
                on_fatal=_die,
                client_tls=self._client_tls,
            )
            await ensure_queues(manager)
            maintenance = Maintenance(manager, on_unused=stop.set)
            maintenance.start_reader()
            check_outbox(self._directory.path)
            # This raises an error if the outbox is gone, because nothing may be accepted after such
            # a loss.
            read_which(self._directory.path)
            forward = manager.catalogue.get(FORWARD_QUEUE)
            manager.outgoing = Outgoing(
                config,
                self._directory,
                manager.identifiers,
                public_base,
                manager.hosts,
                forward_end=0 if forward is None else forward.end,
                forward_waiting=0 if forward is None else forward.state.count,
            )
            manager.outgoing.forwarded = manager.forwarded
            manager.outgoing.forward_holding = manager.forward_holding
            dead_letters = DeadLetters(manager)
            manager.outgoing.dead_came = dead_letters.wake
            manager.outgoing.order_queue_read = manager.catalogue.find(ORDER_QUEUE).was_read
            manager.outgoing.start()
            manager.receipts_came = manager.outgoing.receipts_came
            manager.forward_came = manager.outgoing.forward_came
        reliable = ReliablePort(
            manager, self._client_tls, config.public_base_of(self._wsrm, public_base)
        )
        manager.incoming_sequences = reliable.status
        endpoint = SrmpEndpoint(
            manager.acceptor,
            count_refusal=manager.metrics.refuse,
            utc_seconds=time.time,
            connections_max=descriptors.srmp,
        )
        tls_port = None
        if ports.https is not None and self._server_tls is not None:
            tls_port = TlsPort(
                endpoint,
                self._server_tls,
                ports.https,
                count_failure=manager.metrics.refuse_handshake,
            )
        urls = [self._listening.url(), *filter(None, [self._https_url])]
        health = HealthApi(manager, listening=urls, api=self._api_url)
        if (multicast := config.multicast) is not None:
            manager.multicast = MulticastPorts(
                multicast,
                self._groups,
                manager.acceptor,
                manager.journal,
                manager.metrics,
                self._clock.utc,
            )
            manager.multicast.open()
        manager.metrics.gauges, manager.metrics.counters = gauges(manager), counters(manager)
        manager.metrics.history_evicted = lambda: manager.receiver.history.evicted_count
        manager.metrics.streams_forgotten = lambda: manager.receiver.streams.forgotten
        await maintenance.compare_state()
        if manager.multicast is not None:
            await manager.multicast.joined()
        api_server, api_task, api_port = await self._serve_api(
            manager, health, ports.api, descriptors
        )
        listen(ports.srmp, self._listening, "--listen")
        srmp_server = await loop.create_server(
            endpoint.connection, sock=ports.srmp, backlog=BACKLOG
        )
        if tls_port is not None and ports.https is not None and config.listen_https is not None:
            listen(ports.https, config.listen_https, "--listen-https")
            tls_port.start()
        # Start both at once, because each is a process that loads for half a second.
        _, rpc_port = await asyncio.gather(
            self._serve_wsrm(reliable, ports.wsrm, descriptors),
            self._serve_rpc(manager, ports.rpc, ports.mapper, descriptors),
        )
        pullers = Pullers(manager, Circles(self._rpc, config.rpc_endpoint_mapper))
        await pullers.start(config.subscription)
        maintenance.start()
        manager.start_sending()
        dead_letters.start()
        if manager.multicast is not None:
            manager.multicast.begin()
        health.ready = True
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
        gc.enable()
        self._announce(manager)

        await stop.wait()

        log.info("process.draining connections=%d", len(endpoint.connections))
        health.ready = False
        (self._directory.path / interface.ENDPOINT_FILE).unlink(missing_ok=True)
        srmp_server.close()
        if tls_port is not None:
            await tls_port.close()
        if manager.multicast is not None:
            await manager.multicast.stop()
        await endpoint.drain()
        await reliable.drain()
        await reliable.close()
        await pullers.stop()
        if rpc_port is not None:
            await rpc_port.close()
        await maintenance.stop()
        await api_port.close()
        api_server.should_exit = True
        await api_task
        await dead_letters.close()
        # The sender needs message identifiers, so the journal must still run.
        await manager.outgoing.stop()
        await manager.stop_sending()
        await manager.journal.drain()
        await manager.reader.stop()
        manager.journal.close()
        log.info("process.stopped position=%d", manager.journal.position)
        if maintenance.fatal is not None:
            raise maintenance.fatal

    async def _serve_wsrm(
        self, reliable: ReliablePort, wsrm_socket: socket.socket | None, descriptors: Descriptors
    ) -> None:
        """Start the port of WS-ReliableMessaging, if ``--listen-wsrm`` was given."""
        if wsrm_socket is not None and self._wsrm is not None:
            listen(wsrm_socket, self._wsrm.endpoint, "--listen-wsrm")
            await reliable.start(self._config, wsrm_socket, descriptors.wsrm)

    async def _serve_rpc(
        self,
        manager: QueueManager,
        rpc_socket: socket.socket | None,
        mapper_socket: socket.socket | None,
        descriptors: Descriptors,
    ) -> RpcPort | None:
        """Start the RPC port of remote read, and return it, or ``None`` without ``--rpc``.

        Its modules are loaded only if it is needed. Raises as :meth:`.RpcPort.start`.
        """
        if rpc_socket is None:
            return None
        from srmp_spark.queue_manager.remote_read.port import RpcPort

        assert self._config.rpc is not None, "it has a socket"
        listen(rpc_socket, self._config.rpc, "--rpc")
        if mapper_socket is not None and self._config.rpc_endpoint_mapper is not None:
            listen(mapper_socket, self._config.rpc_endpoint_mapper, "--rpc-endpoint-mapper")
        return await RpcPort.start(manager, self._config, rpc_socket, mapper_socket, descriptors)

    async def _serve_api(
        self,
        manager: QueueManager,
        health: HealthApi,
        api_socket: socket.socket,
        descriptors: Descriptors,
    ) -> tuple[_ApiServer, asyncio.Task[None], ApiPort]:
        config = self._config
        is_loopback = config.api.is_loopback
        for token in manager.tokens.broad():
            log.warning(
                'token.broad name=%s because="verbs has read without browse, which means what it '
                'meant in 0.1" do="write verbs = [%s] to keep that; readers need browse, read"',
                token.name,
                ", ".join(f"'{verb}'" for verb in VERBS if verb in token.verbs),
            )
        guard = Guard(
            loopback=is_loopback,
            own_host=config.api.host,
            tokens=manager.tokens,
            scheme="https" if config.api_cert else "http",
            port=self._api.port,
        )
        try:
            if config.api_key is not None:
                refuse_open_secret("--api-key", config.api_key)
            settings = uvicorn.Config(
                ApiApp(Router(routes(manager, health)), guard, manager.catalogue),
                loop="none",
                ws="none",
                lifespan="off",
                log_config=None,
                access_log=False,
                server_header=False,
                timeout_keep_alive=API_KEEP_ALIVE_SECONDS,
                timeout_graceful_shutdown=API_SHUTDOWN_SECONDS,
                h11_max_incomplete_event_size=HEAD_MAX,
            )
            settings.load()
            tls = None
            if config.api_cert is not None and config.api_key is not None:
                tls = ServerTls(
                    config.api_cert, config.api_key, None, require_client_certificate=False
                )
        except OSError as error:  # ssl.SSLError is an OSError.
            raise ConfigurationError(f"--api-cert/--api-key: {error}") from None
        listen(api_socket, config.api, "--api")
        server = _ApiServer(settings)
        # ApiPort accepts the connections, because uvicorn has no limits for them.
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[]))
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if task.done():
            await task
        port = ApiPort(
            api_socket,
            server,
            tls,
            asks_for_owner=is_loopback and not manager.tokens,
            connections_max=descriptors.api,
        )
        port.start()
        return server, task, port

    def _announce(self, manager: QueueManager) -> None:
        """Print the ready line as JSON, and write the endpoint file.

        The file is for other processes of this host.
        """
        ready: interface.ReadyLine = {
            "listening": self._listening.url(),
            "api": self._api_url,
            "queue_manager": self._directory.queue_manager,
            "epoch": self._directory.epoch,
            "pid": os.getpid(),
        }
        if self._https_url is not None:
            ready["https"] = self._https_url
        if self._wsrm is not None:
            ready["wsrm"] = self._wsrm.url()
        if self._rpc is not None:
            ready["rpc"] = self._rpc.url().partition("://")[2]
        found = self._directory.path.stat()
        endpoint: interface.Endpoint = {
            **ready,
            "process": Holder.here("srmp-spark serve").as_dict(),
            "directory": [found.st_dev, found.st_ino],
        }
        _write_file(self._directory.path / interface.ENDPOINT_FILE, json.dumps(endpoint) + "\n")
        print(json.dumps(ready, separators=(",", ":")), flush=True)
        log.info(
            "process.ready listening=%s api=%s queues=%d",
            ready["listening"],
            ready["api"],
            len(manager.catalogue),
        )


def _write_file(path: Path, text: str) -> None:
    """Replace a private file so that readers see either the old content or the new one."""
    new = path.with_suffix(".new")
    with os.fdopen(replace_private(new), "w", encoding="utf-8") as file:
        file.write(text)
    new.replace(path)


def _die(error: ProcessMustEndError) -> Any:  # noqa: ANN401  # it does not return
    """End the process at once with code 1, after printing the error and a hint.

    A normal end would write and sync again, on top of data that may be missing.
    """
    if isinstance(error, MemoryAheadError):
        hint = (
            "restart it, nothing acknowledged is lost; report it with the traceback "
            "above, the disk is not at fault"
        )
    else:
        hint = "restart it when the disk is in order"
    print(f"srmp-spark: {with_hint(str(error), hint)}", file=sys.stderr, flush=True)
    os._exit(1)
