"""Make valid and invalid certificates for tests of TLS."""

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
    """Write a self-signed certificate for localhost and its key, and return their paths.

    The paths are ``cert.pem`` and ``key.pem`` in ``directory``. The certificate is valid from one
    hour ago to one hour from now.
    """
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
    """The paths of a certificate and of its private key."""

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
    """A certificate authority for tests that issues any certificate, valid or not.

    Files are written to ``directory``. ``ca`` is the path of the authority's own certificate, a PEM
    file.
    """

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
        """Issue a certificate with the subject ``CN=name`` and return its files.

        ``file`` is the file name without suffix (default: ``name``). ``hosts`` and ``addresses``
        are its alternative names. ``begins`` and ``ends`` are relative to now. With ``rsa_bits``
        the key is RSA, otherwise elliptic. If ``purposes`` is empty, the certificate is valid for
        any purpose.
        """
        key: Key = ec.generate_private_key(ec.SECP256R1())
        if rsa_bits is not None:
            # Some tests need a weak key.
            key = rsa.generate_private_key(65537, rsa_bits)
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
        """Write a file that revokes ``identity`` and return its path.

        The file holds the authority's certificate and a revocation list with this one entry.
        """
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
    """Return a certificate that the owner of an ordinary certificate issued without authority.

    The ordinary certificate may not sign others. The returned certificate's file holds the whole
    chain. Clients and servers must reject it.
    """
    good = authority.issue("leaf")
    # This authority has the name of the ordinary certificate, and below it gets that key, too.
    leaf = Authority(directory / "leaf", "leaf")
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
