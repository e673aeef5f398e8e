"""Checks the layers of docs/ARCHITECTURE.md.

Imports point downwards, protocols do no I/O, and files stay readable.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

from srmp_spark import canonical_url
from srmp_spark.queue_manager.sender import sending_transports
from srmp_spark.transports import Transport

ROOT = Path(__file__).resolve().parent.parent
PACKAGE = ROOT / "srmp_spark"
KIT = ROOT / "tests" / "kit"
"""Folder of the tools of the tests. They use the inside of the product and are no part of it."""

NOUNS = {
    "names",
    "sequences",
    "canonical_url",
    "transports",
    "message",
    "errors",
    "clock",
    "holder",
    "interface",
    "private_files",
    "extras",
    "log_once",
    "log_event",
    "logs",
}
MAY_IMPORT: dict[str, set[str]] = {
    "spark": {"client", "rows", "mqrr", "signing_in"} | NOUNS,
    "client": {"rows", "mqrr"} | NOUNS,
    "queue_manager": {"store", "rows", "srmp", "mqrr", "pgm", "wsrm", "signing_in", "transitions"}
    | NOUNS,
    "store": {"rows", "srmp", "pgm", "wsrm"} | NOUNS,
    "rows": {"srmp", "mqrr", "wsrm"} | NOUNS,
    "srmp": {"message", "names", "canonical_url", "transports", "errors", "timers", "transitions"},
    "mqrr": {"message", "names", "errors", "timers", "transitions"},
    "pgm": {"errors", "timers", "transitions"},
    "wsrm": {"srmp", "sequences", "errors", "timers", "transitions"},
    "signing_in": {"mqrr", "errors", "private_files"},
    "private_files": {"errors"},
    "extras": {"errors"},
    "log_event": set(),
    "logs": {"log_event"},
    "message": {"names", "errors"},
    "names": {"errors", "transports"},
    "transports": set(),
    "sequences": set(),
    "canonical_url": {"names", "errors", "transports"},
    "holder": {"errors"},
    "log_once": set(),
    "interface": {"errors"},
    "errors": set(),
    "clock": set(),
    "timers": set(),
    "transitions": {"errors"},
    "functions": {"rows"} | NOUNS,
    "jobs": {"spark", "client", "rows", "mqrr", "signing_in"} | NOUNS,
    "commands": {"jobs", "queue_manager", "client", "rows", "store", "srmp"} | NOUNS,
    "cli": {"commands", "queue_manager", "client"} | NOUNS,
    "testing": {"client"} | NOUNS,
}
"""Part of the package → the parts that it may import.

No part may import ``testing``, which users of the package import in their own tests.
"""

SANS_IO = ("srmp", "mqrr", "mqrr/client", "pgm", "wsrm")
IO_MODULES = {
    "asyncio", "http", "io", "logging", "multiprocessing", "os", "pathlib", "random", "requests",
    "secrets", "select", "selectors", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys",
    "tempfile", "threading", "time", "uuid", "pyarrow", "pyspark", "deltalake", "httptools",
    "uvloop", "uvicorn",
}  # fmt: skip
"""Modules that a protocol must not import. The caller passes bytes, ``now`` and random numbers."""

ACCEPTING_PROCESS = "srmp_spark.queue_manager.serve"
NEVER_IN_ACCEPTING_PROCESS = ("pyarrow", "deltalake", "pyspark", "pandas", "numpy")

OUTBOX = "srmp_spark.store.outbox"
OUTBOX_FOR_ALL = {f"{OUTBOX}.limits", f"{OUTBOX}.errors", f"{OUTBOX}.tables.which_file"}
"""Modules of the outbox that the accepting process may import. All others need Arrow."""
SENDER_PROCESS = "queue_manager/sender"
OUTBOX_READERS = ("store/delta", "store/restore", "store/backup")
"""Parts of other processes than the accepting one that read or create an outbox."""

HELPERS = "srmp_spark.queue_manager"
HELPER_PROCESSES = ("reader", "sender")
HELPERS_SHARE = "child"
"""The package with the code that both helper processes need."""

GATEWAYS = tuple(
    f"{HELPERS}.{transport}.gateway"
    for transport in ("multicast", "puller.gateway_side", "remote_read", "wsrm")
)
NEVER_IN_A_GATEWAY = ("srmp_spark.store", "sqlite3", "uvicorn", *NEVER_IN_ACCEPTING_PROCESS)
"""Modules that a gateway must not load.

A gateway talks to unauthenticated clients. So it never opens the data directory, and it stays
small.
"""
OF_THE_GATEWAY_OF_SUBSCRIPTIONS = {
    f"{HELPERS}.puller.gateway_side.{each}" for each in ("gateway", "connection", "remote")
} | {"srmp_spark.mqrr.client.remote_reader"}

TRANSPORTS = "srmp_spark.transports"
KNOW_A_TRANSPORT = {
    "transports.py",
    "names.py",
    "canonical_url.py",
    "queue_manager/sender/sending_transports.py",
    "store/outbox/columns.py",
    "store/outbox/tables/schema.py",
    "store/outbox/staging/reliable_rows.py",
    "store/outbox/staging/row_checks.py",
}
"""Modules that name a member of ``Transport``: the tables, and what belongs to one transport.

All other code asks the rules of the transport that it was given.
"""
READ_A_TRANSPORT = {
    "canonical_url.py",
    "commands/messages.py",
    "commands/send_unfinished.py",
    "spark/settings/sink_columns.py",
    "spark/settings/sink_options.py",
    "srmp/sending/outgoing_effects.py",
    "store/outbox/columns.py",
    "store/outbox/staging/loops.py",
}
"""Modules where a destination enters as a text. Each finds its transport there, once."""
READ_AN_ADDRESS = {
    "commands/messages.py",
    "queue_manager/multicast/reading.py",
    "queue_manager/sender/multicast/multicasts.py",
    "queue_manager/sender/reliable/reliable_sessions.py",
    "store/outbox/staging/multicast_rows.py",
}
"""Modules that need the address in a destination whose transport they know, or are the way in."""

FILES_MAX = 20
"""Most modules of one folder. More cannot be surveyed at a glance and belong in subfolders."""

LINES_MAX = 800
"""Most lines of a module. A longer module holds two concepts and is split by concept, not by count.
"""

FUNCTION_LINES_MAX = 70
"""Most lines of a function, with its docstring. A longer function does more than one thing."""
LONGER_FUNCTIONS = {
    "srmp/codec/windows_layout.py read_windows_envelope": "one pass over each message; calls cost",
    "srmp/receiving/receiver.py _receive_stream_message": "one decision, in the specification's "
    "order, for each stream message; calls cost",
    "store/outbox/messages/packed_group.py messages_of": "one pass over each outgoing row; calls "
    "cost",
    "store/outbox/staging/row_checks.py check_rows": "one pass over each staged row; calls cost",
    "queue_manager/sender/process.py run": "starts and ends the parts of the process in order",
    "queue_manager/sender/dispatcher.py __init__": "the state of the dispatcher, with its meaning",
    "queue_manager/puller/puller.py __init__": "the state of a subscription, with its meaning",
}
"""Function that may be longer → the reason."""

PARAMETERS_MAX = 8
"""Most parameters of a constructor. Dependencies that belong together come in one dataclass."""
MORE_PARAMETERS = {
    "spark/sink.py SrmpSink": "its parameters are the options of the sink",
    "testing/foreign/destination_server.py Destination": "its parameters are the options of "
    "the fixture",
    "store/outbox/preparing/preparation.py Preparation": "the facts of one batch",
    "queue_manager/sender/dispatcher.py Dispatcher": "the parts of the sender process",
    "queue_manager/sender/http/connections.py Connections": "the parts of a transport",
    "queue_manager/sender/reliable/reliable_sessions.py ReliableSessions": "the parts of a "
    "transport",
}
"""Class whose constructor may have more parameters → the reason."""


def modules() -> list[Path]:
    return sorted(PACKAGE.rglob("*.py"))


def part_of(path: Path) -> str:
    relative = path.relative_to(PACKAGE)
    return relative.parts[0] if len(relative.parts) > 1 else relative.stem


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


@cache
def imports_of(path: Path, *, typing: bool = False) -> tuple[tuple[int, str], ...]:
    """Return (line, absolute module) of every import of a file.

    Imports for type checking alone are included only with ``typing``.
    """
    return tuple(_imports_of(path, typing=typing))


def _imports_of(path: Path, *, typing: bool) -> Iterator[tuple[int, str]]:
    tree = tree_of(path)
    typing_only = {
        child
        for node in ast.walk(tree)
        if not typing and isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno} imports relatively; say the whole name"
            module = node.module or ""
            yield node.lineno, module
            if module == "srmp_spark":
                yield from ((node.lineno, f"srmp_spark.{alias.name}") for alias in node.names)


def test_imports_point_downwards() -> None:
    parts = {part_of(path) for path in modules()} - {"__init__"}
    new = parts - MAY_IMPORT.keys()
    assert new == set(), (
        f"{new} is new in the package: give it a place in MAY_IMPORT and docs/ARCHITECTURE.md"
    )
    found = [
        f"{path.relative_to(ROOT)}:{line}: {part_of(path)} may not import {module}"
        for path in modules()
        for line, module in imports_of(path)
        if part_of(path) in parts
        and module.startswith("srmp_spark.")
        and module.split(".")[1] not in ("__version__", part_of(path), *MAY_IMPORT[part_of(path)])
    ]
    assert found == []


def test_the_product_imports_nothing_of_the_tests() -> None:
    """Imports for types count, too, because tests are not installed."""
    found = [
        f"{path.relative_to(ROOT)}:{line}: {module}"
        for package in ("srmp_spark", "pyspark_srmp", "pyspark_mqrr")
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, module in imports_of(path, typing=True)
        if module.split(".")[0] in ("tests", "benchmarks", "jobs")
    ]
    assert found == []


def test_tests_is_a_package_that_no_other_distribution_hides() -> None:
    """``tests`` without ``__init__.py`` would be a namespace package.

    Any ``tests`` package that a wheel installs would then hide it.
    """
    assert (ROOT / "tests" / "__init__.py").is_file()
    code = "import tests.kit; print(tests.kit.__path__[0])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert Path(out.stdout.strip()) == KIT


def test_no_module_needs_one_that_needs_it() -> None:
    """Imports for types count, too: a reader of one file of a circle must read all its files."""
    names = {
        str(path.relative_to(ROOT).with_suffix("")).replace("/", "."): path
        for path in [*modules(), *sorted(KIT.rglob("*.py"))]
    }
    graph = {}
    for name, path in names.items():
        tree = tree_of(path)
        members = {
            f"{n.module}.{a.name}"
            for n in ast.walk(tree)
            if isinstance(n, ast.ImportFrom)
            for a in n.names
        }
        graph[name] = (
            {module for _, module in imports_of(path, typing=True)} | members
        ) & names.keys()
    try:
        tuple(TopologicalSorter(graph).static_order())
    except CycleError as error:
        pytest.fail(" → ".join(error.args[1]))


def needed_by(path: Path) -> Iterator[tuple[int, str]]:
    """Yield (line, module) of every import at run time, and of each imported name.

    An imported name may be a module, too.
    """
    yield from imports_of(path)
    lines = {line for line, _ in imports_of(path)}
    for node in ast.walk(tree_of(path)):
        if isinstance(node, ast.ImportFrom) and node.lineno in lines:
            yield from ((node.lineno, f"{node.module}.{each.name}") for each in node.names)


def test_no_room_needs_one_that_needs_it() -> None:
    """Sibling folders have an order. A parent folder may use its subfolders and be used by them."""
    names = {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in modules()}
    rooms = {name: name.removesuffix(".__init__").rpartition(".")[0] for name in names}
    found: dict[tuple[str, str], list[str]] = {}
    for name, path in names.items():
        for line, module in needed_by(path):
            room = rooms.get(module)
            if room and not f"{room}.".startswith(f"{rooms[name]}."):
                found.setdefault((rooms[name], room), []).append(f"{name}:{line}")
    circles = [
        (*pair, where)
        for pair, where in found.items()
        if pair[::-1] in found and not f"{pair[0]}.".startswith(f"{pair[1]}.")
    ]
    assert circles == []


def imported_from(path: Path, module: str) -> set[str]:
    return {
        each.name
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module == module
        for each in node.names
    }


def test_the_transport_of_a_destination_is_a_value() -> None:
    """Nobody parses a transport from a text but where the text enters, and few know which it is."""
    members, readers, addresses = set(), set(), set()
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        if "Transport" in imported_from(path, TRANSPORTS) or place == "transports.py":
            members |= {
                place
                for node in ast.walk(tree_of(path))
                if isinstance(node, ast.Attribute)
                and node.attr in Transport.__members__
                and ast.unparse(node.value) == "Transport"
            }
        if "transport_of" in imported_from(path, TRANSPORTS):
            readers.add(place)
        if imported_from(path, "srmp_spark.names") & {"multicast_address", "reliable_url"}:
            addresses.add(place)
    assert members == KNOW_A_TRANSPORT
    assert readers == READ_A_TRANSPORT
    assert addresses == READ_AN_ADDRESS


def test_no_code_looks_for_the_prefix_of_a_transport() -> None:
    prefixes = [each.rules.prefix.lower() for each in Transport if each.rules.prefix]
    found = {
        path.relative_to(PACKAGE).as_posix()
        for path in modules()
        for call in ast.walk(tree_of(path))
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).rpartition(".")[2]
        in ("startswith", "removeprefix", "partition", "split", "compile", "match", "fullmatch")
        for each in ast.walk(call)
        if isinstance(each, ast.Constant)
        and isinstance(each.value, str)
        and any(prefix in each.value.lower() for prefix in prefixes)
    }
    # These parse ``--queue NAME:multicast=GROUP``, which is no destination.
    assert found == {"names.py", "queue_manager/configuration/queue_spec.py"}


def test_every_transport_is_in_the_tables() -> None:
    assert set(canonical_url._CANONICAL) == set(Transport)
    assert set(sending_transports._BUILDERS) == set(Transport)


def test_a_folder_is_looked_over_at_a_glance() -> None:
    counts = {
        str(folder.relative_to(ROOT)): len([*folder.glob("*.py")])
        for folder in [PACKAGE, *PACKAGE.rglob("*/")]
    }
    assert {name: count for name, count in counts.items() if count > FILES_MAX} == {}


@pytest.mark.parametrize("package", SANS_IO)
def test_protocols_are_sans_io(package: str) -> None:
    """Clock, randomness, disk and network are passed in.

    Only this allows a million simulated failures an hour.
    """
    paths = sorted((PACKAGE / package).rglob("*.py"))
    assert paths
    for path in paths:
        for line, module in imports_of(path):
            assert module.split(".")[0] not in IO_MODULES, f"{path.name}:{line} imports {module}"


def test_the_accepting_process_never_loads_arrow_or_spark() -> None:
    """The accepting process must start fast, stay small, and never wait for Arrow."""
    code = (
        f"import sys, {ACCEPTING_PROCESS}; print([m for m in "
        f"{NEVER_IN_ACCEPTING_PROCESS!r} if m in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert out.stdout.strip() == "[]"


@pytest.mark.parametrize("gateway", GATEWAYS)
def test_a_gateway_knows_nothing_of_the_store(gateway: str) -> None:
    code = f"import sys, {gateway}; print([m for m in {NEVER_IN_A_GATEWAY!r} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert out.stdout.strip() == "[]"


def test_the_accepting_process_speaks_to_no_remote_queue_manager() -> None:
    """The answers of remote queue managers are read in the gateway of subscriptions alone."""
    never = sorted(OF_THE_GATEWAY_OF_SUBSCRIPTIONS)
    code = f"import sys, {ACCEPTING_PROCESS}; print([m for m in {never!r} if m in sys.modules])"
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert out.stdout.strip() == "[]"


def test_one_core_reads_remote_queues() -> None:
    """The steps and calls of a client, and what a failure means, are decided in ``mqrr/client``.

    Who has a socket makes the settings of a connection, and no PDU.
    """
    engine = {f"srmp_spark.mqrr.rpc.{each}" for each in ("client_connection", "endpoint_mapper")}
    allowed = {"ClientSettings", "ENDPOINT_MAPPER_PORT"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {name.name}"
        for part in ("client", "spark", "jobs", "signing_in", "queue_manager/puller")
        for path in sorted((PACKAGE / part).rglob("*.py"))
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom) and node.module in engine
        for name in node.names
        if name.name not in allowed
    ]
    assert found == []


def test_only_the_sender_process_loads_the_outbox() -> None:
    """The outbox loads Arrow, and the sender process is the only owner of the outbox's database.

    The accepting side has only the link to the sender process.
    """
    for path in modules():
        place = path.relative_to(PACKAGE).as_posix()
        if place.startswith(("store/outbox", SENDER_PROCESS, *OUTBOX_READERS)):
            continue
        for line, module in imports_of(path):
            assert not module.startswith(OUTBOX) or module in OUTBOX_FOR_ALL, (
                f"{place}:{line} imports {module}"
            )


@pytest.mark.parametrize("package", [*HELPER_PROCESSES, HELPERS_SHARE])
def test_the_helper_processes_share_one_package_and_know_nothing_of_each_other(
    package: str,
) -> None:
    others = {f"{HELPERS}.{other}" for other in HELPER_PROCESSES if other != package}
    for path in sorted((PACKAGE / "queue_manager" / package).rglob("*.py")):
        for line, module in imports_of(path, typing=True):
            ours = ".".join(module.split(".")[:3])
            assert ours not in others, (
                f"{package}/{path.name}:{line} imports {module}: what both need is in "
                f"{HELPERS_SHARE}/"
            )
            if package == HELPERS_SHARE and module.startswith(HELPERS):
                assert ours == f"{HELPERS}.{HELPERS_SHARE}", (
                    f"{package}/{path.name}:{line} imports {module}: what is it for?"
                )


def test_what_all_may_know_of_the_outbox_loads_no_arrow() -> None:
    names = ", ".join(sorted(OUTBOX_FOR_ALL))
    code = (
        f"import sys, {names}; print([m for m in {NEVER_IN_ACCEPTING_PROCESS!r} if m "
        "in sys.modules])"
    )
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True
    )
    assert out.stdout.strip() == "[]"


def test_files_hold_one_concept() -> None:
    paths = [
        *modules(),
        *(path for folder in ("tests", "jobs") for path in (ROOT / folder).rglob("*.py")),
    ]
    lines = {str(path.relative_to(ROOT)): path.read_text().count("\n") for path in paths}
    assert {path: count for path, count in lines.items() if count > LINES_MAX} == {}, (
        "split these by concept"
    )


def test_admission_alone_judges_writers_and_signatures() -> None:
    """Each transport asks admission. A second judge would have other checks, in another order."""
    judges = {"Writers", "Signatures"}
    found = {
        f"{path.relative_to(PACKAGE)} {each.name}"
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ImportFrom)
        for each in node.names
        if each.name in judges
    }
    assert {each for each in found if not each.startswith("queue_manager/admission/")} == {
        f"queue_manager/service.py {name}" for name in judges
    }, "only the builder may know them besides admission"


def test_functions_do_one_thing() -> None:
    longer = {
        f"{path.relative_to(PACKAGE)} {node.name}"
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        and (node.end_lineno or 0) - node.lineno >= FUNCTION_LINES_MAX
    }
    assert longer == LONGER_FUNCTIONS.keys(), (
        "split these by what they do, or forget those that are short now: "
        f"{longer ^ LONGER_FUNCTIONS.keys()}"
    )


def test_constructors_get_their_parts_in_groups() -> None:
    more = {
        f"{path.relative_to(PACKAGE)} {node.name}"
        for path in modules()
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.ClassDef)
        for each in node.body
        if isinstance(each, ast.FunctionDef)
        and each.name == "__init__"
        # ``self`` does not count.
        and len([*each.args.args, *each.args.kwonlyargs]) - 1 > PARAMETERS_MAX
    }
    assert more == MORE_PARAMETERS.keys(), (
        "group these in a dataclass, or forget those that have few now: "
        f"{more ^ MORE_PARAMETERS.keys()}"
    )


def test_nothing_is_left_for_later() -> None:
    """A note for later in the code is a promise that no test checks."""
    word = re.compile("TO" "DO|FIX" "ME|NotImplemented" r"Error|pytest\.sk" r"ip\(|xfail\(")
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in [
            *modules(),
            *sorted((ROOT / "jobs").rglob("*.py")),
            *sorted((ROOT / "tests").rglob("*.py")),
        ]
        for number, text in enumerate(path.read_text().splitlines(), 1)
        if word.search(text)
    ]
    assert found == []


def test_no_two_test_modules_have_one_name() -> None:
    """Modules of tests are imported by their bare names.

    A second module of the same name would end ``make test`` before it begins.
    """
    names = [path.name for path in (ROOT / "tests").rglob("test_*.py")]
    assert sorted(name for name in set(names) if names.count(name) > 1) == []


CLASS_NAMES_OF_SEVERAL: dict[str, str] = {}
"""Names that more than one class may have, with the reason."""


def test_a_class_name_means_one_class() -> None:
    """Who searches for the name of a class finds one answer. Private names are local to a module.

    ``ToMain`` and ``ToGateway``, the unions of messages of each gateway, are no classes.
    """
    found: dict[str, list[str]] = {}
    for path in modules():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                found.setdefault(node.name, []).append(place)
    several = {name: places for name, places in found.items() if len(places) > 1}
    assert several.keys() == CLASS_NAMES_OF_SEVERAL.keys(), several
