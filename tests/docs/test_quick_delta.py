"""README's section about XML and examples/quick_delta.py, run as they stand: broken messages, a stop, a crash."""

from __future__ import annotations

import base64
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import deltalake
import pytest
from page_commands import ROOT, Terminal
from test_page_commands import PIPELINE_PAGE, PIPELINE_SECTION, run_of

from srmp_spark.client.api import QueueManagerClient
from srmp_spark.testing.queue_handle import QueueHandle

EXAMPLE = ROOT / "examples" / "quick_delta.py"
LINES_MAX = 100
SECONDS = 300.0
ORDERS, REPLIES = "private$/orders", "private$/replies"


def order(number: str, quantity: object, **more: str) -> bytes:
    parts = {"id": number, "quantity": str(quantity), **more}
    return (
        "<order>" + "".join(f"<{name}>{text}</{name}>" for name, text in parts.items()) + "</order>"
    ).encode()


class Pipeline:
    """The folder of a reader: the example, and what it has made."""

    def __init__(self, terminal: Terminal) -> None:
        self.folder = terminal.folder
        self.terminal = terminal
        self.client = QueueManagerClient(f"http://127.0.0.1:{terminal.port(8081)}")
        self.example = self.folder / "examples" / "quick_delta.py"
        self.example.parent.mkdir()
        self.running: subprocess.Popen[str] | None = None
        self.write(EXAMPLE.read_text())

    def write(self, text: str) -> None:
        # The JVM of the tests lives in another folder than the program.
        here = text.replace('"./lake/', f'"{self.folder}/lake/')
        self.example.write_text(self.terminal.moved(here))

    def send(self, *bodies: bytes) -> None:
        messages = [{"body_base64": base64.b64encode(body).decode()} for body in bodies]
        self.client.send(ORDERS, messages)

    def start(self, *arguments: str) -> None:
        self.running = subprocess.Popen(
            [sys.executable, str(self.example), *arguments],
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def once(self) -> str:
        """One run with ``--once``; what it printed."""
        self.start("--once")
        return self.ended()

    def stop(self) -> str:
        """Ctrl-C; what the process printed."""
        assert self.running is not None
        self.running.send_signal(signal.SIGINT)
        return self.ended()

    def state(self) -> tuple[dict[str, Any], dict[int, str], list[tuple[str, str]]]:
        """Each order's quantity, the reason of each message in quarantine, and the replies in order.

        Fails if a row is there twice.
        """
        orders, poison = self._rows("orders"), self._rows("quarantine")
        quantities = {row["id"]: row["quantity"] for row in orders}
        reasons = {row["sequence"]: row["reason"] for row in poison}
        assert (len(quantities), len(reasons)) == (len(orders), len(poison))
        return quantities, reasons, self.replies()

    def replies(self) -> list[tuple[str, str]]:
        queue = QueueHandle(REPLIES, "", self.client)
        return [(row["label"], " ".join(row["body_text"].split())) for row in queue.rows()]

    def settled(self, replies: int) -> tuple[dict[str, Any], dict[int, str], list[tuple[str, str]]]:
        """The state when nothing is left to send and ``replies`` have arrived."""
        deadline = time.monotonic() + SECONDS
        while True:
            (out,) = self.client.status()["outgoing"]
            waits = out["queued"] + out["awaiting_stream_receipt"] + out["in_doubt"]
            if not waits and len(self.replies()) >= replies:
                return self.state()
            assert self.running is None or self.running.poll() is None, self.ended()
            assert time.monotonic() < deadline, (out, self.replies())
            time.sleep(0.1)

    def ended(self) -> str:
        """What the process that runs, or ran, has printed."""
        assert self.running is not None
        running, self.running = self.running, None
        printed, errors = running.communicate(timeout=SECONDS)
        assert running.returncode == 0, errors[-3000:]
        return printed

    def _rows(self, table: str) -> list[dict[str, Any]]:
        return deltalake.DeltaTable(self.folder / "lake" / table).to_pyarrow_table().to_pylist()


def accepted(number: str) -> tuple[str, str]:
    return number.replace(
        "&amp;", "&"
    ), f"<reply> <id>{number}</id> <state>accepted</state> </reply>"


def in_the_jvm(monkeypatch: pytest.MonkeyPatch, jvm: dict[str, str]) -> None:
    """What the programs of the page inherit."""
    for variable, value in {"PYSPARK_PYTHON": sys.executable, **jvm}.items():
        monkeypatch.setenv(variable, value)


@pytest.mark.spark
@pytest.mark.timeout(600)
def test_the_pipeline_of_readme(
    tmp_path: Path, jvm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    in_the_jvm(monkeypatch, jvm)
    with Terminal(tmp_path / "here") as terminal:
        pipeline = Pipeline(terminal)
        for step in [*run_of("README.md", PIPELINE_SECTION), *run_of(PIPELINE_PAGE)]:
            terminal.run(step)
        first = ({"A-1": 2}, {2: "not the XML of an order"}, [accepted("A-1")])
        assert pipeline.settled(1) == first

        # It runs on, and receives what no pipeline should stop at.
        pipeline.start()
        pipeline.send(
            order("A-1", 5),
            b"\x00\xff\xfe\x80",
            b"hello",
            "<?xml version='1.0' encoding='utf-16'?><order><id>Ä</id><quantity>1</quantity></order>".encode("utf-16"),
            b"<order><id>A-3</id>",
            b"<order><quantity>1</quantity></order>",
            order("A-4", 0),
            order("A-1", 7),
            order("A&amp;5", 1, price="9.999"),
        )  # fmt: skip
        after = pipeline.settled(5)
        unreadable = "not the XML of an order"
        assert after == (
            {"A-1": 7, "Ä": 1, "A&5": 1},
            {2: unreadable, 4: "the body is not text", 5: unreadable, 7: unreadable, 8: "no id",
             9: "no positive quantity"},
            [accepted(number) for number in ("A-1", "A-1", "Ä", "A-1", "A&amp;5")],
        )  # fmt: skip
        pipeline.stop()

        # Killed after the tables were written and before Spark noted it: the batch runs again.
        checkpoint = pipeline.folder / "lake" / "checkpoint"
        last = max(
            int(path.name) for path in (checkpoint / "offsets").iterdir() if path.name.isdigit()
        )
        for name in (f"{last}", f".{last}.crc"):
            (checkpoint / "commits" / name).unlink(missing_ok=True)
        assert f"batch {last}: orders 4, quarantine 5" in pipeline.once()
        assert pipeline.settled(5) == after


@pytest.mark.long  # the test above runs a batch again; here its number has other rows
@pytest.mark.spark
@pytest.mark.timeout(600)
def test_a_lost_checkpoint_doubles_nothing(
    tmp_path: Path, jvm: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every message is read once more, in a batch whose number was used for others."""
    in_the_jvm(monkeypatch, jvm)
    with Terminal(tmp_path / "here") as terminal:
        pipeline = Pipeline(terminal)
        terminal.run(run_of("README.md", PIPELINE_SECTION)[0])
        pipeline.send(order("B-1", 1), b"hello")
        pipeline.once()
        pipeline.send(order("B-2", 2), order("B-1", 3))
        shutil.rmtree(pipeline.folder / "lake" / "checkpoint")
        source = '.option("queue", QUEUE)'
        again = EXAMPLE.read_text().replace(
            source, f'{source}.option("startingOffsets", "earliest")'
        )
        pipeline.write(again)
        assert "batch 0: orders 3, quarantine 1" in pipeline.once()
        assert pipeline.settled(3) == (
            {"B-1": 3, "B-2": 2},
            {2: "not the XML of an order"},
            [accepted(number) for number in ("B-1", "B-2", "B-1")],
        )


def test_the_example_is_short_enough_to_be_read() -> None:
    assert len(EXAMPLE.read_text().splitlines()) <= LINES_MAX
