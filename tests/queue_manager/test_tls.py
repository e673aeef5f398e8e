"""Contexts made of files, anew when they change; and what a verified certificate is called (INTERFACE.md section 7)."""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.trust.tls import (
    CHECK_SECONDS,
    SUBJECT_MAX,
    ClientTls,
    ServerTls,
    host_of_sender,
    sender_name_of,
)
from tests.kit.certificate import Authority, Identity


class Clock:
    """Monotonic, by hand."""

    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def handshake(
    server: ssl.SSLContext, client: ssl.SSLContext, host: str = "localhost"
) -> tuple[ssl.SSLObject, ssl.SSLObject]:
    """Both sides in memory. Raises what either of them raises."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = server.wrap_bio(to_server, to_client, server_side=True)
    theirs = client.wrap_bio(to_client, to_server, server_hostname=host)
    done: set[ssl.SSLObject] = set()
    while len(done) < 2:
        for side in (theirs, ours):
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    return ours, theirs


def server_of(identity: Identity, **options: object) -> ServerTls:
    given: dict[str, object] = {"client_ca": None, "require_client_certificate": False, **options}
    return ServerTls(identity.certificate, identity.key, **given)  # type: ignore[arg-type]


def serial_shown(server: ServerTls, client: ClientTls) -> int:
    der = handshake(server.context(), client.context())[1].getpeercert(binary_form=True)
    assert der is not None
    return x509.load_der_x509_certificate(der).serial_number


def test_both_sides_agree_on_tls_1_2_or_newer_and_never_renegotiate(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    server, client = server_of(authority.issue("qm")), ClientTls(authority.ca)
    assert handshake(server.context(), client.context())[0].version() == "TLSv1.3"
    for context in (server.context(), client.context()):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2
        assert context.options & ssl.OP_NO_RENEGOTIATION


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_older_versions_are_refused_by_both_sides(version: ssl.TLSVersion, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    identity = authority.issue("qm")
    old_client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old_client.load_verify_locations(authority.ca)
    old_server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    old_server.load_cert_chain(*identity)
    for old in (old_client, old_server):
        old.set_ciphers("ALL:@SECLEVEL=0")
        old.minimum_version = old.maximum_version = version
    assert handshake(old_server, old_client)[0].version() in ("TLSv1", "TLSv1.1"), "they can"
    with pytest.raises(ssl.SSLError):
        handshake(server_of(identity).context(), old_client)
    with pytest.raises(ssl.SSLError):
        handshake(old_server, ClientTls(authority.ca).context())


def test_a_renewed_certificate_is_shown_to_new_handshakes(tmp_path: Path) -> None:
    authority, clock = Authority(tmp_path), Clock()
    identity = authority.issue("qm")
    server = server_of(identity, monotonic=clock)
    client = ClientTls(authority.ca)
    before = serial_shown(server, client)
    authority.issue("qm")  # the same files
    assert serial_shown(server, client) == before, "not looked at yet"
    clock.now += CHECK_SECONDS
    after = serial_shown(server, client)
    assert after != before


def test_half_a_renewal_changes_nothing_until_it_is_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    authority, clock = Authority(tmp_path), Clock()
    identity = authority.issue("qm")
    server, client = server_of(identity, monotonic=clock), ClientTls(authority.ca)
    before = serial_shown(server, client)
    new = authority.issue("qm", file="new")
    new.certificate.replace(identity.certificate)
    with caplog.at_level(logging.INFO):
        for _ in range(3):
            clock.now += CHECK_SECONDS
            assert serial_shown(server, client) == before
        assert [record.getMessage().split()[0] for record in caplog.records] == [
            "tls.not_renewed"
        ], "said once"
        new.key.replace(identity.key)
        clock.now += CHECK_SECONDS
        assert serial_shown(server, client) != before
        assert caplog.records[-1].getMessage().startswith("tls.renewed")
    identity.key.unlink()
    clock.now += CHECK_SECONDS
    assert serial_shown(server, client) != before, "files that are gone change nothing either"


def test_an_authority_that_is_withdrawn_counts_no_more(tmp_path: Path) -> None:
    authority, other, clock = Authority(tmp_path / "a"), Authority(tmp_path / "b", "Other"), Clock()
    shared = tmp_path / "clients.pem"
    shared.write_bytes(authority.ca.read_bytes())
    server = server_of(
        authority.issue("qm"), client_ca=shared, require_client_certificate=True, monotonic=clock
    )
    machine = authority.issue("machine1")
    client = ClientTls(authority.ca, *machine)
    assert handshake(server.context(), client.context())[0].getpeercert()
    shared.write_bytes(other.ca.read_bytes())
    clock.now += CHECK_SECONDS
    with pytest.raises(ssl.SSLError):
        handshake(server.context(), client.context())


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"certificate": "none.pem"}, "--listen-cert/--listen-key: .*none.pem.*No such file"),
        ({"key": "other.key"}, "key values mismatch"),
        ({"certificate": "text.pem"}, "expected PEM"),
        ({"certificate": "weak.pem", "key": "weak.key"}, "ee key too small"),
        ({"client_ca": "text.pem"}, "--client-ca: .*text.pem.*expected certificates in PEM"),
        ({"client_ca": "none.pem"}, "--client-ca: .*No such file"),
    ],
)
def test_files_that_cannot_be_used_are_named_at_start(
    files: dict[str, str], said: str, tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    authority.issue("qm")
    authority.issue("other")
    authority.issue("weak", rsa_bits=1024)
    (tmp_path / "text.pem").write_text("hello")
    given = {"certificate": "qm.pem", "key": "qm.key", "client_ca": "ca.pem", **files}
    paths = {name: tmp_path / file for name, file in given.items()}
    with pytest.raises(ConfigurationError, match=f"(?s){said}"):
        ServerTls(
            paths["certificate"], paths["key"], paths["client_ca"], require_client_certificate=False
        )


def subject(*parts: tuple[x509.ObjectIdentifier, str]) -> x509.Name:
    return x509.Name([x509.NameAttribute(kind, value) for kind, value in parts])


@pytest.mark.parametrize(
    ("parts", "hosts", "name", "host"),
    [
        ([(NameOID.COMMON_NAME, "machine1")], [], "CN=machine1", "machine1"),
        (
            [(NameOID.COUNTRY_NAME, "DE"), (NameOID.ORGANIZATION_NAME, "Ex"), (NameOID.COMMON_NAME, "qm.example")],
            [], "CN=qm.example,O=Ex,C=DE", "qm.example",
        ),
        ([(NameOID.DOMAIN_COMPONENT, "example"), (NameOID.USER_ID, "u1")], [], "UID=u1,DC=example", None),
        ([(NameOID.ORGANIZATION_NAME, "evil,CN=victim.example")], [], "O=evil\\,CN\\=victim.example", None),
        ([(NameOID.ORGANIZATION_NAME, "evil\\,CN=victim.example")], [], "O=evil\\\\\\,CN\\=victim.example", None),
        ([(NameOID.COMMON_NAME, "a\nb\x00c")], [], "CN=a\\0Ab\\00c", None),
        ([(NameOID.COMMON_NAME, "#x ")], [], "CN=\\#x\\ ", None),
        ([], ["qm.example", "b.example"], "DNS=qm.example", "qm.example"),
    ],
)  # fmt: skip
def test_the_subject_is_written_as_rfc_4514_has_it_and_cannot_be_forged_by_commas(
    parts: list[tuple[x509.ObjectIdentifier, str]],
    hosts: list[str],
    name: str,
    host: str | None,
    tmp_path: Path,
) -> None:
    authority = Authority(tmp_path)
    server = server_of(
        authority.issue("qm"), client_ca=authority.ca, require_client_certificate=True
    )
    client = ClientTls(
        authority.ca, *authority.issue("client", subject=subject(*parts), hosts=hosts, addresses=())
    )
    seen, _ = handshake(server.context(), client.context())
    assert sender_name_of(seen.getpeercert(), seen.getpeercert(binary_form=True)) == name
    assert host_of_sender(name) == host


def test_who_shows_a_certificate_always_has_a_name() -> None:
    long = {"subject": tuple((("organizationalUnitName", "u" * 60),) for _ in range(30))}
    unnamed = sender_name_of({"subject": (), "notAfter": "x"}, b"der")
    assert unnamed is not None
    assert unnamed.startswith("SHA256=")
    found = sender_name_of(long, b"der")
    assert found is not None
    assert found.startswith("SHA256=")
    assert len(found) < SUBJECT_MAX
    assert host_of_sender(found) is None
    assert sender_name_of(None, None) is None
    assert sender_name_of({}, None) is None
