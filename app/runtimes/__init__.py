"""What can run a pod's containers: one module per runtime behind the protocol in `base`."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

from app.runtimes.base import Runtime

RuntimeName = Literal["process", "cri", "docker", "simulated"]
CONTAINERD = "unix:///run/containerd/containerd.sock"


def make_runtime(
    name: RuntimeName,
    state_dir: Path,
    now: Callable[[], datetime],
    endpoint: str = "",
    node: str = "",
    *,
    cgroup: str = "auto",
    pids: int = 0,
) -> Runtime:
    """The runtime of this name; each imports only what it needs itself. Called inside a running event loop.

    endpoint: of the container engine; empty: its usual one.
    node:     whose pods they are, should several agents use one engine.
    cgroup, pids: of the process runtime: see `cgroup_roots.find`.
    """
    if name == "simulated":
        from app.runtimes.simulated import SimulatedRuntime

        return SimulatedRuntime(now)
    if name == "cri":
        from app.runtimes.cri import CriRuntime

        return CriRuntime(endpoint or CONTAINERD, state_dir / "cri", node)
    if name == "docker":
        from app.runtimes.docker import DockerRuntime, usual_endpoint

        return DockerRuntime(endpoint or usual_endpoint(), state_dir / "docker", node)
    from app.runtimes import cgroup_roots
    from app.runtimes.process import ProcessRuntime

    root = state_dir / "containers"
    return ProcessRuntime(root, cgroups=cgroup_roots.announced(cgroup_roots.find(root, cgroup, pids)))
