"""[MC-MQSRM] 3.1.5.1.6.1: each condition of the text, and what it becomes here; input 30 of the list of bad inputs.

The text disregards a message in all these cases. A broken structure is 400; a good one with a wrong content is kept and marked.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.message import Arrival
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.receiving.decisions import Reason
from srmp_spark.srmp.receiving.effects import Repeated
from srmp_spark.srmp.receiving.receiver import ReceiverSettings
from srmp_spark.srmp.signing.signature import (
    NO_REFERENCE,
    NO_SIGNER,
    WRONG_DIGEST,
    WRONG_SIGNATURE,
    Verdict,
    judge,
)
from srmp_spark.srmp.signing.signature_verify import load_keys
from srmp_spark.testing.foreign.messages import Dialect, ForeignMessage, Post
from srmp_spark.testing.foreign.messages import post as unsigned_post
from tests.kit.foreign.signature import dsa_signer, rsa_signer, signed_post
from tests.kit.playbook import (
    Playbook,
    ok,
    post,
    refused,
    repeated,
    row,
    stream_message,
    stream_receipt,
    synced,
    tick,
    user_message,
)

GUID = "f6a3323c-7c7b-4a5f-b0ed-b3f63a200893"
DATA = Path(__file__).parent.parent / "data" / "srmp"
DSA_KEY = dsa_signer()
RSA_KEY = rsa_signer()
KEYS = load_keys(DSA_KEY.public_pem)
VALID = Verdict("valid", "literal/dsa-raw")
ORDERS = "private$/orders"
LEDGER = "private$/ledger"


def message(**values: Any) -> ForeignMessage:
    given: dict[str, Any] = {
        "body": b"First Message",
        "extension": b"<h/>",
        "uniquifier": 4494,
        "sent_at": 1_790_000_000,
    }
    return ForeignMessage(
        to="http://machine2/msmq/private$/orders", lineage=GUID, **(given | values)
    )


def checked(written: Post, keys: Any = KEYS) -> Verdict:
    _, parts = decode_parts(written.content_type.replace("\r\n", "").encode(), written.content)
    return judge(written.content, parts, keys)


def verdict(keys: Any = KEYS, sent: ForeignMessage | None = None, **how: Any) -> Verdict:
    return checked(signed_post(sent or message(), DSA_KEY.sign, **how), keys)


def malformed(sent: ForeignMessage | None = None, **how: Any) -> str:
    with pytest.raises(RemoteProtocolError) as caught:
        verdict(sent=sent, **how)
    assert caught.value.status_hint == 400
    assert caught.value.section.startswith("[MC-MQSRM] ")
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 200
    return str(caught.value)


def replaced(old: str, new: str) -> Any:
    def edit(text: str) -> str:
        assert old in text
        return text.replace(old, new, 1)

    return edit


def without(element: str) -> Any:
    def edit(text: str) -> str:
        changed = re.sub(rf"<{element}[ >].*?</{element}>", "", text, count=1)
        assert changed != text
        return changed

    return edit


# --- what is good -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", ["sha1", "md5"])
@pytest.mark.parametrize(
    "sent",
    [message(), message(extension=None), message(body=b""), message(body=b"\x00\xff" * 5000)],
)
@pytest.mark.parametrize("dialect", Dialect)
def test_a_message_signed_as_3_1_7_2_4_says_is_valid(
    algorithm: str, sent: ForeignMessage, dialect: Dialect
) -> None:
    assert verdict(sent=sent, algorithm=algorithm, dialect=dialect) == VALID


def test_without_a_key_nothing_is_claimed() -> None:
    assert verdict(keys=()) == ("unverified", NO_SIGNER)


def test_another_key_does_not_fit() -> None:
    assert verdict(keys=load_keys(RSA_KEY.public_pem)) == ("invalid", WRONG_SIGNATURE)
    assert verdict(keys=(*load_keys(RSA_KEY.public_pem), *KEYS)) == VALID, (
        "one of several keys is enough"
    )


def test_white_space_and_other_spellings_of_the_same_markup_are_no_fault() -> None:
    spaced = verdict(
        before=lambda info: info.replace("><", ">\r\n  <"),
        after=replaced("<SignatureValue>", "<SignatureValue>\r\n\t"),
    )
    assert spaced == VALID
    short = re.compile(r"></(SignatureMethod|DigestMethod)>")
    assert verdict(before=lambda info: short.sub("/>", info)) == VALID
    assert verdict(before=replaced("cid:body@", "CID:Body@")) == VALID


def test_headers_are_not_covered() -> None:
    """A valid signature around swapped headers: it is valid, and no more is said of it than that."""
    signed = signed_post(message(), DSA_KEY.sign)
    start, end = signed.content.index(b"<Signature"), signed.content.index(b"</Signature>") + 12
    other = message(label="pay twice", priority=7, sent_at=1_790_009_999, uniquifier=5000)
    assert checked(unsigned_post(other, signature=signed.content[start:end].decode())) == VALID


def test_the_lines_that_the_document_prints_in_2_2_7_are_read() -> None:
    """Its digest is of a body that it does not print."""
    lines = (DATA / "mqsrm_2.2.7_signature_fragments.txt").read_text().splitlines()
    found = {re.match(r"<(\w+)", line)[1]: line for line in lines}  # type: ignore[index]
    digest = "<DigestValue>XU9yAzfwEPuP7L5iOcQY9XRNEWM=</DigestValue>"
    element = (
        f"{found['Signature']}<SignedInfo>{found['SignatureMethod']}{found['Reference']}{found['DigestMethod']}{digest}"
        f"</Reference></SignedInfo>{found['SignatureValue']}</Signature>"
    )
    assert checked(unsigned_post(message(extension=None), signature=element)) == (
        "invalid",
        WRONG_DIGEST,
    )


# --- conditions on the structure: 400 ---------------------------------------------------------------------------------------


def test_signed_info_is_there_once() -> None:
    assert malformed(after=without("SignedInfo")) == "<SignedInfo> of a signature is missing"
    assert "twice" in malformed(
        after=replaced("<SignedInfo>", "<SignedInfo></SignedInfo><SignedInfo>")
    )


def test_signature_method_is_there_once() -> None:
    assert (
        malformed(before=without("SignatureMethod"))
        == "<SignatureMethod> of a signature is missing"
    )
    assert "twice" in malformed(
        before=lambda info: info.replace(
            "</SignatureMethod>", "</SignatureMethod><SignatureMethod/>"
        )
    )


@pytest.mark.parametrize("algorithm", ["rsa-sha1", "DSA", "dsa ", ""])
def test_the_algorithm_of_signature_method_is_dsa(algorithm: str) -> None:
    assert "SignatureMethod" in malformed(before=replaced("#dsa", f"#{algorithm}"))
    assert "SignatureMethod" in malformed(
        before=replaced("Algorithm=", 'x:Algorithm="a" xmlns:x="y" algorithm=')
    )


def test_three_references_are_too_many() -> None:
    def three(info: str) -> str:
        reference = re.search("<Reference.*?</Reference>", info)
        assert reference is not None
        return info.replace(reference[0], reference[0] * 2)

    assert malformed(before=three) == "REFERENCES_MAX is 2, got 3"
    assert "two references" in malformed(message(extension=None), before=three)
    assert "two references" in malformed(message(body=b""), before=three)


@pytest.mark.parametrize("part", ["body", "extension"])
def test_a_reference_to_a_part_that_is_not_there(part: str) -> None:
    extra = (
        f'<Reference URI="cid:{part}@{GUID}"><DigestMethod Algorithm="http://www.w3.org/2000/02/xmldsig#sha1"/>'
        "<DigestValue>2jmj7l5rSw0yVb/vlWAYkK/YBwk=</DigestValue></Reference>"  # the digest of nothing
    )
    without_it = message(**{part: None})
    assert verdict(sent=without_it) == VALID
    told = malformed(
        without_it, before=lambda info: info.replace("</SignedInfo>", extra + "</SignedInfo>")
    )
    assert told == f"the signature covers a part {part}@ that is not there"


def test_every_attachment_is_covered() -> None:
    """Else somebody could add one to a signed message."""
    assert malformed(before=without("Reference")) == "the signature does not cover the part body@"
    assert "extension@" in malformed(
        before=lambda info: info[: info.rindex("<Reference")] + "</SignedInfo>"
    )


@pytest.mark.parametrize(
    "uri",
    [
        f"cid:other@{GUID}",
        "cid:",
        "",
        "#body",
        f"body@{GUID}",
        f" cid:body@{GUID}",
        "http://127.0.0.1/",
        "file:///etc/passwd",
    ],
)
def test_a_reference_that_names_no_attachment(uri: str) -> None:
    assert "neither cid:body" in malformed(before=replaced(f"cid:body@{GUID}", uri))


def test_a_reference_that_names_another_content_id() -> None:
    assert "another Content-Id" in malformed(
        before=replaced(f"cid:body@{GUID}", "cid:body@" + GUID.replace("f", "e"))
    )


def test_digest_method_is_there_once_and_sha1_or_md5() -> None:
    assert malformed(before=without("DigestMethod")) == "<DigestMethod> of a signature is missing"
    assert "twice" in malformed(
        before=replaced("</DigestMethod>", "</DigestMethod><DigestMethod/>")
    )
    for algorithm in ("#sha256", "#SHA1", "#none", ""):
        assert "neither #sha1 nor #md5" in malformed(
            before=replaced("xmldsig#sha1", "xmldsig" + algorithm)
        )


def test_digest_value_is_there_once() -> None:
    assert malformed(before=without("DigestValue")) == "<DigestValue> of a signature is missing"
    assert "twice" in malformed(
        before=replaced("</DigestValue>", "</DigestValue><DigestValue></DigestValue>")
    )
    assert "no elements" in malformed(before=replaced("<DigestValue>", "<DigestValue><b/>"))


def test_signature_value_is_there_once_and_base64() -> None:
    assert (
        malformed(after=without("SignatureValue")) == "<SignatureValue> of a signature is missing"
    )
    assert "twice" in malformed(
        after=replaced("<SignatureValue>", "<SignatureValue>AAAA</SignatureValue><SignatureValue>")
    )
    for value in (
        "",
        " ",
        "=",
        "AAA",
        "A===",
        "AA=A",
        "Ä" * 4,
        "AAAA-AAA",
        "\N{FULLWIDTH LATIN CAPITAL LETTER A}AAA",
    ):
        assert "not base64" in malformed(
            after=lambda text, v=value: re.sub("Value>[^<]*</Sig", f"Value>{v}</Sig", text)
        )


def test_a_long_signature_value_passes_a_named_limit() -> None:
    with pytest.raises(LimitExceededError, match="SIGNATURE_VALUE_MAX is 1400, got 1500"):
        verdict(after=lambda text: re.sub("Value>[^<]*</Sig", f"Value>{'A' * 1500}</Sig", text))


def test_many_elements_pass_a_named_limit() -> None:
    """What nobody reads may be there, but not without end: each costs time."""
    more = "<KeyInfo>" + "<x/>" * 50 + "</KeyInfo></Signature>"
    assert verdict(after=replaced("</Signature>", more)) == VALID
    with pytest.raises(LimitExceededError, match="SIGNATURE_ELEMENTS_MAX is 64, got 65"):
        verdict(after=replaced("</Signature>", more.replace("<x/>", "<x/><y/>")))


def test_elements_count_only_in_their_place_and_namespace() -> None:
    other = 'xmlns="http://www.w3.org/2000/09/xmldsig#"'
    for name in ("SignatureMethod", "Reference", "DigestValue"):
        assert "wrong namespace" in malformed(before=replaced(f"<{name}", f"<{name} {other}"))
    assert "wrong namespace" in malformed(
        after=replaced("<SignatureValue>", f"<SignatureValue {other}>")
    )
    signed_elsewhere = "<Object><SignedInfo/></Object></Signature>"
    moved = malformed(
        after=lambda text: without("SignedInfo")(text).replace("</Signature>", signed_elsewhere)
    )
    assert moved == "<SignedInfo> of a signature is missing"
    assert (
        verdict(
            after=replaced(
                "</Signature>", "<KeyInfo><KeyValue>mine</KeyValue></KeyInfo></Signature>"
            )
        )
        == VALID
    )


# --- conditions on the content: kept, invalid ---------------------------------------------------------------------------------


@pytest.mark.parametrize("keys", [(), KEYS], ids=["no key", "key"])
@pytest.mark.parametrize("algorithm", ["sha1", "md5"])
@pytest.mark.parametrize("part", ["First Message", "<h/>"], ids=["body", "extension"])
def test_a_digest_that_is_not_its_attachments_is_invalid_whatever_the_key(
    part: str, algorithm: str, keys: Any
) -> None:
    signed = signed_post(message(), DSA_KEY.sign, algorithm=algorithm)
    head, part_, tail = signed.content.rpartition(part.encode())
    assert part_
    forged = Post(signed.target, signed.content_type, head + bytes(len(part_)) + tail, b"")
    assert checked(forged, keys) == ("invalid", WRONG_DIGEST)


def test_a_digest_that_is_no_digest_at_all() -> None:
    assert verdict(before=replaced("<DigestValue>", "<DigestValue>x")) == ("invalid", WRONG_DIGEST)


def test_a_change_of_signed_info_after_it_was_signed_is_invalid() -> None:
    assert verdict(after=replaced("<SignedInfo>", "<SignedInfo> ")) == ("invalid", WRONG_SIGNATURE)
    assert verdict(after=replaced("</SignedInfo>", "<more/></SignedInfo>")) == (
        "invalid",
        WRONG_SIGNATURE,
    )


def test_a_signature_over_nothing_is_never_valid() -> None:
    """The text wants a reference; 3.1.7.2.4 writes none for an empty message, so its sender did nothing wrong."""
    empty = message(body=b"", extension=None)
    assert verdict(sent=empty) == ("unverified", NO_REFERENCE)
    assert verdict(sent=empty, keys=()) == ("unverified", NO_SIGNER)
    assert verdict(sent=empty, keys=load_keys(RSA_KEY.public_pem)) == ("invalid", WRONG_SIGNATURE)


# --- what the engine makes of it ----------------------------------------------------------------------------------------------

REFUSE = ReceiverSettings(invalid_signature="refuse")


def test_by_default_an_invalid_message_is_kept() -> None:
    assert Playbook() >> post(user_message(signature="invalid")) << row(ORDERS, 1)


def test_an_operator_may_have_it_refused() -> None:
    assert (
        Playbook(REFUSE)
        >> post(user_message(signature="invalid"))
        << refused(400, "invalid-signature")
    )
    for status in ("none", "unverified", "valid"):
        assert Playbook(REFUSE) >> post(user_message(signature=status)) << row(ORDERS, 1)


def test_what_was_accepted_before_the_keys_were_known_is_a_repeat_and_not_refused() -> None:
    assert (
        Playbook(REFUSE)
        >> post(user_message(1, signature="unverified"))
        << row(ORDERS, 1)
        >> post(user_message(1, signature="invalid"))
        << repeated("identifier")
        >> synced()
        << ok(2)
    )


def test_in_a_stream_its_position_counts_and_there_is_no_row() -> None:
    """400 would end the stream: the sender deletes the message, and ``<previous>`` of the next one still names it."""
    playbook = Playbook(REFUSE)
    assert (
        playbook
        >> post(stream_message(1))
        << row(LEDGER, 1)
        >> post(stream_message(2, signature="invalid"))
        << repeated("invalid-signature")
        >> post(stream_message(3))
        << row(LEDGER, 2)
        >> post(stream_message(2, signature="invalid"))
        << repeated("position")
        >> synced()
        << ok(4)
        >> tick(0.5)
        << stream_receipt(last_ordinal=3)
    )


def test_who_asked_is_told_that_it_was_rejected() -> None:
    receiver = Playbook(REFUSE).receiver
    arrival = Arrival(0, "http", "192.0.2.1:1801")
    outcome = receiver.receive(
        stream_message(1, signature="invalid", dead_letter=True), arrival, 0.0
    )
    assert isinstance(outcome, Repeated)
    assert (outcome.kind, outcome.discarded_for) == ("invalid-signature", Reason.REJECTED)
    assert outcome.discarded is not None
    assert outcome.discarded.position == 1
    silent = receiver.receive(stream_message(2, signature="invalid"), arrival, 0.0)
    assert isinstance(silent, Repeated)
    assert (silent.kind, silent.discarded) == ("invalid-signature", None)


def test_one_that_is_too_late_as_well_is_told_that() -> None:
    receiver = Playbook(ReceiverSettings(invalid_signature="refuse", expired="refuse")).receiver
    outcome = receiver.receive(
        stream_message(1, signature="invalid", expires_at=-1),
        Arrival(0, "http", "192.0.2.1:1801"),
        0.0,
    )
    assert isinstance(outcome, Repeated)
    assert (outcome.kind, outcome.discarded_for) == ("expired", Reason.EXPIRED)
