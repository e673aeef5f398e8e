"""Rules that a row must fulfil to become a message.

Whatever could stop the message later is refused while the row is staged. Each rule has a reason
(:mod:`.refusals`), and the first rule that a row breaks names its reason.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from srmp_spark.srmp.limits import BODY_MAX, PRIORITY_MAX
from srmp_spark.store.outbox.address_lists import has_lists, names_of
from srmp_spark.store.outbox.columns import DELIVERIES, CanonicalDestinations, body_sizes
from srmp_spark.store.outbox.errors import BatchError
from srmp_spark.store.outbox.limits import (
    ADDRESS_LENGTH_MAX,
    APP_SPECIFIC_MAX,
    BODY_TYPE_MAX,
    CORRELATION_BYTES,
    KEY_BYTES_MAX,
    LABEL_LENGTH_MAX,
    LIST_LENGTH_MAX,
)
from srmp_spark.store.outbox.staging.chosen_rows import ChosenRows
from srmp_spark.store.outbox.staging.multicast_rows import check_multicast_rows
from srmp_spark.store.outbox.staging.refusals import (
    BAD_ADMIN_QUEUE,
    BAD_APP_SPECIFIC,
    BAD_BODY_TYPE,
    BAD_CORRELATION_ID,
    BAD_DELIVERY,
    BAD_DESTINATION,
    BAD_KEY,
    BAD_LABEL,
    BAD_PRIORITY,
    BAD_RESPONSE_QUEUE,
    BAD_TIME,
    NO_BODY,
    NO_DESTINATION,
    TOO_LARGE,
    Refusals,
)
from srmp_spark.store.outbox.staging.reliable_rows import check_reliable_rows
from srmp_spark.transports import Transport

TIME_MAX = 253_402_300_799_999_999
"""The end of the year 9999, in microseconds since 1970.

A date in a message has four digits for the year.
"""

_NOT_XML = "[\\x00-\\x08\\x0b\\x0c\\x0e-\\x1f\\x{fffe}\\x{ffff}]"
_NOT_AN_ADDRESS = "^$|^[\t\n\r ]|[\t\n\r ]$"
_TEXTS = (
    ("label", BAD_LABEL, LABEL_LENGTH_MAX),
    ("destination", BAD_DESTINATION, LIST_LENGTH_MAX),
    ("response_queue", BAD_RESPONSE_QUEUE, LIST_LENGTH_MAX),
    ("admin_queue", BAD_ADMIN_QUEUE, LIST_LENGTH_MAX),
)
_FORMAT_NAME = r"(?i)^(?:DIRECT=)?https?://[^/\\?#\s@]+[/\\].|^DIRECT=(?:OS|TCP|HTTPS?):.|^(?:PUBLIC|PRIVATE|MACHINE|CONNECTOR|DL|MULTICAST)=."
_HTTP_ADDRESS = r"(?i)^(?:DIRECT=)?https?://[^/\\?#\s@]+[/\\]."
_FORMS = (
    (
        "response_queue",
        BAD_RESPONSE_QUEUE,
        _FORMAT_NAME,
        "is no URL and no format name",
        "write DIRECT=http://HOST/msmq/private$/QUEUE, or DIRECT=OS:…",
    ),
    (
        "admin_queue",
        BAD_ADMIN_QUEUE,
        _HTTP_ADDRESS,
        "is no http or https URL",
        "receipts are sent by HTTP: write DIRECT=http://HOST/msmq/private$/QUEUE",
    ),
)
"""Patterns of the addresses to which MSMQ could send an answer ([MS-MQMQ] 2.1).

Each has the texts of the refusal.
"""
_NUMBERS = (
    ("priority", BAD_PRIORITY, PRIORITY_MAX),
    ("app_specific", BAD_APP_SPECIFIC, APP_SPECIFIC_MAX),
    ("body_type", BAD_BODY_TYPE, BODY_TYPE_MAX),
)


def check_rows(
    columns: Mapping[str, pa.Array],
    rows: int,
    addresses: CanonicalDestinations,
    refusals: Refusals,
    *,
    multicast: bool = False,
) -> None:
    """Report each row that breaks a rule to ``refusals``, with the first rule that it breaks.

    ``columns`` are those of :func:`.plain_columns` for ``rows`` rows. ``multicast`` says whether
    this queue manager sends multicast.
    """
    refuse = refusals.add_all
    destination = columns.get("destination")
    if destination is None or destination.null_count:
        missing = (
            pa.array([True] * rows, pa.bool_()) if destination is None else destination.is_null()
        )
        refuse(
            missing,
            NO_DESTINATION,
            "destination is null",
            "every row needs one, or the option destination",
        )
    # A column that is null in every row is absent.
    body = columns.get("body")
    if rows and (body is None or body.null_count):
        missing = pa.array([True] * rows, pa.bool_()) if body is None else body.is_null()
        refuse(
            missing,
            NO_BODY,
            "column body is null",
            "a message has a body; if it is meant to be empty, write coalesce(body, '')",
        )
    sizes = pa.array(body_sizes(columns, rows))
    refuse(
        pc.greater(sizes, BODY_MAX),
        TOO_LARGE,
        f"body and extension have at most BODY_MAX = {BODY_MAX} bytes",
        "MSMQ's limit",
        sizes,
    )
    for name, reason, limit in _TEXTS:
        # Addresses repeat, so each is checked once. The rows are checked only to name those that
        # are refused.
        if name in columns and (
            name == "label" or _is_refused(pc.unique(columns[name]), name, limit)
        ):
            for rule in _text_rules(columns[name], name, limit):
                refuse(rule.bad, reason, rule.what, rule.hint, rule.shown)
    for name, reason, form, what, hint in _FORMS:
        if name in columns:
            refuse(
                pc.invert(pc.match_substring_regex(columns[name], form)),
                reason,
                f"{name} {what}",
                hint,
                columns[name],
            )
            if has_lists(columns[name]):
                _check_lists(columns[name], name, reason, re.compile(form), what, refusals)
    for name, reason, limit in _NUMBERS:
        if name in columns:
            bad = pc.or_(pc.less(columns[name], 0), pc.greater(columns[name], limit))
            refuse(bad, reason, f"{name} lies between 0 and {limit}", "change it", columns[name])
    _check_lengths(columns, refusals)
    if "time_to_reach_queue" in columns:
        at = columns["time_to_reach_queue"].cast(pa.int64())
        refuse(
            pc.or_(pc.less(at, 0), pc.greater(at, TIME_MAX)),
            BAD_TIME,
            "time_to_reach_queue lies outside 1970 to 9999",
            "change it",
        )
    if "delivery" in columns:
        bad = pc.invert(pc.is_in(columns["delivery"], value_set=pa.array([*DELIVERIES, None])))
        refuse(
            bad,
            BAD_DELIVERY,
            f"delivery is none of {', '.join(DELIVERIES)}",
            "null means transactional",
            columns["delivery"],
        )
    if destination is not None:
        _check_destinations(columns, rows, destination, addresses, refusals, multicast=multicast)


def _check_lengths(columns: Mapping[str, pa.Array], refusals: Refusals) -> None:
    """Check the columns whose values have a length in bytes."""
    if "correlation_id" in columns:
        lengths = pc.binary_length(columns["correlation_id"])
        refusals.add_all(
            pc.not_equal(lengths, CORRELATION_BYTES),
            BAD_CORRELATION_ID,
            f"correlation_id has {CORRELATION_BYTES} bytes",
            "pad it",
            lengths,
        )
    if "key" in columns:
        lengths = pc.binary_length(columns["key"])
        refusals.add_all(
            pc.greater(lengths, KEY_BYTES_MAX),
            BAD_KEY,
            f"key has at most {KEY_BYTES_MAX} bytes",
            "use a hash of it",
            lengths,
        )


def _check_destinations(
    columns: Mapping[str, pa.Array],
    rows: int,
    destination: pa.Array,
    addresses: CanonicalDestinations,
    refusals: Refusals,
    *,
    multicast: bool,
) -> None:
    """Check each spelling of a destination once, and then the rules of its transport."""
    encoded = destination.dictionary_encode()
    # A null has no index, and is refused already.
    indices = pc.fill_null(encoded.indices, 0).to_numpy(zero_copy_only=False)
    transports: list[Transport | None] = []
    for index, spelled in enumerate(encoded.dictionary.to_pylist()):
        try:
            addresses.elements(spelled)
        except BatchError as error:  # noqa: PERF203  # the other spellings are checked too
            transports.append(None)
            for row in np.flatnonzero((indices == index) & refusals.good):
                refusals.add(int(row), BAD_DESTINATION, error.message, error.hint)
        else:
            transports.append(addresses.transport(spelled))
    for transport, check in _TRANSPORT_CHECKS.items():
        if transport in transports:
            is_chosen = np.array([each is transport for each in transports])
            chosen = np.flatnonzero(is_chosen[indices] & refusals.good)
            if len(chosen):
                check(ChosenRows(columns, rows, chosen, refusals.add, multicast))


_TRANSPORT_CHECKS: Mapping[Transport, Callable[[ChosenRows], None]] = {
    Transport.MULTICAST: check_multicast_rows,
    Transport.RELIABLE: check_reliable_rows,
}
"""Transport → check of its rows, if there are rules beyond those for every row."""


class _Rule(NamedTuple):
    """A condition that no row of a column may fulfil, with the texts of the refusal."""

    bad: pa.Array
    """Mask of the rows that fulfil the condition; a null means that the row does not."""
    what: str
    hint: str
    shown: pa.Array | None = None


def _text_rules(column: pa.Array, name: str, limit: int) -> Iterator[_Rule]:
    lengths = pc.utf8_length(column)
    # MSMQ counts WCHARs: a character beyond 16 bits counts twice.
    if name == "label":
        lengths = pc.add(lengths, pc.count_substring_regex(column, "[\\x{10000}-\\x{10ffff}]"))
    else:
        # The names of a list are checked one by one later.
        too_long = pc.and_not(
            pc.greater(lengths, ADDRESS_LENGTH_MAX), pc.match_substring(column, ",")
        )
        yield _Rule(
            too_long, f"{name} has at most {ADDRESS_LENGTH_MAX} characters", "shorten it", lengths
        )
    yield _Rule(
        pc.greater(lengths, limit), f"{name} has at most {limit} characters", "shorten it", lengths
    )
    odd = pc.match_substring_regex(column, _NOT_XML)
    yield _Rule(odd, f"{name} has a control character", "XML cannot carry it")
    if name != "label":
        bare = pc.match_substring_regex(column, _NOT_AN_ADDRESS)
        yield _Rule(bare, f"{name} is empty or has white space around it", "null means none")


def _is_refused(column: pa.Array, name: str, limit: int) -> bool:
    return any(pc.any(rule.bad, min_count=0).as_py() for rule in _text_rules(column, name, limit))


def _check_lists(
    column: pa.Array,
    name: str,
    reason: str,
    form: re.Pattern[str],
    what: str,
    refusals: Refusals,
) -> None:
    """Check the values of a column of response or admin queues that are lists.

    Each name of a list must have the form ``form``, else ``what`` states the problem. The lists are
    for ``<ResponseMqf>`` and ``<AdminMqf>``.
    """
    encoded = column.dictionary_encode()
    problems = [_problem_of_list(text, form, what) for text in encoded.dictionary.to_pylist()]
    if not any(problems):
        return
    for row, index in enumerate(encoded.indices.to_pylist()):
        if index is not None and (problem := problems[index]) is not None:
            hint = "several format names are separated by commas"
            refusals.add(row, reason, f"{name} {problem}", hint)


def _problem_of_list(text: str, form: re.Pattern[str], what: str) -> str | None:
    if "," not in text:
        return None
    try:
        wrong = next((each for each in names_of(text) if not form.search(each)), None)
    except ValueError as error:
        return str(error)
    return None if wrong is None else f"holds {wrong[:100]!r}, which {what}"
