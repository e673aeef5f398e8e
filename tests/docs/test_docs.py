"""Documents keep their word: links resolve, each promise names a test that exists, each flag and option exists in the code."""

from __future__ import annotations

import argparse
import ast
import re
import textwrap
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from benchmarks.registry import ALL
from srmp_spark.cli import parser
from srmp_spark.queue_manager.configuration.options import OPTIONS, TABLES
from srmp_spark.rows.columns import NAMES
from srmp_spark.spark.settings.mqrr_options import MQRR_OPTIONS
from srmp_spark.spark.settings.options import SERVE_OPTIONS, SOURCE_OPTIONS
from srmp_spark.spark.settings.sink_columns import POSITION_COLUMNS, SINK_COLUMNS
from srmp_spark.spark.settings.sink_options import SINK_OPTIONS

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")]
)
USER_PAGES = (
    "README.md", "troubleshooting.md", "WINDOWS.md", "GUARANTEES.md", "SECURITY.md", "try-multicast.md", "try-wsrm.md",
    "testing.md", "testing-your-pipeline.md", "first-hour.md", "xml-to-delta.md", "reading.md", "sending.md", "remote-queues.md",
    "delta-state.md", "running.md", "limits.md", "CONTRIBUTING.md", "high-availability.md", "upgrades.md",
)  # fmt: skip
USER_DOCUMENTS = [path for path in DOCUMENTS if path.name in USER_PAGES]

CELL_MAX = 200
"""Characters of a cell of a table: a cell holds a phrase, and sentences have paragraphs."""
GENERATED = ("MUSTS.md", "MUSTS_MQRR.md", "MUSTS_WSRVCRM.md", "GUARANTEES_TESTS.md")
FROZEN = ("INTERFACE.md", "CHANGELOG.md")
"""Pages that keep their text, letter for letter."""
PLAIN_PAGES = [
    path
    for path in DOCUMENTS
    if path.name not in (*GENERATED, *FROZEN)
    and not path.is_relative_to(ROOT / "docs" / "adr")
    and not path.is_relative_to(ROOT / "benchmarks")
]

README_LINES_MAX = 190
"""A page that people read before they decide: everything else has a page of its own."""

LINK = re.compile(r"\[[^\]\[]*\]\(([^)\s]+)\)")
FLAG = re.compile(r"(?<![\w-])--([a-z][a-z-]+)")
OPTION = re.compile(r"\.option\(\s*[\"'](\w+)[\"']")

COMMAND = re.compile(r"(?:`|^)srmp-spark ([a-z]+(?:-[a-z]+)*)", re.MULTILINE)
SCRIPT_FLAG = re.compile(r"\"--([a-z][a-z-]+)\"")


@cache
def commands() -> dict[str, set[str]]:
    """Each command of ``srmp-spark`` with its flags."""
    subparsers = next(
        action for action in parser()._actions if isinstance(action, argparse._SubParsersAction)
    )
    return {name: set(_flags(command)) for name, command in subparsers.choices.items()}


def _flags(command: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the flags of a command and of its actions."""
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for each in action.choices.values():
                yield from _flags(each)
        for option in action.option_strings:
            yield option.removeprefix("--")


def known_flags() -> set[str]:
    package = ROOT / "srmp_spark"
    benchmarks = ROOT / "benchmarks" / "bench.py", ROOT / "benchmarks" / "scale" / "__main__.py"
    scripts = [
        *(package / "jobs").glob("*.py"),
        ROOT / "tests" / "kit" / "demo" / "run.py",
        *benchmarks,
    ]
    found = {flag for script in scripts for flag in SCRIPT_FLAG.findall(text_of(script))}
    return found.union(*commands().values())


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def long_ones_of(path: Path) -> frozenset[str]:
    """The tests that ``make test`` leaves out whole."""
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(text_of(path)))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and any(ast.unparse(decorator) == "pytest.mark.long" for decorator in node.decorator_list)
    )


def anchors_of(path: Path) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", text_of(path), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings
    }


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_links_resolve(path: Path) -> None:
    for target in LINK.findall(text_of(path)):
        if re.match(r"https?://", target):
            continue
        name, _, anchor = target.partition("#")
        linked = (path.parent / name).resolve() if name else path
        assert linked.exists(), f"{relative(path)} links to {target}"
        if anchor:
            assert anchor in anchors_of(linked), (
                f"{relative(path)} links to {target}; headings: {sorted(anchors_of(linked))}"
            )


def test_every_make_target_has_its_page() -> None:
    """The two of README, with the one that it needs; all others stand in docs/testing.md, and none that does not exist."""
    targets = set(re.findall(r"^([a-z-]+):.*## ", text_of(ROOT / "Makefile"), re.MULTILINE)) - {
        "help"
    }
    named = set(re.findall(r"`make ([a-z-]+)", text_of(ROOT / "docs" / "testing.md")))
    assert {"setup", "demo", "test"} <= set(
        re.findall(r"make ([a-z-]+)", text_of(ROOT / "README.md"))
    )
    assert named | {"setup", "demo", "test"} == targets


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=relative)
def test_each_flag_exists(path: Path) -> None:
    of_others = {"build", "once"}  # of docker; of examples/quick_delta.py
    assert set(FLAG.findall(text_of(path))) - known_flags() - of_others == set()


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=relative)
def test_each_command_exists(path: Path) -> None:
    assert set(COMMAND.findall(text_of(path))) - set(commands()) == set()


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=relative)
def test_each_option_exists(path: Path) -> None:
    known = {spec.name for spec in (*SOURCE_OPTIONS, *SINK_OPTIONS, *MQRR_OPTIONS)}
    known |= set(SERVE_OPTIONS) | {"checkpointLocation"}
    assert set(OPTION.findall(text_of(path))) - known == set()


def rows_of(page: str) -> set[str]:
    """The names in the first cells of a page's tables."""
    return set(re.findall(r"^\| `(\w+)` \|", text_of(ROOT / "docs" / page), re.MULTILINE))


def test_its_page_has_every_option_of_the_source() -> None:
    assert {spec.name for spec in SOURCE_OPTIONS} <= rows_of("reading.md")


def test_its_page_has_every_option_of_remote_read() -> None:
    assert {spec.name for spec in MQRR_OPTIONS} <= rows_of("remote-queues.md")


def test_its_page_has_every_option_and_column_of_the_sink() -> None:
    sending = text_of(ROOT / "docs" / "sending.md")
    cells = {
        name
        for row in re.findall(r"^\| (`[^|]*) \|", sending, re.MULTILINE)
        for name in re.findall(r"`(\w+)`", row)
    }
    assert {spec.name for spec in (*SINK_OPTIONS, *SINK_COLUMNS)} - cells == set()
    assert all(f"`{spec.name}`" in sending for spec in POSITION_COLUMNS)


@pytest.mark.parametrize("path", USER_DOCUMENTS, ids=relative)
def test_the_python_of_a_page_is_python(path: Path) -> None:
    for block in re.findall(r"^ *```python\n(.*?)^ *```", text_of(path), re.DOTALL | re.MULTILINE):
        ast.parse(textwrap.dedent(block))


@pytest.mark.parametrize("path", PLAIN_PAGES, ids=relative)
def test_the_cells_of_a_page_are_phrases(path: Path) -> None:
    rows = [line for line in text_of(path).splitlines() if line.startswith("| ")]
    cells = [cell.strip() for row in rows for cell in re.split(r"(?<!\\)\|", row)]
    assert [cell for cell in cells if len(cell) > CELL_MAX] == []


def test_the_readme_is_read_in_one_go() -> None:
    assert text_of(ROOT / "README.md").count("\n") <= README_LINES_MAX


def test_its_pages_have_every_flag_of_serve() -> None:
    pages = text_of(ROOT / "docs" / "running.md") + text_of(ROOT / "docs" / "remote-queues.md")
    internal = {"exit-when-unused"}  # set by the source for an embedded queue manager
    flags = {option.key.replace("_", "-") for option in OPTIONS} - internal
    assert {flag for flag in flags if f"`--{flag}`" not in pages} == set()


def test_each_page_is_in_the_navigation_of_the_site() -> None:
    """Except the index of the folder: the navigation takes its place."""
    navigation = text_of(ROOT / "mkdocs.yml")
    pages = [path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")]
    shown = [page for page in pages if not page.startswith(("musts/", "site/"))]
    assert [page for page in shown if page != "README.md" and page not in navigation] == []


def test_the_interface_and_the_help_have_every_flag_of_serve(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the tables of the configuration file, which have no flag."""
    with pytest.raises(SystemExit):
        parser().parse_args(["serve", "--help"])
    interface, printed = text_of(ROOT / "docs" / "INTERFACE.md"), capsys.readouterr().out
    flags = commands()["serve"] - {"-h", "help"}
    assert {option.key.replace("_", "-") for option in OPTIONS} < flags
    for page in (interface, printed):
        assert flags - set(FLAG.findall(page)) == set()
    assert [name for name in TABLES if f"[{name}]" not in interface] == []


def test_each_flag_of_serve_says_its_default_or_needs_none() -> None:
    """An operator must know what holds while a flag is not given."""
    needs_none = {
        "data_dir",
        "queue",
        "host_name",
        "allow_url",
        "token_file",
        "public_url",
        "rpc_accounts",
    }
    needs_none |= {
        option.key for option in OPTIONS if option.key.endswith(("_cert", "_key", "_ca"))
    }
    assert [
        option.key
        for option in OPTIONS
        if "default" not in option.help and option.key not in needs_none
    ] == []


def test_the_interface_names_every_column() -> None:
    interface = text_of(ROOT / "docs" / "INTERFACE.md")
    assert [name for name in NAMES if f"`{name}`" not in interface] == []


def test_the_interface_names_every_metric() -> None:
    interface = text_of(ROOT / "docs" / "INTERFACE.md")
    package = ROOT / "srmp_spark" / "queue_manager"
    sources = (package / "metrics.py", package / "api" / "gauges.py")
    names = {name for path in sources for name in re.findall(r'"(srmp_[a-z_]+)"', text_of(path))}
    assert len(names) > 20, "they are where this test looks"
    assert {name for name in names if f"`{name}" not in interface} == set()


def test_the_benchmarks_page_names_every_figure() -> None:
    page = text_of(ROOT / "benchmarks" / "README.md")
    names = [*ALL, *(figure for benchmark in ALL.values() for figure in benchmark.figures)]
    assert [name for name in names if f"`{name}`" not in page] == []


@pytest.mark.parametrize("path", DOCUMENTS, ids=relative)
def test_no_document_names_a_place_of_this_workshop(path: Path) -> None:
    assert "/" + "work/" not in text_of(path)
