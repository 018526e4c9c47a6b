"""Jobplane: Kubernetes Jobs without running Kubernetes. Start reading at docs/architecture.md."""

import os
import sys

# Where gRPC is imported, later, it would take part in every fork: calls that are under way fail of it, and children crash.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
# httpx would import the modules of a command line of its own: an eighth of the start of an agent, and five megabytes of it.
if "httpx" not in sys.modules:
    sys.modules["httpx._main"] = None  # type: ignore[assignment]
