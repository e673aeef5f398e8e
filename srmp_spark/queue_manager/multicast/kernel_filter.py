"""Limit the packets that the kernel gives to a socket, by a classic BPF program.

The program is attached with SO_ATTACH_FILTER (Linux, socket(7)). A source listens to its own group
for the NAKs that receivers multicast. So a source would receive every packet that the source itself
sends. Reading these packets took a tenth of the source's time. The filter looks at PGM's type
alone; packets that pass are checked as strictly as all others.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from array import array
from collections.abc import Sequence
from typing import Final

from srmp_spark.pgm.wire.packets import PacketType

_SO_ATTACH_FILTER: Final = 26
_LOAD_BYTE, _LOAD_BYTE_AT_X, _X_IS_HEADER_LENGTH, _IF_EQUAL, _RETURN = 0x30, 0x50, 0xB1, 0x15, 0x06
"""Codes of the BPF instructions that the program uses.

In order: BPF_LD|BPF_B|BPF_ABS, BPF_LD|BPF_B|BPF_IND, BPF_LDX|BPF_B|BPF_MSH, BPF_JMP|BPF_JEQ|BPF_K,
BPF_RET|BPF_K.
"""
_INSTRUCTION = struct.Struct("HBBI")
_UDP_HEADER = 8
_TYPE_AT = 4
_ALL: Final = 0xFFFF_FFFF


def _program(types: Sequence[PacketType], *, is_raw: bool) -> list[tuple[int, int, int, int]]:
    """Return a BPF program that passes the PGM packets of ``types`` and drops all others.

    The result lists its instructions as (code, skip if true, skip if false, value). With ``is_raw``
    the program is for a raw socket, whose packets begin with the IP header; otherwise for a UDP
    socket, whose packets begin with the UDP header.
    """
    load = (
        [(_X_IS_HEADER_LENGTH, 0, 0, 0), (_LOAD_BYTE_AT_X, 0, 0, _TYPE_AT)]
        if is_raw
        else [(_LOAD_BYTE, 0, 0, _UDP_HEADER + _TYPE_AT)]
    )
    compare = [(_IF_EQUAL, len(types) - place, 0, int(kind)) for place, kind in enumerate(types)]
    return [*load, *compare, (_RETURN, 0, 0, 0), (_RETURN, 0, 0, _ALL)]


def pass_only(opened: socket.socket, types: Sequence[PacketType], *, is_raw: bool) -> None:
    """Attach a filter to the socket that lets only PGM packets of ``types`` pass.

    ``is_raw`` states that the socket is raw and not one of UDP. A kernel that cannot filter is no
    error: the reader checks the types again.
    """
    program = array(
        "B", b"".join(_INSTRUCTION.pack(*each) for each in _program(types, is_raw=is_raw))
    )
    address, octets = program.buffer_info()
    with contextlib.suppress(OSError):
        opened.setsockopt(
            socket.SOL_SOCKET,
            _SO_ATTACH_FILTER,
            struct.pack("HP", octets // _INSTRUCTION.size, address),
        )
