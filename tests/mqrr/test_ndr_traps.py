"""Stubs that do not hold together, and where the interface misleads ([MS-MQRR] 3.1.4, [MS-RPCE] 3.1.1.5.3)."""

from __future__ import annotations

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from ndr_kit import DIRECT, GUID, HANDLE, vectors
from packet_kit import put

from srmp_spark.errors import ConfigurationError, LocalProtocolError
from srmp_spark.mqrr.errors import BadStubError
from srmp_spark.mqrr.guids import guid_bytes
from srmp_spark.mqrr.ndr import methods
from srmp_spark.mqrr.ndr.methods import (
    METHODS,
    EndReceiveRequest,
    EnlistRequest,
    HandleRequest,
    OpenRequest,
)
from srmp_spark.mqrr.ndr.queue_format_stub import (
    TEXT_WCHARS_MAX,
    read_queue_format,
    write_queue_format,
)
from srmp_spark.mqrr.ndr.receive import (
    NO_TRANSACTION,
    StartReceiveRequest,
    StartReceiveResponse,
    decode_start_receive_response,
    failure,
)
from srmp_spark.mqrr.ndr.stub import ContextHandle
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.packets.sections import SectionBuffer
from srmp_spark.mqrr.queue_format import (
    SYSTEM,
    QueueFormat,
    QueueFormatType,
    QueueSuffix,
    queue_format_for,
    queue_format_of,
)

SYNTAXES = pytest.mark.parametrize("syntax", [NDR, NDR64], ids=["NDR", "NDR64"])
OPEN = OpenRequest(DIRECT, access=methods.ACCESS_PEEK)
BY_NAME = {(vector.name, vector.syntax): vector.stub for vector in vectors()}


def decode(opnum: int, stub: bytes, syntax=NDR):
    return METHODS[opnum].decode_request(stub, syntax)


def test_what_a_client_says_of_itself():
    """Ours is no routing server, names no identifier and no workgroup; its version is one that has all opnums."""
    asked = OPEN
    assert (asked.client_id, asked.non_routing_server, asked.workgroup) == (
        "00000000-0000-0000-0000-000000000000",
        1,
        0,
    )
    assert (asked.major, asked.minor, asked.build_number) == (
        methods.CLIENT_MAJOR,
        methods.CLIENT_MINOR,
        0,
    )
    assert asked.major >= 4, "MSMQ 4.0 is the first with this interface"


def test_opnum_1_is_not_used_on_the_wire():
    assert set(METHODS) == {0, *range(2, 16)}


@SYNTAXES
def test_every_stub_that_ends_early_is_refused(syntax):
    for vector in vectors():
        if vector.syntax is syntax:
            for end in range(len(vector.stub)):
                with pytest.raises(BadStubError):
                    vector._replace(stub=vector.stub[:end]).decode()


@SYNTAXES
def test_bytes_behind_the_last_parameter_are_not_looked_at(syntax):
    """A verification trailer and its padding may follow; they are the RPC layer's business."""
    for vector in vectors():
        if vector.syntax is syntax and vector.name != "OpenQueue.req.private":
            assert (
                vector._replace(stub=vector.stub + b"\xbf\xbf\xbf\xbf").decode()
                == vector.golden.value
            )


@SYNTAXES
def test_gaps_are_not_looked_at(syntax):
    """impacket leaves 0xBF and 0xAA in them, Windows what was in memory."""
    stub = BY_NAME["StartReceive.rsp.two", syntax]
    noisy = bytearray(stub)
    noisy[4:8] = b"\xbf\xbf\xbf\xbf"
    if syntax is NDR:
        noisy[30:32] = b"\xaa\xaa"  # behind the 16 bits of an enumeration
    assert decode_start_receive_response(bytes(noisy), syntax) == decode_start_receive_response(
        stub, syntax
    )


def test_an_enumeration_has_16_bits_in_ndr_and_32_in_ndr64():
    response = StartReceiveResponse(1, 2, (SectionBuffer(4, 0, b""),), 0)
    assert response.encode(NDR)[28:30] == b"\x04\0"
    assert response.encode(NDR64)[40:44] == b"\x04\0\0\0"
    high = put(response.encode(NDR64), 40, 0x10004, 4)
    assert decode_start_receive_response(high, NDR64).sections[0].type == 0x10004


# --- the arrays of a receive ------------------------------------------------------------------------------------------------

TWO = StartReceiveResponse(7, 8, (SectionBuffer(1, 12, b"12345"), SectionBuffer(2, 3, b"987")), 0)
AT = {NDR: {"n": 16, "pointer": 20, "max": 24, "size": 28 + 8, "inner": 28 + 12, "count": 60},
      NDR64: {"n": 16, "pointer": 24, "max": 32, "size": 40 + 8, "inner": 40 + 16, "count": 88}}  # fmt: skip


@SYNTAXES
@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("n", 3, "array has 2"),
        ("n", 1, "array has 2"),
        ("max", 0xFFFFFFFF, "array has 4294967295"),
        ("pointer", 0, "at a NULL pointer"),
        ("size", 4, "SectionSize is 4 and the array has 5"),
        ("size", 0xFFFFFFFF, "SectionSize is"),
        ("count", 0xFFFFFFFF, "SectionSize is 5"),
        ("inner", 0, "a section of 5 bytes at a NULL pointer"),
    ],
)
def test_counts_and_pointers_that_do_not_agree(syntax, field, value, error):
    stub = put(TWO.encode(syntax), AT[syntax][field], value, 4)
    with pytest.raises(BadStubError, match=error):
        decode_start_receive_response(stub, syntax)


@SYNTAXES
def test_more_than_two_sections_are_no_message(syntax):
    stub = TWO.encode(syntax)
    stub = put(put(stub, AT[syntax]["n"], 3, 4), AT[syntax]["max"], 3, 4)
    with pytest.raises(BadStubError, match="a message of 3 sections"):
        decode_start_receive_response(stub, syntax)
    with pytest.raises(LocalProtocolError, match="at most 2 sections"):
        TWO._replace(sections=TWO.sections * 2).encode(syntax)


@SYNTAXES
def test_a_length_that_says_more_than_there_is_allocates_nothing(syntax):
    stub = put(
        put(TWO.encode(syntax), AT[syntax]["size"], 0x7FFFFFFF, 4),
        AT[syntax]["count"],
        0x7FFFFFFF,
        4,
    )
    with pytest.raises(BadStubError, match="needs 2147483647 bytes"):
        decode_start_receive_response(stub, syntax)


@SYNTAXES
def test_after_a_failure_only_the_status_counts(syntax):
    """ "The client MUST disregard all output parameter values": also a count of sections that are not there."""
    stub = put(failure(0xC00E0088).encode(syntax), 16, 5, 4)
    assert decode_start_receive_response(stub, syntax) == StartReceiveResponse(0, 0, (), 0xC00E0088)
    assert len(failure(0xC00E0088).encode(syntax)) == (28 if syntax is NDR else 36)


# --- opening ----------------------------------------------------------------------------------------------------------------


@SYNTAXES
def test_t35_a_tag_that_differs_from_the_discriminant_is_a_bad_stub(syntax):
    stub = OPEN.encode(syntax)
    with pytest.raises(BadStubError, match="tagged 1 and m_qft is 3"):
        decode(2, put(stub, 8 if syntax is NDR64 else 4, 1, 1), syntax)
    with pytest.raises(BadStubError, match="of type 9"):
        decode(2, put(put(stub, 8 if syntax is NDR64 else 4, 9, 1), 0, 9, 1), syntax)


def test_ndr64_a_private_name_with_and_without_the_gap_behind_it():
    with_gap = OpenRequest(QueueFormat(QueueFormatType.PRIVATE, guid=GUID, number=0x15), 1).encode(
        NDR64
    )
    assert len(with_gap) == 76
    without = with_gap[:36] + with_gap[40:]
    assert decode(2, with_gap, NDR64) == decode(2, without, NDR64)


@SYNTAXES
@pytest.mark.parametrize(
    "queue",
    [
        QueueFormat(QueueFormatType.UNKNOWN),
        QueueFormat(QueueFormatType.MACHINE, SYSTEM | QueueSuffix.DEADLETTER, GUID),
        QueueFormat(QueueFormatType.CONNECTOR, QueueSuffix.XACTONLY, GUID),
        QueueFormat(QueueFormatType.DL, guid=GUID, text="example.org"),
        QueueFormat(QueueFormatType.MULTICAST, address=0x010000EA, number=8001),
        QueueFormat(QueueFormatType.SUBQUEUE, QueueSuffix.SUBQUEUE, text=r"OS:a\q;retry"),
    ],
    ids=lambda queue: QueueFormatType(queue.type).name,
)
def test_t36_also_names_that_nobody_can_read_from_are_unmarshalled(syntax, queue):
    """So that they are answered with UNSUPPORTED_FORMATNAME_OPERATION and not with a fault."""
    assert decode(2, OPEN._replace(queue=queue).encode(syntax), syntax).queue == queue


@SYNTAXES
def test_a_null_name_is_an_empty_one(syntax):
    size = 8 if syntax is NDR64 else 4
    stub = write_queue_format(DIRECT, syntax)[: 2 * size] + bytes(size)
    assert read_queue_format(stub, 0, syntax, fewest_behind=0) == (
        QueueFormat(QueueFormatType.DIRECT),
        3 * size,
    )


@SYNTAXES
@pytest.mark.parametrize(
    ("field", "value", "error"),
    [
        ("most", 3, "at most 3 WCHARs, 25 of them"),
        ("offset", 1, "from 1 on"),
        ("actual", 0, "of 0 WCHARs"),
        ("actual", 26, "26 of them"),
        ("actual", 24, "NUL is not its last"),
    ],
)
def test_counts_of_a_name_that_do_not_agree(syntax, field, value, error):
    wide = syntax is NDR64
    at = (24 if wide else 12) + {"most": 0, "offset": 1, "actual": 2}[field] * (8 if wide else 4)
    with pytest.raises(BadStubError, match=error):
        decode(2, put(OPEN.encode(syntax), at, value, 4), syntax)


@SYNTAXES
def test_a_name_ends_with_its_only_nul(syntax):
    stub = OPEN.encode(syntax)
    inside = stub.replace("host1".encode("utf-16-le"), "ho\0t1".encode("utf-16-le"))
    with pytest.raises(BadStubError, match="NUL is not its last"):
        decode(2, inside, syntax)
    with pytest.raises(LocalProtocolError, match="NUL"):
        OPEN._replace(queue=DIRECT._replace(text="a\0b")).encode(syntax)


@SYNTAXES
def test_a_name_has_a_limit(syntax):
    longest = OPEN._replace(queue=DIRECT._replace(text="x" * (TEXT_WCHARS_MAX - 1)))
    assert decode(2, longest.encode(syntax), syntax) == longest
    with pytest.raises(LocalProtocolError, match="WCHARs of a queue name"):
        OPEN._replace(queue=DIRECT._replace(text="x" * TEXT_WCHARS_MAX)).encode(syntax)
    wide = syntax is NDR64
    at, size = (24, 8) if wide else (12, 4)
    stub = put(
        put(longest.encode(syntax), at, TEXT_WCHARS_MAX + 1, size),
        at + 2 * size,
        TEXT_WCHARS_MAX + 1,
        size,
    )
    with pytest.raises(BadStubError, match=f"1 to {TEXT_WCHARS_MAX}"):
        decode(2, stub + bytes(2), syntax)


# --- the other methods ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ack", [0, 3, 0xFFFFFFFF])
@pytest.mark.parametrize("opnum", [9, 15])
def test_an_ack_lies_in_its_range(ack, opnum):
    stub = put(EndReceiveRequest(HANDLE, 1, 7).encode(NDR), 20, ack, 4)
    with pytest.raises(BadStubError, match="its range is 1 to 2"):
        decode(opnum, stub)
    with pytest.raises(LocalProtocolError, match="dwAck"):
        EndReceiveRequest(HANDLE, ack, 7).encode(NDR)


@SYNTAXES
def test_a_propagation_token_has_its_range(syntax):
    largest = EnlistRequest(bytes(16), bytes(131_072), QueueFormat(QueueFormatType.UNKNOWN))
    assert decode(12, largest.encode(syntax), syntax) == largest
    with pytest.raises(LocalProtocolError, match="cbPropagationToken"):
        largest._replace(propagation_token=bytes(131_073)).encode(syntax)
    with pytest.raises(BadStubError, match="its range ends at 131072"):
        decode(12, put(largest.encode(syntax), 16, 131_073, 4), syntax)
    with pytest.raises(BadStubError, match="cbPropagationToken is 131071 and the array has 131072"):
        decode(12, put(largest.encode(syntax), 16, 131_071, 4), syntax)


def test_t12_no_transaction_is_all_zeros_and_never_a_null_pointer():
    request = StartReceiveRequest(HANDLE, transaction=NO_TRANSACTION)
    assert request.encode(NDR)[-16:] == bytes(16)
    assert decode(13, request.encode(NDR)).transaction == NO_TRANSACTION
    assert len(StartReceiveRequest(HANDLE).encode(NDR)) == len(request.encode(NDR)) - 16


@pytest.mark.parametrize("opnum", [2, 11])
def test_t32_void_methods_return_their_handle_and_no_status(opnum):
    size = {2: 20, 11: 28}[opnum]
    response = METHODS[opnum].decode_response(bytes(size), NDR)
    assert len(response.encode(NDR)) == size


def test_a_context_handle_has_16_bytes_of_uuid():
    with pytest.raises(LocalProtocolError, match="16 bytes"):
        HandleRequest(ContextHandle(0, b"short")).encode(NDR)
    assert repr(HANDLE) == "ContextHandle(0, 44332211665588770102030405060708)"


# --- format names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "queue"),
    [
        (r"DIRECT=OS:host\private$\orders", QueueFormat(3, text=r"OS:host\private$\orders")),
        (r"direct=tcp:192.0.2.1\orders", QueueFormat(3, text=r"tcp:192.0.2.1\orders")),
        (r"DIRECT=OS:host\orders;retry", QueueFormat(8, 5, text=r"OS:host\orders;retry")),
        (
            r"DIRECT=OS:host\SYSTEM$;DEADXACT",
            QueueFormat(3, 0x83, text=r"OS:host\SYSTEM$;DEADXACT"),
        ),
        (f"PUBLIC={GUID}", QueueFormat(1, guid=GUID)),
        (f"PUBLIC={GUID.upper()};JOURNAL", QueueFormat(1, 0x81, guid=GUID)),
        (f"PRIVATE={GUID}\\1f", QueueFormat(2, guid=GUID, number=0x1F)),
        (f"MACHINE={GUID};DEADLETTER", QueueFormat(4, 0x82, guid=GUID)),
    ],
)
def test_a_format_name_becomes_a_queue_format(name, queue):
    assert queue_format_of(name) == queue
    assert queue.violation() is None


@pytest.mark.parametrize(
    ("host", "queue", "expected"),
    [
        ("host", r"private$\orders", QueueFormat(3, text=r"OS:host\private$\orders")),
        (
            "host",
            "private$/orders;JOURNAL",
            QueueFormat(3, 0x81, text=r"OS:host\private$\orders;JOURNAL"),
        ),
        ("192.0.2.1", "orders", QueueFormat(3, text=r"TCP:192.0.2.1\orders")),
        ("host", "orders;sub", QueueFormat(8, 5, text=r"OS:host\orders;sub")),
        ("host", "deadletter$", QueueFormat(3, 0x82, text=r"OS:host\SYSTEM$;DEADLETTER")),
        ("host", "DeadXact$", QueueFormat(3, 0x83, text=r"OS:host\SYSTEM$;DEADXACT")),
        ("host", f"PUBLIC={GUID}", QueueFormat(1, guid=GUID)),
    ],
)
def test_host_and_queue_as_users_write_them(host, queue, expected):
    assert queue_format_for(host, queue) == expected
    assert expected.violation() is None


@pytest.mark.parametrize(
    ("host", "queue"), [("", "orders"), ("host", ""), ("a b", "orders"), ("host", "a,b")]
)
def test_host_and_queue_that_name_none(host, queue):
    with pytest.raises(ConfigurationError, match="cannot be read"):
        queue_format_for(host, queue)


def test_t37_a_journal_is_a_suffix_with_a_flag_and_stays_in_a_direct_name():
    queue = queue_format_of(r"DIRECT=OS:host\private$\orders;journal")
    assert (queue.type, queue.suffix, queue.flags) == (3, QueueSuffix.JOURNAL, SYSTEM)
    assert queue.text.endswith(";journal")


@pytest.mark.parametrize(
    "name",
    [
        "", "orders", "DIRECT=http://host/msmq/q", r"DIRECT=OS:host", r"DIRECT=OS:\q", "MULTICAST=234.1.1.1:8001",
        f"DL={GUID}", f"CONNECTOR={GUID}", f"MACHINE={GUID}", f"MACHINE={GUID};other", "PUBLIC=12", f"PRIVATE={GUID}",
        f"PRIVATE={GUID}\\123456789", f"PUBLIC={GUID}\\1", f"PUBLIC={GUID};DEADLETTER", r"DIRECT=OS:a\q,DIRECT=OS:b\q",
    ],
)  # fmt: skip
def test_t36_what_cannot_be_read_is_no_queue_to_open(name):
    with pytest.raises(ConfigurationError, match="queue"):
        queue_format_of(name)


@pytest.mark.parametrize(
    ("queue", "rule"),
    [
        (QueueFormat(4, 0), "MACHINE has no suffix NONE"),
        (QueueFormat(1, 0x01), "goes with flags 0x80, not 0x00"),
        (QueueFormat(1, 0x82), "PUBLIC has no suffix DEADLETTER"),
        (QueueFormat(1, 0x83), "PUBLIC has no suffix DEADXACT"),
        (QueueFormat(3, 0x04), "DIRECT has no suffix XACTONLY"),
        (QueueFormat(3, 0x05), "DIRECT has no suffix SUBQUEUE"),
        (QueueFormat(8, 0x85), "goes with flags 0x00"),
        (QueueFormat(3, 0x06), "suffix type 6 is unknown"),
        (QueueFormat(3, 0x80), "goes with flags 0x00"),
    ],
)
def test_rules_for_suffix_and_flags(queue, rule):
    assert rule in queue.violation()


# --- for all of them --------------------------------------------------------------------------------------------------------

u8, u16, u32, u64 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32, 64))
i32 = st.integers(-(2**31), 2**31 - 1)
guids = st.just(GUID) | st.binary(min_size=16, max_size=16).map(methods.guid_text)
sixteen = st.binary(min_size=16, max_size=16)
handles = st.builds(ContextHandle, u32, sixteen)
texts = st.text(st.characters(exclude_characters="\0"), max_size=30)


def made(make, *fields):
    """Values of ``fields`` and no others: ``st.builds`` fills optional fields of a NamedTuple too."""
    return st.tuples(*fields).map(lambda drawn: make(*drawn))


queues = st.one_of(
    made(QueueFormat, st.just(0), u8),
    made(QueueFormat, st.sampled_from([1, 4, 5]), u8, guids),
    made(QueueFormat, st.just(2), u8, guids, u32),
    made(
        lambda kind, flags, text: QueueFormat(kind, flags, text=text),
        st.sampled_from([3, 8]),
        u8,
        texts,
    ),
    made(lambda flags, guid, text: QueueFormat(6, flags, guid, text=text), u8, guids, texts),
    made(
        lambda flags, port, address: QueueFormat(7, flags, number=port, address=address),
        u8,
        u32,
        u32,
    ),
)
opens = made(OpenRequest, queues, u32, u32, guids, i32, u8, u8, u16, i32)
sections = st.lists(st.builds(SectionBuffer, u16, u32, st.binary(max_size=30)), max_size=2).map(
    tuple
)
responses = made(StartReceiveResponse, u32, u64, sections, u32)
statuses = st.builds(methods.StatusResponse, u32)
numbered = st.builds(methods.HandleNumberRequest, handles, u32)
handle_alone = st.builds(HandleRequest, handles)
ends = st.builds(EndReceiveRequest, handles, st.sampled_from([1, 2]), u32)
starts = made(StartReceiveRequest, handles, u64, u32, u32, u32, u32, u32, u32)
PARAMETERS = {
    0: (st.just(methods.NoParameters()), st.builds(methods.PortResponse, u32)),
    2: (opens, handle_alone),
    3: (handle_alone, st.builds(methods.CloseQueueResponse, handles, u32)),
    4: (handle_alone, st.builds(methods.CursorResponse, u32, u32)),
    5: (numbered, statuses),
    6: (handle_alone, statuses),
    7: (starts, responses),
    8: (numbered, statuses),
    9: (ends, statuses),
    10: (st.builds(methods.MoveMessageRequest, handles, u64, u64, sixteen), statuses),
    11: (opens, st.builds(methods.OpenForMoveResponse, u64, handles)),
    12: (st.builds(EnlistRequest, sixteen, st.binary(max_size=30), queues), statuses),
    13: (st.builds(lambda start, uow: start._replace(transaction=uow), starts, sixteen), responses),
    14: (st.builds(methods.SetClassRequest, handles, u64, u16), statuses),
    15: (ends, statuses),
}


@pytest.mark.parametrize("opnum", PARAMETERS)
def test_written_and_read_again_parameters_are_the_same(opnum):
    request, response = PARAMETERS[opnum]

    @settings(
        max_examples=20, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
    )
    @given(request, response)
    def check(request, response):
        for syntax in (NDR, NDR64):
            assert METHODS[opnum].decode_request(request.encode(syntax), syntax) == request
            assert METHODS[opnum].decode_response(response.encode(syntax), syntax) == response

    check()


def test_every_method_is_tried():
    assert set(PARAMETERS) == set(METHODS)
    assert guid_bytes(GUID) == HANDLE.uuid
