"""The server of remote read, without I/O ([MS-MQRR] 3.1).

    call ──▶ remote_read ──▶ effects: answer, fault; open, read, take, purge, release
                 ▲                                   │
                 └── opened, read, stored, rows came ┘

The queue behind the server is specified in [MS-MQDMPR] 3.1.7 and 3.2. The owner of this server
knows which messages are in a queue and which readers hold the queue. This server knows which
message is next, who has locked it, who waits, and for how long. **No message is removed before the
removal is stored**: an acknowledged message is neither available nor gone until
:meth:`.RemoteReadServer.stored` is called, and the answer is sent after that.
"""
