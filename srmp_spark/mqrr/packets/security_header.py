"""SecurityHeader: sender, signature, certificate and encryption key ([MS-MQMQ] 2.2.20.6).

The sizes say which parts of SecurityData are present. Bit AI ("SecurityData is present") is 0 in
the packet that [MS-MQQB] 4.1.7 prints, although a SID of 28 bytes follows. So the bit is kept but
not used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from struct import Struct
from typing import NamedTuple

from srmp_spark.errors import LimitExceededError
from srmp_spark.mqrr.packets.limits import SENDER_CERT_MAX, U16_MAX, U32_MAX
from srmp_spark.mqrr.packets.wire import fits, pad, padded, read_wchars, require

_SECTION = "[MS-MQMQ] 2.2.20.6"
_LAYOUT = Struct("<HHHHII")
_AU, _EB, _DE, _AI = 1 << 4, 1 << 5, 1 << 6, 1 << 7
_AS_MAX = 0xF
_ST_MAX = 0xF


class SenderIdType(IntEnum):
    """Field ST: the kind of identifier in SecurityID."""

    NONE = 0
    SID = 1
    QUEUE_MANAGER = 2


class ProviderInfo(NamedTuple):
    """The cryptographic provider of a signature, if it is not the default provider."""

    type: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SecurityHeader:
    """The security fields of one message, which this class does not verify."""

    sender_id_type: int = SenderIdType.NONE
    authenticated: bool = False
    """Bit AU: 0 between queue managers.

    In a remote read the bit may state whether the queue manager verified the signature.
    """
    authentication_level: int = 0
    """Field AS: also 0 between queue managers.

    [MS-MQDMPR] 3.1.7.1.31 reads 0, 1, 3 or 5 (none, signatures of MSMQ 1.0, 2.0, 3.0) from AU. AU
    has one bit, so the document must mean this field.
    """
    body_encrypted: bool = False
    """Bit EB: the body is encrypted.

    The receiving queue manager decrypts the body, so a remote read should not see this bit.
    """
    default_provider: bool = False
    """Bit DE: the signature was made with the default provider."""
    security_data_announced: bool = True
    """Bit AI, as received; the sizes of the parts count instead."""
    security_id: bytes = b""
    encryption_key: bytes = b""
    signature: bytes = b""
    sender_cert: bytes = b""
    provider_info: bytes = b""
    """ProviderType and ProviderName as received; :meth:`provider` parses them."""

    def provider(self) -> ProviderInfo | None:
        """Return the type and name of the provider; ``None`` if the header names no provider.

        Raises :class:`RemoteProtocolError` if there are fewer than the four bytes of the type.
        """
        if not self.provider_info:
            return None
        require(0, 4, len(self.provider_info), "ProviderType", _SECTION)
        name = read_wchars(self.provider_info, 4, (len(self.provider_info) - 4) // 2)
        return ProviderInfo(int.from_bytes(self.provider_info[:4], "little"), name)

    def encode(self) -> bytes:
        """Encode the fixed 16 bytes of the header, and the parts of SecurityData, each padded.

        Raises :class:`LocalProtocolError` if a part is too long.
        """
        flags = (
            fits(self.sender_id_type, _ST_MAX, "ST")
            | self.authenticated * _AU
            | self.body_encrypted * _EB
            | self.default_provider * _DE
            | self.security_data_announced * _AI
            | fits(self.authentication_level, _AS_MAX, "AS") << 8
        )
        head = _LAYOUT.pack(
            flags,
            fits(len(self.security_id), U16_MAX, "SenderIdSize"),
            fits(len(self.encryption_key), U16_MAX, "EncryptionKeySize"),
            fits(len(self.signature), U16_MAX, "SignatureSize"),
            fits(len(self.sender_cert), SENDER_CERT_MAX, "SenderCertSize"),
            fits(len(self.provider_info), U32_MAX, "ProviderInfoSize"),
        )
        parts = (
            self.security_id,
            self.encryption_key,
            self.signature,
            self.sender_cert,
            self.provider_info,
        )
        return head + b"".join(map(pad, parts))


def parse_security_header(data: bytes, at: int, end: int) -> tuple[SecurityHeader, int]:
    """Parse the header at ``at``; return the header and the offset of the next one.

    Raises :class:`RemoteProtocolError` if a part is cut. Raises :class:`LimitExceededError` if the
    certificate has more than 65,535 bytes. Senders must not set all sizes to 0 ("At least one …
    MUST be nonzero"), or send a SecurityID with the type that means none. A header that breaks
    these rules is harmless, and a refused message could never be read, so the header is accepted.
    """
    require(at, _LAYOUT.size, end, "SecurityHeader", _SECTION)
    flags, *sizes = _LAYOUT.unpack_from(data, at)
    if sizes[3] > SENDER_CERT_MAX:
        raise LimitExceededError("SENDER_CERT_MAX", SENDER_CERT_MAX, sizes[3], section=_SECTION)
    at += _LAYOUT.size
    parts = []
    for size, what in zip(
        sizes,
        ("SecurityID", "EncryptionKey", "Signature", "SenderCert", "ProviderInfo"),
        strict=True,
    ):
        require(at, size, end, what, _SECTION)
        parts.append(data[at : at + size])
        at += padded(size)
    header = SecurityHeader(
        sender_id_type=flags & _ST_MAX,
        authenticated=bool(flags & _AU),
        authentication_level=flags >> 8 & _AS_MAX,
        body_encrypted=bool(flags & _EB),
        default_provider=bool(flags & _DE),
        security_data_announced=bool(flags & _AI),
        security_id=parts[0],
        encryption_key=parts[1],
        signature=parts[2],
        sender_cert=parts[3],
        provider_info=parts[4],
    )
    return header, at
