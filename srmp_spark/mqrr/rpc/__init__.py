"""Connection-oriented DCE/RPC, what RemoteRead needs of it (C706 chapters 9 and 12, [MS-RPCE] 2.2.2 and 3.3). Sans-IO.

Theory of operation. A connection carries PDUs. The client binds: it offers presentation contexts, pairs of an interface and a
transfer syntax, and the server accepts at most one syntax per interface. Then each request names a context and a number of a
method, and is answered by a response or a fault with its ``call_id``. Requests and responses longer than a fragment come in
several PDUs. Connections of one client form an *association*; context handles live in it and not in a connection, so a second
connection can use what the first one opened, and when the last one is gone the handles are run down.

===========================  ===================================================================================================
:mod:`.pdu`                  the 16 bytes that all PDUs begin with, the authentication trailer that they may end with, the
stream :mod:`.binding`              bind, bind_ack, bind_nak, alter_context, alter_context_resp: contexts and results
:mod:`.calls`                request, response, fault, cancel, orphaned, shutdown, auth3; fragments
:mod:`.verification_trailer` what a client puts behind its stub so that a server can tell what was changed on the way
:mod:`.negotiation`          which contexts a server accepts, features of bind time
:mod:`.associations`         association groups, context handles, rundown
:mod:`.security`             the port to a security provider: none is in here
:mod:`.server_connection`    a connection as the server sees it
:mod:`.client_connection`    a connection as the client sees it
:mod:`.endpoint_mapper`      the call that asks for the port of an interface
===========================  ===================================================================================================

Both sides are little-endian. A peer that says otherwise is refused: none is known, and NDR64 allows nothing else.
"""
