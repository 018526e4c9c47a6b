"""What can run a pod's containers: one package per runtime behind the protocol in `base`.

What belongs here: `process/`, `oci/`, `cri/`, `docker/`, `simulated/`, and what they share: `engine/`, `logs/`, `linux/`; here:
the protocol, the choice of a runtime (`make_runtime`), wake-ups, SPDY frames. `tests/runtimes/test_conformance*.py` defines it.

May import: `app.plans`, `app.kinds`, `app.machinery`; never the store. Imported by: `app.agent`, `app.main`; `app.api` (SPDY).
Start reading: `base`, then `process.runtime`.
"""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal, NamedTuple

from app.runtimes.base import Runtime
from app.runtimes.process.pod_users import DEFAULT_RANGE

RuntimeName = Literal["process", "oci", "cri", "docker", "simulated"]
RuntimeChoice = Literal["auto", "process", "oci", "cri", "docker", "simulated"]  # as people give it; see `choice`
CONTAINERD = "unix:///run/containerd/containerd.sock"


class ProcessOptions(NamedTuple):
    """`cgroup`: as of `cgroup_roots.find`; `pids`: most processes of a container, 0 for any number; `users`: of isolated pods."""

    cgroup: str = "auto"
    pids: int = 0
    users: str = DEFAULT_RANGE


DEFAULT_OPTIONS = ProcessOptions()


def make_runtime(
    name: RuntimeName,
    state_dir: Path,
    now: Callable[[], datetime],
    endpoint: str = "",
    node: str = "",
    options: ProcessOptions = DEFAULT_OPTIONS,
) -> Runtime:
    """The runtime of this name; each imports only what it needs itself. Called inside a running event loop.

    endpoint: of the container engine; empty: its usual one. Of oci: the folder of images.
    node:     whose pods they are, should several agents use one engine.
    options:  limits, and what the process runtime needs. Its isolated pods do not see the folder that `state_dir` is in, nor
              the home of the agent's user.
    """
    if name == "simulated":
        from app.runtimes.simulated.runtime import SimulatedRuntime

        return SimulatedRuntime(now)
    if name == "cri":
        from app.runtimes.cri.runtime import CriRuntime

        return CriRuntime(endpoint or CONTAINERD, state_dir / "cri", node, options.pids)
    if name == "docker":
        from app.runtimes.docker.runtime import DockerRuntime, usual_endpoint

        return DockerRuntime(endpoint or usual_endpoint(), state_dir / "docker", node, options.pids)
    from app.runtimes.linux import cgroup_roots

    root = state_dir / ("oci" if name == "oci" else "containers")
    found = cgroup_roots.find(root, options.cgroup, options.pids)
    cgroups = cgroup_roots.log_missing(found)
    if name == "oci":
        from app.runtimes.oci.runtime import OciRuntime

        refuses = cgroup_roots.advice(found)
        return OciRuntime(root, Path(endpoint or state_dir / "images"), cgroups=cgroups, refuses_limits=refuses)
    from app.runtimes.process.runtime import ProcessRuntime

    return ProcessRuntime(root, cgroups=cgroups, private=(state_dir.parent, Path.home()), users=options.users)
