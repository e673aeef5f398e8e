"""Fuzz targets of remote read, with the rules for their results.

The targets are packets, stubs in both directions, both ends of a connection, the endpoint mapper,
NTLM, and the server of a queue with whole conversations.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from functools import cache
from random import Random
from typing import Any

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.message_of_packet import message_of
from srmp_spark.mqrr.ndr.methods import METHODS
from srmp_spark.mqrr.ndr.receive import decode_start_receive_response
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.packets.sections import join_sections
from srmp_spark.mqrr.rpc.associations import Associations
from srmp_spark.mqrr.rpc.binding import REMOTE_READ
from srmp_spark.mqrr.rpc.client_connection import ClientConnection, ClientSettings
from srmp_spark.mqrr.rpc.endpoint_mapper import decode_map_response
from srmp_spark.mqrr.rpc.pdu import AuthLevel
from srmp_spark.mqrr.rpc.security import SecurityError
from srmp_spark.mqrr.rpc.server_connection import ServerConnection, ServerSettings
from srmp_spark.signing_in.accounts import Account
from srmp_spark.signing_in.ntlm import NtlmAcceptor, NtlmInitiator
from srmp_spark.signing_in.ntlm_crypto import nt_hash
from srmp_spark.signing_in.ntlm_messages import parse_authenticate, parse_challenge, parse_negotiate
from tests.kit.fuzz.judge import Outcome, Target, ViolationError
from tests.kit.fuzz.mqrr_conversation import check_conversation, parse_conversation

REASON_MAX = 400
"""Most characters of a refusal. It must be one short line that never contains the payload."""
CHECKED_AGAIN = 0.2
"""Share of the inputs that are checked twice.

Writing a packet and reading it again, or cutting a stream into bytes, takes ten times as long as
reading it.
"""
NTLM_ACCOUNT, NTLM_PASSWORD = ("EXAMPLE", "reader"), "right and proper"
SETTINGS = ServerSettings(interfaces={REMOTE_READ: frozenset(METHODS)}, port=2103)


def _refused(error: RemoteProtocolError) -> Outcome:
    text = str(error)
    if not error.section or len(text) > REASON_MAX or not text.isprintable():
        raise ViolationError(f"a refusal that cannot be told: {error.section!r} {text[:200]!r}")
    return Outcome(False, (error.section, text))


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


def _same_again(packet: MessagePacket) -> None:
    """Check that a parsed packet is parsed as the same packet after it was encoded again.

    A packet that srmp-spark must not send may be refused with :class:`LocalProtocolError`. A
    complete packet must also be convertible to a row.
    """
    if not packet.missing:
        # A text that no column can hold raises UnicodeEncodeError here.
        repr(message_of(packet)).encode()
    try:
        data = packet.encode()
    except LocalProtocolError:
        return
    again = parse_message_packet(data)
    _demand(again.encode() == data, "written, read and written again: other bytes")
    _demand(
        (again.id, again.body, again.priority) == (packet.id, packet.body, packet.priority),
        "read again: another message",
    )


def parse_packet(data: bytes) -> Outcome:
    """Parse a complete message packet."""
    try:
        return Outcome(True, parse_message_packet(data))
    except RemoteProtocolError as error:
        return _refused(error)


def check_packet(_data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check a share of the accepted packets, :data:`CHECKED_AGAIN`, with :func:`_same_again`."""
    if outcome.accepted and rng.random() < CHECKED_AGAIN:
        _same_again(outcome.value)


def parse_received(data: bytes) -> Outcome:
    """Parse the answer of a read: stub, sections, and packet.

    The first byte of the input selects the transfer syntax.
    """
    try:
        response = decode_start_receive_response(data[1:], NDR64 if data[:1] == b"\1" else NDR)
        return Outcome(
            True, (response, join_sections(response.sections) if response.sections else None)
        )
    except RemoteProtocolError as error:
        return _refused(error)


def check_received(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that the sections are no larger than the stub, and the packet.

    A share of the packets is checked with :func:`_same_again`.
    """
    if outcome.accepted:
        response, packet = outcome.value
        _demand(
            sum(len(section.data) for section in response.sections) <= len(data),
            "sections larger than the stub",
        )
        if packet is not None:
            _demand(packet.missing >= 0, "less than nothing is missing")
            if rng.random() < CHECKED_AGAIN:
                _same_again(packet)


def _method(data: bytes) -> tuple[Any, Any]:
    """Return the method and the transfer syntax that the first two bytes select."""
    return METHODS[sorted(METHODS)[data[0] % len(METHODS)]], NDR64 if data[1] & 1 else NDR


def parse_stub(data: bytes) -> Outcome:
    """Parse the stub of a request; the first two bytes select method and transfer syntax."""
    if len(data) < 2:
        return Outcome(False, "no method")
    method, syntax = _method(data)
    try:
        return Outcome(True, method.decode_request(data[2:], syntax))
    except RemoteProtocolError as error:
        return _refused(error)


def check_stub(data: bytes, outcome: Outcome, _rng: Random) -> None:
    """Check that parsed parameters can be encoded and are parsed again as the same parameters."""
    if outcome.accepted:
        method, syntax = _method(data)
        _demand(
            method.decode_request(outcome.value.encode(syntax), syntax) == outcome.value,
            "read again: other parameters",
        )


def _server() -> ServerConnection:
    ids, uuids = itertools.count(1), itertools.count(1)
    groups: Associations[Any] = Associations(
        new_id=lambda: next(ids), new_uuid=lambda: next(uuids).to_bytes(16, "big")
    )
    return ServerConnection(SETTINGS, groups, "192.0.2.1", 0.0)


def _heard(pieces: Iterable[bytes]) -> Outcome:
    """Feed a stream, cut into ``pieces``, to a server and return its outcome.

    The outcome has the server's state, its answers, the calls that it would carry out, and the
    types of its events. It is accepted if there is a call.
    """
    connection = _server()
    events = [event for piece in pieces for event in connection.receive(piece, 0.0)]
    calls = [event[:5] for event in events if hasattr(event, "opnum")]
    return Outcome(
        bool(calls),
        (connection.state, connection.data_to_send(), calls, [type(event) for event in events]),
    )


def parse_server(data: bytes) -> Outcome:
    """Feed a server with all bytes that a client sends on one connection."""
    return _heard([data])


@cache
def _bind_ack() -> bytes:
    client, server = ClientConnection(ClientSettings()), _server()
    client.bind(0.0)
    server.receive(client.data_to_send(), 0.0)
    return server.data_to_send()


def _bound() -> ClientConnection:
    client = ClientConnection(ClientSettings())
    client.bind(0.0)
    client.receive(_bind_ack())
    client.call(7, b"", 0.0)
    return client


def _answered(pieces: Iterable[bytes]) -> Outcome:
    client = _bound()
    results = [result for piece in pieces for result in client.receive(piece)]
    return Outcome(any(hasattr(result, "stub") for result in results), (client.state, results))


def parse_client(data: bytes) -> Outcome:
    """Feed a client, which has bound and made a call, with all bytes that a server sends.

    The outcome is accepted if the call is answered.
    """
    return _answered([data])


def _pieces(data: bytes, rng: Random) -> list[bytes]:
    step = rng.choice((1, 9, 16, 100)) if len(data) < 2_000 else 1_000
    return [data[at : at + step] for at in range(0, len(data), step)]


def check_server(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check, for a share of the inputs, that cut bytes give the same events and answers."""
    if rng.random() < CHECKED_AGAIN:
        _demand(_heard(_pieces(data, rng)) == outcome, "cut into pieces it is another conversation")


def check_client(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check, for a share of the inputs, that cut bytes give the same results."""
    if rng.random() < CHECKED_AGAIN:
        _demand(_answered(_pieces(data, rng)) == outcome, "cut into pieces it is another answer")


def parse_map(data: bytes) -> Outcome:
    """Parse the answer of an endpoint mapper."""
    try:
        return Outcome(True, decode_map_response(data))
    except RemoteProtocolError as error:
        return _refused(error)


def check_map(_data: bytes, outcome: Outcome, _rng: Random) -> None:
    """Check that each port of an accepted answer has 16 bits."""
    if outcome.accepted:
        _demand(
            all(0 <= tower.port <= 0xFFFF for tower in outcome.value.towers),
            "a port out of its range",
        )


def _accounts(domain: str, user: str) -> tuple[Account, ...]:
    name = (domain.lower(), user.lower())
    known = name == tuple(each.lower() for each in NTLM_ACCOUNT)
    return (Account("\\".join(NTLM_ACCOUNT), nt_hash(NTLM_PASSWORD)),) if known else ()


def ntlm_legs() -> tuple[bytes, bytes, bytes]:
    """Return the three NTLM messages of a client that signs in successfully."""
    client = _initiator()
    negotiate = client.step(b"")
    challenge = _acceptor().step(negotiate)
    return negotiate, challenge, client.step(challenge)


def _initiator() -> NtlmInitiator:
    domain, user = NTLM_ACCOUNT
    return NtlmInitiator(
        AuthLevel.PKT_PRIVACY, user, NTLM_PASSWORD, domain, random=Random(1).randbytes, utc=0
    )


def _acceptor() -> NtlmAcceptor:
    return NtlmAcceptor(AuthLevel.PKT_PRIVACY, _accounts, challenge=bytes(8), name="QM", utc=0)


def parse_ntlm(data: bytes) -> Outcome:
    """Parse an NTLM message; the first byte selects which of the three messages it is."""
    reader = (parse_negotiate, parse_challenge, parse_authenticate)[data[0] % 3 if data else 0]
    try:
        return Outcome(True, reader(data[1:]))
    except SecurityError as error:
        text = str(error)
        _demand(
            len(text) <= REASON_MAX and text.isprintable(),
            f"a refusal that cannot be told: {text[:200]!r}",
        )
        return Outcome(False, text)


def check_ntlm(data: bytes, _outcome: Outcome, rng: Random) -> None:
    """Check, for a share of the inputs, that no changed message lets a client sign in.

    A change may be in the proof of the password or in an earlier message.
    """
    if rng.random() >= CHECKED_AGAIN:
        return
    negotiate, challenge, authenticate = ntlm_legs()
    leg, message = (data[0] % 3 if data else 0), data[1:]
    try:
        if leg == 1:
            client = _initiator()
            client.step(b"")
            authenticate = client.step(message)
        server = _acceptor()
        server.step(message if leg == 0 else negotiate)
        server.step(message if leg == 2 else authenticate)
    except SecurityError:
        return
    _demand(
        message == (negotiate, challenge, authenticate)[leg],
        "let in, though a message was changed on its way",
    )


def mqrr_targets(seeds: dict[str, Sequence[bytes]]) -> list[Target]:
    """Return all targets of this module; ``seeds`` has their valid inputs by target name."""
    functions = {
        "packet": (parse_packet, check_packet),
        "received": (parse_received, check_received),
        "stub": (parse_stub, check_stub),
        "rpc-server": (parse_server, check_server),
        "rpc-client": (parse_client, check_client),
        "ept-map": (parse_map, check_map),
        "ntlm": (parse_ntlm, check_ntlm),
        "calls": (parse_conversation, check_conversation),
    }
    return [
        Target(name, seeds[name], (), parse, check) for name, (parse, check) in functions.items()
    ]
