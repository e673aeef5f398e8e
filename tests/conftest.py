"""Which tests run in one process when several run at once (``make test``: pytest-xdist, ``--dist loadgroup``).

A module stays together: its fixtures are queue managers and sessions that take seconds to start. All that drive a JVM in their
own process are two groups, so two JVMs start and no more; they are halves by time, not by number. Programs that start Spark
and may take a JVM that is there are a third group (:mod:`tests.one_jvm`). Nothing is shared between
groups: each test has its own directory, and ports are whatever is free. The groups that take longest begin first, so that no
process is left alone with one of them in the end; hence ``--no-loadscope-reorder``.

A run of all of them also fails when a test that a page of MUSTs relies on did not pass: :mod:`tests.musts_gate`. Tests marked
``long`` are left out of ``make test``: :mod:`tests.long_samples`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from srmp_spark.errors import ConfigurationError
from tests.kit import musts
from tests.long_samples import LeftOut
from tests.musts_gate import MustsGate
from tests.one_jvm import one_jvm
from tests.one_session import one_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent
TABLES = ("spark/test_exactly_once.py", "delta/test_delta_spark.py", "spark/test_replay.py", "spark/test_backfill.py",
          "spark/test_backfill_mqrr.py", "spark/test_checkpoint_rolled_back.py", "spark/test_asynchronous_progress.py",
          "spark/test_sink_to_service.py", "spark/test_two_sinks.py")  # fmt: skip
"""Write Delta tables, and some that balance the halves."""
QUEUES = ("spark/test_functions.py", "spark/test_restarts.py", "spark/test_multicast_to_dataframe.py",
          "spark/test_chosen_columns.py", "spark/test_progress.py", "spark/test_wsrm_to_dataframe.py")  # fmt: skip
"""Read queues, as the tests of the engine do: the other half."""
PROGRAMS = ("notebooks/test_notebooks.py", "compat/test_compat.py", "compat/test_whole.py", "compat/test_whole_elsewhere.py",
            "conf/test_compose.py", "spark/test_two_ingests.py", "benchmarks/test_quick_spark.py",
            "pipeline/test_pipeline_page.py")  # fmt: skip
"""Start programs with Spark that take the JVM of :mod:`tests.one_jvm`, or share addresses with such a module."""
LONGEST = (
    "spark tables",
    "spark queues",
    "spark programs",
    "spark/test_connect.py",
    "sender/test_slow_lines.py",
    "wsrm/test_wsrm_out.py",
    "spark/test_sink_cluster.py",
    "spark/test_replay_command.py",
    "spark/test_ingest_job.py",
    "disk/test_power_loss.py",
    "spark/test_embedded.py",
    "disk/test_kill_calls.py",
    "acceptance/test_kill.py",
    "disk/test_disk_errors.py",
    "docs/test_page_commands.py",
    "wheel/test_wheel.py",
    "sender/test_kill_forward.py",
    "fuzz/test_slow_clients.py",
    "benchmarks/test_quick.py",
    "acceptance/test_kill_ingest.py",
    "restore/test_drill.py",
    "sender/test_kill_out.py",
    "remote read",
    "queue_manager/test_serve.py",
    "simulation/test_sink_simulation.py",
    "queries/test_random_schedules.py",
    "outbox/test_crash.py",
    "sender/test_faults.py",
    "cli/test_commands.py",
    "test_collection.py",
    "acceptance/test_foreign_peer.py",
    "benchmarks/test_many.py",
    "delta/test_publisher_kill.py",
    "fuzz/test_fuzz.py",
    "attack/test_attack.py",
    "pgm/test_pgm_interop.py",
)
"""Groups of more than fifteen seconds: the longest first, and in turn with a JVM and without, so that few run at once."""


def group_of(path: Path) -> str:
    """The group of a test module."""
    name = path.relative_to(ROOT).as_posix()
    if name in TABLES:
        return "spark tables"
    if name in PROGRAMS:
        return "spark programs"
    if name.startswith("remote_read/"):  # one queue manager serves them all
        return "remote read"
    return "spark queues" if name.startswith("spark/test_engine") or name in QUEUES else name


def musts_tables() -> list[musts.Table]:
    """The sentences of our documents and their tests."""
    try:
        return [musts.load(document) for document in musts.DOCUMENTS]
    except ConfigurationError as error:
        raise pytest.UsageError(f"docs/musts: {error}") from None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """The session of this process."""
    with one_session() as session:
        yield session


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """The environment of programs that take one JVM, one after the other."""
    with one_jvm(tmp_path_factory.mktemp("jvm")) as environment:
        yield environment


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(LeftOut(config), "left-out")
    if not hasattr(config, "workerinput"):  # the controller sees every report
        for table in musts_tables():
            config.pluginmanager.register(
                MustsGate(table, ROOT), f"musts-gate {table.document.name}"
            )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """``caplog`` shows text in every process. PySpark's own class of loggers makes JSON of the handlers that it is given, and
    pytest gives its own to each logger that does not propagate, as Spark's for queries do once one has failed.
    """
    for logger in tuple(logging.root.manager.loggerDict.values()):
        if type(logger).__name__ == "PySparkLogger":
            logger.propagate = True
    plugin = item.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in this hook too
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(group_of(item.path)))
    if hasattr(config, "workerinput"):
        items.sort(
            key=lambda item: _rank(group_of(item.path))
        )  # stable: the rest stays in its order


def _rank(group: str) -> int:
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)
