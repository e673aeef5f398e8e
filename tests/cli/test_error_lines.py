"""An error of the command line is one line: what is wrong, a semicolon, what to do (srmp_spark.errors.with_hint)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from srmp_spark import cli
from srmp_spark.errors import ApiError, with_hint
from srmp_spark.testing.service import RunningQueueManager


@pytest.mark.parametrize(
    ("message", "hint", "line"),
    [
        ("there is no queue q", "create it", "there is no queue q; create it"),
        ("there is no queue q.", "create it", "there is no queue q; create it"),
        ("there is no queue q", "Create it.", "there is no queue q; Create it"),
        ("there is no queue q;", " create it", "there is no queue q; create it"),
        ("did you mean 'q'?", "create it", "did you mean 'q'? create it"),
        ("did you mean 'q'?", "", "did you mean 'q'?"),
        ("that was all.", "", "that was all."),
        ("two\nlines", "and\nmore", "two lines; and more"),
    ],
)
def test_one_rule_puts_message_and_hint_together(message: str, hint: str, line: str) -> None:
    assert with_hint(message, hint) == line
    assert str(ApiError(400, "code", message, hint)) == f"{line} [code]"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(tmp_path_factory.mktemp("qm") / "data", queues=["private$/t:transactional"]) as queue_manager:
        yield queue_manager


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["peek", "--queue", "nothing"], "there is no queue nothing; create it with"),
        (["send", "--destination", "private$/t", "--delivery", "express"], "messages, not express ones [queue-kind]"),
        (["give-up", "--queue", "private$/t", "--first", "1", "--last", "2"], "holds 1 to 0, not 1 to 2; the queue's status"),
        (["receive", "--queue", "private$/t", "--consumer", "a/b"], "not a consumer name: 'a/b'; 1 to 100 printable"),
        (["purge", "--queue", "a/b/c"], "not a queue name: 'a/b/c' (expected"),
        (["send", "--destination", "DIRECT=OS:other\\q"], "give the URL of the queue, like"),
    ],
)  # fmt: skip
def test_errors_of_commands(
    running: RunningQueueManager, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    assert cli.run([*arguments, "--api", running.api]) in (2, 4)
    check(capsys.readouterr().err, says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["status", "--api", "http://127.0.0.1:1"], "no queue manager answers at http://127.0.0.1:1 ("),
        (["status", "--api", "nonsense"], "expected http://HOST:PORT"),
        (["serve", "--data-dir", "d", "--queue", "a:transactionl"], "did you mean 'transactional'? (a queue"),
        (["serve", "--data-dir", "d", "--retention-hours", "x"], "--retention-hours: "),
    ],
)
def test_errors_without_a_queue_manager(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], says: str
) -> None:
    monkeypatch.setattr("srmp_spark.commands.common.RETRY_SECONDS", 0.0)
    assert cli.run(arguments) in (2, 3)
    check(capsys.readouterr().err, says)


def test_a_queue_of_the_other_kind_says_once_what_to_do(running: RunningQueueManager, tmp_path: Path) -> None:
    from srmp_spark.testing.service import ServeFailedError

    data = tmp_path / "data"
    with RunningQueueManager(data, queues=["a"]):
        pass
    with pytest.raises(ServeFailedError) as failed, RunningQueueManager(data, queues=["a:transactional"]):
        pass
    said = failed.value.stderr.splitlines()[-1] + "\n"
    check(said, "queue a exists and is not transactional; delete it first, or give it as it is")
    assert said.count("delete it first") == 1


def check(said: str, says: str) -> None:
    assert says in said
    assert said.count("\n") == 1
    assert said.startswith("srmp-spark: ")
    assert not re.search(r"[.,;:?!]\s*[.,;]|\s[.,;:](?:\s|$)|  ", said.replace("...", "")), "punctuation is doubled"
