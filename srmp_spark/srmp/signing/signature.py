"""The XML signature of a message: its structure, and the digests of the attachments.

See [MC-MQSRM] 2.2.7.

    <Signature xmlns="http://www.w3.org/2000/02/xmldsig#">
      <SignedInfo>
        <SignatureMethod Algorithm="…#dsa"/>
        <Reference URI="cid:body@GUID">
          <DigestMethod Algorithm="…#sha1 or …#md5"/> <DigestValue>…</DigestValue>
        </Reference>
        <Reference URI="cid:extension@GUID"> … </Reference>
      </SignedInfo>
      <SignatureValue>…</SignatureValue>
    </Signature>

**What a signature covers**: the bytes of body and extension, and nothing else. Anyone can change
the label, the address, the identifier, the stream position and everything in ``<Msmq>`` without
breaking the signature. No :class:`Verdict` covers them.

:func:`judge` decides in this order; the first case that applies is the answer.

================================================== ====================================
1. broken structure, more or fewer references than ``RemoteProtocolError``: 400
   attachments, another cid
2. a digest that is not that of its attachment     ``invalid``, whatever the key
3. no key is trusted for the sender                ``unverified``
4. no key fits the signature                       ``invalid``
5. no reference, because there is no attachment    ``unverified``: it covers nothing
6. a key fits                                      ``valid``
================================================== ====================================

3.1.5.1.6.1 disregards the message in the cases 1, 2, 4 and 5, and names no HTTP status. A broken
structure can never succeed, so it is answered 400 as any malformed message, and the sender is
notified. A correct structure with a wrong content is stored and marked. Discarding it unseen would
lose a message, and its receiver must be able to see a forgery. A sender that follows 3.1.7.2.4
writes case 5 for an empty message, so this case is no fault of the structure.

Everything is read from the received bytes. Only the canonical forms are serialized again
(:mod:`signature_forms`). A signature is checked when the message is accepted, never when its row is
read: the content of a row must not depend on who reads it, or when.
"""

from __future__ import annotations

import hashlib
import re
from binascii import a2b_base64, b2a_base64
from collections.abc import Sequence
from typing import Literal, NamedTuple, Protocol

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.message import SignatureStatus
from srmp_spark.srmp.codec import namespaces as ns
from srmp_spark.srmp.codec.mime import Parts, Span
from srmp_spark.srmp.codec.values import XML_SPACE
from srmp_spark.srmp.limits import REFERENCES_MAX, SIGNATURE_VALUE_MAX
from srmp_spark.srmp.signing.signature_forms import SignatureElement, forms_of, signature_element

DSA = f"{ns.SIGNATURE}dsa"
"""The only SignatureMethod.

The algorithm is only a label: the key decides what kind of signature it is
(:mod:`signature_verify`).
"""

_SECTION = "[MC-MQSRM] 2.2.7"
_CHECKING = "[MC-MQSRM] 3.1.5.1.6.1"
_DIGESTS: dict[str, Literal["sha1", "md5"]] = {
    f"{ns.SIGNATURE}sha1": "sha1",
    f"{ns.SIGNATURE}md5": "md5",
}
_KNOWN = frozenset(
    {"SignedInfo", "SignatureMethod", "Reference", "DigestMethod", "DigestValue", "SignatureValue"}
)
_CID = re.compile(r"cid:((body|extension)@.+)", re.IGNORECASE)
_BASE64 = re.compile(r"[A-Za-z0-9+/]+={0,2}")
_SPACES = re.compile(f"[{XML_SPACE}]+")

# These are the reasons of a verdict, for the log and the metric. The reason of "valid" is the form
# and the reading that fitted.
NO_SIGNER = "no-signer"
NO_REFERENCE = "no-reference"
WRONG_DIGEST = "digest"
WRONG_SIGNATURE = "signature"


class Reference(NamedTuple):
    """A ``<Reference>`` ([MC-MQSRM] 2.2.7.1.2): an attachment and the hash of its bytes."""

    part: Literal["body", "extension"]
    content_id: bytes
    """Content-Id in lower case, as in :class:`~srmp_spark.srmp.codec.mime.Parts`."""
    algorithm: Literal["sha1", "md5"]
    digest: str
    """Base64 as it was written, without white space around it."""


class Signature(NamedTuple):
    """A ``<Signature>`` with a correct structure."""

    references: tuple[Reference, ...]
    signed_info: SignatureElement
    value: bytes


class Verdict(NamedTuple):
    """The result of checking a message's signature: its status and the reason."""

    status: SignatureStatus
    how: str
    """Reason for the verdict in a few words.

    For ``valid`` it is the form and the reading, as :meth:`Verifier.verify` returns them.
    """


class Verifier(Protocol):
    """A trusted key that checks signatures; :mod:`.signature_verify` has the implementations."""

    def verify(self, signed_info: Sequence[tuple[str, bytes]], value: bytes) -> str | None:
        """Return the name of the form and reading in which ``value`` is this key's signature.

        ``signed_info`` has the forms of SignedInfo (:mod:`.signature_forms`) as pairs (name,
        bytes). The result is the text ``name/reading`` (:mod:`.signature_verify` lists the
        readings), or ``None`` if ``value`` is no signature of this key over any of the forms.
        """


def judge(content: bytes, parts: Parts, keys: Sequence[Verifier]) -> Verdict:
    """Return the verdict about the signature of a message.

    ``content`` is the HTTP body of the message, and ``keys`` are the keys that are trusted for its
    sender. Raises :class:`RemoteProtocolError` if the structure is broken or does not match the
    attachments.
    """
    envelope = content[parts.envelope[0] : parts.envelope[1]]
    signature = read_signature(envelope)
    attachments = {
        "body": (parts.body, parts.body_id),
        "extension": (parts.extension, parts.extension_id),
    }
    _check_references(signature.references, attachments)
    for reference in signature.references:
        span, _ = attachments[reference.part]
        assert span is not None, "checked above"
        if _digest(reference.algorithm, content, span) != reference.digest:
            return Verdict("invalid", WRONG_DIGEST)
    if not keys:
        return Verdict("unverified", NO_SIGNER)
    signed_info = forms_of(envelope, signature.signed_info)
    for key in keys:
        how = key.verify(signed_info, signature.value)
        if how is not None:
            return (
                Verdict("valid", how)
                if signature.references
                else Verdict("unverified", NO_REFERENCE)
            )
    return Verdict("invalid", WRONG_SIGNATURE)


def read_signature(envelope: bytes) -> Signature:
    """Return the signature of a signed envelope.

    Raises :class:`RemoteProtocolError` if its structure is not that of 2.2.7.
    """
    root = signature_element(envelope)
    signed_info = _only(root, "SignedInfo", ".1")
    method = _only(signed_info, "SignatureMethod", ".1.1")
    if _attribute(method, "Algorithm") != DSA:
        raise RemoteProtocolError(
            f"the algorithm of <SignatureMethod> is not {DSA}", section=f"{_SECTION}.1.1"
        )
    found = _named(signed_info, "Reference")
    if len(found) > REFERENCES_MAX:
        raise LimitExceededError(
            "REFERENCES_MAX", REFERENCES_MAX, len(found), section=f"{_SECTION}.1.2"
        )
    value = _SPACES.sub("", _text(_only(root, "SignatureValue", ".2"), ".2"))
    if len(value) > SIGNATURE_VALUE_MAX:
        raise LimitExceededError(
            "SIGNATURE_VALUE_MAX", SIGNATURE_VALUE_MAX, len(value), section=f"{_SECTION}.2"
        )
    return Signature(tuple(map(_reference, found)), signed_info, _from_base64(value))


def _named(parent: SignatureElement, name: str) -> list[SignatureElement]:
    """Return the children called ``name`` in the namespace of signatures.

    Raises :class:`RemoteProtocolError` for a known name in another namespace, because its writer
    means the element of a signature.
    """
    found = []
    for child in parent.elements:
        if child.name.local == name and child.name.uri == ns.SIGNATURE:
            found.append(child)
        elif child.name.local in _KNOWN and child.name.uri != ns.SIGNATURE:
            raise RemoteProtocolError(
                f"<{child.name.local}> of a signature in a wrong namespace", section=_SECTION
            )
    return found


def _only(parent: SignatureElement, name: str, section: str) -> SignatureElement:
    """Return the only child called ``name``.

    Raises :class:`RemoteProtocolError` if there is none or more than one: neither the first nor the
    last one wins.
    """
    found = _named(parent, name)
    if len(found) != 1:
        said = "is missing" if not found else "stands there twice"
        raise RemoteProtocolError(f"<{name}> of a signature {said}", section=_SECTION + section)
    return found[0]


def _attribute(element: SignatureElement, name: str) -> str | None:
    return next(
        (value for key, value in element.attributes.items() if key.local == name and not key.uri),
        None,
    )


def _text(element: SignatureElement, section: str) -> str:
    if element.elements:
        raise RemoteProtocolError(
            f"<{element.name.local}> holds a text and no elements", section=_SECTION + section
        )
    return element.text


def _reference(element: SignatureElement) -> Reference:
    uri = _CID.fullmatch(_attribute(element, "URI") or "")
    if uri is None:
        raise RemoteProtocolError(
            "a reference is neither cid:body@… nor cid:extension@…", section=f"{_SECTION}.1.2"
        )
    algorithm = _DIGESTS.get(
        _attribute(_only(element, "DigestMethod", ".1.2.1"), "Algorithm") or ""
    )
    if algorithm is None:
        raise RemoteProtocolError(
            "the algorithm of <DigestMethod> is neither #sha1 nor #md5", section=f"{_SECTION}.1.2.1"
        )
    digest = _text(_only(element, "DigestValue", ".1.2.2"), ".1.2.2").strip(XML_SPACE)
    part: Literal["body", "extension"] = "body" if uri[2].lower() == "body" else "extension"
    return Reference(part, uri[1].lower().encode(), algorithm, digest)


def _from_base64(text: str) -> bytes:
    if not text or len(text) % 4 or not _BASE64.fullmatch(text):
        raise RemoteProtocolError(
            "<SignatureValue> is empty or not base64", section=f"{_SECTION}.2"
        )
    return a2b_base64(text)


def _check_references(
    references: Sequence[Reference], attachments: dict[str, tuple[Span | None, bytes]]
) -> None:
    """Check that references and attachments match.

    Each attachment with at least one byte needs exactly one reference, and each reference needs its
    attachment. Raises :class:`RemoteProtocolError` otherwise.
    """
    missing = {
        part for part, (span, _) in attachments.items() if span is not None and span[0] < span[1]
    }
    seen = set()
    for part, content_id, _, _ in references:
        span, named = attachments[part]
        if part in seen:
            raise RemoteProtocolError(
                f"two references of a signature are cid:{part}@", section=_CHECKING
            )
        if span is None:
            raise RemoteProtocolError(
                f"the signature covers a part {part}@ that is not there", section=_CHECKING
            )
        if content_id != named:
            raise RemoteProtocolError(
                "the signature names another Content-Id than its part", section=f"{_SECTION}.1.2"
            )
        seen.add(part)
    if missing - seen:
        raise RemoteProtocolError(
            f"the signature does not cover the part {min(missing - seen)}@",
            section=f"{_SECTION}.1.2",
        )


def _digest(algorithm: str, content: bytes, span: Span) -> str:
    """Return the base64 of the hash of an attachment's bytes, without anything before them.

    2.2.7.1.2.2 mentions a keyword before the bytes, but defines none.
    """
    hashed = hashlib.new(algorithm, memoryview(content)[span[0] : span[1]], usedforsecurity=False)
    return b2a_base64(hashed.digest(), newline=False).decode()
