"""Define every limit of the codec and of both roles, with its reason.

The tests import these names and exceed each limit on purpose. The roles are source (sends a
sequence) and destination (receives it).
"""

from __future__ import annotations

ENVELOPE_MAX = 4_194_304 + 65_536
"""Most bytes of a SOAP message. A larger message is refused.

The limit is a body as large as MSMQ's own limit of 4 MB, and the largest header.
"""

HEADER_MAX = 65_536
"""Most bytes before the Body.

The largest header of the captured peers, Metro's with eight namespaces a block, has 4,000. A
message with more is refused.
"""

HEADER_ELEMENTS_MAX = 1_000
"""Most elements of all header blocks, or of a protocol element in the Body.

An acknowledgement has one for each range. A message with more is refused.
"""

BODY_ELEMENTS_MAX = 100_000
"""Most elements of an application's Body.

4 MB of ordinary elements have half as many. A message with more is refused, because it is no
document.
"""

DECLARATIONS_ADDED_MAX = 65_536
"""Most bytes of namespace declarations that a Body takes over from elements around it.

The limit is for all children of the Body together. A document has one child and a few declarations.
A hostile Body has a hundred thousand children, each of which would get a copy of all declarations.
A message with more is refused.
"""

DEPTH_MAX = 64
"""Most nested elements.

WS-ReliableMessaging needs six, and the rest is for the application's Body. A message with more is
refused.
"""

ATTRIBUTES_MAX = 64
"""Most attributes, and most namespace declarations, of one element.

Metro writes seven declarations on each block. A message with more is refused.
"""

IDENTIFIER_MAX = 1_024
"""Most characters of an identifier, an action or an address.

These texts are URIs, and the URIs of the known peers have 45 to 120 characters. A message with a
longer URI is refused.
"""

REFERENCE_PARAMETERS_MAX = 8_192
"""Most characters of all reference parameters of an endpoint.

The parameters are kept with the sequence and sent with each message to the endpoint. An endpoint
with more is refused.
"""

ACKNOWLEDGEMENTS_MAX = 16
"""Most SequenceAcknowledgement blocks, and most AckRequested blocks, in one message.

A connection carries two sequences, one each way. A message with more is refused.
"""

RANGES_MAX = 512
"""Most ranges, or Nacks, of one acknowledgement.

A window of 4,096 messages cannot have more than 2,048 holes, and srmp-spark never has more than a
tenth of such a window in flight or held. An acknowledgement with more is ignored.
"""

NUMBER_MAX = 2**63 - 1
"""Highest MessageNumber: the maximum of WS-ReliableMessaging 1.1 section 3.8.

In 1.0 the type is unsignedLong, but WCF has the same maximum. A higher number is refused.
"""

BUFFER_REMAINING_MAX = 2**31 - 1
"""Highest value of BufferRemaining ([MS-WSRVCRM] 2.2.3). A higher one is invalid."""

BUFFER_INITIAL = 8
"""First value of Buffer Remaining, in messages: that of .NET ([MS-WSRVCRM] 3.1.3 <1>)."""

BUFFER_LIMIT = 4_096
"""Highest value of Buffer Remaining, in messages, that .NET can be configured to.

See [MS-WSRVCRM] 3.1.3 <2>.
"""

POLL_INTERVAL = 30.0
"""Time of POLLING_TIMER, in seconds ([MS-WSRVCRM] 3.2.3 <3>)."""

HELD_MAX = 64
"""Most messages after a gap that one sequence holds in memory, unacknowledged.

They are held until the missing message arrives. Messages beyond the limit are discarded, and their
source sends them again.
"""

HELD_BYTES_MAX = 10_485_760
"""Most bytes of the messages after a gap of one sequence.

One of the largest messages fits (its request and its POST), or 64 of 80 KB. Messages beyond the
limit are discarded and sent again.
"""

HELD_TOTAL_MAX = 67_108_864
"""Most bytes of the messages after a gap of all sequences of all queues.

An unauthenticated client can invent identifiers, so the total needs a limit. Messages beyond the
limit are discarded and sent again.
"""

ANSWER_HELD = 2.0
"""Longest time for which an answer to a request/reply client waits for room, in seconds.

WCF repeats a message after 0.4 s, 0.8 s, … eight times, and its session is over a minute and a half
later. Two seconds use three of the eight repetitions, for that one message.
"""

ANSWERS_HELD_MAX = 1_000
"""Most answers of one queue that wait for room.

Each of them keeps a connection. Further answers are sent at once.
"""

INACTIVITY_TIMEOUT = 600.0
"""Time without use after which a sequence is over, in seconds: ten minutes, as with WCF.

CXF and Metro send CloseSequence and TerminateSequence once. Without the timeout, a lost
TerminateSequence would leave the sequence forever.
"""

TERMINATED_KEPT = 600.0
"""Time for which a terminated sequence is kept, in seconds; then it is forgotten.

In this time TerminateSequence is answered again, and late messages get the fault
SequenceTerminated.
"""

SEQUENCES_MAX = 4_096
"""Most sequences of one endpoint.

At the limit, a terminated or unused sequence is evicted for a new one. If there is none, the new
sequence is refused. WCF's default for a service is a few hundred sessions.
"""

SEQUENCES_OF_ONE_MAX = 1_024
"""Most sequences of one endpoint that one client may have: a quarter of all.

A client is the subject of a certificate, or without one an address. At the limit its own sequences
are evicted: first those that are over, then those that never received a message. If there is none,
the new sequence is refused.
"""

UNUSED_SPARED = 5.0
"""Time for which a new sequence without a message is not evicted for others, in seconds.

Clients send soon after they begin a sequence.
"""

WINDOW_MAX = 4_096
"""Most unacknowledged messages of one sequence that a source of srmp-spark sends.

This is the maximum of .NET's MaxTransferWindowSize.
"""

WINDOW_DEFAULT = 8
"""Most messages in flight of one sequence while the peer names no BufferRemaining.

This is the default of .NET's MaxTransferWindowSize.
"""

EXPIRES_MAX = 365 * 86_400_000
"""Longest life of a sequence, in milliseconds.

A longer Expires counts as one year, which is longer than certificates live.
"""

RESEND_FIRST = 2.0
"""Time until an unacknowledged message is sent again, in seconds.

The time doubles with each repetition, up to RESEND_LAST.
"""
RESEND_LAST = 60.0
"""Longest time between two repetitions, in seconds.

So a peer that is back is found within a minute, as with SRMP's own table.
"""

ACKNOWLEDGEMENT_INTERVAL = 0.2
"""Time in which messages of a source with an address share one acknowledgement, in seconds.

This is WCF's AcknowledgementInterval.
"""
