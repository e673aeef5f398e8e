"""Every limit of the RPC layer, with its reason. Tests import these names and go past each of them on purpose."""

from __future__ import annotations

FRAGMENT_MAX = 5_840
"""max_xmit_frag and max_recv_frag that we offer: what Windows offers, four segments of Ethernet."""
FRAGMENT_LENGTH_MAX = 65_535
"""frag_length has 16 bits. What came is never larger, whatever was agreed on."""
FRAGMENT_MIN = 1_432
"""MustRecvFragSize, C706 12.6.3.4: every implementation can receive this much. A peer that offers less is taken at this."""

STUB_MAX = 4_194_304
"""Bytes of a request in all its fragments ([MS-RPCE] 3.3.3.5.4: 4 megabytes; above it the fault 5)."""
RESPONSE_MAX = 4_194_304 + 65_536
"""Bytes of a response: a packet of 4 MiB (PACKET_SIZE_MAX) and what lies around it."""

FRAGMENTS_MAX = 8_192
"""Fragments of one request or response, whatever is in them: 4 MiB in fragments of ``FRAGMENT_MIN`` are 3,200. A peer that
sends more, empty ones for instance, would keep us busy without end; its connection is closed."""

CALLS_MAX = 64
"""Calls of one connection that are not yet answered. A reader waits with one; above it the fault nca_server_too_busy."""
CONTEXTS_MAX = 256
"""Presentation contexts of one connection. [MS-RPCE] 3.3.3.5.5 allows 4,000 for an interface; a client needs three."""
HANDLES_MAX = 10_000
"""Context handles of one association: queues that one client holds open."""
ASSOCIATIONS_MAX = 10_000
"""Association groups of a server; each has at least one connection."""
SECURITY_LEGS_MAX = 8
"""Messages of a security negotiation in one direction. NTLM has two, Kerberos one or two, SPNEGO one more."""
TOKEN_MAX = 65_000
"""Bytes of an authentication token, which one PDU must hold. A Kerberos ticket of a user in a thousand groups has 12,000."""

CALL_ID_MAX = 0x7FFFFFFF
"""Windows refuses larger ones and begins none anew ([MS-RPCE] appendix B <123>). At 8,000 calls a second: three days."""
VERIFICATION_TRAILER_MAX = 1_024
"""Bytes at the end of a stub in which its verification trailer is looked for: its three commands have 80. A trailer is known by
where it ends, so each signature in there is followed to the end, and a stub may be nothing but signatures."""
VERIFICATION_COMMANDS_MAX = 16
"""Commands of a verification trailer: "at most, one instance from each", of three that are known."""

LATE_PDUS_MAX = 128
"""Cancels and orphaned PDUs in a row whose calls are over: each call of CALLS_MAX may have one of both on
its way when its answer leaves. One more is a protocol error: such a connection costs work and asks for nothing."""

OLD_CALL_WINDOW = 150
"""A late fragment of a call at most so many identifiers back is dropped and no protocol error: [MS-RPCE] 3.3.3.5.6."""

NEGOTIATION_TIMEOUT_S = 30.0
"""From the connection to the last leg of its negotiation, at a server: a client does nothing else in the meantime. Kerberos
asks a third party, which takes seconds where it is slow."""
REQUEST_TIMEOUT_S = 60.0
"""From the first byte of a request to its last, at a server: 4 MB over a line of one megabit take 34 s."""
CALL_TIMEOUT_S = 300.0
"""RPC Call Timeout Timer of a client: 300,000 ms ([MS-MQRR] 3.1.2.1, appendix B <10>)."""
TOWER_MAX = 2_000
"""tower_length, ``range(0, 2000)``: [MS-RPCE] 2.2.1.2.2."""
TOWERS_MAX = 500
"""max_towers, ``range(0, 500)``: [MS-RPCE] 2.2.1.2.5."""
