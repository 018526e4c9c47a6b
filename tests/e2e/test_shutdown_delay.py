"""An API that is told to stop serves on for a while: not ready, and each answer is the last of its connection."""

import signal
from pathlib import Path

from tests.e2e.cluster import READY_SECONDS, STOP_SECONDS, free_port, until
from tests.e2e.parts import Parts


def test_a_stopping_replica_answers_until_balancers_know(tmp_path: Path) -> None:
    port = free_port()
    with Parts(tmp_path / "data", nodes=0) as parts, parts.client() as client:
        replica = parts.add("api", "--port", str(port), JOBPLANE_SHUTDOWN_DELAY_DURATION="10m")
        until(lambda: f"address=https://127.0.0.1:{port}" in parts.log.read_text(), READY_SECONDS, "it serves")
        client.base_url = f"https://127.0.0.1:{port}"
        replica.terminate()
        until(lambda: client.get("/readyz").status_code == 503, READY_SECONDS, "it is not ready")
        ready, live, nodes = (client.get(path) for path in ("/readyz", "/livez", "/api/v1/nodes"))
        with client.stream("GET", "/api/v1/nodes?watch=1") as watch:
            assert watch.status_code == 200
        replica.send_signal(signal.SIGINT)  # whoever waits at a terminal need not wait
        assert replica.wait(STOP_SECONDS) == 0

    assert "process is shutting down" in ready.text
    assert (live.status_code, nodes.status_code) == (200, 200)
    assert [each.headers["connection"] for each in (ready, live, nodes, watch)] == ["close"] * 4
    assert parts.surprises() == ""
