"""The cryptographic functions of NTLM version 2 ([MS-NLMP] 3.3.2, 3.4).

The functions have the names of the document.
"""

from __future__ import annotations

import hashlib
import hmac

from cryptography.hazmat.decrepit.ciphers.algorithms import ARC4
from cryptography.hazmat.primitives.ciphers import Cipher, CipherContext

_MASK = 0xFFFFFFFF
_CLIENT_SIGNING = b"session key to client-to-server signing key magic constant\0"
_SERVER_SIGNING = b"session key to server-to-client signing key magic constant\0"
_CLIENT_SEALING = b"session key to client-to-server sealing key magic constant\0"
_SERVER_SEALING = b"session key to server-to-client sealing key magic constant\0"


def md4(data: bytes) -> bytes:
    """Return the MD4 digest of ``data`` (RFC 1320).

    OpenSSL 3 no longer has MD4, and NT hashes need it.
    """
    length = len(data)
    data += b"\x80" + bytes(-(length + 9) % 64) + (8 * length).to_bytes(8, "little")
    state = [0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476]
    rounds = (
        (range(16), (3, 7, 11, 19), 0, lambda x, y, z: (x & y) | (~x & z)),
        (
            (0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
            (3, 5, 9, 13),
            0x5A827999,
            _majority,
        ),
        (
            (0, 8, 4, 12, 2, 10, 6, 14, 1, 9, 5, 13, 3, 11, 7, 15),
            (3, 9, 11, 15),
            0x6ED9EBA1,
            lambda x, y, z: x ^ y ^ z,
        ),
    )
    for at in range(0, len(data), 64):
        words = [int.from_bytes(data[at + 4 * n : at + 4 * n + 4], "little") for n in range(16)]
        a, b, c, d = state
        for order, shifts, constant, mix in rounds:
            for step, word in enumerate(order):
                a = (a + mix(b, c, d) + words[word] + constant) & _MASK
                shift = shifts[step % 4]
                a, b, c, d = d, (a << shift | a >> (32 - shift)) & _MASK, b, c
        state = [(old + new) & _MASK for old, new in zip(state, (a, b, c, d), strict=True)]
    return b"".join(each.to_bytes(4, "little") for each in state)


def _majority(x: int, y: int, z: int) -> int:
    return (x & y) | (x & z) | (y & z)


def hmac_md5(key: bytes, data: bytes) -> bytes:
    """Return HMAC_MD5 of ``data`` under ``key``."""
    return hmac.new(key, data, hashlib.md5).digest()


def nt_hash(password: str) -> bytes:
    """Return the NT hash of ``password`` (NTOWFv1), in which form accounts are kept.

    The hash proves the account as well as the password does.
    """
    return md4(password.encode("utf-16-le"))


def ntowfv2(user: str, hashed: bytes, domain: str) -> bytes:
    """Return the key of an account (NTOWFv2).

    ``hashed`` is the :func:`nt_hash` of the account's password.
    """
    return hmac_md5(hashed, (user.upper() + domain).encode("utf-16-le"))


def rc4(key: bytes) -> CipherContext:
    """Return a new RC4 stream under ``key``."""
    return Cipher(ARC4(key), mode=None).encryptor()


def rc4k(key: bytes, data: bytes) -> bytes:
    """Return ``data`` encrypted or decrypted with RC4 under a key that is used once (RC4K)."""
    return rc4(key).update(data)


def sign_key(session_key: bytes, *, client: bool) -> bytes:
    """Return SIGNKEY, which signs the messages of one side.

    The side is the client, or the server if ``client`` is false.
    """
    # NTLM prescribes MD5.
    return hashlib.md5(session_key + (_CLIENT_SIGNING if client else _SERVER_SIGNING)).digest()  # noqa: S324


def seal_key(session_key: bytes, *, client: bool) -> bytes:
    """Return SEALKEY of 128 bits, which encrypts the messages of one side.

    The side is the client, or the server if ``client`` is false.
    """
    # NTLM prescribes MD5.
    return hashlib.md5(session_key + (_CLIENT_SEALING if client else _SERVER_SEALING)).digest()  # noqa: S324
