"""Images for tests of the oci runtime: a folder that holds the image of the tests, made once."""

import asyncio
import os
import shutil
import subprocess
import tempfile
from collections.abc import Generator
from pathlib import Path

from app.runtimes.linux import folder_removal
from app.runtimes.oci import user_namespace
from app.runtimes.oci.image_store import ImageStore
from app.runtimes.oci.machine import PROGRAMS
from app.runtimes.oci.skopeo import Source
from tests.needs import lacking
from tests.runtimes.images import BUSYBOX, IMAGE, built, write_image


def missing() -> list[str]:
    """Programs that this machine lacks."""
    return [str(each) for each in (*PROGRAMS, BUSYBOX) if not shutil.which(each)]


def folder() -> Generator[Path, None, None]:
    """Skips the test, or fails it in CI, where programs are missing."""
    if found := missing():
        lacking(f"needs {', '.join(found)}")
    namespace = user_namespace.find()
    made = Path(tempfile.mkdtemp(prefix="jobplane-oci-"))
    try:
        write_image(made / "busybox.tar", IMAGE, built())
        asyncio.run(_load(made, namespace))
        yield made / "images"
    finally:
        folder_removal.remove([made], namespace.inside)


def pod_cidr() -> str:
    """One of this process alone."""
    worker = os.environ.get("PYTEST_XDIST_WORKER", "gw99").removeprefix("gw")
    return f"10.215.{int(worker) % 256}.0/24"


def remove_network(cidr: str) -> None:
    """What an agent leaves for the next one, and the rules of published ports."""
    gateway = f"{cidr.rpartition('.')[0]}.1"
    labels = [line.split()[-1] for line in _run("ip", "address", "show", "dev", "lo").splitlines() if gateway in line]
    _run("ip", "address", "delete", f"{gateway}/32", "dev", "lo")
    _run("ip", "route", "delete", "unreachable", cidr)
    inside = cidr.rpartition(".")[0].rpartition(".")[0]  # what the agent lets through is the whole cluster's
    for table in ("nat", "filter"):
        for rule in _run("iptables", "-w", "-t", table, "-S").splitlines():
            if f" {inside}." in rule and rule.startswith(("-A FORWARD", "-A POSTROUTING")):
                _run("iptables", "-w", "-t", table, *rule.replace("-A", "-D", 1).split())
    nat = ("iptables", "-w", "-t", "nat")
    for suffix in (each.rpartition("-")[2].upper() for each in labels):
        if _run(*nat, "-S", f"JOBPLANE-TO-{suffix}"):
            for chain in ("PREROUTING", "OUTPUT"):
                _run(*nat, "-D", chain, "-m", "addrtype", "--dst-type", "LOCAL", "-j", f"JOBPLANE-TO-{suffix}")
            _run(*nat, "-D", "POSTROUTING", "-j", f"JOBPLANE-BACK-{suffix}")
            for chain in ("TO", "BACK"):
                for flag in ("-F", "-X"):
                    _run(*nat, flag, f"JOBPLANE-{chain}-{suffix}")


def _run(*command: str) -> str:
    return subprocess.run(command, check=False, capture_output=True, text=True).stdout


async def _load(made: Path, namespace: user_namespace.UserNamespace) -> None:
    (made / "images").mkdir()
    store = ImageStore(made / "images", namespace)
    await store.add(Source(f"docker-archive:{made / 'busybox.tar'}"), IMAGE)
    store.close()
