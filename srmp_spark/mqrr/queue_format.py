r"""QUEUE_FORMAT: which queue a client opens ([MS-MQMQ] 2.2.7), and format names as text.

Format names as text are those of [MS-MQMQ] 2.1:

* ``DIRECT=OS:host\private$\orders`` has m_qft 3 and opens a queue. An address has ``TCP:`` instead
  of ``OS:``.
* ``DIRECT=OS:host\orders;retry`` has m_qft 8 and suffix 5, and opens a subqueue.
* ``PUBLIC=guid`` and ``PRIVATE=guid\1f`` have m_qft 1 and 2, and open a queue by its number in the
  directory or in its queue manager.
* ``MACHINE=guid;DEADLETTER`` has m_qft 4 and opens a queue of the machine, which needs a suffix.

``;JOURNAL``, ``;DEADLETTER`` and ``;DEADXACT`` become a suffix with the system flag 0x80. The ABNF
of a direct name keeps them in the text as well, so text and suffix are both sent; a reader should
accept either. This module refuses names that a remote read cannot open: HTTP, multicast,
distribution lists, connectors, and several names in one.
"""

from __future__ import annotations

import re
from enum import IntEnum
from typing import NamedTuple

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.names import NULL_GUID, parse_guid

SYSTEM = 0x80
"""QUEUE_FORMAT_FLAG_SYSTEM: the flag of a suffix that names a system queue."""


class QueueFormatType(IntEnum):
    """The values of QUEUE_FORMAT_TYPE ([MS-MQMQ] 2.2.6)."""

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
    """The values of QUEUE_SUFFIX_TYPE ([MS-MQMQ] 2.2.11)."""

    NONE = 0
    JOURNAL = 1
    DEADLETTER = 2
    DEADXACT = 3
    XACTONLY = 4
    SUBQUEUE = 5


_T, _S = QueueFormatType, QueueSuffix
READABLE = frozenset({_T.PUBLIC, _T.PRIVATE, _T.DIRECT, _T.MACHINE, _T.SUBQUEUE})
"""Types of queue that a remote read can open ([MS-MQRR] 2.2.3)."""

# The table of [MS-MQMQ] 2.2.7 gives for each suffix the flags that it needs and the types of queue
# that it must not be combined with.
_SUFFIX_RULES: dict[int, tuple[int | None, frozenset[int]]] = {
    _S.NONE: (0, frozenset({_T.MACHINE})),
    _S.JOURNAL: (SYSTEM, frozenset({_T.CONNECTOR, _T.DL, _T.MULTICAST})),
    _S.DEADLETTER: (SYSTEM, frozenset({_T.PUBLIC, _T.PRIVATE, _T.CONNECTOR, _T.DL, _T.MULTICAST})),
    _S.DEADXACT: (SYSTEM, frozenset(_T) - {_T.DIRECT, _T.MACHINE}),
    _S.XACTONLY: (None, frozenset(_T) - {_T.CONNECTOR}),
    _S.SUBQUEUE: (0, frozenset(_T) - {_T.SUBQUEUE}),
}


class QueueFormat(NamedTuple):
    """One QUEUE_FORMAT. ``type`` decides which of the other fields are used."""

    type: int
    suffix_and_flags: int = 0
    guid: str = NULL_GUID
    """GUID for ``PUBLIC``, ``PRIVATE``, ``MACHINE``, ``CONNECTOR`` and ``DL``."""
    number: int = 0
    """OBJECTID.Uniquifier for ``PRIVATE``; the port for ``MULTICAST``."""
    address: int = 0
    """IP address as a number, for ``MULTICAST``."""
    text: str = ""
    """Direct name without ``DIRECT=`` for ``DIRECT`` and ``SUBQUEUE``; the domain for ``DL``."""

    @property
    def suffix(self) -> int:
        """Return the suffix type: the low four bits of ``suffix_and_flags``."""
        return self.suffix_and_flags & 0x0F

    @property
    def flags(self) -> int:
        """Return the flags, which are ``suffix_and_flags`` without its low four bits.

        An example is :data:`SYSTEM` (0x80).
        """
        return self.suffix_and_flags & 0xF0

    def violation(self) -> str | None:
        """Return a text that names the rule that this name breaks; ``None`` if it breaks none.

        The rules are those of [MS-MQMQ] 2.2.7 for suffix, flags and type. A server refuses a name
        that breaks one.
        """
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
    r"""Return the QUEUE_FORMAT of a format name such as ``DIRECT=OS:host\private$\orders``.

    The table of the module lists the accepted forms. Raises :class:`ConfigurationError` if ``name``
    is no format name, or names something that a remote read cannot open.
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
            f"queue {name[:200]!r}: write JOURNAL, DEADLETTER or DEADXACT after the semicolon"
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
        raise ConfigurationError(f"queue {name[:200]!r}: only PRIVATE= has a number after its GUID")
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
"""Names by which users and the state tables call the two dead-letter queues of a machine."""


def queue_format_for(host: str, queue: str) -> QueueFormat:
    r"""Return the QUEUE_FORMAT for the options ``host`` and ``queue``.

    ``queue`` is a name such as ``private$\orders``, ``orders;JOURNAL``, ``private$\orders;sub`` or
    ``deadletter$``, or a whole format name, which is used unchanged. ``host`` is a name, or an IPv4
    address with dots, which is sent as ``TCP:``. Raises :class:`ConfigurationError` if a remote
    read cannot open the queue.
    """
    if _KIND.fullmatch(queue.strip()):
        return queue_format_of(queue)
    name = queue.strip().replace("/", "\\")
    machine = {DEADLETTER_QUEUE: "SYSTEM$;DEADLETTER", DEADXACT_QUEUE: "SYSTEM$;DEADXACT"}.get(
        name.lower(), name
    )
    protocol = "TCP" if re.fullmatch(r"\d{1,3}(?:\.\d{1,3}){3}", host) else "OS"
    return queue_format_of(f"DIRECT={protocol}:{host}\\{machine}")
