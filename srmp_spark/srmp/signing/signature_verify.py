"""Public keys that check signatures; the only module of the protocol that needs ``cryptography``.

[MC-MQSRM] states DSA and 512 bits. MSMQ's documentation describes the private key of a certificate
that encrypts a hash. This is RSA, and 512 bits were the usual RSA key then. ``#dsa`` is therefore
only a label, and the type of the key decides what is tried:

* An RSA key is tried with PKCS #1 v1.5 over SHA-1 or MD5, with the value as it is (``rsa-sha1``) or
  in the byte order of Windows' CryptoAPI (``rsa-sha1-reversed``).
* A DSA key is tried over SHA-1, with ``r`` and ``s`` one after the other, each as long as ``q``
  (``dsa-raw``), or in DER (``dsa-der``).

None of this was tried with Windows. SHA-1 and MD5 are weak, and so is a key below 1,024 bits. A
valid signature shows that nobody changed the attachments by accident; HTTPS is the protection of a
message ([MC-MQSRM] 5.1).

A certificate only carries its key: its dates, issuer and purposes are not checked. The trust comes
from the operator alone, who named the key for a sender. A key inside a message is never used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import (
    decode_dss_signature,
    encode_dss_signature,
)

from srmp_spark.srmp.limits import (
    SIGNER_DSA_BITS_MAX,
    SIGNER_KEY_BITS_MIN,
    SIGNER_KEYS_MAX,
    SIGNER_RSA_BITS_MAX,
)

_PEM = re.compile(rb"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)
_DIGEST_INFO = {
    "rsa-sha1": ("sha1", bytes.fromhex("3021300906052b0e03021a05000414")),
    "rsa-md5": ("md5", bytes.fromhex("3020300c06082a864886f70d020505000410")),
}
"""Bytes before the hash in an RSA signature (RFC 8017 9.2), by reading, with the name of the hash.
"""


class RsaKey:
    """One RSA key of a signer."""

    __slots__ = ("_key", "_length")

    def __init__(self, key: rsa.RSAPublicKey) -> None:
        self._key = key
        self._length = (key.key_size + 7) // 8

    def __repr__(self) -> str:
        return f"<RsaKey {self._key.key_size} bits>"

    @property
    def bits(self) -> int:
        """Return the length of the modulus in bits."""
        return self._key.key_size

    def verify(self, signed_info: Sequence[tuple[str, bytes]], value: bytes) -> str | None:
        """Return the form and reading in which ``value`` is this key's signature, or ``None``.

        See :class:`~srmp_spark.srmp.signing.signature.Verifier`.
        """
        if len(value) != self._length:
            return None
        for order, signature in (("", value), ("-reversed", value[::-1])):
            # The modular power is expensive, so it is computed once for each order and not once for
            # each hash and form.
            try:
                info = self._key.recover_data_from_signature(signature, padding.PKCS1v15(), None)
            except InvalidSignature:
                continue
            for name, form in signed_info:
                for reading, (algorithm, prefix) in _DIGEST_INFO.items():
                    if (
                        info
                        == prefix + hashlib.new(algorithm, form, usedforsecurity=False).digest()
                    ):
                        return f"{name}/{reading}{order}"
        return None


class DsaKey:
    """One DSA key of a signer."""

    __slots__ = ("_key", "_q_length")

    def __init__(self, key: dsa.DSAPublicKey) -> None:
        self._key = key
        self._q_length = (key.parameters().parameter_numbers().q.bit_length() + 7) // 8

    def __repr__(self) -> str:
        return f"<DsaKey {self._key.key_size} bits>"

    @property
    def bits(self) -> int:
        """Return the length of ``p`` in bits."""
        return self._key.key_size

    def verify(self, signed_info: Sequence[tuple[str, bytes]], value: bytes) -> str | None:
        """Return the form and reading in which ``value`` is this key's signature, or ``None``.

        See :class:`~srmp_spark.srmp.signing.signature.Verifier`.
        """
        readings: list[tuple[str, bytes]] = []
        length = self._q_length
        if len(value) == 2 * length:
            r, s = int.from_bytes(value[:length], "big"), int.from_bytes(value[length:], "big")
            readings.append(("dsa-raw", encode_dss_signature(r, s)))
        try:
            decode_dss_signature(value)
        except ValueError:
            pass
        else:
            readings.append(("dsa-der", value))
        for reading, signature in readings:
            for name, form in signed_info:
                # The specification names this hash.
                try:
                    self._key.verify(signature, form, hashes.SHA1())  # noqa: S303
                except InvalidSignature:
                    continue
                return f"{name}/{reading}"
        return None


Key = RsaKey | DsaKey


def load_keys(pem: bytes) -> tuple[Key, ...]:
    """Return the keys of certificates and public keys in PEM, in their order.

    Raises :class:`ValueError` with a text for an operator if the PEM holds anything else, or keys
    beyond the limits.
    """
    keys: list[Key] = []
    for block in _PEM.finditer(pem):
        label = block[1].decode()
        if "PRIVATE KEY" in label:
            raise ValueError(
                "holds a private key; give a certificate or a public key of the signer, and keep "
                "the private key secret"
            )
        if label not in ("CERTIFICATE", "PUBLIC KEY", "RSA PUBLIC KEY"):
            raise ValueError(f"holds a {label}; expected CERTIFICATE or PUBLIC KEY")
        keys.append(_load(label, block[0]))
    if not keys:
        raise ValueError(
            "holds no certificate and no public key in PEM; openssl x509 -inform der -in "
            "FILE converts one"
        )
    if len(keys) > SIGNER_KEYS_MAX:
        raise ValueError(
            f"holds {len(keys)} keys; SIGNER_KEYS_MAX is {SIGNER_KEYS_MAX}, each is tried"
        )
    return tuple(keys)


def _load(label: str, block: bytes) -> Key:
    try:
        if label == "CERTIFICATE":
            key = x509.load_pem_x509_certificate(block).public_key()
        else:
            # Both types are unions of key types.
            key = serialization.load_pem_public_key(block)  # type: ignore[assignment]
    except (ValueError, UnsupportedAlgorithm) as error:
        raise ValueError(f"holds a {label} that cannot be read: {error}") from None
    if isinstance(key, rsa.RSAPublicKey):
        return _within(RsaKey(key), SIGNER_RSA_BITS_MAX)
    if isinstance(key, dsa.DSAPublicKey):
        return _within(DsaKey(key), SIGNER_DSA_BITS_MAX)
    raise ValueError(f"holds a key that is neither RSA nor DSA: {type(key).__name__}")


def _within(key: Key, bits_max: int) -> Key:
    if not SIGNER_KEY_BITS_MIN <= key.bits <= bits_max:
        raise ValueError(
            f"holds a key of {key.bits} bits; expected {SIGNER_KEY_BITS_MIN} to {bits_max}"
        )
    return key
