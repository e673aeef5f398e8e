"""Every limit of the packet codec, with its reason. Tests import these names and go past each of them on purpose."""

from __future__ import annotations

PACKET_SIZE_MAX = 0x00400000
"""BaseHeader.PacketSize, [MS-MQMQ] 2.2.19.1: 4 MiB."""

LABEL_WCHARS_MAX = 0xFA
"""MessagePropertiesHeader.LabelLength, [MS-MQMQ] 2.2.19.3: 249 characters and the NUL."""

SENDER_CERT_MAX = 0xFFFF
"""SecurityHeader.SenderCertSize, [MS-MQMQ] 2.2.20.6."""

FORMAT_NAMES_MAX = 1_000
"""Elements of one MQFAddressHeader. The text allows what fits into a packet, a million; whoever sends to a thousand queues uses
a distribution list."""

DIRECT_NAME_WCHARS_MAX = 4_096
"""WCHARs of a direct name that only its NUL ends. A computer (256), a queue (124) and a subqueue (32) need 450, a URL 2,100."""

SUBQUEUE_NAME_SIZE = 64
"""Bytes of SubqueueName and TargetSubqueueName, [MS-MQRR] 2.2.5.3."""

NAMES_REMEMBERED = 256
"""Encoded names and addresses kept, of each kind: the messages of a queue share a few. 64 KB at most each."""

U8_MAX, U16_MAX, U32_MAX, U64_MAX = 0xFF, 0xFFFF, 0xFFFFFFFF, 2**64 - 1
