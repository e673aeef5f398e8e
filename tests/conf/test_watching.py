"""conf/alerts.yml and conf/grafana.json: what an operator loads is valid, and asks for metrics that exist."""

from __future__ import annotations

import json
import re
import runpy
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

from srmp_spark.queue_manager.metrics import COUNTERS

ROOT = Path(__file__).resolve().parents[2]
DURATION = re.compile(r"([0-9]+(ms|[smhdwy]))+")
SUFFIXES = ("_total", "_bucket", "_sum", "_count")


def alerts() -> list[dict[str, Any]]:
    groups = yaml.safe_load((ROOT / "conf" / "alerts.yml").read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def expressions() -> list[tuple[str, str]]:
    """Each expression with the name of its alert or panel."""
    found = [(rule["alert"], rule["expr"]) for rule in alerts()]
    for panel in json.loads((ROOT / "conf" / "grafana.json").read_text())["panels"]:
        found += [
            (panel["title"], target["expr"].replace("$__rate_interval", "5m"))
            for target in panel.get("targets", ())
        ]
    return found


def metrics() -> set[str]:
    """Every metric of a queue manager and of a query, without the suffixes of the exposition."""
    package = ROOT / "srmp_spark"
    sources = (
        package / "queue_manager" / "metrics.py",
        package / "queue_manager" / "api" / "gauges.py",
        package / "spark" / "progress.py",
    )
    text = "".join(path.read_text() for path in sources)
    subscriptions = re.findall(r'of_each\(\s*"([a-z_]+)"', text)
    found = set(re.findall(r"srmp_[a-z_]*[a-z]", text))
    return found | {f"srmp_subscription_{name}" for name in subscriptions}


@pytest.mark.parametrize(("name", "expression"), expressions())
def test_each_expression_is_promql_over_metrics_that_exist(name: str, expression: str) -> None:
    promql_parser.parse(expression)
    asked = {
        re.sub(f"({'|'.join(SUFFIXES)})$", "", each)
        for each in re.findall(r"srmp_[a-z_]+", re.sub(r'"[^"]*"', "", expression))
    }
    known = {re.sub(f"({'|'.join(SUFFIXES)})$", "", each) for each in metrics()}
    assert asked
    assert asked <= known


def test_a_counter_is_asked_for_by_its_exposed_name() -> None:
    """``prometheus_client`` adds ``_total``: an expression without it would match nothing, for ever."""
    assert len(COUNTERS) >= 5
    for name, expression in expressions():
        for each in COUNTERS:
            assert not re.search(rf"{each.name}(?!_total)\b(?!_)", expression), name


def test_each_alert_says_what_to_do() -> None:
    found = alerts()
    names = [rule["alert"] for rule in found]
    assert len(names) == len(set(names)) >= 15
    for rule in found:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}, rule["alert"]
        assert DURATION.fullmatch(rule.get("for", "0s")), rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "description"}, rule["alert"]
        for text in rule["annotations"].values():
            assert text.count("{{") == text.count("}}"), rule["alert"]
        named = re.findall(r"\$labels\.([a-z_]+)", str(rule["annotations"]))
        kept = re.search(r"by \(([a-z_, ]+)\)", rule["expr"])
        if kept is not None:
            assert set(named) <= set(kept[1].split(", ")), f"{rule['alert']}: a label that is gone"


def test_commands_and_flags_of_the_alerts_exist() -> None:
    help_of = (ROOT / "docs" / "INTERFACE.md").read_text()
    for rule in alerts():
        for flag in re.findall(r"--[a-z][a-z-]+", rule["annotations"]["description"]):
            assert flag in help_of, (rule["alert"], flag)
        for command in re.findall(r"`srmp-spark ([a-z-]+)", rule["annotations"]["description"]):
            assert command in help_of, (rule["alert"], command)


def test_the_dashboard_is_what_its_table_gives() -> None:
    generated = runpy.run_path(str(ROOT / "docs" / "site" / "dashboard.py"))["text"]()
    assert (ROOT / "conf" / "grafana.json").read_text() == generated, "run `make grafana`"


def test_every_panel_explains_itself() -> None:
    panels = json.loads((ROOT / "conf" / "grafana.json").read_text())["panels"]
    graphs = [panel for panel in panels if panel["type"] == "timeseries"]
    assert len(graphs) >= 15
    assert len({panel["id"] for panel in panels}) == len(panels)
    for panel in graphs:
        assert len(panel["description"]) > 30, panel["title"]
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24, panel["title"]
