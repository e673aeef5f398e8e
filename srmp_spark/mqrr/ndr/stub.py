"""Parts that all stubs share: the check before each read, and layouts of both syntaxes."""

from __future__ import annotations

from struct import Struct
from typing import Any, NamedTuple

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.guids import GUID_SIZE, NULL_GUID_BYTES
from srmp_spark.mqrr.packets.wire import fits

U8_MAX, U16_MAX, U32_MAX, U64_MAX = 0xFF, 0xFFFF, 0xFFFFFFFF, 2**64 - 1


class ContextHandle(NamedTuple):
    """A context handle on the wire (C706 appendix N.1).

    A handle holds attributes, which are always 0, and a UUID that the server chose.
    """

    attributes: int
    uuid: bytes

    @property
    def is_null(self) -> bool:
        """Return whether this is the null handle, whose UUID is zero.

        A successful close returns the null handle.
        """
        return self.uuid == NULL_GUID_BYTES

    def __repr__(self) -> str:
        return f"ContextHandle({self.attributes}, {self.uuid.hex()})"


NULL_HANDLE = ContextHandle(0, NULL_GUID_BYTES)
_HANDLE = Struct("<I16s")


def read_handle(data: bytes) -> ContextHandle:
    """Return the context handle in ``data``, which the caller has cut to exactly 20 bytes."""
    return ContextHandle(*_HANDLE.unpack(data))


def write_handle(handle: ContextHandle) -> bytes:
    """Return a context handle as 20 bytes.

    Raises :class:`LocalProtocolError` if the UUID does not have 16 bytes or the attributes do not
    fit into 32 bits.
    """
    if len(handle.uuid) != GUID_SIZE:
        raise LocalProtocolError(
            f"the UUID of a context handle has {GUID_SIZE} bytes, not {len(handle.uuid)}"
        )
    return _HANDLE.pack(fits(handle.attributes, U32_MAX, "context_handle_attributes"), handle.uuid)


def need(stub: bytes, at: int, size: int, what: str) -> None:
    """Raise :class:`BadStubError` if fewer than ``size`` bytes follow offset ``at`` of the stub.

    The byte at offset ``at`` counts too. ``what`` names the missing part in the error.
    """
    if size > len(stub) - at:
        raise BadStubError(
            f"{what} needs {size} bytes and {max(0, len(stub) - at)} are left in the stub",
            section="[MS-RPCE] 3.1.1.5.3.2.2.3",
        )


def unpack(layout: Struct, stub: bytes, what: str) -> tuple[Any, ...]:
    """Return the fields at the beginning of ``stub``, as ``layout`` describes them.

    Bytes after the fields are ignored. Raises :class:`BadStubError` if bytes are missing; ``what``
    names the missing part.
    """
    need(stub, 0, layout.size, what)
    return layout.unpack_from(stub)
