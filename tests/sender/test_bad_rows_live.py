"""Rows that can never be sent, at the API of a running queue manager: counted, told of once, whatever is killed."""

from __future__ import annotations

import hashlib
import json
import os
import random
import signal
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import requests
from deltalake import DeltaTable
from kit import arrow, outgoing, post, sender_of, until

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.errors import ConfigurationError
from srmp_spark.spark.settings.letter_queues import check_letter_queue
from srmp_spark.spark.settings.sink_options import parse_sink
from srmp_spark.testing.queue_manager import RunningQueueManager

URL = "http://127.0.0.1:9/msmq/private$/nowhere"
FAILED = "private$/failed"
KILLS = 4
ROWS = 3_000
LONG = "l" * 250


def rows(first: int, count: int, every: int = 3) -> list[dict[str, Any]]:
    """Return rows of which each third (or whatever ``every`` says) has a label that is too long."""
    return [
        {
            "body": b"row %d" % n,
            "destination": URL,
            "label": LONG if n % every == 0 else "l",
            "key": b"%d" % n,
        }
        for n in range(first, first + count)
    ]


def try_stage(
    api: str, batch: str, found: Sequence[dict[str, Any]], fate: str = "dead-letter"
) -> requests.Response:
    named = {"srmp.on_bad_row": fate, "srmp.dead_letter_queue": FAILED}
    url = f"{api}/v1/outbox/app/{batch}/stage?partition=0&attempt={random.getrandbits(40)}"
    return requests.post(url, data=arrow(found, named), timeout=60)


def stage(
    api: str, batch: str, found: Sequence[dict[str, Any]], fate: str = "dead-letter"
) -> dict[str, Any]:
    """Stage as a task does; return the answer."""
    answer = try_stage(api, batch, found, fate)
    assert answer.status_code == 200, answer.text
    made: dict[str, Any] = answer.json()
    return made


def commit(api: str, batch: str, staged: dict[str, Any]) -> requests.Response:
    url = f"{api}/v1/outbox/app/{batch}/commit"
    return requests.post(url, json={"stages": [staged["stage"]]}, timeout=60)


def letters(running: RunningQueueManager) -> list[dict[str, Any]]:
    """Return label and document of each row of the queue for dead letters."""
    client = QueueManagerClient(running.api, retry_seconds=10)
    bounds = client.range(FAILED)
    stream = client.rows(FAILED, epoch=bounds.epoch, after=0, to=bounds.end)
    found = pa.ipc.open_stream(stream.read()).read_all().to_pylist()
    return [{"label": row["label"], **json.loads(row["body_text"])} for row in found]


@pytest.mark.timeout(180)
def test_from_the_stage_to_the_queue_for_dead_letters(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with RunningQueueManager(tmp_path / "qm", state=str(state), state_interval=1) as running:
        api = running.api
        refused = try_stage(api, "1", rows(0, 9))
        error = refused.json()["error"]
        assert (refused.status_code, error["code"]) == (409, "no-dead-letter-queue")
        assert "key '0' (row 0): label has at most" in error["message"]
        assert "there is no such queue" in error["hint"]
        assert stage(api, "1", rows(1, 2)).get("bad") is None, "no bad row needs no queue"

        QueueManagerClient(api).put_queue(FAILED, transactional=True)
        staged = stage(api, "1", rows(0, 9))
        first = (
            "partition 0: key '0' (row 0): label has at most 249 characters, got 250 (bad-label)"
        )
        assert staged == {"stage": staged["stage"], "rows": 9, "bad": 3, "first_bad": first}
        answer = {"new": 6, "known": 0, "bad": 3, "first_bad": first}
        assert commit(api, "1", staged).json() == answer
        assert commit(api, "1", staged).json() == answer, "a lost reply"
        assert requests.get(f"{api}/v1/outbox/app/1", timeout=60).json() == answer
        again = stage(api, "1", rows(0, 9))
        assert commit(api, "1", again).json() == {**answer, "new": 0, "known": 6}
        assert commit(api, "2", stage(api, "2", rows(9, 3), "skip")).json() == {
            "new": 2,
            "known": 0,
            "bad": 1,
            "first_bad": first.replace("'0'", "'9'"),
        }
        assert outgoing(running, URL)["queued"] == 8

        until(lambda: len(letters(running)) == 3, "they are rows of the queue")
        found = letters(running)
        assert [(each["label"], each["row"]["key"]) for each in found] == [
            ("bad row: bad-label", key) for key in ("0", "3", "6")
        ]
        assert found[0]["row"] == {
            "body": "row 0",
            "destination": URL,
            "key": "0",
            "label": LONG,
        }
        status = requests.get(f"{api}/v1/status", timeout=60).json()
        assert status["dead_letters"] == {"bad-row": 3}
        metrics = requests.get(f"{api}/metrics", timeout=60).text
        assert 'srmp_sink_rows_total{result="bad"} 10.0' in metrics, "answers, as of other rows"

        def published() -> list[dict[str, Any]]:
            if not (state / "dead_letter_queue" / "_delta_log").exists():
                return []
            table = DeltaTable(str(state / "dead_letter_queue")).to_pyarrow_table()
            made: list[dict[str, Any]] = table.to_pylist()
            return made if len(made) == 3 else []

        table = until(published, "they are in the Delta state")
        assert {(row["reason"], row["target"], row["application"]) for row in table} == {
            ("bad-row", FAILED, "app")
        }
        assert running.stop() == 0
        log = running.stderr()
        assert f'outbox.bad_rows application=app batch=1 rows=3 first="{first}"' in log
        assert "Traceback" not in log


@pytest.mark.timeout(300)
def test_killed_in_a_commit_and_run_again_each_row_is_sent_once_or_told_of_once(
    tmp_path: Path,
) -> None:
    """As Spark does after a crash: the batch is staged anew, and committed anew."""
    chance = random.Random(5)
    taken = 0.5
    with RunningQueueManager(tmp_path / "qm", queues=[f"{FAILED}:transactional"]) as running:
        for number in range(KILLS):
            batch, found = str(number), rows(number * ROWS, ROWS)
            staged = stage(running.api, batch, found)
            call = threading.Thread(target=_try_commit, args=(running.api, batch, staged))
            call.start()
            time.sleep(chance.uniform(0, taken))
            if number % 2:
                running.kill9()
                call.join()
                running.restart()
            else:
                os.kill(sender_of(running) or 0, signal.SIGKILL)
                call.join()
            answer = _until_committed(running.api, batch, found)
            assert answer["new"] + answer["known"] == ROWS * 2 // 3
            assert (answer["new"] in (0, ROWS * 2 // 3), answer["bad"]) == (True, ROWS // 3)
        wanted = [str(n) for n in range(0, KILLS * ROWS, 3)]
        until(lambda: QueueManagerClient(running.api).range(FAILED).end >= len(wanted), "all", 60)
        assert [letter["row"]["key"] for letter in letters(running)] == wanted, "once, in order"
        until(lambda: outgoing(running, URL), "the sender process has told")
        assert outgoing(running, URL)["queued"] == KILLS * ROWS * 2 // 3
        assert running.stop() == 0
        assert "Traceback" not in running.stderr()


def _until_committed(api: str, batch: str, found: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Repeat what the client repeats: 503 while the sender process is started again."""

    def done() -> dict[str, Any] | None:
        staged = try_stage(api, batch, found)
        answer = commit(api, batch, staged.json()) if staged.status_code == 200 else staged
        assert answer.status_code in (200, 503), answer.text
        return answer.json() if answer.status_code == 200 else None

    made: dict[str, Any] = until(done, "it is committed")
    return made


def _try_commit(api: str, batch: str, staged: dict[str, Any]) -> None:
    try:
        commit(api, batch, staged)
    except requests.RequestException:
        return


@pytest.mark.timeout(180)
def test_a_queue_for_letters_that_is_paused_or_deleted(tmp_path: Path) -> None:
    """Letters wait for a paused queue. Without the queue a batch with bad rows is refused, and others are not."""
    with RunningQueueManager(tmp_path / "qm", queues=[f"{FAILED}:transactional"]) as running:
        api = running.api
        post(f"{api}/v1/queues/private$%2Ffailed/pause")
        assert commit(api, "1", stage(api, "1", rows(0, 3))).json()["bad"] == 1
        post(f"{api}/v1/queues/private$%2Ffailed/resume")
        until(lambda: len(letters(running)) == 1, "it came when the queue was there again")
        requests.delete(f"{api}/v1/queues/private$%2Ffailed", timeout=60).raise_for_status()
        assert try_stage(api, "2", rows(3, 3)).status_code == 409
        assert commit(api, "2", stage(api, "2", rows(4, 2))).json() == {"new": 2, "known": 0}
        assert commit(api, "3", stage(api, "3", rows(6, 3), "skip")).json()["bad"] == 1
        assert list((running.data_dir / "stages").iterdir()) == []
        assert running.stop() == 0


def test_a_token_that_may_only_send_sees_whether_the_queue_for_letters_is_there(
    tmp_path: Path,
) -> None:
    secret = "0123456789abcdef0123456789abcdef"
    config = tmp_path / "serve.toml"
    digest = hashlib.sha256(secret.encode()).hexdigest()
    config.write_text(
        f'[[token]]\nname = "sink"\nsha256 = "{digest}"\nqueues = ["*"]\nverbs = ["enqueue"]\n'
    )
    config.chmod(0o600)
    queues = [f"{FAILED}:transactional", "private$/plain"]
    with RunningQueueManager(tmp_path / "qm", queues=queues, config=str(config)) as running:
        for queue, problem in (
            ("PRIVATE$\\Failed", None),
            ("private$/plain", "has it as a queue that is not transactional"),
            ("private$/none", "has no such queue"),
        ):
            given = {"queueManager": running.api, "destination": URL, "token": secret}
            letters_to = {"onBadRow": "dead-letter", "deadLetterQueue": queue}
            if problem is None:
                check_letter_queue(parse_sink(given | letters_to))
                continue
            with pytest.raises(ConfigurationError, match=problem):
                check_letter_queue(parse_sink(given | letters_to))
            check_letter_queue(parse_sink(given | {"deadLetterQueue": queue}))
