"""NTLM version 2 ([MS-NLMP]): the document's own examples, and both sides over a connection of DCE/RPC."""

from __future__ import annotations

import random

import pytest
from rpc_kit import OPNUMS, Link

from srmp_spark.errors import ConfigurationError
from srmp_spark.mqrr.ndr.methods import NoParameters, PortResponse
from srmp_spark.mqrr.ndr.transfer_syntax import NDR
from srmp_spark.mqrr.remote_host import parse_remote_host
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import (
    Bound,
    CallAnswered,
    ClientConnectionClosed,
    ClientSettings,
)
from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityError
from srmp_spark.mqrr.rpc.server_connection import ServerSettings
from srmp_spark.mqrr.rpc.server_events import CallReceived
from srmp_spark.signing_in.accounts import Account, Accounts, read_accounts
from srmp_spark.signing_in.credentials import credentials
from srmp_spark.signing_in.ntlm import NtlmAcceptor, NtlmInitiator
from srmp_spark.signing_in.ntlm_crypto import (
    hmac_md5,
    md4,
    nt_hash,
    ntowfv2,
    rc4,
    rc4k,
    seal_key,
    sign_key,
)
from srmp_spark.signing_in.ntlm_messages import (
    Flags,
    Pair,
    encode_negotiate,
    encode_pairs,
    parse_authenticate,
    parse_challenge,
    parse_pairs,
)

NOW = 1_790_000_000_000_000
LEVELS = [AuthLevel.CONNECT, AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY]


# --- the document's examples (4.2.4) ----------------------------------------------------------------------------------------

TARGET_INFO = bytes.fromhex(
    "02000c0044006f006d00610069006e0001000c005300650072007600650072000000000000000000"
)[:36]
SERVER_CHALLENGE = bytes.fromhex("0123456789abcdef")
TEMP = b"\x01\x01" + bytes(6) + bytes(8) + b"\xaa" * 8 + bytes(4) + TARGET_INFO + bytes(4)


@pytest.mark.parametrize(
    ("text", "digest"),
    [
        (b"", "31d6cfe0d16ae931b73c59d7e0c089c0"),
        (b"abc", "a448017aaf21d8525fc10ae87aa6729d"),
        (b"1234567890" * 8, "e33b4ddc9c38f2199c3e7b164fcc0536"),
    ],
)
def test_md4(text, digest):
    """RFC 1320 A.5."""
    assert md4(text).hex() == digest


def test_the_keys_of_the_example():
    """4.2.4.1 and 4.2.4.2: User, Domain, Password."""
    key = ntowfv2("User", nt_hash("Password"), "Domain")
    assert key.hex() == "0c868a403bfd7a93a3001ef22ef02e3f"
    proof = hmac_md5(key, SERVER_CHALLENGE + TEMP)
    assert proof.hex() == "68cd0ab851e51c96aabc927bebef6a1c"
    base_key = hmac_md5(key, proof)
    assert base_key.hex() == "8de40ccadbc14a82f15cb0ad0de95ca3"
    assert rc4k(base_key, b"\x55" * 16).hex() == "c5dad2544fc9799094ce1ce90bc9d03e"


def test_the_sealed_message_of_the_example():
    """4.2.4.4: "Plaintext" under the session key of fifty-fives."""
    session_key = b"\x55" * 16
    assert seal_key(session_key, client=True).hex() == "59f600973cc4960a25480a7c196e4c58"
    assert sign_key(session_key, client=True).hex() == "4788dc861b4782f35d43fd98fe1a2d39"
    plain = "Plaintext".encode("utf-16-le")
    stream = rc4(seal_key(session_key, client=True))
    assert stream.update(plain).hex() == "54e50165bf1936dc996020c1811b0f06fb5f"
    code = stream.update(hmac_md5(sign_key(session_key, client=True), bytes(4) + plain)[:8])
    assert (b"\x01\0\0\0" + code + bytes(4)).hex() == "010000007fb38ec5c55d497600000000"


# --- both sides -----------------------------------------------------------------------------------------------------------


ACCOUNTS = Accounts([Account("EXAMPLE\\reader", nt_hash("right ünd proper"))])


def acceptor(level: int) -> NtlmAcceptor:
    return NtlmAcceptor(level, ACCOUNTS.of, challenge=bytes(range(8)), name="QM", utc=NOW)


def initiator(
    level: int, password: str = "right ünd proper", user: str = "reader", **more: str
) -> NtlmInitiator:
    rng = random.Random(1)
    return NtlmInitiator(
        level, user, password, more.get("domain", "EXAMPLE"), random=rng.randbytes, utc=NOW
    )


def link(
    level: int, client: NtlmInitiator, at_least: int = AuthLevel.NONE, step: int | None = None
) -> Link:
    server = ServerSettings(
        interfaces={REMOTE_READ: OPNUMS}, port=2103, min_auth_level=at_least,
        accept_security=lambda kind, wanted, peer: acceptor(wanted) if kind == 10 else None,
    )  # fmt: skip
    return Link(ClientSettings(auth_level=level, security=client), server, step=step)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("step", [None, 7])
def test_a_client_that_knows_the_password_is_let_in_and_understood(level, step):
    connection = link(level, initiator(level), at_least=level, step=step)
    connection.client.bind(0.0)
    connection.pump()
    assert isinstance(connection.results.pop(), Bound)
    for number in range(3):
        call = connection.call(0, NoParameters().encode(NDR))
        assert isinstance(call, CallReceived)
        assert (call.identity, call.auth_level) == ("EXAMPLE\\reader", level)
        connection.server.respond(
            call.call_id, PortResponse(2103).encode(NDR) + b"x" * 9_000 * number
        )
        connection.pump()
        answer = connection.results.pop()
        assert isinstance(answer, CallAnswered)
        assert answer.stub[:4] == (2103).to_bytes(4, "little")


def test_privacy_shows_nothing_of_a_call():
    connection = link(AuthLevel.PKT_PRIVACY, initiator(AuthLevel.PKT_PRIVACY))
    connection.client.bind(0.0)
    connection.pump()
    connection.results.clear()
    connection.client.call(0, b"a secret that is long enough to be seen", 0.0)
    sent = connection.client.data_to_send()
    assert b"secret" not in sent
    connection.client._out.append(sent)
    connection.pump()
    assert connection.calls.pop().stub.startswith(b"a secret")


@pytest.mark.parametrize(
    ("user", "password"), [("reader", "wrong"), ("nobody", "right ünd proper"), ("reader", "")]
)
def test_a_client_that_does_not_is_refused_at_its_first_call(user, password):
    """The last leg is in an auth3, which nobody answers."""
    connection = link(AuthLevel.PKT_PRIVACY, initiator(AuthLevel.PKT_PRIVACY, password, user))
    connection.client.bind(0.0)
    connection.pump()
    connection.results.clear()
    connection.client.call(0, b"", 0.0)
    connection.pump()
    assert not any(isinstance(each, CallReceived) for each in connection.calls)
    assert any(
        isinstance(each, ClientConnectionClosed) or getattr(each, "status", 0) == 5
        for each in connection.results
    )


@pytest.mark.parametrize("level", [AuthLevel.PKT_INTEGRITY, AuthLevel.PKT_PRIVACY])
def test_a_changed_byte_of_a_call_is_found(level):
    connection = link(level, initiator(level))
    connection.client.bind(0.0)
    connection.pump()
    connection.client.call(0, b"pay 10 to one", 0.0)
    sent = bytearray(connection.client.data_to_send())
    sent[25] ^= 1
    events = connection.server.receive(bytes(sent))
    assert not any(isinstance(each, CallReceived) for each in events)


def legs() -> tuple[NtlmInitiator, NtlmAcceptor, bytes, bytes, bytes]:
    client, server = initiator(AuthLevel.PKT_PRIVACY), acceptor(AuthLevel.PKT_PRIVACY)
    negotiate = client.step(b"")
    challenge = server.step(negotiate)
    return client, server, negotiate, challenge, client.step(challenge)


def test_a_challenge_that_was_changed_on_its_way_is_found_by_the_code():
    _, server, _, challenge, _ = legs()
    other = initiator(AuthLevel.PKT_PRIVACY)
    other.step(b"")
    weaker = bytearray(challenge)
    weaker[23] &= 0x7F  # no 56 bits
    authenticate = other.step(bytes(weaker))
    with pytest.raises(SecurityError, match="changed in transit"):
        server.step(authenticate)


def test_a_challenge_without_its_time_is_found_by_the_response():
    """The time is why a client sends a code over all messages: who takes it away on the way could change the rest too."""
    client, server = initiator(AuthLevel.PKT_PRIVACY), acceptor(AuthLevel.PKT_PRIVACY)
    challenge = parse_challenge(server.step(client.step(b"")))
    pairs = parse_pairs(challenge.target_info)
    del pairs[Pair.TIMESTAMP]
    authenticate = client.step(
        challenge._replace(target_info=encode_pairs(pairs), target_name="QM").encode()
    )
    assert parse_authenticate(authenticate).mic == bytes(16)
    with pytest.raises(SecurityError, match="another challenge"):
        server.step(authenticate)


def test_the_challenge_has_a_version_and_the_time():
    """Some clients refuse one without the former; the latter makes Windows send its code."""
    *_, challenge, authenticate = legs()
    found = parse_challenge(challenge)
    assert found.flags & Flags.VERSION
    assert parse_pairs(found.target_info)[7] == (NOW * 10 + 116_444_736_000_000_000).to_bytes(
        8, "little"
    )
    message = parse_authenticate(authenticate)
    assert any(message.mic)
    assert message.lm_response == bytes(24)


@pytest.mark.parametrize(
    "missing", [Flags.UNICODE, Flags.EXTENDED_SESSIONSECURITY, Flags.KEY_128, Flags.NTLM]
)
def test_what_is_weaker_than_version_2_is_refused(missing):
    offered = Flags(0xE2088297) | Flags.NTLM | Flags.UNICODE
    with pytest.raises(SecurityError, match="cannot do"):
        acceptor(AuthLevel.PKT_PRIVACY).step(encode_negotiate(offered & ~missing))


def test_a_response_of_version_1_is_refused():
    _, server, _, _, authenticate = legs()
    message = parse_authenticate(authenticate)
    with pytest.raises(SecurityError, match="not of NTLM version 2"):
        server.step(message._replace(nt_response=bytes(24)).encode())


def test_hostile_messages_are_refused_and_nothing_else():
    """Each leg with random bytes changed, and cut anywhere: let in, or refused."""
    rng = random.Random(20261122)
    let_in = 0
    for _ in range(3_000):
        _, server, negotiate, _, authenticate = legs()
        server = acceptor(AuthLevel.PKT_PRIVACY)
        which = rng.randrange(2)
        data = bytearray((negotiate, authenticate)[which])
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(len(data))] = rng.randrange(256)
        data = data[: rng.randrange(len(data))] if rng.random() < 0.3 else data
        try:
            if which:
                server.step(negotiate)
            server.step(bytes(data))
        except SecurityError:
            continue
        let_in += which
    assert let_in < 30, "a changed proof was believed"


# --- accounts and credentials ---------------------------------------------------------------------------------------------


def test_accounts_are_lines_of_a_file_that_others_cannot_read(tmp_path):
    path = tmp_path / "accounts"
    path.write_text("# who may read\n\nEXAMPLE\\Reader:with:colons\n.\\anybody:secret\n")
    with pytest.raises(ConfigurationError, match="chmod 600"):
        read_accounts(path)
    path.chmod(0o600)
    accounts = read_accounts(path)
    assert accounts.of("example", "READER") == (Account("EXAMPLE\\Reader", nt_hash("with:colons")),)
    assert accounts.of("OTHER", "reader") == ()
    assert accounts.of("OTHER", "anybody") == (Account(".\\anybody", nt_hash("secret")),)
    assert "secret" not in repr(accounts)
    assert nt_hash("secret").hex() not in repr(accounts.of("OTHER", "anybody"))


@pytest.mark.parametrize(
    "text", ["reader:secret", "EXAMPLE\\reader", "\\reader:secret", "A\\b:c\nA\\B:d", "#nobody"]
)
def test_what_is_no_account_is_told_without_its_password(tmp_path, text):
    path = tmp_path / "accounts"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(ConfigurationError) as error:
        read_accounts(path)
    assert "secret" not in str(error.value)


def test_the_level_is_privacy_but_on_loopback():
    given = {"level": None, "protocol": None, "user": None, "password": None, "domain": None}
    far, near = parse_remote_host("x", "windows.example:2103"), parse_remote_host("x", "127.0.0.1")
    assert credentials("x", near, **given).level == "none"
    with pytest.raises(ConfigurationError, match="give a user and a password"):
        credentials("x", far, **given)
    found = credentials("x", far, **{**given, "user": "reader", "password": "secret"})
    assert found.level == "privacy"
    assert "secret" not in repr(found)
    assert credentials("x", far, **{**given, "level": "none"}).level == "none"
    with pytest.raises(ConfigurationError, match="level none has no sign-in"):
        credentials("x", far, **{**given, "level": "none", "user": "reader"})
    with pytest.raises(ConfigurationError, match="ntlm, kerberos or negotiate"):
        credentials("x", far, **{**given, "protocol": "digest"})
