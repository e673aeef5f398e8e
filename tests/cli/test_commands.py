"""The commands as a user runs them: JSON lines on stdout, exit codes, tables (INTERFACE.md section 2)."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from srmp_spark.srmp.codec.decoder import decode
from srmp_spark.srmp.codec.http_head import content_type_of
from srmp_spark.testing.foreign.messages import ForeignMessage, post
from srmp_spark.testing.queue_manager import RunningQueueManager
from tests.kit.certificate import Authority

UNNAMED = {"REQUESTS_CA_BUNDLE": "", "SSL_CERT_FILE": ""}
"""No private authority in the environment."""
QUEUES = ["private$/orders", "private$/payments:transactional"]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningQueueManager]:
    with RunningQueueManager(
        tmp_path_factory.mktemp("qm") / "data", queues=QUEUES
    ) as queue_manager:
        yield queue_manager


def command(
    running: RunningQueueManager | None, *arguments: str, stdin: str = "", **environment: str
) -> subprocess.CompletedProcess[str]:
    api = [] if running is None else ["--api", running.api]
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SRMP_SPARK_")}
    return subprocess.run(
        [sys.executable, "-m", "srmp_spark.cli", *arguments, *api],
        input=stdin, capture_output=True, text=True, timeout=60, env=clean | environment,
    )  # fmt: skip


def lines(running: RunningQueueManager, *arguments: str, stdin: str = "") -> list[dict[str, Any]]:
    done = command(running, *arguments, stdin=stdin)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def make(running: RunningQueueManager, name: str) -> str:
    from srmp_spark.client.api import QueueManagerClient

    QueueManagerClient(running.api).put_queue(name)
    return name


def refusals(running: RunningQueueManager) -> list[str]:
    from urllib.request import urlopen

    with urlopen(f"{running.api}/metrics", timeout=10) as answer:
        return [
            line
            for line in answer.read().decode().splitlines()
            if line.startswith("srmp_messages_refused_total")
        ]


def test_the_help_of_serve_says_what_may_be_repeated() -> None:
    text = " ".join(command(None, "serve", "--help").stdout.split())
    assert text.count("may be repeated") == 3
    assert "create this queue if it does not exist; may be repeated" in text


def test_help_answers_at_once() -> None:
    """It computes little and waits for nothing; how long that takes a busy machine is not asked."""
    best = 9.0
    for _ in range(3):
        before = os.times()
        assert command(None, "--help").returncode == 0
        after = os.times()
        used = (
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        best = min(best, used)
    assert best < 0.6, "0.15 s of CPU on a quiet machine"
    code = (
        "import sys, srmp_spark.cli; print([m for m in ('requests', 'pyarrow', "
        "'uvloop') if m in sys.modules])"
    )
    assert (
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout.strip()
        == "[]"
    )


def test_send_peek_receive(running: RunningQueueManager) -> None:
    queue = make(running, "private$/round")
    (sent,) = lines(
        running, "send", "--destination", queue, "--label", "Größe", "--body", "Straße 1"
    )
    assert set(sent) == {"message_id", "destination", "stream_id", "stream_sequence", "state"}
    assert (sent["destination"], sent["state"], sent["stream_id"]) == (queue, "acknowledged", None)
    (row,) = lines(running, "peek", "--queue", "PRIVATE$\\Round")
    assert (base64.b64decode(row["body"]).decode(), row["body_text"], row["label"]) == (
        "Straße 1",
        "Straße 1",
        "Größe",
    )
    assert row["message_id"] == sent["message_id"]
    assert row["arrived_at"].endswith("Z")
    assert lines(running, "peek", "--queue", queue, "--body", "text")[0]["body"] == "Straße 1"
    assert lines(running, "peek", "--queue", queue, "--body", "none")[0]["body"] is None
    (received,) = lines(running, "receive", "--queue", queue)
    assert received == row
    assert lines(running, "receive", "--queue", queue) == []
    assert len(lines(running, "peek", "--queue", queue)) == 1, "a mark is not a deletion"


def test_consumers_takes_its_queue_as_other_commands_do(running: RunningQueueManager) -> None:
    queue = make(running, "private$/consumed")
    found = lines(running, "consumers", queue)
    assert [each["name"] for each in found] == ["default"]
    assert lines(running, "consumers", "--queue", "PRIVATE$\\Consumed") == found
    for arguments in ([], [queue, "--queue", queue]):
        done = command(running, "consumers", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "srmp-spark consumers QUEUE, or --queue QUEUE" in done.stderr


def test_lines_files_and_standard_input(running: RunningQueueManager, tmp_path: Path) -> None:
    queue = make(running, "lines")
    assert (
        len(
            lines(
                running, "send", "--destination", queue, "--lines", "-", stdin="one\ntwo\r\n\nfour"
            )
        )
        == 4
    )
    (tmp_path / "body").write_bytes(b"\x00\xff")
    lines(
        running,
        "send",
        "--destination",
        queue,
        "--body-file",
        str(tmp_path / "body"),
        "--body-type",
        "17",
    )
    rows = lines(running, "peek", "--queue", queue, "--after", "1", "--max", "4")
    assert [base64.b64decode(row["body"]) for row in rows] == [b"two", b"", b"four", b"\x00\xff"]
    assert (rows[-1]["body_type"], rows[-1]["body_text"]) == (17, None)


@pytest.mark.parametrize(
    ("body_type", "encoding"), [(0, "utf-8"), (8, "utf-16-le"), (30, "utf-8"), (31, "utf-16-le")]
)
def test_a_text_is_written_as_its_body_type_says_and_read_back(
    running: RunningQueueManager, body_type: int, encoding: str
) -> None:
    queue, text = make(running, f"typed{body_type}"), "Straße € 𝄞"
    lines(running, "send", "--destination", queue, "--body", text, "--body-type", str(body_type))
    lines(
        running,
        "send",
        "--destination",
        queue,
        "--lines",
        "-",
        "--body-type",
        str(body_type),
        stdin=f"{text}\nb",
    )
    rows = lines(running, "peek", "--queue", queue)
    assert [base64.b64decode(row["body"]) for row in rows] == [
        each.encode(encoding) for each in (text, text, "b")
    ]
    assert [row["body_type"] for row in rows] == [body_type] * 3
    assert [row["body"] for row in lines(running, "peek", "--queue", queue, "--body", "text")] == [
        text,
        text,
        "b",
    ]


def test_a_text_that_cannot_be_written_is_an_error_in_words(
    running: RunningQueueManager, tmp_path: Path
) -> None:
    (tmp_path / "latin").write_bytes(b"a\nStra\xdfe\n")
    for arguments in (
        ["--lines", str(tmp_path / "latin"), "--body-type", "8"],
        ["--body", "Stra\udcdfe"],
    ):
        done = command(running, "send", "--destination", "private$/orders", *arguments)
        assert (done.returncode, done.stdout) == (2, "")
        assert "line 2 is not UTF-8" in done.stderr or "--body-file" in done.stderr


def test_receive_goes_by_priority_then_sequence_and_each_row_once(
    running: RunningQueueManager,
) -> None:
    from srmp_spark.client.api import QueueManagerClient

    queue = make(running, "by_priority")
    QueueManagerClient(running.api).send(
        queue, [{"priority": priority} for priority in (1, 7, 3, 7, 0)]
    )
    taken = [lines(running, "receive", "--queue", queue, "--max", "2") for _ in range(3)]
    assert [[row["sequence"] for row in rows] for rows in taken] == [[2, 4], [3, 1], [5]]
    (described,) = [each for each in lines(running, "queues") if each["name"] == queue]
    assert (described["received"], described["waiting"]) == (5, 0)


def test_receive_refuses_more_than_one_call_can_mark_before_it_prints(
    running: RunningQueueManager,
) -> None:
    queue = make(running, "too_many")
    done = command(running, "receive", "--queue", queue, "--max", "100001")
    assert (done.returncode, done.stdout) == (2, "")
    assert "--max 100001: at most 100000 rows" in done.stderr


def test_receive_takes_every_row_once_behind_more_runs_than_one_answer_tells(
    running: RunningQueueManager,
) -> None:
    from srmp_spark.client.api import QueueManagerClient

    queue = make(running, "scattered")
    client = QueueManagerClient(running.api)
    client.send(queue, [{"priority": 7 * (n % 2), "label": str(n)} for n in range(2_500)])
    first = lines(running, "receive", "--queue", queue, "--max", "1200", "--body", "none")
    assert {each["priority"] for each in first} == {7}
    rest = lines(running, "receive", "--queue", queue, "--body", "none")
    assert sorted(int(each["label"]) for each in first + rest) == list(range(2_500))
    assert [each["priority"] for each in rest[:50]] == [7] * 50
    described = client.queue(queue)
    assert (described["received"], described["waiting"]) == (2_500, 0)


def test_purge_says_what_it_does() -> None:
    said = " ".join(command(None, "--help").stdout.split())
    assert "discard the rows of a queue that are not received" in said


def test_receive_marks_nothing_if_its_output_is_lost(running: RunningQueueManager) -> None:
    queue = make(running, "lost_output")
    lines(running, "send", "--destination", queue, "--lines", "-", stdin="x" * 200_000)
    shell = f"{sys.executable} -m srmp_spark.cli receive --queue {queue} --api {running.api} | true"
    subprocess.run(["bash", "-c", shell], check=True, capture_output=True)
    assert len(lines(running, "receive", "--queue", queue)) == 1


def test_transactional_messages_continue_one_stream(running: RunningQueueManager) -> None:
    first, second = (
        lines(running, "send", "--destination", "private$/payments", "--body", str(n))[0]
        for n in range(2)
    )
    assert first["stream_id"] == second["stream_id"]
    assert (first["stream_sequence"], second["stream_sequence"]) == (1, 2)


@pytest.mark.parametrize(
    ("destination", "says"),
    [
        ("DIRECT=OS:machine\\private$\\q", "give the URL of the queue"),
        ("MULTICAST=234.1.1.1", "is no multicast address"),
        ("wsrm://host/wsrm/q", "write wsrm:http://HOST/PATH"),
    ],
)
def test_destinations_that_no_message_over_http_can_go_to(
    running: RunningQueueManager, destination: str, says: str
) -> None:
    done = command(running, "send", "--destination", destination, "--body", "x")
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stdout == ""


def test_a_soap_action_for_msmq_is_a_mistake(running: RunningQueueManager) -> None:
    queue = make(running, "private$/no_service")
    done = command(running, "send", "--destination", queue, "--body", "x", "--soap-action", "urn:a")
    assert done.returncode == 2
    assert "--soap-action: only a destination wsrm:URL can have this" in done.stderr


def test_our_own_url_is_no_remote_destination(running: RunningQueueManager) -> None:
    queue = make(running, "private$/by_url")
    assert (
        lines(
            running,
            "send",
            "--destination",
            f"DIRECT={running.listening}/msmq/{queue}",
            "--body",
            "x",
        )[0]["destination"]
        == queue
    )


def test_purge_queues_and_status(running: RunningQueueManager) -> None:
    queue = make(running, "purge_me")
    lines(running, "send", "--destination", queue, "--lines", "-", stdin="a\nb\nc\n")
    assert lines(running, "purge", "--queue", queue) == [{"queue": queue, "purged": 3}]
    assert lines(running, "peek", "--queue", queue) == []
    (status,) = lines(running, "status")
    assert status["queue_manager"] == running.guid
    assert [each["name"] for each in lines(running, "queues")] == [
        each["name"] for each in status["queues"]
    ]
    table = command(running, "queues", "--table")
    assert table.stdout.splitlines()[0].split()[:3] == ["name", "transactional", "first"]
    assert command(running, "status", "--table").returncode == 0


class TestOnATerminal:
    """People see tables, programs JSON lines; only a command that changes nothing decides that itself."""

    def on_a_terminal(self, running: RunningQueueManager, *arguments: str) -> str:
        ours, theirs = pty.openpty()
        running_command = subprocess.Popen(
            [sys.executable, "-m", "srmp_spark.cli", *arguments, "--api", running.api],
            stdin=subprocess.DEVNULL, stdout=theirs, stderr=subprocess.PIPE,
        )  # fmt: skip
        os.close(theirs)
        text = b""
        # EIO: the command has ended, and everything that it printed was read.
        with contextlib.suppress(OSError):
            while piece := os.read(ours, 65_536):
                text += piece
        os.close(ours)
        _, errors = running_command.communicate(timeout=60)
        assert running_command.returncode == 0, errors
        return text.decode().replace("\r\n", "\n")

    @pytest.mark.parametrize(
        "arguments",
        [["queues"], ["consumers", "private$/orders"], ["peek", "--queue", "private$/orders"],
         ["status", "--queue", "private$/orders"], ["doctor", "--queue", "private$/orders"],
         ["queue", "create", "private$/orders"]],
        ids=lambda each: each[0],
    )  # fmt: skip
    def test_it_shows_a_table(self, running: RunningQueueManager, arguments: list[str]) -> None:
        shown = self.on_a_terminal(running, *arguments)
        assert "{" not in shown.partition("\n")[0]
        told = command(running, *arguments, "--table").stdout
        assert shown.partition("\n")[0].split() == told.partition("\n")[0].split()
        forced = self.on_a_terminal(running, *arguments, "--json").splitlines()
        assert all(json.loads(each) for each in forced)

    def test_received_rows_stay_whole(self, running: RunningQueueManager) -> None:
        """A table would cut the body of a row that the queue no longer has."""
        queue = make(running, "received_on_a_terminal")
        lines(running, "send", "--destination", queue, "--body", "x" * 500)
        (row,) = self.on_a_terminal(running, "receive", "--queue", queue).splitlines()
        assert base64.b64decode(json.loads(row)["body"]) == b"x" * 500

    def test_both_forms_at_once_are_refused(self, running: RunningQueueManager) -> None:
        refused = command(running, "queues", "--table", "--json")
        assert (refused.returncode, "not allowed with" in refused.stderr) == (2, True)


def test_damaged_rows_are_given_up_by_command(running: RunningQueueManager) -> None:
    queue = make(running, "damaged")
    lines(running, "send", "--destination", queue, "--lines", "-", stdin="a\nb\nc\n")
    refused = command(running, "give-up", "--queue", queue, "--first", "1", "--last", "2")
    assert (refused.returncode, "no row of" in refused.stderr) == (4, True)
    given = ("give-up", "--force", "--queue", queue, "--first", "1", "--last")
    assert lines(running, *given, "2") == [{"queue": queue, "given_up": 2}]
    assert lines(running, *given, "2") == [{"queue": queue, "given_up": 0}], (
        "they are holes already"
    )
    assert [each["sequence"] for each in lines(running, "peek", "--queue", queue)] == [3]
    refused = command(running, *given, "4")
    assert refused.returncode == 4
    assert "holds 1 to 3, not 1 to 4" in refused.stderr


def test_exit_codes(running: RunningQueueManager, tmp_path: Path) -> None:
    assert command(running, "peek").returncode == 2
    assert command(running, "nonsense").returncode == 2
    assert command(running, "peek", "--queue", "a/b/c").returncode == 2
    assert command(running, "peek", "--queue", "nobody").returncode == 4
    nobody = command(None, "queues", "--api", "http://127.0.0.1:1")
    assert nobody.returncode == 3
    assert "srmp-spark serve" in nobody.stderr
    assert command(None, "queues", SRMP_SPARK_API=running.api).returncode == 0
    assert (
        command(
            running,
            "send",
            "--destination",
            "private$/payments",
            "--delivery",
            "express",
            "--body",
            "",
        ).returncode
        == 4
    )
    assert command(running, "queues", "--token-file", str(tmp_path / "none")).returncode == 2
    for done in (nobody, command(running, "peek", "--queue", "nobody")):
        assert done.stderr.count("\n") == 1, "one line"


class TestDoctor:
    def test_all_is_well(self, running: RunningQueueManager) -> None:
        for queue in ("private$/orders", "private$/payments"):
            before = [each["last"] for each in lines(running, "queues") if each["name"] == queue]
            checks = lines(running, "doctor", "--queue", queue)
            assert all(check["ok"] for check in checks), checks
            assert [
                each["last"] for each in lines(running, "queues") if each["name"] == queue
            ] == before, "a probe is not stored"

    def test_each_fault_is_explained_with_the_flag_to_set(
        self, running: RunningQueueManager
    ) -> None:
        before = refusals(running)
        done = command(running, "doctor", "--queue", "nobody")
        assert done.returncode == 1
        assert refusals(running) == before, "the doctor is no sender"
        (probe,) = [
            check
            for check in map(json.loads, done.stdout.splitlines())
            if check["check"] == "probe"
        ]
        assert "deletes the message" in probe["detail"]
        assert "--queue nobody" in probe["hint"]

    def test_a_host_name_that_is_not_ours(self, running: RunningQueueManager) -> None:
        from srmp_spark.commands.doctor import judge

        check = judge(400, "foreign-host; [MC-MQSRM] 3.1.5.1.3", queue="q", host="gateway")
        assert not check.ok
        assert "--host-name gateway" in check.hint
        check = judge(400, "forward-not-allowed; [MC-MQSRM] 3.1.5.1.3", queue="q", host="gateway")
        assert "--allow-url http://gateway" in check.hint
        assert judge(404, None, queue="q", host="h").hint.startswith(
            "the answer is not from srmp-spark"
        )

    def test_blocked_receipts_are_explained_with_the_exact_flags(self) -> None:
        from srmp_spark.commands.doctor import blocked_hint

        patterns = ["http://127.0.0.1:8080", "http://127.0.0.1:8090"]
        hint = blocked_hint({"host": "127.0.0.1", "count": 2, "patterns": patterns})
        assert hint == "serve --allow-url http://127.0.0.1:8080 --allow-url http://127.0.0.1:8090"
        assert "receipt.blocked in the log" in blocked_hint(
            {"host": "machine1", "count": 1, "patterns": []}
        )

    def test_a_reason_that_a_token_is_not_told_is_no_none(self) -> None:
        from srmp_spark.commands.doctor import state_checks

        failed = {
            "of": "inbox",
            "reason": None,
            "remedy": "make room",
            "ended": False,
            "since": "2026-11-26T12:00:00Z",
        }
        (check,) = state_checks({"state": {"uri": "/state", "failed": failed}})
        assert check.detail == (
            "publishing of inbox fails since 2026-11-26T12:00:00Z: the reason is told to "
            "a token for all queues"
        )

    def test_each_host_name_is_tried_and_what_was_not_is_said(self, tmp_path: Path) -> None:
        names = {"host_name": "qm.example", "public_url": "http://outside.example"}
        with RunningQueueManager(tmp_path / "data", queues=["q"], **names) as named:
            checks = lines(named, "doctor", "--queue", "q")
        probed = [check["detail"] for check in checks if check["check"] == "probe"]
        assert [detail.split(" by host ")[1].split()[0] for detail in probed] == [
            "127.0.0.1",
            "qm.example",
            "outside.example",
        ]
        assert "--url http://qm.example:" in checks[-1]["hint"]

    def test_without_a_host_name_it_says_what_to_pass(self, running: RunningQueueManager) -> None:
        (last,) = [
            check
            for check in lines(running, "doctor", "--queue", "private$/orders")
            if check["check"] == "senders"
        ]
        assert "there is no --host-name" in last["detail"]
        assert "doctor --url http://NAME:" in last["hint"]

    def test_a_misspelt_queue(self, running: RunningQueueManager) -> None:
        done = command(running, "doctor", "--queue", "private$/ordrs")
        assert done.returncode == 1
        assert "did you mean 'private$/orders'?" in done.stdout

    def test_a_private_authority_is_trusted_where_it_is_named(self, tmp_path: Path) -> None:
        authority = Authority(tmp_path / "ca")
        ours = authority.issue("ours")
        serve = {
            "listen_https": "127.0.0.1:0",
            "listen_cert": ours.certificate,
            "listen_key": ours.key,
        }
        with RunningQueueManager(tmp_path / "data", queues=["q"], **serve) as secured:
            (url,) = [secured.ready["https"]]
            for named in (
                {},
                {"REQUESTS_CA_BUNDLE": str(authority.ca)},
                {"SSL_CERT_FILE": str(authority.ca)},
            ):
                done = command(
                    secured, "doctor", "--url", str(url), "--queue", "q", **UNNAMED | named
                )
                (port,) = [
                    check
                    for check in map(json.loads, done.stdout.splitlines())
                    if check["check"] == "port"
                ]
                assert port["ok"] == bool(named), done.stdout
                assert ("REQUESTS_CA_BUNDLE=FILE or SSL_CERT_FILE=FILE" in port["hint"]) == (
                    not named
                )

    def test_nobody_listens(self, running: RunningQueueManager) -> None:
        done = command(running, "doctor", "--url", "http://127.0.0.1:1")
        assert done.returncode == 1
        assert "nobody listens" in done.stdout

    def test_something_else_listens(self, running: RunningQueueManager) -> None:
        assert (
            "is an API of srmp-spark, not its SRMP port"
            in command(running, "doctor", "--url", running.api).stdout
        )
        with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as other:
            threading.Thread(target=other.serve_forever, daemon=True).start()
            done = command(running, "doctor", "--url", f"http://127.0.0.1:{other.server_port}")
            other.shutdown()
        assert "is answered by BaseHTTP" in done.stdout
        assert "not by srmp-spark" in done.stdout


class TestCapture:
    SECRET = "5ec2e700-1111-4222-8333-444455556666"

    def send(self, running: RunningQueueManager, number: int) -> None:
        import http.client

        host, port = running.endpoint
        message = ForeignMessage(
            to=f"http://{host}:{port}/msmq/private$/captured", lineage=self.SECRET, uniquifier=number, sent_at=1_790_000_000,
            label="secret label",
            body=b"secret body", extension=b"secret extension", delivery_receipt_to="http://secrethost.example:81/msmq/private$/admin",
            correlation=bytes.fromhex("00e7c25e111122428333444455556666") + b"\x07\0\0\0",
        )  # fmt: skip
        written = post(message)
        connection = http.client.HTTPConnection(host, port)
        connection.request(
            "POST",
            written.target,
            written.content,
            {"Content-Type": written.content_type, "Authorization": "Basic c2VjcmV0"},
        )
        assert connection.getresponse().status == 200
        connection.close()

    def test_nothing_secret_is_left_and_everything_still_decodes(
        self, running: RunningQueueManager, tmp_path: Path
    ) -> None:
        make(running, "private$/captured")
        for number in (1, 2, 3):
            self.send(running, number)
        written = lines(
            running,
            "capture",
            "--queue",
            "private$/captured",
            "--max",
            "2",
            "--out",
            str(tmp_path / "out"),
        )
        assert [each["sequence"] for each in written] == [2, 3]
        originals = []
        for each in written:
            raw = (tmp_path / "out" / each["file"]).read_bytes()
            assert len(raw) == each["bytes"]
            for secret in (
                b"secret",
                b"5ec2e700",
                b"c2VjcmV0",
                base64.b64encode(bytes.fromhex("00e7c25e"))[:4],
            ):
                assert secret not in raw
            originals.append(
                decode(content_type_of(raw[: each["head_bytes"]]), raw[each["head_bytes"] :])
            )
        assert originals[0].lineage == originals[1].lineage != self.SECRET, (
            "the same thing has the same replacement"
        )
        assert originals[0].correlation == originals[1].correlation
        assert originals[0].correlation[16:] == b"\x07\0\0\0"
        assert [message.uniquifier for message in originals] == [2, 3]
        assert originals[0].body == b"x" * 11

    def test_nothing_is_made_for_a_queue_that_is_not_there(
        self, running: RunningQueueManager, tmp_path: Path
    ) -> None:
        done = command(
            running, "capture", "--queue", "private$/ordres", "--out", str(tmp_path / "out")
        )
        assert (done.returncode, "did you mean 'private$/orders'?" in done.stderr) == (4, True)
        assert not (tmp_path / "out").exists()

    def test_it_writes_only_into_an_empty_folder(
        self, running: RunningQueueManager, tmp_path: Path
    ) -> None:
        (tmp_path / "something").touch()
        assert (
            command(
                running, "capture", "--queue", "private$/orders", "--out", str(tmp_path)
            ).returncode
            == 2
        )
