"""Refuse options of ``serve`` that contradict each other, or that need others."""

from __future__ import annotations

from collections.abc import Callable

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.endpoint import Endpoint
from srmp_spark.queue_manager.configuration.serve_config import QUEUES_MAX, ServeConfig
from srmp_spark.queue_manager.multicast.settings import LOOPBACK, NO_CONSTANTS
from srmp_spark.queue_manager.trust.writers import check_writers
from srmp_spark.store.delta.tables.state_folder import check_state


def refuse_contradictions(config: ServeConfig) -> None:
    """Raise :class:`ConfigurationError` for options that contradict each other or need others."""
    for check in _CHECKS:
        check(config)


def contradictions(config: ServeConfig) -> list[ConfigurationError]:
    """Return an error for each way in which options contradict each other or need others."""
    found = (_error_of(check, config) for check in _CHECKS)
    return list({str(error): error for error in found if error is not None}.values())


def _error_of(
    check: Callable[[ServeConfig], object], config: ServeConfig
) -> ConfigurationError | None:
    try:
        check(config)
    except ConfigurationError as error:
        return error
    return None


def _check_tokens(config: ServeConfig) -> None:
    config.all_tokens()


def _check_api(config: ServeConfig) -> None:
    if (config.api_cert is None) != (config.api_key is None):
        raise ConfigurationError("--api-cert and --api-key belong together")
    if not config.api.is_loopback and (not config.all_tokens() or config.api_cert is None):
        raise ConfigurationError(
            f"the API on {config.api.host} can be reached from other hosts: it needs "
            "--token-file or [[token]], and "
            "--api-cert/--api-key (or listen on 127.0.0.1)"
        )


def _check_state(config: ServeConfig) -> None:
    if config.state is not None:
        check_state(config.state)


def _check_writers(config: ServeConfig) -> None:
    check_writers(
        config.writer, config.all_tokens(), asks_for_certificates=config.client_ca is not None
    )


def _check_queues(config: ServeConfig) -> None:
    if len({spec.name for spec in config.queue}) != len(config.queue):
        raise ConfigurationError("a queue is named twice by --queue")
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


_CHECKS = (
    _check_tokens,
    _check_api,
    _check_tls,
    _check_ports,
    _check_state,
    _check_rpc,
    _check_writers,
    _check_queues,
    _check_multicast,
)
