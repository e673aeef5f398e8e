"""Every limit of the packet codec, with its reason.

Tests import these names and exceed each limit on purpose.
"""

from __future__ import annotations

PACKET_SIZE_MAX = 0x00400000
"""Largest BaseHeader.PacketSize: 4 MiB ([MS-MQMQ] 2.2.19.1). A larger packet is refused."""

LABEL_WCHARS_MAX = 0xFA
"""Largest MessagePropertiesHeader.LabelLength: 249 characters and the NUL ([MS-MQMQ] 2.2.19.3).

A packet with a longer label is refused.
"""

SENDER_CERT_MAX = 0xFFFF
"""Largest SecurityHeader.SenderCertSize in bytes ([MS-MQMQ] 2.2.20.6). A larger one is refused."""

FORMAT_NAMES_MAX = 1_000
"""Most elements of one MQFAddressHeader; a packet with more is refused.

The document allows as many elements as fit into a packet, about a million. A sender to a thousand
queues uses a distribution list.
"""

DIRECT_NAME_WCHARS_MAX = 4_096
"""Most WCHARs of a direct name that only its NUL ends; a packet with a longer name is refused.

A computer (256), a queue (124) and a subqueue (32) need 450 WCHARs, a URL needs 2,100.
"""

SUBQUEUE_NAME_SIZE = 64
"""Bytes of SubqueueName and of TargetSubqueueName, NUL included ([MS-MQRR] 2.2.5.3)."""

NAMES_REMEMBERED = 256
"""Most encoded names or addresses that are cached, of each kind; the oldest is evicted.

The messages of a queue share a few names. Each cache needs at most 64 KB.
"""

U8_MAX, U16_MAX, U32_MAX, U64_MAX = 0xFF, 0xFFFF, 0xFFFFFFFF, 2**64 - 1
