"""What a row for a service of WS-ReliableMessaging must fulfil, and which of its columns mean something there.

``soap_action`` and the versions are columns that rows of a source have too: of a row for any other destination they are not
looked at, and are no part of its identity.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.errors import ConfigurationError, RemoteProtocolError
from srmp_spark.store.outbox.columns import RELIABLE_COLUMNS, Addresses
from srmp_spark.wsrm.body import check_body
from srmp_spark.wsrm.values import uri
from srmp_spark.wsrm.versions import Versions

_NO_PLACE = {
    "label": "", "correlation_id": None, "app_specific": 0, "response_queue": None, "admin_queue": None, "extension": None,
}  # fmt: skip
"""Columns that a SOAP message has no place for, with the value that says nothing."""
_RELIABLE = r"(?i)^\s*(?:DIRECT=)?WSRM:"

Refuse = Callable[[int, str, str], None]
"""Takes the row, what is wrong and what to do; raises."""


def only_reliable(columns: dict[str, pa.Array]) -> dict[str, pa.Array]:
    """The columns, those of a reliable session null in each row that is for anything else, and gone if that is every row."""
    found = [name for name in RELIABLE_COLUMNS if name in columns]
    if not found or "destination" not in columns:
        return columns
    chosen = pc.fill_null(pc.match_substring_regex(columns["destination"], _RELIABLE), False)
    if pc.all(chosen, min_count=0).as_py():
        return columns
    kept = {name: column for name, column in columns.items() if name not in found}
    if pc.any(chosen, min_count=0).as_py():
        kept |= {name: pc.if_else(chosen, columns[name], pa.scalar(None, columns[name].type)) for name in found}
    return kept


def check_reliable_rows(columns: Mapping[str, pa.Array], addresses: Addresses, refuse: Refuse) -> None:
    """Call ``refuse`` for the first row that breaks a rule."""
    spelled = columns["destination"].dictionary_encode()
    names = spelled.dictionary.to_pylist()
    services = np.array([addresses.is_reliable(name) for name in names], bool)
    if not services.any():
        return
    chosen = np.flatnonzero(services[spelled.indices.to_numpy(zero_copy_only=False)])
    taken = {name: column.take(pa.array(chosen)).to_pylist() for name, column in columns.items() if name in _LOOKED_AT}
    for name, nothing in _NO_PLACE.items():
        for row, value in zip(chosen, taken.get(name, ()), strict=False):
            if value is not None and value != nothing:
                refuse(
                    int(row), f"{name} has a value, and a SOAP message has no place for it",
                    f"send the row without it: .drop({name!r})",
                )  # fmt: skip
    for row, delivery in zip(chosen, taken.get("delivery", ()), strict=False):
        if delivery not in (None, "recoverable"):
            refuse(int(row), f"a message of a reliable session is recoverable, not {delivery}", "leave delivery null for it")
    nothing = [None] * len(chosen)
    judged: dict[tuple[str | None, str | None, str | None], None] = {}
    actions: set[str] = set()
    for row, action, body, *versions in zip(
        chosen, taken.get("soap_action", nothing), taken.get("body", nothing),
        *(taken.get(name, nothing) for name in ("wsrm_version", "soap_version", "wsa_version")), strict=True,
    ):  # fmt: skip
        try:
            if action is None:
                raise ConfigurationError("soap_action is missing")  # noqa: TRY301  # told with its row below
            if action not in actions:
                uri(action, "soap_action", "")
                actions.add(action)
            known = (versions[0], versions[1], versions[2])
            if known not in judged:
                Versions.of(*known)
                judged[known] = None
        except (ConfigurationError, RemoteProtocolError) as error:
            hint = "a row for wsrm:URL has the wsa:Action of its message as column or option soap_action, for example "
            refuse(int(row), str(error), hint + "http://tempuri.org/IOrders/Submit")
        try:
            check_body(body)
        except ConfigurationError as error:
            refuse(int(row), f"body is no content of a SOAP Body: {error}", "wsrm: takes the XML that stands in the SOAP Body")


_LOOKED_AT = frozenset((*_NO_PLACE, *RELIABLE_COLUMNS, "delivery", "body"))
