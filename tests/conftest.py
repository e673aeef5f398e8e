"""Decides which tests run in the same process when several run at once.

``make test`` uses pytest-xdist with ``--dist loadgroup``. The tests of a module stay together,
because their fixtures are queue managers and sessions that take seconds to start. The modules that
drive a JVM in their own process form two groups, so that only two JVMs start. The groups are halves
by time, not by number. Programs that start Spark and may use an existing JVM are a third group
(:mod:`tests.one_jvm`). Groups share nothing: each test has its own directory, and ports are
whichever are free. The groups that take longest begin first, so that no process is left alone with
one of them at the end. This is the reason for ``--no-loadscope-reorder``.

A run of the whole suite also fails if a test that a page of MUSTs relies on did not pass
(:mod:`tests.musts_gate`). ``make test`` leaves out the tests that are marked ``long``
(:mod:`tests.long_samples`).
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from srmp_spark.errors import ConfigurationError
from tests.kit import musts, zygote
from tests.long_samples import LeftOut
from tests.musts_gate import MustsGate
from tests.one_jvm import one_jvm
from tests.one_session import one_session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parent
TABLES = ("spark/test_exactly_once.py", "delta/test_delta_spark.py", "spark/test_replay.py",
          "spark/test_backfill.py", "spark/test_backfill_mqrr.py",
          "spark/test_checkpoint_rolled_back.py", "spark/test_asynchronous_progress.py",
          "spark/test_sink_to_service.py", "spark/test_two_sinks.py")  # fmt: skip
"""Modules of the group "spark tables".

They write Delta tables. Some do not, and are here to balance the halves.
"""
QUEUES = ("spark/test_functions.py", "spark/test_restarts.py",
          "spark/test_multicast_to_dataframe.py", "spark/test_chosen_columns.py",
          "spark/test_progress.py", "spark/test_wsrm_to_dataframe.py",
          "spark/test_poison_rows.py")  # fmt: skip
"""Modules of the group "spark queues", the other half.

They read queues, as the tests of the engine do, which belong to the same group.
"""
PROGRAMS = ("notebooks/test_notebooks.py", "compat/test_compat.py", "compat/test_whole.py",
            "compat/test_whole_elsewhere.py", "conf/test_compose.py",
            "spark/test_two_ingests.py", "benchmarks/test_quick_spark.py",
            "pipeline/test_pipeline_page.py", "acceptance/test_failover.py",
            "compat/test_mixed_versions.py", "docs/test_quick_delta.py")  # fmt: skip
"""Modules of the group "spark programs".

They start programs with Spark that use the JVM of :mod:`tests.one_jvm`, or share addresses with
such a module.
"""
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
"""Groups that take more than fifteen seconds, the longest first.

Groups with and without a JVM alternate, so that few JVMs run at once.
"""


def group_of(path: Path) -> str:
    """Return the name of the group of a test module."""
    name = path.relative_to(ROOT).as_posix()
    if name in TABLES:
        return "spark tables"
    if name in PROGRAMS:
        return "spark programs"
    # One queue manager serves all these modules.
    if name.startswith("remote_read/"):
        return "remote read"
    return "spark queues" if name.startswith("spark/test_engine") or name in QUEUES else name


def musts_tables() -> list[musts.Table]:
    """Return the tables of MUST sentences of our documents, with the tests of each sentence.

    Raises :class:`pytest.UsageError` if a table is malformed.
    """
    try:
        return [musts.load(document) for document in musts.DOCUMENTS]
    except ConfigurationError as error:
        raise pytest.UsageError(f"docs/musts: {error}") from None


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield the Spark session of this process."""
    with one_session() as session:
        yield session


@pytest.fixture(scope="session")
def jvm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """Yield the environment for programs that use one JVM, one program after another."""
    with one_jvm(tmp_path_factory.mktemp("jvm")) as environment:
        yield environment


def pytest_configure(config: pytest.Config) -> None:
    zygote.install()
    config.pluginmanager.register(LeftOut(config), "left-out")
    # Only the controller, or the single process, gets the reports of all tests.
    if not hasattr(config, "workerinput"):
        for table in musts_tables():
            config.pluginmanager.register(
                MustsGate(table, ROOT), f"musts-gate {table.document.name}"
            )


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Let ``caplog`` show plain text in every process.

    PySpark's class of loggers sets a JSON formatter on each handler that it is given. pytest gives
    its own handlers to each logger that does not propagate, and Spark's logger for queries stops
    propagating once a query has failed.
    """
    for logger in tuple(logging.root.manager.loggerDict.values()):
        if type(logger).__name__ == "PySparkLogger":
            logger.propagate = True
    plugin = item.config.pluginmanager.get_plugin("logging-plugin")
    for handler in (plugin.caplog_handler, plugin.report_handler):
        handler.setFormatter(plugin.formatter)


# pytest-xdist reads the groups in the same hook, so this function must run first.
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            item.add_marker(pytest.mark.xdist_group(group_of(item.path)))
    if hasattr(config, "workerinput"):
        # The sort is stable: all other groups stay in their order.
        items.sort(key=lambda item: _rank(group_of(item.path)))


def _rank(group: str) -> int:
    return LONGEST.index(group) if group in LONGEST else len(LONGEST)
