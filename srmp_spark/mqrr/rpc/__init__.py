"""The part of connection-oriented DCE/RPC that RemoteRead needs, without I/O.

The documents are C706 chapters 9 and 12, and [MS-RPCE] 2.2.2 and 3.3.

Theory of operation. A connection carries PDUs. First the client binds. A bind offers presentation
contexts; each is a pair of an interface and a transfer syntax. The server accepts at most one
syntax for each interface. Then each request names a context and the number of a method. A request
is answered by a response or a fault with its ``call_id``. A request or response that is longer than
a fragment is sent in several PDUs.

Connections of one client form an *association*. Context handles live in the association and not in
a connection, so a second connection can use a handle that the first one opened. When the last
connection of an association is closed, its handles are run down.

Words of this package. A *stub* holds the parameters of a request or of a response. A *fragment* is
the part of a request or response in one PDU. A *leg* is one message of a security negotiation, and
a *token* is the part of a PDU that a security provider makes. The *owner* of a connection is the
caller of its methods, which does the input and output.

============================  ==================================================================
:mod:`.pdu`                   the 16 bytes at the beginning of all PDUs, the authentication
                              trailer at the end, the stream
:mod:`.binding`               bind, bind_ack, bind_nak, alter_context, alter_context_resp:
                              contexts and results
:mod:`.calls`                 request, response, fault, cancel, orphaned, shutdown, auth3;
                              fragments
:mod:`.verification_trailer`  a copy of the header after the stub, by which a server detects
                              changes in transit
:mod:`.negotiation`           which contexts a server accepts, features of bind time
:mod:`.associations`          association groups, context handles, rundown
:mod:`.security`              the interface to a security provider; providers are in
                              :mod:`srmp_spark.signing_in`
:mod:`.server_connection`     a connection as the server sees it
:mod:`.client_connection`     a connection as the client sees it
:mod:`.endpoint_mapper`       the call that asks for the port of an interface
============================  ==================================================================

Both sides are little-endian. A peer with another byte order is refused: no such peer is known, and
NDR64 allows only little-endian.
"""
