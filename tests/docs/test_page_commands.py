"""The commands of README and of the pages to try something, run as they stand. What is not run is listed with its reason."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest
from page_commands import ROOT, Step, Terminal, pattern_of, steps_of

from tests.kit.certificate import Authority
from tests.kit.pgm.raw_sockets import may_be_raw

TRIED = ("try-multicast.md", "try-wsrm.md", "queues.md")
NOT_RUN = {
    "git clone": "a clone of this repository",
    "pip install": "minutes; tests/wheel/test_wheel.py",
    "make": "minutes",
    ". .venv/bin/activate": "the virtual environment is that of this test",
    "srmp-spark serve --data-dir ./data --listen 0.0.0.0:80": "a host name and a port that this machine may not have",
    "srmp-spark doctor --queue 'private$/orders' --url": "the name of another machine",
    "srmp-spark queue create 'private$/failed'": "tests/spark/test_poison_rows.py",
    "python jobs/ingest.py": "tests/spark/test_ingest_job.py",
    "srmp-spark send --destination wsrm:http://wcf.example": "the name of another machine; tests/wsrm/test_wsrm_out.py",
    "srmp-spark subscribe": "the name of another machine; tests/remote_read/test_subscribe.py",
    "python jobs/backfill.py --source mqrr": "the name of another machine; tests/spark/test_backfill_mqrr.py",
    "srmp-spark restore --state URI": "a lost disk; tests/restore/test_drill.py",
    "srmp-spark serve --data-dir DIR": "a lost disk; tests/restore/test_drill.py",
    "srmp-spark backup": "folders of a machine; tests/backup",
    "srmp-spark restore --backup": "folders of a machine; tests/backup",
    "srmp-spark serve --data-dir /var/lib/srmp-spark …": "a restored backup; tests/backup",
    "srmp-spark activate": "a copy; tests/backup/test_held_copy.py",
    "systemctl": "a service of the machine; tests/backup/test_held_copy.py moves a directory",
    "cp -a": "folders of a machine; tests/backup/test_held_copy.py moves a directory",
    "useradd": "an installation as root",
    "journalctl": "a service of the machine",
    "install -": "an installation as root",
    "cp conf/srmp-spark": "an installation as root; tests/conf/test_conf.py reads the unit",
    "python3 -m venv /opt/": "an installation; tests/wheel/test_wheel.py",
    "/opt/srmp-spark-0.2/bin/": "an installation; tests/wheel/test_wheel.py",
    "cp -a /var/lib/srmp-spark": "an upgrade; tests/compat/test_going_back.py",
    "srmp-spark serve --config /etc/srmp-spark/serve.toml --check": "a file of the unit; tests/cli/test_serve_check.py",
    "srmp-spark streams --json": "a queue manager with two names; tests/sender/test_changed_address.py",
    "srmp-spark peek --queue 'private$/orders' --body none": "the same",
    "srmp-spark peek --queue 'private$/orders' --after": "the same",
    "srmp-spark peek --queue 'private$/order_queue$'": "the same",
}
"""Commands of pages that begin so are not run here."""
PIPELINE_SECTION, PIPELINE_PAGE = "XML to a table, and replies", "docs/xml-to-delta.md"
"""Their commands need Spark: tests/docs/test_quick_delta.py runs them."""
RUN_WHOLE = {*TRIED, "WINDOWS.md"}
"""Pages whose commands are all run, but for what a test of theirs leaves out."""


def reason_not_to_run(step: Step) -> str | None:
    return next(
        (why for beginning, why in NOT_RUN.items() if step.command.startswith(beginning)), None
    )


def run_of(page: str, heading: str | None = None) -> list[Step]:
    """The commands of a page, or of one section of it, that are run."""
    text = (ROOT / page).read_text()
    if heading is not None:
        _, _, rest = text.partition(f"\n## {heading}\n")
        assert rest, f"{page} has no section {heading}"
        text = rest.partition("\n## ")[0]
    return [step for step in steps_of(text) if reason_not_to_run(step) is None]


def first_steps() -> list[Step]:
    return run_of("README.md", "Quick start") + run_of("docs/first-hour.md")


@pytest.mark.parametrize("page", TRIED)
def test_a_page_shows_what_one_sees(page: str, tmp_path: Path) -> None:
    steps = list(steps_of((ROOT / "docs" / page).read_text()))
    assert sum(step.seen is not None for step in steps) >= 5, "the page shows what one sees"
    with Terminal(tmp_path / "here") as terminal:
        for step in steps:
            terminal.run(step)


@pytest.mark.long
@pytest.mark.skipif(not may_be_raw(), reason="raw IP needs CAP_NET_RAW: run it as root")
def test_the_same_multicast_as_windows_speaks_it(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "try-multicast.md").read_text()
    assert "`--pgm raw` in place of `--pgm udp:3055`" in page
    # Raw packets reach every process of the host, another run of this test among them
    dice = random.SystemRandom()
    page = page.replace(
        "239.192.61.1", f"239.192.{dice.randrange(100, 250)}.{dice.randrange(1, 250)}"
    )
    with Terminal(tmp_path / "here") as terminal:
        for step in steps_of(page):
            terminal.run(step._replace(command=step.command.replace("--pgm udp:3055", "--pgm raw")))


def test_the_first_steps_of_readme(tmp_path: Path) -> None:
    """A queue manager, a message, and looking at it; `quick.py` needs Spark and is left out."""
    steps = first_steps()
    assert [step.command.split()[1] for step in steps] == [
        "serve",
        "send",
        "doctor",
        "peek",
        "queues",
    ]
    with Terminal(tmp_path / "here") as terminal:
        for step in steps:
            terminal.run(step)


def test_two_queue_managers_on_one_host_as_the_page_about_sending_starts_them(
    tmp_path: Path,
) -> None:
    steps = run_of("docs/sending.md")
    assert [step.command.split()[1] for step in steps] == ["serve", "serve", "send", "peek"]
    with Terminal(tmp_path / "here") as terminal:
        for step in steps:
            terminal.run(step)


def test_the_look_after_an_upgrade(tmp_path: Path) -> None:
    (look,) = run_of("docs/upgrades.md")
    assert look.seen is not None, "the page shows what one sees"
    with Terminal(tmp_path / "here") as terminal:
        terminal.run(Step("srmp-spark serve --data-dir ./data --queue 'private$/orders'", None))
        terminal.run(look)


def test_serve_and_doctor_as_the_page_about_windows_starts_them(tmp_path: Path) -> None:
    """With the outside name, and with HTTPS. The name is not looked up: `doctor --url` is left out."""
    here = tmp_path / "here"
    page = (ROOT / "docs" / "WINDOWS.md").read_text().replace("/var/lib/srmp-spark", "./data")
    steps = [step for step in steps_of(page) if "--url" not in step.command]
    assert [step.command.split()[1] for step in steps] == ["serve", "doctor", "serve"]
    for given in (steps[:2], steps[2:]):
        with Terminal(here) as terminal:
            identity = Authority(tmp_path / "authority").issue("qm", hosts=["qm.example"])
            (here / "qm.pem").write_bytes(identity.certificate.read_bytes())
            identity.key.rename(here / "qm.key")
            for step in given:
                terminal.run(step)
        here = tmp_path / "there"


def test_every_command_of_a_page_is_run_or_has_a_reason() -> None:
    run = [*first_steps(), *run_of("docs/sending.md"), *run_of("README.md", PIPELINE_SECTION)]
    run += [*run_of(PIPELINE_PAGE), *run_of("docs/upgrades.md")]
    pages = [
        *ROOT.glob("*.md"),
        *(ROOT / "docs").glob("*.md"),
        ROOT / "benchmarks" / "README.md",
    ]
    steps = [
        step for page in pages if page.name not in RUN_WHOLE for step in steps_of(page.read_text())
    ]
    assert [
        step.command for step in steps if step not in run and reason_not_to_run(step) is None
    ] == []
    unused = [
        beginning
        for beginning in NOT_RUN
        if not any(step.command.startswith(beginning) for step in steps)
    ]
    assert unused == [], "a reason for a command that no page has"
    assert all(
        (ROOT / path).is_file()
        for why in NOT_RUN.values()
        for path in re.findall(r"tests/\S+\.py", why)
    )


@pytest.mark.parametrize(
    ("shown", "seen", "same"),
    [
        ("a  b\n", "a b", True),
        ('{"x":"…"}', '{"x":"12 3"}', True),
        ("a …", "a", False),
        ("a", "b", False),
        ("a", "a b", False),
    ],
)
def test_an_output_is_compared(shown: str, seen: str, same: bool) -> None:
    assert bool(pattern_of(shown).fullmatch(seen)) is same
