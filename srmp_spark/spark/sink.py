"""``df.writeStream.foreachBatch(SrmpSink(…))``: send a micro-batch as messages.

The sink uses ``df.write.format("srmp")`` (:mod:`srmp_spark.spark.writer`) with the number of the
micro-batch, so the sink works in a Spark Connect session too. Use :class:`SrmpSink` in place of
``writeStream.format("srmp")`` if a batch is also written elsewhere, or must be shaped by code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING, NoReturn, cast

from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.spark.settings.sink_options import (
    BodyFormatName,
    OnBadRowName,
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
"""Longest wait, in seconds, for the result of a batch from a queue manager that does not answer.

The batch is committed then, and the query continues without the result.
"""
_QUERY_ID = "sql.streaming.queryId"
"""Name of a local property of the thread that runs a micro-batch."""

_log = logging.getLogger(__name__)


class SrmpSink:
    """Sends each row of a micro-batch as a message, exactly once and in order.

    Pass the object to ``foreachBatch``:

        sink = SrmpSink(queueManager="http://127.0.0.1:8081",
                        destination="DIRECT=http://host/msmq/private$/orders", orderBy="sequence")
        query = df.writeStream.foreachBatch(sink).option("checkpointLocation", "…").start()

    | option | meaning |
    |---|---|
    | ``queueManager`` | API URL of the one queue manager that sends |
    | ``destination`` | format name or URL of the queue; replaces the column ``destination`` |
    | ``orderBy`` | order of a micro-batch, ascending, nulls first; default: partition, row |
    | ``application`` | owner of the rows; default: the query id; required in Spark Connect |
    | ``deadLetterQueue`` | transactional queue of that queue manager that also gets dead letters |
    | ``deadLetter`` | ``True``: a final stream receipt finishes a message; else a stream receipt |
    | ``onBadRow`` | fate of rows that can never be sent: ``fail``, ``dead-letter``, ``skip`` |
    | ``onKeyConflict`` | fate of conflicts: ``fail`` (default), ``ignore``, ``dead-letter`` |
    | ``allowLoop`` | ``True``: a row may return to the queue that it was read from |
    | ``bodyFormat`` | form of a string body: ``raw`` (default), ``activex``, ``xml`` |
    | ``soap_action`` | for ``wsrm:URL``: wsa:Action of the service's operation; or the column |
    | ``wsrm_version`` | for ``wsrm:URL``: default 1.1; or the column |
    | ``soap_version`` | for ``wsrm:URL``: default 1.2; or the column |
    | ``wsa_version`` | for ``wsrm:URL``: default 2005/08; or the column |
    | ``token`` | API token; default: environment ``SRMP_SPARK_TOKEN`` |
    | ``allowPlainToken`` | send the token over plain HTTP beyond loopback |

    A row that can never be sent has no body, no destination, a label that is too long, and so on
    (docs/poison-rows.md). ``fail`` fails its batch. ``dead-letter`` sends the rest of the batch and
    puts a letter about the row into ``deadLetterQueue``. ``skip`` sends the rest, and the row is
    counted in :attr:`result` and in a warning.

    A conflict is a row whose key or source position was sent before with other content. ``fail``
    refuses its batch, ``ignore`` does not send the row, and ``dead-letter`` makes the row a dead
    letter. Without the option, a conflict has the fate of ``onBadRow``. A final stream receipt
    arrives when the receiving application has received the message. ``allowPlainToken`` has a risk:
    others on the network can read the token.

    The column ``body`` (binary or string) is required. The columns ``destination``, ``label``,
    ``priority``, ``correlation_id``, ``app_specific``, ``body_type``, ``response_queue``,
    ``admin_queue``, ``time_to_reach_queue``, ``extension``, ``key``, ``delivery`` and
    ``transaction`` are used if they exist. Other columns are ignored. A name that is one slip away
    from a missing column of these (``lable``) is an error.

    A row counts once for each application and destination. The row is identified by ``key``, else
    by ``queue_manager, epoch, queue, sequence`` if the frame has all four columns, else by its
    content within the micro-batch of its query. So two sinks in one function that send equal rows
    to one destination send them once. Two sinks that make different messages of one row are refused
    (``position-conflict``). Give each sink its own ``application`` from the start.

    A new or changed ``application`` or ``key`` makes rows new. If two sinks were started without an
    ``application``, change the one that was refused, and leave the other unchanged. Rows that were
    sent before are counted in a warning of the logger ``srmp_spark.spark.writer``.

    Spark Connect does not show the query id. So rows without key and position need an
    ``application`` of their own there, for each query and checkpoint. Otherwise rows of one query
    count as repeats of another query's rows and are **not sent**.

    ``sink.result`` has the result of the last micro-batch. Options may be written in any case, as
    in ``.option(…)``. The constructor raises :class:`ConfigurationError` for a wrong or unknown
    option. A call raises it for columns that do not fit.
    """

    def __init__(
        self,
        *,
        queueManager: str | None = None,  # noqa: N803  # name of the option
        destination: str | None = None,
        orderBy: str | Sequence[str] | None = None,  # noqa: N803
        application: str | None = None,
        deadLetter: bool = False,  # noqa: N803
        deadLetterQueue: str | None = None,  # noqa: N803
        onBadRow: OnBadRowName = "fail",  # noqa: N803
        onKeyConflict: OnKeyConflictName | None = None,  # noqa: N803
        allowLoop: bool = False,  # noqa: N803
        bodyFormat: BodyFormatName = "raw",  # noqa: N803
        soap_action: str | None = None,
        wsrm_version: str | None = None,
        soap_version: str | None = None,
        wsa_version: str | None = None,
        token: str | None = None,
        allowPlainToken: bool = False,  # noqa: N803
        # Type checkers accept no other name. At run time another case is accepted, and others
        # refused.
        **misspelt: NoReturn,
    ) -> None:
        given: dict[str, object] = {
            "queueManager": queueManager,
            "destination": destination,
            "orderBy": orderBy,
            "application": application,
            "deadLetter": deadLetter,
            "deadLetterQueue": deadLetterQueue,
            "onBadRow": onBadRow,
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
        """The result of the last micro-batch: numbers of ``new``, ``known`` and conflicting rows.

        The attribute ``bad`` of the result is the number of rows that can never be sent.
        ``None`` if the batch had no rows, or if the queue manager did not answer afterwards.
        """
        if self._application is None and _session_is_remote():
            raise ConfigurationError(_APPLICATION_NEEDED)

    def __repr__(self) -> str:
        return (
            f"<SrmpSink {self._options.get('destination', 'by column')} at "
            f"{self._options['queueManager']}>"
        )

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Send the rows of a micro-batch, and set :attr:`result`.

        Either all rows become outgoing messages, or none does. Raises :class:`ConfigurationError`
        if no streaming query calls the sink and it has no ``application``, and the errors of the
        write.
        """
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
    "other checkpoint uses: otherwise rows of one query count as repeats of another's and "
    "are not sent"
)


def _result_of(options: dict[str, str], target: Target) -> CommitAnswer | None:
    """Ask the queue manager for the result of a committed batch.

    Return ``None`` if there is none or if the call fails, because the batch is committed already.
    Spark commits the batch in another process, and does not pass on the result.
    """
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
    except SrmpSparkError as error:
        # The batch is committed. A missing result must not fail the batch.
        _log.info("sink.result_unknown application=%s batch=%s reason=%s", *target, error)
        return None


def _query_id(batch: DataFrame) -> str | None:
    """Return the id of the query that calls the sink.

    Return ``None`` if no query calls it, or in Spark Connect, which does not show the id.
    """
    if type(batch).__module__.startswith("pyspark.sql.connect"):
        return None
    found: str | None = batch.sparkSession.sparkContext.getLocalProperty(_QUERY_ID)
    return found


def _session_is_remote() -> bool:
    # The import is here, so that only users of the sink load pyspark.
    from pyspark.sql.utils import is_remote

    return is_remote()


def _text(value: object) -> str:
    """Return the value of an option as the text that Spark expects."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if not isinstance(value, Sequence):
        return str(value)
    import json

    return json.dumps(list(value))
