"""Turn each message of a remote queue into one row, moved or copied.

Words of this package. A *row* is a message in the log of a local queue. The *original* of a message
is its place in the remote queue, and the *key* of a message identifies the original by lookup
identifier and message identifier. A message is *locked* while R_StartReceive holds it for this
reader, and an *End* is the call R_EndReceive, which removes a locked message or unlocks it. A
message is *kept* while it is stored in the table ``pulled`` and is no row yet. A kept message is
*doubtful* if it is unknown whether its End was carried out. An *unreadable* message is one whose
packet cannot be parsed. A *walk* reads the remote queue with a cursor from its first message to its
end. :class:`RemoteLostError` means that the connection is lost, and :class:`RemoteReadError` that
the server refused a call.
"""
