"""ept_map: the question and the answers ([MS-RPCE] 2.2.1.2.5, C706 appendices L and O)."""

from __future__ import annotations

import pytest
from packet_kit import put

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.mqrr.rpc.binding import NDR_ID, REMOTE_READ
from srmp_spark.mqrr.rpc.endpoint_mapper import (
    NOT_REGISTERED,
    MapResponse,
    Tower,
    decode_map_request,
    decode_map_response,
    encode_map_request,
    parse_tower,
)
from srmp_spark.mqrr.rpc.limits import TOWER_MAX, TOWERS_MAX

TOWER = Tower(REMOTE_READ, NDR_ID, 2103, bytes([192, 0, 2, 1]))
NAMED_PIPE = TOWER.encode()[:2] + TOWER.encode()[2:].replace(
    b"\x01\0\x07\x02\0", b"\x01\0\x0f\x02\0"
)


def response(*towers: bytes, status: int = 0) -> bytes:
    stub = bytes(20) + b"".join(
        n.to_bytes(4, "little")
        for n in (len(towers), 4, 0, len(towers), *range(1, len(towers) + 1))
    )
    for tower in towers:
        stub += bytes(-len(stub) % 4) + len(tower).to_bytes(4, "little") * 2 + tower
    return stub + bytes(-len(stub) % 4) + status.to_bytes(4, "little")


def test_a_tower_has_five_floors():
    assert TOWER.encode() == bytes.fromhex(
        "0500"
        "1300 0d dd34911a397bba45ad8844d01ca47f28 0100 0200 0000"
        "1300 0d 045d888aeb1cc9119fe808002b104860 0200 0200 0000"
        "0100 0b 0200 0000"
        "0100 07 0200 0837"  # the port is big-endian
        "0100 09 0400 c0000201"
    )
    assert parse_tower(TOWER.encode()) == TOWER


def test_the_question():
    stub = encode_map_request(REMOTE_READ)
    assert len(stub) == 4 + 16 + 4 + 4 + 4 + 75 + 1 + 20 + 4
    assert stub[24:32] == bytes.fromhex("4b000000 4b000000")
    assert stub[32:107] == TOWER._replace(port=0, address=bytes(4)).encode()
    assert stub[108:] == bytes(20) + bytes.fromhex("04000000")


def test_the_answer():
    found = decode_map_response(response(NAMED_PIPE, TOWER.encode()))
    assert found == MapResponse((TOWER,), 0)
    assert found.port(REMOTE_READ) == 2103
    assert found.port(REMOTE_READ._replace(version=2)) is None


def test_a_host_that_serves_none():
    found = decode_map_response(response(status=NOT_REGISTERED))
    assert found.port(REMOTE_READ) is None
    assert "is Message Queuing installed and running there?" in found.explain()
    assert MapResponse((), 0x6D8).explain() == "the endpoint mapper answers status 0x000006D8"


def test_an_answer_that_ends_early():
    whole = response(TOWER.encode(), NAMED_PIPE)
    for end in range(len(whole)):
        with pytest.raises(RemoteProtocolError):
            decode_map_response(whole[:end])


@pytest.mark.parametrize(
    ("at", "value", "error"),
    [
        (20, TOWERS_MAX + 1, "towers"),
        (24, 0, "at most 0"),
        (28, 1, "from 1 on"),
        (32, 2, "1 towers, 2 of them"),
        (40, 76, "in an array of 76"),
        (44, TOWER_MAX + 1, "in an array of"),
        (48, 17, "17 floors"),
        (50, 18, "needs|19 and 2 bytes"),
    ],
)
def test_an_answer_that_does_not_hold_together(at, value, error):
    stub = put(response(TOWER.encode()), at, value, 2 if at >= 48 else 4)
    with pytest.raises(RemoteProtocolError, match=error):
        decode_map_response(stub)


def test_a_null_pointer_is_no_tower():
    stub = response(TOWER.encode())
    stub = put(stub, 36, 0, 4)[:40] + bytes(4)
    assert decode_map_response(stub) == MapResponse((), 0)


# --- our own mapper ---------------------------------------------------------------------------------------------------------


def test_a_request_of_ours_is_understood():
    asked = decode_map_request(encode_map_request(REMOTE_READ))
    assert asked is not None
    assert (asked.interface, asked.transfer_syntax) == (REMOTE_READ, NDR_ID)


def test_a_request_without_an_object_is_one():
    """The object is a unique pointer, and may be NULL."""
    stub = encode_map_request(REMOTE_READ)
    without = bytes(4) + stub[20:]
    assert decode_map_request(without) == decode_map_request(stub)


def test_what_our_mapper_answers_our_client_reads():
    for answer in (MapResponse((TOWER, TOWER), 0), MapResponse((), NOT_REGISTERED)):
        assert decode_map_response(answer.encode()) == answer


@pytest.mark.parametrize("cut", range(0, 130, 3))
def test_a_request_that_is_cut_is_refused(cut):
    with pytest.raises(RemoteProtocolError):
        decode_map_request(encode_map_request(REMOTE_READ)[:cut])
