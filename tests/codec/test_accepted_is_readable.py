"""What the codec accepts, a reader can show: a row that is answered 200 and cannot be decoded blocks its whole queue."""

from __future__ import annotations

import pytest
from hypothesis import given
from message_strategies import bare_messages, full_messages, quick

from srmp_spark.message import Arrival, Message
from srmp_spark.rows.columns import arrow_schema
from srmp_spark.rows.decode import rows_of
from srmp_spark.rows.group import Record, pack_group, unpack_group
from srmp_spark.srmp.codec.encoder import encode, http_head

GUID = "caf195ea-615c-4264-ae08-11a4e60194c0"


def record(message: Message) -> Record:
    content_type, content = encode(message, boundary="MSMQ - SOAP boundary, 1")
    head = http_head("/msmq/private$/q", "machine2", content_type, len(content))
    return Record(
        Arrival(1_784_430_700_000_000, "http", "192.0.2.1:4711"), head + content, len(head)
    )


@quick
@given(bare_messages | full_messages())
def test_every_message_that_decodes_becomes_a_row_of_every_column(message: Message) -> None:
    ((sequence, stored),) = unpack_group(pack_group(9, [record(message)]))
    batch = rows_of(GUID, "e1", "private$/q", [(sequence, stored)], envelope=True)
    assert batch.schema == arrow_schema()
    batch.validate(full=True)
    (row,) = batch.drop_columns(
        ["sent_at", "expires_at", "time_to_reach_queue", "receipt_at"]
    ).to_pylist()
    assert row["message_id"] == message.id
    assert row["class"] & 0xFFFF_FFFF == message.message_class
    for name in ("uniquifier", "body_type", "app_specific"):
        assert row[name] & 0xFFFF_FFFF_FFFF_FFFF == getattr(message, name)


@pytest.mark.parametrize(
    ("number", "shown"), [(2**31 - 1, 2**31 - 1), (2**31, -(2**31)), (2**32 - 1, -1)]
)
def test_a_class_from_2_to_the_31st_on_is_shown_as_twos_complement(number: int, shown: int) -> None:
    message = Message(
        "http://machine2/msmq/private$/q", "MSMQ:", GUID, 2**64 - 1, True, number, source_qm=GUID
    )
    (row,) = rows_of(GUID, "e1", "private$/q", [(1, record(message))]).to_pylist()
    assert row["class"] == shown
    assert row["uniquifier"] == -1
    assert row["message_id"] == f"{{{GUID}}}\\18446744073709551615"
