"""The transports by which messages leave, and how they differ.

The prefix of a destination says its transport: ``MULTICAST=`` is a multicast group, ``wsrm:`` a
service of WS-ReliableMessaging, and any other destination is a queue that is reached by HTTP.
:func:`transport_of` reads the prefix where a destination enters: in a key of an outgoing queue, in
a staged row, in an option. From there on the transport is a value. All other code asks
:attr:`Transport.rules` what the transport can do, and never which one it is, so a new transport
needs no change there.

``queue_manager/sender/sending_transports.py`` maps each transport to the code that sends by it,
:mod:`.canonical_url` to the canonical form of its destinations, and
``store/outbox/staging/row_checks.py`` to the checks of its rows.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from typing import Literal, NamedTuple


class Alone(NamedTuple):
    """Why a destination of a transport cannot be one of several in a row, for the error."""

    what: str
    """The kind of destination, with its article."""
    because: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TransportRules:
    """What distinguishes a transport, for code that sends by none itself."""

    prefix: str
    """Text with which a canonical destination begins. The address follows."""
    spelling: str
    """Regular expression of everything that may stand before the address, in any case.

    It has no groups that capture. Empty for HTTP, whose destinations have no prefix.
    """
    has_streams: bool
    """Whether transactional messages form a stream. Otherwise every message is a plain one."""
    leads_to_queue: bool
    """Whether the destination is the URL of a queue, perhaps of a queue of this queue manager."""
    numbers_in_session: bool
    """Whether a session of its own numbers each message when the session sends the message.

    The outbox stores these sessions. They report themselves when a message is sent.
    """
    speaks_soap: bool
    """Whether a message is a SOAP message to a service, and no SRMP message to a queue manager.

    Only such a row may have ``soap_action`` and versions, and no answer has a reason of SRMP.
    """
    plain_delivery: Literal["express", "recoverable"]
    """Delivery of a plain row that states none."""
    outbox_format: int
    """Format of the outbox that the first message raises, so that no older version sends it.

    ``store/outbox/tables/schema.py`` lists the formats; 1 raises none.
    """
    status: str = ""
    """Name of the entry in ``status.outgoing`` with the state of a session; empty without one."""
    alone: Alone | None = None
    """Why a row must not name other destinations alongside; ``None`` if it may."""


class Transport(Enum):
    """A transport by which messages leave; ``rules`` states what distinguishes it."""

    rules: TransportRules

    HTTP = (
        "http",
        TransportRules(
            prefix="",
            spelling="",
            has_streams=True,
            leads_to_queue=True,
            numbers_in_session=False,
            speaks_soap=False,
            plain_delivery="recoverable",
            outbox_format=1,
        ),
    )
    MULTICAST = (
        "multicast",
        TransportRules(
            prefix="MULTICAST=",
            spelling="(?:DIRECT=)?(?:MSMQ:)?MULTICAST=",
            has_streams=False,
            leads_to_queue=False,
            numbers_in_session=False,
            speaks_soap=False,
            plain_delivery="express",
            outbox_format=1,
            status="multicast",
            alone=Alone(
                "a multicast address",
                "a multicast message is express and has no receipt",
            ),
        ),
    )
    RELIABLE = (
        "reliable",
        TransportRules(
            prefix="wsrm:",
            spelling="(?:DIRECT=)?WSRM:",
            has_streams=False,
            leads_to_queue=False,
            numbers_in_session=True,
            speaks_soap=True,
            plain_delivery="recoverable",
            outbox_format=3,
            status="wsrm",
            alone=Alone(
                "a service, wsrm:URL,",
                "a message to a service has no receipt",
            ),
        ),
    )

    def __new__(cls, value: str, rules: TransportRules) -> Transport:
        """Make a member with the value ``value`` and its ``rules``."""
        member = object.__new__(cls)
        member._value_ = value
        member.rules = rules
        return member

    def address_in(self, destination: str) -> str | None:
        """Return the address in a destination of this transport, as it is spelled.

        Return ``None`` for a destination of another transport, and for HTTP.
        """
        text = destination.strip()
        match = _SPELLED.match(text)
        return None if match is None or match.lastgroup != self.name else text[match.end() :]


_SPELT = {each.name: each.rules.spelling for each in Transport if each.rules.spelling}
SPELLINGS = "|".join(_SPELT.values())
"""Regular expression of the beginning of a destination that is not reached by HTTP."""
_SPELLED = re.compile(
    rf"\s*(?:{'|'.join(f'(?P<{name}>{spelling})' for name, spelling in _SPELT.items())})",
    re.IGNORECASE,
)


def transport_of(destination: str) -> Transport:
    """Return the transport of a destination in any spelling. The address is not checked."""
    match = _SPELLED.match(destination)
    return Transport.HTTP if match is None else Transport[match.lastgroup or ""]
