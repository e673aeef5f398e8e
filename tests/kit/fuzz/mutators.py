"""Turns valid bytes into invalid ones: changes of bytes, markup and numbers.

Lengths are often repaired afterwards, so that a mutant passes the first check of a parser. Every
change follows from the given random generator, so a mutant is identified by its target and its
number.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from random import Random

LENGTH_MAX = 80_000
"""Most bytes of a mutant.

The limit is above ENVELOPE_MAX and HEAD_MAX, so that mutants can exceed both.
"""
REPEATS_MAX = 3_000
"""Limit for the repetitions of a piece, which are always fewer."""

_NUMBERS = (
    str(number).encode()
    for number in (
        0,
        1,
        -1,
        7,
        8,
        9,
        255,
        256,
        65_535,
        65_536,
        2**31 - 1,
        2**31,
        2**32 - 1,
        2**32,
        2**63 - 1,
        2**63,
        2**64 - 1,
        2**64,
        10**20 - 1,
        10**30,
    )
)
NUMBERS = (
    *_NUMBERS,
    b"00",
    b"01",
    b"+1",
    b"0x10",
    b"1e3",
    b" 1",
    b"1 ",
    b"",
    b"\xd9\xa3",
    b"\xc2\xb2",
    b"1_0",
)
"""Limits of lengths, positions and identifiers, and malformed numbers.

Some have digits that Python's ``int`` accepts and the wire format must not.
"""

ANYWHERE = (
    b"",
    b"\x00",
    b"\n",
    b"\r",
    b"\r\n",
    b"\r\n ",
    b"\r\n\t",
    b"\r\n\r\n",
    b"\t",
    b" ",
    b"\x0b",
    b"\x0c",
    b"\x7f",
    b"\x80",
    b"\xff",
    b"\xc0\x80",
    b"\xed\xa0\x80",
    b"\xef\xbb\xbf",
    b"\xef\xbf\xbf",
    b"\xc2\x85",
    b"\xe2\x80\xa8",
    b"\xf4\x90\x80\x80",
    b"%",
    b"%00",
    b"%2f",
    b"%2e%2e",
    b"..",
    b"//",
    b"\\",
    b"'",
    b'"',
    b":",
    b";",
    b",",
    b"=",
    b"?",
    b"#",
    b"@",
    b"[",
    b"]",
    b"{",
    b"}",
)
"""Tokens that may confuse any parser."""

MARKUP = (
    b"<",
    b">",
    b"</",
    b"/>",
    b"&",
    b"&amp;",
    b"&lt;",
    b"&#0;",
    b"&#65;",
    b"&#x110000;",
    b"&e;",
    b"]]>",
    b"<![CDATA[",
    b"<![CDATA[x]]>",
    b"<!--",
    b"-->",
    b"<!-- x -->",
    b"--",
    b"<?x?>",
    b"<?xml version='1.0'?>",
    b'<?xml version="1.0" encoding="UTF-16"?>',
    b"<!DOCTYPE x>",
    b"<!DOCTYPE x [<!ENTITY e 'x'>]>",
    b"<!ENTITY",
    b"<a>",
    b"</a>",
    b"<a/>",
    b"<se:Body>",
    b"</se:Body>",
    b"<to>",
    b"</to>",
    b"<durable/>",
    b"<Journal/>",
    b"<b>SenderStream=x</b>",
    b' xmlns="urn:x"',
    b' xmlns:se="urn:x"',
    b' se:mustUnderstand="1"',
    b' a="b"',
    b" a='<'",
    b"DIRECT=",
    b"MSMQ:",
    b"http://",
    b"uuid:",
    b"uid:",
    b"20070231T000000",
    b"\xc2\xa40\xc2\xa4",
)
"""Tokens of XML and SRMP."""

HTTP = (
    b"POST ",
    b"GET ",
    b" HTTP/1.1",
    b" HTTP/1.0",
    b" HTTP/0.9",
    b" HTTP/2.0",
    b"Host: a\r\n",
    b"Content-Length: 5\r\n",
    b"Content-Length: 0\r\n",
    b"Transfer-Encoding: chunked\r\n",
    b"Transfer-Encoding: gzip, chunked\r\n",
    b"Transfer-Encoding:\x0bchunked\r\n",
    b"Connection: close\r\n",
    b"Connection: keep-alive\r\n",
    b"Connection: upgrade\r\nUpgrade: h2c\r\n",
    b"Expect: 100-continue\r\n",
    b"Content-Type: text/xml\r\n",
    b"Content-Type: text/xml;\r\n charset=utf-8\r\n",
    b"Content-Encoding: gzip\r\n",
    b"X: y\r\n",
    b" : ",
    b"0\r\n\r\n",
    b"5\r\nabcde\r\n",
    b"5;x=y\r\n",
    b"--B",
    b"--B--\r\n",
    b"--B--",
    b"Content-Id: body@x\r\n",
    b"Content-Id: extension@x\r\n",
    b"Content-Transfer-Encoding: base64\r\n",
    b'boundary="B"',
    b"multipart/related",
    b"100 Continue",
    b"204 No Content",
    b"304",
    b"HTTP/1.1 100 Continue\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
    b"Retry-After: 1\r\n",
    b"Srmp-Reason: x\r\n",
)
"""Tokens of HTTP and MIME."""

JSON = (
    b"null",
    b"true",
    b"NaN",
    b"Infinity",
    b"1e999",
    b'"\\ud800"',
    b'"\\u0000"',
    b"[",
    b"[[",
    b"]",
    b"{}",
    b'{"a":1,"a":2}',
    b"-0",
    b"&a=b",
    b"a=b",
    b"after=",
    b"%ff",
    b"+",
    b'"body"',
    b'"destination"',
    b"\xef\xbb\xbf{}",
    b'"\\ud83d\\ude00"',
)
"""Tokens of the management API: JSON and query strings."""

_DIGITS = re.compile(rb"[0-9]+")
_LENGTH = re.compile(rb"(content-length:[ \t]*)[0-9]+", re.IGNORECASE)
_BOUNDARY = re.compile(rb'boundary="([^"\r\n]{1,70})"')

Change = Callable[[bytes, Random], bytes]


class Mutator:
    """Changes inputs of one target. ``seeds`` are spliced in, ``tokens`` are inserted."""

    def __init__(self, seeds: Sequence[bytes], tokens: Sequence[bytes]) -> None:
        self._seeds = tuple(seeds)
        self._tokens = (*ANYWHERE, *tokens)
        self._changes: tuple[Change, ...] = (
            self._insert,
            self._insert,
            self._replace,
            self._replace,
            self._text,
            self._text,
            self._number,
            self._number,
            self._delete,
            self._byte,
            self._bit,
            self._twice,
            self._swap,
            self._splice,
            self._cut,
            self._many,
            self._case,
        )

    def mutate(self, data: bytes, rng: Random) -> bytes:
        """Return ``data`` with one to four random changes, at most about :data:`LENGTH_MAX` bytes.

        In two of five results the Content-Length fields are corrected.
        """
        for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
            data = rng.choice(self._changes)(data, rng)[:LENGTH_MAX]
        return with_true_lengths(data) if rng.random() < 0.4 else data

    # --- the changes: each takes bytes and returns changed bytes ----------------------------------

    def _span(self, data: bytes, rng: Random) -> tuple[int, int]:
        at = rng.randrange(len(data) + 1)
        return at, min(len(data), at + rng.choice((0, 1, 1, 2, 4, 8, 20, 60, 300)))

    def _insert(self, data: bytes, rng: Random) -> bytes:
        at, _ = self._span(data, rng)
        return data[:at] + rng.choice(self._tokens) + data[at:]

    def _replace(self, data: bytes, rng: Random) -> bytes:
        at, end = self._span(data, rng)
        return data[:at] + rng.choice(self._tokens) + data[end:]

    def _text(self, data: bytes, rng: Random) -> bytes:
        """Replace the end of an element's text, or of a header line's value, by tokens.

        Such an input often passes more checks of a parser, because the rest is kept.
        """
        mark = b"</" if b"</" in data else b"\r\n"
        pieces = data.split(mark)
        number = rng.randrange(len(pieces))
        head, sign, _ = pieces[number].rpartition(b">" if mark == b"</" else b" ")
        pieces[number] = head + sign + b"".join(rng.choices(self._tokens, k=rng.randrange(4)))
        return mark.join(pieces)

    def _number(self, data: bytes, rng: Random) -> bytes:
        found = list(_DIGITS.finditer(data))
        if not found:
            return data + rng.choice(NUMBERS)
        match = rng.choice(found)
        return data[: match.start()] + rng.choice(NUMBERS) + data[match.end() :]

    def _delete(self, data: bytes, rng: Random) -> bytes:
        at, end = self._span(data, rng)
        return data[:at] + data[end:]

    def _byte(self, data: bytes, rng: Random) -> bytes:
        at, _ = self._span(data, rng)
        return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]

    def _bit(self, data: bytes, rng: Random) -> bytes:
        if not data:
            return data
        at = rng.randrange(len(data))
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]

    def _twice(self, data: bytes, rng: Random) -> bytes:
        at, end = self._span(data, rng)
        return data[:end] + data[at:end] + data[end:]

    def _swap(self, data: bytes, rng: Random) -> bytes:
        (at, end), (to, _) = self._span(data, rng), self._span(data, rng)
        rest = data[:at] + data[end:]
        return rest[:to] + data[at:end] + rest[to:]

    def _splice(self, data: bytes, rng: Random) -> bytes:
        other = rng.choice(self._seeds)
        return data[: rng.randrange(len(data) + 1)] + other[rng.randrange(len(other) + 1) :]

    def _cut(self, data: bytes, rng: Random) -> bytes:
        at = rng.randrange(len(data) + 1)
        return data[:at] if rng.random() < 0.7 else data[at:]

    def _many(self, data: bytes, rng: Random) -> bytes:
        """Insert a piece of the input, or a token, many times; rarely thousands of times.

        Limits exist for such inputs. They are rare because they are slow.
        """
        at, end = self._span(data, rng)
        piece = rng.choice((data[at:end], rng.choice(self._tokens)))
        times = rng.choice((3, 10, 40, 120)) if rng.random() < 0.9 else rng.randrange(REPEATS_MAX)
        return data[:at] + piece * times + data[at:]

    def _case(self, data: bytes, rng: Random) -> bytes:
        at, end = self._span(data, rng)
        return data[:at] + data[at:end].swapcase() + data[end:]


def with_true_lengths(data: bytes) -> bytes:
    """Return ``data`` with correct Content-Length fields.

    The fields of each MIME part and of an HTTP head before the parts are corrected.
    """
    found = _BOUNDARY.search(data)
    if found is not None:
        first, *parts = data.split(b"--" + found[1])
        data = first + b"".join(b"--" + found[1] + _with_true_length(part) for part in parts)
    return _with_true_length(data)


def _with_true_length(part: bytes) -> bytes:
    head, blank, content = part.partition(b"\r\n\r\n")
    return (
        _LENGTH.sub(lambda match: match[1] + b"%d" % len(content), head, count=1) + blank + content
    )
