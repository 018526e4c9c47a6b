"""The files in monitoring/, as promtool and Grafana read them. That the metrics exist is tested by tests/e2e/test_metrics.py."""

import json
from pathlib import Path

import pytest
import yaml

from tests.metrics.dashboard import (
    ALERTS,
    DASHBOARD,
    FOLDER,
    alert_expressions,
    dashboard_expressions,
    metric_names,
)
from tests.metrics.promtool import promtool


def test_the_alerts_are_rules_that_say_what_to_do() -> None:
    promtool("check", "rules", str(ALERTS))
    for group in yaml.safe_load(ALERTS.read_text())["groups"]:
        for rule in group["rules"]:
            assert {"summary", "action"} <= rule["annotations"].keys(), rule["alert"]
            assert rule["for"]


def test_the_alerts_fire_in_trouble_and_are_silent_otherwise() -> None:
    promtool("test", "rules", str(FOLDER / "alerts_test.yml"))


def test_the_configuration_of_prometheus_is_valid() -> None:
    promtool("check", "config", "--syntax-only", str(FOLDER / "prometheus.yml"))


def test_every_expression_of_the_dashboard_is_parsed(tmp_path: Path) -> None:
    rules = [{"record": f"a:{at}", "expr": each} for at, each in enumerate(dashboard_expressions())]
    path = tmp_path / "rules.yml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "dashboard", "rules": rules}]}))

    assert len(rules) > 40
    promtool("check", "rules", str(path))


def test_the_panels_of_the_dashboard_are_complete_and_do_not_overlap() -> None:
    panels = json.loads(DASHBOARD.read_text())["panels"]
    places: set[tuple[int, int]] = set()
    for panel in panels:
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not places & cells, panel["title"]
        places |= cells
        assert panel["type"] == "row" or (panel["targets"] and panel["fieldConfig"]["defaults"]["unit"])
    assert len({panel["id"] for panel in panels}) == len(panels)
    assert max(x for x, _ in places) < 24


@pytest.mark.parametrize(
    ("expression", "names"),
    [
        ('sum by (a) (rate(x_total{b="up"}[5m])) / 2', {"x_total"}),
        ("histogram_quantile(0.9, sum by (le, v) (rate(y_bucket[5m]))) > 1", {"y"}),
        ("time() - z_seconds > 60 or absent(w)", {"z_seconds", "w"}),
        ("up == 0", set()),
    ],
)
def test_names_are_found_in_expressions(expression: str, names: set[str]) -> None:
    assert metric_names(expression) == names


def test_every_expression_reads_a_metric() -> None:
    for each in (*dashboard_expressions(), *alert_expressions()):
        assert metric_names(each) or "up" in each, each
