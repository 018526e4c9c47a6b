"""Jobplane: Kubernetes Jobs without running Kubernetes. Start reading at docs/architecture.md."""
