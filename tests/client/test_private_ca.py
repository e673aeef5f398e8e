"""An ``https`` API whose certificate a private CA signed: trusted by name, on loopback too, and no proxy gets in between."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from srmp_spark.client.api import CA_VARIABLES, QueueManagerClient
from srmp_spark.errors import ApiUnreachableError, ConfigurationError
from srmp_spark.testing.queue_manager import RunningQueueManager


def name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, text)])


def certificate(
    subject: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: str,
    signer: ec.EllipticCurvePrivateKey,
    *,
    is_ca: bool,
) -> bytes:
    now = datetime.now(timezone.utc)
    usage = x509.KeyUsage(
        digital_signature=not is_ca, key_cert_sign=is_ca, crl_sign=is_ca, content_commitment=False, key_encipherment=False,
        data_encipherment=False, key_agreement=False, encipher_only=False, decipher_only=False,
    )  # fmt: skip
    builder = (
        x509.CertificateBuilder()
        .subject_name(name(subject))
        .issuer_name(name(issuer))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.BasicConstraints(ca=is_ca, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key()), critical=False
        )
    )
    if not is_ca:
        own = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
        builder = builder.add_extension(own, critical=False)
    return builder.sign(signer, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``ca.pem``, ``api.pem`` signed by it, ``api.key``, and ``other.pem``: a CA that signed nothing."""
    folder = tmp_path_factory.mktemp("tls")
    keys = {each: ec.generate_private_key(ec.SECP256R1()) for each in ("ca", "api", "other")}
    (folder / "ca.pem").write_bytes(certificate("ca", keys["ca"], "ca", keys["ca"], is_ca=True))
    (folder / "other.pem").write_bytes(
        certificate("other", keys["other"], "other", keys["other"], is_ca=True)
    )
    (folder / "api.pem").write_bytes(certificate("api", keys["api"], "ca", keys["ca"], is_ca=False))
    (folder / "api.key").touch(0o600)
    (folder / "api.key").write_bytes(
        keys["api"].private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    return folder


@pytest.fixture(scope="module")
def api(files: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    data = tmp_path_factory.mktemp("qm") / "data"
    with RunningQueueManager(
        data, api_cert=files / "api.pem", api_key=files / "api.key"
    ) as running:
        assert running.api.startswith("https://127.0.0.1:")
        yield running.api


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No CA of this machine, and a proxy at which nobody is."""
    for variable in (*CA_VARIABLES, "CURL_CA_BUNDLE", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(variable, raising=False)
    for variable in ("HTTPS_PROXY", "https_proxy", "HTTP_PROXY", "http_proxy", "ALL_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")


@pytest.mark.parametrize("variable", CA_VARIABLES)
def test_a_private_ca_is_trusted_by_either_variable(
    api: str, files: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(files / "ca.pem"))
    assert QueueManagerClient(api, retry_seconds=0).status()["api"] == api


def test_the_first_variable_counts(api: str, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(files / "ca.pem"))
    monkeypatch.setenv("SSL_CERT_FILE", str(files / "other.pem"))
    assert QueueManagerClient(api, retry_seconds=0).status()["ready"]


@pytest.mark.parametrize("ca", [None, "other.pem"])
def test_any_other_certificate_is_refused_and_the_variables_are_named(
    api: str, files: Path, ca: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if ca is not None:
        monkeypatch.setenv("SSL_CERT_FILE", str(files / ca))
    with pytest.raises(
        ApiUnreachableError,
        match=r"certificate verify failed.*; a private CA is named by REQUESTS_CA_BUNDLE or",
    ):
        QueueManagerClient(api, retry_seconds=0).status()


def test_a_variable_that_names_nothing_is_said(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexistent.pem")
    with pytest.raises(
        ConfigurationError, match=r"SSL_CERT_FILE: there is no file or folder '/nonexistent.pem'"
    ):
        QueueManagerClient(api).status()
