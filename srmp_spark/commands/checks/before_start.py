"""Check a configuration of ``serve`` before it runs: ``serve --check``.

**What is read, and what is not touched.** Everything is read as ``serve`` reads it: flags,
environment and file, by the same code. Nothing is created, locked, sent or opened for writing. A
port is bound for a moment and never listens, so a queue manager that starts meanwhile gets it all
the same. The database is not opened. So the checks may run beside a queue manager of the same
directory, and as often as one likes.

**What fails.** A check fails if ``serve`` would not start, or would start and not do its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from srmp_spark.client.endpoint_file import read_endpoint
from srmp_spark.commands.checks.advice import advice_checks
from srmp_spark.commands.checks.certificates import certificate_checks
from srmp_spark.commands.checks.data_directory import data_directory_checks, state_checks
from srmp_spark.commands.checks.host_names import host_name_checks
from srmp_spark.commands.checks.ports import port_checks
from srmp_spark.commands.checks.report import Check
from srmp_spark.commands.checks.tickets import ticket_checks
from srmp_spark.errors import ConfigurationError
from srmp_spark.queue_manager.configuration.config import read
from srmp_spark.queue_manager.configuration.contradictions import contradictions
from srmp_spark.queue_manager.configuration.serve_config import ServeConfig

CHANGE_IT = "change it and check again; conf/serve.toml explains every key"


def checks_before_start(
    flags: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator[Check]:
    """Yield the checks of the configuration that ``serve`` would have. Nothing is raised.

    If an option is wrong, only the wrong options are reported.
    """
    given = read(flags, environment)
    errors = list(given.errors)
    if not errors:
        config = ServeConfig(**given.values)
        errors = contradictions(config)
    if errors:
        yield from (_wrong(error) for error in errors)
        return
    yield Check("configuration", True, f"{len(given.values)} options are valid")
    running = read_endpoint(config.data_dir)
    yield from data_directory_checks(config, running)
    yield from state_checks(config)
    yield from port_checks(config, running)
    yield from certificate_checks(config)
    yield from ticket_checks(config)
    yield from host_name_checks(config)
    yield from advice_checks(config)


def _wrong(error: ConfigurationError) -> Check:
    """Return the failed check of an option. The error holds no secret, and often advice."""
    return Check("configuration", False, " ".join(str(error).split()), CHANGE_IT)
