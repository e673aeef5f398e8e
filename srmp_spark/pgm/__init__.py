"""PGM (reliable multicast) without I/O: packets and ``now`` in, packets and events out.

The documents are RFC 3208, and [MC-MQSRM] 2.1.3 for the way MSMQ uses it. Section numbers without a
document are those of RFC 3208.

Words of this package: an *APDU* is one block of data that an application sends at once, in one
packet or several. A *number* is the sequence number of a data packet. ODATA are data, and RDATA is
a *repair*: data sent again. A NAK requests repairs of *missing* numbers, an NCF confirms a NAK, and
an SPM announces the window of a source. The *window* is the range of numbers from *trail* (the
oldest) to *lead* (the newest), both included. A *TSI* identifies a session of a source. ``now`` is
in seconds of the monotonic clock everywhere, and octets are bytes.
"""
