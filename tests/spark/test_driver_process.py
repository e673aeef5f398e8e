"""Which program a reader's process belongs to, as the error of a held queue names it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from srmp_spark.holder import PURPOSE_LENGTH_MAX
from srmp_spark.spark.driver_process import Process, of_driver, process

JAVA = ("/usr/lib/jvm/bin/java", "-cp", "x", "org.apache.spark.deploy.SparkSubmit")
READER = {
    9: Process(9, 8, ("python3", "-m", "pyspark.daemon")),
    8: Process(8, 7, ("python3", "-m", "pyspark.daemon")),
}


@pytest.mark.parametrize(
    ("java", "above", "text"),
    [
        (
            (*JAVA, "--conf", "spark.app.name=orders"),
            ("python3.11", "/x/quick.py"),
            " of orders (driver process 6)",
        ),
        (
            (*JAVA, "--conf", "spark.app.name=pyspark-shell"),
            ("python3", "/x/quick.py"),
            " of quick.py (driver process 6)",
        ),
        ((*JAVA, "pyspark-shell"), ("python3", "-c", "…"), " of driver process 6"),
        ((*JAVA, "/x/ingest.py"), ("/bin/bash",), " of ingest.py (driver process 7)"),
        ((*JAVA, "--conf", "spark.app.name=a\nb"), ("bash",), " of ab (driver process 7)"),
    ],
)
def test_the_program_that_started_the_jvm_is_named(
    java: tuple[str, ...], above: tuple[str, ...], text: str
) -> None:
    assert of_driver(9, {**READER, 7: Process(7, 6, java), 6: Process(6, 1, above)}.get) == text


def test_a_long_name_leaves_room_for_the_number() -> None:
    java = Process(7, 1, (*JAVA, f"spark.app.name={'n' * 500}"))
    text = of_driver(9, {**READER, 7: java}.get)
    assert text.endswith("(driver process 7)")
    assert len(text) < PURPOSE_LENGTH_MAX / 2


def test_without_a_jvm_above_nothing_is_said() -> None:
    assert of_driver(9, READER.get) == ""
    assert of_driver(9, {9: Process(9, 9, ("python3",))}.get) == "", (
        "whatever the system tells, it ends"
    )


@pytest.mark.skipif(not Path("/proc/self").is_dir(), reason="this system has no /proc")
def test_what_the_system_tells_of_a_process() -> None:
    code = "import sys; print(flush=True); sys.stdin.read()"
    child = subprocess.Popen(
        [sys.executable, "-c", code, "a.py"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        assert child.stdout is not None
        child.stdout.readline()  # before it runs, the system may not know its arguments yet
        found = process(child.pid)
        assert found is not None
        assert (found.parent, found.script) == (os.getpid(), "a.py")
        assert found.program.startswith("python")
    finally:
        child.communicate()
    assert process(child.pid) is None
