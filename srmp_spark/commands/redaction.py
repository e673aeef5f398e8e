"""Redact a stored POST: replace private content by other content of the same length.

Every replacement has the length of the text that it replaces, so all lengths in the message stay
true. Equal texts get equal replacements in the whole capture. These parts are replaced: body and
extension, label, hosts, GUIDs (in identifiers, stream identifiers, Content-Ids and inside
correlations), application XML in the SOAP body, signatures, and values of HTTP fields that SRMP
does not know. These parts are kept, because a bug report needs them: queue names, numbers, times
and priorities.
"""

from __future__ import annotations

import base64
import itertools
import re

from srmp_spark.rows.group import Record
from srmp_spark.srmp.codec.decoder import decode_parts
from srmp_spark.srmp.codec.http_head import content_type_of

_GUID = re.compile(rb"[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}")
# A URL directly after =" is the name of an XML namespace, and is kept.
_URL_HOST = re.compile(rb"""(?<!=["'])(https?://)([^/\\:?#\s<>@"']+)""", re.IGNORECASE)
_OS_HOST = re.compile(rb"((?:OS|TCP|SPX):)([^\\/<>\s]+)", re.IGNORECASE)
_FIELD = re.compile(rb"^([!-9;-~]+)(:[ \t]*)([^\r\n]*)", re.MULTILINE)
_KEPT_FIELDS = frozenset(
    (
        b"content-type",
        b"content-length",
        b"transfer-encoding",
        b"soapaction",
        b"proxy-accept",
        b"connection",
        b"expect",
        b"accept",
    )
)
_ELEMENT = r"(<(?:[\w.-]+:)?%s(?:\s[^>]*)?>)([^<]*)(</)"
_LABEL = re.compile(rb"(<(?:[\w.-]+:)?action(?:\s[^>]*)?>(?:MSMQ:)?)([^<]*)(</)")
_CORRELATION = re.compile((_ELEMENT % "Correlation").encode())
_SECRETS = re.compile(
    (_ELEMENT % "(?:SignatureValue|DigestValue|SenderCert|ProviderName)").encode()
)
_SOAP_BODY = re.compile(rb"(<(?:[\w.-]+:)?Body(?:\s[^>]*)?>)(.+)(</(?:[\w.-]+:)?Body>)", re.DOTALL)


class Redactor:
    """Redacts the posts of one capture, with equal replacements for equal texts in all posts."""

    def __init__(self) -> None:
        self._guids: dict[bytes, bytes] = {}
        self._texts: dict[tuple[str, bytes], bytes] = {}
        self._numbers = itertools.count(1)

    def redact(self, record: Record) -> bytes:
        """Return the post of ``record``, redacted.

        Raises :class:`RemoteProtocolError` if the post cannot be decoded as a message before or
        after the redaction.
        """
        head, content = record.head, record.content
        _, parts = decode_parts(content_type_of(head), content)
        pieces: list[bytes] = [self._head(head)]
        at = 0
        for span in sorted(span for span in (parts.body, parts.extension) if span is not None):
            pieces += [self._text(content[at : span[0]]), b"x" * (span[1] - span[0])]
            at = span[1]
        pieces.append(self._text(content[at:]))
        redacted = b"".join(pieces)
        if len(redacted) != len(record.post):
            raise AssertionError(
                f"redaction changed the length of a post: {len(record.post)} to {len(redacted)}"
            )
        decode_parts(
            content_type_of(redacted[: record.head_length]), redacted[record.head_length :]
        )
        return redacted

    def peer(self, peer: str) -> str:
        """Return the address ``peer`` with its host replaced and its port kept.

        The result is empty if ``peer`` has no host.
        """
        host, _, port = peer.rpartition(":")
        return f"{self._same('host', host.encode()).decode()}:{port}" if host else ""

    def _head(self, head: bytes) -> bytes:
        line, separator, fields = head.partition(b"\r\n")
        return self._text(line) + separator + _FIELD.sub(self._field, fields)

    def _field(self, match: re.Match[bytes]) -> bytes:
        name, colon, value = match.groups()
        if name.lower() == b"host":
            # The pattern matches every value.
            host, port = re.fullmatch(rb"(.*?)(:\d+)?", value, re.DOTALL).groups()  # type: ignore[union-attr]
            return name + colon + self._same("host", host) + (port or b"")
        kept = value if name.lower() in _KEPT_FIELDS else b"x" * len(value)
        return name + colon + self._guid_text(kept)

    def _text(self, text: bytes) -> bytes:
        """Return ``text`` redacted.

        ``text`` is MIME heads or the envelope, neither body nor extension.
        """
        text = _SOAP_BODY.sub(lambda m: m[1] + b"x" * len(m[2]) + m[3], text)
        text = _SECRETS.sub(lambda m: m[1] + b"A" * len(m[2]) + m[3], text)
        text = _LABEL.sub(lambda m: m[1] + self._same("label", m[2]) + m[3], text)
        text = _CORRELATION.sub(lambda m: m[1] + self._correlation(m[2]) + m[3], text)
        for pattern in (_URL_HOST, _OS_HOST):
            text = pattern.sub(lambda m: m[1] + self._same("host", m[2]), text)
        return self._guid_text(text)

    def _guid_text(self, text: bytes) -> bytes:
        return _GUID.sub(lambda m: self._guid(m[0]), text)

    def _guid(self, guid: bytes) -> bytes:
        key = guid.lower()
        if not key.strip(b"0-"):
            # The NULL GUID means "none", and identifies nobody.
            return guid
        found = self._guids.get(key)
        if found is None:
            found = self._guids[key] = b"%08x-0000-4000-8000-000000000000" % next(self._numbers)
        return found

    def _correlation(self, text: bytes) -> bytes:
        """Replace the GUID inside a base64 OBJECTID, in the byte order of [MS-MQMQ] 2.2.8.

        A text that is no OBJECTID of 20 bytes becomes a run of ``A`` of the same length.
        """
        try:
            raw = base64.b64decode(text.strip(), validate=True)
        except ValueError:
            raw = b""
        if len(raw) != 20:
            return b"A" * len(text)
        shown = b"%s-%s-%s-%s-%s" % tuple(
            part.hex().encode()
            for part in (raw[3::-1], raw[5:3:-1], raw[7:5:-1], raw[8:10], raw[10:16])
        )
        mapped = bytes.fromhex(self._guid(shown).replace(b"-", b"").decode())
        in_memory = mapped[3::-1] + mapped[5:3:-1] + mapped[7:5:-1] + mapped[8:]
        return text.replace(text.strip(), base64.b64encode(in_memory + raw[16:]))

    def _same(self, kind: str, text: bytes) -> bytes:
        """Return a replacement of the same length, equal for equal texts in any letter case.

        ``kind`` is the beginning of the replacement, for example ``host``.
        """
        if not text:
            return text
        key = kind, text.lower()
        found = self._texts.get(key)
        if found is None:
            name = b"%s%d" % (kind.encode(), next(self._numbers))
            found = self._texts[key] = (
                name[-len(text) :]
                if len(name) > len(text)
                else name + b"x" * (len(text) - len(name))
            )
        return found
