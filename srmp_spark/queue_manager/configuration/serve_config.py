"""The options of one ``serve`` process as checked values, with their defaults."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from srmp_spark.interface import DEFAULT_API
from srmp_spark.logs.form import LogFormat, LogLevel
from srmp_spark.names import LocalHosts, canonical_host, split_url
from srmp_spark.queue_manager.configuration.endpoint import Endpoint, SchemedEndpoint
from srmp_spark.queue_manager.configuration.queue_spec import QueueSpec
from srmp_spark.queue_manager.configuration.redirect_config import NO_REDIRECTS, Redirects
from srmp_spark.queue_manager.configuration.subscriptions import Subscription
from srmp_spark.queue_manager.multicast.settings import (
    LOOPBACK,
    NO_CONSTANTS,
    TTL_DEFAULT,
    Encapsulation,
    PgmConstants,
    PgmSettings,
)
from srmp_spark.queue_manager.posting.url_policy import UrlPattern, UrlPolicy
from srmp_spark.queue_manager.trust.own_names import own_names
from srmp_spark.queue_manager.trust.rpc_accounts import RpcAccount, RpcAccounts
from srmp_spark.queue_manager.trust.signers import Signer
from srmp_spark.queue_manager.trust.tokens import Token, Tokens, admin_token, check_unlike
from srmp_spark.queue_manager.trust.writers import Writer
from srmp_spark.signing_in.accounts import Accounts
from srmp_spark.srmp.forward.redirection import NO_RECEIPT_URLS, Forwarding, ReceiptUrls
from srmp_spark.srmp.waits import RESEND_TABLE_S, RETRANSMISSION_TIMEOUT_S
from srmp_spark.wsrm.limits import BUFFER_INITIAL, POLL_INTERVAL

DEFAULT_LISTEN = "127.0.0.1:8080"
STATE_INTERVAL_SECONDS = 5.0
"""Default of ``--state-interval``: seconds that the Delta state may lag (docs/INTERFACE.md)."""
QUEUES_OF_TOKENS_MAX = 1_000
"""From this many queues on, an API token for some queues creates none; operators still may."""
QUEUES_MAX = 10_000
"""Most queues; a further one is refused. Each costs memory and a line in ``status``."""
RETENTION_HOURS = 168.0
"""Default of ``--retention-hours``: a week, longer than a long week-end without a reader."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """All options of one ``serve`` process, checked. Only :func:`.config.load` builds it."""

    data_dir: Path
    listen: Endpoint = field(default_factory=lambda: Endpoint.parse(DEFAULT_LISTEN))
    api: Endpoint = field(default_factory=lambda: Endpoint.parse(DEFAULT_API))
    queue: tuple[QueueSpec, ...] = ()
    host_name: tuple[str, ...] = ()
    public_url: str | None = None
    allow_url: tuple[UrlPattern, ...] = ()
    unknown_queue: Literal["reject", "retry"] = "reject"
    invalid_signature: Literal["keep", "refuse"] = "keep"
    expired: Literal["keep", "refuse"] = "keep"
    signer: tuple[Signer, ...] = ()
    listen_https: Endpoint | None = None
    listen_wsrm: SchemedEndpoint | None = None
    listen_cert: Path | None = None
    listen_key: Path | None = None
    client_ca: Path | None = None
    require_client_cert: bool = False
    ca_file: Path | None = None
    client_cert: Path | None = None
    client_key: Path | None = None
    writer: tuple[Writer, ...] = ()
    state: str | None = None
    state_interval: float = STATE_INTERVAL_SECONDS
    retention_hours: float = RETENTION_HOURS
    queue_quota_bytes: int | None = None
    machine_quota_bytes: int | None = None
    resend_table: tuple[float, ...] = RESEND_TABLE_S
    retransmission_timeout: float = RETRANSMISSION_TIMEOUT_S
    token: str | None = field(default=None, repr=False)
    """The API token of ``token_file`` or ``SRMP_SPARK_TOKEN``. It is in no log and in no repr."""
    tokens: tuple[Token, ...] = ()
    """The API tokens of ``[[token]]`` in the file."""
    api_cert: Path | None = None
    api_key: Path | None = None
    exit_when_unused: float | None = None
    """Seconds after the end of the last lease of a Spark query at which the process ends by itself.

    Spark sets it for embedded queue managers. ``None`` means never.
    """
    log_level: LogLevel = "info"
    log_format: LogFormat = "text"
    rpc: Endpoint | None = None
    subscription: tuple[Subscription, ...] = ()
    rpc_endpoint_mapper: Endpoint | None = None
    rpc_accounts: Accounts | None = None
    """Accounts in the file of ``--rpc-accounts``. Each may do everything with every queue."""
    rpc_account: tuple[RpcAccount, ...] = ()
    rpc_min_auth: Literal["none", "connect", "integrity", "privacy"] | None = None
    """The least protection of calls at the RPC port as given; see :attr:`rpc_auth_level`."""
    store_and_forward: bool = False
    redirect: Redirects = NO_REDIRECTS
    receipt_url: ReceiptUrls = NO_RECEIPT_URLS
    wsrm_buffer: int = BUFFER_INITIAL
    wsrm_poll_interval: float = POLL_INTERVAL
    pgm: Encapsulation | None = None
    pgm_interface: str = LOOPBACK
    pgm_ttl: int = TTL_DEFAULT
    pgm_constants: PgmConstants = NO_CONSTANTS

    @property
    def forwarding(self) -> Forwarding:
        """Return the rules for messages that are not for a queue of this queue manager."""
        policy = UrlPolicy(self.allow_url)
        return Forwarding(
            store_and_forward=self.store_and_forward,
            allows=policy.names,
            inbound=self.redirect.inbound,
        )

    @property
    def rpc_auth_level(self) -> str:
        """Return the least protection of calls at the RPC port. Calls with less are refused.

        The default is "none" without a port, and on loopback without ``[[rpc_account]]``, otherwise
        "privacy". Raises :class:`ConfigurationError` if the host of the port has no address.
        """
        if self.rpc_min_auth is not None:
            return self.rpc_min_auth
        return (
            "none"
            if self.rpc is None or (self.rpc.is_loopback and not self.rpc_account)
            else "privacy"
        )

    def all_rpc_accounts(self) -> RpcAccounts:
        """Return the accounts of ``--rpc-accounts`` and of ``[[rpc_account]]`` together.

        Raises :class:`ConfigurationError` if two accounts have the same name.
        """
        return RpcAccounts(self.rpc_accounts, self.rpc_account)

    @property
    def multicast(self) -> PgmSettings | None:
        """Return the settings of multicast, or ``None`` if multicast is off (no ``--pgm``)."""
        if self.pgm is None:
            return None
        constants = self.pgm_constants
        return PgmSettings(
            encapsulation=self.pgm,
            interface=self.pgm_interface,
            ttl=self.pgm_ttl,
            source=constants.source_settings(),
            receiver=constants.receiver_settings(),
        )

    def all_tokens(self) -> Tokens:
        """Return the API tokens of ``[[token]]`` and the token of ``--token-file`` together.

        Raises :class:`ConfigurationError` if two have the same name or the same secret.
        """
        tokens = self.tokens if self.token is None else (*self.tokens, admin_token(self.token))
        check_unlike("tokens", tokens)
        return Tokens(tokens)

    def public_base(self, listening: Endpoint) -> str:
        """Return the base URL (scheme, host and port) by which peers reach this queue manager.

        This is ``--public-url``, else the first ``--host-name`` with the port of ``listening``, the
        bound SRMP port, else the address of ``listening``. Receipts and admin queues use it.
        """
        if self.public_url is not None:
            return self.public_url.rstrip("/")
        return (listening._replace(host=self.host_name[0]) if self.host_name else listening).url()

    def public_base_of(self, port: SchemedEndpoint | None, public_base: str) -> str:
        """Return the base URL by which clients reach ``port``, another bound port.

        Its host is that of ``public_base``, which an operator may have set. If ``port`` is
        ``None``, ``public_base`` is returned.
        """
        if port is None:
            return public_base
        scheme = "https" if port.is_tls else "http"
        return port.endpoint._replace(host=split_url(public_base).host.strip("[]")).url(scheme)

    def local_hosts(self, listening: Endpoint, https: Endpoint | None = None) -> LocalHosts:
        """Return the hosts and ports that name this queue manager in a ``<to>``.

        [MC-MQSRM] 3.1.5.1.3. ``listening`` and ``https`` are the bound endpoints of SRMP. If one of
        the ports listens on every address, all names and addresses of this machine are included.
        """
        listeners = [
            listening.host,
            *(each.host for each in (self.listen_https, self.rpc) if each is not None),
        ]
        names = {canonical_host(name) for name in (*self.host_name, *listeners)}
        if self.public_url is not None:
            names.add(split_url(self.public_url).host)
        if {"0.0.0.0", "::"} & set(listeners):  # noqa: S104  # compared, not bound: "everywhere" means each of our addresses
            names |= {canonical_host(name) for name in own_names()}
        ports = {each.port for each in (listening, https, self.listen_https) if each is not None}
        if self.public_url is not None:
            ports.add(split_url(self.public_url).port)
        return LocalHosts(frozenset(names), frozenset(ports))
