"""The two transfer syntaxes, and the identifiers that name them in a bind ([MS-RPCE] 2.2.4.12, 2.2.5.1)."""

from __future__ import annotations

from enum import Enum


class TransferSyntax(Enum):
    """How parameters become bytes. Both are little-endian here: a peer that says otherwise is refused before its stub is
    read."""

    NDR = ("8a885d04-1ceb-11c9-9fe8-08002b104860", 2)
    NDR64 = ("71710533-beba-4937-8319-b5dbef9ccc36", 1)

    def __init__(self, uuid: str, version: int) -> None:
        self.uuid = uuid
        self.version = version


NDR, NDR64 = TransferSyntax.NDR, TransferSyntax.NDR64


def aligned(at: int, size: int) -> int:
    """``at`` rounded up to a multiple of ``size``, a power of two."""
    return at + size - 1 & -size
