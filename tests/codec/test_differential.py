"""The fast ways give what the XML reader gives, or pass on: never a third thing.

``windows_layout`` (one expression) and ``learned_layouts`` (markup seen before) are compared with the reader on the saved
samples, on generated messages, and on mutations of both that are made to hurt: a character changed, a piece cut out,
doubled or swapped, markup and references put into texts.
"""

from __future__ import annotations

import random
import re

import pytest
from codec_kit import CONTENT_TYPE, MSMQ, WITH_ENVELOPE, envelope, envelope_of, multipart, sample
from hypothesis import given
from hypothesis import strategies as st
from message_strategies import full_messages, messages, quick

from srmp_spark.errors import RemoteProtocolError
from srmp_spark.srmp.codec import mime
from srmp_spark.srmp.codec.encoder import encode_envelope
from srmp_spark.srmp.codec.envelope_reader import read_fields
from srmp_spark.srmp.codec.envelope_values import message_of
from srmp_spark.srmp.codec.learned_layouts import LearnedLayouts
from srmp_spark.srmp.codec.windows_layout import HOLES, LAYOUT, read_windows_envelope
from srmp_spark.srmp.limits import LEARNED_LAYOUTS_MAX, LEARNED_LENGTH_MAX
from tests.kit.plain_reading import read_envelope

PIECES = [
    b"<",
    b">",
    b"&",
    b"&amp;",
    b"&#65;",
    b"]]>",
    b"<!-- x -->",
    b"<![CDATA[x]]>",
    b"<?x?>",
    b" ",
    b"\n",
    b"\r\n",
    b"\r",
    b"\t",
    b"\x00",
    b"\x1f",
    b"\x7f",
    b"\xc2\x85",
    b"\xc2\xa0",
    b"\xe2\x80\xa8",
    b"\xef\xbf\xbe",
    b"\xef\xbf\xbf",
    b"\xff",
    "ü".encode(),
    b"'",
    b'"',
    b"=",
    b"0",
    b"9",
    b"-1",
    b"99999999999999999999",
    b"4294967296",
    b"18446744073709551616",
    b"DIRECT=",
    b"direct=",
    b"MSMQ:",
    b"http://",
    b"<durable/>",
    b"<Journal/>",
    b"<a/>",
    b"<b>SenderStream=x</b>",
    b"</to>",
    b"<to>",
    b"<se:Body>",
    b"x</se:Body>",
    b' a="b"',
    b' xmlns="urn:x"',
    b"<via/>",
    b"20070231T000000",
    b"A",
    b"\xef\xbb\xbf",
    b'<?xml version="1.0"?>',
    b"\xc2\xa43\xc2\xa4",
]


def mutated(data: bytes, rng: random.Random) -> bytes:
    """``data`` with one to three changes."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at = rng.randrange(len(data) + 1)
        end = min(len(data), at + rng.choice((0, 1, 1, 2, 5, 20, 60)))
        elsewhere = rng.randrange(len(data) + 1)
        data = rng.choice(
            (
                data[:at] + rng.choice(PIECES) + data[at:],
                data[:at] + rng.choice(PIECES) + data[end:],
                data[:at] + data[end:],
                data[:end] + data[at:end] + data[end:],
                data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :],
                data[:elsewhere] + data[at:end] + data[elsewhere:],
            )
        ) or b"x"  # fmt: skip
    return data


def mutated_text(data: bytes, rng: random.Random) -> bytes:
    """``data`` with another text in one of its elements: the mutations that a layout has to survive."""
    pieces = data.split(b"</")
    number = rng.randrange(len(pieces))
    head, mark, _ = pieces[number].rpartition(b">")
    pieces[number] = head + mark + b"".join(rng.choices(PIECES, k=rng.randrange(4)))
    return b"</".join(pieces)


def by_reader(xml: bytes):
    try:
        return read_envelope(xml)
    except RemoteProtocolError as error:
        return type(error), str(error)


def by_layouts(layouts: LearnedLayouts, xml: bytes):
    try:
        return message_of(layouts.read(xml.decode()), b"", None)
    except RemoteProtocolError as error:
        return type(error), str(error)


def check(xml: bytes, layouts: LearnedLayouts) -> tuple[bool, bool]:
    """Both fast ways on ``xml``; which of them took it."""
    expected = by_reader(xml)
    fast = read_windows_envelope(b"(" + xml + b")", 1, len(xml) + 1)
    try:
        xml.decode()
    except UnicodeDecodeError:
        assert isinstance(expected, tuple)
        assert fast is None
        return False, False
    assert fast is None or fast == expected
    known = len(layouts)
    assert by_layouts(layouts, xml) == expected
    return fast is not None, len(layouts) == known


@pytest.mark.parametrize("name", WITH_ENVELOPE)
def test_samples(name):
    layouts = LearnedLayouts(read_fields)
    xml = envelope_of(name)
    check(xml, layouts)
    assert check(xml, layouts)[1]
    is_windows = "as_printed" not in name and "metasploit" not in name
    assert (read_windows_envelope(xml, 0, len(xml)) is not None) == is_windows


@quick
@given(messages)
def test_generated_messages(message):
    xml = encode_envelope(message)
    layouts = LearnedLayouts(read_fields)
    check(xml, layouts)
    check(xml, layouts)


@quick
@given(full_messages(), full_messages())
def test_a_layout_learned_from_one_message_reads_another(first, second):
    layouts = LearnedLayouts(read_fields)
    second = second._replace(action=first.action)
    for message in (first, second, first):
        check(encode_envelope(message), layouts)


@pytest.mark.parametrize("seed", range(4))
def test_mutations(seed):
    rng = random.Random(seed)
    layouts = LearnedLayouts(read_fields)
    corpus = [envelope_of(name) for name in WITH_ENVELOPE] + [
        envelope(),
        envelope(body="<se:Body>text</se:Body>"),
    ]
    taken = [0, 0]
    for number in range(4_000):
        xml = rng.choice(corpus)
        fast, learned = check((mutated if number % 2 else mutated_text)(xml, rng), layouts)
        taken[0] += fast
        taken[1] += learned
    assert min(taken) > 100, "the mutations are too wild to test anything"


@quick
@given(st.data())
def test_holes_of_windows_layout_filled_with_anything(data):
    """Each hole of the layout in turn gets text that its expression would not, and what it would."""
    xml = encode_envelope(data.draw(full_messages())).decode()
    start = xml.index(">", data.draw(st.integers(0, len(xml) - 20)))
    end = xml.find("<", start)
    filled = xml[: start + 1] + data.draw(st.text(max_size=8)).replace("\ud800", "") + xml[end:]
    try:
        check(filled.encode(), LearnedLayouts(read_fields))
    except UnicodeEncodeError:  # a lone surrogate is nothing that could arrive
        return


def test_every_hole_of_the_layout_has_an_expression():
    assert set(re.findall(r"\{(\w+)\}", LAYOUT)) == set(HOLES)


def test_layouts_are_learned_once_and_bounded():
    calls = 0

    def counting(xml):
        nonlocal calls
        calls += 1
        return read_fields(xml)

    layouts = LearnedLayouts(counting)
    for number in range(50):
        assert (
            message_of(
                layouts.read(envelope().decode().replace("4494", str(number))), b"", None
            ).uniquifier
            == number
        )
    assert (calls, len(layouts)) == (2, 1), "one to read it, one to learn it"
    for number in range(LEARNED_LAYOUTS_MAX + 10):
        layouts.read(envelope(after=f"<x{number}/>").decode())
    assert len(layouts) == LEARNED_LAYOUTS_MAX
    long = envelope(after=f"<x>{'x' * LEARNED_LENGTH_MAX}</x>").decode()
    assert layouts.read(long) == read_fields(long.encode())
    assert len(layouts) == LEARNED_LAYOUTS_MAX


@pytest.mark.parametrize(
    "markup",
    [
        "<!-- -->",
        "<x><![CDATA[a]]></x>",
        "<x>a>b</x>",
        "<x a='>'>b</x>",
        "<x>&amp;</x>",
        '<x a="</x>"/>',
        "text<x/>text",
        "a<b>c</b>d",
        "<x>a<y>b</y>c</x>",
        "<x> <y> </y> </x>",
    ],
)
def test_markup_that_could_mislead(markup):
    """Comments and CDATA sections can hold what looks like markup; such envelopes are read and not learned."""
    layouts = LearnedLayouts(read_fields)
    for label in ("a", "b", "", " ", "--><c/><!--", "]]>", "c", "c<!-- -->d", "e"):
        check(envelope(after=markup).replace(b"mqsender label", label.encode()), layouts)
        check(envelope(after=markup, msmq=MSMQ.replace("<App>", f"{markup}<App>")), layouts)


@pytest.mark.parametrize("seed", range(2))
def test_heads_of_parts(seed, monkeypatch):
    """The expressions for Windows' part heads against the reader of any head."""
    rng = random.Random(seed)
    corpus = [
        multipart(b"<e/>"),
        multipart(b"<e/>", b"b", b"e"),
        multipart(b"<e/>", None),
        sample("mqsrm_4.5_pgm_bytes_reconstructed.bin").content,
    ]

    def outcome(content_type, content):
        try:
            return mime.split(content_type, content)
        except RemoteProtocolError as error:
            return type(error), error.status_hint

    posts = [(CONTENT_TYPE, content) for content in corpus]
    posts += [(CONTENT_TYPE, mutated(rng.choice(corpus), rng)) for _ in range(3_000)]
    posts += [(mutated(CONTENT_TYPE, rng), rng.choice(corpus)) for _ in range(1_000)]
    fast = [outcome(*post) for post in posts]
    assert sum(isinstance(result, mime.Parts) for result in fast) > 300

    class Never:
        def match(self, *_):
            return None

    monkeypatch.setattr(mime, "_WINDOWS_BEGIN", Never())
    monkeypatch.setattr(mime, "_WINDOWS_ENVELOPE_HEAD", Never())
    monkeypatch.setattr(mime, "_WINDOWS_ATTACHMENT_HEAD", Never())
    assert [outcome(*post) for post in posts] == fast
