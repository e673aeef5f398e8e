"""Bad inputs for each parser of remote read: refusal or acceptance, in 50 ms and 8 × memory, the same however cut."""

from __future__ import annotations

import os

import pytest
from ndr_kit import GOLDEN, vectors
from packet_kit import binary, full_binary, sample, split_sections, srmp
from rpc_kit import Link, bind, request
from test_endpoint_mapper import NAMED_PIPE, TOWER, response

from srmp_spark.mqrr.ndr.methods import METHODS
from srmp_spark.mqrr.ndr.receive import StartReceiveResponse
from srmp_spark.mqrr.ndr.transfer_syntax import NDR, NDR64
from srmp_spark.mqrr.rpc.calls import encode_cancel, encode_orphaned
from srmp_spark.mqrr.rpc.pdu import FIRST_FRAGMENT, LAST_FRAGMENT
from tests.kit.fuzz.binary import mutants
from tests.kit.fuzz.curated import MUTANTS, run
from tests.kit.fuzz.mqrr_conversation import conversations
from tests.kit.fuzz.mqrr_targets import mqrr_targets, ntlm_legs
from tests.kit.remote.forms import REQUIRED_TRAILERS

MEMORY_EVERY = 200
"""The peak is measured for one mutant in so many: to trace allocations takes ten times as long as to parse."""
SHARE_MIN = 0.02
"""Of the mutants that must be accepted, and that must be refused: a list that is all noise, or all good, tests one half."""
PACKETS = [
    full_binary(), srmp(trailers=REQUIRED_TRAILERS), binary(b"x" * 100, trailers=REQUIRED_TRAILERS),
    srmp(soap=full_binary().soap, multi_queue_format=full_binary().multi_queue_format),
]  # fmt: skip


def received() -> list[bytes]:
    found = []
    for packet in PACKETS:
        for limit in (10, 0xFFFFFFFF):
            sections = split_sections(packet, limit)
            answer = StartReceiveResponse(1, 2, sections, 0)
            found += [b"\0" + answer.encode(NDR), b"\1" + answer.encode(NDR64)]
    return found


def stubs() -> list[bytes]:
    opnums = sorted(METHODS)
    return [
        bytes([opnums.index(GOLDEN[vector.name].opnum), vector.syntax is NDR64]) + vector.stub
        for vector in vectors()
        if not vector.golden.response
    ]


def answers() -> bytes:
    link = Link().bound()
    link.client.call(7, b"", 0.0)
    link.pump()
    link.to_client = b""
    link.server.respond(2, bytes(6_000))
    return link.server.data_to_send()


SEEDS = {
    "packet": [packet.encode() for packet in PACKETS]
    + [sample("msf_queuejumper_v2_srmp_generated"), sample("mqqb_f7_usermessage_completed")],
    "received": received(),
    "stub": stubs(),
    "rpc-server": [
        bind() + request(1) + encode_cancel(1) + request(2, opnum=9) + encode_orphaned(2),
        bind()
        + request(1, flags=FIRST_FRAGMENT)
        + request(1, flags=0)
        + request(1, flags=LAST_FRAGMENT)
        + request(2),
    ],
    "rpc-client": [answers(), answers()[:200]],
    "ept-map": [
        response(TOWER.encode()),
        response(NAMED_PIPE, TOWER.encode(), status=1),
        response(),
    ],
    "ntlm": [bytes([leg]) + message for leg, message in enumerate(ntlm_legs())],
    "calls": list(conversations()),
}
SLOW = {"calls": 1_000, "ntlm": 3_000}
"""A conversation takes a millisecond: ``SRMP_SPARK_MQRR_MUTANTS=10000`` (proof, long) has as many as of the others."""
SHARE = 4
"""Of the lists a quarter, unless ``SRMP_SPARK_MQRR_MUTANTS`` says otherwise."""
TARGETS = {target.name: target for target in mqrr_targets(SEEDS)}


@pytest.mark.parametrize("name", TARGETS)
def test_mutants_are_refused_or_accepted(name: str) -> None:
    count = int(os.environ.get("SRMP_SPARK_MQRR_MUTANTS", SLOW.get(name, MUTANTS) // SHARE))
    report = run(TARGETS[name], mutants(name, SEEDS[name], count), memory_every=MEMORY_EVERY)
    assert report.findings == [], "\n".join(map(str, report.findings[:3]))
    assert report.runs == count
    assert SHARE_MIN * count <= report.accepted <= (1 - SHARE_MIN) * count, report


def test_the_list_of_mutants_is_always_the_same() -> None:
    for name, seeds in SEEDS.items():
        assert list(mutants(name, seeds, 50)) == list(mutants(name, seeds, 50))
        assert len(set(mutants(name, seeds, 500))) > 400
