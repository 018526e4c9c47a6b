"""`jobplane up --log-format json`: every line of all its processes is one JSON object."""

import json
from pathlib import Path

from tests.e2e.cluster import Cluster, until

SECONDS = 60


def test_every_line_of_all_processes_is_json(tmp_path: Path) -> None:
    with Cluster(
        tmp_path / "data", "--runtime", "simulated", "--log-format", "json", JOBPLANE_LOG_LEVEL="debug"
    ) as running:
        until(lambda: "elected leader" in running.log.read_text(), SECONDS, "controllers act")
    lines = [json.loads(line) for line in running.log.read_text().splitlines()]

    assert {line["component"] for line in lines} >= {"up", "api", "controllers"}
    assert all({"ts", "level", "logger", "msg"} <= line.keys() for line in lines)
    (serving,) = [line for line in lines if line["msg"] == "API is serving"]
    assert serving["address"] == running.url
