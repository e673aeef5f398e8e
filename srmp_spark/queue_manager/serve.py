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
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from xml.parsers import expat

import uvicorn
import uvloop

from srmp_spark import interface
from srmp_spark.clock import SystemClock
from srmp_spark.errors import ConfigurationError, MemoryAheadError, ProcessMustEndError, with_hint
from srmp_spark.holder import Holder
from srmp_spark.logs.form import LogForm, log_to_stderr, say_last
from srmp_spark.private_files import refuse_open_secret, replace_private
from srmp_spark.queue_manager.api.app import ApiApp, routes
from srmp_spark.queue_manager.api.health import HealthApi
from srmp_spark.queue_manager.api.port_side.guard import Guard
from srmp_spark.queue_manager.api.port_side.port import ApiPort
from srmp_spark.queue_manager.api.port_side.router import Router
from srmp_spark.queue_manager.api.status import Transports
from srmp_spark.queue_manager.configuration.endpoint import Endpoint, SchemedEndpoint
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
from srmp_spark.queue_manager.configured_queues import ensure_queues
from srmp_spark.queue_manager.maintenance import Maintenance
from srmp_spark.queue_manager.multicast.groups import check_multicast
from srmp_spark.queue_manager.puller.circles import Circles
from srmp_spark.queue_manager.puller.pullers import Pullers
from srmp_spark.queue_manager.sender.dead_letters import DeadLetters
from srmp_spark.queue_manager.sender.link import check_outbox
from srmp_spark.queue_manager.service import QueueManager
from srmp_spark.queue_manager.srmp_port.http_limits import HEAD_MAX
from srmp_spark.queue_manager.srmp_port.sockets import (
    BACKLOG,
    Descriptors,
    bind,
    listen,
    share_descriptors,
)
from srmp_spark.queue_manager.srmp_port.srmp_inbox import srmp_endpoint
from srmp_spark.queue_manager.srmp_port.srmp_tls import TlsPort
from srmp_spark.queue_manager.trust.tls import API_FLAGS, ClientTls, ServerTls
from srmp_spark.queue_manager.trust.tokens import broad_advice
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
    from srmp_spark.queue_manager.srmp_port.srmp_endpoint import SrmpEndpoint

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


class _ApiServer(uvicorn.Server):
    """A uvicorn server that installs no handlers for signals."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Api(NamedTuple):
    """The server of the API, which runs."""

    server: _ApiServer
    task: asyncio.Task[None]
    port: ApiPort

    async def close(self) -> None:
        """Stop listening, and wait until the server has ended."""
        await self.port.close()
        self.server.should_exit = True
        await self.task


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ports:
    """The bound sockets of a queue manager, and the addresses to which they are bound."""

    srmp_socket: socket.socket
    srmp: Endpoint
    api_socket: socket.socket
    api: Endpoint
    https_socket: socket.socket | None = None
    https: Endpoint | None = None
    wsrm_socket: socket.socket | None = None
    wsrm: SchemedEndpoint | None = None
    rpc_socket: socket.socket | None = None
    rpc: Endpoint | None = None
    mapper_socket: socket.socket | None = None

    @classmethod
    def bind(cls, config: ServeConfig) -> _Ports:
        """Bind every port that ``config`` names. No port listens yet.

        Raises :class:`ConfigurationError` if a port cannot be bound, or if multicast is configured
        and this process cannot use it, even if no queue listens.
        """
        found: dict[str, Any] = {}
        for name, flag, endpoint in (
            ("srmp", "--listen", config.listen),
            ("api", "--api", config.api),
            ("https", "--listen-https", config.listen_https),
            ("rpc", "--rpc", config.rpc),
        ):
            if endpoint is not None:
                found[f"{name}_socket"], found[name] = bind(endpoint, flag)
        if (wsrm := config.listen_wsrm) is not None:
            found["wsrm_socket"], bound = bind(wsrm.endpoint, "--listen-wsrm")
            found["wsrm"] = wsrm._replace(endpoint=bound)
        if (mapper := config.rpc_endpoint_mapper) is not None:
            found["mapper_socket"], _ = bind(mapper, "--rpc-endpoint-mapper")
        if config.multicast is not None:
            check_multicast(config.multicast)
        return cls(**found)

    def close(self) -> None:
        """Close all sockets."""
        for each in (
            self.srmp_socket,
            self.api_socket,
            self.https_socket,
            self.wsrm_socket,
            self.rpc_socket,
            self.mapper_socket,
        ):
            if each is not None:
                each.close()


def serve(config: ServeConfig) -> int:
    """Run a queue manager until SIGTERM or SIGINT, or until it is unused. Return 0.

    Raises :class:`ConfigurationError`, :class:`StoreError` and other errors of srmp-spark, which
    the command line turns into exit codes. A failed write ends the process with code 1.
    """
    log_to_stderr(LogForm(config.log_level, config.log_format), "serve")
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
    ports = None if is_there else _Ports.bind(config)
    with DataDirectory.open(config.data_dir, now=clock.utc()) as directory:
        if directory.changed is not None:
            log.warning('epoch.changed epoch=%s because="%s"', directory.epoch, directory.changed)
        if ports is None:
            ports = _Ports.bind(config)
        process = _Process(config, directory, clock, ports, descriptors)
        try:
            uvloop.run(process.run())
        finally:
            ports.close()
    return 0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Parts:
    """The parts of a running queue manager that the process starts and stops."""

    manager: QueueManager
    maintenance: Maintenance
    dead_letters: DeadLetters
    endpoint: SrmpEndpoint
    tls_port: TlsPort | None
    reliable: ReliablePort
    pullers: Pullers
    health: HealthApi


@dataclass(frozen=True, slots=True, kw_only=True)
class _Serving:
    """The ports that are open."""

    srmp: asyncio.Server
    api: _Api
    rpc: RpcPort | None


class _Process:
    """Builds, runs and ends the parts of one queue manager."""

    def __init__(
        self,
        config: ServeConfig,
        directory: DataDirectory,
        clock: SystemClock,
        ports: _Ports,
        descriptors: Descriptors,
    ) -> None:
        self._config = config
        self._directory = directory
        self._clock = clock
        self._ports = ports
        self._descriptors = descriptors
        self._https_url = ports.https.url("https") if ports.https is not None else None
        wsrm = ports.wsrm
        tls = (
            server_tls(config)
            if ports.https is not None or (wsrm is not None and wsrm.is_tls)
            else None
        )
        self._server_tls = tls if ports.https is not None else None
        self._client_tls = ClientTls(config.ca_file, config.client_cert, config.client_key)
        self._api_url = ports.api.url("https" if config.api_cert else "http")

    async def run(self) -> None:
        """Start all parts, serve until a signal arrives or the process is unused, drain and close.

        Raises :class:`ConfigurationError` if a part cannot start, and :class:`StoreDamagedError` if
        the data directory is an older copy.
        """
        loop = asyncio.get_running_loop()
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)
        gc.collect()
        # Loaded objects stay. To look through them again and again takes as long as to load them.
        gc.disable()
        parts = await self._load(stop)
        serving = await self._open(parts)
        gc.freeze()
        gc.set_threshold(GARBAGE_THRESHOLD, 20, 50)
        gc.enable()
        self._announce(parts.manager)
        await stop.wait()
        await self._close(parts, serving)
        manager = parts.manager
        log.info("process.stopped position=%d", manager.journal.position)
        if manager.state.fatal is not None:
            raise manager.state.fatal

    async def _load(self, stop: asyncio.Event) -> _Parts:
        """Load the data directory, start the helper processes, and build all parts."""
        config, ports, path = self._config, self._ports, self._directory.path
        public_base = config.public_base(ports.srmp)
        with readable(self._directory.database):
            manager = QueueManager(
                config,
                self._directory,
                config.local_hosts(ports.srmp, ports.https),
                public_base,
                self._clock,
                on_fatal=_die,
                client_tls=self._client_tls,
                stop=stop,
            )
            await ensure_queues(manager)
            maintenance = Maintenance(manager)
            maintenance.start_reader()
            check_outbox(path)
            # This raises an error if the outbox is gone, because nothing may be accepted after such
            # a loss.
            read_which(path)
            manager.outgoing.start()
        reliable = ReliablePort(
            manager, self._client_tls, config.public_base_of(ports.wsrm, public_base)
        )
        endpoint = srmp_endpoint(manager, connections_max=self._descriptors.srmp)
        tls_port = None
        if ports.https_socket is not None and self._server_tls is not None:
            tls_port = TlsPort(
                endpoint,
                self._server_tls,
                ports.https_socket,
                count_failure=manager.metrics.refuse_handshake,
            )
        pullers = Pullers(manager, Circles(ports.rpc, config.rpc_endpoint_mapper))
        urls = [ports.srmp.url(), *filter(None, [self._https_url])]
        transports = Transports(reliable.status, pullers)
        return _Parts(
            manager=manager,
            maintenance=maintenance,
            dead_letters=DeadLetters(manager),
            endpoint=endpoint,
            tls_port=tls_port,
            reliable=reliable,
            pullers=pullers,
            health=HealthApi(manager, transports, listening=urls, api=self._api_url),
        )

    async def _open(self, parts: _Parts) -> _Serving:
        """Open all ports, the API first, and start the background jobs."""
        manager, ports, config = parts.manager, self._ports, self._config
        if manager.multicast is not None:
            manager.multicast.open()
        await parts.maintenance.compare_state()
        if manager.multicast is not None:
            await manager.multicast.joined()
        api = await self._serve_api(parts)
        listen(ports.srmp_socket, ports.srmp, "--listen")
        srmp_server = await asyncio.get_running_loop().create_server(
            parts.endpoint.connection, sock=ports.srmp_socket, backlog=BACKLOG
        )
        if (
            parts.tls_port is not None
            and ports.https_socket is not None
            and config.listen_https is not None
        ):
            listen(ports.https_socket, config.listen_https, "--listen-https")
            parts.tls_port.start()
        # Start both at once, because each is a process that loads for half a second.
        _, rpc_port = await asyncio.gather(
            self._serve_wsrm(parts.reliable), self._serve_rpc(manager)
        )
        await parts.pullers.start(config.subscription)
        parts.maintenance.start()
        manager.start_sending()
        parts.dead_letters.start()
        if manager.multicast is not None:
            manager.multicast.begin()
        parts.health.ready = True
        return _Serving(srmp=srmp_server, api=api, rpc=rpc_port)

    async def _close(self, parts: _Parts, serving: _Serving) -> None:
        """Stop listening, answer what was received, commit, and end all helper processes."""
        manager = parts.manager
        log.info("process.draining connections=%d", len(parts.endpoint.connections))
        parts.health.ready = False
        (self._directory.path / interface.ENDPOINT_FILE).unlink(missing_ok=True)
        serving.srmp.close()
        if parts.tls_port is not None:
            await parts.tls_port.close()
        if manager.multicast is not None:
            await manager.multicast.stop()
        await parts.endpoint.drain()
        await parts.reliable.drain()
        await parts.reliable.close()
        await parts.pullers.stop()
        if serving.rpc is not None:
            await serving.rpc.close()
        await parts.maintenance.stop()
        await serving.api.close()
        await parts.dead_letters.close()
        # The sender needs message identifiers, so the journal must still run.
        await manager.outgoing.stop()
        await manager.stop_sending()
        await manager.journal.drain()
        await manager.reader.stop()
        manager.journal.close()

    async def _serve_wsrm(self, reliable: ReliablePort) -> None:
        """Start the port of WS-ReliableMessaging, if ``--listen-wsrm`` was given."""
        ports = self._ports
        if ports.wsrm_socket is not None and ports.wsrm is not None:
            listen(ports.wsrm_socket, ports.wsrm.endpoint, "--listen-wsrm")
            await reliable.start(self._config, ports.wsrm_socket, self._descriptors.wsrm)

    async def _serve_rpc(self, manager: QueueManager) -> RpcPort | None:
        """Start the RPC port of remote read, and return it, or ``None`` without ``--rpc``.

        Its modules are loaded only if it is needed. Raises as :meth:`.RpcPort.start`.
        """
        ports, config = self._ports, self._config
        if ports.rpc_socket is None:
            return None
        from srmp_spark.queue_manager.remote_read.port import RpcPort

        assert config.rpc is not None, "it has a socket"
        listen(ports.rpc_socket, config.rpc, "--rpc")
        if ports.mapper_socket is not None and config.rpc_endpoint_mapper is not None:
            listen(ports.mapper_socket, config.rpc_endpoint_mapper, "--rpc-endpoint-mapper")
        return await RpcPort.start(
            manager, config, ports.rpc_socket, ports.mapper_socket, self._descriptors
        )

    async def _serve_api(self, parts: _Parts) -> _Api:
        config, manager = self._config, parts.manager
        is_loopback = config.api.is_loopback
        for token in manager.tokens.broad():
            because, do = broad_advice(token)
            log.warning('token.broad name=%s because="%s" do="%s"', token.name, because, do)
        guard = Guard(
            loopback=is_loopback,
            own_host=config.api.host,
            tokens=manager.tokens,
            scheme="https" if config.api_cert else "http",
            port=self._ports.api.port,
        )
        try:
            if config.api_key is not None:
                refuse_open_secret("--api-key", config.api_key)
            settings = uvicorn.Config(
                ApiApp(
                    Router(routes(manager, parts.health, parts.pullers)), guard, manager.catalogue
                ),
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
                    config.api_cert,
                    config.api_key,
                    None,
                    require_client_certificate=False,
                    flags=API_FLAGS,
                )
        except OSError as error:  # ssl.SSLError is an OSError.
            raise ConfigurationError(f"--api-cert/--api-key: {error}") from None
        listen(self._ports.api_socket, config.api, "--api")
        server = _ApiServer(settings)
        # ApiPort accepts the connections, because uvicorn has no limits for them.
        task = asyncio.get_running_loop().create_task(server.serve(sockets=[]))
        while not server.started and not task.done():
            await asyncio.sleep(0.005)
        if task.done():
            await task
        port = ApiPort(
            self._ports.api_socket,
            server,
            tls,
            asks_for_owner=is_loopback and not manager.tokens,
            connections_max=self._descriptors.api,
        )
        port.start()
        return _Api(server, task, port)

    def _announce(self, manager: QueueManager) -> None:
        """Print the ready line as JSON, and write the endpoint file.

        The file is for other processes of this host.
        """
        ready: interface.ReadyLine = {
            "listening": self._ports.srmp.url(),
            "api": self._api_url,
            "queue_manager": self._directory.queue_manager,
            "epoch": self._directory.epoch,
            "pid": os.getpid(),
        }
        if self._https_url is not None:
            ready["https"] = self._https_url
        if self._ports.wsrm is not None:
            ready["wsrm"] = self._ports.wsrm.url()
        if self._ports.rpc is not None:
            ready["rpc"] = self._ports.rpc.url().partition("://")[2]
        found, mapper = self._directory.path.stat(), self._config.rpc_endpoint_mapper
        endpoint: interface.EndpointFile = {
            **ready,
            "process": Holder.here("srmp-spark serve").as_dict(),
            "directory": [found.st_dev, found.st_ino],
            "rpc_endpoint_mapper": "" if mapper is None else mapper.url(),
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
    say_last(with_hint(str(error), hint), 1)
    os._exit(1)
