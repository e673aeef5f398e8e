"""``format("mqrr")`` as a stream: a subscription of a local queue manager, and its log.

The subscription is made when the query first asks for an offset, unless it exists. The subscription
stays when the query ends, because pulled messages are in the log and the next start reads them
there. ``srmp-spark subscribe remove`` ends it. The first read of the log waits for what is in the
remote queue (:mod:`.first_pass`).
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from srmp_spark.client.subscriptions import SubscriptionsClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.interface import SubscriptionEntry
from srmp_spark.spark.embedded import locate
from srmp_spark.spark.reading.first_pass import FirstPass, Subscribed
from srmp_spark.spark.reading.stream_reader import SrmpStreamReader
from srmp_spark.spark.settings.mqrr_options import RemoteOptions
from srmp_spark.spark.settings.options import SourceOptions, parse

_UNKNOWN_YET = "private$/subscription"
"""Stands in place of the local queues until the queue manager has named them."""


class MqrrStreamReader(SrmpStreamReader):
    """Reads the local queues that remote queues are pulled into, as ``format("srmp")`` does."""

    def __init__(self, remote: RemoteOptions, schema: StructType | None = None) -> None:
        """Check the options. Raises :class:`ConfigurationError` for the first problem.

        Nothing is asked or started yet, because Spark makes this object several times.
        """
        super().__init__(_log_options(remote, _UNKNOWN_YET), schema)
        self._remote = remote
        self._pass: FirstPass | None = None
        self._is_first = True

    def __repr__(self) -> str:
        return (
            f"<MqrrStreamReader host={self._remote.host.text} "
            f"queues={','.join(self._remote.queues)}>"
        )

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802  # Spark's name
        """Wait until the remote queues were read, at most PASS_SECONDS (:mod:`.first_pass`).

        Then the ends of the logs are the goal of this run.

        Raises :class:`RemoteQueueError` if a queue cannot be read.
        """
        self._subscribed().wait_or_fail()
        self._is_first = False
        super().prepareForTriggerAvailableNow()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802  # Spark's name
        """Return the offset at which the next batch ends.

        The rules are those of :meth:`.SrmpStreamReader.latestOffset`. The first batch of a
        continuous query waits a short time (FIRST_BATCH_SECONDS) for messages in the remote queues.
        New problems of the subscriptions are logged.
        """
        if self._is_first:
            self._is_first = False
            self._subscribed().wait_a_little()
        self._subscribed().tell()
        return super().latestOffset(start, limit)

    def _subscribed(self) -> FirstPass:
        """Subscribe to the remote queues at the first call; return the object that watches them."""
        self._here()
        assert self._pass is not None
        return self._pass

    def _here(self) -> Any:  # noqa: ANN401  # the base class returns a private type
        if self._driver is None:
            began = time.monotonic()
            client, queues = subscribed(self._remote, self._options)
            self._pass = FirstPass(client, queues, began)
            self._options = _log_options(self._remote, ",".join(each.to for each in queues))
        return super()._here()


def _log_options(remote: RemoteOptions, queues: str) -> SourceOptions:
    if "queueManager" not in remote.stream and "dataDir" not in remote.stream:
        raise ConfigurationError(
            "option queueManager is missing: a stream reads the log of a queue manager "
            "of yours that pulls the queues of "
            f"{remote.host.text} (or dataDir and listen to embed one); a batch "
            f"(spark.read) reads {remote.host.text} itself"
        )
    return replace(parse({**remote.stream, "queue": queues}), columns=remote.columns)


def subscribed(
    remote: RemoteOptions, options: SourceOptions
) -> tuple[SubscriptionsClient, list[Subscribed]]:
    """Subscribe to the remote queues that have no subscription yet.

    Return the client that reports the state of the subscriptions, and one :class:`.Subscribed` for
    each remote queue. An embedded queue manager is started if necessary. Raises
    :class:`ConfigurationError` if a subscription exists with another mode, and the errors of the
    queue manager.
    """
    if options.data_dir is not None and not any(
        flag == "listen" for flag, _ in options.serve_flags
    ):
        options = replace(options, serve_flags=(*options.serve_flags, ("listen", "127.0.0.1:0")))
    url = locate(options, needs_queues=False).urls
    if len(url) != 1:
        raise ConfigurationError(
            "option queueManager: one queue manager pulls the queues, and several are named"
        )
    client = SubscriptionsClient(url[0], options.token, allow_plain_token=options.allow_plain_token)
    there = client.status()["subscriptions"]
    return client, [_subscribed(client, remote, queue, there) for queue in remote.queues]


def _subscribed(
    client: SubscriptionsClient, remote: RemoteOptions, queue: str, there: list[SubscriptionEntry]
) -> Subscribed:
    name = queue.replace("/", "\\").lower()
    found = next(
        (
            each
            for each in there
            if each["host"] == remote.host.text and each["queue"].lower() == name
        ),
        None,
    )
    lives = found is not None and found["mode"] is not None and not found.get("removing")
    if found is not None and lives:
        if remote.mode is not None and found["mode"] != remote.mode:
            raise ConfigurationError(
                f"option mode: {client.url} reads {queue} of {remote.host.text} with mode "
                f"{found['mode']}, not {remote.mode}: "
                "leave the option out, or change the subscription first: `srmp-spark "
                "subscribe add` with --mode, or the "
                "configuration file"
            )
        if found.get("configured") or not remote.account:
            return Subscribed(remote.host.text, queue, str(found["to"]), is_made=False)
    entry = {
        "host": remote.host.text,
        "queue": queue,
        "mode": remote.mode or (found["mode"] if found and lives else None),
    }
    if found is not None and found["to"]:
        entry["to"] = found["to"]
    to = str(client.subscribe({**entry, **remote.account})["to"])
    return Subscribed(remote.host.text, queue, to, is_made=found is None)
