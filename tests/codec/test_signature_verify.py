"""Keys of signers: every kind, both ways to write a value, and what is no key."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import dsa, ed25519, padding, rsa

from srmp_spark.srmp import limits
from srmp_spark.srmp.signing.signature_verify import load_keys
from tests.kit.foreign.signature import Signer, dsa_signer, rsa_signer

INFO = [("literal", b"<SignedInfo>1</SignedInfo>"), ("canonical", b"<SignedInfo>2</SignedInfo>")]
KINDS = {
    "rsa-sha1": rsa_signer(1024),
    "rsa-md5": rsa_signer(1024, algorithm="md5"),
    "rsa-sha1-reversed": rsa_signer(1024, little_endian=True),
    "rsa-md5-reversed": rsa_signer(1024, algorithm="md5", little_endian=True),
    "dsa-raw": dsa_signer(1024),
    "dsa-der": dsa_signer(1024, raw=False),
}
SIZES = {
    "512, as the document says": rsa_signer(512),
    "512 reversed": rsa_signer(512, little_endian=True),
    "1000, no power of two": rsa_signer(1000),
    "2048": rsa_signer(2048),
    "dsa 2048: r and s are 64 bytes, as in the document": dsa_signer(2048),
    "dsa 2048 in DER": dsa_signer(2048, raw=False),
}


def verify(signer: Signer, value: bytes, pem: bytes | None = None) -> str | None:
    (key,) = load_keys(pem or signer.public_pem)
    return key.verify(INFO, value)


@pytest.mark.parametrize(("reading", "signer"), KINDS.items(), ids=KINDS)
def test_each_kind_of_signature_is_known(reading: str, signer: Signer) -> None:
    assert verify(signer, signer.sign(INFO[0][1])) == f"literal/{reading}"
    assert verify(signer, signer.sign(INFO[1][1])) == f"canonical/{reading}"
    assert verify(signer, signer.sign(b"another")) is None


@pytest.mark.parametrize("signer", SIZES.values(), ids=SIZES)
def test_each_size_of_key_is_known(signer: Signer) -> None:
    value = signer.sign(INFO[0][1])
    assert verify(signer, value) is not None
    for other in (
        value[:-1],
        value + b"\x00",
        b"\x00" + value,
        bytes(len(value)),
        b"\xff" * len(value),
        value[1:] + value[:1],
    ):
        assert verify(signer, other) is None


@pytest.mark.parametrize(("reading", "signer"), KINDS.items(), ids=KINDS)
def test_no_bit_of_a_signature_may_be_another(reading: str, signer: Signer) -> None:
    value = signer.sign(INFO[0][1])
    for bit in range(0, 8 * len(value), 7):
        changed = bytearray(value)
        changed[bit // 8] ^= 1 << bit % 8
        assert verify(signer, bytes(changed)) is None, bit


def test_it_agrees_with_the_library_about_pkcs_1() -> None:
    key = rsa.generate_private_key(65537, 2048)
    pem = key.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.PKCS1
    )
    (ours,) = load_keys(pem)
    assert (
        ours.verify(INFO, key.sign(INFO[0][1], padding.PKCS1v15(), hashes.SHA1()))
        == "literal/rsa-sha1"
    )
    assert (
        ours.verify(INFO, key.sign(INFO[1][1], padding.PKCS1v15(), hashes.MD5()))
        == "canonical/rsa-md5"
    )
    assert ours.verify(INFO, key.sign(INFO[0][1], padding.PKCS1v15(), hashes.SHA256())) is None
    assert ours.bits == 2048
    assert repr(ours) == "<RsaKey 2048 bits>"


def certificate(days: int) -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "orders")])
    begin = datetime.datetime(2001, 1, 1, tzinfo=datetime.timezone.utc)
    built = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
    )
    built = built.not_valid_before(begin).not_valid_after(begin + datetime.timedelta(days))
    return built.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def test_certificates_and_keys_may_stand_in_one_file() -> None:
    keys = load_keys(
        b"Bag Attributes\r\n" + certificate(1) + b"\nsubject=orders\n" + dsa_signer().public_pem
    )
    assert list(map(repr, keys)) == ["<RsaKey 2048 bits>", "<DsaKey 1024 bits>"], (
        "that the certificate expired is no matter"
    )


def elliptic() -> bytes:
    key = ed25519.Ed25519PrivateKey.generate().public_key()
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def private() -> bytes:
    key = rsa.generate_private_key(65537, 2048)
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def public_rsa(bits: int) -> bytes:
    """A modulus that is no product of primes: nothing can be signed with it, but it can be loaded."""
    key = rsa.RSAPublicNumbers(65537, (1 << bits) - 1).public_key()
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


def public_dsa(bits: int) -> bytes:
    """As above."""
    parameters = dsa.DSAParameterNumbers((1 << bits) - 1, (1 << 256) - 1, 2)
    key = dsa.DSAPublicNumbers(4, parameters).public_key()
    return key.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )


@pytest.mark.parametrize(
    ("pem", "said"),
    [
        (b"", "no certificate and no public key"),
        (b"\x30\x82", "openssl x509 -inform der"),
        (b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----", "cannot be read"),
        (b"-----BEGIN PUBLIC KEY-----\n?\n-----END PUBLIC KEY-----", "cannot be read"),
        (
            b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----",
            "holds a CERTIFICATE REQUEST",
        ),
        (private(), "holds a private key"),
        (elliptic(), "neither RSA nor DSA"),
        (public_rsa(limits.SIGNER_RSA_BITS_MAX + 8), "expected 512 to 8192"),
        (public_dsa(3072), "a key of 3072 bits; expected 512 to 2048"),
        (rsa_signer().public_pem * (limits.SIGNER_KEYS_MAX + 1), "SIGNER_KEYS_MAX is 4"),
    ],
    ids=[
        "nothing",
        "DER",
        "bad certificate",
        "bad key",
        "request",
        "private",
        "elliptic",
        "RSA too long",
        "DSA too long",
        "five keys",
    ],
)
def test_what_is_no_key_is_refused_in_words(pem: bytes, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        load_keys(pem)
