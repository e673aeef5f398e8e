"""Pure questions to an HTTP request head: which queue the target names, which Content-Type and SOAPAction it carries.

The endpoint has parsed the head before it accepts a message; these serve it, and whoever reads a stored POST later. A head
that came through is well-formed, so the look-ups are two searches and not a second parser. [MC-MQSRM] 2.1.1, chapter 4.

What a stored POST means must not depend on who reads it: the endpoint takes the Content-Type from :func:`content_type_of`
too, and nobody but :func:`unfold` undoes a fold.
"""

from __future__ import annotations

import re

from srmp_spark.errors import LimitExceededError, RemoteProtocolError
from srmp_spark.names import queue_of_path, split_url
from srmp_spark.srmp.limits import TARGET_MAX

_SECTION = "[MC-MQSRM] 3.1.5.1.3"
# A field value with its folds: chapter 4 prints Content-Type over two lines.
_VALUE = rb"[ \t]*([^\r\n]*(?:\r\n[ \t]+[^\r\n]*)*)"
_CONTENT_TYPE = re.compile(rb"\r\ncontent-type:" + _VALUE, re.IGNORECASE)
_SOAP_ACTION = re.compile(rb"\r\nsoapaction:" + _VALUE, re.IGNORECASE)
_FOLD = re.compile(rb"\r\n[ \t]+")
_DOT_SEGMENT = re.compile(r"[/\\]\.{1,2}(?:;[^/\\]*)?(?:[/\\]|$)")


def check_target(target: bytes) -> str:
    """The canonical queue name in a request target, ``/msmq/private$/orders?SenderStream=x`` or with ``http://host`` before it.

    The name is only ever a key of a map of configured queues; dot segments, encoded separators (the rule is in
    :mod:`srmp_spark.names`), path parameters and NTFS streams (bad input 19) are refused here all the same, because nobody
    who means a queue writes them.

    Raises :class:`RemoteProtocolError` (400), 414 for a target longer than ``TARGET_MAX``.
    """
    if len(target) > TARGET_MAX:
        raise LimitExceededError(
            "TARGET_MAX", TARGET_MAX, len(target), status_hint=414, section=_SECTION
        )
    try:
        return _queue_of(target.decode())
    except ValueError as error:
        raise RemoteProtocolError(
            f"the request target names no queue: {ascii(str(error))[1:-1][:200]}", section=_SECTION
        ) from None


def _queue_of(target: str) -> str:
    path = target.partition("?")[0] if target.startswith("/") else split_url(target).path
    if _DOT_SEGMENT.search(path) or "::$" in path or "#" in path:
        raise ValueError("a dot segment, a fragment or an NTFS stream in a queue path")
    return queue_of_path(path)


def unfold(value: bytes) -> bytes:
    """A field value with each fold as one blank (RFC 9112 5.2)."""
    return _FOLD.sub(b" ", value)


def content_type_of(head: bytes) -> bytes:
    """The value of Content-Type in a raw head (request line first), unfolded; empty when there is none."""
    match = _CONTENT_TYPE.search(head)
    return unfold(match[1]).strip(b" \t") if match is not None else b""


def soap_action_of(head: bytes) -> str | None:
    """The SOAPAction without its quotes (SOAP 1.1 6.1.1); ``None`` when there is none. SRMP always sends ``MSMQMessage``."""
    match = _SOAP_ACTION.search(head)
    if match is None:
        return None
    value = unfold(match[1]).strip(b" \t").decode("latin-1")
    return value[1:-1] if len(value) >= 2 and value[0] == value[-1] == '"' else value
