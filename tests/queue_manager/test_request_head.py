"""The head of a request: which faults get which status, and that the quick way for Windows' own head is the same."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from srmp_spark.queue_manager.srmp_port.http_limits import HEAD_LINES_MAX, HEAD_MAX
from srmp_spark.queue_manager.srmp_port.request_head import HeadError, RequestHead, check_unfinished
from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import content_type_of
from srmp_spark.srmp.limits import CONTENT_MAX, TARGET_MAX

GOOD = (
    b"POST /msmq/private$/orders HTTP/1.1\r\nHost: machine2\r\n"
    b'Content-Type: multipart/related; boundary="MSMQ - SOAP boundary, 292"; type=text/xml\r\n'
    b'Content-Length: 2300\r\nSOAPAction: "MSMQMessage"\r\nProxy-Accept: '
    b"NonInteractiveClient\r\n\r\n"
)


def status_of(head: bytes) -> int:
    with pytest.raises(HeadError) as refused:
        RequestHead.parse(head)
    assert refused.value.reason
    assert refused.value.section
    return refused.value.status


def test_the_head_of_chapter_4() -> None:
    for read in (RequestHead.parse(GOOD), RequestHead.of_windows(GOOD)[0]):
        assert (read.target, read.length, read.keep_alive, read.version) == (
            b"/msmq/private$/orders",
            2300,
            True,
            "1.1",
        )
        assert (
            read.headers[b"content-type"]
            == b'multipart/related; boundary="MSMQ - SOAP boundary, 292"; type=text/xml'
        )
    assert RequestHead.of_windows(GOOD + b"body")[1] == len(GOOD)


@pytest.mark.parametrize("name", [b"Authorization", b"proxy-authorization", b"Cookie", b"COOKIE"])
def test_a_head_knows_whether_credentials_are_in_it(name: bytes) -> None:
    assert RequestHead.parse(
        GOOD.replace(b"SOAPAction", name + b": s\r\nSOAPAction")
    ).has_credentials
    assert not RequestHead.parse(
        GOOD.replace(b"SOAPAction", b"X-" + name + b": s\r\nSOAPAction")
    ).has_credentials
    assert not RequestHead.of_windows(GOOD)[0].has_credentials


PIECES = [
    (b"POST", [b"POST", b"post", b"GET"]),
    (
        b"/msmq/private$/orders",
        [
            b"/msmq/q?SenderStream=x",
            b"/msmq/a%20b",
            b"/msmq/\xc3\xa4",
            b"/a b",
            b"*",
            b"http://h/msmq/q",
            b'/"<>{}|^`#',
            b"/",
        ],
    ),
    (b"HTTP/1.1", [b"HTTP/1.0", b"HTTP/2.0", b"HTTP/1.1 "]),
    (
        b"Host: machine2",
        [
            b"Host: a:80",
            b"Host:a",
            b"Host: [::1]:80",
            b"Host:  a",
            b"Host: a,b",
            b"host: a",
            b"Host: a\r\nHost: b",
            b"X: y",
        ],
    ),
    (b"2300", [b"0", b"01", b"+1", b"1 ", b"99999999", b"", b"1, 1"]),
    (b"type=text/xml", [b"type=text/xml\t", b"type=\x00", b"type=\xe4", b"a\r\n b", b" "]),
    (
        b'SOAPAction: "MSMQMessage"',
        [b'SOAPAction:"MSMQMessage"', b"SOAPAction: x", b'SOAPAction : "MSMQMessage"'],
    ),
    (
        b"\r\nProxy-Accept: NonInteractiveClient",
        [
            b"",
            b"\r\nTransfer-Encoding: chunked",
            b"\r\nExpect: 100-continue",
            b"\r\nConnection: close",
        ],
    ),
    (b"\r\n", [b"\n"]),
]


@settings(max_examples=400, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, len(PIECES) - 1), st.integers(0, 7), st.integers(0, 2)), max_size=3
    )
)
def test_what_the_expression_for_windows_takes_httptools_takes_to_be_the_same(
    changes: list[tuple[int, int, int]],
) -> None:
    head = GOOD
    for piece, choice, skip in changes:
        old, news = PIECES[piece]
        parts = head.split(old)
        at = min(skip, len(parts) - 2)
        if at >= 0:
            head = old.join(parts[: at + 1]) + news[choice % len(news)] + old.join(parts[at + 1 :])
    quick = RequestHead.of_windows(head)
    if quick is None:
        return
    read, length = quick
    slow = RequestHead.parse(head[:length])
    assert (read.target, read.length, read.keep_alive, read.version) == (
        slow.target,
        slow.length,
        slow.keep_alive,
        slow.version,
    )
    assert read.headers[b"content-type"] == slow.headers[b"content-type"]
    assert not slow.headers.keys() - {b"host", b"content-type", b"content-length"}


@pytest.mark.parametrize("fold", [b"\r\n ", b"\r\n\t", b"\r\n    "])
def test_a_folded_content_type_is_accepted_as_the_document_prints_it(fold: bytes) -> None:
    read = RequestHead.parse(GOOD.replace(b"; boundary", b";" + fold + b"boundary"))
    assert (
        read.headers[b"content-type"]
        == b'multipart/related; boundary="MSMQ - SOAP boundary, 292"; type=text/xml'
    )


FIELD = b'Content-Type: multipart/related; boundary="MSMQ - SOAP boundary, 292"; type=text/xml'
FOLDS = [b"\r\n ", b"\r\n\t", b"\r\n   ", b" \r\n ", b"\r\n \r\n x", b"\r\n", b"\t", b"\r\n  \r\n "]


@settings(max_examples=300, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(len(b"Content-Type:"), len(FIELD)), st.sampled_from(FOLDS)),
        max_size=4,
    ),
    st.sampled_from([b"", b"\r\nConnection: upgrade\r\nUpgrade: x", b"\r\nX: a"]),
)
def test_a_head_is_accepted_by_the_content_type_that_readers_find_in_it(
    folds: list[tuple[int, bytes]], more: bytes
) -> None:
    """One POST whose fold was undone by one side only would be answered 200 and could never be read."""
    field = FIELD
    for at, fold in sorted(folds, reverse=True):
        field = field[:at] + fold + field[at:]
    head = GOOD.replace(FIELD, field + more)
    quick = RequestHead.of_windows(head)
    try:
        read = quick[0] if quick is not None else RequestHead.parse(head)
    except HeadError:
        return
    assert read.headers[b"content-type"] == content_type_of(head)
    assert b"\r" not in read.headers[b"content-type"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (b"boundary, 292", b"boundary,\r\n 292"),
        (b"type=text", b"type=\r\n text"),
        (b": multipart", b":\r\n multipart"),
    ],
)
def test_a_fold_inside_of_a_parameter_means_the_same_to_both_sides(old: bytes, new: bytes) -> None:
    envelope = (
        b'<se:Envelope xmlns:se="http://schemas.xmlsoap.org/soap/envelope/" xmlns="http://schemas.xmlsoap.org/srmp/">'
        b'<se:Header><path xmlns="http://schemas.xmlsoap.org/rp/" '
        b'se:mustUnderstand="1"><action>MSMQ:a</action>'
        b"<to>http://h/msmq/q</to><id>uuid:1@aaaaaaaa-0000-4000-8000-000000000001</id></path>"
        b'<properties se:mustUnderstand="1"><expiresAt>20380119T031407</expiresAt></proper'
        b"ties></se:Header>"
        b"<se:Body></se:Body></se:Envelope>"
    )
    mark = b"--MSMQ - SOAP boundary, 292"
    content = (b"%b\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: "
b"%d\r\n\r\n%b%b--\r\n") % (
        mark, len(envelope), envelope, mark,
    )  # fmt: skip
    head = GOOD.replace(old, new)
    accepted = decode(RequestHead.parse(head).headers[b"content-type"], content)
    assert decode(content_type_of(head), content) == accepted
    assert accepted.label == "a"


def test_an_offer_to_upgrade_is_ignored_beside_a_folded_content_type_too() -> None:
    offer = b"; type=\r\n text/xml\r\nConnection: upgrade\r\nUpgrade: x\r\n"
    assert RequestHead.parse(GOOD.replace(b"; type=text/xml\r\n", offer)).length == 2300


def test_any_other_folded_field_is_refused() -> None:
    assert status_of(GOOD.replace(b"Host: machine2", b"Host: machine2\r\n x")) == 400
    both = GOOD.replace(b"; boundary", b";\r\n boundary").replace(
        b"Host: machine2", b"Host: machine2\r\n x"
    )
    assert status_of(both) == 400


CL = b"Content-Length: 2300"


@pytest.mark.parametrize(
    ("old", "new", "status"),
    [
        (CL, CL + b"\r\nTransfer-Encoding: chunked", 400),
        (CL, b"Transfer-Encoding: chunked\r\n" + CL, 400),
        (CL, CL + b"\r\n" + CL, 400),
        (CL, b"Content-Length: 5, 5", 400),
        (CL, b"Content-Length: +5", 400),
        (CL, b"Content-Length : 5", 400),
        (CL, b"X: y", 411),
        (CL, b"Content-Length: %d" % (CONTENT_MAX + 1), 413),
        (CL, b"Transfer-Encoding: gzip", 501),
        (CL, b"Transfer-Encoding: gzip, chunked", 501),
        (CL, CL + b"\r\nContent-Encoding: gzip", 415),
        (CL, CL + b"\r\nExpect: the-impossible", 417),
        (CL, CL + b"\r\nHost: b", 400),
        (CL, CL + b"\r\nContent-Type: text/xml", 400),
        (b"Host: machine2\r\n", b"", 400),
        (b"\r\nHost", b"\nHost", 400),
        (b"\r\nHost", b"\rHost", 400),
        (b"POST", b"GET", 405),
        (b"POST", b"DELETE", 405),
        (b"POST", b"CONNECT", 405),
        (b"POST", b"PATCH", 405),
        (b"POST", b"FOO", 501),
        (b"POST", b"PROPFIND", 501),
        (b"POST", b"post", 501),
        (b"POST", b"A" * 33, 501),
        (b"POST", b"P@ST", 400),
        (b" HTTP/1.1", b"", 400),
        (b"HTTP/1.1", b"HTTP/2.0", 505),
        (b"HTTP/1.1", b"HTTP/3.7", 505),
        (b"HTTP/1.1", b"SIP/2.0", 400),
        (b"/msmq/private$/orders", b"/" + b"a" * TARGET_MAX, 414),
        (b"/msmq/private$/orders", b"/" + b"a" * 100_000, 414),
        (b"Host: machine2", b"Host: machine2\r\nX: " + b"a" * HEAD_MAX, 431),
        (b"Host: machine2", b"Host: machine2" + b"\r\nX: y" * HEAD_LINES_MAX, 431),
    ],
)
def test_faults_of_the_head_have_the_status_that_http_gives_them(
    old: bytes, new: bytes, status: int
) -> None:
    assert status_of(GOOD.replace(old, new)) == status


def test_chunked_and_upgrade_are_accepted() -> None:
    read = RequestHead.parse(GOOD.replace(CL, b"Transfer-Encoding: Chunked"))
    assert read.length is None
    offered = RequestHead.parse(GOOD.replace(CL, CL + b"\r\nConnection: Upgrade\r\nUpgrade: h2c"))
    assert offered.length == 2300


@pytest.mark.parametrize(
    ("beginning", "status"),
    [
        (b"\x16\x03\x01\x02\x00", 400),
        (b"no request at all", 200),
        (b"POST /msmq/q HTTP/1.1\r\nHost: a\n", 400),
        (b"POST /" + b"a" * (TARGET_MAX + 100), 414),
        (b"POST /" + b"a" * 100_000, 414),
        (b"POST /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: a\r\n", 414),
        (b"POST /\n" + b"a" * 100_000, 400),
        (b"GET /\nx HTTP/1.1\r\n", 400),
        (b"FOO /\n HTTP/3.0\r\n", 400),
        (b"GET /\r\n", 400),
        (b"POST /msmq/q\r\nHost: a\r\n", 400),
        (b"FOO / HTTP/1.1\r\n", 501),
        (b"A" * 33, 501),
        (b"GET / HTTP/1.1\r\nHost: a\r\n", 405),
        (b"GET /", 200),
        (b"POST / HTTP/1.1\r\nX: " + b"a" * HEAD_MAX, 431),
        (b"POST / HTTP/1.1\r\n" + b"X: y\r\n" * (HEAD_LINES_MAX + 2), 431),
        (b"POST / HTTP/1.1\r\nHost: a\r\n", 200),
        (b"PO", 200),
        (b"\r", 200),
        (b"\rP", 400),
        (b"\n", 400),
    ],
)
def test_an_unfinished_head_is_refused_as_soon_as_it_cannot_become_good(
    beginning: bytes, status: int
) -> None:
    if status == 200:
        check_unfinished(beginning, 0)
        return
    with pytest.raises(HeadError) as refused:
        check_unfinished(beginning, 0)
    assert refused.value.status == status


@pytest.mark.parametrize(
    "line",
    [
        b"GET /",
        b"FOO / HTTP/1.1",
        b"GET / HTTP/1.1",
        b"POST / HTTP/2.0",
        b"POST /" + b"a" * 3000 + b" HTTP/1.1",
    ],
)
def test_a_request_line_is_answered_the_same_whether_the_rest_of_the_head_has_come_or_not(
    line: bytes,
) -> None:
    whole = status_of(line + b"\r\nHost: a\r\n\r\n")
    with pytest.raises(HeadError) as refused:
        check_unfinished(line + b"\r\n", 0)
    assert refused.value.status == whole


def status_in_pieces(head: bytes, size: int) -> int:
    for end in range(size, len(head), size):
        try:
            check_unfinished(head[:end], end - size)
        except HeadError as error:
            return error.status
    return 0


@pytest.mark.parametrize(("bare_lf_after", "status"), [(60, 400), (HEAD_LINES_MAX + 5, 431)])
def test_of_two_faults_the_first_decides_whether_the_head_came_whole_or_in_pieces(
    bare_lf_after: int, status: int
) -> None:
    lines = [b"X: y\r\n"] * (HEAD_LINES_MAX + 20)
    lines[bare_lf_after] = b"X: y\n"
    head = GOOD[:-2] + b"".join(lines) + b"\r\n"
    assert status_of(head) == status
    for size in (1, 50):
        assert status_in_pieces(head, size) == status


def test_a_method_that_is_too_long_is_one_whatever_follows() -> None:
    assert status_of(b"A" * 33 + b"@ / HTTP/1.1\r\nHost: a\r\n\r\n") == 501


def test_via_is_a_list_that_each_hop_may_begin_anew() -> None:
    """RFC 9110 5.3, 7.6.3: who forwarded a message before; a second line of it is no fault, as it is of a length."""
    head = (
        b"POST /msmq/q HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\nVia: 1.1 a, 1.1 "
        b"b\r\nvia: 1.0 c\r\n\r\n"
    )
    assert RequestHead.parse(head).headers[b"via"] == b"1.1 a, 1.1 b,1.0 c"
