"""For every packet there is: written and read again it is the same, however it is divided."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from packet_kit import GUID, GUID_2, split_sections

from srmp_spark.errors import LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.guids import guid_bytes, guid_text
from srmp_spark.mqrr.packets import limits
from srmp_spark.mqrr.packets.base_header import BaseHeader
from srmp_spark.mqrr.packets.debug_header import DebugHeader
from srmp_spark.mqrr.packets.host_address import HostAddress
from srmp_spark.mqrr.packets.message_packet import MessagePacket, parse_message_packet
from srmp_spark.mqrr.packets.message_properties_header import MessagePropertiesHeader
from srmp_spark.mqrr.packets.multi_queue_format_header import (
    FormatNameElement,
    FormatType,
    MultiQueueFormatHeader,
)
from srmp_spark.mqrr.packets.queue_names import (
    ADMIN_TYPES,
    DESTINATION_TYPES,
    NO_QUEUE,
    RESPONSE_TYPES,
    SAME_AS_ADMIN,
    QueueName,
    QueueNameType,
    direct_queue,
)
from srmp_spark.mqrr.packets.sections import join_sections
from srmp_spark.mqrr.packets.security_header import SecurityHeader
from srmp_spark.mqrr.packets.session_header import SessionHeader
from srmp_spark.mqrr.packets.soap_header import SoapHeader
from srmp_spark.mqrr.packets.srmp_headers import CompoundMessageHeader, SRMPEnvelopeHeader
from srmp_spark.mqrr.packets.trailers import DeadLetterHeader, SubqueueHeader, Trailers
from srmp_spark.mqrr.packets.transaction_header import TransactionHeader
from srmp_spark.mqrr.packets.user_header import UserHeader

u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (16, 32, 64))
guids = st.binary(min_size=16, max_size=16).map(guid_text)
data = st.binary(max_size=40)
text = st.text(
    st.characters(exclude_characters="\0"), max_size=20
)  # half surrogate pairs among them
flag = st.booleans()

SETTINGS = settings(
    max_examples=50, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)
"""Not made smaller when one fails: that takes minutes with packets of fifteen headers, and says little more."""


def queues(kinds: frozenset[QueueNameType]) -> st.SearchStrategy[QueueName]:
    found = {
        QueueNameType.NONE: st.just(NO_QUEUE),
        QueueNameType.SAME_AS_ADMIN: st.just(SAME_AS_ADMIN),
        QueueNameType.PUBLIC: st.builds(QueueName, type=st.just(QueueNameType.PUBLIC), guid=guids),
        QueueNameType.PRIVATE_ELSEWHERE: st.builds(
            QueueName, type=st.just(QueueNameType.PRIVATE_ELSEWHERE), guid=guids, private_id=u32
        ),
        QueueNameType.DIRECT: text.map(direct_queue),
    }
    return st.one_of(
        *(
            found.get(kind, st.builds(QueueName, type=st.just(kind), private_id=u32))
            for kind in sorted(kinds)
        )
    )


elements = st.lists(
    st.one_of(
        st.builds(FormatNameElement, type=st.just(FormatType.DIRECT), direct=text),
        st.builds(
            FormatNameElement,
            type=st.sampled_from([FormatType.PUBLIC, FormatType.DISTRIBUTION_LIST]),
            guid=guids,
        ),
        st.builds(FormatNameElement, type=st.just(FormatType.PRIVATE), guid=guids, private_id=u32),
    ),
    max_size=4,
).map(tuple)
maybe_guid = st.none() | guids
small_names = st.text("abcß", max_size=limits.SUBQUEUE_NAME_SIZE // 2 - 1)
securities = st.builds(
    SecurityHeader, sender_id_type=st.integers(0, 15), authenticated=flag, authentication_level=st.integers(0, 15),
    body_encrypted=flag, default_provider=flag, security_data_announced=flag,
    security_id=data, encryption_key=data, signature=data, sender_cert=data, provider_info=data,
)  # fmt: skip
trailers = st.builds(
    Trailers, dead_letter_queue_invalid=flag,
    subqueue=st.none() | st.builds(
        SubqueueHeader, acknowledgement_class=u16, abort_counter=u32, move_counter=u32, last_move_time=u32,
        subqueue_name=small_names, target_subqueue_name=small_names,
    ),
    dead_letter=st.none() | st.builds(DeadLetterHeader, path_name=text),
    received_from=st.none() | st.builds(
        HostAddress, length=u16, type=u16, scope=u32, address=st.binary(min_size=16, max_size=16)
    ),
)  # fmt: skip
compounds = st.tuples(data, st.integers(0, 40), st.integers(0, 40)).map(
    lambda drawn: CompoundMessageHeader(
        data=drawn[0],
        msg_body_offset=min(drawn[1], len(drawn[0])),
        msg_body_size=max(0, min(drawn[2], len(drawn[0]) - drawn[1])),
    )
)


@st.composite
def packets(draw: st.DrawFn) -> MessagePacket:
    transaction = draw(
        st.none() | st.builds(
            TransactionHeader, final_ack=flag, first_in_transaction=flag, last_in_transaction=flag,
            transaction_id=st.integers(0, 2**20 - 1), sequence_id=u64, sequence_number=u32, previous_sequence_number=u32,
            connector_queue_manager=maybe_guid,
        )
    )  # fmt: skip
    debug = draw(st.none() | st.builds(DebugHeader, queue=maybe_guid))
    srmp = draw(flag)
    user = st.builds(
        UserHeader, source_queue_manager=guids, queue_manager_address=st.binary(min_size=16, max_size=16),
        time_to_be_received=u32, sent_time=u32, message_id=u32, hop_count=st.integers(0, 31),
        delivery_mode=st.integers(0 if transaction is None else 1, 3), negative_journaling=flag, positive_journaling=flag,
        destination_queue=queues(DESTINATION_TYPES), admin_queue=queues(ADMIN_TYPES), response_queue=queues(RESPONSE_TYPES),
        connector_type=maybe_guid,
    )  # fmt: skip
    properties = st.builds(
        MessagePropertiesHeader, acknowledgements=st.integers(0, 15), message_class=u16,
        correlation_id=st.binary(min_size=20, max_size=20), body_type=u32, application_tag=u32,
        allocation_body_size=st.integers(100, 2**32 - 1), privacy_level=u32, hash_algorithm=u32, encryption_algorithm=u32,
        label=text, extension_data=data, message_body=data,
    )  # fmt: skip
    return MessagePacket(
        base=draw(st.builds(
            BaseHeader, priority=st.integers(0, 0 if transaction else 7), tracing=flag if debug else st.just(False),
            time_to_reach_queue=u32, reserved=st.integers(0, 255),
        )),
        user=draw(user), transaction=transaction, security=draw(st.none() | securities), properties=draw(properties),
        debug=debug, envelope=draw(st.builds(SRMPEnvelopeHeader, header_id=u16, data=text)) if srmp else None,
        compound=draw(compounds) if srmp else None, soap=draw(st.none() | st.builds(SoapHeader, header=text, body=text)),
        multi_queue_format=draw(st.none() | st.builds(
            MultiQueueFormatHeader, destination=elements, administration=elements, response=elements, signature=data,
        )),
        session=draw(st.none() | st.builds(
            SessionHeader, ack_sequence_number=u16, recoverable_msg_ack_seq_number=u16, recoverable_msg_ack_flags=u32,
            user_msg_sequence_number=u16, recoverable_msg_seq_number=u16, window_size=u16,
        )),
        trailers=draw(st.none() | trailers),
    )  # fmt: skip


@SETTINGS
@given(packets())
def test_written_and_read_again_a_packet_is_the_same(packet):
    encoded = packet.encode()
    assert parse_message_packet(encoded) == packet
    assert parse_message_packet(encoded).encode() == encoded


@SETTINGS
@given(packets(), st.integers(0, 60))
def test_cut_by_any_limit_only_the_body_is_missing(packet, limit):
    sections = split_sections(packet, limit)
    joined = join_sections(sections)
    assert (joined.missing == 0) == (len(sections) == 1 and sections[0].type == 0)
    for name in (
        "base",
        "user",
        "transaction",
        "security",
        "debug",
        "envelope",
        "soap",
        "multi_queue_format",
        "session",
        "trailers",
    ):
        assert getattr(joined, name) == getattr(packet, name), name
    if packet.compound is None:
        assert (joined.body, joined.missing) == (
            packet.body[:limit],
            max(len(packet.body) - limit, 0),
        )


@SETTINGS
@given(packets(), st.data())
def test_a_packet_that_ends_early_is_refused(packet, draws):
    encoded = packet.encode()
    at = draws.draw(st.integers(0, len(encoded) - 1))
    with pytest.raises(RemoteProtocolError):
        parse_message_packet(encoded[:at])


@SETTINGS
@given(st.binary(min_size=16, max_size=16))
def test_a_guid_is_the_same_in_both_forms(raw):
    assert guid_bytes(guid_text(raw)) == raw


@pytest.mark.parametrize("text", ["", GUID[:-1], "{" + GUID + "}", GUID_2.replace("-", "")])
def test_what_is_no_guid_is_refused(text):
    with pytest.raises(LocalProtocolError, match="not a GUID"):
        guid_bytes(text)
