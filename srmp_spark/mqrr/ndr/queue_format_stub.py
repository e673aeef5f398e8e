r"""QUEUE_FORMAT in a stub ([MS-MQMQ] 2.2.7): a structure that is mostly a union.

===============  =========================================  ===================
 \               NDR                                        NDR64
===============  =========================================  ===================
aligned to       4                                          8
fields           m_qft u8, m_SuffixAndFlags u8,             the same, gap to 8
                 m_reserved u16
union            tag u8, gap to 4, arm                      tag u8, gap to 8,
                                                            arm, gap to 8
arm with a text  pointer u32, other members                 pointer u64
the text itself  after the structure: maximum, offset,      the same with u64
                 actual count u32, then WCHARs with a NUL
===============  =========================================  ===================

The gap after the arm appears only with ``PRIVATE``, whose arm has 20 bytes. [MS-RPCE] 2.2.5.3.4.1
demands these four bytes, and at least one independent client leaves them out. This module writes
them. When a stub is read, its length shows whether they are present.
"""

from __future__ import annotations

from struct import Struct

from srmp_spark.errors import LocalProtocolError
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.guids import guid_bytes, guid_text
from srmp_spark.mqrr.ndr.stub import U8_MAX, U32_MAX, need
from srmp_spark.mqrr.ndr.transfer_syntax import NDR64, TransferSyntax, aligned
from srmp_spark.mqrr.packets.wire import fits
from srmp_spark.mqrr.queue_format import QueueFormat, QueueFormatType

TEXT_WCHARS_MAX = 4_096
"""Longest direct name in WCHARs with its NUL.

A computer (256), a queue (124) and a subqueue (32) need fewer than 500. A longer name is refused.
"""
REFERENT = 0x00020000
"""First referent identifier of a stub. Any number other than 0 would do."""

_T = QueueFormatType
_GUID_ARMS = frozenset({_T.PUBLIC, _T.MACHINE, _T.CONNECTOR})
_TEXT_ARMS = frozenset({_T.DIRECT, _T.SUBQUEUE})
_HEAD = Struct("<BBHB")
_U32, _U64 = Struct("<I"), Struct("<Q")
_COUNTS, _COUNTS64 = Struct("<III"), Struct("<QQQ")
_PAIR = Struct("<II")


def write_queue_format(queue: QueueFormat, syntax: TransferSyntax, at: int = 0) -> bytes:
    """Return the bytes of ``queue`` for offset ``at`` of a stub, with the gap before them.

    The gap aligns them to 4 bytes, or 8 in NDR64. Raises :class:`LocalProtocolError` if the type is
    unknown, a value does not fit into its field, the text holds a NUL or the text is too long.
    """
    wide = syntax is NDR64
    size = 8 if wide else 4
    if queue.type not in _T.__members__.values():
        raise LocalProtocolError(f"QUEUE_FORMAT has no type {queue.type}")
    head = _HEAD.pack(
        queue.type, fits(queue.suffix_and_flags, U8_MAX, "m_SuffixAndFlags"), 0, queue.type
    )
    fields = head[:4] + bytes(size - 4) + head[4:] + bytes(size - 1)
    pointer = (_U64 if wide else _U32).pack(REFERENT)
    arm = text = b""
    if queue.type in _GUID_ARMS:
        arm = guid_bytes(queue.guid)
    elif queue.type == _T.PRIVATE:
        arm = (
            guid_bytes(queue.guid)
            + _U32.pack(fits(queue.number, U32_MAX, "Uniquifier"))
            + bytes(4 if wide else 0)
        )
    elif queue.type in _TEXT_ARMS:
        arm, text = pointer, _text(queue.text, wide)
    elif queue.type == _T.DL:
        arm, text = guid_bytes(queue.guid) + pointer, _text(queue.text, wide)
    elif queue.type == _T.MULTICAST:
        arm = _PAIR.pack(
            fits(queue.address, U32_MAX, "m_address"), fits(queue.number, U32_MAX, "m_port")
        )
    elif not wide:
        # There is no arm, and NDR leaves no gap where nothing follows.
        fields = fields[:5]
    return bytes(aligned(at, size) - at) + fields + arm + text


def _text(text: str, wide: bool) -> bytes:
    if "\0" in text:
        raise LocalProtocolError(
            f"a queue name ends with its first NUL, and one stands inside: {text[:50]!r}"
        )
    data = f"{text}\0".encode("utf-16-le", "surrogatepass")
    count = fits(len(data) // 2, TEXT_WCHARS_MAX, "WCHARs of a queue name")
    return (_COUNTS64 if wide else _COUNTS).pack(count, 0, count) + data


def read_queue_format(
    stub: bytes, at: int, syntax: TransferSyntax, *, fewest_behind: int
) -> tuple[QueueFormat, int]:
    """Return the QUEUE_FORMAT of a stub, and the offset of its end.

    The QUEUE_FORMAT begins at ``at``, rounded up to its alignment. ``fewest_behind`` is the least
    size of the parameters that follow, in bytes. By this size the function finds out whether an
    NDR64 ``PRIVATE`` is followed by its gap. Raises :class:`BadStubError` if the tag differs from
    m_qft, the type is unknown, counts do not agree or bytes are missing.
    """
    wide = syntax is NDR64
    size = 8 if wide else 4
    at = aligned(at, size)
    need(stub, at, size + 1, "QUEUE_FORMAT")
    kind, suffix_and_flags, tag = stub[at], stub[at + 1], stub[at + size]
    if tag != kind:
        raise BadStubError(
            f"the union of a QUEUE_FORMAT is tagged {tag} and m_qft is {kind}",
            section="[MS-RPCE] 3.1.1.5.3.2.1.11",
        )
    if kind == _T.UNKNOWN:
        gap = 2 * size if wide and len(stub) - at >= 2 * size + fewest_behind else size + 1
        return QueueFormat(kind, suffix_and_flags), at + gap
    at += 2 * size
    if kind in _GUID_ARMS:
        need(stub, at, 16, "the GUID of a QUEUE_FORMAT")
        return QueueFormat(kind, suffix_and_flags, guid_text(stub[at : at + 16])), at + 16
    if kind == _T.PRIVATE:
        need(stub, at, 20, "the OBJECTID of a QUEUE_FORMAT")
        queue = QueueFormat(
            kind,
            suffix_and_flags,
            guid_text(stub[at : at + 16]),
            _U32.unpack_from(stub, at + 16)[0],
        )
        gap = 4 if wide and len(stub) - at >= 24 + fewest_behind else 0
        return queue, at + 20 + gap
    if kind in _TEXT_ARMS:
        text, at = _read_text(stub, at, at + size, wide)
        return QueueFormat(kind, suffix_and_flags, text=text), at
    if kind == _T.DL:
        need(stub, at, 16, "the GUID of a QUEUE_FORMAT")
        text, end = _read_text(stub, at + 16, at + 16 + size, wide)
        return QueueFormat(kind, suffix_and_flags, guid_text(stub[at : at + 16]), text=text), end
    if kind == _T.MULTICAST:
        need(stub, at, 8, "the MULTICAST_ID of a QUEUE_FORMAT")
        address, port = _PAIR.unpack_from(stub, at)
        return QueueFormat(kind, suffix_and_flags, number=port, address=address), at + 8
    raise BadStubError(f"a QUEUE_FORMAT of type {kind}")


def _read_text(stub: bytes, pointer_at: int, at: int, wide: bool) -> tuple[str, int]:
    """Return the text of the pointer at ``pointer_at``, and the offset of its end.

    The text lies at offset ``at``. ``wide`` states that the stub is NDR64. A NULL pointer, which
    the interface allows, is an empty text. Raises :class:`BadStubError` if the counts do not agree,
    the text is too long, bytes are missing, or its NUL is not last.
    """
    need(stub, pointer_at, 8 if wide else 4, "the pointer to a queue name")
    if not (_U64 if wide else _U32).unpack_from(stub, pointer_at)[0]:
        return "", at
    counts = _COUNTS64 if wide else _COUNTS
    need(stub, at, counts.size, "the counts of a queue name")
    most, offset, actual = counts.unpack_from(stub, at)
    at += counts.size
    if offset or actual > most:
        raise BadStubError(
            f"a queue name of at most {most} WCHARs, {actual} of them from {offset} on",
            section="[MS-RPCE] 3.1.1.5.3.2.1.12",
        )
    if not 0 < actual <= TEXT_WCHARS_MAX:
        raise BadStubError(
            f"a queue name of {actual} WCHARs; it has 1 to {TEXT_WCHARS_MAX} with its NUL"
        )
    need(stub, at, 2 * actual, "a queue name")
    text = stub[at : at + 2 * actual].decode("utf-16-le", "surrogatepass")
    if text.find("\0") != len(text) - 1:
        raise BadStubError("a queue name whose NUL is not its last WCHAR")
    return text[:-1], at + 2 * actual
