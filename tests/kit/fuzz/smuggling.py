"""Two hundred requests that two HTTP parsers could end at different places (test T18).

A shape is a valid message with one change of its framing, and a *hidden* valid message directly
after it. RFC 9112 leaves three outcomes. ``NONE``: the framing is ambiguous or malformed, so no
message is accepted and the connection ends. ``BOTH``: the framing is clear, so both messages are
accepted. ``FIRST``: the framing is clear, and the connection ends after the first message.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from srmp_spark.testing.foreign.messages import ForeignMessage, post

NONE, FIRST, BOTH = 0, 1, 2
LINEAGE = "0a0b0c0d-5555-6666-7777-888899990000"
_CL = re.compile(rb"Content-Length: ([0-9]+)\r\n")


class Shape(NamedTuple):
    """The bytes of one connection. ``number`` counts the shapes from 1.

    The first message has the uniquifier ``2 * number``, and the hidden message the next one.
    """

    number: int
    name: str
    raw: bytes
    taken: int
    """Which messages must be accepted: NONE, FIRST or BOTH."""


class _Parts(NamedTuple):
    head: bytes
    """The head without Content-Length and without the blank line."""
    length: bytes
    """The true Content-Length of ``content``."""
    content: bytes
    hidden: bytes

    def with_length(self, field: bytes) -> bytes:
        """Return the first request with the header lines ``field``, then the hidden request."""
        return self.head + field + b"\r\n" + self.content + self.hidden

    def chunked(self, field: bytes = b"Transfer-Encoding: chunked\r\n") -> bytes:
        """Return the first request with its content as one chunk, followed by the hidden request.

        ``field`` has the header lines.
        """
        return self.head + field + b"\r\n" + self.chunks() + self.hidden

    def chunks(
        self,
        size: bytes | None = None,
        data_end: bytes = b"\r\n",
        last: bytes = b"0\r\n\r\n",
        line_end: bytes = b"\r\n",
    ) -> bytes:
        """Return the content as one chunk, followed by the last chunk.

        The arguments replace the size, the line end after the data, the last chunk, and the line
        end after the size.
        """
        return (
            (b"%x" % len(self.content) if size is None else size)
            + line_end
            + self.content
            + data_end
            + last
        )


def _message(number: int) -> bytes:
    to = "http://127.0.0.1/msmq/private$/smuggled"
    return post(
        ForeignMessage(to=to, lineage=LINEAGE, uniquifier=number, sent_at=1_790_000_000, body=b"x")
    ).raw


def _parts(number: int) -> _Parts:
    raw, hidden = _message(2 * number), _message(2 * number + 1)
    head, _, content = raw.partition(b"\r\n\r\n")
    head += b"\r\n"
    length = _CL.search(head)
    assert length is not None, "a good message has a length"
    return _Parts(_CL.sub(b"", head), length[1], content, hidden)


_TE_VALUES = (
    b"chunked",
    b"Chunked",
    b"CHUNKED",
    b"  chunked",
    b"\tchunked",
    b"chunked ",
    b"chunked\t",
    b"\x0bchunked",
    b"chunked\x0b",
    b"\x0cchunked",
    b'"chunked"',
    b"'chunked'",
    b"chunked;q=1",
    b"chunked,",
    b",chunked",
    b"chunked, chunked",
    b"identity",
    b"identity, chunked",
    b"chunked, identity",
    b"gzip, chunked",
    b"chunked, gzip",
    b"xchunked",
    b"chunkedx",
    b"x-chunked",
    b"chunk",
    b"",
    b"cow",
    b"chun ked",
    b"chunked\x00",
    b"\x00chunked",
    b"\xa0chunked",
    b"chunked\r\n\t, identity",
    b"\r\n chunked",
)
_TE_ALONE_IS_CLEAR = frozenset((b"chunked", b"Chunked", b"CHUNKED", b"  chunked", b"\tchunked"))
"""Values of Transfer-Encoding that are clear without a Content-Length.

Trailing blanks would be clear as well; srmp-spark refuses them, because no real client sends them.
"""


def _length_and_encoding(p: _Parts) -> Iterator[tuple[str, bytes, int]]:
    length = b"Content-Length: " + p.length + b"\r\n"
    for value in _TE_VALUES:
        field = b"Transfer-Encoding: " + value + b"\r\n"
        yield f"Content-Length, then Transfer-Encoding {value!r}", p.chunked(length + field), NONE
        yield (
            f"Transfer-Encoding {value!r}, then Content-Length",
            p.with_length(field + length),
            NONE,
        )
        yield (
            f"Transfer-Encoding {value!r} alone",
            p.chunked(field),
            BOTH if value in _TE_ALONE_IS_CLEAR else NONE,
        )


def _names_of_fields(p: _Parts) -> Iterator[tuple[str, bytes, int]]:
    length = b"Content-Length: " + p.length + b"\r\n"
    for field in (
        b"Transfer-Encoding : chunked",
        b"Transfer-Encoding\t: chunked",
        b" Transfer-Encoding: chunked",
        b"\tTransfer-Encoding: chunked",
        b"X-A: b\r\n Transfer-Encoding: chunked",
        b"X-A: b\nTransfer-Encoding: chunked",
        b"X-A: b\rTransfer-Encoding: chunked",
        b"Transfer-Encoding\x00: chunked",
        b"Transfer\xadEncoding: chunked",
        b"Transfer-Encoding\r\n: chunked",
        b"Transfer-Encoding chunked",
        b": chunked",
        b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity",
        b"Transfer-Encoding: identity\r\nTransfer-Encoding: chunked",
        b"X-A\x00: b",
        b"X-A: b\x00",
        b"X-A: b\x01c",
        b"X A: b",
        b"(X): b",
        b"X-A: b\r\n\tc",
        b"X-A: b\n",
        b"X-A: b\r",
    ):
        yield f"beside a length, {field!r}", p.with_length(length + field + b"\r\n"), NONE
    yield (
        "an underscore makes another field",
        p.with_length(length + b"Transfer_Encoding: chunked\r\n"),
        BOTH,
    )
    yield (
        "a field of Connection",
        p.with_length(length + b"Connection: keep-alive, Content-Length\r\n"),
        BOTH,
    )
    yield (
        "an offer to upgrade",
        p.with_length(length + b"Connection: upgrade\r\nUpgrade: h2c\r\n"),
        BOTH,
    )
    yield "a close", p.with_length(length + b"Connection: close\r\n"), FIRST


def _lengths(p: _Parts) -> Iterator[tuple[str, bytes, int]]:
    n = p.length
    for value in (
        b"+" + n,
        b"-" + n,
        b"0x%x" % int(n),
        n + b".0",
        n + b"e0",
        n + b" " + n,
        n + b"," + n,
        n + b", " + n,
        n + b", 0",
        b"0, " + n,
        n + b";",
        n + b"\x0b",
        b"\x0b" + n,
        b"\x00" + n,
        n + b"\x00",
        b'"' + n + b'"',
        b"",
        b" ",
        b"9" * 30,
        b"18446744073709551616",
        b"4294967296",
        b"\xd9\xa1",
        n[:1] + b"_" + n[1:],
        b"\r\n " + n,
        n + b"\r\n ",
        n + b"\r\n 0",
        b"(" + n + b")",
        b"0o17",
        b"NaN",
    ):
        yield (
            f"Content-Length {value!r}",
            p.with_length(b"Content-Length: " + value + b"\r\n"),
            NONE,
        )
    true, other = b"Content-Length: " + n + b"\r\n", b"Content-Length: 0\r\n"
    yield "two equal Content-Lengths", p.with_length(true + true), NONE
    yield "two Content-Lengths, the true one first", p.with_length(true + other), NONE
    yield "two Content-Lengths, the true one last", p.with_length(other + true), NONE
    yield "two Content-Lengths, one in capitals", p.with_length(true + other.upper()), NONE
    yield (
        "Content-Length with a blank before the colon",
        p.with_length(true.replace(b":", b" :")),
        NONE,
    )
    yield (
        "Content-Length with zeros before it",
        p.with_length(b"Content-Length: 000" + n + b"\r\n"),
        BOTH,
    )
    yield (
        "Content-Length between blanks",
        p.with_length(b"Content-Length: \t" + n + b" \t\r\n"),
        BOTH,
    )
    yield "Content-Length without a blank", p.with_length(b"Content-Length:" + n + b"\r\n"), BOTH


def _line_ends(p: _Parts) -> Iterator[tuple[str, bytes, int]]:
    good = p.head + b"Content-Length: " + p.length + b"\r\n\r\n"
    rest = p.content + p.hidden
    ends = [match.start() for match in re.finditer(rb"\r\n", good)][:-1]
    for at in ends:
        line = good[:at].rpartition(b"\n")[2][:20]
        yield f"a bare LF after {line!r}", good[:at] + good[at + 1 :] + rest, NONE
        yield f"a bare CR after {line!r}", good[:at] + b"\r" + good[at + 2 :] + rest, NONE
        yield f"CR CR LF after {line!r}", good[:at] + b"\r" + good[at:] + rest, NONE
        yield f"a NUL after {line!r}", good[:at] + b"\x00" + good[at:] + rest, NONE
        if at != ends[0]:
            # Chapter 4 of [MC-MQSRM] shows this field folded.
            spared = line.startswith(b"Content-Type")
            yield (
                f"a fold after {line!r}",
                good[:at] + b"\r\n x" + good[at:] + rest,
                BOTH if spared else NONE,
            )
    yield "all lines end in LF", good.replace(b"\r\n", b"\n") + rest, NONE
    yield "LF LF ends the head", good[:-4] + b"\n\n" + rest, NONE
    yield "CR LF LF ends the head", good[:-2] + b"\n" + rest, NONE
    yield "a blank in the blank line", good[:-2] + b" \r\n" + rest, NONE
    yield (
        "a fold in Content-Type, as chapter 4 prints it",
        good.replace(b"; type", b";\r\n\ttype") + rest,
        BOTH,
    )
    yield "an empty line before the request", b"\r\n" + good + rest, BOTH
    yield "a bare LF before the request", b"\n" + good + rest, NONE
    yield "a blank before the request", b" " + good + rest, NONE


def _chunks(p: _Parts) -> Iterator[tuple[str, bytes, int]]:
    head = p.head + b"Transfer-Encoding: chunked\r\n\r\n"
    size = b"%x" % len(p.content)
    for wrong in (
        b"0x" + size,
        b"+" + size,
        b"-" + size,
        b" " + size,
        b"\t" + size,
        size + b"h",
        size + b"\x00",
        size + b"\x0b",
        size + b",",
        b"",
        b"g",
        b"0" * 9 + size,
        b"F" * 16,
        b"1" + b"0" * 16,
        size + b";\x00",
        size + b";a\x7f",
        size + b" a",
        b"\xef\xbc\x95",
        size[:1] + b"_" + size[1:],
        size + b";" + b"a" * 300,
    ):
        yield f"a chunk of {wrong[:30]!r}", head + p.chunks(wrong) + p.hidden, NONE
    for clear in (size.upper(), b"000" + size, size + b";a=b", size + b';a="b;c"', size + b" ;a"):
        yield f"a chunk of {clear!r}", head + p.chunks(clear) + p.hidden, BOTH
    for end in (b"\n", b"\r", b"\r\r\n", b"\n\r"):
        yield f"a chunk size that ends in {end!r}", head + p.chunks(line_end=end) + p.hidden, NONE
    for end in (b"", b"\n", b"\r", b"xx", b"\n\r", b"\r\n\r\n", b" \r\n"):
        yield f"chunk data that ends in {end!r}", head + p.chunks(data_end=end) + p.hidden, NONE
    for last in (
        b"0\n\n",
        b"0\r\n\n",
        b"0\n\r\n",
        b"-0\r\n\r\n",
        b"0x0\r\n\r\n",
        b"0\r\nX\r\n\r\n",
        b"0\r\nX: y\n\r\n",
        b"0\r\nX: y\r\n z\r\n\r\n",
        b"0\r\n: y\r\n\r\n",
        b"0\r\nX : y\r\n\r\n",
        b"0\r\nX: \x00\r\n\r\n",
        b"0\r\r\n\r\n",
    ):
        yield f"a last chunk {last!r}", head + p.chunks(last=last) + p.hidden, NONE
    for last in (
        b"00\r\n\r\n",
        b"0;a=b\r\n\r\n",
        b"0\r\nX: y\r\n\r\n",
        b"0\r\nContent-Length: 5\r\n\r\n",
        b"0\r\nTransfer-Encoding: chunked\r\n\r\n",
    ):
        yield f"a last chunk {last!r}", head + p.chunks(last=last) + p.hidden, BOTH


def _request_lines(p: _Parts) -> Iterator[tuple[str, bytes, int]]:
    good = p.with_length(b"Content-Length: " + p.length + b"\r\n")
    line, _, rest = good.partition(b"\r\n")
    target = line.split(b" ")[1]
    for wrong in (
        b"POST  %b HTTP/1.1",
        b"POST %b  HTTP/1.1",
        b"POST\t%b HTTP/1.1",
        b"POST %b\tHTTP/1.1",
        b"POST %b HTTP/1.1 ",
        b"POST %b HTTP/1.1\t",
        b" POST %b HTTP/1.1",
        b"POST %b http/1.1",
        b"POST %b HTTP/1.10",
        b"POST %b HTTP/01.1",
        b"POST %b HTTP/1",
        b"POST %b HTTP/1.1.1",
        b"POST %b HTTP/0.9",
        b"POST %b HTTP/2.0",
        b"POST %b",
        b"POST %b HTTP/1.1\x00",
        b"POST\x00 %b HTTP/1.1",
        b"post %b HTTP/1.1",
        b"GET %b HTTP/1.1",
        b"POST %b HTTP/1.1 HTTP/1.1",
        b"POST %b ICE/1.0",
        b"\xef\xbb\xbfPOST %b HTTP/1.1",
        b"POST %b\x00 HTTP/1.1",
        b"POST %b\r HTTP/1.1",
    ):
        shown = wrong.replace(b"%b", b"T")
        yield f"request line {shown!r}", wrong.replace(b"%b", target) + b"\r\n" + rest, NONE
    yield "chunked for HTTP/1.0", p.chunked().replace(b"HTTP/1.1", b"HTTP/1.0", 1), NONE
    yield "a length for HTTP/1.0", good.replace(b"HTTP/1.1", b"HTTP/1.0", 1), FIRST
    host = re.search(rb"Host: [^\r]*\r\n", good)
    assert host is not None, "a good message names a host"
    for name, field in (
        ("no Host", b""),
        ("two Hosts", host[0] * 2),
        ("two different Hosts", host[0] + b"Host: other\r\n"),
    ):
        yield name, good.replace(host[0], field, 1), NONE
    yield "gzip", good.replace(host[0], host[0] + b"Content-Encoding: gzip\r\n", 1), NONE
    yield "an unknown Expect", good.replace(host[0], host[0] + b"Expect: x\r\n", 1), NONE
    yield (
        "two Content-Types",
        good.replace(host[0], host[0] + b"Content-Type: text/xml\r\n", 1),
        NONE,
    )
    yield "a whole URL as target", good.replace(target, b"http://127.0.0.1" + target, 1), BOTH


def shapes() -> list[Shape]:
    """Return the list of all shapes.

    Each shape has messages of its own, so that the stored messages show which shapes were accepted.
    """
    makers = (_length_and_encoding, _names_of_fields, _lengths, _line_ends, _chunks, _request_lines)
    found: list[Shape] = []
    for make in makers:
        for index in range(sum(1 for _ in make(_parts(0)))):
            number = len(found) + 1
            name, raw, taken = list(make(_parts(number)))[index]
            found.append(Shape(number, name, raw, taken))
    return found
