"""Signatures written as [MC-MQSRM] 3.1.7.2.4 says, and keys to write them with.

RSA is done with nothing but integers, so that the queue manager's library is not asked about itself; and a 512-bit key, the
size that the document speaks of, can be made by hand only. These keys are made from a seed: they are no secrets.
"""

from __future__ import annotations

import base64
import hashlib
import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from srmp_spark.testing.foreign.messages import Dialect, ForeignMessage, Post, post

NAMESPACE = "http://www.w3.org/2000/02/xmldsig#"
Sign = Callable[[bytes], bytes]
"""The bytes of a signature over the bytes given."""
Edit = Callable[[str], str]

_E = 65_537
_OBJECT_IDENTIFIERS = {"sha1": "3021300906052b0e03021a05000414", "md5": "3020300c06082a864886f70d020505000410"}

_DSA_PARAMETERS = {
    1024: """
gHuKmMlD2FaYjvNUyRcKM87fsEzKrNKNncfb2p2NmIci54QdLi4LhDXIvqsicYKDceVwqWFGJemKvz7kCZNIXhRos0GLu8yT7xKs5FJuRVN1ARiyyuSuK9LPEsXe
LLAnuWjnYOZvkdtra/eWF+OJUDDPYOf4+R2x37iaGXQrNZk=

429SJutgySTzib+Y/yZ9KqKIVdM=

UaKj52LwAE3iiE9YLcyMxpVnpcvn96b+R9bTFrFuTSDKl1DFxhCAt2eMblBXxR0jDhJO8Zzv4bzgs2QCmHvf4KNP7oQcKWSeN35hhsbim0ozj5qQtg5hFYHuZ8US
ku2eWC/K7/VwTF35BBIP5mnSNTA2o3aWs/ZcKJk2m4bYfy0=
""",
    2048: """
4p6ilbAUz8/FA2undJvT328vwPPX7RMlnCyMQDmFpMCkrZzZ+nWlrl9XO2AVsQ/4a0FK9zGqFdt7B+XEP1a1ooUXz1TlBWZj72HVdDRkoiKrSBGzIhG75R9q+Pwg
dakf4TPfs1l4GF6rKdIlZRbVX1a1HpBvkuaPG3kAmuLAeq7/4hacMuLefozxMVBnBtH3s08xW+qQvVWteq6kLlasKSnq/2zKSkg5AafxQ5lgyHIhDql1NBezX8uS
UvuT/IqRay8YAXQ1hl3vg+TATm7pJEI/nf+qix8k+yG0GjcseoAIEPeDHfzrk0F3ZzfpztiAzhYiQbsdELgA6nApJWaDQQ==

qmS4Bit1htJch3BAS8y+lRuzTLbXIMMAlNGP79OlA6U=

mkK3794mFq3M6Cs7GB13yummrO8sToppgzQw5ZIhFy6tDZoNXwFbtx86qXhia3nJkeuK1hPjeNujumR0k66ElZuYXz+I8Ua0dz4iLhITjwcKbXc5PgvnoRzY2AH3
a7K+6hjrxuLM8/mO7MC+zzRbcucc50KsmclA4b7IH6bpGz92Rf2OMrL39topWvnv0oWLsXZHFR25piIw1VfWUMOjXvkXq5dPH4lwVx+/7JhPwGnCrOUEQFbd9uY3
cZrSVQC0oZt+oEvSwJbrK0xz4hsX1/wAAuNNAAJRw/FLNBP+mdtbhKUj8GU33ffKKRh6UJBHJNfPyCXs9GGghTIRNhQc0Q==
""",
}
"""p, q and g by length, a blank line between them; to find them would take longer than all tests of signatures."""


@dataclass(frozen=True, slots=True)
class Signer:
    """A key pair."""

    sign: Sign
    public_pem: bytes


@lru_cache
def rsa_signer(bits: int = 1024, *, algorithm: str = "sha1", little_endian: bool = False, seed: int = 1) -> Signer:
    """PKCS #1 v1.5; ``little_endian`` as Windows' CryptoAPI gives it out."""
    numbers = random.Random(bits * 1_000 + seed)  # a key for tests must be the same in each run
    p, q = _prime(bits // 2, numbers), _prime(bits - bits // 2, numbers)
    n, d = p * q, pow(_E, -1, (p - 1) * (q - 1))

    def sign(data: bytes) -> bytes:
        info = bytes.fromhex(_OBJECT_IDENTIFIERS[algorithm]) + hashlib.new(algorithm, data, usedforsecurity=False).digest()
        padded = b"\x00\x01" + b"\xff" * (bits // 8 - 3 - len(info)) + b"\x00" + info
        return pow(int.from_bytes(padded, "big"), d, n).to_bytes(bits // 8, "little" if little_endian else "big")

    return Signer(sign, _pem(rsa.RSAPublicNumbers(_E, n).public_key()))


@lru_cache
def dsa_signer(bits: int = 1024, *, raw: bool = True) -> Signer:
    """``raw``: r and s one after the other; else DER. The key is another one in each run."""
    p, q, g = (int.from_bytes(base64.b64decode(number), "big") for number in _DSA_PARAMETERS[bits].split("\n\n"))
    key = dsa.DSAParameterNumbers(p, q, g).parameters().generate_private_key()
    length = (q.bit_length() + 7) // 8

    def sign(data: bytes) -> bytes:
        signature = key.sign(data, hashes.SHA1())  # noqa: S303  # the document's hash
        if not raw:
            return signature
        r, s = decode_dss_signature(signature)
        return r.to_bytes(length, "big") + s.to_bytes(length, "big")

    return Signer(sign, _pem(key.public_key()))


def signed_info(message: ForeignMessage, algorithm: str = "sha1") -> str:
    """``<SignedInfo>``, string by string."""
    s = [f'<SignedInfo><SignatureMethod Algorithm="{NAMESPACE}dsa"></SignatureMethod>']
    for name, part in (("body", message.body), ("extension", message.extension)):
        if part:
            digest = base64.b64encode(hashlib.new(algorithm, part, usedforsecurity=False).digest()).decode()
            s += [f'<Reference URI="cid:{name}@{message.lineage}">']
            s += [f'<DigestMethod Algorithm="{NAMESPACE}{algorithm}"></DigestMethod>']
            s += ["<DigestValue>", digest, "</DigestValue>", "</Reference>"]
    return "".join([*s, "</SignedInfo>"])


def signed_post(
    message: ForeignMessage,
    sign: Sign,
    *,
    algorithm: str = "sha1",
    canonical: Edit = str,
    before: Edit = str,
    after: Edit = str,
    dialect: Dialect = Dialect.EXAMPLES,
) -> Post:
    """The request with a signature.

    ``canonical`` makes what is signed of ``<SignedInfo>``; ``before`` changes ``<SignedInfo>`` before it is signed, ``after``
    the whole element afterwards.
    """
    info = before(signed_info(message, algorithm))
    value = base64.b64encode(sign(canonical(info).encode())).decode()
    element = f'<Signature xmlns="{NAMESPACE}">{info}<SignatureValue>{value}</SignatureValue></Signature>'
    return post(message, dialect, after(element))


def _pem(key: rsa.RSAPublicKey | dsa.DSAPublicKey) -> bytes:
    return key.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)


def _prime(bits: int, numbers: random.Random) -> int:
    """A prime of exactly ``bits`` bits, its two highest set, that suits the exponent."""
    while True:
        candidate = numbers.getrandbits(bits) | 3 << (bits - 2) | 1
        if candidate % _E == 1 or not all(candidate % small for small in (3, 5, 7, 11, 13, 17, 19)):
            continue
        if _is_prime(candidate, numbers):
            return candidate


def _is_prime(candidate: int, numbers: random.Random) -> bool:
    """Miller and Rabin, twenty times."""
    odd = candidate - 1
    shift = (odd & -odd).bit_length() - 1
    odd >>= shift
    for _ in range(20):
        power = pow(numbers.randrange(2, candidate - 1), odd, candidate)
        if power in (1, candidate - 1):
            continue
        for _ in range(shift - 1):
            power = power * power % candidate
            if power == candidate - 1:
                break
        else:
            return False
    return True
