"""The part of a Secret volume, for a manager that runs outside of pods: the keys of a Secret as files, and kept so."""

import base64
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.operators.objects import Objects

_PAUSE_SECONDS = 0.5


@contextmanager
def mounted(cluster: Cluster, namespace: str, name: str, folder: Path) -> Iterator[None]:
    """Until the end, write what the Secret has."""
    over = threading.Event()
    following = threading.Thread(target=_follow, args=(cluster, namespace, name, folder, over))
    following.start()
    try:
        yield
    finally:
        over.set()
        following.join()


def _follow(cluster: Cluster, namespace: str, name: str, folder: Path, over: threading.Event) -> None:
    with cluster.client() as client:
        objects = Objects(client)
        while not over.wait(_PAUSE_SECONDS):
            for key, value in (objects.get("v1/secrets", name, namespace).get("data") or {}).items():
                content, file = base64.b64decode(value), folder / key
                if not file.exists() or file.read_bytes() != content:
                    half = folder / f".{key}"
                    half.write_bytes(content)
                    half.rename(file)
