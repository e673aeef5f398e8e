"""The actions of a read: which message it selects and what it does with the message.

The numbers are those of ulAction ([MS-MQRR] 3.1.4.7).
"""

from __future__ import annotations

from enum import IntEnum


class Action(IntEnum):
    """The values of ulAction ([MS-MQRR] 3.1.4.7)."""

    RECEIVE = 0x00000000
    PEEK_CURRENT = 0x80000000
    PEEK_NEXT = 0x80000001
    LOOKUP_PEEK_CURRENT = 0x40000010
    LOOKUP_PEEK_NEXT = 0x40000011
    LOOKUP_PEEK_PREV = 0x40000012
    LOOKUP_RECEIVE_CURRENT = 0x40000020
    LOOKUP_RECEIVE_NEXT = 0x40000021
    LOOKUP_RECEIVE_PREV = 0x40000022


_A = Action
LOOKUPS = frozenset(action for action in Action if action & 0x40000000)
RECEIVES = frozenset(
    (_A.RECEIVE, _A.LOOKUP_RECEIVE_CURRENT, _A.LOOKUP_RECEIVE_NEXT, _A.LOOKUP_RECEIVE_PREV)
)
