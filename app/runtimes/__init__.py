"""What can run a pod's containers: one module per runtime behind the protocol in `base`."""

from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from typing import Literal

from app.runtimes.base import Runtime


def make_runtime(name: Literal["process", "simulated"], state_dir: Path, now: Callable[[], datetime]) -> Runtime:
    """The runtime of this name; each imports only what it needs itself."""
    if name == "simulated":
        from app.runtimes.simulated import SimulatedRuntime

        return SimulatedRuntime(now)
    from app.runtimes.process import ProcessRuntime

    return ProcessRuntime(state_dir / "containers")
