"""Check certificates: readable, with their keys, not expired, for the names that peers use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import datetime, timezone
from pathlib import Path

from cryptography import x509

from srmp_spark.commands.checks.report import Check
from srmp_spark.errors import ConfigurationError
from srmp_spark.names import split_url
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig
from srmp_spark.queue_manager.trust.tls import API_FLAGS, ClientTls, ServerTls, TlsFiles

NAME = "certificate"
SOON_DAYS = 14
"""Days before its end from which a certificate is worth a word. Most are renewed earlier."""


def certificate_checks(config: ServeConfig) -> Iterator[Check]:
    """Yield a check for each certificate of the configuration. No private key is shown."""
    if config.listen_cert is not None and config.listen_key is not None:
        cert, key = config.listen_cert, config.listen_key
        yield from _checks_of(
            "--listen-cert",
            cert,
            lambda: ServerTls(
                cert, key, config.client_ca, require_client_certificate=config.require_client_cert
            ),
        )
        yield from _names_of(config, cert)
    if config.api_cert is not None and config.api_key is not None:
        api_cert, api_key = config.api_cert, config.api_key
        yield from _checks_of(
            "--api-cert",
            api_cert,
            lambda: ServerTls(
                api_cert,
                api_key,
                None,
                require_client_certificate=False,
                flags=API_FLAGS,
            ),
        )
    if config.ca_file is not None or config.client_cert is not None:
        yield from _checks_of(
            "--client-cert" if config.client_cert is not None else "--ca-file",
            config.client_cert,
            lambda: ClientTls(config.ca_file, config.client_cert, config.client_key),
        )
    for flag, path in (("--client-ca", config.client_ca), ("--ca-file", config.ca_file)):
        if path is not None:
            yield from _authorities(flag, path)


def _checks_of(
    flag: str, certificate: Path | None, build: Callable[[], TlsFiles]
) -> Iterator[Check]:
    """Yield whether TLS takes the files, and whether the certificate is valid now."""
    try:
        build()
    except ConfigurationError as error:
        text, _, hint = str(error).partition("; ")
        yield Check(NAME, False, text, hint or "name the files of one certificate and its key")
        return
    if certificate is not None and (found := _read(certificate)):
        yield _valid_now(f"{flag} {certificate}", found[0])


def _authorities(flag: str, path: Path) -> Iterator[Check]:
    """Yield a check for each authority that has expired. A file that TLS refuses was reported."""
    for each in _read(path):
        check = _valid_now(f"{flag} {path}: {each.subject.rfc4514_string()}", each)
        if not check.ok or check.hint:
            yield check


def _read(path: Path) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(path.read_bytes())
    except (OSError, ValueError):
        return []


def _valid_now(what: str, certificate: x509.Certificate) -> Check:
    now = datetime.now(timezone.utc)
    begins, ends = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    renew = "renew it; files that change are read again without a restart"
    if now < begins:
        hint = "look at the clock of this machine, or use the certificate before it"
        return Check(NAME, False, f"{what} is valid from {begins:%Y-%m-%d %H:%M} UTC on", hint)
    if now > ends:
        return Check(NAME, False, f"{what} expired at {ends:%Y-%m-%d %H:%M} UTC", renew)
    days = (ends - now).days
    detail = f"{what} is valid for {days} days"
    return Check(NAME, True, detail, renew if days < SOON_DAYS else "")


def _names_of(config: ServeConfig, path: Path) -> Iterator[Check]:
    """Yield whether the certificate has the names by which senders know this machine."""
    certificates = _read(path)
    if not certificates:
        return
    try:
        names = certificates[0].extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except (x509.ExtensionNotFound, ValueError):
        hosts: set[str] = set()
    else:
        hosts = {name.lower() for name in names.value.get_values_for_type(x509.DNSName)}
        hosts |= {str(each) for each in names.value.get_values_for_type(x509.IPAddress)}
    wanted = list(config.host_name)
    if config.public_url is not None and config.public_url.startswith("https:"):
        wanted.append(split_url(config.public_url).host)
    for name in dict.fromkeys(wanted):
        if name not in hosts and f"*.{name.partition('.')[2]}" not in hosts:
            detail = f"--listen-cert {path} has no name {name}, by which senders know this machine"
            hint = "senders over HTTPS refuse it: add the name to subjectAltName"
            yield Check(NAME, False, detail, hint)
