"""The checksum of a packet (RFC 3208 8).

The RFC defines it as "the usual 1's complement of the 1's complement sum of the entire PGM packet".
A one's complement sum of 16-bit words is the number itself modulo 65,535. Python divides one long
number faster than it adds a thousand short ones (2.3 microseconds against 9 for 1,428 octets). 2^16
is 1 modulo 65,535, so a number can first be folded at any whole word, and adding is cheaper than
dividing (1.5 microseconds). Sums of pieces that begin at an even octet can be added, so a payload
is summed once for the packet and all its repairs.
"""

from __future__ import annotations

_ONES = 0xFFFF
_FOLDED_FROM = 256
"""Size in octets above which a number is folded first; below, one division is faster."""
_HALF, _QUARTER, _EIGHTH = 5_760, 2_880, 1_440
"""Bits at which a number is folded, in whole words.

The numbers are parts of the 1,440 octets of a packet on Ethernet. Longer packets are summed as
well, but slower.
"""
_HALF_ONES, _QUARTER_ONES, _EIGHTH_ONES = 2**_HALF - 1, 2**_QUARTER - 1, 2**_EIGHTH - 1


def sum_of(data: bytes) -> int:
    """Return the one's complement sum of ``data``, as a number from 0 to 65,534.

    An odd last octet counts as the high half of a word.
    """
    number = int.from_bytes(data, "big")
    if len(data) & 1:
        number <<= 8
    if len(data) > _FOLDED_FROM:
        number = (number >> _HALF) + (number & _HALF_ONES)
        number = (number >> _QUARTER) + (number & _QUARTER_ONES)
        number = (number >> _EIGHTH) + (number & _EIGHTH_ONES)
    return number % _ONES


def checksum(total: int) -> int:
    """Return the checksum field of a packet whose octets sum up to ``total``.

    The field itself counts as zero in ``total``. The result is never 0, which means that there is
    no checksum: "If the computed checksum is zero, it is transmitted as all ones".
    """
    return ~(total % _ONES) & _ONES


def is_good(packet: bytes) -> bool:
    """Return whether a packet with a checksum is intact, by that checksum."""
    return sum_of(packet) == 0
