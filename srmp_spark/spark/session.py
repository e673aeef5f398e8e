"""Functions that the jobs share: a session with Delta, a check of Java, the last line of stdout.

If ``python`` runs a job, the job starts its own JVM, and Delta's jar is found by the coordinates of
its pip package. If ``spark-submit`` runs it, the JVM exists already. If that JVM was started
without Delta, the job restarts itself with the same settings and Delta added (:func:`with_delta`),
because a running JVM cannot get Delta's session extension.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from srmp_spark import errors
from srmp_spark.errors import ConfigurationError, SrmpSparkError
from srmp_spark.extras import needs
from srmp_spark.interface import ExitCode, exit_code_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from srmp_spark.spark.jvm_output import JvmOutput

LOG_LEVEL = "spark.log.level"
QUIET_LEVEL = "ERROR"
"""Spark's log level of a job. A warning of Spark says nothing about the messages of the job."""
JAVA_MIN = 17
"""Oldest Java version that runs Spark 4.2."""

ONE_MACHINE = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.databricks.delta.snapshotPartitions": "2",
}
"""Default settings for ``local[…]``.

With these settings a small Delta read takes 3 s in place of 20 s, measured.
"""

DELTA = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.session.timeZone": "UTC",
}

_OURS = re.compile(r"srmp_spark\.errors\.(\w+): (.+)")


def check_java() -> None:
    """Raise :class:`ConfigurationError` if Java is missing or older than :data:`JAVA_MIN`.

    The error has one line of text. Spark's JVM could not start then.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    advice = (
        f"Spark needs Java {JAVA_MIN} or newer (Debian, Ubuntu: apt-get install "
        "openjdk-17-jre-headless), or set JAVA_HOME"
    )
    try:
        if java is None:
            raise FileNotFoundError("java")
        said = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr  # noqa: S603  # the user's Java
    except (OSError, subprocess.CalledProcessError):
        raise ConfigurationError(
            f"Java is missing{f' in JAVA_HOME={home}' if home else ''}: {advice}"
        ) from None
    match = re.search(r'version "(\d+)', said)
    if match is None or int(match[1]) < JAVA_MIN:
        raise ConfigurationError(f"Java {match[1] if match else said[:40]!r} is too old: {advice}")


def use_this_python() -> None:
    """Make Spark's workers use this Python.

    The function sets ``PYSPARK_PYTHON`` and ``PYSPARK_DRIVER_PYTHON``, unless they are set. Without
    ``PYSPARK_PYTHON`` Spark uses the first ``python3`` in the path.
    """
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)


def with_delta() -> None:
    """Replace this process by the same job with Delta, if its JVM was started without Delta.

    ``spark-submit`` started that JVM, and the new process has the same settings. Without
    ``spark-submit``, or if Delta is present, the function does nothing.
    """
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return
    settings = _of_the_jvm()
    sources = ("spark.jars", "spark.jars.packages", "spark.driver.extraClassPath")
    if any("delta" in settings.get(name, "") for name in sources):
        return
    passed = {
        name: value
        for name, value in settings.items()
        if name not in ("spark.submit.pyFiles", "spark.app.submitTime", "spark.app.name")
    }
    arguments = [part for name, value in passed.items() for part in ("--conf", f"{name}={value}")]
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_GATEWAY")
    }
    environment["PYSPARK_SUBMIT_ARGS"] = shlex.join([*arguments, "pyspark-shell"])
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.argv], environment)  # noqa: S606  # this program itself


def delta_session(
    name: str,
    master: str | None = None,
    *,
    output: JvmOutput | None = None,
    log_level: str = QUIET_LEVEL,
) -> SparkSession:
    """Return a session that can write Delta.

    If ``master`` is ``None``, the setting of spark-submit or of the environment is used, else
    ``local[*]``. The process may be replaced first (:func:`with_delta`). ``output`` receives what a
    new JVM prints; without it the JVM prints on this process's stderr, as a JVM does that exists
    already. ``log_level`` is Spark's level on one machine. Raises :class:`ConfigurationError` if
    Java is missing or too old, and :class:`MissingExtraError` if Spark is not installed.
    """
    needs("spark")
    check_java()
    use_this_python()
    with_delta()
    from delta import configure_spark_with_delta_pip
    from pyspark.sql import SparkSession

    given = _submitted()
    builder = SparkSession.builder.appName(name)
    if master is None and "spark.master" not in given:
        master = os.environ.get("MASTER", "local[*]")
    if master is not None:
        builder = builder.master(master)
    is_local = (master or given["spark.master"]).startswith("local")
    defaults = {**ONE_MACHINE, LOG_LEVEL: log_level} if is_local else {}
    for setting, value in {**defaults, **DELTA}.items():
        if setting not in given or setting in DELTA:
            builder = builder.config(setting, value)
    builder = configure_spark_with_delta_pip(builder)
    if output is not None and "PYSPARK_GATEWAY_PORT" not in os.environ:
        # The builder has no public way to read its settings.
        _start_jvm(builder._options, output)  # noqa: SLF001
    return builder.getOrCreate()


def _start_jvm(settings: Mapping[str, str], output: JvmOutput) -> None:
    """Start the JVM as the first session of a process does, with ``output`` as its stderr.

    A process has one JVM. If it exists, the function does nothing.
    """
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway

    if SparkContext._gateway is not None:  # noqa: SLF001  # there is no public name
        return
    conf = SparkConf(loadDefaults=False).setAll([*settings.items()])
    # PySpark's function has no types.
    gateway = launch_gateway(conf, {"stderr": output})  # type: ignore[no-untyped-call]
    SparkContext._ensure_initialized(gateway=gateway)  # noqa: SLF001  # as the first session does


def _submitted() -> dict[str, str]:
    """Return the settings given to spark-submit, or in ``PYSPARK_SUBMIT_ARGS``, by their names."""
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        return _of_the_jvm()
    given: dict[str, str] = {}
    parts = shlex.split(os.environ.get("PYSPARK_SUBMIT_ARGS", ""))
    for flag, value in pairwise(parts):
        if flag == "--conf":
            setting, _, text = value.partition("=")
            given[setting] = text
        elif flag == "--master":
            given["spark.master"] = value
    return given


def _of_the_jvm() -> dict[str, str]:
    """Return the settings of the JVM that exists already, by their names.

    A ``SparkConf`` that is made before Python is connected to the JVM would be empty.
    """
    from pyspark import SparkConf, SparkContext

    SparkContext._ensure_initialized()  # noqa: SLF001  # as the first session does
    return dict(SparkConf().getAll())


def explain(error: BaseException) -> tuple[ExitCode, str]:
    """Return (exit code, one line of text) for the error that ended a query.

    The line is the error of this package in Spark's traceback if there is one, else the first line
    of the error.
    """
    ours = _OURS.findall(str(error))
    if ours:
        name, text = ours[-1]
        return exit_code_of(getattr(errors, name, Exception)), text.strip()
    text = str(error).strip() or type(error).__name__
    return exit_code_of(type(error)), text.splitlines()[0]


def is_explained(error: BaseException) -> bool:
    """Return whether one line of :func:`explain` says all: the error is one of this package."""
    return isinstance(error, SrmpSparkError) or _OURS.search(str(error)) is not None


def last_line(job: str, *, rows: int, batches: int, status: str, **more: Any) -> None:  # noqa: ANN401  # JSON values
    """Print the last line of a job's stdout (INTERFACE.md section 5).

    ``more`` are further fields of its JSON object.
    """
    sys.stderr.flush()
    print(
        json.dumps({"job": job, "rows": rows, "batches": batches, "status": status, **more}),
        flush=True,
    )
