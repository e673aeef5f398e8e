"""Run each optional transport in a gateway process, outside the main process.

**Theory of operation.** The main process accepts SRMP messages in one event loop. Whatever runs in
that loop for another transport (RPC, WS-ReliableMessaging, multicast, remote servers) delays every
sender of SRMP. Therefore each optional transport has a child process of its own, its *gateway*,
with its sockets and its parsers::

    unauthenticated clients          gateway process                     main process
    ────── bytes ─────▶  sockets, TLS, HTTP or PDUs, sign-in  ─ whole, judged messages ─▶  engines
    ◀───── bytes ──────  parsing, encoding, deadlines, limits ◀─────── answers ──────────  (stored)

The gateway owns everything that an unauthenticated client can make expensive: connections,
deadlines, budgets of memory, parsing, and protocol state that is not stored. The main process owns
everything that a commit must cover: queues, sequences, open cursors, marks. A message crosses to
the main process only when the message is whole and was judged. It is answered only after the main
process has it on stable storage.

    frames     messages to bytes and back, without I/O: MessagePack with a length before it
    channel    one end of the stream socket between the two: turns, back-pressure
    link       the main process's side: start the gateway, watch it, start it again
    process    the gateway's side: settings, listening sockets, the end

**What a gateway's death means.** Its connections close and nothing else happens: the main process
calls ``on_lost`` and treats each connection of the gateway as lost. The listening sockets stay
bound in the main process, so clients that connect meanwhile wait in the backlog until the next
gateway accepts them. A transport without connections (multicast) opens its sockets in the gateway.
The main process then tells the next gateway where to continue.

**Fairness.** A gateway cannot flood the main process: the channel handles messages for
:data:`.channel.TURN_SECONDS` in one turn of the loop, and then the other connections have their
turns. While a channel is held (:meth:`.channel.Channel.hold`) the gateway's writes fill the socket
buffer. The gateway's channel is congested then, and the gateway must stop reading from its clients.

A transport defines its messages as frozen ``msgspec.Struct`` classes with ``tag=True``, and one
union type for each direction. The modules of a gateway must not import the store, because the
gateway never opens the data directory.
"""
