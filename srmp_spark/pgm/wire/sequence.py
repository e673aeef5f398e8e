"""Sequence numbers of 32 bits that wrap (RFC 3208 3.3), and unbounded numbers.

Windows use unbounded numbers. A 32-bit number of a packet stands for the nearest unbounded number
with the same low 32 bits. :func:`unwrap` finds that number with the help of a known number nearby.
So a window compares, subtracts and sorts plain integers, and only this module handles the wrap at
2^32.
"""

from __future__ import annotations

SPACE = 2**32
_HALF = 2**31
_MASK = SPACE - 1


def unwrap(number: int, near: int) -> int:
    """Return the unbounded number nearest to ``near`` whose low 32 bits are ``number``.

    The result lies between ``near - 2^31`` and ``near + 2^31 - 1``, both included.
    """
    return near + ((number - near + _HALF) & _MASK) - _HALF


def wrap(number: int) -> int:
    """Return the low 32 bits of an unbounded number, as they are sent in a packet."""
    return number & _MASK


def span(first: int, last: int) -> int:
    """Return how many numbers lie from ``first`` to ``last``, both included.

    Both are 32-bit numbers, and the range may wrap. The result is 0 if ``last`` is just before
    ``first``.
    """
    return (last - first + 1) & _MASK
