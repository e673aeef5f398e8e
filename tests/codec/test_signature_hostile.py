"""Signatures that want to be taken for valid, or to cost time."""

from __future__ import annotations

import gc
import random
import re
import time
from collections import Counter
from typing import Any

import pytest

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.limits import ENVELOPE_MAX, SIGNER_KEYS_MAX
from srmp_spark.srmp.signing.signature import Verdict, judge
from srmp_spark.srmp.signing.signature_verify import load_keys
from srmp_spark.testing.foreign.messages import ForeignMessage, Post
from tests.kit.foreign.signature import dsa_signer, rsa_signer, signed_post

SIGNER = rsa_signer()
KEYS = load_keys(SIGNER.public_pem)
SENT = ForeignMessage(
    to="http://machine2/msmq/private$/orders", lineage="aaaaaaaa-0000-4000-8000-000000000001", uniquifier=7,
    sent_at=1_790_000_000, body=b"pay 100 to Alice", extension=b"<approved by='Bob'/>",
)  # fmt: skip
SECONDS_MAX = 0.05


def checked(content_type: str, content: bytes, keys: Any = KEYS) -> Verdict | None:
    """``None``: refused as malformed; unsigned messages have no verdict."""
    try:
        message, parts = decode_parts(content_type.encode(), content)
        return judge(content, parts, keys) if message.signature != "none" else Verdict("none", "")
    except RemoteProtocolError:
        return None


def attachments(post: Post) -> tuple[bytes, bytes | None]:
    message, _ = decode_parts(post.content_type.encode(), post.content)
    return message.body, message.extension


def mutants(content: bytes, count: int) -> list[bytes]:
    """Bits flipped, bytes replaced, pieces removed, doubled, swapped: half of them inside the signature."""
    chance = random.Random(20260101)
    low, high = content.index(b"<Signature"), content.index(b"</Signature>")
    made = []
    for _ in range(count):
        changed = bytearray(content)
        for _ in range(chance.choice((1, 1, 1, 2, 4))):
            at = (
                chance.randrange(low, high)
                if chance.random() < 0.5
                else chance.randrange(len(changed) - 1)
            )
            length = chance.choice((1, 2, 8, 40))
            kind = chance.randrange(5)
            if kind == 0:
                changed[at] ^= 1 << chance.randrange(8)
            elif kind == 1:
                changed[at] = chance.choice(b"<>/&\"'= \r\nAa0;:@#\x00\xff")
            elif kind == 2:
                changed[at : at + length] = changed[at : at + length][::-1]
            elif kind == 3:
                changed[at : at + length] = chance.randbytes(len(changed[at : at + length]))
            else:  # the same length: so that the parts are still found
                other = chance.randrange(len(changed) - length)
                changed[at : at + length] = changed[other : other + len(changed[at : at + length])]
        made.append(bytes(changed))
    return made


def test_no_mutant_with_another_attachment_or_signed_info_is_valid() -> None:
    post = signed_post(SENT, SIGNER.sign)
    assert checked(post.content_type, post.content) == ("valid", "literal/rsa-sha1")
    signed_info = re.compile(b"<SignedInfo>.*?</SignedInfo>", re.DOTALL)
    original, seen = signed_info.findall(post.content), Counter[str]()
    for mutant in mutants(post.content, 6_000):
        verdict = checked(post.content_type, mutant)
        seen[verdict.status if verdict else "refused"] += 1
        if verdict is not None and verdict.status == "valid":
            assert attachments(Post("", post.content_type, mutant, b"")) == (
                SENT.body,
                SENT.extension,
            ), mutant
            assert signed_info.findall(mutant) == original, mutant
    assert min(seen[status] for status in ("valid", "invalid", "refused")) > 100, seen


@pytest.mark.parametrize("part", [SENT.body, SENT.extension])
def test_no_bit_of_an_attachment_may_be_another(part: bytes) -> None:
    post = signed_post(SENT, SIGNER.sign)
    at = post.content.index(part)
    for bit in range(8 * len(part)):
        changed = bytearray(post.content)
        changed[at + bit // 8] ^= 1 << bit % 8
        assert checked(post.content_type, bytes(changed)) == ("invalid", "digest")


def timed(content_type: str, content: bytes, keys: Any = KEYS) -> Verdict | None:
    gc.collect()  # what other tests left behind is no cost of this one
    started = time.thread_time()
    verdict = checked(content_type, content, keys)
    assert time.thread_time() - started < SECONDS_MAX
    return verdict


@pytest.mark.parametrize("length", [1_000_000, ENVELOPE_MAX, 60_000, 1_401])
def test_a_signature_value_of_a_megabyte_is_refused_fast(length: int) -> None:
    post = signed_post(SENT, lambda _: bytes(length * 3 // 4 + 3))
    with pytest.raises(RemoteProtocolError, match=r"ENVELOPE_MAX is|SIGNATURE_VALUE_MAX is"):
        judge(post.content, decode_parts(post.content_type.encode(), post.content)[1], KEYS)
    assert timed(post.content_type, post.content) is None


def nested(levels: int, declarations: int) -> str:
    start = "<x" + "".join(f' xmlns:p{n}="u:{n}"' for n in range(declarations)) + ">"
    return start * levels + "</x>" * levels


BLOWN_UP = {
    "elements": "<x/>" * 1_900,
    "namespaces": "".join(f'<x xmlns:p{n}="u:{n}"/>' for n in range(1_500)),
    "nested namespaces": nested(10, 32),
    "attributes": "<x " + " ".join(f'a{n}="{"&#13;" * 40}"' for n in range(32)) + "/>",
    "references": '<Reference URI="cid:body@x"/>' * 1_900,
    "text that grows fivefold": "&amp;" * 12_000,
    "comments": "<!---->" * 8_000,
}


@pytest.mark.parametrize("inside", BLOWN_UP.values(), ids=BLOWN_UP)
def test_what_is_blown_up_costs_no_time(inside: str) -> None:
    post = signed_post(
        SENT,
        SIGNER.sign,
        before=lambda info: info.replace("</SignedInfo>", inside + "</SignedInfo>"),
    )
    assert timed(post.content_type, post.content) in (None, ("valid", "literal/rsa-sha1"))


@pytest.mark.parametrize(
    "signer", [rsa_signer(4096), dsa_signer(2048)], ids=["rsa 4096", "dsa 2048"]
)
def test_a_sender_with_many_large_keys_costs_no_time(signer: Any) -> None:
    keys = load_keys(signer.public_pem) * SIGNER_KEYS_MAX
    post = signed_post(SENT, lambda _: bytes([1]) * len(signer.sign(b"")))
    assert timed(post.content_type, post.content, keys) == ("invalid", "signature")
