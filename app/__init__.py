"""Jobplane: Kubernetes Jobs without running Kubernetes. Start reading at docs/architecture.md."""

import os

# Where gRPC is imported, later, it would take part in every fork: calls that are under way fail of it, and children crash.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
