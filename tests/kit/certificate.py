"""Certificates for tests of TLS, good and bad ones."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from ipaddress import ip_address
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from srmp_spark.private_files import FILE_MODE

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey
PublicKey = ec.EllipticCurvePublicKey | rsa.RSAPublicKey


def make_certificate(directory: Path) -> tuple[Path, Path]:
    """``cert.pem`` and ``key.pem`` in ``directory``: self-signed, for localhost, good for an hour."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(timezone.utc)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    paths = directory / "cert.pem", directory / "key.pem"
    paths[0].write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    _write_key(paths[1], key)
    return paths


class Identity(NamedTuple):
    """A certificate and its key, as files."""

    certificate: Path
    key: Path


def _write_key(path: Path, key: Key) -> None:
    path.touch(FILE_MODE)
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )


class Authority:
    """An authority for tests: it issues what it is asked to, however bad. Its certificate is ``ca`` (a PEM file)."""

    def __init__(self, directory: Path, name: str = "Test Authority") -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self.key = ec.generate_private_key(ec.SECP256R1())
        self.ca = directory / "ca.pem"
        self.certificate = _signed(
            self.name, self.name, self.key.public_key(), self.key, is_authority=True
        )
        self.ca.write_bytes(self.certificate.public_bytes(serialization.Encoding.PEM))

    def issue(
        self,
        name: str,
        *,
        file: str | None = None,
        subject: x509.Name | None = None,
        hosts: Sequence[str] = ("localhost",),
        addresses: Sequence[str] = ("127.0.0.1",),
        begins: timedelta = timedelta(hours=-1),
        ends: timedelta = timedelta(hours=1),
        rsa_bits: int | None = None,
        purposes: Sequence[x509.ObjectIdentifier] = (),
        self_signed: bool = False,
        is_authority: bool = False,
    ) -> Identity:
        """A certificate whose subject is ``CN=name``; ``begins`` and ``ends`` count from now, ``purposes`` none means any."""
        key: Key = ec.generate_private_key(ec.SECP256R1())
        if rsa_bits is not None:
            key = rsa.generate_private_key(65537, rsa_bits)  # weak ones are what some tests want
        subject = (
            subject
            if subject is not None
            else x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        )
        certificate = _signed(
            subject,
            subject if self_signed else self.name,
            key.public_key(),
            key if self_signed else self.key,
            hosts=hosts,
            addresses=addresses,
            begins=begins,
            ends=ends,
            purposes=purposes,
            is_authority=is_authority,
        )
        stem = self.directory / (file or name)
        found = Identity(stem.with_suffix(".pem"), stem.with_suffix(".key"))
        _write_key(found.key, key)
        found.certificate.write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
        return found

    def revoke(self, identity: Identity) -> Path:
        """The authority's certificate and a list that revokes ``identity``, in one file."""
        revoked = x509.load_pem_x509_certificate(identity.certificate.read_bytes())
        now = datetime.now(timezone.utc)
        entry = (
            x509.RevokedCertificateBuilder()
            .serial_number(revoked.serial_number)
            .revocation_date(now - timedelta(minutes=1))
            .build()
        )
        crl = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - timedelta(minutes=1))
            .next_update(now + timedelta(hours=1))
            .add_revoked_certificate(entry)
            .sign(self.key, hashes.SHA256())
        )
        path = self.directory / "ca-with-crl.pem"
        path.write_bytes(self.ca.read_bytes() + crl.public_bytes(serialization.Encoding.PEM))
        return path


def issued_by_a_leaf(authority: Authority, directory: Path) -> Identity:
    """What the owner of a good certificate issues with it, the chain in its file: nobody gave it the right to."""
    good = authority.issue("leaf")
    leaf = Authority(directory / "leaf", "leaf")  # of that name, and with that key
    key = serialization.load_pem_private_key(good.key.read_bytes(), None)
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    leaf.key = key
    inner = leaf.issue("inner")
    inner.certificate.write_bytes(inner.certificate.read_bytes() + good.certificate.read_bytes())
    return inner


def _signed(
    subject: x509.Name,
    issuer: x509.Name,
    public_key: PublicKey,
    signing_key: Key,
    *,
    hosts: Sequence[str] = (),
    addresses: Sequence[str] = (),
    begins: timedelta = timedelta(hours=-1),
    ends: timedelta = timedelta(hours=1),
    purposes: Sequence[x509.ObjectIdentifier] = (),
    is_authority: bool = False,
) -> x509.Certificate:
    now = datetime.now(timezone.utc)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
    )
    names: list[x509.GeneralName] = [x509.DNSName(host) for host in hosts]
    names += [x509.IPAddress(ip_address(address)) for address in addresses]
    if names:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    if purposes:
        builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return builder.sign(signing_key, hashes.SHA256())
