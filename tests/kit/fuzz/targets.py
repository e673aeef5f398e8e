"""Fuzz targets: every parser of bytes from unauthenticated clients, with its rules.

Each target states which errors its parser may raise and what must hold of an accepted value.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any

from srmp_spark import names
from srmp_spark.errors import ApiError, LocalProtocolError, RemoteProtocolError
from srmp_spark.message import Message
from srmp_spark.queue_manager.api.port_side import http as api_http
from srmp_spark.queue_manager.posting import http_answer, http_client, http_exchange, url_policy
from srmp_spark.queue_manager.posting.url_policy import split_receipt_url
from srmp_spark.queue_manager.srmp_port import chunked, request_head, srmp_endpoint
from srmp_spark.queue_manager.srmp_port.http_limits import CONTENT_MAX
from srmp_spark.queue_manager.srmp_port.request_head import HeadError, RequestHead, check_unfinished
from srmp_spark.srmp.codec import (
    decoder,
    encoder,
    envelope_reader,
    envelope_values,
    http_head,
    learned_layouts,
    mime,
    values,
    windows_layout,
    xml_tree,
)
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.codec.encoder import encode
from srmp_spark.srmp.codec.envelope_reader import read_fields
from srmp_spark.srmp.codec.envelope_values import message_of
from srmp_spark.srmp.codec.http_head import check_target, content_type_of, soap_action_of
from srmp_spark.srmp.codec.learned_layouts import LearnedLayouts
from srmp_spark.srmp.codec.windows_layout import read_windows_envelope
from srmp_spark.srmp.limits import BODY_MAX, ENVELOPE_MAX
from tests.kit.fuzz import pgm_packets, pgm_sessions, samples, wsrm_messages
from tests.kit.fuzz.judge import Outcome, Target, ViolationError
from tests.kit.fuzz.mutators import HTTP, JSON, MARKUP
from tests.kit.fuzz.pieces import (
    ReceiptPosts,
    SrmpPort,
    check_pieces,
    cut,
    read_answers,
    read_chunked,
)
from tests.kit.plain_reading import read_envelope

STATUSES = frozenset((400, 408, 411, 413, 414, 415, 417, 431, 501, 505, 405))
"""Statuses with which a request may be refused because of its bytes."""
REASON_MAX = 400
"""Most characters of a refusal. It must be one short line that never contains the payload."""


def _files(*modules: ModuleType) -> frozenset[str]:
    return frozenset(str(module.__file__) for module in modules)


def _refused(error: RemoteProtocolError) -> Outcome:
    text = str(error)
    if (
        error.status_hint not in STATUSES
        or not error.section
        or len(text) > REASON_MAX
        or not text.isprintable()
    ):
        raise ViolationError(
            f"a refusal that cannot be told: {error.status_hint} {error.section!r} {text[:200]!r}"
        )
    return Outcome(False, (error.status_hint, error.section, text))


def _demand(holds: bool, what: str) -> None:
    if not holds:
        raise ViolationError(what)


# --- HTTP -----------------------------------------------------------------------------------------

HEAD = (
    b"POST /msmq/private$/orders HTTP/1.1\r\nHost: machine2\r\n"
    b'Content-Type: multipart/related; boundary="MSMQ - SOAP boundary, 292"; type=text/xml\r\n'
    b'Content-Length: 2300\r\nSOAPAction: "MSMQMessage"\r\nProxy-Accept: '
    b"NonInteractiveClient\r\n\r\n"
)
HEADS = (
    HEAD,
    HEAD.replace(b"; type", b";\r\n\ttype"),
    HEAD.replace(b"Content-Length: 2300", b"Transfer-Encoding: chunked"),
    HEAD.replace(
        b"Proxy-Accept: NonInteractiveClient", b"Expect: 100-continue\r\nConnection: close"
    ),
    HEAD.replace(b"HTTP/1.1", b"HTTP/1.0").replace(b"orders", b"orders?SenderStream=x"),
    HEAD.replace(b"/msmq", b"http://machine2:80/msmq").replace(
        b"Proxy-Accept: NonInteractiveClient", b"Srmp-Probe: 1"
    ),
)


def _head_state(head: RequestHead) -> tuple[Any, ...]:
    return (
        head.target,
        head.length,
        head.keep_alive,
        head.version,
        head.expects_continue,
        head.headers[b"content-type"],
    )


def parse_head(data: bytes) -> Outcome:
    """Parse a request head up to its blank line. A missing blank line is appended."""
    end = data.find(b"\r\n\r\n") + 4
    head = data[:end] if end >= 4 else data + b"\r\n\r\n"
    try:
        return Outcome(True, _head_state(RequestHead.parse(head)))
    except HeadError as error:
        return Outcome(False, error.status)


def check_head(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that all readers of a head agree, and that no prefix of a valid head is refused.

    The quick reader for a head as Windows writes it must give the same result as the general one.
    The reader of stored messages must find the same Content-Type.
    """
    quick = RequestHead.of_windows(data)
    if quick is not None:
        _demand(
            outcome == Outcome(True, _head_state(quick[0])),
            f"of_windows {_head_state(quick[0])}, parse {outcome.value}",
        )
    if not outcome.accepted:
        _demand(outcome.value in STATUSES, f"status {outcome.value}")
        return
    head = data[: data.find(b"\r\n\r\n") + 4] if b"\r\n\r\n" in data else data + b"\r\n\r\n"
    _demand(outcome.value[5] == content_type_of(head), "readers find another Content-Type")
    _demand(
        outcome.value[1] is None or 0 <= outcome.value[1] <= CONTENT_MAX,
        "a length out of its limits",
    )
    soap_action_of(head)
    seen = 0
    for piece in cut(head[:-1], rng):
        try:
            check_unfinished(head[: seen + len(piece)], seen)
        except HeadError as error:
            raise ViolationError(
                f"its first {seen + len(piece)} bytes are refused with {error.status}"
            ) from None
        seen += len(piece)


def _connection_seeds() -> list[bytes]:
    small = HEAD.replace(b"Content-Length: 2300", b"Content-Length: 5")
    te = HEAD.replace(b"Content-Length: 2300", b"Transfer-Encoding: chunked")
    body = b"5\r\nhello\r\n0\r\n\r\n"
    return [
        small + b"hello",
        small + b"hello" + small + b"again",
        small.replace(b": 5", b": 6") + b"refuse" + small + b"hello",
        b"\r\n" + small + b"hello\r\n\r\n" + small + b"hello",
        te + body,
        te + b"3;a=b\r\nhel\r\n2\r\nlo\r\n0\r\nX: y\r\n\r\n" + small + b"hello",
        HEADS[3].replace(b"2300", b"5") + b"hello" + small + b"hello",
        HEADS[1].replace(b"2300", b"5") + b"hello",
        HEADS[4].replace(b"2300", b"5") + b"hello",
        small.replace(b"SOAPAction", b"X-A: b\r\nSOAPAction")
        + b"hello"
        + te
        + body
        + small
        + b"hello",
    ]


# --- MIME, envelope, values -----------------------------------------------------------------------

_layouts = LearnedLayouts(read_fields)


def _content_seeds(directory: Path) -> list[bytes]:
    """Return the samples, each as its ``Content-Type`` value, a blank line, and its content."""
    found = []
    for data in (*samples.saved(directory), *samples.posts()):
        head, blank, content = data.partition(b"\r\n\r\n")
        if blank and content:
            found.append(content_type_of(head + b"\r\n") + blank + content)
    return found


def _content_of(data: bytes) -> tuple[bytes, bytes]:
    content_type, _, content = data.partition(b"\r\n\r\n")
    return http_head.unfold(content_type), content


def parse_mime(data: bytes) -> Outcome:
    """Find the parts of a multipart message, which has the form of :func:`_content_seeds`."""
    try:
        return Outcome(True, mime.split(*_content_of(data)))
    except RemoteProtocolError as error:
        return _refused(error)


def check_mime(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that the parts lie in the content, in order and within their limits."""
    if not outcome.accepted:
        return
    parts = outcome.value
    _, content = _content_of(data)
    spans = sorted(span for span in parts[:3] if span is not None)
    _demand(parts.envelope == spans[0], "the envelope is not the first part")
    ends = [0, *(end for _, end in spans)]
    inside = all(
        before <= start <= end <= len(content)
        for before, (start, end) in zip(ends, spans, strict=False)
    )
    _demand(inside, f"parts overlap or lie outside: {parts}")
    _demand(parts.envelope[1] - parts.envelope[0] <= ENVELOPE_MAX, "ENVELOPE_MAX passed")
    _demand(sum(end - start for start, end in spans[1:]) <= BODY_MAX, "BODY_MAX passed")


def parse_envelope(data: bytes) -> Outcome:
    """Parse an envelope with the plain XML reader, to which all faster readers are compared."""
    # ``mime.split`` refuses such an envelope, so the reader never gets one.
    if len(data) > ENVELOPE_MAX:
        return Outcome(False, "ENVELOPE_MAX")
    try:
        return Outcome(True, read_envelope(data))
    except RemoteProtocolError as error:
        return _refused(error)


def check_envelope(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that the faster readers of an envelope agree with the plain one.

    A reader for a Windows layout or for a learned layout gives the same message, or leaves the
    envelope to the plain reader. An accepted message is checked with :func:`check_again`.
    """
    if len(data) > ENVELOPE_MAX:
        return
    fast = read_windows_envelope(b"(" + data + b")", 1, len(data) + 1)
    _demand(
        fast is None or (outcome.accepted and fast == outcome.value),
        f"windows_layout reads {fast}, the reader {outcome.value}",
    )
    with contextlib.suppress(UnicodeDecodeError):
        text = data.decode()
        # The first reading may learn the layout, the second one uses it.
        for _ in range(2):
            try:
                learned = Outcome(True, message_of(_layouts.read(text), b"", None))
            except RemoteProtocolError as error:
                learned = _refused(error)
            _demand(
                learned == outcome, f"learned_layouts: {learned.value}, the reader: {outcome.value}"
            )
    if outcome.accepted:
        check_again(outcome.value)


def check_again(message: Message) -> None:
    """Check that ``decode(encode(message))`` is the same message.

    Fields that Windows always writes may be added. A message that srmp-spark never sends may be
    refused with :class:`LocalProtocolError`.
    """
    try:
        content_type, content = encode(message, boundary="b")
    except LocalProtocolError:
        return
    again = decoder.decode(content_type, content)
    expected = message._replace(durable=message.durable or message.stream is not None)
    if message.has_msmq:
        correlation, algorithm = message.correlation or bytes(20), message.hash_algorithm
        expected = expected._replace(
            correlation=correlation,
            hash_algorithm=again.hash_algorithm if algorithm is None else algorithm,
        )
    _demand(again == expected, f"written and read again: {again}, before: {expected}")


def parse_message(data: bytes) -> Outcome:
    """Decode a stored POST as a reader of messages does.

    The form is that of :func:`_content_seeds`.
    """
    try:
        message, parts = decode_parts(*_content_of(data))
    except RemoteProtocolError as error:
        return _refused(error)
    return Outcome(True, (message, parts))


def check_message(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that decoding depends on the bytes alone, whatever layouts were learned meanwhile."""
    _demand(parse_message(data) == outcome, "decoded again, it is another message")
    if outcome.accepted:
        message = outcome.value[0]
        _demand(len(message.body) + len(message.extension or b"") <= BODY_MAX, "BODY_MAX passed")
        check_again(message)


VALUES: dict[str, Callable[[str], Any]] = {
    "date": values.parse_date,
    "number": lambda text: values.unsigned_long(text, "n"),
    "position": lambda text: values.sequence_number(
        text, "n", minimum=0, maximum=2**32 - 1, section="s"
    ),
    "message id": values.parse_message_id,
    "stream id": values.parse_stream_id,
    "correlation": values.parse_correlation,
    "to": values.parse_destination,
    "via": values.parse_response_queue,
    "guid": names.parse_guid,
    "target": lambda text: check_target(text.encode()),
}
NAMES: dict[str, Callable[[str], Any]] = {
    "queue": names.canonical_queue_name,
    "url": names.split_url,
    "queue url": names.parse_queue_url,
    "receipt url": split_receipt_url,
}
"""Name → parser that may raise :class:`ValueError`.

The caller of such a parser writes the text of the refusal.
"""
VALUE_SEEDS = (
    b"20070608T023719",
    b"20380119T031407",
    b"00010101T000000",
    b"0",
    b"4839986701558349830",
    b"18446744073709551615",
    b"uuid:4494@32221eda-9376-46df-b6ed-783091123831",
    b"uid:2744e4e1-2b48-43e8-b441-42745f280d53\\4839986701558349830",
    b"AAAAAAAAAAAAAAAAAAAAAAAAAAA=",
    b"http://machine2/msmq/private$/simpleq",
    b"DIRECT=http://machine2/msmq/q",
    b"MSMQ:MULTICAST=234.1.1.1:8001",
    b"MSMQ:DIRECT=OS:machine1\\private$\\q",
    b"https://[::1]:8443/msmq/private$\\q?SenderStream=x",
    b"/msmq/private$/orders?SenderStream=x",
    b".\\private$\\orders",
    b"http://192.0.2.7:80/msmq/a%20b",
    b"32221eda-9376-46df-b6ed-783091123831",
)


def _value(parse: Callable[[str], Any], text: str) -> Outcome:
    try:
        return Outcome(True, parse(text))
    except RemoteProtocolError as error:
        return _refused(error)


def parse_values(data: bytes) -> Outcome:
    """Parse one text by every parser of a single text.

    The outcome has name of the parser → value, for the parsers that accept the text.
    """
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return Outcome(False, "not UTF-8")
    found: dict[str, Any] = {}
    for name, parse in VALUES.items():
        outcome = _value(parse, text)
        if outcome.accepted:
            found[name] = outcome.value
    for name, parse in NAMES.items():
        with contextlib.suppress(ValueError):
            found[name] = parse(text)
    # "to" and "via" accept nearly every text, so they do not count.
    return Outcome(len(found) > 2, found)


def check_values(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that values are written as they were read, and that names are canonical."""
    if not isinstance(outcome.value, dict):
        return
    found, text = outcome.value, data.decode()
    if "date" in found:
        _demand(values.format_date(found["date"]) == text, "date")
    if "position" in found:
        _demand(str(found["position"]) == text, "position")
    if "correlation" in found:
        _demand(
            values.format_correlation(found["correlation"]) == text
            or len(found["correlation"]) == 20,
            "correlation",
        )
    if found.get("via") is not None:
        _demand(
            values.parse_response_queue(values.format_response_queue(found["via"])) == found["via"],
            "via",
        )
    for name in ("queue", "target"):
        if name in found:
            _demand(
                names.canonical_queue_name(found[name]) == found[name],
                f"{name} {found[name]!r} is not canonical",
            )
    if "receipt url" in found:
        host = found["receipt url"].host
        _demand(
            host == names.canonical_host(host) and not set(host) & set("@/\\?# \r\n"),
            f"host {host!r}",
        )
        _demand(found["receipt url"] == found["url"], "two readings of a URL")


# --- the API --------------------------------------------------------------------------------------

API_SEEDS = (
    b'after=1&to=20&epoch=abc&max_rows=100\n{"epoch":"e","from":1,"holder":{"pid":1,"host":"h"}}',
    b'wait=2.5\n{"messages":[{"body_base64":"aGVsbG8=","label":"l","priority":3,"delivery":"express"}]}',
    b'partition=0&attempt=1\n{"stages":["a","b"]}',
    b"envelope=1\n",
)


API_MEMORY_TIMES = 40
"""Most bytes of memory for each byte of input.

``[],`` has three bytes as JSON and 64 as a list. More than elsewhere is allowed, because callers
are on this host or have a token, and REQUEST_BODY_MAX limits the input.
"""


def parse_api(data: bytes) -> Outcome:
    """Parse a query string, a newline and a JSON body, with the functions that every route uses.

    The outcome has the numbers, the text and the object that were found, or status and code of the
    refusal.
    """
    query, _, body = data.partition(b"\n")

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    try:
        request = api_http.Request("POST", "/", {}, {}, api_http.parse_query(query), receive)
        for name in ("after", "to", "max_rows", "partition"):
            request.integer(name)
        request.seconds("wait", high=60.0)
        request.text("epoch")
        value = _finished(request.json_object())
        numbers = [api_http.field_integer(value, name) for name in ("from", "to")]
        return Outcome(True, (numbers, api_http.field_text(value, "epoch"), value))
    except ApiError as error:
        _demand(error.status in (400, 413), f"status {error.status}")
        return Outcome(False, (error.status, error.code))


def _finished(waits: Any) -> Any:  # noqa: ANN401  # a coroutine that has nothing to wait for
    try:
        waits.send(None)
    except StopIteration as end:
        return end.value
    raise ViolationError("the body was there, and it waited")


def check_api(data: bytes, outcome: Outcome, rng: Random) -> None:
    """Check that an accepted JSON value can be written in an answer."""
    if outcome.accepted:
        api_http.Response.json(outcome.value[2])


ANSWERS = (
    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n" * 2,
    (
        b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nDate: Thu, 01 Jan 2026 00:00:00 "
        b"GMT\r\nContent-Length: 2\r\n\r\nok"
        b"HTTP/1.1 503 No\r\nRetry-After: 30\r\nContent-Length: 0\r\n\r\n"
    ),
    (
        b"HTTP/1.1 400 Bad Request\r\nSrmp-Reason: unknown-queue; x\r\nContent-Length: "
        b"0\r\nConnection: close\r\n\r\n"
    ),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\nHTTP/1.1 "
        b"204 No Content\r\n\r\n"
    ),
    b"HTTP/1.0 200 OK\r\n\r\nuntil the end",
    (
        b"HTTP/1.1 301 Moved\r\nLocation: http://169.254.169.254/\r\nContent-Length: "
        b"0\r\n\r\nHTTP/1.1 304 Not Modified\r\n\r\n"
    ),
)


def all_targets(directory: Path) -> Iterable[Target]:
    """Yield the targets of all parsers except those of remote read.

    ``directory`` has the saved samples of SRMP (``tests/data/srmp``). Its neighbours ``pgm`` and
    ``wsrm`` have those of the other protocols.
    """
    port, receipts = SrmpPort(), ReceiptPosts()
    contents = _content_seeds(directory)
    chunks = [
        data.partition(b"\r\n\r\n")[2] for data in _connection_seeds() if b"chunked" in data
    ] + [b"1\r\na\r\n" * 9 + b"0\r\n\r\nnext"]

    def in_pieces(read: Callable[[Any], Outcome]) -> Callable[[bytes, Outcome, Random], None]:
        return lambda data, outcome, rng: check_pieces(read, data, outcome, rng)

    reading = (
        (
            "connection",
            _connection_seeds(),
            port.read,
            _files(srmp_endpoint, request_head, chunked),
        ),
        ("chunked", chunks, read_chunked, _files(chunked)),
        ("answer", ANSWERS, read_answers, _files(http_exchange, http_answer)),
        ("receipt-answer", ANSWERS, receipts.read, _files(http_client, http_exchange, http_answer)),
    )
    for name, seeds, read, files in reading:
        parse: Callable[[bytes], Outcome] = lambda data, read=read: read([data] if data else [])  # type: ignore[misc]  # noqa: E731
        yield Target(name, seeds, HTTP, parse, in_pieces(read), files)
    yield Target("head", HEADS, HTTP, parse_head, check_head, _files(request_head, http_head))
    yield Target("mime", contents, HTTP, parse_mime, check_mime, _files(mime))
    codec = _files(
        windows_layout, learned_layouts, envelope_reader, envelope_values, xml_tree, values
    )
    yield Target(
        "envelope", samples.envelopes(directory), MARKUP, parse_envelope, check_envelope, codec
    )
    message = codec | _files(decoder, mime, encoder)
    yield Target("message", contents, (*MARKUP, *HTTP), parse_message, check_message, message)
    words = _files(values, names, http_head, url_policy)
    yield Target("values", VALUE_SEEDS, MARKUP, parse_values, check_values, words)
    yield Target(
        "api",
        API_SEEDS,
        JSON,
        parse_api,
        check_api,
        _files(api_http),
        memory_times=API_MEMORY_TIMES,
    )
    yield pgm_packets.target(directory.with_name("pgm"))
    yield pgm_sessions.target(directory.with_name("pgm"))
    yield wsrm_messages.target(directory.with_name("wsrm"))
