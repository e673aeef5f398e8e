"""The wheel: what is in it, and that it runs in an empty environment, with and without its extras.

``pip wheel`` builds it once. The environments are made with ``venv`` and without system packages;
what pip fetches comes from its cache after the first time. For the job with Spark, and for nothing
else, a ``.pth`` file lends the environment the pyspark and the delta-spark of this one, which are
450 MB.
"""

from __future__ import annotations

import ast
import importlib.metadata
import json
import os
import re
import select
import subprocess
import sys
import venv
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from srmp_spark.extras import MODULES

ROOT = Path(__file__).resolve().parents[2]
INSTALL_SECONDS = 280.0
"""For pip on a slow line."""
READY_SECONDS = 60.0
PACKAGES = ("srmp_spark", "pyspark_srmp", "pyspark_mqrr")
OF_THE_REPOSITORY = re.compile(r"\bMakefile\b|\b(tests|benchmarks|notebooks)/")
"""What an installation does not have. Pages below docs are published, so errors may name them."""
LENT = re.compile(
    r"(pyspark|py4j|delta|delta_spark|importlib_metadata|zipp|pandas|pytz|tzdata|dateutil|six)"
    r"(-[\d.post]+\.dist-info|\.py)?$"
)
"""Folders, modules and metadata of what [spark] installs."""
EMPTY = {
    "PATH": os.defpath,
    "HOME": os.environ.get("HOME", "/"),
    "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    "PYTHONNOUSERSITE": "1",
}
"""Nothing of this environment: neither ``PYTHONPATH`` nor Spark's variables."""


def environment() -> dict[str, str]:
    """What pip may know besides: where its cache and its index are."""
    return EMPTY | {
        name: value
        for name, value in os.environ.items()
        if name.startswith(("PIP_", "XDG_CACHE", "SSL_", "REQUESTS_", "HTTP", "http", "JAVA_HOME"))
    }


def run(command: list[str], cwd: Path, seconds: float = INSTALL_SECONDS, code: int = 0) -> str:
    """Run to the end with this exit code; standard output, or standard error of what has failed."""
    done = subprocess.run(
        command, cwd=cwd, env=environment(), capture_output=True, text=True, timeout=seconds
    )
    assert done.returncode == code, (
        f"{command}: {done.returncode}\n{done.stdout[-2000:]}{done.stderr[-3000:]}"
    )
    return done.stdout if code == 0 else done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    run([*command, str(ROOT)], folder)
    (built,) = folder.glob("*.whl")
    return built


def empty_environment(folder: Path, requirement: str) -> Path:
    """The folder of the programs of an environment with this and nothing else."""
    venv.create(folder, with_pip=True, symlinks=True)
    run([str(folder / "bin" / "pip"), "install", "--quiet", requirement], folder)
    return folder / "bin"


@pytest.fixture(scope="module")
def serving(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return empty_environment(tmp_path_factory.mktemp("serving"), f"{wheel}[serve]")


def test_the_wheel_has_the_product_and_nothing_of_the_repository(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        texts = {name: archive.read(name).decode() for name in names if name.endswith(".py")}
    tops = {name.split("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)
    assert "srmp_spark/testing/pytest_plugin.py" in names
    assert [name for name in names if "planted" in name or "simulation" in name] == []
    imports = {
        f"{name}: {line.strip()}"
        for name, text in texts.items()
        for line in text.splitlines()
        if re.match(r"\s*(from|import) (tests|benchmarks|jobs)\b", line)
    }
    assert imports == set()
    used = {
        f"{name}: {value}"
        for name, text in texts.items()
        for value in values_of(text)
        if OF_THE_REPOSITORY.search(value)
    }
    assert used == set()


def values_of(text: str) -> set[str]:
    """The texts of a module that are values, and not documentation."""
    nodes = list(ast.walk(ast.parse(text)))
    documentation = {
        id(node.value)
        for node in nodes
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    return {
        node.value
        for node in nodes
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in documentation
    }


def test_the_extras_of_the_wheel_are_those_that_our_errors_name(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [name for name in archive.namelist() if name.endswith("/METADATA")]
        lines = archive.read(metadata).decode().splitlines()
    required = [line.partition(": ")[2] for line in lines if line.startswith("Requires-Dist: ")]
    provided = importlib.metadata.packages_distributions()
    for extra, modules in MODULES.items():
        wanted = {
            re.match(r"[\w-]+", each)[0].lower()
            for each in required
            if re.search(rf"extra == ['\"]{extra}['\"]", each)
        }
        named = {name.lower().replace("_", "-") for module in modules for name in provided[module]}
        assert named <= wanted, extra
    base = [each for each in required if "extra ==" not in each]
    assert [each for each in base if re.match("pyspark|delta|pandas|uvloop", each)] == []


@contextmanager
def served(programs: Path, folder: Path) -> Iterator[dict[str, str]]:
    """The ready line of a ``serve`` that lives in the meantime."""
    command = [str(programs / "srmp-spark"), "serve", "--data-dir", str(folder / "data")]
    command += ["--listen", "127.0.0.1:0", "--api", "127.0.0.1:0", "--queue", "private$/orders"]
    command += ["--state", str(folder / "state")]
    with (folder / "serve.log").open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
        try:
            assert select.select([process.stdout], [], [], READY_SECONDS)[0], "no ready line"
            line = process.stdout.readline()
            assert line, (folder / "serve.log").read_text()
            yield json.loads(line)
        finally:
            process.terminate()
            code = process.wait(60)
            process.stdout.close()
    assert code == 0, (folder / "serve.log").read_text()


def quick_start(programs: Path, api: str, folder: Path) -> None:
    """Send and receive by commands, as README does."""
    program, to = str(programs / "srmp-spark"), ["--api", api]
    send = [program, "send", "--destination", "private$/orders", "--label", "hello"]
    sent = json.loads(run([*send, "--body", "first", *to], folder))
    received = run([program, "receive", "--queue", "private$/orders", *to], folder)
    row = json.loads(received)
    assert (row["label"], row["body_text"]) == ("hello", "first")
    assert row["message_id"] == sent["message_id"]
    assert run([program, "receive", "--queue", "private$/orders", *to], folder) == ""


@pytest.mark.long
def test_a_queue_manager_runs_without_spark(serving: Path, tmp_path: Path) -> None:
    """serve, send, receive, status, doctor; the Delta state is written too."""
    python = str(serving / "python")
    has = "import importlib.util as u; print([m for m in ('pyspark', 'delta', 'pandas') if u.find_spec(m)])"
    assert run([python, "-c", has], tmp_path).strip() == "[]"
    with served(serving, tmp_path) as ready:
        quick_start(serving, ready["api"], tmp_path)
        status = json.loads(
            run([str(serving / "srmp-spark"), "status", "--api", ready["api"]], tmp_path)
        )
        assert status["queue_manager"] == ready["queue_manager"]
    assert (tmp_path / "state" / "inbox" / "_delta_log").is_dir()


@pytest.mark.long
def test_what_needs_spark_says_what_to_install(serving: Path, tmp_path: Path) -> None:
    program, python = str(serving / "srmp-spark"), str(serving / "python")
    sentence = 'which is not installed here: pip install "srmp-spark[spark]"'
    place = ["--table", str(tmp_path / "table"), "--checkpoint", str(tmp_path / "checkpoint")]
    with served(serving, tmp_path) as ready:
        where = ["--queue-manager", ready["api"], "--queue", "private$/orders"]
        said = run([program, "ingest", *where, *place, "--available-now"], tmp_path, code=2)
        assert sentence in said.splitlines()[-1]
    for module in (
        "srmp_spark.functions",
        "srmp_spark.spark.source",
        "srmp_spark.spark.mqrr_source",
    ):
        said = run([python, "-c", f"import {module}"], tmp_path, code=1)
        assert sentence in said.splitlines()[-1]
    harmless = "import srmp_spark, srmp_spark.testing, pyspark_srmp, pyspark_mqrr"
    run([python, "-c", harmless], tmp_path)


@pytest.mark.long
def test_the_base_has_the_commands_and_says_what_serve_needs(wheel: Path, tmp_path: Path) -> None:
    programs = empty_environment(tmp_path / "base", str(wheel))
    program = str(programs / "srmp-spark")
    said = run([program, "serve", "--data-dir", str(tmp_path / "data")], tmp_path, code=2)
    assert said.count("\n") == 1
    assert said.endswith('which is not installed here: pip install "srmp-spark[serve]"\n')
    for command in ("send", "peek", "receive", "status", "ingest", "replay", "backfill", "doctor"):
        run([program, command, "--help"], tmp_path)
    # Refused by the first call: nobody is at this address.
    said = run([program, "queues", "--api", "http://127.0.0.1:9"], tmp_path, code=3)
    assert said.startswith("srmp-spark: ")


@pytest.fixture
def with_spark(serving: Path, tmp_path: Path) -> Iterator[Path]:
    """The same environment, to which this one lends what [spark] installs; our own is the wheel's."""
    lent = tmp_path / "lent"
    lent.mkdir()
    for path in Path(importlib.metadata.distribution("pyspark").locate_file("")).iterdir():
        if LENT.match(path.name):
            (lent / path.name).symlink_to(path)
    (site,) = serving.parent.glob("lib/python*/site-packages")
    (site / "lent.pth").write_text(f"{lent}\n")
    yield serving
    (site / "lent.pth").unlink()


@pytest.mark.long
@pytest.mark.spark
def test_a_job_of_the_wheel_writes_a_table(with_spark: Path, tmp_path: Path) -> None:
    with served(with_spark, tmp_path) as ready:
        quick_start(with_spark, ready["api"], tmp_path)
        command = [str(with_spark / "srmp-spark"), "ingest", "--queue-manager", ready["api"]]
        command += ["--queue", "private$/orders", "--table", str(tmp_path / "table")]
        command += ["--checkpoint", str(tmp_path / "checkpoint"), "--consumer", "table"]
        last = run([*command, "--available-now"], tmp_path).splitlines()[-1]
    assert json.loads(last) == {"job": "ingest", "rows": 1, "batches": 1, "status": "done"}
