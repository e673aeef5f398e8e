"""Every limit of the RPC layer, with its reason.

Tests import these names and exceed each limit on purpose.
"""

from __future__ import annotations

FRAGMENT_MAX = 5_840
"""Bytes offered as max_xmit_frag and max_recv_frag.

Windows offers the same: four segments of Ethernet.
"""
FRAGMENT_LENGTH_MAX = 65_535
"""Largest PDU in bytes, because frag_length has 16 bits.

A received PDU is never larger, whatever was negotiated.
"""
FRAGMENT_MIN = 1_432
"""MustRecvFragSize in bytes: every implementation can receive this much (C706 12.6.3.4).

If a peer offers less, this size is used.
"""

STUB_MAX = 4_194_304
"""Largest request in bytes, all fragments together; a larger request gets fault 5.

[MS-RPCE] 3.3.3.5.4 sets 4 megabytes.
"""
RESPONSE_MAX = 4_194_304 + 65_536
"""Largest response in bytes; a client closes the connection at a larger one.

The limit is a packet of 4 MiB (PACKET_SIZE_MAX) and the fields around the packet.
"""

FRAGMENTS_MAX = 8_192
"""Most fragments of one request or response; a peer that sends more is disconnected.

4 MiB in fragments of ``FRAGMENT_MIN`` bytes are 3,200 fragments. A peer that sent empty fragments
without end would keep this process busy without end.
"""

CALLS_MAX = 64
"""Most unanswered calls of one connection; a further call gets the fault nca_server_too_busy.

A reader waits with one call.
"""
CONTEXTS_MAX = 256
"""Most presentation contexts of one connection; an alter_context with more is refused.

[MS-RPCE] 3.3.3.5.5 allows 4,000 for an interface. A client needs three.
"""
HANDLES_MAX = 10_000
"""Most context handles of one association: queues that one client holds open.

Opening a further queue fails.
"""
ASSOCIATIONS_MAX = 10_000
"""Most association groups of a server; a further bind is refused.

Each group has at least one connection.
"""
SECURITY_LEGS_MAX = 8
"""Most messages of a security negotiation in one direction; one more ends the negotiation.

NTLM has two, Kerberos one or two, SPNEGO one more.
"""
TOKEN_MAX = 65_000
"""Largest authentication token in bytes, because one PDU must hold the token.

A Kerberos ticket of a user in a thousand groups has 12,000 bytes.
"""

CALL_ID_MAX = 0x7FFFFFFF
"""Largest call_id; a connection that has used all numbers must be replaced.

Windows refuses larger numbers and does not start again at 1 ([MS-RPCE] appendix B <123>). At 8,000
calls a second the numbers last three days.
"""
VERIFICATION_TRAILER_MAX = 1_024
"""Bytes at the end of a stub in which a verification trailer is searched for.

The three known commands have 80 bytes. A trailer is recognised by its end, so each signature found
is followed to the end of the stub. The limit is needed because a stub may consist of signatures
only.
"""
VERIFICATION_COMMANDS_MAX = 16
"""Most commands of a verification trailer; bytes with more commands are not a trailer.

The document says "at most, one instance from each", and three commands are known.
"""

LATE_PDUS_MAX = 128
"""Most cancels and orphaned PDUs in a row for calls that are over; one more is a protocol error.

Each call of CALLS_MAX may have one of both in flight when its answer is sent. A connection that
sends more costs work and requests nothing.
"""

OLD_CALL_WINDOW = 150
"""Range of old call identifiers: a late fragment of a call in this range is discarded.

An older identifier is a protocol error ([MS-RPCE] 3.3.3.5.6).
"""

NEGOTIATION_TIMEOUT_S = 30.0
"""Longest negotiation at a server in seconds, from the connection to the last leg.

A client does nothing else in the meantime. Kerberos asks a third party, which may take seconds. A
slower client is disconnected.
"""
REQUEST_TIMEOUT_S = 60.0
"""Longest time in seconds from the first byte of a request to its last byte, at a server.

4 MB over a line of one megabit take 34 s. A slower client is disconnected.
"""
CALL_TIMEOUT_S = 300.0
"""RPC Call Timeout Timer of a client: 300 seconds ([MS-MQRR] 3.1.2.1, appendix B <10>).

When it passes, the client closes the connection.
"""
TOWER_MAX = 2_000
"""Largest tower_length in bytes: ``range(0, 2000)`` ([MS-RPCE] 2.2.1.2.2)."""
TOWERS_MAX = 500
"""Largest max_towers: ``range(0, 500)`` ([MS-RPCE] 2.2.1.2.5)."""
