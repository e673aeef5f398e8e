"""One JVM for programs that start Spark one after another: jobs, notebooks, container commands.

A new JVM computes for half a minute before it is warm. PySpark uses an existing JVM if the
environment names one, as under ``spark-submit``. Each program still creates a session of its own in
the JVM, with its own settings, and stops the session. A program starts its own JVM if it kills its
JVM, or if it must prove that it brings Delta's jars along.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_LAUNCH = """
import json, os, shlex, sys
from delta import configure_spark_with_delta_pip
from pyspark.java_gateway import launch_gateway
from pyspark.sql import SparkSession
packages = configure_spark_with_delta_pip(SparkSession.builder)._options["spark.jars.packages"]
os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join(["--packages", packages, "pyspark-shell"])
taken = launch_gateway(popen_kwargs={"stdout": sys.stderr}).gateway_parameters
print(json.dumps({"PYSPARK_GATEWAY_PORT": str(taken.port), \
"PYSPARK_GATEWAY_SECRET": taken.auth_token}), flush=True)
sys.stdin.read()
"""


@contextmanager
def one_jvm(directory: Path) -> Iterator[dict[str, str]]:
    """Start a JVM, and yield the environment with which a program uses the JVM.

    The JVM ends with its launcher process, which ends when its stdin is closed. ``directory`` gets
    the log.
    """
    root = str(Path(__file__).resolve().parents[1])
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    # The workers that this JVM starts use this Python. ``make`` sets the variable, too.
    environment.setdefault("PYSPARK_PYTHON", sys.executable)
    log = directory / "jvm.log"
    with log.open("w") as errors:
        launcher = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH], env=environment, cwd=directory,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    try:
        assert launcher.stdout is not None
        line = launcher.stdout.readline()
        assert line, log.read_text()[-3000:]
        yield json.loads(line)
    finally:
        launcher.communicate(timeout=60)
