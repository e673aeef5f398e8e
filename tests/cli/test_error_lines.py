"""An error of the command line is one line: what is wrong, a semicolon, what to do (srmp_spark.errors.with_hint)."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

from srmp_spark import cli
from srmp_spark.commands.common import emit
from srmp_spark.errors import ApiError, with_hint
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import Authority


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
    with RunningQueueManager(
        tmp_path_factory.mktemp("qm") / "data", queues=["private$/t:transactional"]
    ) as queue_manager:
        yield queue_manager


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["peek", "--queue", "nothing"], "there is no queue nothing; create it with"),
        (["peek", "--queue", "private$/tt"], ("there is no queue private$/tt; did you mean 'private$/t'? "
"(srmp-spark queues")),
        (["send", "--destination", "t", "--body", "b"], "there is no queue t; did you mean 'private$/t'?"),
        (["peek", "--queue", "private$/*"], "there is no queue private$/*; give one name and no glob"),
        (["send", "--destination", "private$/t", "--delivery", "express", "--body", "b"], "not express ones [queue-kind]"),
        (["give-up", "--force", "--queue", "private$/t", "--first", "1", "--last", "2"], "holds 1 to 0, not 1 to 2; the"),
        (["receive", "--queue", "private$/t", "--consumer", "a/b"], "not a consumer name: 'a/b'; 1 to 100 printable"),
        (["purge", "--queue", "a/b/c"], "not a queue name: 'a/b/c' (expected"),
        (["send", "--destination", "DIRECT=OS:other\\q"], "give the URL of the queue, like"),
    ],
)  # fmt: skip
def test_errors_of_commands(
    running: RunningQueueManager,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    says: str,
) -> None:
    assert cli.run([*arguments, "--api", running.api]) in (2, 4)
    check(capsys.readouterr().err, says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["status", "--api", "http://127.0.0.1:1"],
            "no queue manager answers at http://127.0.0.1:1 (",
        ),
        (["status", "--api", "nonsense"], "expected http://HOST:PORT"),
        (
            ["send", "--destination", "q"],
            "send needs --body, --body-file or --lines; --body '' sends",
        ),
        (
            ["serve", "--data-dir", "d", "--queue", "a:transactionl"],
            "did you mean 'transactional'? (PUT /v1/queues",
        ),
        (
            ["serve", "--data-dir", "d", "--retention-hours", "x"],
            "--retention-hours: expected a number above 0 (got 'x')",
        ),
        (
            ["serve", "--data-dir", "d", "--queue-quota-bytes", "1k"],
            "--queue-quota-bytes: expected a whole number above 0",
        ),
        (
            ["serve", "--data-dir", "d", "--token-file", "/dev/null"],
            "ASCII characters without a space (the file /dev/null)",
        ),
    ],
)
def test_errors_without_a_queue_manager(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    says: str,
) -> None:
    monkeypatch.setattr("srmp_spark.commands.common.RETRY_SECONDS", 0.0)
    assert cli.run(arguments) in (2, 3)
    check(capsys.readouterr().err, says)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (
            ["send", "--bodi", "x"],
            "unknown flag --bodi; did you mean --body? see srmp-spark send --help",
        ),
        (["send", "--bodi=x"], "unknown flag --bodi; did you mean --body?"),
        (["serve", "--qeue", "x"], "unknown flag --qeue; did you mean --queue?"),
        (["serve", "--queu", "x"], "unknown flag --queu; did you mean --queue?"),
        (["peek", "--queu", "x"], "unknown flag --queu; did you mean --queue?"),
        (["peek"], "required: --queue; see srmp-spark peek --help"),
        (["peekk", "--queue", "x"], "unknown command peekk; did you mean peek?"),
        (
            ["backfill", "--source", "x", "--from", "y"],
            "invalid choice: 'x'",
        ),
        (
            ["ingest", "--queue-manager", "u", "--queue", "q", "--table", "t", "--chekpoint", "c"],
            "unknown flag --chekpoint; did you mean --checkpoint? see srmp-spark ingest --help",
        ),
        (["purge", "orders", "--queue", "x"], "unrecognized arguments: orders"),
        (["peek", "--queue", "x", "--body", "zip"], "choose from"),
        (["peek", "--queue", "x", "--after", "-1"], "--after: a whole number from 0 on, not '-1'"),
        (["peek", "--queue", "x", "--max", "1.5"], "--max: a whole number from 0 on, not '1.5'"),
        (
            ["send", "--destination", "q", "--wait", "soon"],
            "--wait: a number of seconds from 0 on, not 'soon'",
        ),
        (["--versio"], "unknown flag --versio; did you mean --version?"),
        ([], "required: COMMAND; see srmp-spark --help"),
    ],
)
def test_a_wrong_flag_or_command(
    capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.run(arguments)
    assert ended.value.code == 2
    check(capsys.readouterr().err, says)


def test_what_looks_like_a_flag_may_be_a_value() -> None:
    parsed = cli.parser().parse_args(
        ["send", "--destination", "q", "--body", "--dashes and spaces", "--label=--bodi"]
    )
    assert (parsed.body, parsed.label) == ("--dashes and spaces", "--bodi")


@pytest.mark.parametrize("method", ["status", "purge"])
def test_the_srmp_port_is_told_from_the_api(
    running: RunningQueueManager, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    host, port = running.endpoint
    assert (
        cli.run(
            [
                method,
                *(["--queue", "q"] if method == "purge" else []),
                "--api",
                f"http://{host}:{port}",
            ]
        )
        == 4
    )
    check(
        capsys.readouterr().err,
        f"port {port} of {host} is a queue manager's SRMP port, not its API; give the "
        "API's address",
    )


def test_https_to_the_plain_api(
    running: RunningQueueManager,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("srmp_spark.commands.common.RETRY_SECONDS", 0.0)
    assert cli.run(["status", "--api", running.api.replace("http:", "https:")]) == 3
    check(capsys.readouterr().err, f"it speaks plain HTTP: write {running.api}")


def test_http_to_an_api_with_tls_and_a_private_authority(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("srmp_spark.commands.common.RETRY_SECONDS", 0.0)
    for name in ("REQUESTS_CA_BUNDLE", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    authority = Authority(tmp_path / "ca")
    ours = authority.issue("ours")
    with RunningQueueManager(
        tmp_path / "data", api_cert=ours.certificate, api_key=ours.key
    ) as guarded:
        address = guarded.api.partition("://")[2]
        assert cli.run(["status", "--api", f"http://{address}"]) == 3
        check(capsys.readouterr().err, f"if serve has --api-cert, write https://{address}")
        assert cli.run(["status", "--api", guarded.api]) == 3
        check(
            capsys.readouterr().err,
            "a private CA is named by REQUESTS_CA_BUNDLE or SSL_CERT_FILE=FILE",
        )
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca))
        assert cli.run(["status", "--api", guarded.api]) == 0


def test_a_wrong_token_is_not_a_missing_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("right", "wrong"):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(name * 8)
    with RunningQueueManager(tmp_path / "data", token_file=tmp_path / "right") as guarded:
        monkeypatch.delenv("SRMP_SPARK_TOKEN", raising=False)
        assert cli.run(["status", "--api", guarded.api]) == 4
        check(capsys.readouterr().err, "a token is needed; give --token-file")
        assert (
            cli.run(["status", "--api", guarded.api, "--token-file", str(tmp_path / "wrong")]) == 4
        )
        check(capsys.readouterr().err, "the token is none of this queue manager's")
        assert (
            cli.run(["status", "--api", guarded.api, "--token-file", str(tmp_path / "right")]) == 0
        )


def test_a_misspelt_variable_is_answered_by_a_variable(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SRMP_SPARK_QUEU", "q")
    assert cli.run(["serve", "--data-dir", "d"]) == 2
    check(capsys.readouterr().err, "did you mean 'SRMP_SPARK_QUEUE'?")


def test_a_queue_of_the_other_kind_says_once_what_to_do(
    running: RunningQueueManager, tmp_path: Path
) -> None:
    from srmp_spark.testing.queue_manager import ServeFailedError

    data = tmp_path / "data"
    with RunningQueueManager(data, queues=["a"]):
        pass
    with (
        pytest.raises(ServeFailedError) as failed,
        RunningQueueManager(data, queues=["a:transactional"]),
    ):
        pass
    said = failed.value.stderr.splitlines()[-1] + "\n"
    check(
        said,
        "queue a exists and is not transactional; give it as it is, or delete it first, "
        "with its rows, while",
    )
    assert re.search(
        r"runs: srmp-spark queue delete a --api http://127\.0\.0\.1:\d+ \(start it without "
        r"--queue a for that\)",
        said,
    )
    assert said.count("delete it first") == 1
    wrong = f"{running.api}/v1/queues/private$%2ft"
    answer = requests.put(wrong, json={"transactional": False}, timeout=30)
    hint = answer.json()["error"]["hint"]
    assert (answer.status_code, hint.partition("runs: ")[2]) == (
        409,
        f"srmp-spark queue delete 'private$/t' --api {running.api}",
    )


def test_a_table_of_sentences_cuts_none(capsys: pytest.CaptureFixture[str]) -> None:
    rows = [{"check": "port", "detail": "so many words " * 20}, {"check": "tls", "detail": None}]
    emit(rows, table=True, whole=True)
    assert rows[0]["detail"].rstrip() in capsys.readouterr().out
    emit(rows, table=True)
    assert rows[0]["detail"].rstrip() not in capsys.readouterr().out, (
        "what else has a table fits on a screen"
    )


def check(said: str, says: str) -> None:
    assert says in said
    assert said.count("\n") == 1
    assert said.startswith("srmp-spark: ")
    assert not re.search(r"[.,;:?!]\s*[.,;]|\s[.,;:](?:\s|$)|  ", said.replace("...", "")), (
        "punctuation is doubled"
    )


def test_a_command_that_is_not_serve_loads_no_configuration_of_it() -> None:
    """Its flags take as long to load as all other commands together."""
    code = (
        "import sys, srmp_spark.cli as cli; cli.parser('queues'); "
        "print('srmp_spark.queue_manager.configuration.config' in sys.modules)\n"
        "print([list(next(a.choices for a in cli.parser(word)._actions if a.dest == "
        "'command')) for word in ('serve', None)])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    loaded, whole = done.stdout.splitlines()
    assert loaded == "False"
    assert whole.count("'serve', 'send'") == 2, "and it is the first of the whole line"
