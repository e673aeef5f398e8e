"""Assembles packets in order to APDUs (RFC 3208 9.2), and reports what forms no APDU.

A fragmented APDU is identified by its First Sequence Number and its length. The APDU is complete
when that many octets are there. The offset is not used, because OpenPGM's offset is wrong in every
APDU but the first (:class:`~srmp_spark.pgm.wire.packets.Fragment`). A packet begins an APDU if its
number is the First Sequence Number. A packet with offset 0 begins an APDU too, because some sources
fill the field differently.
"""

from __future__ import annotations

from srmp_spark.pgm.outputs import Apdu, DataLost, LossReason, Output
from srmp_spark.pgm.wire.addresses import SessionKey
from srmp_spark.pgm.wire.limits import APDU_MAX
from srmp_spark.pgm.wire.packets import Data, Fragment
from srmp_spark.pgm.wire.sequence import unwrap, wrap


class Assembler:
    """Assembles the packets of one session, received or lost, to APDUs and losses.

    The caller passes every number in order. The assembler holds one incomplete APDU, at most
    APDU_MAX octets. Events are appended to the list ``out``.
    """

    def __init__(self, session: SessionKey, first: int, out: list[Output]) -> None:
        self._session = session
        self._joined_at = first
        self._out = out
        self._begin = first
        self._of: Fragment | None = None
        """First fragment of the APDU that is being assembled; its number is :attr:`_begin`."""
        self._octets = bytearray()
        self._loss: tuple[int, int, LossReason] | None = None
        """The loss that is not yet reported, because it may continue: first, last and reason."""

    def received(self, number: int, data: Data) -> None:
        """Process the data of the packet ``number``, which must be the next one.

        Complete APDUs and losses are appended to ``out``.
        """
        fragment = data.options.fragment
        # Nearly all packets are whole APDUs.
        if fragment is None and self._of is None and self._loss is None:
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
        """Return the reason why no APDU can begin with this fragment, or ``None`` if one can."""
        if fragment.length > APDU_MAX:
            return LossReason.TOO_LARGE
        if fragment.first == wrap(number) or fragment.offset == 0:
            return None
        return (
            LossReason.JOINED
            if unwrap(fragment.first, number) < self._joined_at
            else LossReason.INCOMPLETE
        )

    def add_loss(self, first: int, last: int, reason: LossReason) -> None:
        """Process the next numbers, ``first`` to ``last`` included, as lost for ``reason``.

        The loss is reported when it can no longer continue, or at :meth:`flush`.
        """
        self._break_off(first)
        self._add_loss(first, last, reason)

    def finish(self, next_number: int, reason: LossReason) -> None:
        """End the session, because no number from ``next_number`` on follows.

        An incomplete APDU is reported as lost for ``reason``, and a pending loss is reported.
        """
        self._break_off(next_number, reason)
        self.flush()

    def flush(self) -> None:
        """Report the pending loss now, although later lost numbers may continue it.

        The time of the next packet is unknown, so the report does not wait for that packet.
        """
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
