"""Keys and source positions that belong to another content, at the API of a running queue manager: sequences of requests."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import requests
from deltalake import DeltaTable
from kit import arrow, outgoing, post, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.outbox_reader import OutboxReader

URL = "http://127.0.0.1:9/msmq/private$/nowhere"
FAILED = "private$/failed"
KILLS = 8
ROWS = 3_000
BODY = b"x" * 4_000
"""With :data:`ROWS` of them a commit has several transactions."""


def rows(bodies: Sequence[bytes], first: int = 1, **columns: Any) -> list[dict[str, Any]]:
    """Return rows that were made of the messages ``first`` and following of a source."""
    position = {"queue_manager": "q", "epoch": "e", "queue": "private$/in"}
    return [
        {"body": body, "destination": URL, **position, "sequence": first + n, **columns}
        for n, body in enumerate(bodies)
    ]


def stage(
    api: str,
    batch: str,
    found: Sequence[Mapping[str, Any]],
    application: str = "app",
    **metadata: str,
) -> str:
    """Stage as a task does; return the stage."""
    named = {f"srmp.{name}": value for name, value in metadata.items()}
    base = f"{api}/v1/outbox/{application}/{batch}"
    answer: str = post(
        f"{base}/stage?partition=0&attempt={random.getrandbits(40)}", data=arrow(found, named)
    )["stage"]
    return answer


def commit(
    api: str, batch: str, stages: Sequence[str], application: str = "app", **more: str
) -> requests.Response:
    return requests.post(
        f"{api}/v1/outbox/{application}/{batch}/commit", json={"stages": stages, **more}, timeout=60
    )


def letters(directory: Path) -> list[tuple[str, bytes, int]]:
    """Return reason, body and message identifier of each dead letter in the outbox."""
    with OutboxReader(directory) as reader:
        return [
            (moved.row.reason, stored.message.body, stored.message.uniquifier)
            for moved in reader.moved()
            for stored in moved.messages or []
        ]


def test_two_sinks_of_one_query(tmp_path: Path) -> None:
    """40 rows, 20 of them from each sink: the second sink is told what is wrong, and each remedy that it is told works."""
    acknowledgements, notes = (
        [b"ack %d" % n for n in range(20)],
        [b"note %d" % n for n in range(20)],
    )
    with RunningQueueManager(tmp_path / "qm") as running:
        first = stage(running.api, "7", rows(acknowledgements))
        assert commit(running.api, "7", [first]).json() == {"new": 20, "known": 0}
        second = stage(running.api, "7", rows(notes))
        refused = commit(running.api, "7", [second])
        error = refused.json()["error"] if "error" in refused.json() else refused.json()
        assert (refused.status_code, error["code"]) == (409, "position-conflict")
        said = str(error)
        assert "private$/in 1 " in said
        assert URL in said
        assert "20 rows" in said
        assert "application" in said
        assert outgoing(running, URL)["queued"] == 20, "nothing of the second sink"

        assert commit(running.api, "7", [second]).status_code == 409, (
            "the stage is there still, and so is the answer"
        )
        assert (
            commit(
                running.api, "7", [stage(running.api, "7", rows(notes), "notes")], "notes"
            ).json()["new"]
            == 20
        )
        keyed = [row | {"key": f"note {n}"} for n, row in enumerate(rows(notes))]
        assert commit(running.api, "7", [stage(running.api, "7", keyed)]).json()["new"] == 20
        assert commit(running.api, "7", [stage(running.api, "7", rows(acknowledgements))]).json() == {
            "new": 0, "known": 20,
        }  # fmt: skip
        assert outgoing(running, URL)["queued"] == 60
        told = requests.get(f"{running.api}/v1/outbox/app/7", timeout=60)
        assert told.json() == {"new": 0, "known": 20}, "the last commit of the batch"
        none = requests.get(f"{running.api}/v1/outbox/app/8", timeout=60)
        assert (none.status_code, none.json()["error"]["code"]) == (404, "unknown-batch")
        wrong = commit(running.api, "7", [first], on_key_conflict="drop")
        assert (wrong.status_code, "fail, ignore, dead-letter" in wrong.text) == (400, True)
        assert running.stop() == 0
        assert "Traceback" not in running.stderr()


def test_what_is_left_out_and_what_is_a_dead_letter(tmp_path: Path) -> None:
    state = tmp_path / "state"
    options: dict[str, Any] = {
        "state": str(state),
        "state_interval": 1,
        "queues": [f"{FAILED}:transactional"],
    }
    with RunningQueueManager(tmp_path / "qm", **options) as running:
        api = running.api
        commit(api, "1", [stage(api, "1", rows([b"1", b"2", b"3"]))]).raise_for_status()
        other = rows([b"other", b"3", b"4"], 2)
        answers = [
            commit(api, "2", [stage(api, "2", other)], on_key_conflict="ignore"),
            commit(api, "2", [stage(api, "2", other)], on_key_conflict="ignore"),
            commit(
                api,
                "3",
                [stage(api, "3", other, dead_letter_queue=FAILED)],
                on_key_conflict="dead-letter",
            ),
            commit(
                api,
                "3",
                [stage(api, "3", other, dead_letter_queue=FAILED)],
                on_key_conflict="dead-letter",
            ),
            commit(api, "4", [stage(api, "4", other)]),
        ]
        assert [answer.json() for answer in answers[:4]] == [
            {"new": 1, "known": 1, "conflicts": 1}, *[{"new": 0, "known": 2, "conflicts": 1}] * 3,
        ]  # fmt: skip
        assert answers[4].status_code == 409, (
            "how an earlier batch was told to go on says nothing of this one"
        )
        assert outgoing(running, URL)["queued"] == 4

        ((reason, body, _),) = letters(running.data_dir)
        assert (reason, body) == ("position-conflict", b"other")
        until(
            lambda: QueueManagerClient(api).range(FAILED).end == 1,
            "it is a row of the queue that the sink named",
        )

        def published() -> list[dict[str, Any]]:
            if not (state / "dead_letter_queue" / "_delta_log").exists():
                return []
            found: list[dict[str, Any]] = (
                DeltaTable(str(state / "dead_letter_queue")).to_pyarrow_table().to_pylist()
            )
            return found

        (row,) = until(published, "it is in the Delta state")
        names = (
            "reason",
            "body",
            "state",
            "stream_id",
            "stream_sequence",
            "attempts",
            "last_status",
            "target",
            "application",
        )
        assert [row[name] for name in names] == [
            "position-conflict", b"other", "queued", None, None, 0, None, FAILED, "app",
        ]  # fmt: skip
        assert running.stop() == 0
        log = running.stderr()
        assert (
            log.count("outbox.conflicts application=app batch=2 rows=1 on_key_conflict=ignore") == 2
        )
        assert "Traceback" not in log


@pytest.mark.timeout(300)
def test_killed_in_a_commit_and_run_again_there_is_each_dead_letter_once(tmp_path: Path) -> None:
    """As Spark does after a crash: the batch is staged anew, and committed anew."""
    chance = random.Random(5)
    taken = 0.0
    with RunningQueueManager(tmp_path / "qm") as running:
        api = running.api
        commit(api, "0", [stage(api, "0", rows([BODY] * ROWS))]).raise_for_status()
        for number in range(1, KILLS + 1):
            batch = str(number)
            # A third is sent before with this content, a third is sent with another one, a third is new.
            found = [
                *rows([BODY] * 1_000), *rows([b"%d" % number + BODY] * 1_000, 1_001),
                *rows([BODY] * 1_000, 10_000 * number),
            ]  # fmt: skip
            staged = stage(api, batch, found)
            began = time.monotonic()
            answers: list[Any] = []
            call = threading.Thread(target=lambda: answers.append(_try_commit(api, batch, staged)))  # noqa: B023  # joined below
            if number > 1:  # the first tells how long a commit takes
                call.start()
                time.sleep(chance.uniform(0, taken))
                running.kill9()
                call.join()
                running.restart()
            answer = commit(api, batch, [stage(api, batch, found)], on_key_conflict="dead-letter")
            if number == 1:
                taken = time.monotonic() - began
            answer.raise_for_status()
            result = answer.json()
            assert (result["conflicts"], result["new"] + result["known"]) == (1_000, 2_000)
            assert result["new"] in (0, 1_000), "all or nothing of the batch counted before"
        assert running.stop() == 0
        found_letters = letters(running.data_dir)
    assert sorted(body for _, body, _ in found_letters) == sorted(
        b"%d" % number + BODY for number in range(1, KILLS + 1) for _ in range(1_000)
    )
    assert len({identifier for _, _, identifier in found_letters}) == len(found_letters)
    with contextlib.closing(sqlite3.connect(running.data_dir / "outbox.db")) as connection:
        waiting, free = (
            connection.execute(
                f"SELECT coalesce(sum(rows), 0) FROM parts WHERE queue_id IS {what}"
            ).fetchone()[0]
            for what in ("NOT NULL", "NULL")
        )
    assert (waiting, free) == (ROWS + 1_000 * KILLS, 0)


def _try_commit(api: str, batch: str, staged: str) -> int | None:
    try:
        return commit(api, batch, [staged], on_key_conflict="dead-letter").status_code
    except requests.RequestException:
        return None
