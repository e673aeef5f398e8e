"""The message packet that a remote read returns ([MS-MQRR] 2.2.5): its headers, read and written.

Theory of operation. A packet is a row of headers. Each header is a multiple of four bytes long. The
headers follow each other in the order of the document (brackets: may be absent):

    BaseHeader  UserHeader  [TransactionHeader]  [SecurityHeader]  MessagePropertiesHeader
    [DebugHeader]  [SRMPEnvelopeHeader  CompoundMessageHeader]  [SoapHeader]
    [MultiQueueFormatHeader]  [SessionHeader]
    [ExtensionHeader  [SubqueueHeader]  [DeadLetterHeader]  [ExtendedAddressHeader]]

Every header is a frozen value with ``encode()`` and a function ``parse_…(data, at, end)``. The
function returns the value and the offset at which the next header begins. Bits of earlier headers
announce which headers follow. These bits belong to the packet and not to the header that carries
the bits, so :class:`~srmp_spark.mqrr.packets.message_packet.MessagePacket` reads and writes the
bits.

Rules for all headers:

* **Every length is hostile.** A length is compared with the bytes that are left before anything is
  multiplied, sliced or allocated. Python's integers do not wrap. CVE-2023-21554 was a count of
  WCHARs that became small when it was doubled in 32 bits.
* Some counts are bytes and some are WCHARs. Each field says which.
* Padding is written as zeros and never read: Windows sends what was in memory ([MS-MQMQ]
  appendix B <1> to <13>).
* Reserved bits are written as zeros and ignored. Numbers of an unknown meaning (classes, body
  types, algorithms) stay numbers.
* A WCHAR text may hold half a surrogate pair. The text is kept as received (``surrogatepass``).
  Code that makes columns of the text replaces the half pair.

A broken packet raises :class:`~srmp_spark.errors.RemoteProtocolError`. The message of a broken
packet must be read again later and never deleted. A value that does not fit into its field raises
:class:`~srmp_spark.errors.LocalProtocolError`, because it is an error of this package.
"""
