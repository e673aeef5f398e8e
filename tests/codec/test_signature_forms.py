"""The bytes of ``<SignedInfo>`` that may have been signed: the literal ones, and canonical forms as lxml makes them."""

from __future__ import annotations

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lxml import etree

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.signing.signature import judge
from srmp_spark.srmp.signing.signature_forms import (
    CANONICAL,
    EXCLUSIVE,
    LITERAL,
    canonical,
    forms_of,
    signature_element,
)
from srmp_spark.srmp.signing.signature_verify import load_keys
from srmp_spark.testing.foreign.messages import ForeignMessage
from tests.kit.foreign.signature import NAMESPACE, rsa_signer, signed_post

SOAP = "http://schemas.xmlsoap.org/soap/envelope/"


def envelope(
    signature: str, declarations: str = 'xmlns="http://schemas.xmlsoap.org/srmp/"'
) -> bytes:
    return (
        f'<se:Envelope xmlns:se="{SOAP}" {declarations}><se:Header><a/>{signature}</se:Hea'
        "der><se:Body>"
        f'<Signature xmlns="{NAMESPACE}"><wrong/></Signature></se:Body></se:Envelope>'
    ).encode()


def lxml_canonical(xml: bytes, *, exclusive: bool) -> bytes:
    """The canonical form of ``<SignedInfo>`` as part of its document."""
    tree = etree.fromstring(xml).getroottree()
    (info,) = tree.iter(f"{{{NAMESPACE}}}SignedInfo")
    out = io.BytesIO()
    etree.ElementTree(info).write_c14n(out, exclusive=exclusive, with_comments=False)
    return out.getvalue()


CASES = {
    "as Windows writes it": '<SignedInfo><SignatureMethod Algorithm="a"></SignatureMethod></Si'
    "gnedInfo>",
    "empty elements": '<SignedInfo><SignatureMethod Algorithm="a"/><x/></SignedInfo>',
    "order of attributes": '<SignedInfo  b = "2"  a="1"\n\tse:z="3" xmlns:q="u:0" '
    'q:y="4"><x/></SignedInfo >',
    "escapes": "<SignedInfo a='&lt;&amp;&quot;&#9;&#10;&#13;&gt;\"'>&lt;&gt;&amp;&quot;&#1"
    "3;]<![CDATA[<]]></SignedInfo>",
    "line ends": '<SignedInfo a="1\r\n2">\r\n<x>\r</x>\r\n</SignedInfo>',
    "comments": "<SignedInfo><!-- > -->a<!--</SignedInfo>-->b<x/></SignedInfo>",
    "namespaces": '<SignedInfo xmlns:b="u:b" xmlns:a="u:a"><b:x xmlns:b="u:c"/><a:y '
    'b:c="1"/><z xmlns=""><w xmlns="u:d"/></z>'
    "</SignedInfo>",
    "redeclared": f'<SignedInfo xmlns="{NAMESPACE}"><x xmlns="{NAMESPACE}" '
    f'xmlns:se="{SOAP}"/></SignedInfo>',
    "letters": "<SignedInfo größe='ä'>\N{EURO SIGN}\N{GRINNING FACE}</SignedInfo>",
    "xml:lang": '<SignedInfo xml:lang="de"><x xml:space="preserve"> </x></SignedInfo>',
}


@pytest.mark.parametrize("info", CASES.values(), ids=CASES)
@pytest.mark.parametrize("exclusive", [False, True], ids=["canonical", "exclusive"])
@pytest.mark.parametrize("prefix", ["", "s"])
def test_canonical_forms_are_those_of_lxml(info: str, exclusive: bool, prefix: str) -> None:
    if prefix:
        info = info.replace("<SignedInfo", "<s:SignedInfo").replace(
            "</SignedInfo", "</s:SignedInfo"
        )
        xml = envelope(
            f'<s:Signature xmlns:s="{NAMESPACE}" xmlns:unused="u:e">{info}</s:Signature>'
        )
    else:
        xml = envelope(f'<Signature xmlns="{NAMESPACE}">{info}</Signature>', "")
    (found,) = signature_element(xml).elements
    assert canonical(found, exclusive=exclusive) == lxml_canonical(xml, exclusive=exclusive)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["x", "se:y", "n:z"]),
            st.text("a<&\"'\t\n\r ]>ä\N{GRINNING FACE}", max_size=6),
            st.text('a<&"\t\n\r ]>ä', max_size=6),
            st.sampled_from(["", ' xmlns=""', ' xmlns="u:1"', ' xmlns:n="u:2"']),
        ),
        max_size=5,
    )
)
def test_canonical_forms_of_anything_are_those_of_lxml(
    nodes: list[tuple[str, str, str, str]],
) -> None:
    def escaped(text: str) -> str:
        for plain, reference in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;")):
            text = text.replace(plain, reference)
        return text

    info = ""
    for name, value, text, declaration in nodes:
        info = (
            f'<{name}{declaration} n:k="{escaped(value)}" '
            f'k="">{escaped(text)}{info}</{name}>{escaped(value)}'
        )
    xml = envelope(
        f'<Signature xmlns="{NAMESPACE}" xmlns:n="u:n"><SignedInfo>{info}</SignedInfo></Signature>'
    )
    # lxml copies an element out of its document before it serialises it, and loses a declaration on the way: so it gets one
    # whose root it is, with all that is in scope.
    alone = f'<SignedInfo xmlns="{NAMESPACE}" xmlns:se="{SOAP}" xmlns:n="u:n">{info}</SignedInfo>'.encode()
    (found,) = signature_element(xml).elements
    for exclusive in (False, True):
        assert canonical(found, exclusive=exclusive) == lxml_canonical(alone, exclusive=exclusive)


def test_the_literal_form_is_a_slice_of_what_came() -> None:
    for info in CASES.values():
        xml = envelope(f'<Signature xmlns="{NAMESPACE}">{info}</Signature>')
        (found,) = signature_element(xml).elements
        name, literal = forms_of(xml, found)[0]
        assert (name, literal) == (LITERAL, info.encode())


def test_equal_forms_are_tried_once() -> None:
    info = f'<SignedInfo xmlns="{NAMESPACE}" xmlns:se="{SOAP}"><x></x></SignedInfo>'
    xml = envelope(f'<Signature xmlns="{NAMESPACE}">{info}</Signature>', "")
    (found,) = signature_element(xml).elements
    assert [name for name, _ in forms_of(xml, found)] == [LITERAL, EXCLUSIVE], (
        "canonical is literal here"
    )


def test_a_signature_elsewhere_is_none() -> None:
    for signature in (
        "",
        "<b><Signature/></b>",
        '<Signature xmlns="http://www.w3.org/2000/09/xmldsig#"/>',
        "<Signature/>",
    ):
        with pytest.raises(RemoteProtocolError, match="no <Signature>"):
            signature_element(envelope(signature))
    with pytest.raises(RemoteProtocolError, match="twice"):
        signature_element(envelope(f'<Signature xmlns="{NAMESPACE}"/>' * 2))


@pytest.mark.parametrize(
    ("opening", "form"),
    [
        (f'<SignedInfo xmlns="{NAMESPACE}" xmlns:se="{SOAP}">', CANONICAL),
        (f'<SignedInfo xmlns="{NAMESPACE}">', EXCLUSIVE),
        ("<SignedInfo>", LITERAL),
    ],
)
def test_which_form_was_signed_is_told(opening: str, form: str) -> None:
    from srmp_spark.srmp.codec.decoder import decode_parts

    signer = rsa_signer()
    sent = ForeignMessage(
        to="http://h/msmq/private$/orders",
        lineage="aaaaaaaa-0000-4000-8000-000000000001",
        uniquifier=1,
        sent_at=0,
        body=b"b",
    )
    written = signed_post(
        sent, signer.sign, canonical=lambda info: info.replace("<SignedInfo>", opening)
    )
    _, parts = decode_parts(written.content_type.encode(), written.content)
    assert judge(written.content, parts, load_keys(signer.public_pem)) == (
        "valid",
        f"{form}/rsa-sha1",
    )
