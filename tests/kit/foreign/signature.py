"""Writes signatures as [MC-MQSRM] 3.1.7.2.4 describes them, and has the keys for them.

RSA is computed with plain integers, so that the queue manager's library is not checked against
itself. A 512-bit key, the size that the document mentions, can only be made this way. The numbers
of the keys are in this module: these keys are no secrets.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

from srmp_spark.testing.foreign.messages import Dialect, ForeignMessage, Post, post

NAMESPACE = "http://www.w3.org/2000/02/xmldsig#"
Sign = Callable[[bytes], bytes]
"""Returns the signature of the given bytes."""
Edit = Callable[[str], str]

_E = 65_537
_OBJECT_IDENTIFIERS = {
    "sha1": "3021300906052b0e03021a05000414",
    "md5": "3020300c06082a864886f70d020505000410",
}

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
"""Length in bits → p, q and g, separated by blank lines.

The numbers are fixed because finding them would take longer than all tests of signatures.
"""

_RSA_PRIMES = {
    512: """
w6rlk7yda5Umf1jrjVOzoZazTGNXGqnXYG6bnDE2uqU=

9Zzn11pz1pjCcbvgo61esRYIfSJCoQEvL3R6yDwswE8=
""",
    1000: """
DNtdue18tT0+NDwo1zMecp2kvwDRuVM0aKLA4UkoHeHeoB3g01smaPCjojpc/SO7iqa+uOvXme3U7OgALX57

DZAYV/8KLRZkpvpQA9EsLVmkf1oM3AJrViyLtHKkqomiEJvONaT2MRSUh8abtz91yDJYXTmgAHt33MCm+ciP
""",
    1024: """
+mcBpl4eq/J9laBFQD/akhfW3iE5M5/IN7c89YzzqlIAm0oUjqkK1/vlWKQSrx1M+tclC2iSpOndDcUyt06akQ==

38hmACrZWFlAdJ+TJNR0X+VGvIn9Suj3mgqwmqxIG/FMgwWHqkCYrZrxS35dedkE6RCLGdsmUQeyt09n6+BUbw==
""",
    2048: """
xLZHKR8dfkjTKL6V9hc494p4m2lVhKa6TsaDB0JYCQrU+tJHQMlHQw1ZkgmoXw+/yYzOfhsQl9FezI4NaEc3LheGWRPdUprFR++ORUUnReV9y30Y9/l+kf1dniX0
3ZX9AeQHLy/+iuhIfxQ2yIZorDtCSw04vdRN1xmuwYhlyb0=

wnNbZCRC7PZ09eRWh8KlnfI7bI0z5sKNpta/r15z5cMsMyZCWDmnpcdFaDox/ACtF0tClGV89SWG/EhEZqhLseXOfuxQP3mh0BnRXUCYpIk3Au6PDhGrt9DaG9LX
YgDcZgcCDbBQlu0LDEowrqUE2IaiBiSqFaN11oo8DUHsNT8=
""",
    4096: """
33ntIA64FL+w5Zk3aIEqj+tf/YXODExmJYBg6d9bVmnYUWwonIMjCX6djc93yIac/mOvJxP3wOUeirFzIpnex1fV+ttM2ccePogEGSqV/QGNSDg+RpzNhcTc9WA8
Tmzq8Oa45zvgxxI2CzGoIoZf6/BfJKWyIC9T/VQTxmKmxa7UyR4UFqgwAXWAoAB1GC72oyhWsaTbv6PIprknj8awK/z6waXuAdjUnXMLD44pbkpHh6RcygamjKur
qIm+jaudyFteT/2crHxmtZs61agna3V8gVBY8Ct05eVL4SFHiJrTPtmMvHROmQb+biD+JLqolM2t2eUXlGS4m9hl/LEKxw==

24NKoF03Ej19LWlCou/0XknjvnAWGy4rY4OPmb8Yvy/vCnWPAQex2yTFyEw+msva3E1kzK/pHBGVi5+ojQspJ+2oK7BRduahvRLkPFjRySPjdUkhLghAcOiVB/3D
In+JxonqZ1sg9mOJOAZXVoWRfm+BsX45PLUbyi3lP9tBqIM5z5uAbpVym+PRMBY3cs4uKW3crE2qo3WGuI+gmRPQgnIwHhYLWiV5Ygcdd6WlBo6HbesPPNRDBH/X
XWerzP5j+5oSXQseF5wyHJw22sDzvDIlc+qd4qvALRPjbKhZ22l5bi9soOQZadP9Ev7/KUzQwsC56OoiFc74piIBMHBHrQ==
""",
}
"""Length in bits → p and q, separated by a blank line.

The primes are fixed so that each run has the same keys, and because finding a prime of 2,048 bits
takes seconds.
"""


@dataclass(frozen=True, slots=True)
class Signer:
    """A key pair: the function that signs, and the public key in PEM form."""

    sign: Sign
    public_pem: bytes


@lru_cache
def rsa_signer(bits: int = 1024, *, algorithm: str = "sha1", little_endian: bool = False) -> Signer:
    """Return a signer for RSA with PKCS #1 v1.5 padding, with the fixed key of ``bits`` bits.

    ``bits`` is 512, 1000, 1024, 2048 or 4096; any other value raises :class:`KeyError`.
    ``algorithm`` is the digest. With ``little_endian`` the signature has the byte order of Windows'
    CryptoAPI.
    """
    p, q = (
        int.from_bytes(base64.b64decode(number), "big")
        for number in _RSA_PRIMES[bits].split("\n\n")
    )
    n, d = p * q, pow(_E, -1, (p - 1) * (q - 1))

    def sign(data: bytes) -> bytes:
        info = (
            bytes.fromhex(_OBJECT_IDENTIFIERS[algorithm])
            + hashlib.new(algorithm, data, usedforsecurity=False).digest()
        )
        padded = b"\x00\x01" + b"\xff" * (bits // 8 - 3 - len(info)) + b"\x00" + info
        return pow(int.from_bytes(padded, "big"), d, n).to_bytes(
            bits // 8, "little" if little_endian else "big"
        )

    return Signer(sign, _pem(rsa.RSAPublicNumbers(_E, n).public_key()))


@lru_cache
def dsa_signer(bits: int = 1024, *, raw: bool = True) -> Signer:
    """Return a signer for DSA with SHA-1, with a new key in each process.

    ``bits`` is 1024 or 2048; any other value raises :class:`KeyError`. With ``raw`` a signature is
    r and s, one after the other; otherwise it is in DER form.
    """
    p, q, g = (
        int.from_bytes(base64.b64decode(number), "big")
        for number in _DSA_PARAMETERS[bits].split("\n\n")
    )
    key = dsa.DSAParameterNumbers(p, q, g).parameters().generate_private_key()
    length = (q.bit_length() + 7) // 8

    def sign(data: bytes) -> bytes:
        # The document demands SHA-1.
        signature = key.sign(data, hashes.SHA1())  # noqa: S303
        if not raw:
            return signature
        r, s = decode_dss_signature(signature)
        return r.to_bytes(length, "big") + s.to_bytes(length, "big")

    return Signer(sign, _pem(key.public_key()))


def signed_info(message: ForeignMessage, algorithm: str = "sha1") -> str:
    """Return the ``<SignedInfo>`` element of a message, built from strings."""
    s = [f'<SignedInfo><SignatureMethod Algorithm="{NAMESPACE}dsa"></SignatureMethod>']
    for name, part in (("body", message.body), ("extension", message.extension)):
        if part:
            digest = base64.b64encode(
                hashlib.new(algorithm, part, usedforsecurity=False).digest()
            ).decode()
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
    """Return the request of a message with a signature.

    ``canonical`` turns ``<SignedInfo>`` into the text that is signed. ``before`` changes
    ``<SignedInfo>`` before it is signed. ``after`` changes the whole signature element afterwards.
    The default ``str`` changes nothing.
    """
    info = before(signed_info(message, algorithm))
    value = base64.b64encode(sign(canonical(info).encode())).decode()
    element = (
        f'<Signature xmlns="{NAMESPACE}">{info}<SignatureValue>{value}</SignatureValue></Signature>'
    )
    return post(message, dialect, after(element))


def _pem(key: rsa.RSAPublicKey | dsa.DSAPublicKey) -> bytes:
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
