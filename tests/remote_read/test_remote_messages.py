"""What ``backfill --source mqrr`` reads, without Spark: a queue or its journal, as it is or with locks."""

from __future__ import annotations

import argparse

import pytest
from remote_kit import Served
from test_pulling_live import until

from srmp_spark.errors import RemoteReadError
from srmp_spark.jobs import backfill, remote_messages
from srmp_spark.jobs.remote_messages import RemoteQueueReader, RemoteSource, count, parse_source


def source_of(served: Served, queue: str) -> RemoteSource:
    parser = argparse.ArgumentParser()
    backfill.add_arguments(parser)
    name = "DIRECT=OS:host1\\" + queue.replace("/", "\\")
    return parse_source(
        parser.parse_args(["--source", "mqrr", "--from", f"{served.ready['rpc']}\\{name}"])
    )


def read(
    source: RemoteSource, *, takes: bool, removes: bool = True
) -> list[tuple[str, str, str, int, bytes]]:
    reader = RemoteQueueReader(source, "run", takes=takes)
    found = []
    for each in reader.batches():
        found += [
            (row["queue_manager"], row["epoch"], row["queue"], row["sequence"], row["body"])
            for row in each.rows.to_pylist()
        ]
        assert len(each.requests) == (each.rows.num_rows if takes else 0)
        if takes and removes:
            reader.remove(each)
    reader.close()
    assert reader.unreadable == 0
    return found


def test_a_queue_in_batches_as_it_is_and_with_locks(
    served: Served, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(remote_messages, "BATCH_MESSAGES", 2)
    queue = served.queue(journal=True)
    served.send(queue, 3, 7, 3, 3, 0)
    source = source_of(served, queue)
    by_priority = [("mqrr", "run", source.shown_as, n, b"body %d" % n) for n in (2, 1, 3, 4, 5)]
    assert count(source, "run") == (5, sum(remote_bytes(source)))
    assert read(source, takes=False) == by_priority
    assert read(source, takes=True, removes=False) == by_priority
    until(lambda: read(source, takes=False) == by_priority)  # what was locked is there again
    assert served.waiting(queue) == 5
    assert read(source, takes=True) == by_priority
    assert served.waiting(queue) == 0
    journal = source_of(served, queue + ";JOURNAL")
    assert sorted(each[4] for each in read(journal, takes=False)) == [
        b"body %d" % n for n in range(1, 6)
    ]
    assert journal.shown_as.endswith(";journal")


def remote_bytes(source: RemoteSource) -> list[int]:
    reader = RemoteQueueReader(source, "run", takes=False)
    try:
        return [each.message_bytes for each in reader.batches()]
    finally:
        reader.close()


def test_what_is_not_there_is_told(served: Served):
    with pytest.raises(RemoteReadError, match="MQ_ERROR_QUEUE_NOT_FOUND"):
        count(source_of(served, "private$/nowhere"), "run")
