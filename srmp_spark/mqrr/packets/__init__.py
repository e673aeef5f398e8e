"""The message packet: what a remote read returns ([MS-MQRR] 2.2.5), header by header, both directions.

Theory of operation. A packet is a row of headers, each a multiple of four bytes long, in the order of the document:

    BaseHeader  UserHeader  [TransactionHeader]  [SecurityHeader]  MessagePropertiesHeader  [DebugHeader]
    [SRMPEnvelopeHeader  CompoundMessageHeader]  [SoapHeader]  [MultiQueueFormatHeader]  [SessionHeader]
    [ExtensionHeader  [SubqueueHeader]  [DeadLetterHeader]  [ExtendedAddressHeader]]

Every header is a frozen value with ``encode()`` and ``parse(data, at, end)``, which returns the value and where the next header
begins. Which headers follow is told by bits of earlier ones; these bits belong to the packet and not to the header that
carries them, so :class:`~srmp_spark.mqrr.packets.message_packet.MessagePacket` reads and writes them.

Rules that hold for all of them:

* **Every length is hostile.** A length is compared with what is left before anything is multiplied, sliced or allocated.
  Python's integers do not wrap; CVE-2023-21554 was a count of WCHARs that, doubled in 32 bits, became small.
* Counts are sometimes bytes and sometimes WCHARs; each field says which.
* Padding is written as zeros and never looked at: Windows sends what was in memory ([MS-MQMQ] appendix B <1> to <13>).
* Reserved bits are written as zeros and ignored. Numbers of an unknown meaning (classes, body types, algorithms) stay numbers.
* WCHAR texts may hold half a surrogate pair. They are kept as they came (``surrogatepass``): whoever makes columns of them
  replaces these.

A broken packet is a :class:`~srmp_spark.errors.RemoteProtocolError`; it must be read again later and never deleted. A value
that does not fit into its field is our own :class:`~srmp_spark.errors.LocalProtocolError`.
"""
