"""Build TLS contexts from the files of the configuration, and again when the files change.

**What is refused.** TLS refuses versions below TLS 1.2, and keys and signatures below 112 bits
(security level 2 of OpenSSL: RSA below 2,048 bits, SHA-1). It refuses a certificate that is expired
or not yet valid, of an unknown authority, for another host or another purpose, or on a revocation
list in the file of authorities. A connection is never renegotiated.

**Rotation.** A renewed certificate needs no restart. At most once in :data:`CHECK_SECONDS` the
name, time, size and inode of each file are checked, and new handshakes use the present files. Open
connections continue. Files that do not fit together (the certificate is there, its key is not yet)
change nothing until they fit, and the log has one warning. A context that replaces another has no
sessions, so no peer can resume a session under an authority that was withdrawn.
"""

from __future__ import annotations

import hashlib
import logging
import re
import ssl
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from srmp_spark.errors import ConfigurationError
from srmp_spark.private_files import refuse_open_secret

CHECK_SECONDS = 1.0
"""Least seconds between two checks of the files: a stat for each file, and only when a peer
connects.
"""
LISTEN_FLAGS = "--listen-cert/--listen-key"
API_FLAGS = "--api-cert/--api-key"
"""Names of a certificate and its key in errors: of the ports for senders, and of the API."""
SUBJECT_MAX = 1_024
"""Most characters of a subject that is used as a name.

A longer one is replaced by its fingerprint, because two cut subjects could be equal.
"""

CIPHERS = "@SECLEVEL=2:ECDH+AESGCM:ECDH+CHACHA20:ECDH+AES:DHE+AES:!aNULL:!eNULL:!aDSS:!SHA1:!AESCCM"
"""Python's own list of ciphers since 3.10, written out because some distributions build another one
in.
"""

_CRL = b"-----BEGIN X509 CRL-----"
_SHORT = {
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "countryName": "C",
    "streetAddress": "STREET",
    "domainComponent": "DC",
    "userId": "UID",
}
"""Short names for the parts of a subject (RFC 4514 section 3).

Other parts keep OpenSSL's long name.
"""
_SEPARATOR = re.compile(r"(?<!\\),")
"""Matches the comma between two parts of a subject. A comma in a value is escaped."""

log = logging.getLogger(__name__)

_Stamp = tuple[tuple[int, int, int] | None, ...]


class TlsFiles(ABC):
    """Keeps a TLS context that is built from files. Builds it again when the files change."""

    def __init__(
        self, *paths: Path | None, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        """Build the context from the files, if any are given.

        Raises :class:`ConfigurationError` for a file that cannot be used.
        """
        self._paths = [path for path in paths if path is not None]
        self._monotonic = monotonic
        self._checked_at = monotonic()
        self._stamp = self._look()  # Look before reading. A later change is read again.
        self._refused: _Stamp | None = None
        self._context = self._build() if self._paths else None
        """The present context.

        Without given files it is built when it is first needed, because reading the system's
        authorities takes a while.
        """

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {', '.join(map(str, self._paths))}>"

    @abstractmethod
    def _build(self) -> ssl.SSLContext:
        """Build a new context from the present files. A subclass implements this method.

        Raises :class:`ConfigurationError` for a file that cannot be used.
        """

    def context(self) -> ssl.SSLContext:
        """Return the context for the next handshake, a new one if the files have changed.

        The files are checked at most once in CHECK_SECONDS. With given files the call raises
        nothing: if new files cannot be used, that is logged, and the context of the earlier files
        stays. Without files the first call builds the context, and raises
        :class:`ConfigurationError` if that fails.
        """
        if self._context is None:
            self._context = self._build()
        now = self._monotonic()
        if self._paths and now - self._checked_at >= CHECK_SECONDS:
            self._checked_at = now
            stamp = self._look()
            if stamp != self._stamp:
                self._renew(stamp)
        return self._context

    def _renew(self, stamp: _Stamp) -> None:
        files = ", ".join(map(str, self._paths))
        try:
            context = self._build()
        except ConfigurationError as error:
            if stamp != self._refused:
                self._refused = stamp
                log.warning(
                    'tls.not_renewed files="%s" reason="%s": the files that were read '
                    "before stay in use",
                    files,
                    error,
                )
            return
        if self._look() != stamp:
            return  # The files are being written. The next look reads them.
        self._context, self._stamp, self._refused = context, stamp, None
        log.info('tls.renewed files="%s"', files)

    def _look(self) -> _Stamp:
        return tuple(map(_stamp_of, self._paths))


class ServerTls(TlsFiles):
    """The context for peers that connect to this process.

    It has this process's certificate and the authorities of the peers' certificates.
    """

    def __init__(
        self,
        certificate: Path,
        key: Path,
        client_ca: Path | None,
        *,
        require_client_certificate: bool,
        flags: str = LISTEN_FLAGS,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build the context, as :class:`TlsFiles`. ``flags`` name certificate and key in errors."""
        self._certificate, self._key, self._flags = certificate, key, flags
        self._client_ca, self._require = client_ca, require_client_certificate
        super().__init__(certificate, key, client_ca, monotonic=monotonic)

    def _build(self) -> ssl.SSLContext:
        context = _hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER))
        _load_own(context, self._certificate, self._key, self._flags)
        if self._client_ca is not None:
            _load_authorities(context, self._client_ca, "--client-ca")
            context.verify_mode = ssl.CERT_REQUIRED if self._require else ssl.CERT_OPTIONAL
        return context


class ClientTls(TlsFiles):
    """The context for peers to which this process connects.

    It has the authorities of the peers' certificates and this process's certificate.
    """

    def __init__(
        self,
        ca_file: Path | None = None,
        certificate: Path | None = None,
        key: Path | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ca_file, self._certificate, self._key = ca_file, certificate, key
        super().__init__(ca_file, certificate, key, monotonic=monotonic)

    def _build(self) -> ssl.SSLContext:
        # It verifies the chain and the host name.
        context = _hardened(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
        # Only subjectAltName names a host (RFC 9525 6.3).
        context.hostname_checks_common_name = False
        if self._ca_file is not None:
            _load_authorities(context, self._ca_file, "--ca-file")
        else:
            context.load_default_certs()
        if self._certificate is not None and self._key is not None:
            _load_own(context, self._certificate, self._key, "--client-cert/--client-key")
        return context


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_size, found.st_ino


def _hardened(context: ssl.SSLContext) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_ciphers(CIPHERS)
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    return context


def _load_own(context: ssl.SSLContext, certificate: Path, key: Path, flags: str) -> None:
    try:
        refuse_open_secret(flags, key)
        context.load_cert_chain(certificate, key, password="")  # Never ask at a terminal.
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError.
        raise ConfigurationError(
            f"{flags}: {certificate} and {key}: {_words(error)}; expected PEM, and its "
            "key without a passphrase"
        ) from None


def _load_authorities(context: ssl.SSLContext, path: Path, flag: str) -> None:
    try:
        pem = path.read_bytes()
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{flag}: {path}: {_words(error)}; expected certificates in PEM"
        ) from None
    if _CRL in pem:  # Then every authority of the file needs its list.
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _words(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    return getattr(error, "strerror", None) or str(error)


# --- who the peer is ------------------------------------------------------------------------------


def sender_name_of(certificate: Mapping[str, Any] | None, der: bytes | None) -> str | None:
    """Return the name of a peer whose certificate was verified, or ``None`` without certificate.

    The name is for the column ``sender_name``. ``certificate`` and ``der`` are the results of
    :meth:`ssl.SSLObject.getpeercert`. The name is the subject as RFC 4514 writes it,
    ``CN=orders.example,O=Example``. Without a subject it is the first DNS name, as
    ``DNS=orders.example``. If there is neither, or the name has more than SUBJECT_MAX characters,
    it is the fingerprint. It is never empty: a peer with a certificate must not look like a peer
    without one.
    """
    if not certificate or der is None:
        return None
    name = _subject(certificate.get("subject", ()))
    if not name:
        alternatives = [
            value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"
        ]
        name = f"DNS={_escaped(alternatives[0])}" if alternatives else ""
    return name if 0 < len(name) <= SUBJECT_MAX else f"SHA256={hashlib.sha256(der).hexdigest()}"


def _subject(rdns: tuple[tuple[tuple[str, str], ...], ...]) -> str:
    """Return a subject as RFC 4514 writes it: the most specific part first."""
    return ",".join(
        "+".join(f"{_SHORT.get(kind, kind)}={_escaped(value)}" for kind, value in rdn)
        for rdn in reversed(rdns)
        if rdn
    )


def _escaped(value: str) -> str:
    """Return a value with the escapes that RFC 4514 2.4 demands.

    Unprintable characters are escaped too, because the name is written to logs.
    """
    text = "".join(
        f"\\{c}"
        if c in '"+,;<>\\='
        else c
        if c.isprintable()
        else "".join(f"\\{byte:02X}" for byte in c.encode("utf-8", "replace"))
        for c in value
    )
    if text[:1] in ("#", " "):
        text = "\\" + text
    return (
        text[:-1] + "\\ "
        if len(text) > 1 and text.endswith(" ") and not text.endswith("\\ ")
        else text
    )


def host_of_sender(sender_name: str | None) -> str | None:
    """Return the host in an authenticated name: its first ``CN``, or its ``DNS``.

    Return ``None`` if the name has no host. The rule of ``--allow-url`` compares the host with the
    host of a URL. An escaped value cannot be a host name.
    """
    if sender_name is None:
        return None
    for part in _SEPARATOR.split(sender_name):
        kind, _, value = part.partition("=")
        if kind in ("CN", "DNS") and value and "\\" not in value and "+" not in value:
            return value
    return None
