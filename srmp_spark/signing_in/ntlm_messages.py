"""Encode and parse the three messages of NTLM ([MS-NLMP] 2.2.1) and the pairs in them (2.2.2.1).

Lengths and offsets in received messages are not trusted.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum, IntFlag
from struct import Struct
from typing import NamedTuple

from srmp_spark.mqrr.rpc.security import SecurityError

SIGNATURE = b"NTLMSSP\0"
VERSION = bytes([10, 0, 0, 0, 0, 0, 0, 15])
"""Version 10.0, build 0, with NTLMSSP_REVISION_W2K3.

Some clients refuse a challenge without a version.
"""
MIC_AT, MIC_SIZE = 72, 16
_FIELD = Struct("<HHI")
_HEAD = Struct("<8sI")
_NEGOTIATE = Struct("<8sII")
_CHALLENGE = Struct("<8sIHHII8s8xHHI8s")
_AUTHENTICATE_FIELDS = 6
_FLAGS_AT = 60
_PAIR = Struct("<HH")


class Flags(IntFlag):
    """NegotiateFlags (2.2.2.5): the flags that this implementation uses."""

    UNICODE = 0x00000001
    REQUEST_TARGET = 0x00000004
    SIGN = 0x00000010
    SEAL = 0x00000020
    NTLM = 0x00000200
    ALWAYS_SIGN = 0x00008000
    TARGET_TYPE_SERVER = 0x00020000
    EXTENDED_SESSIONSECURITY = 0x00080000
    TARGET_INFO = 0x00800000
    VERSION = 0x02000000
    KEY_128 = 0x20000000
    KEY_EXCH = 0x40000000
    KEY_56 = 0x80000000


class Pair(IntEnum):
    """AvId: the kind of a pair in the target information (2.2.2.1)."""

    EOL = 0
    NB_COMPUTER_NAME = 1
    NB_DOMAIN_NAME = 2
    DNS_COMPUTER_NAME = 3
    DNS_DOMAIN_NAME = 4
    FLAGS = 6
    TIMESTAMP = 7
    TARGET_NAME = 9


MIC_IS_THERE = 0x2
"""Bit in ``Pair.FLAGS``: the message has a MIC over all three messages."""


def encode_pairs(pairs: Mapping[int, bytes]) -> bytes:
    """Return the AV_PAIRs as bytes, with the end mark after them."""
    return b"".join(
        _PAIR.pack(kind, len(value)) + value for kind, value in pairs.items()
    ) + _PAIR.pack(Pair.EOL, 0)


def parse_pairs(data: bytes) -> dict[int, bytes]:
    """Return the AV_PAIRs in ``data`` up to their end mark, from kind to value.

    Raises :class:`SecurityError` if a pair is longer than the data, or there is no end mark.
    """
    found: dict[int, bytes] = {}
    at = 0
    while True:
        if len(data) - at < _PAIR.size:
            raise SecurityError("the target information of an NTLM message has no end")
        kind, size = _PAIR.unpack_from(data, at)
        at += _PAIR.size
        if kind == Pair.EOL:
            return found
        if size > len(data) - at:
            raise SecurityError("a pair of an NTLM message is longer than the rest of the message")
        found[kind] = data[at : at + size]
        at += size


def encode_negotiate(flags: Flags) -> bytes:
    """Return the bytes of a NEGOTIATE_MESSAGE without names."""
    return _NEGOTIATE.pack(SIGNATURE, 1, flags) + bytes(16) + VERSION


def parse_negotiate(data: bytes) -> Flags:
    """Return the flags of a NEGOTIATE_MESSAGE: the features that the client offers.

    Raises :class:`SecurityError` if ``data`` is no such message.
    """
    _expect(data, 1, _NEGOTIATE.size)
    return Flags(_NEGOTIATE.unpack_from(data)[2])


class Challenge(NamedTuple):
    """CHALLENGE_MESSAGE: the server's answer to NEGOTIATE_MESSAGE."""

    flags: Flags
    challenge: bytes
    target_info: bytes
    target_name: str = ""

    def encode(self) -> bytes:
        """Return the bytes of the message."""
        name = self.target_name.encode("utf-16-le")
        at = _CHALLENGE.size
        return (
            _CHALLENGE.pack(
                SIGNATURE,
                2,
                len(name),
                len(name),
                at,
                self.flags,
                self.challenge,
                len(self.target_info),
                len(self.target_info),
                at + len(name),
                VERSION,
            )
            + name
            + self.target_info
        )


def parse_challenge(data: bytes) -> Challenge:
    """Return the CHALLENGE_MESSAGE in ``data``, without its target name.

    Raises :class:`SecurityError` if ``data`` is no such message.
    """
    _expect(data, 2, 48)
    flags = Flags(int.from_bytes(data[20:24], "little"))
    return Challenge(flags, data[24:32], _payload(data, 40))


class Authenticate(NamedTuple):
    """AUTHENTICATE_MESSAGE: the client's name and its proof of the password."""

    lm_response: bytes
    nt_response: bytes
    domain: str
    user: str
    workstation: str
    session_key: bytes
    """EncryptedRandomSessionKey: the session key, encrypted with the key of the proof."""
    flags: Flags
    mic: bytes = bytes(MIC_SIZE)

    def encode(self) -> bytes:
        """Return the bytes of the message, with its MIC as given; this method computes no MIC."""
        values = (
            self.lm_response,
            self.nt_response,
            self.domain.encode("utf-16-le"),
            self.user.encode("utf-16-le"),
            self.workstation.encode("utf-16-le"),
            self.session_key,
        )
        at = MIC_AT + MIC_SIZE
        fields = b""
        for value in values:
            fields += _FIELD.pack(len(value), len(value), at)
            at += len(value)
        return (
            _HEAD.pack(SIGNATURE, 3)
            + fields
            + self.flags.to_bytes(4, "little")
            + VERSION
            + self.mic
            + b"".join(values)
        )


def parse_authenticate(data: bytes) -> Authenticate:
    """Return the AUTHENTICATE_MESSAGE in ``data``: the name that the client states, and its proof.

    Raises :class:`SecurityError` if ``data`` is no such message, or a name is not UTF-16.
    """
    _expect(data, 3, _FLAGS_AT + 4)
    lm, nt, domain, user, workstation, key = (
        _payload(data, _HEAD.size + 8 * n) for n in range(_AUTHENTICATE_FIELDS)
    )
    flags = Flags(int.from_bytes(data[_FLAGS_AT : _FLAGS_AT + 4], "little"))
    try:
        in_domain, name, machine = (
            each.decode("utf-16-le") for each in (domain, user, workstation)
        )
    except UnicodeDecodeError:
        raise SecurityError("a name in an NTLM message is not UTF-16") from None
    return Authenticate(
        lm, nt, in_domain, name, machine, key, flags, data[MIC_AT : MIC_AT + MIC_SIZE]
    )


def _expect(data: bytes, kind: int, size: int) -> None:
    if len(data) < size:
        raise SecurityError(f"an NTLM message has {len(data)} bytes, expected at least {size}")
    signature, found = _HEAD.unpack_from(data)
    if signature != SIGNATURE or found != kind:
        raise SecurityError(f"expected the NTLM message of type {kind}, got another one")


def _payload(data: bytes, at: int) -> bytes:
    size, _, offset = _FIELD.unpack_from(data, at)
    if size > len(data) - offset:
        raise SecurityError("a field of an NTLM message points outside the message")
    return data[offset : offset + size]
