"""Bytes that no honest sender writes, each with the answers that it may get (docs/INTERFACE.md, GUARANTEES.md promise 2).

``CLOSE`` stands for a connection that ends without an answer. A ``200`` is allowed only where the message is a good one.
Every case is built from one good message, so that what is wrong with it is the one thing its name says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass

from srmp_spark.testing.foreign.messages import ForeignMessage, Post, date, envelope, post
from tests.kit.foreign.signature import signed_post

CLOSE = 0
SOURCE = "0a0b0c0d-1111-2222-3333-444455556666"
"""The GUID of the hostile sender: rows with it are accounted for one by one."""

_numbers = itertools.count(1)


def good(**values: object) -> ForeignMessage:
    """A message that would be accepted."""
    given: dict[str, object] = {
        "to": "http://127.0.0.1/msmq/private$/hostile",
        "lineage": SOURCE,
        "uniquifier": next(_numbers),
        "sent_at": 1_790_000_000,
        "body": b"hostile",
    }
    return ForeignMessage(**{**given, **values})


@dataclass(frozen=True)
class Case:
    """Bytes for one connection, and what may come back first."""

    name: str
    raw: bytes
    allowed: frozenset[int]
    must_close: bool = False
    """The connection may not be used again: what follows could be smuggled."""

    def __str__(self) -> str:
        return self.name


def _case(name: str, raw: bytes, *allowed: int, must_close: bool = False) -> Case:
    return Case(name, raw, frozenset(allowed), must_close)


def _head(
    p: Post, *, line: str | None = None, drop: str = "", add: str = "", length: str | None = None
) -> bytes:
    """The head of a good request with one thing changed."""
    lines = p.raw[: -len(p.content) - 4].decode("latin-1").split("\r\n")
    lines = [each for each in lines if not drop or not each.lower().startswith(drop.lower() + ":")]
    if line is not None:
        lines[0] = line
    if length is not None:
        lines = [
            f"Content-Length: {length}" if each.startswith("Content-Length:") else each
            for each in lines
        ]
    if add:
        lines.append(add)
    return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")


def _smuggled() -> bytes:
    """A whole good request that must never be taken for one when it hides behind another."""
    return post(good(body=b"smuggled")).raw


def framing_cases() -> list[Case]:
    """Request smuggling: two readings of where a request ends. One answer 400, then the connection is over."""
    p = post(good())
    chunked = b"%x\r\n%s\r\n0\r\n\r\n" % (len(p.content), p.content)
    both = _head(p, add="Transfer-Encoding: chunked")
    te = _head(p, drop="Content-Length", add="Transfer-Encoding: chunked")
    other = _smuggled()
    no = (400, CLOSE)

    def encoding(value: bytes) -> bytes:
        return te.replace(b"chunked", value) + chunked

    return [
        _case("Content-Length and Transfer-Encoding", both + chunked + other, *no, must_close=True),
        _case(
            "two different Content-Lengths",
            _head(p, add="Content-Length: 5") + p.content + other,
            *no,
            must_close=True,
        ),
        _case(
            "a list of Content-Lengths",
            _head(p, length=f"{len(p.content)}, 5") + p.content + other,
            *no,
            must_close=True,
        ),
        _case(
            "Content-Length +N",
            _head(p, length=f"+{len(p.content)}") + p.content + other,
            *no,
            must_close=True,
        ),
        _case("Content-Length -1", _head(p, length="-1") + p.content + other, *no, must_close=True),
        _case(
            "Content-Length in hex",
            _head(p, length=hex(len(p.content))) + p.content + other,
            *no,
            must_close=True,
        ),
        _case(
            "Content-Length of 30 digits",
            _head(p, length="9" * 30) + p.content,
            400,
            413,
            CLOSE,
            must_close=True,
        ),
        _case(
            "empty Content-Length",
            _head(p, length="") + p.content + other,
            400,
            411,
            CLOSE,
            must_close=True,
        ),
        _case(
            "space before the colon",
            _head(p, length="0").replace(b"Length:", b"Length :") + other,
            *no,
            must_close=True,
        ),
        _case(
            "obs-fold in another field",
            _head(p, add="X-A: 1\r\n 2") + p.content + other,
            *no,
            must_close=True,
        ),
        _case(
            "obs-fold of Content-Length",
            _head(p, length="\r\n 5") + p.content + other,
            *no,
            must_close=True,
        ),
        _case(
            "bare LF", _head(p).replace(b"\r\n", b"\n") + p.content + other, *no, must_close=True
        ),
        _case(
            "one bare LF",
            _head(p).replace(b"\r\nHost", b"\nHost") + p.content + other,
            *no,
            must_close=True,
        ),
        _case(
            "one bare CR",
            _head(p).replace(b"\r\nHost", b"\rHost") + p.content + other,
            *no,
            must_close=True,
        ),
        _case(
            "Transfer-Encoding: xchunked",
            encoding(b"xchunked") + other,
            400,
            501,
            CLOSE,
            must_close=True,
        ),
        _case(
            "chunked, then identity",
            encoding(b"chunked, identity"),
            400,
            501,
            CLOSE,
            must_close=True,
        ),
        _case("chunked twice", encoding(b"chunked, chunked"), 400, 501, CLOSE, must_close=True),
        _case(
            "gzip, then chunked", encoding(b"gzip, chunked"), 400, 415, 501, CLOSE, must_close=True
        ),
        _case("chunk size 0x5", te + b"0x5\r\nabcde\r\n0\r\n\r\n" + other, *no, must_close=True),
        _case("chunk size -1", te + b"-1\r\nabcde\r\n0\r\n\r\n" + other, *no, must_close=True),
        _case(
            "chunk size of 20 digits",
            te + b"F" * 20 + b"\r\nabcde",
            400,
            413,
            CLOSE,
            must_close=True,
        ),
        _case(
            "chunk longer than its size",
            te + b"2\r\nabcde\r\n0\r\n\r\n" + other,
            *no,
            must_close=True,
        ),
        _case(
            "endless chunk extension",
            te + b"5;" + b"a" * 100_000,
            400,
            413,
            431,
            CLOSE,
            must_close=True,
        ),
        _case(
            "endless trailers",
            te + b"0\r\n" + b"A: b\r\n" * 50_000,
            400,
            413,
            431,
            CLOSE,
            must_close=True,
        ),
        _case("two Hosts", _head(p, add="Host: other") + p.content, *no),
        _case("no Host", _head(p, drop="Host") + p.content, *no),
        _case("NUL in a field", _head(p, add="X-A: a\0b") + p.content, *no, must_close=True),
    ]


def head_cases() -> list[Case]:
    """Faults of the HTTP head: HTTP's own status, or a close."""
    p = post(good())
    t = p.target
    return [
        _case("GET", f"GET {t} HTTP/1.1\r\nHost: x\r\n\r\n".encode(), 405),
        _case("PUT", _head(p, line=f"PUT {t} HTTP/1.1") + p.content, 405),
        _case("lower-case method", _head(p, line=f"post {t} HTTP/1.1") + p.content, 501),
        _case("an unknown method", _head(p, line=f"BREW {t} HTTP/1.1") + p.content, 501),
        _case("CONNECT", b"CONNECT example.com:443 HTTP/1.1\r\nHost: example.com\r\n\r\n", 405),
        _case("HTTP/2.0", _head(p, line=f"POST {t} HTTP/2.0") + p.content, 505, 400, CLOSE),
        _case("the preface of HTTP/2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, 405, 505, CLOSE),
        _case("no version", f"POST {t}\r\n\r\n".encode(), 400),
        _case("no version and no more", b"GET /\r\n", 400),
        _case(
            "TLS on the plain port",
            bytes.fromhex("1603010200010001fc0303") + bytes(500),
            400,
            CLOSE,
        ),
        _case("no Content-Length", _head(p, drop="Content-Length"), 411),
        _case("5 MB announced", _head(p, length="5242880") + b"x" * 1000, 413),
        _case(
            "a target of 100 KB",
            _head(p, line=f"POST {t}{'a' * 100_000} HTTP/1.1") + p.content,
            414,
        ),
        _case("a head of 200 KB", _head(p, add="X-A: " + "a" * 200_000) + p.content, 431, CLOSE),
        _case(
            "2,000 fields",
            _head(p, add="\r\n".join(f"X-{n}: 1" for n in range(2000))) + p.content,
            431,
            CLOSE,
        ),
        _case(
            "JSON",
            _head(p, drop="Content-Type", add="Content-Type: application/json") + p.content,
            415,
        ),
        _case("no Content-Type", _head(p, drop="Content-Type") + p.content, 400, 415),
        _case(
            "Expect: the impossible",
            _head(p, add="Expect: the-impossible") + p.content,
            400,
            417,
            CLOSE,
        ),
        *(
            _case(
                f"target {target}",
                _head(p, line=f"POST {target} HTTP/1.1") + p.content,
                400,
                404,
                CLOSE,
            )
            for target in (
                "/msmq/../private$/hostile",
                "/msmq/%2e%2e/private$/hostile",
                "/msmq/private$%5chostile%00",
                "/msmq/..;/private$/hostile",
                "/msmq/private$/hostile::$DATA",
                "/msmq/private$/%2fetc%2fpasswd",
                "/etc/passwd",
                "/",
                "*",
                "http://",
            )
        ),
    ]


def _soap(change: Callable[[str], str | bytes]) -> bytes:
    """A good message whose envelope went through ``change``; every length is right."""
    m = good()
    changed = change(envelope(m))
    xml = changed if isinstance(changed, bytes) else changed.encode("utf-8")
    boundary = b"--b"
    parts = b"\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: %d\r\n\r\n%s" % (
        len(xml),
        xml,
    )
    body = (
        b"\r\nContent-Type: application/octet-stream\r\nContent-Length: "
        b"1\r\nContent-Id: body@x\r\n\r\nx"
    )
    content = boundary + parts + boundary + body + boundary + b"--\r\n"
    return _request(m, 'multipart/related; boundary="b"; type=text/xml', content)


def _request(m: ForeignMessage, content_type: str, content: bytes) -> bytes:
    return (
        f"POST {m.queue_path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: {content_type}\r\n"
        f'Content-Length: {len(content)}\r\nSOAPAction: "MSMQMessage"\r\n\r\n'
    ).encode() + content


def _mime(change: Callable[[bytes], bytes], content_type: str | None = None) -> bytes:
    """A good message whose multipart content went through ``change``; the head's length is right."""
    m = good(uniquifier=10_000_000 + next(_numbers))
    p = post(m)
    return _request(m, content_type or p.content_type, change(p.content))


def _swap(old: str, new: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        assert old in text, old
        return text.replace(old, new, 1)

    return change


def envelope_cases() -> list[Case]:
    """Envelopes that can never succeed: 400, and the connection may live."""
    bomb = '<!DOCTYPE x [<!ENTITY a0 "ha">' + "".join(
        f'<!ENTITY a{n} "{f"&a{n - 1};" * 10}">' for n in range(1, 11)
    ) + "]>"  # fmt: skip
    to = "<to>http://127.0.0.1/msmq/private$/hostile</to>"
    foreign = "<to>http://queues.example.com/msmq/private$/hostile</to>"
    unknown = "<to>http://127.0.0.1/msmq/private$/nobody</to>"
    stream = (
        '</properties><services se:mustUnderstand="1"><durable/></services><Stream '
        'se:mustUnderstand="1">'
        f"<streamId>uid:{SOURCE}\\1</streamId><current>%s</current><start><sendReceiptsTo>http://127.0.0.1:9/r</sendReceiptsTo></start></Stream>"
    )
    wrongs: list[tuple[str, Callable[[str], str | bytes]]] = [
        ("external entity", lambda t: '<!DOCTYPE x [<!ENTITY e SYSTEM "file:///etc/motd">]>' + t.replace("MSMQ:", "MSMQ:&e;")),
        ("an entity bomb", lambda t: bomb + t.replace("MSMQ:", "MSMQ:&a10;")),
        ("10,000 nested elements", _swap("<properties", "<x>" * 10_000 + "</x>" * 10_000 + "<properties")),
        ("an action of 1 MB", _swap("MSMQ:", "MSMQ:" + "a" * 1_000_000)),
        ("UTF-16", lambda t: ('<?xml version="1.0" encoding="UTF-16"?>' + t).encode("utf-16")),
        ("UTF-7 declared", lambda t: '<?xml version="1.0" encoding="UTF-7"?>' + t),
        ("invalid UTF-8", lambda t: t.replace("MSMQ:", "MSMQ:\xff\xfe").encode("latin-1")),
        ("NUL", _swap("MSMQ:", "MSMQ:\0")),
        ("a control character by reference", _swap("MSMQ:", "MSMQ:&#1;")),
        ("two <to>", _swap(to, to + to)),
        ("two <path>", lambda t: t.replace("</path>", "</path>" + t[t.index("<path") : t.index("</path>") + 7], 1)),
        ("two <Msmq>", lambda t: t.replace("</Msmq>", "</Msmq>" + t[t.index("<Msmq") : t.index("</Msmq>") + 7], 1)),
        ("<path> of another namespace", _swap("http://schemas.xmlsoap.org/rp/", "http://example.com/rp/")),
        ("<path> in the SOAP body", lambda t: t.replace(t[t.index("<path") : t.index("</path>") + 7], "").replace(
            "<se:Body>", "<se:Body>" + t[t.index("<path") : t.index("</path>") + 7])),
        ("an unknown header, mustUnderstand", _swap("<properties", '<x xmlns="urn:x" se:mustUnderstand="1"/><properties')),
        ("no envelope at all", lambda _: ""),
        ("not XML", lambda _: "{}"),
        ("the envelope cut short", lambda t: t[: len(t) // 2]),
        ("no <to>", _swap(to, "")),
        ("an empty <to>", _swap(to, "<to></to>")),
        ("another host", _swap(to, foreign)),
        ("an unknown queue", _swap(to, unknown)),
        ("user info in <to>", _swap("http://127.0.0.1/", "http://127.0.0.1@example.com/")),
        ("an id without a number", _swap("<id>uuid:", "<id>uuid:x")),
        ("an id of 2^64", lambda t: t.replace(t[t.index("<id>uuid:") : t.index("@")], "<id>uuid:18446744073709551616")),
        ("priority 8", _swap("<Priority>3<", "<Priority>8<")),
        ("31 February", _swap(f"<sentAt>{date(1_790_000_000)}", "<sentAt>20260231T000000")),
        ("a correlation that is no base64", _swap("AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "!!!!")),
        ("a correlation of 3 bytes", _swap("AAAAAAAAAAAAAAAAAAAAAAAAAAA=", "AAAA")),
        *((f"<current> {n!r}", _swap("</properties>", stream % n)) for n in ("0", "-1", str(2**64), "1e3", "x", "")),
        ("a stream message for a queue without transactions", _swap("</properties>", stream % "1")),
        ("a regular message for a transactional queue", _swap("private$/hostile</to>", "private$/hostile_tx</to>")),
        ("100,000 names", _swap("<TTrq>", "<DestinationMqf>" + "http://a/b\n" * 5_000 + "</DestinationMqf><TTrq>")),
    ]  # fmt: skip
    return [_case(name, _soap(change), 400) for name, change in wrongs] + [
        _case("a body above 4 MiB", _huge(), 413)
    ]


def _huge() -> bytes:
    return post(good(body=b"x" * 4_194_305)).raw


def mime_cases() -> list[Case]:
    """Multipart content whose lengths or delimiters lie."""

    def longer(content: bytes) -> bytes:
        return content.replace(b"Content-Length: 7\r\n", b"Content-Length: 700\r\n")

    def shorter(content: bytes) -> bytes:
        return content.replace(b"Content-Length: 7\r\n", b"Content-Length: 5\r\n")

    def body_twice(content: bytes) -> bytes:
        start = content.rindex(b"--MSMQ", 0, content.rindex(b"--MSMQ"))
        part = content[start : content.rindex(b"--MSMQ")]
        return content[:start] + part + part + content[content.rindex(b"--MSMQ") :]

    def many_parts(content: bytes) -> bytes:
        start = content.rindex(b"--MSMQ", 0, content.rindex(b"--MSMQ"))
        part = content[start : content.rindex(b"--MSMQ")].replace(b"body@", b"other@")
        return content[:start] + part * 10_000 + content[content.rindex(b"--MSMQ") :]

    def length(value: bytes) -> bytes:
        return _mime(
            lambda content: content.replace(
                b"Content-Length: 7\r\n", b"Content-Length: " + value + b"\r\n"
            )
        )

    def boundary(value: str) -> bytes:
        return _mime(lambda content: content, f"multipart/related;{value} type=text/xml")

    lengths = (b"+7", b"-7", b"0x7", b"7" * 20, b"", b"7 7")
    return [
        _case("a part longer than the rest", _mime(longer), 400),
        _case("a part shorter than it is", _mime(shorter), 400),
        *(_case(f"part length {value!r}", length(value), 400) for value in lengths),
        _case("two bodies", _mime(body_twice), 400),
        _case("10,000 parts", _mime(many_parts), 400),
        _case("no last delimiter", _mime(lambda c: c[: c.rindex(b"--MSMQ")]), 400),
        _case("another boundary", boundary(' boundary="other";'), 400),
        _case("an empty boundary", boundary(' boundary="";'), 400, 415),
        _case("no boundary", boundary(""), 400, 415),
        _case("a boundary of 71 characters", boundary(f' boundary="{"b" * 71}";'), 400, 415),
        _case(
            "content after the last delimiter",
            _mime(lambda c: c + b"GET / HTTP/1.1\r\n\r\n"),
            400,
            200,
        ),
        _case("an empty content", _mime(lambda _: b""), 400),
    ]


def accepted_cases() -> list[Case]:
    """Strange, but right: these are messages, and they must be rows."""
    return [
        _case(
            "a body that holds the delimiter",
            post(good(body=b"\r\n--MSMQ - SOAP boundary, 1--\r\n" * 3)).raw,
            200,
        ),
        _case("an empty body", post(good(body=b"")).raw, 200),
        _case("a signature by nobody", _signed(str), 200),
        _case(
            "a signature with another digest",
            _signed(lambda text: text.replace("<DigestValue>", "<DigestValue>AAAA")),
            200,
        ),
        _case("expired long ago", post(good(expires_at=1_000_000_000)).raw, 200),
        _case("an unknown class", post(good(message_class=0x7777)).raw, 200),
        _case("a huge body type", post(good(body_type=4_294_967_295)).raw, 200),
        _case(
            "receipts to the metadata service",
            post(good(delivery_receipt_to="http://169.254.169.254/latest")).raw,
            200,
        ),
        _case(
            "receipts with user info",
            post(good(delivery_receipt_to="http://127.0.0.1:9@example.com/q")).raw,
            200,
        ),
        _case("a label with markup", post(good(label="<script>&amp;")).raw, 200),
        _case("a body of 4 MiB", post(good(body=b"x" * 4_194_304)).raw, 200),
    ]


def _signed(change: Callable[[str], str]) -> bytes:
    """A signed message, its ``<Signature>`` changed."""
    return signed_post(good(extension=b"x"), lambda _: b"a" * 64, after=change).raw


def signature_cases() -> list[Case]:
    """A signature that nobody can check, or that is wrong, is no fault of the message's structure."""

    def again(text: str) -> str:
        reference = text[text.index("<Reference") : text.index("</Reference>") + 12]
        return text.replace(reference, reference * 2)

    wrongs: list[tuple[str, Callable[[str], str]]] = [
        ("three references", again),
        ("a reference to nothing", _swap("cid:body@", "cid:other@")),
        ("a body that is not covered", _swap("cid:body@", "cid:extension@")),
        ("no signature value", _swap("SignatureValue", "Value")),
        (
            "a signature value of 60 KB",
            _swap("<SignatureValue>", "<SignatureValue>" + "A" * 60_000),
        ),
        (
            "a signature value of 1 MB",
            _swap("<SignatureValue>", "<SignatureValue>" + "A" * 1_000_000),
        ),
        ("digests of another kind", _swap("#sha1", "#sha512")),
    ]
    return [_case(name, _signed(change), 400) for name, change in wrongs]


def all_cases() -> list[Case]:
    """Every case, in the order of the layers they attack."""
    return [
        *framing_cases(),
        *head_cases(),
        *mime_cases(),
        *envelope_cases(),
        *signature_cases(),
        *accepted_cases(),
    ]
