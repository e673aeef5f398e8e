"""The server of remote read, without I/O ([MS-MQRR] 3.1; the queue under it is [MS-MQDMPR] 3.1.7 and 3.2).

    call ──▶ remote_read ──▶ effects: answer, fault; open, read, take, purge, release
                 ▲                                   │
                 └── opened, read, stored, rows came ┘

What is in a queue and who holds it its owner knows; which message is next, who has locked it, who waits and for how long is
here. **Nothing is removed before it is stored that it was**: an acknowledged message is neither available nor gone until
:meth:`.RemoteReadServer.stored` says so, and the answer leaves after that.
"""
