"""A foreign peer: messages and a receiving queue manager written from [MC-MQSRM] alone.

Theory of operation ------------------- Nothing here imports the codec or the engine of this
package. Otherwise a misreading of the document would be on both sides of the wire and cancel out.
So the envelope is built string by string in the order of section 3.1.7.2.4 (``messages``).

The other direction is ``destination_server``: a receiving queue manager that keeps a journal
(``record``), injects faults (``faults``) and checks every POST against the document (``form``,
``sender_rules``). It shares no code with the sender.

The document can be read in more than one way. Its text says ``<stream>``, its examples
``<Stream>``. RFC 2046 wants a line end before a MIME delimiter, the lengths of the examples leave
no room for one. :class:`~.messages.Dialect` names the readings, and a receiver has to understand
all of them. The receiving side does no multicast, no HTTPS and no forwarding.
"""
