"""Every limit of the codec, with its reason ([MC-MQSRM] names none; Windows' own are not published).

A broken structural limit can never succeed, so it is answered 400; only a body above ``BODY_MAX`` is answered 413. Tests
import these names and go past each of them on purpose.
"""

from __future__ import annotations

BODY_MAX = 4_194_304
"""Bytes of body and extension together: MSMQ's own limit of 4 MB a message. Above it: 413."""

ENVELOPE_MAX = 65_536
"""Bytes of the SOAP envelope. Windows' largest, a hundred multi-queue names of 250 characters, stays below half of it."""

PARTS_MAX = 3
"""Envelope, body, extension: [MC-MQSRM] 2.2.2 and 2.2.7 know no fourth part."""

PART_HEAD_MAX = 4_096
"""Bytes from a MIME delimiter to the blank line after it; Windows writes about 120."""

PART_HEAD_LINES_MAX = 32
"""Header fields of one part; Windows writes three."""

BOUNDARY_MAX = 70
"""Characters of a boundary, RFC 2046 5.1.1."""

PADDING_MAX = 64
"""Blanks after a delimiter, which RFC 2046 calls transport padding, and line ends after the last delimiter."""

CONTENT_MAX = BODY_MAX + ENVELOPE_MAX + (PARTS_MAX + 1) * PART_HEAD_MAX
"""Bytes of a whole HTTP body that can still be a message; for the endpoint, which must know before it has read all."""

CONTENT_TYPE_MAX = 1_024
"""Bytes of the value of a Content-Type field after unfolding: each fold counts as the one blank that it becomes."""

TARGET_MAX = 2_048
"""Bytes of a request target: 124 characters of a queue name, each up to 12 bytes percent-encoded, and a query. Above: 414."""

DEPTH_MAX = 16
"""Nested elements. SRMP needs five; se:Body and foreign header entries may bring their own."""

ELEMENTS_MAX = 2_000
"""Elements of one envelope; SRMP has 45 names."""

ATTRIBUTES_MAX = 32
"""Attributes of one element; SRMP uses one."""

ATTRIBUTE_LENGTH_MAX = 1_024
"""Characters of one attribute's value."""

NAMES_MAX = 100
"""Queue names in one DestinationMqf, AdminMqf or ResponseMqf ([MC-MQSRM] 2.2.6.14 to 2.2.6.16)."""

DATE_CACHE_MAX = 4_096
"""Dates kept in both forms: a second has one text, and messages come by the thousand a second."""

STREAM_ID_CACHE_MAX = 1_024
"""Stream identifiers kept in both forms: all messages of a stream carry one, and a sender has one stream a queue."""

LEARNED_LAYOUTS_MAX = 256
"""Layouts kept by learned_layouts. A sender has about ten: with and without receipts, first and later in a stream, …"""

LEARNED_LENGTH_MAX = 8_192
"""Characters of an envelope whose layout is worth keeping; with the limit above: 4 MB."""

UNSIGNED_LONG_MAX = 2**64 - 1
"""xs:unsignedLong, [MC-MQSRM] 2.2.1.3."""

CLASS_MAX = 2**32 - 1
"""A message class has 16 bits ([MS-MQMQ] 2.2.18.1.6); unknown ones are kept as numbers, absurd ones are refused."""

PRIORITY_MAX = 7
"""[MC-MQSRM] 2.2.6.2."""

SEQUENCE_NUMBER_MAX = 2**32 - 1
"""A position in a stream is a 32-bit number ([MC-MQSRM] 3.1.1.2)."""

REFERENCES_MAX = 2
"""References of a signature: one of the body and one of the extension ([MC-MQSRM] 2.2.7.1.2)."""

SIGNATURE_ELEMENTS_MAX = 64
"""Elements in a ``<Signature>``. The document's has eleven; a ``<KeyInfo>`` that nobody reads may be there as well."""

SIGNATURE_VALUE_MAX = 1_400
"""Characters of a ``<SignatureValue>``: what the largest key that is taken writes, 1,024 bytes, in base64."""

SIGNER_KEYS_MAX = 4
"""Keys of one signer: the old, the new, and each of both kinds. All are tried for a message that none of them signed."""

SIGNER_RSA_BITS_MAX = 8_192
"""A larger RSA key would cost each message of its sender more than a millisecond."""

SIGNER_DSA_BITS_MAX = 2_048
"""A larger DSA key would cost each message of its sender milliseconds; one of the year of the document has 1,024."""

SIGNER_KEY_BITS_MIN = 512
"""The signatures that the document prints are of this size; an operator is warned below 1,024."""
