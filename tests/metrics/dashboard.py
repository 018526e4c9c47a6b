"""The files in monitoring/: their expressions, and the names of metrics in these."""

import json
import re
from pathlib import Path

import yaml

FOLDER = Path(__file__).parents[2] / "monitoring"
DASHBOARD, ALERTS = FOLDER / "grafana-dashboard.json", FOLDER / "alerts.yml"
_NO_NAMES = re.compile(r'\{[^}]*\}|\[[^\]]*\]|"[^"]*"|\b(?:by|on|without) ?\([^)]*\)')
_WORDS = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*(?! *\()\b(?! *\()")
_OPERATORS = {"and", "or", "unless", "bool"}
_SUFFIXES = re.compile("_(bucket|sum|count)$")
FROM_PROMETHEUS = {"up"}  # which Prometheus itself makes


def dashboard_expressions() -> list[str]:
    """Every expression of the dashboard, with what Grafana puts in for its variables."""
    panels = json.loads(DASHBOARD.read_text())["panels"]
    found = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [each.replace("$__rate_interval", "5m").replace("$namespace", ".*") for each in found]


def alert_expressions() -> list[str]:
    """Every expression of the alerts."""
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule["expr"] for group in groups for rule in group["rules"]]


def metric_names(expression: str) -> set[str]:
    """The metrics that an expression reads, without the suffixes of histograms."""
    words = set(_WORDS.findall(_NO_NAMES.sub(" ", expression)))
    return {_SUFFIXES.sub("", word) for word in words - _OPERATORS - FROM_PROMETHEUS}


def names_of(scrape: str) -> set[str]:
    """The metrics of a scrape, also those without a series yet."""
    return set(re.findall(r"^# TYPE (\S+) ", scrape, re.MULTILINE))
