"""The errors of a remote read: what failed, and whether a call may have been carried out.

======================================  =======================================================
:class:`RemoteReadError`                the server refused; ``perhaps_done`` says whether it may
                                        have carried out the call all the same
:class:`UnreadableAnswerError`          the server answered, and the answer cannot be read
:class:`NotSentError`                   the connection had ended before the call was sent
:class:`RemoteLostError`                any other loss: a call in flight may have been carried out
======================================  =======================================================
"""

from __future__ import annotations

from srmp_spark.errors import RemoteLostError, RemoteReadError, with_hint
from srmp_spark.mqrr.next_steps import UNREACHABLE, refusal_text


class NotSentError(RemoteLostError):
    """Raised when the connection had ended before a call was sent.

    So the call was not carried out.
    """


class UnreadableAnswerError(RemoteReadError):
    """Raised when the answer to a call cannot be read. The call may have been carried out."""


def refused(status: int, what: str, *, perhaps_done: bool = False) -> RemoteReadError:
    """Build the error for ``what``, which got the HRESULT or fault ``status``.

    The message says what to do next. ``perhaps_done`` is set for a fault that does not state that
    the call was not carried out.
    """
    return RemoteReadError(refusal_text(what, status), status, perhaps_done=perhaps_done)


def unreachable(where: str, reason: str) -> RemoteLostError:
    """Build the error for a server that accepts no connection, or does not answer its bind.

    An empty ``reason`` means that the time was over.
    """
    why = f"{where} cannot be reached: {reason or 'no answer in time'}"
    return RemoteLostError(with_hint(why, UNREACHABLE))
