"""From packets in order to APDUs (RFC 3208 9.2), and to the ranges that make none.

A fragmented APDU is known by its First Sequence Number and its length, and it is whole when that many octets are there. The
offset is not asked: OpenPGM's is wrong in every APDU but the first (:class:`~srmp_spark.pgm.packets.Fragment`). A packet begins
an APDU if it bears the First Sequence Number, or the offset 0 of a source that fills that field otherwise.
"""

from __future__ import annotations

from srmp_spark.pgm.addresses import SessionKey
from srmp_spark.pgm.limits import APDU_MAX
from srmp_spark.pgm.outputs import Apdu, DataLost, LossReason, Output
from srmp_spark.pgm.packets import Data, Fragment
from srmp_spark.pgm.sequence import unwrap, wrap


class Assembler:
    """Takes every number of a session, in order: received or lost. Its memory is one APDU, at most APDU_MAX octets."""

    def __init__(self, session: SessionKey, first: int, out: list[Output]) -> None:
        self._session = session
        self._joined_at = first
        self._out = out
        self._begin = first
        self._of: Fragment | None = None
        """The first fragment of the APDU that is being assembled, from number :attr:`_begin`."""
        self._octets = bytearray()
        self._loss: tuple[int, int, LossReason] | None = None
        """Not told yet: it may go on."""

    def received(self, number: int, data: Data) -> None:
        """The next number."""
        fragment = data.options.fragment
        if fragment is None and self._of is None and self._loss is None:  # nearly all of them
            wire = wrap(number)
            self._out.append(Apdu(self._session, wire, wire, data.payload))
            return
        if fragment is None or len(data.payload) == fragment.length:
            self._break_off(number)
            self._tell(number, number, data.payload)
            return
        of = self._of
        if of is None or (fragment.first, fragment.length) != (of.first, of.length):
            self._break_off(number)
            reason = self._why_not(number, fragment)
            if reason is not None:
                self._add_loss(number, number, reason)
                return
            self._begin, self._of = number, fragment
        self._octets += data.payload
        if len(self._octets) > fragment.length:
            begin = self._begin
            self._clear()
            self._add_loss(begin, number, LossReason.BROKEN)
        elif len(self._octets) == fragment.length:
            begin, apdu = self._begin, bytes(self._octets)
            self._clear()
            self._tell(begin, number, apdu)

    def _why_not(self, number: int, fragment: Fragment) -> LossReason | None:
        """Why no APDU can begin with this fragment."""
        if fragment.length > APDU_MAX:
            return LossReason.TOO_LARGE
        if fragment.first == wrap(number) or fragment.offset == 0:
            return None
        return (
            LossReason.JOINED
            if unwrap(fragment.first, number) < self._joined_at
            else LossReason.INCOMPLETE
        )

    def lost(self, first: int, last: int, reason: LossReason) -> None:
        """The next numbers, which will not come."""
        self._break_off(first)
        self._add_loss(first, last, reason)

    def finish(self, next_number: int, reason: LossReason) -> None:
        """No number comes any more from ``next_number`` on: an APDU of which a part came is lost for ``reason``."""
        self._break_off(next_number, reason)
        self.flush()

    def flush(self) -> None:
        """Tell the loss that may still go on: nobody knows when the next packet comes."""
        if self._loss is not None:
            first, last, reason = self._loss
            self._loss = None
            self._out.append(DataLost(self._session, wrap(first), wrap(last), reason))

    def _break_off(self, number: int, reason: LossReason = LossReason.INCOMPLETE) -> None:
        if self._of is not None:
            begin = self._begin
            self._clear()
            self._add_loss(begin, number - 1, reason)

    def _clear(self) -> None:
        self._of = None
        self._octets.clear()

    def _add_loss(self, first: int, last: int, reason: LossReason) -> None:
        if self._loss is not None and self._loss[2] is reason:
            self._loss = (self._loss[0], last, reason)
            return
        self.flush()
        self._loss = (first, last, reason)

    def _tell(self, first: int, last: int, apdu: bytes) -> None:
        self.flush()
        self._out.append(Apdu(self._session, wrap(first), wrap(last), apdu))
