"""One JVM for programs that start Spark one after the other: jobs, notebooks, the containers' commands.

A JVM that begins computes for half a minute before it is warm. As under ``spark-submit``, PySpark takes a JVM that is there
when it is told where; each program still makes a session of its own in it, with its own settings, and stops it. What kills its
JVM, and what proves that a program brings Delta's jars along, starts its own.
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
print(json.dumps({"PYSPARK_GATEWAY_PORT": str(taken.port), "PYSPARK_GATEWAY_SECRET": taken.auth_token}), flush=True)
sys.stdin.read()
"""


@contextmanager
def one_jvm(directory: Path) -> Iterator[dict[str, str]]:
    """The variables that let a program take this JVM. It ends with its launcher, whose stdin ends with us."""
    root = str(Path(__file__).resolve().parents[1])
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH"))))
    environment.setdefault(
        "PYSPARK_PYTHON", sys.executable
    )  # of the workers that this JVM starts; `make` sets it too
    log = directory / "jvm.log"
    with log.open("w") as errors:
        launcher = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH], env=environment, cwd=directory,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
        )  # fmt: skip
    try:
        line = launcher.stdout.readline()
        assert line, log.read_text()[-3000:]
        yield json.loads(line)
    finally:
        launcher.communicate(timeout=60)
