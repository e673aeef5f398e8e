"""The packets of RFC 3208 8, 13.6 and 14.7 as values, with the names of the RFC.

The layout of the packets is in :mod:`.decoder`. ``destination_port`` is always the Data-Destination
Port. A packet that is sent upstream (NAK, NNAK, SPMR, POLR) has the two ports in the opposite order
on the network. Sequence numbers are 32-bit numbers, as in a packet; ``trail`` and ``lead`` are the
oldest and the newest number of the source's window.

The packets are named tuples, not dataclasses: a stream has about ten thousand packets a second, and
a frozen dataclass takes five times as long to create.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from srmp_spark.pgm.wire.addresses import Nla, Tsi


class PacketType(IntEnum):
    """Type of a packet: the low-order nibble of the Type field."""

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
    """First Sequence Number: the number of the APDU's first packet."""
    offset: int
    """OPT_FRAG_OFF in octets.

    Do not rely on it: OpenPGM continues to count from one APDU to the next (tests/data/pgm).
    """
    length: int
    """OPT_FRAG_LEN: octets of the whole APDU."""


class Reset(NamedTuple):
    """OPT_RST (9.8): the source aborts the session."""

    no_naks: bool = True
    """The N bit: the source no longer answers NAKs."""
    error_code: int = 0
    """Reason of the reset, defined by the sending application; 0 means unknown."""


class Options(NamedTuple):
    """The options that have a meaning for a source or a receiver without parity.

    All other options are ignored.
    """

    fragment: Fragment | None = None
    """OPT_FRAGMENT, on ODATA and RDATA."""
    nak_list: tuple[int, ...] = ()
    """OPT_NAK_LIST (9.3), on NAK, NNAK and NCF: further numbers after the one in the header."""
    join: int | None = None
    """OPT_JOIN (9.4), on SPM, ODATA and RDATA: oldest number that a late receiver may request."""
    syn: bool = False
    """OPT_SYN (9.6), on ODATA and RDATA: this packet is the first of the session."""
    fin: bool = False
    """OPT_FIN (9.7), on SPM, ODATA and RDATA: the session ends with this packet.

    On an SPM no new data follow.
    """
    reset: Reset | None = None
    """OPT_RST (9.8), on SPM: the source aborts the session."""


NO_OPTIONS = Options()


class Spm(NamedTuple):
    """A source path message (8.1), which announces the window and the path to a source."""

    tsi: Tsi
    destination_port: int
    sequence_number: int
    """SPM_SQN: number of this SPM. SPMs have a sequence of their own."""
    trail: int
    lead: int
    path: Nla
    """SPM_PATH: the address to which NAKs are sent."""
    options: Options = NO_OPTIONS

    @property
    def has_window(self) -> bool:
        """Return whether this SPM states the window of its source.

        8.1: "If SPM_TRAIL == 0 and SPM_LEAD == 0x80000000, this indicates that no window
        information is present".
        """
        return self.trail != 0 or self.lead != 0x80000000


class Data(NamedTuple):
    """One ODATA packet, or one RDATA packet that repairs an ODATA packet (8.2)."""

    is_repair: bool
    tsi: Tsi
    destination_port: int
    sequence_number: int
    trail: int
    payload: bytes
    options: Options = NO_OPTIONS


class Nak(NamedTuple):
    """One NAK, NNAK or NCF (8.3): requests missing numbers, or confirms such a request."""

    type: PacketType
    tsi: Tsi
    destination_port: int
    sequence_number: int
    source: Nla
    """NAK_SRC: address of the source of the missing data."""
    group: Nla
    """NAK_GRP: address of the multicast group."""
    options: Options = NO_OPTIONS

    @property
    def numbers(self) -> tuple[int, ...]:
        """Return all sequence numbers that are requested or confirmed, that of the header first."""
        return (self.sequence_number, *self.options.nak_list)


class Spmr(NamedTuple):
    """A request for an SPM (13.6)."""

    tsi: Tsi
    destination_port: int


class Poll(NamedTuple):
    """A poll request (14.7.1), which is decoded but never answered.

    [MC-MQSRM] 2.1.3 does not include section 14.
    """

    tsi: Tsi
    destination_port: int
    sequence_number: int
    round: int
    sub_type: int
    path: Nla
    back_off_us: int
    """POLL_BO_IVL: range of the random back-off of answers, in microseconds."""
    random: int
    mask: int


class Polr(NamedTuple):
    """The answer to a poll request (14.7.2), which is decoded but not used."""

    tsi: Tsi
    destination_port: int
    sequence_number: int
    round: int


Packet = Spm | Data | Nak | Spmr | Poll | Polr
