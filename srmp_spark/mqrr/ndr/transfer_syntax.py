"""The two transfer syntaxes and their identifiers in a bind ([MS-RPCE] 2.2.4.12, 2.2.5.1)."""

from __future__ import annotations

from enum import Enum


class TransferSyntax(Enum):
    """The two ways to encode parameters, with the UUID and version of each in a bind.

    Both syntaxes are little-endian in this package: a peer with another byte order is refused
    before its stub is read.
    """

    NDR = ("8a885d04-1ceb-11c9-9fe8-08002b104860", 2)
    NDR64 = ("71710533-beba-4937-8319-b5dbef9ccc36", 1)

    def __init__(self, uuid: str, version: int) -> None:
        self.uuid = uuid
        self.version = version


NDR, NDR64 = TransferSyntax.NDR, TransferSyntax.NDR64


def aligned(at: int, size: int) -> int:
    """Return ``at`` rounded up to a multiple of ``size``, which is a power of two."""
    return at + size - 1 & -size
