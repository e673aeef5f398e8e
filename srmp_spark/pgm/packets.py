"""The packets of RFC 3208 8, 13.6 and 14.7 as values, in the names of the RFC; what they look like is :mod:`.decoder`'s.

``destination_port`` is always the Data-Destination Port. On the wire a packet that goes upstream (NAK, NNAK, SPMR, POLR) has
the two ports the other way round. Numbers are those of the wire, 32 bits.

They are named tuples, not dataclasses: one is made for each packet of a stream of some ten thousand a second, and a frozen
dataclass costs five times as much to make.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from srmp_spark.pgm.addresses import Nla, Tsi


class PacketType(IntEnum):
    """The low-order nibble of Type."""

    SPM = 0x0
    POLL = 0x1
    POLR = 0x2
    ODATA = 0x4
    RDATA = 0x5
    NAK = 0x8
    NNAK = 0x9
    NCF = 0xA
    SPMR = 0xC


class Fragment(NamedTuple):
    """OPT_FRAGMENT (9.2): the place of a packet in its APDU."""

    first: int
    """First Sequence Number."""
    offset: int
    """OPT_FRAG_OFF, octets. Not to be relied on: OpenPGM goes on counting from one APDU to the next (tests/data/pgm)."""
    length: int
    """OPT_FRAG_LEN: octets of the whole APDU."""


class Reset(NamedTuple):
    """OPT_RST (9.8): the session is aborted."""

    no_naks: bool = True
    """The N bit: NAKs go unanswered."""
    error_code: int = 0
    """0 is an unknown reason."""


class Options(NamedTuple):
    """The options that mean something to a source or a receiver without parity; all others are passed over."""

    fragment: Fragment | None = None
    """On ODATA and RDATA."""
    nak_list: tuple[int, ...] = ()
    """OPT_NAK_LIST (9.3), on NAK, NNAK and NCF: more numbers, beside the one in the header."""
    join: int | None = None
    """OPT_JOIN (9.4), on SPM, ODATA and RDATA: the oldest number that a late receiver may ask for."""
    syn: bool = False
    """OPT_SYN (9.6), on ODATA and RDATA: the first of the session."""
    fin: bool = False
    """OPT_FIN (9.7), on SPM, ODATA and RDATA: the last of the session, or nothing comes after."""
    reset: Reset | None = None
    """OPT_RST (9.8), on SPM."""


NO_OPTIONS = Options()


class Spm(NamedTuple):
    """A source path message (8.1)."""

    tsi: Tsi
    destination_port: int
    sequence_number: int
    """SPM_SQN, a sequence of its own."""
    trail: int
    lead: int
    path: Nla
    """SPM_PATH: where NAKs go."""
    options: Options = NO_OPTIONS

    @property
    def has_window(self) -> bool:
        """8.1: "If SPM_TRAIL == 0 and SPM_LEAD == 0x80000000, this indicates that no window information is present"."""
        return self.trail != 0 or self.lead != 0x80000000


class Data(NamedTuple):
    """ODATA, or RDATA, its repair (8.2)."""

    is_repair: bool
    tsi: Tsi
    destination_port: int
    sequence_number: int
    trail: int
    payload: bytes
    options: Options = NO_OPTIONS


class Nak(NamedTuple):
    """NAK, NNAK or NCF (8.3)."""

    type: PacketType
    tsi: Tsi
    destination_port: int
    sequence_number: int
    source: Nla
    """NAK_SRC: who sent the data that is missing."""
    group: Nla
    """NAK_GRP."""
    options: Options = NO_OPTIONS

    @property
    def numbers(self) -> tuple[int, ...]:
        """All that are asked for, or confirmed."""
        return (self.sequence_number, *self.options.nak_list)


class Spmr(NamedTuple):
    """A request for an SPM (13.6)."""

    tsi: Tsi
    destination_port: int


class Poll(NamedTuple):
    """A poll request (14.7.1). [MC-MQSRM] 2.1.3 leaves section 14 out: it is read, and nobody answers it."""

    tsi: Tsi
    destination_port: int
    sequence_number: int
    round: int
    sub_type: int
    path: Nla
    back_off_us: int
    """POLL_BO_IVL, microseconds."""
    random: int
    mask: int


class Polr(NamedTuple):
    """A poll response (14.7.2)."""

    tsi: Tsi
    destination_port: int
    sequence_number: int
    round: int


Packet = Spm | Data | Nak | Spmr | Poll | Polr
