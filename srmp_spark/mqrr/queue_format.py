r"""QUEUE_FORMAT: which queue a client opens ([MS-MQMQ] 2.2.7), and format names as text ([MS-MQMQ] 2.1).

====================================  ==============  ========================================================================
format name                           m_qft           what is opened
====================================  ==============  ========================================================================
``DIRECT=OS:host\private$\orders``    3               a queue; ``TCP:`` with an address instead of ``OS:``
``DIRECT=OS:host\orders;retry``       8, suffix 5     a subqueue
``PUBLIC=guid``, ``PRIVATE=guid\1f``  1, 2            a queue by the number of the directory, or of its queue manager
``MACHINE=guid;DEADLETTER``           4               a queue of the machine, which needs a suffix
====================================  ==============  ========================================================================

``;JOURNAL``, ``;DEADLETTER`` and ``;DEADXACT`` become a suffix with the system flag 0x80. Of a direct name the ABNF keeps them
in the text as well, so both are sent; a reader should accept either. What cannot be read is refused here: HTTP, multicast,
distribution list and connector names, and several names in one.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.names import NULL_GUID, parse_guid

SYSTEM = 0x80
"""QUEUE_FORMAT_FLAG_SYSTEM."""


class QueueFormatType(IntEnum):
    """QUEUE_FORMAT_TYPE ([MS-MQMQ] 2.2.6)."""

    UNKNOWN = 0
    PUBLIC = 1
    PRIVATE = 2
    DIRECT = 3
    MACHINE = 4
    CONNECTOR = 5
    DL = 6
    MULTICAST = 7
    SUBQUEUE = 8


class QueueSuffix(IntEnum):
    """QUEUE_SUFFIX_TYPE ([MS-MQMQ] 2.2.11)."""

    NONE = 0
    JOURNAL = 1
    DEADLETTER = 2
    DEADXACT = 3
    XACTONLY = 4
    SUBQUEUE = 5


_T, _S = QueueFormatType, QueueSuffix
READABLE = frozenset({_T.PUBLIC, _T.PRIVATE, _T.DIRECT, _T.MACHINE, _T.SUBQUEUE})
"""What a remote read opens ([MS-MQRR] 2.2.3)."""

# The table of [MS-MQMQ] 2.2.7: flags that a suffix needs, and the types that it may not stand with.
_SUFFIX_RULES: dict[int, tuple[int | None, frozenset[int]]] = {
    _S.NONE: (0, frozenset({_T.MACHINE})),
    _S.JOURNAL: (SYSTEM, frozenset({_T.CONNECTOR, _T.DL, _T.MULTICAST})),
    _S.DEADLETTER: (SYSTEM, frozenset({_T.PUBLIC, _T.PRIVATE, _T.CONNECTOR, _T.DL, _T.MULTICAST})),
    _S.DEADXACT: (SYSTEM, frozenset(_T) - {_T.DIRECT, _T.MACHINE}),
    _S.XACTONLY: (None, frozenset(_T) - {_T.CONNECTOR}),
    _S.SUBQUEUE: (0, frozenset(_T) - {_T.SUBQUEUE}),
}


class QueueFormat(NamedTuple):
    """One QUEUE_FORMAT; ``type`` says which of the other fields it has."""

    type: int
    suffix_and_flags: int = 0
    guid: str = NULL_GUID
    """``PUBLIC``, ``PRIVATE``, ``MACHINE``, ``CONNECTOR``, ``DL``."""
    number: int = 0
    """``PRIVATE``: OBJECTID.Uniquifier; ``MULTICAST``: the port."""
    address: int = 0
    """``MULTICAST``: the IP address as a number."""
    text: str = ""
    """``DIRECT``, ``SUBQUEUE``: the direct name without ``DIRECT=``; ``DL``: the domain."""

    @property
    def suffix(self) -> int:
        """The low four bits."""
        return self.suffix_and_flags & 0x0F

    @property
    def flags(self) -> int:
        """The high four bits."""
        return self.suffix_and_flags & 0xF0

    def violation(self) -> str | None:
        """Which rule for suffix, flags and type it breaks ([MS-MQMQ] 2.2.7); ``None``: none. A server refuses such a name."""
        rule = _SUFFIX_RULES.get(self.suffix)
        if rule is None:
            return f"suffix type {self.suffix} is unknown"
        flags, without = rule
        if self.type in without:
            return f"{_T(self.type).name} has no suffix {_S(self.suffix).name}"
        if flags is not None and self.flags != flags:
            return (
                f"suffix {_S(self.suffix).name} goes with flags {flags:#04x}, not {self.flags:#04x}"
            )
        return None


_SUFFIXED = {
    _S.JOURNAL.name: _S.JOURNAL,
    _S.DEADLETTER.name: _S.DEADLETTER,
    _S.DEADXACT.name: _S.DEADXACT,
}
_KIND = re.compile(r"(DIRECT|PUBLIC|PRIVATE|MACHINE)=(.+)", re.IGNORECASE | re.DOTALL)
_DIRECT = re.compile(
    r"(?:TCP|OS):[^\\/;,\s]{1,256}\\[^;,+\"]{1,140}(?:;[^;\\,+\"\s]{1,32})?", re.IGNORECASE
)
_MACHINE_QUEUE = re.compile(
    r"(?:TCP|OS):[^\\/;,\s]{1,256}\\SYSTEM\$;(?:JOURNAL|DEADLETTER|DEADXACT)", re.IGNORECASE
)


def queue_format_of(name: str) -> QueueFormat:
    r"""The QUEUE_FORMAT of a format name, ``DIRECT=OS:host\private$\orders`` or one of the others in the module's table.

    Raises :class:`ConfigurationError` for what is no format name, and for those that nobody can read from.
    """
    match = _KIND.fullmatch(name.strip())
    if match is None:
        raise ConfigurationError(
            f"queue {name[:200]!r} cannot be read: give DIRECT=OS:HOST\\QUEUE, "
            "DIRECT=TCP:ADDRESS\\QUEUE, "
            "PUBLIC=, PRIVATE= or MACHINE="
        )
    kind, rest = match[1].upper(), match[2]
    if kind == "DIRECT":
        return _direct(name, rest)
    base, semicolon, word = rest.partition(";")
    suffix = _SUFFIXED.get(word.upper(), _S.NONE)
    if semicolon and suffix is _S.NONE:
        raise ConfigurationError(
            f"queue {name[:200]!r}: behind the semicolon stands JOURNAL, DEADLETTER or DEADXACT"
        )
    guid, _, number = base.partition("\\")
    try:
        queue = QueueFormat(
            _T[kind],
            _with_flag(suffix),
            parse_guid(guid),
            _hexadecimal(number) if kind == "PRIVATE" else 0,
        )
    except (RemoteProtocolError, ValueError) as error:
        raise ConfigurationError(f"queue {name[:200]!r}: {error}") from None
    if kind != "PRIVATE" and number:
        raise ConfigurationError(
            f"queue {name[:200]!r}: only PRIVATE= has a number behind its GUID"
        )
    if (broken := queue.violation()) is not None:
        raise ConfigurationError(
            f"queue {name[:200]!r}: {broken}; MACHINE= needs ;JOURNAL, ;DEADLETTER or ;DEADXACT"
        )
    return queue


def _direct(name: str, text: str) -> QueueFormat:
    if _MACHINE_QUEUE.fullmatch(text):
        return QueueFormat(
            _T.DIRECT, _with_flag(_SUFFIXED[text.rpartition(";")[2].upper()]), text=text
        )
    if not _DIRECT.fullmatch(text):
        raise ConfigurationError(
            f"queue {name[:200]!r} cannot be read: a direct name is OS:HOST\\QUEUE or "
            "TCP:ADDRESS\\QUEUE, "
            "the queue with private$\\ before it or not"
        )
    _, semicolon, word = text.partition(";")
    if not semicolon:
        return QueueFormat(_T.DIRECT, text=text)
    if word.upper() == "JOURNAL":
        return QueueFormat(_T.DIRECT, _with_flag(_S.JOURNAL), text=text)
    return QueueFormat(_T.SUBQUEUE, _S.SUBQUEUE, text=text)


def _with_flag(suffix: QueueSuffix) -> int:
    return suffix | SYSTEM if suffix is not _S.NONE else 0


def _hexadecimal(text: str) -> int:
    if not re.fullmatch(r"[0-9A-Fa-f]{1,8}", text):
        raise ValueError(f"PRIVATE= ends with 1 to 8 hexadecimal digits, not {text[:20]!r}")
    return int(text, 16)


DEADLETTER_QUEUE, DEADXACT_QUEUE = "deadletter$", "deadxact$"
"""What users write for the two dead-letter queues of a machine: names of the state tables, too."""


def queue_format_for(host: str, queue: str) -> QueueFormat:
    """The QUEUE_FORMAT of options ``host`` and ``queue``: ``private$\\orders``, ``orders;JOURNAL``, ``private$\\orders;sub``,
    ``deadletter$``.

    ``host`` is a name, or an address with dots, which is sent as ``TCP:``. A whole format name is taken as it is. Raises
    :class:`ConfigurationError` for what nobody can read from.
    """
    if _KIND.fullmatch(queue.strip()):
        return queue_format_of(queue)
    name = queue.strip().replace("/", "\\")
    machine = {DEADLETTER_QUEUE: "SYSTEM$;DEADLETTER", DEADXACT_QUEUE: "SYSTEM$;DEADXACT"}.get(
        name.lower(), name
    )
    protocol = "TCP" if re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", host) else "OS"
    return queue_format_of(f"DIRECT={protocol}:{host}\\{machine}")


def format_name_of(queue: QueueFormat) -> str:
    """The format name of a queue that a client wants to open, for logs and messages; whatever it holds."""
    word = (
        f";{_S(queue.suffix).name}"
        if queue.suffix in (_S.JOURNAL, _S.DEADLETTER, _S.DEADXACT)
        else ""
    )
    if queue.type in (_T.DIRECT, _T.SUBQUEUE):
        return f"DIRECT={queue.text}" + ("" if queue.text.upper().endswith(word) else word)
    if queue.type == _T.PRIVATE:
        return f"PRIVATE={queue.guid}\\{queue.number:x}{word}"
    if queue.type == _T.MULTICAST:
        octets = ".".join(str(octet) for octet in queue.address.to_bytes(4, "little"))
        return f"MULTICAST={octets}:{queue.number}"
    if queue.type == _T.DL:
        return f"DL={queue.guid}" + (f"@{queue.text}" if queue.text else "")
    if queue.type in (_T.PUBLIC, _T.MACHINE, _T.CONNECTOR):
        return f"{_T(queue.type).name}={queue.guid}{word}"
    return f"QUEUE_FORMAT of type {queue.type}"
