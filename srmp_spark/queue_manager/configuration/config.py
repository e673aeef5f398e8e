"""Read the options of ``srmp-spark serve``.

The value of an option is that of the flag, else of the environment variable ``SRMP_SPARK_<KEY>``,
else of the TOML file, else the default. One table, :data:`OPTIONS`, names every option once. The
parser of the command line, the environment and the file all use this table, so that all of them
know the same keys. An unknown key is an error that names the nearest known key.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Literal, NamedTuple

from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import DEFAULT_API
from srmp_spark.names import LocalHosts, canonical_host, split_url
from srmp_spark.queue_manager.configuration.endpoint import Endpoint, SchemedEndpoint
from srmp_spark.queue_manager.configuration.queue_spec import QueueSpec
from srmp_spark.queue_manager.configuration.redirect_config import (
    NO_REDIRECTS,
    Redirects,
    parse_receipt_urls,
    parse_redirects,
)
from srmp_spark.queue_manager.configuration.subscriptions import Subscription, parse_subscriptions
from srmp_spark.queue_manager.multicast.settings import (
    LOOPBACK,
    NO_CONSTANTS,
    TTL_DEFAULT,
    Encapsulation,
    PgmConstants,
    PgmSettings,
    parse_pgm_constants,
    ttl,
)
from srmp_spark.queue_manager.posting.url_policy import UrlPattern, UrlPolicy
from srmp_spark.queue_manager.trust.own_names import own_names
from srmp_spark.queue_manager.trust.rpc_accounts import RpcAccount, RpcAccounts, parse_rpc_accounts
from srmp_spark.queue_manager.trust.signers import Signer, parse_signers
from srmp_spark.queue_manager.trust.tokens import (
    Token,
    Tokens,
    admin_token,
    check_token,
    check_unlike,
    parse_tokens,
    read_token,
)
from srmp_spark.queue_manager.trust.writers import Writer, check_writers, parse_writers
from srmp_spark.signing_in.accounts import Accounts, read_accounts
from srmp_spark.srmp.forward.redirection import NO_RECEIPT_URLS, Forwarding, ReceiptUrls
from srmp_spark.store.delta.tables.state_folder import check_state
from srmp_spark.wsrm.limits import BUFFER_INITIAL, BUFFER_LIMIT, POLL_INTERVAL

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ENVIRONMENT_PREFIX = "SRMP_SPARK_"
CLIENT_KEYS = frozenset({"api", "token"})
"""Keys that other commands use too: ``SRMP_SPARK_API`` is a URL, ``…_TOKEN`` the API token."""

DEFAULT_LISTEN = "127.0.0.1:8080"
STATE_INTERVAL_SECONDS = 5.0
"""Default of ``--state-interval``: seconds that the Delta state may lag (docs/INTERFACE.md)."""
QUEUES_OF_TOKENS_MAX = 1_000
"""From this many queues on, an API token for some queues creates none; operators still may."""
QUEUES_MAX = 10_000
"""Most queues; a further one is refused. Each costs memory and a line in ``status``."""
RETENTION_HOURS = 168.0
"""Default of ``--retention-hours``: a week, longer than a long week-end without a reader."""
RETRANSMISSION_TIMEOUT_SECONDS = 20.0
"""Default of ``--retransmission-timeout``: seconds until an undelivered stream receipt is sent
again ([MC-MQSRM] 3.1.3.1, appendix A <25>).
"""
RESEND_TABLE_SECONDS = (30.0, 30.0, 30.0, 300.0, 300.0, 300.0, 1800.0, 1800.0, 1800.0, 21600.0)
"""Default of ``--resend-table``, as in Windows ([MC-MQSRM] appendix A <16>). The last repeats."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeConfig:
    """All options of one ``serve`` process, checked. Only :func:`load` builds it."""

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
    resend_table: tuple[float, ...] = RESEND_TABLE_SECONDS
    retransmission_timeout: float = RETRANSMISSION_TIMEOUT_SECONDS
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


def _nearest(word: str, known: list[str]) -> str:
    close = difflib.get_close_matches(word, known, 1, 0.5)
    return f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(known))}"


# --- one converter per kind of value; each raises ConfigurationError or ValueError ----------------


def _positive(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e10:
        raise ValueError("expected a number above 0")
    return value


def _bytes(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) == 0:
        raise ValueError("expected a whole number above 0")
    return int(text)


def _buffer(text: str) -> int:
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= BUFFER_LIMIT:
        raise ValueError(f"expected a number of messages from 1 to {BUFFER_LIMIT}")
    return int(text)


def _switch(text: str) -> bool:
    word = text.lower()
    if word not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError("expected true or false")
    return word in ("true", "1", "yes")


def _choice(*allowed: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in allowed:
            raise ValueError(_nearest(text, list(allowed)))
        return text

    return convert


def _host(text: str) -> str:
    if not text or any(c in text for c in "/:@ ?#") or not text.isprintable():
        raise ValueError("expected a host name without scheme and port")
    return canonical_host(text)


def _accounts(text: str) -> Accounts:
    return read_accounts(Path(text))


def _base_url(text: str) -> str:
    parts = split_url(text)
    if parts.query or parts.path not in ("", "/"):
        raise ValueError("expected SCHEME://HOST[:PORT] without a path")
    return text


def _seconds_table(text: str) -> tuple[float, ...]:
    return tuple(_positive(part) for part in text.split(","))


class Option(NamedTuple):
    """One option of ``serve``. Its ``key`` is the name of the flag with ``_`` for ``-``."""

    key: str
    convert: Callable[[str], Any]
    metavar: str
    help: str
    many: bool = False


OPTIONS: tuple[Option, ...] = (
    Option(
        "data_dir",
        Path,
        "DIR",
        "the directory that keeps messages and identity; one queue manager per directory",
    ),
    Option(
        "listen",
        Endpoint.parse,
        "HOST:PORT",
        f"the port of SRMP over HTTP, to which Windows sends (default {DEFAULT_LISTEN})",
    ),
    Option(
        "api",
        Endpoint.parse,
        "HOST:PORT",
        f"the port of the API, for commands and Spark (default {DEFAULT_API}); beyond "
        "loopback it needs a token and TLS",
    ),
    Option(
        "queue",
        QueueSpec.parse,
        "NAME[:transactional][:journal][:multicast=IP:PORT]",
        "create this queue if it does not exist",
        many=True,
    ),
    Option("host_name", _host, "NAME", "a host name that senders use for this machine", many=True),
    Option(
        "public_url",
        _base_url,
        "URL",
        "the URL by which senders reach this machine (NAT, reverse proxy)",
    ),
    Option(
        "allow_url",
        UrlPattern.parse,
        "PATTERN",
        "receipt URLs that may be called besides the sender's own address, and hosts to forward to",
        many=True,
    ),
    Option(
        "unknown_queue",
        _choice("reject", "retry"),
        "reject|retry",
        "answer 400 (default: the sender drops the message) or 503 (the sender tries again)",
    ),
    Option(
        "invalid_signature",
        _choice("keep", "refuse"),
        "keep|refuse",
        "a wrong XML signature: mark the row (default), or answer 400",
    ),
    Option(
        "expired",
        _choice("keep", "refuse"),
        "keep|refuse",
        "a message that arrives too late: mark the row (default), or discard the message",
    ),
    Option("state", str, "URI|PATH", "the folder or URI of the Delta state tables (default: none)"),
    Option(
        "state_interval",
        _positive,
        "SECONDS",
        f"seconds that the Delta state may lag (default {STATE_INTERVAL_SECONDS:g})",
    ),
    Option(
        "retention_hours",
        _positive,
        "N",
        f"hours that received rows are kept (default {RETENTION_HOURS:g})",
    ),
    Option(
        "queue_quota_bytes",
        _bytes,
        "N",
        "unreceived bytes of a queue above which senders are answered 503 (default: no limit)",
    ),
    Option(
        "machine_quota_bytes",
        _bytes,
        "N",
        "unreceived bytes of all queues together above which senders are answered 503 "
        "(default: no limit)",
    ),
    Option(
        "resend_table",
        _seconds_table,
        "S,S,…",
        "seconds between attempts to send, the last one repeats (default: as Windows, 30 s to 6 h)",
    ),
    Option(
        "retransmission_timeout",
        _positive,
        "S",
        "seconds until an undelivered stream receipt is sent again (default "
        f"{RETRANSMISSION_TIMEOUT_SECONDS:g})",
    ),
    Option(
        "token_file",
        read_token,
        "FILE",
        "a file with the API token, mode 0600 (or the token in SRMP_SPARK_TOKEN)",
    ),
    Option(
        "listen_https",
        Endpoint.parse,
        "HOST:PORT",
        "the port of SRMP over HTTPS, in addition to --listen (default: none)",
    ),
    Option(
        "listen_wsrm",
        SchemedEndpoint.parse,
        "[https://]HOST:PORT",
        "the port of WS-ReliableMessaging (default: none)",
    ),
    Option(
        "listen_cert",
        Path,
        "FILE",
        "certificate chain of --listen-https and --listen-wsrm, PEM; read again when it changes",
    ),
    Option("listen_key", Path, "FILE", "private key of --listen-cert, PEM"),
    Option(
        "client_ca",
        Path,
        "FILE",
        "authorities of client certificates, PEM, with revocation lists if there are any",
    ),
    Option(
        "require_client_cert",
        _switch,
        "true|false",
        "refuse clients without a certificate at --listen-https (default false)",
    ),
    Option(
        "ca_file",
        Path,
        "FILE",
        "authorities of peers that we call over HTTPS, PEM (default: the system's)",
    ),
    Option("client_cert", Path, "FILE", "the certificate that we show to peers, PEM"),
    Option("client_key", Path, "FILE", "private key of --client-cert, PEM"),
    Option("api_cert", Path, "FILE", "certificate of the API, PEM"),
    Option("api_key", Path, "FILE", "private key of --api-cert, PEM"),
    Option(
        "rpc",
        Endpoint.parse,
        "HOST:PORT",
        "the port of remote read (MQRR over DCE/RPC; Windows has 2103; default: none)",
    ),
    Option(
        "rpc_endpoint_mapper",
        Endpoint.parse,
        "HOST:PORT",
        "the endpoint mapper, which tells clients the port of --rpc; clients of Windows "
        "ask at 135 (default: none)",
    ),
    Option(
        "rpc_accounts",
        _accounts,
        "FILE",
        "accounts that may sign in at --rpc: lines DOMAIN\\user:password",
    ),
    Option(
        "rpc_min_auth",
        _choice("none", "connect", "integrity", "privacy"),
        "LEVEL",
        "none, connect, integrity or privacy: the least protection of calls at --rpc "
        "(default: none on loopback, else privacy)",
    ),
    Option(
        "store_and_forward",
        _switch,
        "true|false",
        "forward messages for hosts that --allow-url names (default false)",
    ),
    Option(
        "wsrm_buffer",
        _buffer,
        "N",
        "unreceived messages in a queue at which WS-ReliableMessaging clients wait "
        f"(default {BUFFER_INITIAL})",
    ),
    Option(
        "wsrm_poll_interval",
        _positive,
        "S",
        f"seconds between two questions to a service that has no room (default {POLL_INTERVAL:g})",
    ),
    Option(
        "pgm",
        Encapsulation.parse,
        "raw|udp:PORT",
        "multicast (PGM): raw is IP protocol 113, as in Windows, and needs CAP_NET_RAW "
        "(default: no multicast)",
    ),
    Option(
        "pgm_interface",
        str,
        "IF",
        "name or address of the interface for multicast (default: loopback)",
    ),
    Option(
        "pgm_ttl",
        ttl,
        "N",
        f"hops that multicast may make, 1 to 255 (default {TTL_DEFAULT}: its own network)",
    ),
    Option(
        "exit_when_unused",
        _positive,
        "SECONDS",
        "end this many seconds after the last lease; Spark sets it for embedded queue "
        "managers (default: never)",
    ),
)

TABLES: Mapping[str, Callable[[str, Any], Any]] = {
    "signer": parse_signers,
    "redirect": parse_redirects,
    "receipt_url": parse_receipt_urls,
    "token": parse_tokens,
    "writer": parse_writers,
    "rpc_account": parse_rpc_accounts,
    "subscription": parse_subscriptions,
    "pgm_constants": parse_pgm_constants,
}
"""Parsers for the keys that only the TOML file has: tables such as ``[[signer]]``.

A parser gets the place of the key, for errors, and the TOML value, and returns the option's value.
"""

_BY_KEY = {option.key: option for option in OPTIONS}
_FIELD_OF = {"token_file": "token", "token": "tokens"}


def add_flags(parser: argparse.ArgumentParser) -> None:
    """Add every option, and ``--config``, to the argument parser of ``serve``.

    The parsed values stay text, and :func:`load` converts them.
    """
    for option in OPTIONS:
        parser.add_argument(
            "--" + option.key.replace("_", "-"),
            dest=option.key,
            metavar=option.metavar,
            help=option.help.replace("%", "%%") + ("; may be repeated" if option.many else ""),
            action="append" if option.many else "store",
            nargs="?" if option.convert is _switch else None,
            const="true" if option.convert is _switch else None,
        )
    parser.add_argument(
        "--config",
        metavar="FILE.toml",
        help="a file with these options as keys, _ for - (every key: conf/serve.toml)",
    )


def load(flags: Mapping[str, Any], environment: Mapping[str, str]) -> ServeConfig:
    """Merge flags (``None`` = not given), environment and file into the checked options.

    Raises :class:`ConfigurationError` for an unknown key, a wrong value, a file that cannot be
    read, a missing ``--data-dir``, or options that contradict each other.
    """
    file_name = flags.get("config") or environment.get(ENVIRONMENT_PREFIX + "CONFIG")
    texts: dict[str, tuple[str, Any]] = {}
    if file_name:
        texts.update(
            {
                key: (f"{key} in {file_name}", value)
                for key, value in _read_toml(Path(file_name)).items()
            }
        )
    texts.update(_read_environment(environment))
    texts.update(
        {
            key: ("--" + key.replace("_", "-"), value)
            for key, value in flags.items()
            if value is not None and key in _BY_KEY
        }
    )
    values: dict[str, Any] = {}
    for key, (where, value) in texts.items():
        values[_FIELD_OF.get(key, key)] = (
            TABLES[key](where, value) if key in TABLES else _convert(_BY_KEY[key], where, value)
        )
    if "token" not in values and (token := environment.get(ENVIRONMENT_PREFIX + "TOKEN")):
        try:
            values["token"] = check_token(token)
        except ValueError as error:
            raise ConfigurationError(f"{ENVIRONMENT_PREFIX}TOKEN: {error}") from None
    if "data_dir" not in values:
        raise ConfigurationError(
            "serve needs --data-dir DIR: the directory that holds the messages"
        )
    config = ServeConfig(**values)
    _check(config)
    return config


def _convert(option: Option, where: str, value: Any) -> Any:  # noqa: ANN401  # a TOML value may be anything
    def one(item: Any) -> Any:  # noqa: ANN401
        if (isinstance(item, bool) and option.convert is not _switch) or not isinstance(
            item, str | int | float
        ):
            raise ConfigurationError(f"{where}: expected a text or a number, got {item!r}")
        try:
            return option.convert(str(item))
        except ValueError as error:
            # No message may show the content of the token file.
            got = f"the file {item}" if option.convert is read_token else f"got {item!r}"
            raise ConfigurationError(f"{where}: {error} ({got})") from None

    if option.many:
        return tuple(one(item) for item in (value if isinstance(value, list | tuple) else [value]))
    if isinstance(value, list) and option.convert is _seconds_table:
        value = ",".join(str(item) for item in value)
    return one(value)


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        values: dict[str, Any] = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise ConfigurationError(f"--config {path}: {error}") from None
    for key in values:
        if key not in _BY_KEY and key not in TABLES:
            raise ConfigurationError(
                f"unknown key {key!r} in {path}; {_nearest(key, [*_BY_KEY, *TABLES])}"
            )
    return values


def _read_environment(environment: Mapping[str, str]) -> dict[str, tuple[str, Any]]:
    found: dict[str, tuple[str, Any]] = {}
    for name, value in environment.items():
        if not name.startswith(ENVIRONMENT_PREFIX):
            continue
        key = name.removeprefix(ENVIRONMENT_PREFIX).lower()
        if key in ("config", "token") or (key in CLIENT_KEYS and "://" in value):
            continue  # With a URL, SRMP_SPARK_API is for the other commands.
        if key == "port" or key.startswith(("port_", "service_")):
            continue  # Kubernetes sets these in every pod if a Service is named srmp-spark.
        if key not in _BY_KEY:
            variables = [ENVIRONMENT_PREFIX + known.upper() for known in _BY_KEY]
            raise ConfigurationError(f"unknown variable {name}; {_nearest(name, variables)}")
        if _BY_KEY[key].many:
            found[key] = (
                name,
                [part for part in (piece.strip() for piece in value.split(",")) if part],
            )
        else:
            found[key] = (name, value)
    return found


def _check(config: ServeConfig) -> None:
    """Raise :class:`ConfigurationError` for options that contradict each other or need others."""
    if (config.api_cert is None) != (config.api_key is None):
        raise ConfigurationError("--api-cert and --api-key belong together")
    tokens = config.all_tokens()
    if not config.api.is_loopback and (not tokens or config.api_cert is None):
        raise ConfigurationError(
            f"the API on {config.api.host} can be reached from other hosts: it needs "
            "--token-file or [[token]], and "
            "--api-cert/--api-key (or listen on 127.0.0.1)"
        )
    _check_tls(config)
    _check_ports(config)
    if config.state is not None:
        check_state(config.state)
    _check_rpc(config)
    check_writers(config.writer, tokens, asks_for_certificates=config.client_ca is not None)
    if len({spec.name for spec in config.queue}) != len(config.queue):
        raise ConfigurationError("a queue is named twice by --queue")
    _check_multicast(config)
    if len(config.queue) > QUEUES_MAX:
        raise ConfigurationError(f"at most {QUEUES_MAX} queues")


def _check_ports(config: ServeConfig) -> None:
    """Raise :class:`ConfigurationError` if two options name the same host and port (not 0).

    The check is needed because the kernel would let two listeners of one process share the port.
    """
    named = [
        ("--listen", config.listen),
        ("--api", config.api),
        ("--listen-https", config.listen_https),
        ("--rpc", config.rpc),
        ("--listen-wsrm", None if config.listen_wsrm is None else config.listen_wsrm.endpoint),
    ]
    taken: dict[Endpoint, str] = {}
    for flag, endpoint in named:
        if endpoint is None or not endpoint.port:
            continue
        if endpoint in taken:
            raise ConfigurationError(
                f"{taken[endpoint]} and {flag} are both {endpoint.host}:{endpoint.port}: "
                "give each its own port"
            )
        taken[endpoint] = flag


def _check_rpc(config: ServeConfig) -> None:
    if config.rpc is None:
        given = (
            config.rpc_min_auth,
            config.rpc_accounts,
            config.rpc_endpoint_mapper,
            config.rpc_account or None,
        )
        if any(each is not None for each in given):
            raise ConfigurationError(
                "--rpc-min-auth, --rpc-accounts, [[rpc_account]] and "
                "--rpc-endpoint-mapper are for --rpc"
            )
        return
    accounts = config.all_rpc_accounts()
    if config.rpc_auth_level == "none" and config.rpc_account:
        raise ConfigurationError(
            "[[rpc_account]] gives rights, and --rpc-min-auth none lets everybody do "
            "everything without signing in: "
            "leave --rpc-min-auth out (it is privacy then), or leave the accounts out"
        )
    if config.rpc_auth_level != "none" and not accounts:
        raise ConfigurationError(
            f"--rpc {config.rpc.host}:{config.rpc.port} demands {config.rpc_auth_level}, "
            "and no account could sign in: give "
            "[[rpc_account]] or --rpc-accounts FILE, or listen on 127.0.0.1, or give "
            "--rpc-min-auth none "
            "where only those who may read everything can connect"
        )


def _check_multicast(config: ServeConfig) -> None:
    addresses = [spec.multicast for spec in config.queue if spec.multicast is not None]
    if addresses and config.pgm is None:
        raise ConfigurationError(
            "a queue with :multicast= needs --pgm raw (as in Windows; it needs "
            "CAP_NET_RAW) or --pgm udp:PORT"
        )
    if config.pgm is None and (
        config.pgm_constants != NO_CONSTANTS or config.pgm_interface != LOOPBACK
    ):
        raise ConfigurationError(
            "--pgm-interface and [pgm_constants] are for --pgm raw or --pgm udp:PORT"
        )
    twice = next((each for each in addresses if addresses.count(each) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"two queues on multicast address {twice}: give each its own")


def _check_tls(config: ServeConfig) -> None:
    if (config.listen_cert is None) != (config.listen_key is None):
        raise ConfigurationError("--listen-cert and --listen-key belong together")
    speaks_tls = config.listen_https is not None or (
        config.listen_wsrm is not None and config.listen_wsrm.is_tls
    )
    if speaks_tls != (config.listen_cert is not None):
        raise ConfigurationError(
            "--listen-https and --listen-wsrm https://… need --listen-cert and "
            "--listen-key, and they need one of the two"
        )
    if config.client_ca is not None and not speaks_tls:
        raise ConfigurationError(
            "--client-ca is for --listen-https: plain HTTP shows no certificate"
        )
    if config.require_client_cert and config.client_ca is None:
        raise ConfigurationError(
            "--require-client-cert needs --client-ca: the authorities whose certificates count"
        )
    if (config.client_cert is None) != (config.client_key is None):
        raise ConfigurationError("--client-cert and --client-key belong together")


assert {_FIELD_OF.get(option.key, option.key) for option in OPTIONS} | {
    _FIELD_OF.get(key, key) for key in TABLES
} == {f.name for f in fields(ServeConfig)}
