"""Every limit of the codec, with its reason.

[MC-MQSRM] names no limits, and those of Windows are not published. A message beyond a structural
limit can never succeed, so it is answered 400. Only a body longer than ``BODY_MAX`` is answered
413, and only a target longer than ``TARGET_MAX`` 414. Tests import these names and exceed each
limit on purpose.
"""

from __future__ import annotations

BODY_MAX = 4_194_304
"""Most bytes of body and extension together: MSMQ's own limit of 4 MB for a message.

A larger message is answered 413.
"""

ENVELOPE_MAX = 65_536
"""Most bytes of the SOAP envelope; a longer one is answered 400.

The largest envelope of Windows, with a hundred multi-queue names of 250 characters, has less than
half of this.
"""

PARTS_MAX = 3
"""Most parts of a message: envelope, body, extension. More are answered 400.

[MC-MQSRM] 2.2.2 and 2.2.7 have no fourth part.
"""

PART_HEAD_MAX = 4_096
"""Most bytes from a MIME delimiter to the blank line after it. Windows writes about 120.

A longer head is answered 400.
"""

PART_HEAD_LINES_MAX = 32
"""Most header fields of one part. Windows writes three.

More are answered 400.
"""

BOUNDARY_MAX = 70
"""Most characters of a MIME boundary (RFC 2046 5.1.1). A longer one is answered 400."""

PADDING_MAX = 64
"""Most blanks after a delimiter, which RFC 2046 calls transport padding, and most blanks and line
ends after the last delimiter. A message with more is answered 400.
"""

CONTENT_MAX = BODY_MAX + ENVELOPE_MAX + (PARTS_MAX + 1) * PART_HEAD_MAX
"""Most bytes of a whole HTTP body that can still be a message.

The endpoint needs this limit because it must decide before it has read the whole body.
"""

CONTENT_TYPE_MAX = 1_024
"""Most bytes of the value of a Content-Type field after unfolding.

Each fold counts as one blank. A longer value is answered 400.
"""

TARGET_MAX = 2_048
"""Most bytes of a request target: 124 characters of a queue name of up to 12 bytes each when
percent-encoded, and a query. A longer target is answered 414.
"""

DEPTH_MAX = 16
"""Deepest nesting of elements; a deeper one is answered 400.

SRMP needs five levels; se:Body and foreign header entries may add their own.
"""

ELEMENTS_MAX = 2_000
"""Most elements of one envelope; more are answered 400. SRMP has 45 names."""

ATTRIBUTES_MAX = 32
"""Most attributes of one element; more are answered 400. SRMP uses one."""

ATTRIBUTE_LENGTH_MAX = 1_024
"""Most characters of the name or value of one attribute; more are answered 400."""

NAMES_MAX = 100
"""Most queue names in one DestinationMqf, AdminMqf or ResponseMqf ([MC-MQSRM] 2.2.6.14 to
2.2.6.16).

A message with more is answered 400.
"""

DATE_CACHE_MAX = 4_096
"""Number of dates that are cached in both forms.

A second has one text, and thousands of messages arrive each second.
"""

STREAM_ID_CACHE_MAX = 1_024
"""Number of stream identifiers that are cached in both forms.

All messages of a stream carry the same identifier, and a sender has one stream for each queue.
"""

LEARNED_LAYOUTS_MAX = 256
"""Number of layouts that learned_layouts keeps.

A sender has about ten: with and without receipts, first and later in a stream, and so on.
"""

LEARNED_LENGTH_MAX = 8_192
"""Most characters of an envelope whose layout is kept.

Together with ``LEARNED_LAYOUTS_MAX`` this is 4 MB. A longer envelope is always read by the XML
reader.
"""

UNSIGNED_LONG_MAX = 2**64 - 1
"""Largest number of type xs:unsignedLong ([MC-MQSRM] 2.2.1.3)."""

CLASS_MAX = 2**32 - 1
"""Largest message class that is accepted.

A class has 16 bits ([MS-MQMQ] 2.2.18.1.6); unknown classes are kept as numbers, and larger numbers
are refused.
"""

PRIORITY_MAX = 7
"""Highest priority of a message ([MC-MQSRM] 2.2.6.2)."""

SEQUENCE_NUMBER_MAX = 2**32 - 1
"""Largest position in a stream, a 32-bit number ([MC-MQSRM] 3.1.1.2)."""

REFERENCES_MAX = 2
"""Most references of a signature: one to the body and one to the extension ([MC-MQSRM] 2.2.7.1.2).
"""

SIGNATURE_ELEMENTS_MAX = 64
"""Most elements in a ``<Signature>``.

The signature of the specification has eleven; a ``<KeyInfo>``, which is not read, may be added.
"""

SIGNATURE_VALUE_MAX = 1_400
"""Most characters of a ``<SignatureValue>``: 1,024 bytes, from the largest accepted key, in base64.
"""

SIGNER_KEYS_MAX = 4
"""Most keys of one signer: an old and a new one, each of both kinds.

All keys are tried for a message that none of them signed.
"""

SIGNER_RSA_BITS_MAX = 8_192
"""Longest RSA key in bits.

A longer key would cost more than a millisecond for each message of its sender.
"""

SIGNER_DSA_BITS_MAX = 2_048
"""Longest DSA key in bits.

A longer key would cost milliseconds for each message of its sender. A key of the year of the
specification has 1,024.
"""

SIGNER_KEY_BITS_MIN = 512
"""Shortest key in bits, the size of the signatures in the specification.

An operator is warned below 1,024.
"""
