"""Rules for a row to a service of WS-ReliableMessaging, and the columns that count only there.

Rows of a source have the columns ``soap_action`` and versions too. For any other destination these
columns are ignored, and are no part of the row's identity.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.store.outbox.columns import RELIABLE_COLUMNS
from srmp_spark.store.outbox.staging.chosen_rows import ChosenRows
from srmp_spark.store.outbox.staging.refusals import (
    BAD_DELIVERY,
    BAD_SOAP_ACTION,
    BAD_SOAP_BODY,
    NOT_FOR_SOAP,
)
from srmp_spark.transports import Transport
from srmp_spark.wsrm.codec.body import check_body
from srmp_spark.wsrm.codec.values import uri
from srmp_spark.wsrm.codec.versions import Versions

_NO_PLACE = {
    "label": "",
    "correlation_id": None,
    "app_specific": 0,
    "response_queue": None,
    "admin_queue": None,
    "extension": None,
}
"""Columns for which a SOAP message has no place, each with the value that counts as unset."""
_RELIABLE = rf"(?i)^\s*{Transport.RELIABLE.rules.spelling}"
"""Pattern of a destination of this transport; the destination is not checked yet."""


def only_reliable(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """Return ``columns`` with RELIABLE_COLUMNS null in each row that is not for a service.

    A service is a destination ``wsrm:URL``. If no row is for a service, these columns are left out.
    """
    found = [name for name in RELIABLE_COLUMNS if name in columns]
    if not found or "destination" not in columns:
        return columns
    chosen = pc.fill_null(pc.match_substring_regex(columns["destination"], _RELIABLE), False)
    if pc.all(chosen, min_count=0).as_py():
        return columns
    kept = {name: column for name, column in columns.items() if name not in found}
    if pc.any(chosen, min_count=0).as_py():
        kept |= {
            name: pc.if_else(chosen, columns[name], pa.scalar(None, columns[name].type))
            for name in found
        }
    return kept


def check_reliable_rows(rows: ChosenRows) -> None:
    """Refuse each of ``rows``, which are to services (``wsrm:URL``), that cannot be sent.

    A row is refused if a column for which SOAP has no place (``label``, for example) has a value,
    if ``delivery`` is not ``recoverable`` or null, if ``soap_action`` is missing or no URI, if a
    version is not supported, or if ``body`` is no content of a SOAP Body.
    """
    chosen, refuse = rows.numbers, rows.refuse
    taken: dict[str, list[Any]] = {
        name: column.take(pa.array(chosen)).to_pylist()
        for name, column in rows.columns.items()
        if name in _LOOKED_AT
    }
    for name, nothing in _NO_PLACE.items():
        for row, value in zip(chosen, taken.get(name, ()), strict=False):
            if value not in (None, nothing):
                refuse(
                    int(row),
                    NOT_FOR_SOAP,
                    f"{name} has a value, and a SOAP message has no place for it",
                    "send the row without it",
                )
    for row, delivery in zip(chosen, taken.get("delivery", ()), strict=False):
        if delivery not in (None, "recoverable"):
            refuse(
                int(row),
                BAD_DELIVERY,
                f"a message of a reliable session is recoverable, not {delivery}",
                "leave delivery null for it",
            )
    none: list[Any] = [None] * len(chosen)
    said = [taken.get(name, none) for name in RELIABLE_COLUMNS]
    judged: dict[tuple[Any, ...], tuple[str, str] | None] = {}
    for row, *spoken in zip(chosen, *said, strict=True):
        if tuple(spoken) not in judged:
            judged[tuple(spoken)] = _problem(spoken[0], spoken[1:])
        problem = judged[tuple(spoken)]
        if problem is not None:
            refuse(int(row), BAD_SOAP_ACTION, *problem)
    for row, body in zip(chosen, taken.get("body", none), strict=True):
        try:
            check_body(body)
        except ConfigurationError as error:  # noqa: PERF203  # the error must name its row
            refuse(
                int(row),
                BAD_SOAP_BODY,
                f"body is no content of a SOAP Body: {error}",
                "write the XML that is the content of the SOAP Body",
            )


def _problem(action: str | None, versions: list[str | None]) -> tuple[str, str] | None:
    """Return the problem of an action and its versions with a hint, or ``None`` if they fit."""
    if action is None:
        hint = "it is the wsa:Action of the message, as column or option, for example http://tempuri.org/IOrders/Submit"
        return "soap_action is missing in a row for wsrm:URL", hint
    try:
        uri(action, "soap_action", "")
        Versions.of(*versions)
    except (ConfigurationError, RemoteProtocolError) as error:
        return str(error), "see INTERFACE.md section 4, Sink"
    return None


_LOOKED_AT = frozenset((*_NO_PLACE, *RELIABLE_COLUMNS, "delivery", "body"))
