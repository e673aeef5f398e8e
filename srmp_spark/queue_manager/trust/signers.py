"""Parse the trusted signers (``[[signer]]``), and load the keys that they name.

    [[signer]]
    source_qm = "f6a3323c-7c7b-4a5f-b0ed-b3f63a200893"  # the sender's SourceQmGuid
    certificate = "/etc/srmp-spark/orders.pem"          # or a list: certificates, public keys (PEM)

The SourceQmGuid of a sender is in the column ``source_qm``. No other key is trusted. A signature of
any other sender is ``unverified``, and no key is ever taken from a message.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.names import parse_guid
from srmp_spark.srmp.limits import SIGNER_KEYS_MAX
from srmp_spark.srmp.signing.signature import Verifier

SIGNERS_MAX = 1_000
"""Most signers; more is a configuration error.

For each, files are read at the start, and keys are kept in memory.
"""
FILE_MAX = 65_536
"""Most bytes of a PEM file; more is a configuration error.

Four certificates have a tenth of it, so a longer file is something else.
"""
WEAK_BITS = 1_024
"""Bits below which a key can be broken with little effort. A warning is logged for such a key."""

_KEYS = ("source_qm", "certificate")

log = logging.getLogger(__name__)


class Signer(NamedTuple):
    """One entry of ``[[signer]]``: a sender, and the files with the keys to trust for it."""

    source_qm: str
    certificates: tuple[Path, ...]


def parse_signers(where: str, value: Any) -> tuple[Signer, ...]:  # noqa: ANN401  # a TOML value may be anything
    """Parse the entries of ``[[signer]]`` from their TOML values. The files are not read.

    ``where`` names the key in errors. Raises :class:`ConfigurationError` for a wrong entry.
    """
    if not isinstance(value, list) or not all(isinstance(entry, dict) for entry in value):
        raise ConfigurationError(
            f"{where}: expected tables, [[signer]] with source_qm and certificate"
        )
    if len(value) > SIGNERS_MAX:
        raise ConfigurationError(f"{where}: SIGNERS_MAX is {SIGNERS_MAX}, got {len(value)}")
    signers = tuple(_parse(where, entry) for entry in value)
    for signer in signers:
        if sum(signer.source_qm == other.source_qm for other in signers) > 1:
            raise ConfigurationError(
                f"{where}: {signer.source_qm} is listed twice; give it a list of certificates"
            )
    return signers


def _parse(where: str, entry: Mapping[str, object]) -> Signer:
    for key in entry:
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, 1, 0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(_KEYS)}"
            raise ConfigurationError(f"{where}: unknown key {key!r}; {hint}")
    try:
        source_qm = parse_guid(str(entry.get("source_qm", "")).strip("{}"))
    except RemoteProtocolError:
        raise ConfigurationError(
            f"{where}: source_qm is the GUID of the sending queue manager (column "
            f"source_qm), got {entry.get('source_qm')!r}"
        ) from None
    given = entry.get("certificate")
    paths = given if isinstance(given, list) else [given]
    if not paths or not all(isinstance(path, str) and path for path in paths):
        raise ConfigurationError(
            f"{where}: certificate is a PEM file, or a list of them, got {given!r}"
        )
    return Signer(source_qm, tuple(map(Path, paths)))


def trusted_keys(signers: Sequence[Signer]) -> dict[str, tuple[Verifier, ...]]:
    """Read the keys of the signers from their files. Return them by SourceQmGuid.

    Weak keys are logged. Raises :class:`ConfigurationError` for a file that has no key or cannot be
    read, and for a signer with more than SIGNER_KEYS_MAX keys.
    """
    return {signer.source_qm: _keys_of(signer) for signer in signers}


def _keys_of(signer: Signer) -> tuple[Verifier, ...]:
    # Import it here, so that a configuration without signers loads no cryptographic library.
    from srmp_spark.srmp.signing.signature_verify import (
        load_keys,
    )

    keys: list[Verifier] = []
    for path in signer.certificates:
        where = f"certificate {path} of signer {signer.source_qm}"
        try:
            with path.open("rb") as file:
                pem = file.read(FILE_MAX + 1)
        except OSError as error:
            raise ConfigurationError(f"{where}: cannot be read: {error}") from None
        if len(pem) > FILE_MAX:
            raise ConfigurationError(
                f"{where}: is longer than {FILE_MAX} bytes; expected certificates in PEM"
            )
        try:
            found = load_keys(pem)
        except ValueError as error:
            raise ConfigurationError(f"{where}: {error}") from None
        for key in found:
            log.info("signer.key source_qm=%s key=%r file=%s", signer.source_qm, key, path)
            if key.bits < WEAK_BITS:
                text = (
                    "signer.weak source_qm=%s key=%r: anybody can compute the private "
                    "key; a valid signature proves little"
                )
                log.warning(text, signer.source_qm, key)
        keys += found
    if len(keys) > SIGNER_KEYS_MAX:
        raise ConfigurationError(
            f"signer {signer.source_qm} has {len(keys)} keys; SIGNER_KEYS_MAX is {SIGNER_KEYS_MAX}"
        )
    return tuple(keys)
