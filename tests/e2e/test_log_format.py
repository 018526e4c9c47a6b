"""`jobplane up --log-format json`: every line of all its processes is one JSON object. No line of a start tells of a failure."""

import json
from itertools import takewhile
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


def test_no_process_fails_to_reach_another_at_a_start(tmp_path: Path) -> None:
    with Cluster(tmp_path / "data", "--runtime", "simulated", "--log-format", "json") as running:
        running.stop()
        running.log.write_text("")
        running.start()  # again: an agent is ready before the API, if it need not wait for files of a new folder
    lines = [json.loads(line) for line in running.log.read_text().splitlines()]
    starting = list(takewhile(lambda line: line["msg"] != "stopping", lines))

    assert "API is serving" in [line["msg"] for line in starting]
    assert [line for line in starting if line["component"] == "agent" and "error" in line] == []
