"""The one path on which a message enters, for every transport: SRMP, WS-ReliableMessaging, PGM.

A transport turns its request into a question, and the verdict into an answer on its wire. A verdict
is a :class:`.Refused`, which has all that an answer needs, or the absence of one. The checks
have this order, in which cheap checks precede dear ones, and no check changes anything::

    check       when it is made                 where it is made
    ─────       ───────────────                 ────────────────
    connection  before a byte is read           srmp_port/port_limits.py: both HTTP ports
    head, size  before a byte of the body       srmp_port/request_head.py: both HTTP ports
    target      before a byte of the body       targets.py: both HTTP ports
    gate        before the body is parsed       gate.py: all; opened and closed by disk_gate.py
    signature   after the message is decoded    Admission.judge: SRMP, PGM
    writer      when the queue is known         Admission.judge: SRMP, PGM; refuses_client: WS-RM
    queue       after the writer                the engine: SRMP, PGM; refuses_session: WS-RM
    hops        after the queue                 Receiver.refuses_hops: SRMP
    room        before the row is made          Receiver._not_now: all; refuses_in: WS-RM

A PGM source has no connection, and the listener of its group limits the size. Calls of the API have
tokens in place of writers; they and subscriptions ask the gate alone (:meth:`.Gate.check`). A
message that passed all checks goes to :class:`.Acceptor`, which decides, stores and only then
answers.

A new way to refuse a message is a line of this table, in one of these files.
"""
