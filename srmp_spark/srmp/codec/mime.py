"""Finds the envelope, the body and the extension in an HTTP body.

See [MC-MQSRM] 2.2.2 and multipart/related, RFC 2387. Theory of operation. Windows writes **no CRLF
before a delimiter and one after the last**, as the lengths of all examples of chapter 4 prove (see
tests/codec/test_length_proof.py). RFC 2046 requires one before each delimiter. A reader that
searches for delimiters therefore finds one part too few, or cuts a body that contains the boundary.
This reader never searches. The reader reads the head of each part, advances by the part's own
``Content-Length``, and then requires the delimiter at exactly that place, with or without CRLF
before it. The result holds offsets, and nothing is copied.

    --B CRLF head CRLF CRLF envelope [CRLF] --B CRLF head CRLF CRLF body [CRLF] --B-- [CRLF]

Heads in exactly the form of Windows are read by one regular expression each, all others by
:func:`_read_head`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.srmp.limits import (
    BODY_MAX,
    BOUNDARY_MAX,
    CONTENT_TYPE_MAX,
    ENVELOPE_MAX,
    PADDING_MAX,
    PART_HEAD_LINES_MAX,
    PART_HEAD_MAX,
    PARTS_MAX,
)

Span = tuple[int, int]
"""Two offsets (start, end) into the content."""


class Parts(NamedTuple):
    """The parts of a message as offsets into its content."""

    envelope: Span
    body: Span | None
    extension: Span | None
    body_id: bytes = b""
    """``Content-Id`` of the body in lower case.

    A signature names this value ([MC-MQSRM] 2.2.7.1.2).
    """
    extension_id: bytes = b""


_SECTION = "[MC-MQSRM] 2.2.2"

# The characters are the bchars of RFC 2046 5.1.1; the last one must not be a blank. Without quotes,
# only those that are also token characters are allowed.
BOUNDARY = re.compile(
    rb"[0-9A-Za-z'()+_,\-./:=? ]{0,%d}[0-9A-Za-z'()+_,\-./:=?]" % (BOUNDARY_MAX - 1)
)
_TOKEN_BOUNDARY = re.compile(rb"[0-9A-Za-z'+_.\-]{1,%d}" % BOUNDARY_MAX)
# This matches `; name=value`. The value is a quoted string or, less strict than RFC 2045, any text
# up to `;`, because Windows writes `type=text/xml`. [MC-MQSRM] chapter 4 prints this field folded
# on two lines. RFC 9112 5.2 lets a reader replace a fold by a blank, but no fold is allowed inside
# of quotes, because a boundary contains no line end.
_TOKEN = rb"[!#$%&'*+\-.^_`|~0-9A-Za-z]+"
_BLANK = rb"(?:(?:\r\n)?[ \t])*"
_PARAMETER = re.compile(
    _BLANK
    + rb";"
    + _BLANK
    + rb'(?:(%b)=("(?:[^"\\\x00-\x1f\x7f]|\\[ -~])*"|[^";\x00-\x1f\x7f]*))?' % _TOKEN
)
_MEDIA_TYPE = re.compile(rb"[ \t]*(" + _TOKEN + rb"/" + _TOKEN + rb")(?=[ \t\r;]|\Z)")
_FOLD = re.compile(rb"\r\n[ \t]+")
# These match exactly what Windows writes (chapter 4).
_WINDOWS_TYPE = b'multipart/related; boundary="'
_WINDOWS_TYPE_END = b'"; type=text/xml'
_ENVELOPE_HEAD = (
    rb"\r\nContent-Type: text/xml; charset=UTF-8\r\nContent-Length: ([0-9]{1,10})\r\n\r\n"
)
_WINDOWS_BEGIN = re.compile(rb"(--MSMQ - SOAP boundary, [0-9]{1,10})" + _ENVELOPE_HEAD)
_WINDOWS_ENVELOPE_HEAD = re.compile(_ENVELOPE_HEAD)
_WINDOWS_ATTACHMENT_HEAD = re.compile(
    rb"\r\nContent-Type: application/octet-stream\r\nContent-Length: ([0-9]{1,10})\r\n"
    rb"Content-Id: ((?:body|extension)@[0-9a-f\-]{36})\r\n\r\n"
)
_FIELD = re.compile(rb"(" + _TOKEN + rb"):([^\r\n\x00]*)\r\n")
_LENGTH = re.compile(rb"[0-9]{1,10}")
_CONTENT_ID = re.compile(rb"<?((body|extension)@[^\s<>]{1,250})>?")
_PADDING = re.compile(rb"[ \t]{0,%d}" % PADDING_MAX)
_EPILOGUE = re.compile(rb"[ \t\r\n]{0,%d}" % PADDING_MAX)
_B = ord("b")
"""First byte of the Content-Id of a body, as a number.

The id begins with body@ or extension@, so one letter decides.
"""
_new = tuple.__new__
"""Builds a NamedTuple without its Python ``__new__``, to save time for every message."""
_UNENCODED = (b"binary", b"7bit", b"8bit")


def split(content_type: bytes, content: bytes) -> Parts:
    """Find the parts of ``content``, an HTTP body without transfer encoding.

    ``text/xml`` is an envelope and nothing else. Receipts arrive in this form.

    Raises :class:`RemoteProtocolError`: 415 for another media type, 413 for a body longer than
    ``BODY_MAX``, else 400.
    """
    parts = _split_windows(content_type, content)
    if parts is not None:
        return parts
    boundary = None if content_type == b"text/xml" else boundary_of(content_type)
    if boundary is None:
        _check_envelope_length(len(content))
        return Parts((0, len(content)), None, None)
    return _walk(b"--" + boundary, content)


def _split_windows(content_type: bytes, content: bytes) -> Parts | None:
    """Return the parts of a message with an envelope and a body in exactly the form of Windows.

    Return ``None`` for any other form, which :func:`_walk` then reads.
    """
    head = _WINDOWS_BEGIN.match(content)
    if head is None:
        return None
    delimiter, length = head.groups()
    if content_type != _WINDOWS_TYPE + delimiter[2:] + _WINDOWS_TYPE_END:
        return None
    start = head.end()
    end = start + int(length)
    head = _WINDOWS_ATTACHMENT_HEAD.match(content, end + len(delimiter))
    if head is None or not content.startswith(delimiter, end):
        return None
    length, content_id = head.groups()
    body = head.end()
    after = body + int(length)
    if (
        content[after:] != delimiter + b"--\r\n"
        or content_id[0] != _B
        or end - start > ENVELOPE_MAX
        or after - body > BODY_MAX
    ):
        return None
    return _new(Parts, ((start, end), (body, after), None, content_id, b""))


def boundary_of(content_type: bytes) -> bytes | None:
    """Return the boundary of a ``multipart/related`` field, or ``None`` for ``text/xml``.

    Raises :class:`RemoteProtocolError`: 415 for any other type, 400 if the field is malformed.
    """
    media_type, parameters = _parse_type(content_type, status=415)
    if media_type == b"text/xml":
        _check_charset(parameters)
        return None
    if media_type != b"multipart/related":
        raise RemoteProtocolError(
            f"Content-Type {media_type.decode('latin-1')[:80]!a} is neither "
            "multipart/related nor text/xml",
            status_hint=415,
            section=_SECTION,
        )
    quoted = parameters.get(b"boundary", b"")
    boundary = quoted[1:-1] if quoted[:1] == b'"' else quoted
    if not (BOUNDARY if quoted[:1] == b'"' else _TOKEN_BOUNDARY).fullmatch(boundary):
        raise RemoteProtocolError(
            f"the boundary is missing, malformed or longer than {BOUNDARY_MAX} "
            f"characters: {boundary[:80].decode('latin-1')!a}",
            section="RFC 2046 5.1.1",
        )
    return boundary


def _parse_type(field: bytes, *, status: int) -> tuple[bytes, dict[bytes, bytes]]:
    """Return the media type in lower case, and the parameters with their quotes.

    Raises :class:`RemoteProtocolError` with ``status`` if the field has no media type, and with 400
    if the field is too long or a parameter is malformed.
    """
    if len(field) > CONTENT_TYPE_MAX:
        raise LimitExceededError("CONTENT_TYPE_MAX", CONTENT_TYPE_MAX, len(field), section=_SECTION)
    line = field.rstrip(b" \t")
    match = _MEDIA_TYPE.match(line)
    if match is None:
        raise RemoteProtocolError(
            "Content-Type is missing or no media type", status_hint=status, section=_SECTION
        )
    parameters: dict[bytes, bytes] = {}
    at = match.end()
    while at < len(line):
        parameter = _PARAMETER.match(line, at)
        if parameter is None:
            raise RemoteProtocolError(
                "Content-Type has a malformed parameter", section="RFC 2045 5.1"
            )
        if parameter[1] is not None:
            name = parameter[1].lower()
            if name in parameters:
                raise RemoteProtocolError(
                    f"Content-Type names {name.decode()[:80]} twice", section="RFC 2045 5.1"
                )
            parameters[name] = parameter[2].rstrip(b" \t")
        at = parameter.end()
    return match[1].lower(), parameters


def _check_charset(parameters: dict[bytes, bytes]) -> None:
    charset = parameters.get(b"charset", b"utf-8").strip(b'"').lower()
    if charset != b"utf-8":
        raise RemoteProtocolError(
            f"the envelope is UTF-8, not {charset.decode('latin-1')[:40]!a}", section=_SECTION
        )


def _check_envelope_length(length: int) -> None:
    if length > ENVELOPE_MAX:
        raise LimitExceededError("ENVELOPE_MAX", ENVELOPE_MAX, length, section=_SECTION)


def _walk(delimiter: bytes, content: bytes) -> Parts:
    """Return the parts of a multipart content, found by the lengths that their heads declare.

    Each part must be followed by ``delimiter``. Raises :class:`RemoteProtocolError` if the content
    does not have this form or exceeds a limit.
    """
    envelope: Span | None = None
    body: Span | None = None
    extension: Span | None = None
    body_id = extension_id = b""
    # RFC 2046 allows a CRLF before the first delimiter too.
    at = 2 if content[:2] == b"\r\n" else 0
    count = 0
    while True:
        if not content.startswith(delimiter, at):
            raise RemoteProtocolError(
                "no delimiter where a part's Content-Length ends"
                if count
                else "no delimiter at the beginning",
                section=_SECTION,
            )
        at += len(delimiter)
        if content.startswith(b"--", at):
            break
        count += 1
        if count > PARTS_MAX:
            raise LimitExceededError("PARTS_MAX", PARTS_MAX, count, section=_SECTION)
        if envelope is None:
            head = _WINDOWS_ENVELOPE_HEAD.match(content, at)
            if head is not None:
                start, length = head.end(), int(head[1])
            else:
                start, length, content_id = _read_head(content, at, is_envelope=True)
            at = start + length
            _check_rest(at, content)
            _check_envelope_length(length)
            envelope = (start, at)
        else:
            head = _WINDOWS_ATTACHMENT_HEAD.match(content, at)
            if head is not None:
                start, length, content_id = head.end(), int(head[1]), head[2]
            else:
                start, length, content_id = _read_head(content, at, is_envelope=False)
            at = start + length
            _check_rest(at, content)
            if content_id[0] == _B:
                if body is not None:
                    raise RemoteProtocolError("two parts are called body@", section=_SECTION)
                body, body_id = (start, at), content_id
            else:
                if extension is not None:
                    raise RemoteProtocolError("two parts are called extension@", section=_SECTION)
                extension, extension_id = (start, at), content_id
            total = (body[1] - body[0] if body else 0) + (
                extension[1] - extension[0] if extension else 0
            )
            if total > BODY_MAX:
                raise LimitExceededError(
                    "BODY_MAX", BODY_MAX, total, status_hint=413, section="[MC-MQSRM] 1.3.2"
                )
        if not content.startswith(delimiter, at) and content.startswith(b"\r\n", at):
            at += 2
    if envelope is None:
        raise RemoteProtocolError("a multipart message without a part", section=_SECTION)
    if at + 4 != len(content) or content[at + 2 :] != b"\r\n":
        _check_epilogue(content, at + 2)
    return Parts(envelope, body, extension, body_id, extension_id)


def _check_rest(at: int, content: bytes) -> None:
    if at > len(content):
        raise RemoteProtocolError(
            "a part's Content-Length is larger than what follows", section=_SECTION
        )


def _check_epilogue(content: bytes, at: int) -> None:
    """Check that only white space follows the last delimiter, which ends at offset ``at``.

    At most ``PADDING_MAX`` blanks and line ends are allowed. Another reader could take more bytes
    for a second message. Raises :class:`RemoteProtocolError` if anything else follows.
    """
    if not _EPILOGUE.fullmatch(content, at):
        raise RemoteProtocolError("bytes after the last delimiter", section=_SECTION)


def _read_head(content: bytes, at: int, *, is_envelope: bool) -> tuple[int, int, bytes]:
    """Return (offset of the part's content, its declared length, its Content-Id in lower case).

    ``at`` is the offset after the delimiter. The Content-Id is empty for the envelope. Raises
    :class:`RemoteProtocolError` if the head is malformed.
    """
    padding = _PADDING.match(content, at)
    start = padding.end() if padding is not None else at
    end = content.find(b"\r\n\r\n", start, start + PART_HEAD_MAX + 4)
    if not content.startswith(b"\r\n", start) or end < 0:
        raise RemoteProtocolError(
            "the head of a part is malformed, has no end or is longer than PART_HEAD_MAX "
            f"({PART_HEAD_MAX})",
            section=_SECTION,
        )
    fields = _fields(content[start + 2 : end + 2])
    media_type, parameters = _parse_type(fields.get(b"content-type", b"text/plain"), status=400)
    encoding = fields.get(b"content-transfer-encoding", b"binary").lower()
    if encoding not in _UNENCODED:
        raise RemoteProtocolError(
            f"parts come as they are, not in {encoding.decode('latin-1')[:40]!a}", section=_SECTION
        )
    if media_type.startswith(b"multipart/"):
        raise RemoteProtocolError("a multipart inside a part", section=_SECTION)
    length = fields.get(b"content-length", b"")
    if not _LENGTH.fullmatch(length):
        raise RemoteProtocolError(
            f"a part needs a Content-Length in digits, got {length.decode('latin-1')[:40]!a}",
            section=_SECTION,
        )
    if is_envelope:
        if media_type != b"text/xml":
            raise RemoteProtocolError(
                "the first part is the envelope and its type text/xml", section=_SECTION
            )
        _check_charset(parameters)
        return end + 4, int(length), b""
    content_id = _CONTENT_ID.fullmatch(fields.get(b"content-id", b"").lower())
    if content_id is None:
        raise RemoteProtocolError(
            "a part after the envelope needs a Content-Id body@… or extension@…", section=_SECTION
        )
    return end + 4, int(length), content_id[1]


def _fields(head: bytes) -> dict[bytes, bytes]:
    """Return the fields of a part's head, with names in lower case.

    Raises :class:`RemoteProtocolError` if a line is malformed, a field occurs twice, or there are
    too many fields.
    """
    head = _FOLD.sub(b" ", head)
    fields: dict[bytes, bytes] = {}
    at = 0
    while at < len(head):
        match = _FIELD.match(head, at)
        if match is None:
            raise RemoteProtocolError(
                "the head of a part has a malformed line", section="RFC 2045 3"
            )
        name = match[1].lower()
        if name in fields:
            raise RemoteProtocolError(
                f"the head of a part names {name.decode()[:80]} twice", section="RFC 2045 3"
            )
        fields[name] = match[2].strip(b" \t")
        if len(fields) > PART_HEAD_LINES_MAX:
            raise LimitExceededError(
                "PART_HEAD_LINES_MAX", PART_HEAD_LINES_MAX, len(fields), section=_SECTION
            )
        at = match.end()
    return fields
