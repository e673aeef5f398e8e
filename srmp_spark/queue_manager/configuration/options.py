"""Name every option of ``srmp-spark serve`` once, with its converter and its help.

The parser of the command line, the environment and the file all use the table :data:`OPTIONS`, so
that all of them know the same keys.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.interface import DEFAULT_API
from srmp_spark.logs.form import FORMATS, LEVELS
from srmp_spark.names import canonical_host, split_url
from srmp_spark.queue_manager.configuration.endpoint import Endpoint, SchemedEndpoint
from srmp_spark.queue_manager.configuration.queue_spec import QueueSpec
from srmp_spark.queue_manager.configuration.redirect_config import (
    parse_receipt_urls,
    parse_redirects,
)
from srmp_spark.queue_manager.configuration.serve_config import (
    DEFAULT_LISTEN,
    RETENTION_HOURS,
    STATE_INTERVAL_SECONDS,
)
from srmp_spark.queue_manager.configuration.subscriptions import parse_subscriptions
from srmp_spark.queue_manager.multicast.settings import (
    TTL_DEFAULT,
    Encapsulation,
    parse_pgm_constants,
    ttl,
)
from srmp_spark.queue_manager.posting.url_policy import UrlPattern
from srmp_spark.queue_manager.trust.rpc_accounts import parse_rpc_accounts
from srmp_spark.queue_manager.trust.signers import parse_signers
from srmp_spark.queue_manager.trust.tokens import parse_tokens, read_token
from srmp_spark.queue_manager.trust.writers import parse_writers
from srmp_spark.signing_in.accounts import Accounts, read_accounts
from srmp_spark.srmp.waits import RETRANSMISSION_TIMEOUT_S
from srmp_spark.wsrm.limits import BUFFER_INITIAL, BUFFER_LIMIT, POLL_INTERVAL


def nearest(word: str, known: list[str]) -> str:
    """Return a hint that names the known word nearest to ``word``, or else all known words."""
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


def switch(text: str) -> bool:
    """Return the truth value that ``text`` names.

    Raises :class:`ValueError` for any other text.
    """
    word = text.lower()
    if word not in ("true", "false", "1", "0", "yes", "no"):
        raise ValueError("expected true or false")
    return word in ("true", "1", "yes")


def _choice(*allowed: str) -> Callable[[str], str]:
    def convert(text: str) -> str:
        if text not in allowed:
            raise ValueError(nearest(text, list(allowed)))
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


def seconds_table(text: str) -> tuple[float, ...]:
    """Return the numbers of seconds in ``text``, which are separated by commas.

    Raises :class:`ValueError` if one is no number above 0.
    """
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
        seconds_table,
        "S,S,…",
        "seconds between attempts to send, the last one repeats (default: as Windows, 30 s to 6 h)",
    ),
    Option(
        "retransmission_timeout",
        _positive,
        "S",
        "seconds until an undelivered stream receipt is sent again (default "
        f"{RETRANSMISSION_TIMEOUT_S:g})",
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
        switch,
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
        switch,
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
        "log_level",
        _choice(*LEVELS),
        "|".join(LEVELS),
        "least level of lines in the log, which is standard error (default info)",
    ),
    Option(
        "log_format",
        _choice(*FORMATS),
        "|".join(FORMATS),
        "text for people (default), or json: one object a line, for Loki, Elasticsearch and others",
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
