r"""Explain a sink's ``destination`` that names a queue and no machine.

Examples are ``orders`` and ``.\private$\orders``. The explanation says what to write instead. The
queue manager that sends is asked for its own address and whether it has the queue. This call is
made once, only for the text of an error. If the queue manager does not answer, the text has
``HOST`` in place of the machine.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from srmp_spark.errors import ApiError, SrmpSparkError
from srmp_spark.names import PRIVATE_PREFIX, canonical_queue_name, split_url

if TYPE_CHECKING:
    from srmp_spark.client.api import QueueManagerClient

_PATH_NAME = re.compile(r"([^\\/:=,\s]+)[\\/]((?:private\$[\\/])?[^\\/:=,]+)", re.IGNORECASE)
r"""``HOST\private$\orders``, MSMQ's path name of a queue of another machine."""
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104  # only compared


def instead_of(destination: str, api: str, token: str | None, *, allow_plain_token: bool) -> str:
    """Return the text that follows an error about ``destination``.

    The text says what to write instead. It is empty if ``destination`` is no name of a queue. The
    queue manager at ``api`` is asked whether it has the queue. If the call fails, the text does not
    depend on the answer; no error is raised.
    """
    if (path_name := _PATH_NAME.fullmatch(destination)) is not None and path_name[
        1
    ].lower() not in ("private$", "."):
        queue = path_name[2].replace("\\", "/").lower()
        return (
            "; the path name of a queue of another machine is written "
            f"{_format_name('http://' + path_name[1], queue)} here"
        )
    try:
        name = canonical_queue_name(destination)
    except ValueError:
        return ""
    if any(sign in name for sign in ":=,"):
        return ""
    try:
        found = _asked(name, api, token, allow_plain_token=allow_plain_token)
    except (SrmpSparkError, ValueError):
        found = None
    if found is None:
        return (
            "; the name of a queue does not name a machine: write "
            f"{_format_name('http://HOST', name)}, with the host that has it"
        )
    queue, base = found
    if queue is None:
        return (
            f"; the name of a queue does not name a machine, and the queue manager at {api} has no "
            f"queue {name}: write "
            f"{_format_name('http://HOST', name)}, with the host that has it"
        )
    return (
        f"; the name of a queue does not name a machine: for {queue} of the queue manager at {api} "
        f"write {_format_name(base, queue)}"
    )


def _format_name(base: str, queue: str) -> str:
    return f"DIRECT={base}/msmq/{queue}"


def _asked(
    name: str, api: str, token: str | None, *, allow_plain_token: bool
) -> tuple[str | None, str]:
    """Ask the queue manager for a queue; return (its name there, URL of the SRMP port).

    The name is ``None`` if the queue manager does not have the queue. Raises the errors of a
    client's call.
    """
    from srmp_spark.client.api import QueueManagerClient

    client = QueueManagerClient(api, token, allow_plain_token=allow_plain_token)
    base = _own_url(client.status(retry=False, queues=name), api)
    names = (name,) if name.startswith(PRIVATE_PREFIX) else (name, PRIVATE_PREFIX + name)
    return next((each for each in names if _has(client, each)), None), base


def _has(client: QueueManagerClient, name: str) -> bool:
    try:
        client.queue(name)
    except ApiError as error:
        if error.status not in (403, 404):
            raise
        return False
    return True


def _own_url(status: dict[str, Any], api: str) -> str:
    """Return the URL with which other machines reach the SRMP port.

    The URL has the host name that senders use, if one is configured, else the address on which the
    queue manager listens.
    """
    listening = split_url(str(status["listening"][0]))
    host = next(iter(status.get("host_names") or ()), listening.host)
    if host in _EVERYWHERE:
        host = split_url(api).host
    host = f"[{host}]" if ":" in host else host
    default = 443 if listening.scheme == "https" else 80
    return f"{listening.scheme}://{host}" + (
        f":{listening.port}" if listening.port != default else ""
    )
