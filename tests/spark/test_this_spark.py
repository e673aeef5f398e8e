"""Which Spark the data sources work with, and what is said of another one, and without any."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql.types import StructType

from srmp_spark.errors import ConfigurationError
from srmp_spark.extras import MODULES, MissingExtraError, missing_module, needs
from srmp_spark.spark import this_spark
from srmp_spark.spark.mqrr_source import MqrrDataSource
from srmp_spark.spark.source import SrmpDataSource

OPTIONS = {"queueManager": "http://127.0.0.1:1", "queue": "private$/orders"}
REMOTE = {"host": "127.0.0.1:2103", "queue": "private$\\orders"}
WITHOUT = """
import sys
from importlib.machinery import PathFinder
class Without(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        missing = name.partition(".")[0] in {modules!r}
        return None if missing else super().find_spec(name, path, target)
sys.meta_path[:] = [Without if each is PathFinder else each for each in sys.meta_path]
"""


@pytest.mark.parametrize("version", ["4.0.1", "3.5.7"])
def test_an_earlier_spark_is_refused_in_one_sentence(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first thing that Spark asks for, whichever it is."""
    monkeypatch.setattr(this_spark, "_version", lambda: version)
    srmp, mqrr, schema = SrmpDataSource(OPTIONS), MqrrDataSource(REMOTE), StructType()
    for name, asked in (
        ("srmp", srmp.schema),
        ("srmp", lambda: srmp.reader(schema)),
        ("srmp", lambda: srmp.writer(schema, overwrite=False)),
        ("srmp", lambda: srmp.streamWriter(schema, overwrite=False)),
        ("mqrr", mqrr.schema),
        ("mqrr", lambda: mqrr.reader(schema)),
    ):
        with pytest.raises(ConfigurationError) as refused:
            asked()
        said = str(refused.value)
        assert said.startswith(f'format("{name}") needs Spark 4.2 or newer, or 4.1 for batches')
        assert f"this is Spark {version}" in said
        assert "\n" not in said


@pytest.mark.parametrize("source", [SrmpDataSource(OPTIONS), MqrrDataSource(REMOTE)])
def test_a_spark_without_limits_reads_batches_and_is_refused_a_stream(
    source: SrmpDataSource | MqrrDataSource, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the first call of the reader: an error of ``streamReader`` itself would reach nobody."""
    monkeypatch.setattr(this_spark, "_version", lambda: "4.1.1")
    assert "sequence" in source.schema()
    source.reader(StructType())
    reader = source.streamReader(StructType())
    with pytest.raises(ConfigurationError):
        reader.initialOffset()
    with pytest.raises(ConfigurationError) as refused:
        reader.latestOffset()  # 4.1 begins with this one, and without arguments
    assert str(refused.value).startswith(
        f'readStream.format("{source.name()}") needs Spark 4.2 or newer'
    )
    assert "this is Spark 4.1.1" in str(refused.value)


@pytest.mark.parametrize("version", ["4.2.0", "4.2.0.dev1", "4.10.0", "5.0.0", "4.2.1+vendor.7"])
def test_a_spark_that_has_what_is_needed_is_taken(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(this_spark, "_version", lambda: version)
    assert "sequence" in SrmpDataSource(OPTIONS).schema()
    assert "sequence" in MqrrDataSource(REMOTE).schema()


def without(modules: tuple[str, ...], code: str) -> subprocess.CompletedProcess[str]:
    """Run ``code`` in a Python that does not find these modules."""
    whole = WITHOUT.format(modules=set(modules)) + code
    return subprocess.run([sys.executable, "-c", whole], capture_output=True, text=True, timeout=60)


@pytest.mark.parametrize(
    "module", ["srmp_spark.functions", "srmp_spark.spark.source", "srmp_spark.spark.mqrr_source"]
)
def test_an_import_without_pyspark_says_what_to_install(module: str) -> None:
    done = without(MODULES["spark"], f"import {module}")
    assert done.stderr.splitlines()[-1].endswith('pip install "srmp-spark[spark]"')
    caught = without(MODULES["spark"], f"try: import {module}\nexcept ImportError: print('caught')")
    assert caught.stdout == "caught\n", "as any module that is not there"


REPLAY = "replay --queue-manager http://127.0.0.1:1 --destination DIRECT=http://h/msmq/q --table"


@pytest.mark.parametrize(
    ("line", "extra"), [("serve --data-dir", "serve"), (REPLAY, "spark")], ids=["serve", "replay"]
)
def test_a_command_without_its_extra_says_what_to_install(
    line: str, extra: str, tmp_path: Path
) -> None:
    (tmp_path / "_delta_log").mkdir()
    arguments = [*line.split(), str(tmp_path)]
    done = without(MODULES[extra], f"from srmp_spark import cli; sys.exit(cli.run({arguments!r}))")
    assert done.returncode == 2, done.stderr
    assert f'pip install "srmp-spark[{extra}]"' in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert "starting Spark" not in done.stderr


def test_only_modules_of_extras_are_spoken_of() -> None:
    needs("serve")
    needs("spark")
    assert missing_module(ModuleNotFoundError("x", name="uvloop.loop")) is not None
    assert missing_module(ModuleNotFoundError("x", name="srmp_spark.nothing")) is None
    assert missing_module(ModuleNotFoundError("x")) is None
    assert issubclass(MissingExtraError, ImportError)
