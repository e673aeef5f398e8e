"""The options of the sink, as one table for the checks and the documentation.

INTERFACE.md section 4 describes the options. As in :mod:`srmp_spark.spark.settings.options`,
unknown options are refused, and the nearest known name is suggested. Spark passes the names of a
write in lower case, so errors spell them as this table does.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from srmp_spark.canonical_url import canonical_outgoing
from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import RELIABLE_VERSIONS
from srmp_spark.names import dead_letter_queue_name, format_names
from srmp_spark.spark.settings.local_destinations import instead_of
from srmp_spark.spark.settings.option_values import OptionSpec, api_url, boolean, choice, token
from srmp_spark.spark.settings.options import SERVE_OPTIONS, SOURCE_OPTIONS
from srmp_spark.transports import transport_of

BodyFormatName = Literal["raw", "activex", "xml"]
OnKeyConflictName = Literal["fail", "ignore", "dead-letter"]
OnBadRowName = Literal["fail", "dead-letter", "skip"]

CONFLICTS_OF: Mapping[OnBadRowName, OnKeyConflictName] = {
    "dead-letter": "dead-letter",
    "skip": "ignore",
}
"""``onBadRow`` → ``onKeyConflict`` where the user gave the first option alone.

A row whose key was used for other content can never be sent, too.
"""

APPLICATION_LENGTH_MAX = 200
"""Largest length of an application's name, in characters.

The name is part of a URL, and people read it in the state tables.
"""

SINK_OPTIONS: tuple[OptionSpec, ...] = (
    OptionSpec(
        "queueManager",
        "both",
        "API URL of the queue manager that sends.",
        kind="URL",
        limits="Required; one URL, because one queue manager keeps the order.",
    ),
    OptionSpec(
        "destination",
        "both",
        "Format name or URL of the queue to send to; several with commas. It wins over the column.",
        kind="format names",
        default="the column destination",
        limits=("At most 100, each once. A multicast address or a wsrm:URL stands alone."),
    ),
    OptionSpec(
        "orderBy",
        "both",
        "Columns that order the messages of a batch, ascending, nulls first.",
        kind="names, comma separated, or a JSON list",
        default="partition and row",
        limits="Each column once. Needed whenever the query shuffles.",
    ),
    OptionSpec(
        "application",
        "both",
        "Whose rows these are: a key or a source position counts once for each application and "
        "destination.",
        default="the query id; of a batch write a new name",
        limits=("1 to 200 printable characters. Required for SrmpSink in Spark Connect."),
    ),
    OptionSpec(
        "deadLetter",
        "both",
        "false: a message is finished by its stream receipt. true: by the final stream receipt, "
        "when the receiving application has taken it.",
        kind="true or false",
        default="false",
    ),
    OptionSpec(
        "deadLetterQueue",
        "both",
        "A queue of the sending queue manager in which each dead letter becomes a row. Without "
        "it the tables of --state alone have them.",
        kind="name",
        limits="The queue must be transactional.",
    ),
    OptionSpec(
        "onBadRow",
        "both",
        "What becomes of a row that can never be sent, such as one without a body: its batch "
        "fails; or the others are sent, and the row becomes a letter in deadLetterQueue, or is "
        "only counted.",
        kind="fail, dead-letter or skip",
        default="fail",
        limits="dead-letter needs deadLetterQueue, which must exist when the query starts.",
    ),
    OptionSpec(
        "onKeyConflict",
        "both",
        "What becomes of a row whose key or source position was sent with other content: the "
        "batch is refused, the row is not sent, or it becomes a dead letter.",
        kind="fail, ignore or dead-letter",
        default="as onBadRow: fail, ignore (skip) or dead-letter",
    ),
    OptionSpec(
        "allowLoop",
        "both",
        "true: a row may return to the queue that it came from, where a query would read it "
        "again. false: its batch is refused.",
        kind="true or false",
        default="false",
    ),
    OptionSpec(
        "bodyFormat",
        "both",
        "How strings become bodies: UTF-8 (raw), UTF-16LE with body_type 8 (activex), or what "
        ".NET's XmlMessageFormatter writes (xml).",
        kind="raw, activex or xml",
        default="raw",
    ),
    OptionSpec(
        "soap_action",
        "both",
        "wsa:Action by which the service knows its operation. It wins over the column, as do the "
        "next three.",
        default="the column soap_action",
        limits=("Required for wsrm:URL; without effect, and refused, for other destinations."),
    ),
    OptionSpec(
        "wsrm_version",
        "both",
        "Version of WS-ReliableMessaging of messages for wsrm:URL; 1.0 is WCF's own.",
        kind="1.0, 1.1 or 1.2",
        default="1.1",
        limits="For wsrm:URL alone.",
    ),
    OptionSpec(
        "soap_version",
        "both",
        "Version of SOAP of messages for wsrm:URL; 1.1 is WCF's basicHttpBinding.",
        kind="1.1 or 1.2",
        default="1.2",
        limits="For wsrm:URL alone.",
    ),
    OptionSpec(
        "wsa_version",
        "both",
        "Version of WS-Addressing of messages for wsrm:URL.",
        kind="2004/08 or 2005/08",
        default="2005/08",
        limits="2004/08 needs wsrm_version 1.0.",
    ),
    OptionSpec(
        "token",
        "both",
        "Token of the API.",
        default="the variable SRMP_SPARK_TOKEN",
    ),
    OptionSpec(
        "allowPlainToken",
        "both",
        "true sends the token over plain HTTP beyond loopback, where others can read it.",
        kind="true or false",
        default="false",
    ),
    OptionSpec(
        "batch",
        "batch",
        "Which write of the application this is. SrmpSink sets the number of the micro-batch.",
        default="a new name",
        limits="1 to 200 printable characters. A stream refuses it.",
    ),
)

_KNOWN = {spec.name.lower(): spec.name for spec in SINK_OPTIONS}
_SPARK_OWN = frozenset({"checkpointlocation"})
"""Options of a streaming query that Spark reads itself, and that it passes to the sink too."""
_SOURCE_ONLY = {
    name.lower(): name for name in (*(spec.name for spec in SOURCE_OPTIONS), *SERVE_OPTIONS)
}
_INSTEAD = {"queue": "destination", "consumer": "application"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options of the sink.

    The options are pickled into tasks, and no repr shows the token.
    """

    queue_manager: str
    destination: str | None = None
    """The option ``destination``, or ``None`` if the column states the destination of each row."""
    order_by: tuple[str, ...] = ()
    application: str | None = None
    dead_letter: bool = False
    dead_letter_queue: str | None = None
    on_key_conflict: OnKeyConflictName | None = None
    """The option ``onKeyConflict``.

    ``None`` means ``fail``, and works with a queue manager that knows no other value.
    """
    on_bad_row: OnBadRowName = "fail"
    allow_loop: bool = False
    body_format: BodyFormatName = "raw"
    reliable: tuple[tuple[str, str], ...] = ()
    """Pairs of name and value: ``soap_action`` and the versions that are given as options."""
    token: str | None = field(default=None, repr=False)
    allow_plain_token: bool = False
    batch: str | None = None
    checkpoint: str | None = None
    """The option ``checkpointLocation``, if the user gave it to the query by this option."""


def parse_sink(options: Mapping[str, str]) -> SinkOptions:
    """Check everything that can be checked without a DataFrame, and return the checked options.

    Raises :class:`ConfigurationError` for the first problem.
    """
    values = _canonical(options)
    on_bad_row = _on_bad_row(values.get("onBadRow", "fail"), values.get("deadLetterQueue"))
    return SinkOptions(
        queue_manager=_url(values.get("queueManager")),
        destination=_destination(values.get("destination"), values),
        order_by=_columns(values.get("orderBy")),
        application=_name("application", values.get("application")),
        dead_letter=boolean("deadLetter", values.get("deadLetter", "false")),
        dead_letter_queue=_dead_letter_queue(values.get("deadLetterQueue")),
        on_bad_row=on_bad_row,
        on_key_conflict=_on_key_conflict(values.get("onKeyConflict"), on_bad_row),
        allow_loop=boolean("allowLoop", values.get("allowLoop", "false")),
        body_format=_body_format(values.get("bodyFormat", "raw")),
        reliable=_reliable(values),
        token=token(values),
        allow_plain_token=boolean("allowPlainToken", values.get("allowPlainToken", "false")),
        batch=_name("batch", values.get("batch")),
        checkpoint=values.get("checkpointlocation"),
    )


class Target(NamedTuple):
    """The application and the batch to which stages (rows that wait for a commit) belong."""

    application: str
    batch: str


def target_of(application: str | None, query: str | None, batch: str) -> Target:
    """Return the names by which the queue manager knows a micro-batch.

    Each checkpoint counts its batches from 0. So for a named application the number alone would
    name many batches, and rows that are identified by their content would count as those of another
    query. So the batch is named ``QUERY:NUMBER``. The state tables show the number.
    """
    if application is None:
        assert query is not None, "one of them says whose rows these are"
        return Target(query, batch)
    return Target(application, batch if query is None else f"{query}:{batch}")


def check_stream_sink(options: SinkOptions) -> None:
    """Check the rules of ``writeStream.format("srmp")``.

    Raises :class:`ConfigurationError` if a rule is broken.
    """
    if options.batch is not None:
        raise ConfigurationError(
            "option batch has no effect here: a streaming query numbers its batches "
            "itself; leave it out"
        )


def _canonical(options: Mapping[str, str]) -> dict[str, str]:
    values: dict[str, str] = {}
    for key, value in options.items():
        lower = key.lower()
        if lower in _SPARK_OWN:
            values[lower] = value
            continue
        if lower == "path":
            raise ConfigurationError(
                f"format('srmp') has no path (got {value!r}): name the queue with "
                ".option('destination', …) and call "
                ".save() or .start() without one"
            )
        values[option_name(key)] = value.strip()
    return values


def option_name(key: str) -> str:
    """Return the name of an option as the table spells it. ``key`` may have any case.

    Raises :class:`ConfigurationError` for an unknown option.
    """
    name = _KNOWN.get(key.lower())
    if name is None:
        raise ConfigurationError(_unknown(key))
    return name


def _unknown(key: str) -> str:
    lower = key.lower()
    source = _SOURCE_ONLY.get(lower)
    if lower in _INSTEAD:
        return f"option {source!r} belongs to the source; did you mean {_INSTEAD[lower]!r}?"
    if lower == "datadir" or source in SERVE_OPTIONS:
        return (
            f"option {source!r} embeds a queue manager, which only the source does: "
            "give the sink queueManager, the API URL of one that runs"
        )
    close = difflib.get_close_matches(lower, list(_KNOWN), 1, 0.6)
    if close:
        return f"unknown option {key!r}; did you mean {_KNOWN[close[0]]!r}?"
    if source is not None:
        return f"option {source!r} belongs to the source and has no effect in a sink; leave it out"
    return f"unknown option {key!r}; known: {', '.join(sorted(_KNOWN.values(), key=str.lower))}"


def _dead_letter_queue(text: str | None) -> str | None:
    if text is None:
        return None
    try:
        return dead_letter_queue_name(text)
    except ValueError as error:
        raise ConfigurationError(f"option deadLetterQueue: {error}") from None


def _url(text: str | None) -> str:
    if not text:
        raise ConfigurationError(
            "option queueManager is missing: the API URL of a queue manager, for example http://127.0.0.1:8081"
        )
    if "," in text:
        raise ConfigurationError(
            f"option queueManager: the sink takes one URL, got {text!r}; one queue "
            "manager keeps the order of a queue"
        )
    return api_url(text)


def _destination(text: str | None, values: Mapping[str, str]) -> str | None:
    if text is not None and not text:
        raise ConfigurationError(
            "option destination is empty: give a format name or URL, for example "
            "DIRECT=http://host/msmq/private$/orders, "
            "or leave it out and name it in the column destination"
        )
    for name in () if text is None else format_names(text):
        try:
            canonical_outgoing(name)
        except ConfigurationError as error:  # noqa: PERF203  # runs rarely
            api, plain = (
                _url(values.get("queueManager")),
                boolean("allowPlainToken", values.get("allowPlainToken", "false")),
            )
            instead = instead_of(name, api, token(values), allow_plain_token=plain)
            raise ConfigurationError(f"option destination: {error}{instead}") from None
    return text


def _reliable(values: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return the given options for services of WS-ReliableMessaging, as pairs (name, value).

    Raises :class:`ConfigurationError` for an unknown version, an empty ``soap_action``, and if the
    options have no effect.
    """
    found = tuple(
        (name, values[name])
        for name in ("soap_action", "wsrm_version", "soap_version", "wsa_version")
        if name in values
    )
    destination = values.get("destination")
    if found and destination is not None and not transport_of(destination).rules.speaks_soap:
        raise ConfigurationError(
            f"option {found[0][0]} has no effect: destination {destination[:200]!r} is no "
            "service of WS-ReliableMessaging; "
            "leave it out, or write wsrm:URL"
        )
    given = dict(found)
    if not given.get("soap_action", "-"):
        raise ConfigurationError(
            "option soap_action is empty: give the wsa:Action of the service's operation"
        )
    for name, known in RELIABLE_VERSIONS.items():
        if name in given:
            choice(name, given[name], known)
    return found


def _columns(text: str | None) -> tuple[str, ...]:
    if text is None:
        return ()
    if text.startswith("["):
        try:
            found = json.loads(text)
        except ValueError as error:
            raise ConfigurationError(
                f'option orderBy: no JSON ({error}); expected ["first", "second"]'
            ) from None
        names = [name for name in found if isinstance(name, str)]
        if len(names) != len(found):
            raise ConfigurationError(f"option orderBy: expected names of columns, got {text}")
    else:
        names = [part.strip().strip("`") for part in text.split(",")]
    if not all(names):
        raise ConfigurationError(f"option orderBy: an empty name in {text!r}")
    for name in names:
        words = name.split()
        if len(words) == 2 and words[1].lower() in ("asc", "desc"):
            raise ConfigurationError(
                f"option orderBy: {name!r}; it takes names of columns and orders them "
                "ascending, nulls first. For another "
                "order add a column that has it, for example its negative"
            )
    lower = [name.lower() for name in names]
    if len(set(lower)) != len(lower):
        raise ConfigurationError(f"option orderBy names one column twice: {text}")
    return tuple(names)


def _name(option: str, text: str | None) -> str | None:
    if text is None:
        return None
    if not text or not text.isprintable() or len(text) > APPLICATION_LENGTH_MAX:
        raise ConfigurationError(
            f"option {option}: {text[:150]!r} is no name (1 to {APPLICATION_LENGTH_MAX} "
            "printable characters)"
        )
    return text


def _on_bad_row(text: str, dead_letter_queue: str | None) -> OnBadRowName:
    """Return the value of option ``onBadRow``.

    Raises :class:`ConfigurationError` for an unknown value, and if letters have no queue.
    """
    found = choice("onBadRow", text, get_args(OnBadRowName))
    if found == "dead-letter" and dead_letter_queue is None:
        raise ConfigurationError(
            "option deadLetterQueue is missing: onBadRow=dead-letter puts a letter about each row "
            "that can never be sent into that queue. Name a transactional queue of the queue "
            "manager that sends, for example private$/failed, or write onBadRow=skip"
        )
    return found  # type: ignore[return-value]  # checked by choice()


def _on_key_conflict(text: str | None, on_bad_row: OnBadRowName) -> OnKeyConflictName | None:
    if text is None:
        return CONFLICTS_OF.get(on_bad_row)
    return choice("onKeyConflict", text, get_args(OnKeyConflictName))  # type: ignore[return-value]  # checked by choice()


def _body_format(text: str) -> BodyFormatName:
    return choice("bodyFormat", text, get_args(BodyFormatName))  # type: ignore[return-value]  # checked by choice()
