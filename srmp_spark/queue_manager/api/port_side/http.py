"""Requests and answers of the API: ASGI on one side, values and errors on the other.

The errors are :class:`ApiError`.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, MutableMapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

from srmp_spark.errors import ApiError
from srmp_spark.queue_manager.api.port_side.connection import Connection
from srmp_spark.queue_manager.trust.tokens import Token, Verb

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]

REQUEST_BODY_MAX = 64 * 1_048_576
"""Longest JSON body with messages, in bytes: a list of messages for ``send``, in base64.

More raises a 413.
"""
CALL_BODY_MAX = 65_536
"""Longest JSON body of any other call, in bytes: a holder, options, a subscription.

More raises a 413.
"""
MARKS_BODY_MAX = 2 * 1_048_576 + CALL_BODY_MAX
"""Longest body of a ``received`` call, in bytes. More raises a 413.

SEQUENCES_MAX numbers of 19 digits and all other fields fit into this limit.
"""
SERIALS_BODY_MAX = 4 * CALL_BODY_MAX
"""Longest body of an ``outgoing/states`` call, in bytes. More raises a 413.

SERIALS_MAX numbers of 19 digits and a destination fit into this limit.
"""
NESTED_MAX = 1_000
"""Most lists and objects in the body of a call other than messages. More raise a 413.

A list of numbers is parsed in a few milliseconds. The same number of objects takes twenty times as
long.
"""
JSON_ITEMS_MAX = 250_000
"""Most values in a JSON body.

More raise a 413, because each value takes up to a hundred bytes of memory.
"""
BODIES_MAX = 192 * 1_048_576
"""Most bytes of the JSON bodies of all calls together.

A call that needs more is answered 503 and may be repeated.
"""
QUERY_FIELDS_MAX = 50
"""Most fields of a query string. More raise a 400; no call has more than 25."""
QUERY_MAX = 8_192
"""Longest query string, in bytes.

A longer string raises a 400, because each ``%xx`` becomes an object during decoding.
"""
SHOWN_MAX = 100
"""Most characters of a wrong value that an error repeats. The rest of the value is cut off."""

_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
r"""Matches escapes by which JSON may contain half of a surrogate pair.

Bodies without ``\u`` are not searched.
"""


def usage(message: str, hint: str = "") -> ApiError:
    """Return an :class:`ApiError` with status 400: the call asks for something invalid."""
    return ApiError(400, "usage", message, hint, "INTERFACE.md section 3")


@dataclass(slots=True)
class Bodies:
    """Counts the bytes that the bodies of all calls in progress take, within one budget."""

    bytes: int = 0

    def take(self, size: int) -> None:
        """Count ``size`` more bytes. Raises a 503 beyond BODIES_MAX, and counts nothing then."""
        if self.bytes + size > BODIES_MAX:
            message = f"the bodies of all calls together are longer than {BODIES_MAX} bytes"
            raise ApiError(503, "too-many-bytes", message, "try again, with fewer messages at once")
        self.bytes += size


@dataclass(slots=True)
class Request:
    """One call of the API whose path has been matched with a route.

    Query fields are those after ``?`` in the URL. Each reader of a field raises a 400 for an
    invalid value.
    """

    method: str
    path: str
    parameters: dict[str, str]
    """Values that the route's ``{…}`` matched, percent-decoded."""
    headers: dict[str, str]
    query: dict[str, list[str]]
    receive: Receive = field(repr=False)
    connection: Connection | None = field(default=None, repr=False)
    """The caller's connection, if another process may write into it (see :mod:`.connection`)."""
    token: Token | None = None
    """The caller's API token, or ``None`` if no token is required."""
    bodies: Bodies = field(default_factory=Bodies, repr=False)
    """The common budget of the bodies of all calls, in which the body of this call is counted."""
    bytes_counted: int = 0
    """Bytes that this call has counted in :attr:`bodies`."""

    def sees(self, queue: str) -> bool:
        """Return whether the caller's API token covers ``queue``, for any verb.

        The result is ``True`` if no token is required.
        """
        return self.token is None or self.token.is_for(queue)

    @property
    def caller(self) -> str | None:
        """Return the name of the caller's API token, by which shares are counted.

        Return ``None`` if no token is required.
        """
        return None if self.token is None else self.token.name

    @property
    def sees_all(self) -> bool:
        """Return whether the caller's API token covers every queue, and outgoing messages.

        The result is ``True`` if no token is required.
        """
        return self.token is None or self.token.is_for_all

    def text(self, name: str, default: str | None = None) -> str | None:
        """Return the query field ``name``, or ``default``.

        Raises a 400 if the field is given twice.
        """
        values = self.query.get(name)
        if not values:
            return default
        if len(values) > 1:
            raise usage(f"{name} is given twice")
        return values[0]

    def integer(self, name: str, *, low: int = 0) -> int | None:
        """Return the query field ``name`` as a whole number, or ``None`` if it is absent.

        Raises a 400 for anything but a whole number from ``low`` to 2^63 - 1, both included.
        """
        text = self.text(name)
        return None if text is None else _integer(name, text, low)

    def required_integer(self, name: str) -> int:
        """Return the query field ``name`` as a whole number.

        Raises a 400 if the field is absent or anything else.
        """
        value = self.integer(name)
        if value is None:
            raise usage(f"{name} is missing")
        return value

    def seconds(self, name: str, *, high: float) -> float:
        """Return the query field ``name`` in seconds, at most ``high``; 0 if it is absent.

        A larger value becomes ``high``. Raises a 400 for a negative number, or a text that is no
        number.
        """
        text = self.text(name, "0")
        try:
            value = float(text or "0")
        except ValueError:
            raise usage(f"{name} is a number of seconds, not {text!r}") from None
        # This comparison also refuses NaN, which "< 0" would not.
        if not value >= 0:
            raise usage(f"{name} is a number of seconds, not {text!r}")
        return min(value, high)

    def allows(self, verb: Verb, queue: str) -> bool:
        """Return whether the caller may do ``verb`` (such as ``read``) with ``queue``.

        The result is ``True`` if no token is required.
        """
        return self.token is None or self.token.allows(verb, queue)

    def done(self) -> None:
        """Subtract the bytes of this call's body from the budget :attr:`bodies`.

        Call this when the handler of the call has ended.
        """
        self.bodies.bytes -= self.bytes_counted
        self.bytes_counted = 0

    async def body(self, limit: int = CALL_BODY_MAX) -> bytes:
        """Read the whole body and return it. Raises the errors of :meth:`pieces`."""
        return b"".join(await self.pieces(limit))

    async def pieces(self, limit: int) -> list[bytes]:
        """Read the whole body, and return its pieces as they were received.

        The bytes are counted in :attr:`bodies` until :meth:`done`. Raises a 413 beyond ``limit``
        bytes. Nothing is read if the Content-Length of the call already exceeds ``limit``. Raises a
        503 if the bodies of all calls together are too long. Raises :class:`ConnectionResetError`
        if the caller disconnects.
        """
        said = self.headers.get("content-length", "")
        if said.isascii() and said.isdigit() and int(said[:19]) > limit:
            raise _too_large(limit)
        parts: list[bytes] = []
        size = 0
        while True:
            event = await self.receive()
            if event["type"] == "http.disconnect":
                raise ConnectionResetError
            piece = event.get("body", b"")
            size += len(piece)
            if size > limit:
                raise _too_large(limit)
            self.bodies.take(len(piece))
            self.bytes_counted += len(piece)
            parts.append(piece)
            if not event.get("more_body", False):
                return parts

    async def json_object(self, limit: int = CALL_BODY_MAX) -> dict[str, object]:
        """Read the body as a JSON object, ``limit`` bytes at most, and return it as a dictionary.

        An empty body is an empty object. Raises a 400 for anything but an object, a 413 for more
        than NESTED_MAX lists and objects, and the errors of :meth:`pieces` and :func:`parse_json`.
        """
        text = await self.body(limit)
        if not text:
            return {}
        if text.count(b"[") + text.count(b"{") > NESTED_MAX:
            message = f"the body holds more than {NESTED_MAX} lists and objects (NESTED_MAX)"
            raise ApiError(
                413,
                "too-large",
                message,
                "this call takes one object, with a list of plain values at most",
            )
        value = parse_json(text)
        if len(text) > CALL_BODY_MAX:
            # Let the loop turn, so that parsing and the work of the call are in different turns.
            await asyncio.sleep(0)
        if not isinstance(value, dict):
            raise usage("the body is not a JSON object")
        return value


def _too_large(limit: int) -> ApiError:
    return ApiError(
        413, "too-large", f"the body is longer than {limit} bytes", "send fewer messages at once"
    )


def parse_json(body: bytes) -> Any:  # noqa: ANN401  # the caller may send any JSON
    """Parse a JSON body into a value that can be written again, and return the value.

    The body is UTF-8 without half characters, and its numbers are finite; anything else raises a
    400. More than JSON_ITEMS_MAX values raise a 413. Long lists are read by :mod:`.json_items`, by
    the same rules.
    """
    if values_in(body) > JSON_ITEMS_MAX:
        raise too_many_values()
    try:
        text = body.decode("utf-8-sig")
        value = json.loads(text, parse_constant=no_number)
    except UnicodeError:
        raise not_json_in_utf8() from None
    except (ValueError, RecursionError):
        raise not_json() from None
    check_no_half_characters(text, value, 0, len(text))
    return value


def values_in(text: bytes) -> int:
    """Return an upper bound for the number of values in JSON text, without the outermost value.

    The text is not parsed.
    """
    return text.count(b",") + text.count(b"[") + text.count(b"{")


def check_no_half_characters(text: str, value: object, begin: int, end: int) -> None:
    """Raise a 400 if ``value`` contains half of a surrogate pair.

    ``value`` was parsed from ``text`` between the offsets ``begin`` and ``end``, in characters.
    """
    # This search is ten times as fast as the pattern in a text of millions of characters.
    first = text.find("\\u", begin, end)
    if first >= 0 and _SURROGATE.search(text, first, end):
        try:
            json.dumps(value, ensure_ascii=False).encode()
        except UnicodeError:
            raise not_json_in_utf8() from None


def too_many_values() -> ApiError:
    """Return the 413 for a body of more than JSON_ITEMS_MAX values."""
    message = f"the body holds more than {JSON_ITEMS_MAX} values (JSON_ITEMS_MAX)"
    return ApiError(413, "too-large", message, "send fewer messages at once")


def not_json() -> ApiError:
    """Return the 400 for a body that is not JSON."""
    return usage("the body is not JSON")


def not_json_in_utf8() -> ApiError:
    """Return the 400 for a body that is not UTF-8, or contains half of a surrogate pair."""
    return usage("the body is not JSON in UTF-8, or a text in it is half of a surrogate pair")


def no_number(text: str) -> Any:  # noqa: ANN401  # json expects this signature
    """Raise :class:`ValueError`, because ``text`` is NaN or infinity, which JSON does not have.

    The parser of Python calls this function for such a text.
    """
    raise ValueError(f"{text} is no JSON")


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= SHOWN_MAX else f"{text[:SHOWN_MAX]}…"


def _integer(name: str, value: object, low: int, high: int = 2**63 - 1) -> int:
    if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= 19:
        value = int(value)
    if type(value) is not int or not low <= value <= high:
        top = "on" if high == 2**63 - 1 else f"to {high}"
        raise usage(f"{name} is a whole number from {low} {top}, not {_shown(value)}")
    return value


def field_integer(
    body: Mapping[str, object],
    name: str,
    *,
    default: int | None = None,
    low: int = 0,
    high: int = 2**63 - 1,
) -> int | None:
    """Return the whole number ``name`` of a JSON body, or ``default`` if it is absent.

    Raises a 400 for anything but a whole number from ``low`` to ``high``, both included.
    """
    value = body.get(name)
    return default if value is None else _integer(name, value, low, high)


def field_text(body: Mapping[str, object], name: str) -> str | None:
    """Return the text ``name`` of a JSON body, or ``None`` if it is absent.

    Raises a 400 if the value is no text.
    """
    value = body.get(name)
    if value is not None and not isinstance(value, str):
        raise usage(f"{name} is a text, not {_shown(value)}")
    return value


@dataclass(slots=True)
class Response:
    """One answer: a body, or a stream of pieces, or a body that :attr:`direct` writes."""

    status: int = 200
    body: bytes = b""
    content_type: str = "application/json"
    headers: tuple[tuple[str, str], ...] = ()
    stream: AsyncGenerator[bytes, None] | None = None
    direct: Callable[[], Awaitable[None]] | None = None
    """Writes the body into the caller's connection without the ASGI server, or ``None``.

    The body is written in chunks of HTTP without the last one.
    """

    @classmethod
    def json(cls, value: Any, status: int = 200) -> Response:  # noqa: ANN401  # any value that json can write
        """Build an answer with ``value`` as JSON in ASCII, which can hold any text.

        ``status`` is the HTTP status.
        """
        return cls(status, json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n")

    @classmethod
    def error(cls, error: ApiError) -> Response:
        """Build the JSON answer ``{"error":{code,message,hint,section}}``."""
        body = {
            "error": {
                "code": error.code,
                "message": error.message,
                "hint": error.hint,
                "section": error.section,
            }
        }
        return cls.json(body, error.status)

    async def send(self, send: Send, *, has_body: bool = True) -> None:
        """Write the answer to the ASGI server.

        With ``has_body=False`` only the head is written, which is the whole answer to HEAD. Raises
        the errors of :attr:`stream` and :attr:`direct`, when a part of the answer may already be
        written.
        """
        headers = [
            (b"content-type", self.content_type.encode("ascii")),
            (b"cache-control", b"no-store"),
        ]
        headers += [
            (name.encode("ascii"), value.encode("latin-1", "replace"))
            for name, value in self.headers
        ]
        if self.stream is None and self.direct is None and (has_body or self.body):
            # The length of a stream of rows is not known in advance.
            headers.append((b"content-length", str(len(self.body)).encode("ascii")))
        await send({"type": "http.response.start", "status": self.status, "headers": headers})
        if not has_body:
            await send({"type": "http.response.body", "body": b""})
        elif self.direct is not None:
            await self.direct()
            await send({"type": "http.response.body", "body": b""})
        elif self.stream is not None:
            async for piece in self.stream:
                await send({"type": "http.response.body", "body": piece, "more_body": True})
            await send({"type": "http.response.body", "body": b""})
        else:
            await send({"type": "http.response.body", "body": self.body})


def parse_query(raw: bytes) -> dict[str, list[str]]:
    """Parse a query string (``raw``, without ``?``) into lists of decoded values by name.

    Raises a 400 for a malformed string, more than QUERY_MAX bytes or more than QUERY_FIELDS_MAX
    fields.
    """
    if len(raw) > QUERY_MAX:
        raise usage(f"the query string has {len(raw)} bytes, more than {QUERY_MAX}")
    try:
        return parse_qs(
            raw.decode("ascii"), keep_blank_values=True, max_num_fields=QUERY_FIELDS_MAX
        )
    except ValueError:
        # UnicodeDecodeError is a ValueError too.
        raise usage("the query string is malformed") from None
