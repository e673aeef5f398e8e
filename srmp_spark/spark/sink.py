"""``df.writeStream.foreachBatch(SrmpSink(…))``: a micro-batch as messages of a queue.

Underneath it is ``df.write.format("srmp")`` (:mod:`srmp_spark.spark.writer`) with the number of the micro-batch, and so works
in a Spark Connect session too. Use it rather than ``writeStream.format("srmp")`` where a batch also goes elsewhere, or must be
shaped by code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, cast

from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.spark.sink_options import (
    BodyFormatName,
    OnKeyConflictName,
    Target,
    check_stream_sink,
    option_name,
    parse_sink,
    target_of,
)

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from srmp_spark.client.outbox_batches import CommitAnswer

RESULT_SECONDS = 5.0
"""How long a queue manager that is away is asked for what became of a batch. The batch is committed; the query goes on."""
_QUERY_ID = "sql.streaming.queryId"
"""Local property of the thread that runs a micro-batch."""

_log = logging.getLogger(__name__)


class SrmpSink:
    """A function for ``foreachBatch`` that sends each row as a message, exactly once and in order.

        sink = SrmpSink(queueManager="http://127.0.0.1:8081", destination="DIRECT=http://host/msmq/private$/orders",
                        orderBy="sequence")
        query = df.writeStream.foreachBatch(sink).option("checkpointLocation", "…").start()

    | option | meaning |
    |---|---|
    | ``queueManager`` | API URL of the queue manager that sends (one) |
    | ``destination`` | format name or URL of the queue; wins over the column ``destination`` |
    | ``orderBy`` | column or columns that order a micro-batch, ascending, nulls first. Default: partition, then row |
    | ``application`` | whose rows these are; default: the id of the query. Required in Spark Connect, which shows none |
    | ``deadLetterQueue`` | a transactional queue of that queue manager: a dead letter is a row there, too |
    | ``deadLetter`` | ``True``: a message is finished when the receiving application took it; else by its stream receipt |
    | ``onKeyConflict`` | ``fail`` (default), ``ignore``, ``dead-letter``: of a row whose key or position has another content |
    | ``allowLoop`` | ``True``: a row may return to the queue that it came from |
    | ``bodyFormat`` | ``raw`` (default), ``activex``, ``xml``: how a string body is written |
    | ``soap_action`` | of messages for ``wsrm:URL``: the wsa:Action of the service's operation; or the column of this name |
    | ``wsrm_version``, ``soap_version``, ``wsa_version`` | in which versions they leave: 1.1, 1.2, 2005/08; or columns |
    | ``token`` | API token; default: environment ``SRMP_SPARK_TOKEN`` |
    | ``allowPlainToken`` | send the token over plain HTTP beyond loopback, where others can read it |

    Columns: ``body`` (binary or string) is required; ``destination``, ``label``, ``priority``, ``correlation_id``,
    ``app_specific``, ``body_type``, ``response_queue``, ``admin_queue``, ``time_to_reach_queue``, ``extension``, ``key``,
    ``delivery`` and ``transaction`` are used if they are there, others are ignored. A name that one slip tells from a column
    of these that is not there (``lable``) is an error.

    A row counts once per application and destination: by ``key``; else by ``queue_manager, epoch,
    queue, sequence`` if the frame has all four; else by its content within the micro-batch of its
    query. So two sinks in one function that send equal rows to one destination send them once, and
    two that make different messages of one row are refused (``position-conflict``): give each sink
    its own ``application`` from the start. A new or changed ``application`` or ``key`` makes rows
    new: of two sinks that were started without, change the one that was refused, and leave the
    other. Rows that were sent before are counted in a warning of the logger
    ``srmp_spark.spark.writer``. Spark Connect shows no query: there rows without key and position
    need an ``application`` of their own for each query and checkpoint, else rows of one are
    taken for repeats of the other's and are **not sent**.

    ``sink.result`` tells what became of the rows of the last micro-batch.

    Options may be written in any case, as in ``.option(…)``. Raises :class:`ConfigurationError` for an option that is wrong or
    unknown, when made; for columns that do not fit, when called.
    """

    def __init__(
        self,
        *,
        queueManager: str | None = None,  # noqa: N803  # the options' names
        destination: str | None = None,
        orderBy: str | Sequence[str] | None = None,  # noqa: N803
        application: str | None = None,
        deadLetter: bool = False,  # noqa: N803
        deadLetterQueue: str | None = None,  # noqa: N803
        onKeyConflict: OnKeyConflictName | None = None,  # noqa: N803
        allowLoop: bool = False,  # noqa: N803
        bodyFormat: BodyFormatName = "raw",  # noqa: N803
        soap_action: str | None = None,
        wsrm_version: str | None = None,
        soap_version: str | None = None,
        wsa_version: str | None = None,
        token: str | None = None,
        allowPlainToken: bool = False,  # noqa: N803
        **misspelt: NoReturn,  # for type checkers none is right; at run time they are told, or only written in another case
    ) -> None:
        given: dict[str, object] = {
            "queueManager": queueManager,
            "destination": destination,
            "orderBy": orderBy,
            "application": application,
            "deadLetter": deadLetter,
            "deadLetterQueue": deadLetterQueue,
            "onKeyConflict": onKeyConflict,
            "allowLoop": allowLoop or None,
            "bodyFormat": bodyFormat,
            "soap_action": soap_action,
            "wsrm_version": wsrm_version,
            "soap_version": soap_version,
            "wsa_version": wsa_version,
            "token": token,
            "allowPlainToken": allowPlainToken,
        }
        for key, value in cast("dict[str, object]", misspelt).items():
            given[option_name(key)] = value
        self._options = {name: _text(value) for name, value in given.items() if value is not None}
        options = parse_sink(self._options)
        check_stream_sink(options)
        self._application = options.application
        self.result: CommitAnswer | None = None
        """What became of the rows of the last micro-batch: ``new`` messages, ``known`` from before, ``conflicts``. ``None`` if
        the batch had no rows, or if the queue manager could not be asked afterwards."""
        if self._application is None and _session_is_remote():
            raise ConfigurationError(_APPLICATION_NEEDED)

    def __repr__(self) -> str:
        return (
            f"<SrmpSink {self._options.get('destination', 'by column')} at "
            f"{self._options['queueManager']}>"
        )

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Send the rows of a micro-batch; none is on its way unless all are."""
        query = _query_id(batch)
        if self._application is None and query is None:
            if type(batch).__module__.startswith("pyspark.sql.connect"):
                raise ConfigurationError(_APPLICATION_NEEDED)
            raise ConfigurationError(_NO_QUERY)
        target = target_of(self._application, query, str(batch_id))
        options = {**self._options, "application": target.application, "batch": target.batch}
        batch.write.format("srmp").mode("append").options(**options).save()
        self.result = _result_of(options, target)


_NO_QUERY = (
    "SrmpSink was not called by a streaming query: give application=…, or use "
    "df.write.format('srmp').mode('append')"
)
_APPLICATION_NEEDED = (
    "Spark Connect shows no query id to foreachBatch: give SrmpSink(application=…), a "
    "name that stays the same for as long "
    "as a row must not be sent twice. Rows without key and without source position need a "
    "name that no other query and no "
    "other checkpoint uses: rows of one would be taken for repeats of the other's and not be sent"
)


def _result_of(options: dict[str, str], target: Target) -> CommitAnswer | None:
    """Ask what became of a batch: Spark commits it in a process of its own, and hands on nothing that this one answers."""
    from srmp_spark.client.outbox_batches import OutboxClient

    parsed = parse_sink(options)
    client = OutboxClient(
        parsed.queue_manager,
        parsed.token,
        retry_seconds=RESULT_SECONDS,
        allow_plain_token=parsed.allow_plain_token,
    )
    try:
        return client.result(*target)
    except SrmpSparkError as error:  # the batch is committed: what cannot be told must not fail it
        _log.info("sink.result_unknown application=%s batch=%s reason=%s", *target, error)
        return None


def _query_id(batch: DataFrame) -> str | None:
    """The query that calls us; ``None`` if none does, or nobody says which."""
    if type(batch).__module__.startswith("pyspark.sql.connect"):
        return None
    found: str | None = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    return found


def _session_is_remote() -> bool:
    from pyspark.sql.utils import is_remote  # pyspark is loaded only by those who use it

    return is_remote()


def _text(value: object) -> str:
    """An option as Spark takes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, Sequence):
        return str(value)
    import json

    return json.dumps(list(value))
