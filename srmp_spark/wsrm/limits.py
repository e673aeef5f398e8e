"""Every limit of the codec and of both roles, with its reason. Tests import these names and go past each of them on purpose."""

from __future__ import annotations

ENVELOPE_MAX = 4_194_304 + 65_536
"""Bytes of a SOAP message: a body as large as MSMQ's own limit of 4 MB, and the largest header."""

HEADER_MAX = 65_536
"""Bytes before the Body. The largest header of the captured peers, Metro's with eight namespaces a block, has 4,000."""

HEADER_ELEMENTS_MAX = 1_000
"""Elements of all header blocks, or of a protocol element in the Body; an acknowledgement has one for each range."""

BODY_ELEMENTS_MAX = 100_000
"""Elements of an application's Body: 4 MB of ordinary elements have half as many. More is no document."""

DECLARATIONS_ADDED_MAX = 65_536
"""Bytes of namespace declarations that a Body takes over from further out, for all its children together. A document has one
child and a few declarations; a hostile one has a hundred thousand children, and each would get a copy of all of them."""

DEPTH_MAX = 64
"""Nested elements. WS-ReliableMessaging needs six; the rest is the application's Body."""

ATTRIBUTES_MAX = 64
"""Attributes and namespace declarations of one element; Metro writes seven declarations on each block."""

IDENTIFIER_MAX = 1_024
"""Characters of an identifier, an action or an address. They are URIs; those of the peers have 45 to 120."""

REFERENCE_PARAMETERS_MAX = 8_192
"""Characters of all reference parameters of an endpoint: they are kept with the sequence and go with each message to it."""

ACKNOWLEDGEMENTS_MAX = 16
"""SequenceAcknowledgement, or AckRequested, blocks in one message: a connection carries two sequences, one each way."""

RANGES_MAX = 512
"""Ranges, or Nacks, of one acknowledgement: a window of 4,096 cannot have more than 2,048 holes, and we never hold more than a
tenth of it."""

NUMBER_MAX = 2**63 - 1
"""A MessageNumber: WS-ReliableMessaging 1.1 section 3.8 ends there, and WCF does in 1.0, too (an unsignedLong there)."""

BUFFER_REMAINING_MAX = 2**31 - 1
"""[MS-WSRVCRM] 2.2.3."""

BUFFER_INITIAL = 8
"""[MS-WSRVCRM] 3.1.3 <1>: what .NET begins with."""

BUFFER_LIMIT = 4_096
"""[MS-WSRVCRM] 3.1.3 <2>: the most that .NET can be told to keep."""

POLL_INTERVAL = 30.0
"""Seconds of POLLING_TIMER, [MS-WSRVCRM] 3.2.3 <3>."""

HELD_MAX = 64
"""Messages behind a gap that one sequence keeps in memory, unacknowledged, until the missing one is there. What is behind them
comes again by itself."""

HELD_BYTES_MAX = 10_485_760
"""Bytes that one sequence may keep so: one of the largest messages (what was read of it, and its POST), or 64 of 80 KB."""

HELD_TOTAL_MAX = 67_108_864
"""Bytes that all sequences may keep so, of all queues: identifiers cost a stranger nothing, memory must have an end."""

ANSWER_HELD = 2.0
"""Seconds that the answer to a request/reply client waits for room. WCF repeats a message after 0.4 s, 0.8 s, … eight
times, and its session is over a minute and a half later: two seconds cost it three of the eight, for that one message."""

ANSWERS_HELD_MAX = 1_000
"""Answers of one queue that wait so; each is a connection. Beyond that they do not wait."""

INACTIVITY_TIMEOUT = 600.0
"""Seconds after which a sequence that nobody used is over: ten minutes, WCF's own. CXF and Metro send CloseSequence and
TerminateSequence once, so without it a lost one would leave the sequence for ever."""

TERMINATED_KEPT = 600.0
"""Seconds that a terminated sequence is known: TerminateSequence is answered again, late messages get SequenceTerminated."""

SEQUENCES_MAX = 4_096
"""Sequences of one endpoint; terminated ones go early where they are in the way. WCF's default for a service is a few hundred
sessions."""

SEQUENCES_OF_ONE_MAX = 1_024
"""Sequences of one endpoint that one client may have: a quarter of all. A client is a certificate's subject, or without one an
address. At the limit its own sequences make way: first those that are over, then those that never took a message."""

UNUSED_SPARED = 5.0
"""Seconds that a new sequence without a message is spared when others need its place: clients send right after they begin."""

WINDOW_MAX = 4_096
"""Unacknowledged messages of one sequence that we send: .NET's MaxTransferWindowSize ends there."""

WINDOW_DEFAULT = 8
"""… and this is what it begins with. As long as the peer names no BufferRemaining, no more than this many are on their way."""

EXPIRES_MAX = 365 * 86_400_000
"""Milliseconds: a sequence that is asked to live longer than a year lives a year, which is above any certificate's renewal."""

RESEND_FIRST = 2.0
"""Seconds until a message that is not acknowledged goes again; it doubles each time."""
RESEND_LAST = 60.0
"""Seconds between two of the later tries: a peer that is back is found within a minute, as with SRMP's own table."""

ACKNOWLEDGEMENT_INTERVAL = 0.2
"""Seconds within which messages for an addressable source share one acknowledgement: WCF's AcknowledgementInterval."""
