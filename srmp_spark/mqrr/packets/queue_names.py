"""Queue names inside a packet: eight types, three layouts ([MS-MQMQ] 2.2.18.1.5, 2.2.18.1.7).

Most types leave out what the reader knows from the rest of the packet, such as the queue manager
that sent the packet. The table of types is in [MS-MQMQ] 2.2.19.2. :func:`format_name` restores the
full text that MSMQ calls a format name ([MS-MQMQ] 2.1).
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
    """How a packet names a queue: the values of UserHeader.Flags.DQ, AQ and RQ."""

    NONE = 0
    SAME_AS_ADMIN = 1
    """Only for a response queue: the response queue is the administration queue."""
    PRIVATE_ON_SOURCE = 2
    PRIVATE_ON_DESTINATION = 3
    PRIVATE_ON_ADMIN_HOST = 4
    """Only for a response queue: a private queue of the administration queue's queue manager."""
    PUBLIC = 5
    PRIVATE_ELSEWHERE = 6
    DIRECT = 7


_T = QueueNameType
DESTINATION_TYPES = frozenset({_T.NONE, _T.PRIVATE_ON_DESTINATION, _T.PUBLIC, _T.DIRECT})
ADMIN_TYPES = DESTINATION_TYPES | {_T.PRIVATE_ON_SOURCE, _T.PRIVATE_ELSEWHERE}
RESPONSE_TYPES = frozenset(_T)
"""Types that a response queue may have.

This set and the two before it list the types of the three places. Any other type "MUST be treated
as an error" ([MS-MQMQ] 2.2.19.2).
"""
_BY_ID = (_T.PRIVATE_ON_SOURCE, _T.PRIVATE_ON_DESTINATION, _T.PRIVATE_ON_ADMIN_HOST)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueName:
    """One queue name of a UserHeader; ``type`` says which of the other fields are used."""

    type: QueueNameType
    guid: str = NULL_GUID
    """GUID of the queue (``PUBLIC``) or of its queue manager (``PRIVATE_ELSEWHERE``)."""
    private_id: int = 0
    """PrivateQueueIdentifier: the number that the queue's queue manager gave the queue.

    Used by the types with ``PRIVATE`` in their names.
    """
    direct: str = ""
    r"""``OS:host\private$\orders``: a direct format name without ``DIRECT=`` (type ``DIRECT``)."""

    def encode(self, before: int) -> bytes:
        """Encode the name, which begins ``before`` bytes after the start of the UserHeader.

        The padding of a direct name depends on that offset. Raises :class:`LocalProtocolError` if a
        direct name needs 65,536 bytes or more or contains a NUL, or if a number is out of range.
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
    r"""Return ``OS:host\private$\orders`` as a queue name of type ``DIRECT``."""
    return QueueName(type=_T.DIRECT, direct=name)


def parse_queue_name(
    kind: int, allowed: frozenset[QueueNameType], data: bytes, start: int, at: int, end: int
) -> tuple[QueueName, int]:
    """Parse the name of type ``kind`` at ``at``; return it and the offset of the next field.

    ``start`` is the offset of the header that contains the name. Raises
    :class:`RemoteProtocolError` if ``kind`` is not in ``allowed``, if the name is cut, or if a
    direct name has an odd number of bytes.
    """
    if kind not in allowed:
        raise RemoteProtocolError(f"queue name type {kind} is not allowed here", section=_SECTION)
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
    """Return the format name of a queue in a packet.

    Return ``None`` if there is no queue, or if the packet does not say where the queue is.
    ``source`` and ``destination`` are the GUIDs of the two queue managers. ``admin`` is the
    administration queue, which a response queue may refer to.
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
    """Return the GUID of the queue manager of the administration queue ``admin``.

    ``source`` and ``destination`` are the GUIDs of the message's two queue managers. Return
    ``None`` for a public or a direct name, because such a name does not contain the GUID.
    """
    hosts = {
        _T.PRIVATE_ON_SOURCE: source,
        _T.PRIVATE_ON_DESTINATION: destination,
        _T.PRIVATE_ELSEWHERE: admin.guid,
    }
    return hosts.get(admin.type)


def require_type(name: QueueName, allowed: frozenset[QueueNameType], place: str) -> int:
    """Return the type of ``name``.

    Raises :class:`LocalProtocolError` if the type is not in ``allowed``. ``place`` names the field
    in the error.
    """
    if name.type not in allowed:
        raise LocalProtocolError(f"{place} may not be of type {name.type.name}")
    return name.type
