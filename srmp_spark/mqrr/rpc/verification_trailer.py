"""The verification trailer: a signed copy of a request's header fields ([MS-RPCE] 2.2.2.13).

Security providers protect the header of a PDU only if both sides agreed on that. So a client may
repeat the method, the context and the interface after the stub, as a part of the stub. No field
states where the trailer begins. A trailer begins with the eight bytes of its signature, at a
multiple of four. Its commands, each with its length, end exactly where the stub ends. Bytes that
end elsewhere are not a trailer but stub that looks like one.
"""

from __future__ import annotations

from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.guids import guid_bytes, guid_text
from srmp_spark.mqrr.rpc.binding import SyntaxId
from srmp_spark.mqrr.rpc.limits import VERIFICATION_COMMANDS_MAX, VERIFICATION_TRAILER_MAX
from srmp_spark.mqrr.rpc.pdu import DREP, PduType

SIGNATURE = bytes.fromhex("8ae3137102f43671")
CLIENT_SUPPORT_HEADER_SIGNING = 0x01

_SECTION = "[MS-RPCE] 2.2.2.13"
_COMMAND = Struct("<HH")
_U32 = Struct("<I")
_HEADER2 = Struct("<Bxxx4sIHH")
_PCONTEXT = Struct("<16sI16sI")
_BITMASK, _PCONTEXT_ID, _HEADER2_ID = 1, 2, 3
_TYPE, _END, _MUST_PROCESS = 0x3FFF, 0x4000, 0x8000
_SIZES = {_BITMASK: _U32.size, _PCONTEXT_ID: _PCONTEXT.size, _HEADER2_ID: _HEADER2.size}


class VerificationTrailer(NamedTuple):
    """The fields of one trailer; ``None`` means that the trailer does not have the field."""

    header_signing: bool | None = None
    """Bitmask command: whether the client's bind had PFC_SUPPORT_HEADER_SIGN."""
    call_id: int | None = None
    context_id: int | None = None
    opnum: int | None = None
    interface: SyntaxId | None = None
    transfer_syntax: SyntaxId | None = None

    def encode(self) -> bytes:
        """Encode the trailer; the last command is marked as the last.

        Return ``b""`` without any field.
        """
        commands: list[tuple[int, bytes]] = []
        if self.header_signing is not None:
            commands.append(
                (_BITMASK, _U32.pack(CLIENT_SUPPORT_HEADER_SIGNING if self.header_signing else 0))
            )
        if self.call_id is not None and self.context_id is not None and self.opnum is not None:
            commands.append(
                (
                    _HEADER2_ID,
                    _HEADER2.pack(PduType.REQUEST, DREP, self.call_id, self.context_id, self.opnum),
                )
            )
        if self.interface is not None and self.transfer_syntax is not None:
            pair = _PCONTEXT.pack(
                guid_bytes(self.interface.uuid),
                self.interface.version,
                guid_bytes(self.transfer_syntax.uuid),
                self.transfer_syntax.version,
            )
            commands.append((_PCONTEXT_ID, pair))
        if not commands:
            return b""
        last = len(commands) - 1
        return SIGNATURE + b"".join(
            _COMMAND.pack(command | (_END if number == last else 0), len(data)) + data
            for number, (command, data) in enumerate(commands)
        )

    def denies(
        self,
        *,
        header_signing: bool,
        call_id: int,
        context_id: int,
        opnum: int,
        interface: SyntaxId,
        transfer_syntax: SyntaxId,
    ) -> str | None:
        """Return the name of the first field of this trailer that differs from the request.

        Return ``None`` if no field differs. Fields that the trailer does not have are not compared.
        The arguments are the request as received. ``header_signing`` states whether both sides
        agreed to sign headers; it differs only if the trailer states it and they did not agree.
        """
        if self.header_signing and not header_signing:
            return "header signing"
        said = (self.call_id, self.context_id, self.opnum, self.interface, self.transfer_syntax)
        came = (call_id, context_id, opnum, interface, transfer_syntax)
        for what, told, found in zip(VerificationTrailer._fields[1:], said, came, strict=True):
            if told is not None and told != found:
                return what
        return None


def append_trailer(stub: bytes, trailer: VerificationTrailer) -> bytes:
    """Return ``stub`` with ``trailer`` at the next multiple of four bytes.

    Return ``stub`` unchanged if the trailer has no field.
    """
    data = trailer.encode()
    return stub + bytes(-len(stub) % 4) + data if data else stub


def split_trailer(stub: bytes) -> tuple[bytes, VerificationTrailer | None]:
    """Return the stub without its verification trailer, and the trailer or ``None``.

    Up to three bytes of padding stay at the end of the stub. Raises :class:`RemoteProtocolError` if
    a command must be processed and is unknown, or if the trailer belongs to another type of PDU.
    The server answers with fault 5, access denied.
    """
    begin = max(0, len(stub) - VERIFICATION_TRAILER_MAX)
    at = stub.rfind(SIGNATURE, begin)
    while at >= 0:
        commands = _commands(stub, at + len(SIGNATURE)) if at % 4 == 0 else None
        if commands is not None:
            return stub[:at], _read(commands)
        at = stub.rfind(SIGNATURE, begin, at + len(SIGNATURE) - 1)
    return stub, None


def _commands(stub: bytes, at: int) -> list[tuple[int, bytes]] | None:
    """Return the commands from offset ``at`` to the end of the stub, as (number, value) pairs.

    Return ``None`` if the commands do not end exactly at the end of the stub, or if there are more
    than VERIFICATION_COMMANDS_MAX.
    """
    commands: list[tuple[int, bytes]] = []
    while at + _COMMAND.size <= len(stub) and len(commands) < VERIFICATION_COMMANDS_MAX:
        command, length = _COMMAND.unpack_from(stub, at)
        at += _COMMAND.size
        if length % 4 or length > len(stub) - at or _SIZES.get(command & _TYPE, length) != length:
            return None
        commands.append((command, stub[at : at + length]))
        at += length
        if command & _END:
            return commands if at == len(stub) else None
    return None


def _read(commands: list[tuple[int, bytes]]) -> VerificationTrailer:
    trailer = VerificationTrailer()
    for command, data in commands:
        kind = command & _TYPE
        if kind == _BITMASK:
            trailer = trailer._replace(
                header_signing=bool(_U32.unpack(data)[0] & CLIENT_SUPPORT_HEADER_SIGNING)
            )
        elif kind == _HEADER2_ID:
            ptype, drep, call_id, context_id, opnum = _HEADER2.unpack(data)
            if ptype != PduType.REQUEST or drep != DREP:
                raise RemoteProtocolError(
                    "a verification trailer of another kind of PDU", section=_SECTION
                )
            trailer = trailer._replace(call_id=call_id, context_id=context_id, opnum=opnum)
        elif kind == _PCONTEXT_ID:
            uuid, version, transfer_uuid, transfer_version = _PCONTEXT.unpack(data)
            trailer = trailer._replace(
                interface=SyntaxId(guid_text(uuid), version),
                transfer_syntax=SyntaxId(guid_text(transfer_uuid), transfer_version),
            )
        elif command & _MUST_PROCESS:
            raise RemoteProtocolError(
                f"verification command {kind:#x} must be processed and is unknown", section=_SECTION
            )
    return trailer
