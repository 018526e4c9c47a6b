"""GET /version: the Kubernetes release whose API is served, and the release of Jobplane.

`kubectl` warns about skew by the minor and some dispatchers pick their binary by it, so it names the release whose
behaviour `app.kinds` follows.
"""

import platform
from functools import cache
from importlib import metadata

import msgspec

MAJOR, MINOR = "1", "33"


@cache
def jobplane_version() -> str:
    """Return Jobplane's version; `0` if the package is not installed."""
    try:
        return metadata.version("jobplane")
    except metadata.PackageNotFoundError:
        return "0"


@cache
def version_document() -> bytes:
    """Return version.Info as JSON, with every field: the Python client's model requires each."""
    return msgspec.json.encode(
        {
            "major": MAJOR,
            "minor": MINOR,
            "gitVersion": f"v{MAJOR}.{MINOR}.0+jobplane-{jobplane_version()}",
            "gitCommit": "",
            "gitTreeState": "",
            "buildDate": "1970-01-01T00:00:00Z",
            "goVersion": "",
            "compiler": platform.python_implementation(),
            "platform": f"{platform.system().lower()}/{_architecture(platform.machine())}",
        }
    )


def _architecture(machine: str) -> str:
    return {"x86_64": "amd64", "AMD64": "amd64", "aarch64": "arm64"}.get(machine, machine)
