"""Queue names inside a packet: eight types, three layouts ([MS-MQMQ] 2.2.18.1.5, 2.2.18.1.7, table of 2.2.19.2).

Most of them leave out what the reader can know from the rest of the packet, such as the queue manager that sent it.
:func:`format_name` puts it back: the text that MSMQ calls a format name ([MS-MQMQ] 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from functools import lru_cache
from struct import Struct

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.guids import GUID_SIZE, guid_bytes, guid_text
from srmp_spark.mqrr.packets.limits import NAMES_REMEMBERED, U16_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, padded, read_wchars, require, write_wchars
from srmp_spark.names import NULL_GUID

_SECTION = "[MS-MQMQ] 2.2.19.2"
_U16, _U32 = Struct("<H"), Struct("<I")


class QueueNameType(IntEnum):
    """The values of UserHeader.Flags.DQ, AQ and RQ."""

    NONE = 0
    SAME_AS_ADMIN = 1
    """Of a response queue alone: it is the administration queue."""
    PRIVATE_ON_SOURCE = 2
    PRIVATE_ON_DESTINATION = 3
    PRIVATE_ON_ADMIN_HOST = 4
    """Of a response queue alone: on the queue manager that hosts the administration queue."""
    PUBLIC = 5
    PRIVATE_ELSEWHERE = 6
    DIRECT = 7


_T = QueueNameType
DESTINATION_TYPES = frozenset({_T.NONE, _T.PRIVATE_ON_DESTINATION, _T.PUBLIC, _T.DIRECT})
ADMIN_TYPES = DESTINATION_TYPES | {_T.PRIVATE_ON_SOURCE, _T.PRIVATE_ELSEWHERE}
RESPONSE_TYPES = frozenset(_T)
"""What may stand in each of the three places; anything else "MUST be treated as an error" ([MS-MQMQ] 2.2.19.2)."""
_BY_ID = (_T.PRIVATE_ON_SOURCE, _T.PRIVATE_ON_DESTINATION, _T.PRIVATE_ON_ADMIN_HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueName:
    """One queue name of a UserHeader. ``type`` says which of the other fields it has."""

    type: QueueNameType
    guid: str = NULL_GUID
    """Of the queue (``PUBLIC``), of its queue manager (``PRIVATE_ELSEWHERE``)."""
    private_id: int = 0
    """PrivateQueueIdentifier of the types with ``PRIVATE`` in their names: the number that its queue manager gave the queue."""
    direct: str = ""
    r"""``OS:host\private$\orders``: a direct format name without ``DIRECT=`` (``DIRECT``)."""

    def encode(self, before: int) -> bytes:
        """The bytes of the name, ``before`` bytes behind the beginning of its header.

        Raises :class:`LocalProtocolError` for a direct name of 65,536 bytes or more and for numbers out of their range.
        """
        if self.type is _T.DIRECT:
            return _encode_direct(self.direct, before % 4)
        if self.type is _T.PUBLIC:
            return guid_bytes(self.guid)
        if self.type in _BY_ID:
            return _U32.pack(fits(self.private_id, U32_MAX, "PrivateQueueIdentifier"))
        if self.type is _T.PRIVATE_ELSEWHERE:
            return guid_bytes(self.guid) + _U32.pack(
                fits(self.private_id, U32_MAX, "PrivateQueueIdentifier")
            )
        return b""


@lru_cache(NAMES_REMEMBERED)
def _encode_direct(direct: str, before: int) -> bytes:
    name = write_wchars(direct)
    size = _U16.size + len(name)
    count = fits(len(name), U16_MAX, "Count of a direct format name")
    return _U16.pack(count) + name + bytes(padded(before + size) - before - size)


NO_QUEUE = QueueName(type=_T.NONE)
SAME_AS_ADMIN = QueueName(type=_T.SAME_AS_ADMIN)


def direct_queue(name: str) -> QueueName:
    """``OS:host\\private$\\orders`` as a queue name."""
    return QueueName(type=_T.DIRECT, direct=name)


def parse_queue_name(
    kind: int, allowed: frozenset[QueueNameType], data: bytes, start: int, at: int, end: int
) -> tuple[QueueName, int]:
    """The name of type ``kind`` at ``at``, in a header that begins at ``start``; and where the next field begins.

    Raises :class:`RemoteProtocolError` for a type that may not stand here and for a name that does not fit.
    """
    if kind not in allowed:
        raise RemoteProtocolError(f"queue name type {kind} may not stand here", section=_SECTION)
    if kind == _T.DIRECT:
        require(at, _U16.size, end, "Count of a direct format name", _SECTION)
        (size,) = _U16.unpack_from(data, at)
        at += _U16.size
        require(at, size, end, "a direct format name", "[MS-MQMQ] 2.2.18.1.5.2")
        if size % 2:
            raise RemoteProtocolError(
                f"a direct format name of {size} bytes: WCHARs have two",
                section="[MS-MQMQ] 2.2.18.1.5.2",
            )
        name = direct_queue(read_wchars(data, at, size // 2))
        return name, start + padded(at + size - start)
    if kind in (_T.NONE, _T.SAME_AS_ADMIN):
        return (NO_QUEUE if kind == _T.NONE else SAME_AS_ADMIN), at
    guid, number = NULL_GUID, 0
    if kind in (_T.PUBLIC, _T.PRIVATE_ELSEWHERE):
        require(at, GUID_SIZE, end, "the GUID of a queue name", _SECTION)
        guid = guid_text(data[at : at + GUID_SIZE])
        at += GUID_SIZE
    if kind != _T.PUBLIC:
        require(at, _U32.size, end, "PrivateQueueIdentifier", _SECTION)
        (number,) = _U32.unpack_from(data, at)
        at += _U32.size
    return QueueName(type=QueueNameType(kind), guid=guid, private_id=number), at


def format_name(
    name: QueueName, *, source: str, destination: str, admin: QueueName = NO_QUEUE
) -> str | None:
    """The format name of a queue in a packet; ``None`` if there is none or if the packet does not say where it is.

    ``source`` and ``destination`` are the GUIDs of the two queue managers, ``admin`` the administration queue, for a response
    queue that is named after it.
    """
    if name.type is _T.SAME_AS_ADMIN:
        return format_name(admin, source=source, destination=destination)
    if name.type is _T.NONE:
        return None
    if name.type is _T.DIRECT:
        return f"DIRECT={name.direct}"
    if name.type is _T.PUBLIC:
        return f"PUBLIC={name.guid}"
    if name.type is _T.PRIVATE_ON_SOURCE:
        host: str | None = source
    elif name.type is _T.PRIVATE_ON_DESTINATION:
        host = destination
    elif name.type is _T.PRIVATE_ELSEWHERE:
        host = name.guid
    else:
        host = _host_of(admin, source=source, destination=destination)
    return None if host in (None, NULL_GUID) else f"PRIVATE={host}\\{name.private_id:08x}"


def _host_of(admin: QueueName, *, source: str, destination: str) -> str | None:
    """The queue manager of an administration queue, where its name says it: a public or direct one does not."""
    hosts = {
        _T.PRIVATE_ON_SOURCE: source,
        _T.PRIVATE_ON_DESTINATION: destination,
        _T.PRIVATE_ELSEWHERE: admin.guid,
    }
    return hosts.get(admin.type)


def require_type(name: QueueName, allowed: frozenset[QueueNameType], place: str) -> int:
    """The type of ``name``, which must be one that ``place`` may have. Raises :class:`LocalProtocolError`."""
    if name.type not in allowed:
        raise LocalProtocolError(f"{place} may not be of type {name.type.name}")
    return name.type
