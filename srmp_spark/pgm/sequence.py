"""Sequence numbers of 32 bits that wrap (RFC 3208 3.3), and the unbounded ones that the windows count with.

A number of the wire means the nearest of the unbounded numbers that end in it; :func:`unwrap` finds it by one that is known to
be near. So a window compares, subtracts and sorts plain integers, and the wrap at 2^32 is thought of here and nowhere else.
"""

from __future__ import annotations

SPACE = 2**32
_HALF = 2**31
_MASK = SPACE - 1


def unwrap(number: int, near: int) -> int:
    """The unbounded number that ends in ``number`` and is nearest to ``near``: from ``near - 2^31`` to ``near + 2^31 - 1``."""
    return near + ((number - near + _HALF) & _MASK) - _HALF


def wrap(number: int) -> int:
    """As it goes over the wire."""
    return number & _MASK


def span(first: int, last: int) -> int:
    """How many numbers the wire's ``first`` to ``last`` are, 0 if ``last`` is just before ``first``."""
    return (last - first + 1) & _MASK
