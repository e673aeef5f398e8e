"""The PDUs of DCE/RPC byte by byte (C706 12.6, [MS-RPCE] 2.2.2), and those that are none."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from packet_kit import put

from srmp_spark.errors import LimitExceededError, LocalProtocolError, RemoteProtocolError
from srmp_spark.mqrr.guids import guid_text
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.rpc import binding, calls, pdu
from srmp_spark.mqrr.rpc.binding import (
    NDR64_ID,
    NDR_ID,
    REMOTE_READ,
    Bind,
    BindAck,
    BindNak,
    Context,
    RejectReason,
    Result,
    ResultCode,
    SyntaxId,
)
from srmp_spark.mqrr.rpc.calls import (
    Assembly,
    RequestFragment,
    RpcFault,
    request_pieces,
    response_pieces,
)
from srmp_spark.mqrr.rpc.limits import (
    FRAGMENT_LENGTH_MAX,
    FRAGMENT_MIN,
    FRAGMENTS_MAX,
    RESPONSE_MAX,
    STUB_MAX,
    TOKEN_MAX,
)
from srmp_spark.mqrr.rpc.negotiation import answer, features_of, features_syntax, offers
from srmp_spark.mqrr.rpc.pdu import (
    OBJECT_UUID,
    WHOLE,
    AuthTrailer,
    PduStream,
    PduType,
    encode_pdu,
    parse_pdu,
)
from srmp_spark.mqrr.rpc.verification_trailer import (
    SIGNATURE,
    VerificationTrailer,
    append_trailer,
    split_trailer,
)

OTHER = SyntaxId("41208ee0-e970-11d1-9b9e-00e02c064c39", 1)
SETTINGS = settings(
    max_examples=40, deadline=None, derandomize=True, database=None, phases=[Phase.generate]
)
u8, u16, u32 = (st.integers(0, 2**bits - 1) for bits in (8, 16, 32))
syntaxes = st.builds(SyntaxId, st.binary(min_size=16, max_size=16).map(guid_text), u32)


def test_the_common_header():
    raw = encode_pdu(PduType.CO_CANCEL, WHOLE, 0x01020304, b"")
    assert raw == bytes.fromhex("05 00 12 03 10000000 1000 0000 04030201")
    assert parse_pdu(raw) == pdu.Pdu(PduType.CO_CANCEL, WHOLE, 0x01020304, b"", None, raw)


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (0, 4, "version 4.0"),
        (1, 1, "version 5.1"),
        (4, 0x00, "not little-endian"),
        (8, 17, "frag_length"),
        (10, 9, "auth_length"),
    ],
)
def test_what_is_no_pdu(at, value, error):
    with pytest.raises(RemoteProtocolError, match=error):
        parse_pdu(put(encode_pdu(0, WHOLE, 1, b""), at, value, 1))
    with pytest.raises(RemoteProtocolError, match="a PDU of 15 bytes"):
        parse_pdu(bytes(15))


def test_an_authentication_trailer_ends_a_pdu():
    auth = AuthTrailer(10, 6, 7, b"token")
    raw = encode_pdu(PduType.REQUEST, WHOLE, 1, bytes(8) + b"stub!", auth, stub_at=8)
    assert len(raw) == 16 + 8 + 16 + 8 + 5  # aligned to 16 from the stub
    assert raw[-13:] == bytes.fromhex("0a 06 0b 00 07000000") + b"token"
    parsed = parse_pdu(raw)
    assert parsed.auth == auth._replace(pad_length=11)
    assert parsed.body == bytes(8) + b"stub!"
    negotiation = encode_pdu(PduType.BIND, WHOLE, 1, bytes(20), auth)
    assert len(negotiation) == 16 + 20 + 8 + 5


@pytest.mark.parametrize(("at", "value"), [(10, 40), (26, 17)])
def test_a_trailer_that_reaches_into_the_header(at, value):
    raw = encode_pdu(PduType.BIND, WHOLE, 1, bytes(8), AuthTrailer(10, 6, 7, b"t"))
    with pytest.raises(RemoteProtocolError):
        parse_pdu(put(raw, at, value, 1))


@pytest.mark.parametrize("size", [0, TOKEN_MAX + 1])
def test_a_token_has_limits(size):
    with pytest.raises(LocalProtocolError, match="authentication token"):
        encode_pdu(0, WHOLE, 1, b"", AuthTrailer(10, 6, 7, bytes(size)))


def test_a_pdu_has_16_bits_of_length():
    assert len(encode_pdu(0, WHOLE, 1, bytes(FRAGMENT_LENGTH_MAX - 16))) == FRAGMENT_LENGTH_MAX
    with pytest.raises(LocalProtocolError, match="frag_length"):
        encode_pdu(0, WHOLE, 1, bytes(FRAGMENT_LENGTH_MAX - 15))


@pytest.mark.parametrize("step", [1, 3, 10, 16, 33, 1000])
def test_pdus_are_cut_out_of_a_stream_however_it_comes(step):
    whole = [encode_pdu(0, WHOLE, number, bytes(number)) for number in range(20)]
    data = b"".join(whole)
    stream = PduStream()
    found = [
        raw for at in range(0, len(data), step) for raw in stream.receive(data[at : at + step])
    ]
    assert found == whole
    assert len(stream) == 0
    assert stream


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [(0, 0x47, "version 71"), (4, 0, "little-endian"), (8, 15, "frag_length is 15")],
)
def test_a_stream_that_is_none_is_refused_as_soon_as_it_can_be_told(at, value, error):
    begin = put(encode_pdu(0, WHOLE, 1, bytes(100)), at, value, 1)[:10]
    with pytest.raises(RemoteProtocolError, match=error):
        list(PduStream().receive(begin))


def test_what_is_whole_counts_whatever_comes_behind_it():
    """Found by the fuzzer: a call and garbage in one piece was garbage alone, in two pieces a call and garbage."""
    whole = encode_pdu(0, WHOLE, 1, b"")
    pdus = PduStream().receive(whole + b"garbage, ten bytes")
    assert next(pdus) == whole
    with pytest.raises(RemoteProtocolError, match="version 103"):
        next(pdus)


# --- negotiation ------------------------------------------------------------------------------------------------------------


def test_a_bind_as_windows_writes_it():
    """Three contexts: NDR, NDR64, and the features of bind time in a UUID of their own."""
    body = Bind(5840, 5840, 0, offers(REMOTE_READ, (NDR, NDR64), 3)).encode()
    assert body[:12] == bytes.fromhex("d016 d016 00000000 03 000000")
    assert body[12:16] == bytes.fromhex("0000 01 00")
    assert body[16:36] == bytes.fromhex("dd34911a397bba45ad8844d01ca47f28 01000000")
    assert body[36:56] == bytes.fromhex("045d888aeb1cc9119fe808002b104860 02000000")
    assert body[56 + 24 : 100] == bytes.fromhex("33057171babe37498319b5dbef9ccc36 01000000")
    assert body[100 + 24 :] == bytes.fromhex("2c1cb76c12984045 0300000000000000 01000000")
    assert binding.parse_bind(body).encode() == body


@SETTINGS
@given(st.builds(Bind, u16, u16, u32, st.lists(
    st.builds(Context, u16, syntaxes, st.lists(syntaxes, max_size=3).map(tuple)), max_size=3).map(tuple)))  # fmt: skip
def test_a_bind_is_read_as_it_was_written(bind):
    body = bind.encode()
    assert binding.parse_bind(body) == bind
    for end in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            binding.parse_bind(body[:end])


@SETTINGS
@given(st.builds(BindAck, u16, u16, u32, st.text("0123456789", max_size=6),
                 st.lists(st.builds(Result, u16, u16, syntaxes), max_size=3).map(tuple)))  # fmt: skip
def test_a_bind_ack_is_read_as_it_was_written(ack):
    body = ack.encode()
    assert binding.parse_bind_ack(body) == ack
    for end in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            binding.parse_bind_ack(body[:end])


def test_the_results_of_a_bind_ack_are_aligned_behind_the_address():
    body = BindAck(5840, 5840, 1, "2103", (Result(0, 0, NDR_ID),)).encode()
    assert body[8:15] == bytes.fromhex("0500") + b"2103\0"
    assert body[15:20] == bytes(1) + bytes.fromhex("01 000000")  # 16 + 16 is a multiple of 4


def test_a_bind_nak_and_what_may_follow_it():
    body = BindNak(binding.NakReason.INVALID_CHECKSUM).encode()
    assert body == bytes.fromhex("0900 01 05 00")
    extended = body + bytes.fromhex("20ed7e90f0e8f747bd42a8d9e1a6b0d0") + b"blob"
    assert binding.parse_bind_nak(extended) == BindNak(9, ((5, 0),))
    for end in range(len(body)):
        with pytest.raises(RemoteProtocolError):
            binding.parse_bind_nak(body[:end])


def results_of(*contexts: Context, features: int = 2):
    return answer(contexts, {REMOTE_READ}, features=features)


def test_at_most_one_transfer_syntax_is_accepted_and_that_the_preferred_one():
    results, accepted, agreed = results_of(*offers(REMOTE_READ, (NDR, NDR64), 3))
    assert results == (
        Result(
            ResultCode.PROVIDER_REJECTION, RejectReason.PROPOSED_TRANSFER_SYNTAXES_NOT_SUPPORTED
        ),
        Result(ResultCode.ACCEPTANCE, 0, NDR64_ID),
        Result(
            ResultCode.NEGOTIATE_ACK, 2
        ),  # the features of both, in the place of a reason; the syntax is zero
    )
    assert (accepted, agreed) == ({1: (REMOTE_READ, NDR64)}, 2)


def test_several_syntaxes_in_one_context():
    """go-msrpc offers them so; Windows does not."""
    results, accepted, _ = results_of(Context(9, REMOTE_READ, (NDR_ID, NDR64_ID)))
    assert results == (Result(0, 0, NDR64_ID),)
    assert accepted == {9: (REMOTE_READ, NDR64)}


def test_without_the_preferred_one_the_first_that_is_known():
    strange = SyntaxId("b5bee5f8-6e3c-4b0d-9d0a-000000000001", 1)
    results, accepted, _ = results_of(
        Context(0, REMOTE_READ, (strange,)), Context(1, REMOTE_READ, (NDR_ID,))
    )
    assert [result.result for result in results] == [
        ResultCode.PROVIDER_REJECTION,
        ResultCode.ACCEPTANCE,
    ]
    assert accepted == {1: (REMOTE_READ, NDR)}


def test_an_interface_that_nobody_serves():
    results, accepted, _ = results_of(
        Context(0, OTHER, (NDR_ID,)), Context(1, REMOTE_READ._replace(version=2), (NDR_ID,))
    )
    assert (
        results
        == (Result(ResultCode.PROVIDER_REJECTION, RejectReason.ABSTRACT_SYNTAX_NOT_SUPPORTED),) * 2
    )
    assert accepted == {}


def test_features_that_are_reserved_are_never_agreed_on():
    _, _, agreed = results_of(Context(0, REMOTE_READ, (features_syntax(0xFFFFFFFFFFFFFFFF),)))
    assert agreed == 2
    assert features_of(features_syntax(0x0102)) == 0x0102
    assert features_of(NDR_ID) is None


# --- calls ------------------------------------------------------------------------------------------------------------------


def test_a_request_and_its_object():
    (piece,) = request_pieces(1, 7, b"stub", fragment=1432)
    assert piece.body == bytes.fromhex("04000000 0100 0700") + b"stub"
    parsed = calls.parse_request(parse_pdu(encode_pdu(PduType.REQUEST, piece.flags, 1, piece.body)))
    assert parsed == RequestFragment(4, 1, 7, b"stub")
    body = piece.body[:8] + bytes(range(16)) + b"stub"
    parsed = calls.parse_request(
        parse_pdu(encode_pdu(PduType.REQUEST, piece.flags | OBJECT_UUID, 1, body))
    )
    assert (parsed.object, parsed.stub, parsed.stub_at) == (bytes(range(16)), b"stub", 24)


@pytest.mark.parametrize("parse", [calls.parse_request, calls.parse_response, calls.parse_fault])
def test_a_call_that_is_cut(parse):
    with pytest.raises(RemoteProtocolError, match="with a body of 7 bytes"):
        parse(parse_pdu(encode_pdu(0, WHOLE, 1, bytes(7))))


@pytest.mark.parametrize("size", [0, 1, 1391, 1392, 1393, 1408, 10_000])
@pytest.mark.parametrize("token_size", [0, 16])
def test_a_stub_is_cut_into_fragments_and_put_together(size, token_size):
    stub = bytes(number % 251 for number in range(size))
    pieces = list(response_pieces(3, stub, fragment=1432, token_size=token_size))
    assert [bool(piece.flags & 1) for piece in pieces] == [True] + [False] * (len(pieces) - 1)
    assert [bool(piece.flags & 2) for piece in pieces] == [False] * (len(pieces) - 1) + [True]
    parsed = [
        calls.parse_response(parse_pdu(encode_pdu(PduType.RESPONSE, p.flags, 1, p.body)))
        for p in pieces
    ]
    assembly = Assembly(1, parsed[0], limit=size, limit_name="X")
    left = size
    for piece, response in zip(pieces, parsed, strict=True):
        # "the combined stub data length of all remaining fragment PDUs"
        assert response.alloc_hint == left
        left -= len(response.stub)
        assert 16 + len(piece.body) + (8 + token_size if token_size else 0) <= 1432
        if not piece.flags & 2:
            assert len(response.stub) % 16 == 0
        assembly.add(response)
    assert assembly.stub() == stub


def test_a_fragment_without_room():
    with pytest.raises(LocalProtocolError, match="no room"):
        list(response_pieces(0, b"x", fragment=60, token_size=30))


def test_fragments_that_do_not_belong_together():
    first = RequestFragment(0, 1, 7, b"a")
    assembly = Assembly(1, first, limit=3, limit_name="STUB_MAX")
    for other in (first._replace(opnum=8), first._replace(context_id=2)):
        with pytest.raises(RemoteProtocolError, match="different methods"):
            assembly.add(other)
    with pytest.raises(LimitExceededError, match="STUB_MAX is 3, got 4"):
        assembly.add(first._replace(stub=b"abcd"))


def test_a_fault_has_no_stub_and_no_forbidden_status():
    body = RpcFault(0xC00E0003, 1).encode()
    assert body == bytes.fromhex("20000000 0100 00 00 03000ec0 00000000")
    again = calls.parse_fault(
        parse_pdu(encode_pdu(PduType.FAULT, WHOLE, 1, body + b"stub to be ignored"))
    )
    assert again == RpcFault(0xC00E0003, 1)
    assert calls.parse_fault(parse_pdu(encode_pdu(PduType.FAULT, WHOLE, 1, body[:12]))) == again
    for status in (0, 0xC0000005):
        with pytest.raises(LocalProtocolError, match="no server may send"):
            RpcFault(status).encode()


def test_pdus_that_are_only_a_header():
    assert calls.encode_cancel(5)[2] == 18
    assert calls.encode_orphaned(5)[2] == 19
    auth3 = calls.encode_auth3(5, AuthTrailer(10, 5, 1, b"last"))
    assert parse_pdu(auth3).auth == AuthTrailer(10, 5, 1, b"last")
    assert len(auth3) == 16 + 4 + 8 + 4


# --- verification trailer ---------------------------------------------------------------------------------------------------

SAID = VerificationTrailer(
    header_signing=True,
    call_id=7,
    context_id=1,
    opnum=9,
    interface=REMOTE_READ,
    transfer_syntax=NDR64_ID,
)


@pytest.mark.parametrize("size", range(5))
def test_a_trailer_is_found_behind_any_stub(size):
    stub = b"\xff" * size
    data = append_trailer(stub, SAID)
    assert split_trailer(data) == (stub + bytes(-size % 4), SAID)


def test_a_trailer_byte_by_byte():
    assert SAID.encode() == bytes.fromhex(
        "8ae3137102f43671"
        "0100 0400 01000000"
        "0300 1000 00 00 0000 10000000 07000000 0100 0900"
        "0240 2800 dd34911a397bba45ad8844d01ca47f28 01000000 "
        "33057171babe37498319b5dbef9ccc36 01000000"
    )
    assert VerificationTrailer().encode() == b""
    assert append_trailer(b"abc", VerificationTrailer()) == b"abc"


@pytest.mark.parametrize(
    "data",
    [
        b"\0" + SIGNATURE + bytes.fromhex("0140 0400 01000000"),  # not at a multiple of four
        SIGNATURE + bytes.fromhex("0140 0400 01000000 00000000"),  # more behind it
        SIGNATURE + bytes.fromhex("0100 0400 01000000"),  # no last command
        SIGNATURE + bytes.fromhex("0140 0600 010000000000"),  # a length that is no multiple of four
        SIGNATURE
        + bytes.fromhex("0140 0800 0100000000000000"),  # a command of a fixed size with another
        SIGNATURE,
    ],
)
def test_what_only_looks_like_a_trailer_stays_in_the_stub(data):
    assert split_trailer(data) == (data, None)


def test_a_stub_that_holds_a_signature_before_its_trailer():
    stub = SIGNATURE + b"more"
    assert split_trailer(append_trailer(stub, SAID)) == (stub, SAID)


def test_a_stub_of_nothing_but_signatures_is_looked_at_once():
    """Each of them begins a chain of commands that goes on to the end of the stub: 300,000 of 300,000 steps without a limit."""
    stub = (bytes.fromhex("0700 0800") + SIGNATURE) * (STUB_MAX // 12)
    begun = time.thread_time()
    assert split_trailer(stub) == (stub, None)
    assert time.thread_time() - begun < 0.05


def test_fragments_of_one_byte_and_of_none_need_no_more_memory_than_their_stub():
    assembly = Assembly(1, RequestFragment(0, 1, 7, b""), limit=STUB_MAX, limit_name="STUB_MAX")
    tracemalloc.start()
    for number in range(FRAGMENTS_MAX):
        assembly.add(RequestFragment(0, 1, 7, b"x" if number % 2 else b""))
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert assembly.stub() == b"x" * (FRAGMENTS_MAX // 2)
    assert held < 100_000


def test_fragments_are_counted_because_empty_ones_would_never_end():
    assembly = Assembly(1, RequestFragment(0, 1, 7, b""), limit=STUB_MAX, limit_name="STUB_MAX")
    for _ in range(FRAGMENTS_MAX):
        assembly.add(RequestFragment(0, 1, 7, b""))
    with pytest.raises(LimitExceededError, match="FRAGMENTS_MAX is 8192, got 8193"):
        assembly.add(RequestFragment(0, 1, 7, b""))
    needed = len(
        list(response_pieces(0, bytes(RESPONSE_MAX), fragment=FRAGMENT_MIN, token_size=256))
    )
    assert needed < FRAGMENTS_MAX, "the largest answer in the smallest fragments fits"


def test_unknown_commands_are_ignored_unless_they_must_be_processed():
    assert split_trailer(SIGNATURE + bytes.fromhex("0740 0000"))[1] == VerificationTrailer()
    with pytest.raises(RemoteProtocolError, match="must be processed"):
        split_trailer(SIGNATURE + bytes.fromhex("07c0 0000"))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("call_id", 8),
        ("context_id", 0),
        ("opnum", 6),
        ("interface", OTHER),
        ("transfer_syntax", NDR_ID),
    ],
)
def test_a_trailer_denies_what_was_changed_on_the_way(field, value):
    came = {"header_signing": True, **SAID._asdict()}
    assert SAID.denies(**came) is None
    assert SAID.denies(**{**came, field: value}) == field
    assert SAID.denies(**{**came, "header_signing": False}) == "header signing"
    assert VerificationTrailer().denies(**came) is None
