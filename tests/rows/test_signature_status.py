"""What a record keeps of its signature's verdict: in a group, in a segment, in its row; and old and newer records."""

from __future__ import annotations

import struct
import zlib

import pytest
from rows_kit import ARRIVAL, varied

from srmp_spark.errors import StoreDamagedError
from srmp_spark.message import SignatureStatus
from srmp_spark.rows.decode import decode, rows_of
from srmp_spark.rows.group import FORM_OF, Form, Record, pack_group, unpack_group
from srmp_spark.rows.segment import encode_segment, read_segment, records_of
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from tests.kit.foreign.signature import rsa_signer, signed_post

SOURCE = "aaaaaaaa-0000-4000-8000-000000000001"
SENT = ForeignMessage(
    to="http://h/msmq/private$/orders",
    lineage=SOURCE,
    uniquifier=1,
    sent_at=1_790_000_000,
    body=b"b",
)
SIGNED = signed_post(SENT, rsa_signer().sign).raw
UNSIGNED = post(SENT).raw


def record(raw: bytes, signature: SignatureStatus) -> Record:
    return Record(ARRIVAL, raw, raw.index(b"\r\n\r\n") + 4, FORM_OF[signature])


RECORDS = [
    record(UNSIGNED, "none"), record(SIGNED, "valid"), record(SIGNED, "unverified"), record(SIGNED, "invalid"),
    record(SIGNED, "valid"),
]  # fmt: skip
STATUSES = ["none", "valid", "unverified", "invalid", "valid"]


def statuses(pairs: list[tuple[int, Record]]) -> list[str]:
    return rows_of("qm", "e", "private$/orders", pairs).column("signature_status").to_pylist()


def test_a_group_keeps_the_verdict() -> None:
    pairs = list(unpack_group(pack_group(1, RECORDS)))
    assert [found for _, found in pairs] == RECORDS
    assert statuses(pairs) == STATUSES
    assert statuses(pairs[1:2]) == ["valid"]


def test_a_segment_keeps_the_verdict() -> None:
    sealed = encode_segment(decode("private$/orders", list(enumerate(RECORDS, 1))))
    assert [found for _, found in records_of(sealed.columns, sealed.posts)] == RECORDS
    rows = read_segment(sealed.columns, "qm", "e", "private$/orders")
    assert rows.column("signature_status").to_pylist() == STATUSES


def test_a_signed_message_of_0_1_is_unverified_and_readable_however_its_signature_looks() -> None:
    """0.1 kept form 0 for all, and took what is refused as malformed today."""
    broken = SIGNED.replace(b"<SignedInfo>", b"<SignatureX>").replace(
        b"</SignedInfo>", b"</SignatureX>"
    )
    pairs = list(
        enumerate(
            [Record(ARRIVAL, broken, broken.index(b"\r\n\r\n") + 4), record(SIGNED, "unverified")],
            1,
        )
    )
    assert {found.form for _, found in pairs} == {0}
    assert statuses(pairs) == ["unverified", "unverified"]


def test_unsigned_messages_are_stored_as_before() -> None:
    """Bytes that 0.1 reads, too."""
    blob = pack_group(1, [found for _, found in varied(20)])
    assert all(found.form == 0 for _, found in unpack_group(blob))
    assert FORM_OF["none"] is FORM_OF["unverified"] is Form.SRMP == 0


def test_a_record_of_a_newer_version_is_an_error_in_words() -> None:
    blob = bytearray(pack_group(1, RECORDS[:1]))
    blob[20] = 77  # the form of the first record, after magic, checksum, sequence and count
    blob[4:8] = struct.pack("<I", zlib.crc32(blob[8:]))
    with pytest.raises(StoreDamagedError, match="form 77, which a newer version wrote"):
        list(unpack_group(bytes(blob)))
