"""A foreign peer: messages and a receiving queue manager written from [MC-MQSRM] alone.

No module of this folder imports the codec or the engine of srmp-spark. Otherwise a misreading of
the document would be on both sides of the wire and cancel out. So the envelope is built string by
string in the order of section 3.1.7.2.4 (``messages``).

The other direction is ``destination_server``: a receiving queue manager that keeps a journal
(``record``), injects faults (``faults``) and checks every POST against the document (``form``,
``sender_rules``). It shares no code with the sender. The receiving side does no multicast, no HTTPS
and no forwarding.

The document can be read in more than one way. Its text says ``<stream>``, its examples
``<Stream>``. RFC 2046 wants a line end before a MIME delimiter, the lengths of the examples leave
no room for one. :class:`~.messages.Dialect` names the readings, and a receiver has to understand
all of them.

Words of this folder:

- Numbers such as 3.1.5.1 are sections of [MC-MQSRM], "the document". Chapter 4 has its examples.
- A *stream* carries the transactional messages from one sender to one queue in order. GUID
  and *ordinal* identify the stream; ``current`` is the position of a message in the stream, from 1.
  ``previous`` is the position of the message that must be accepted before.
- *Lineage* (a GUID) and *uniquifier* (a number) are the two parts of a message identifier.
- The *watcher* is the part of the destination that checks the behaviour of its sender.
- An *honest* receipt is a true one; a fault sends wrong ones too.
- A *final receipt* reports that an application received the message, or that the queue was purged.
- A *loss of memory* is a restart in which the destination forgets all messages and streams.

Times are in seconds since 1970 unless a docstring names another clock.
"""
