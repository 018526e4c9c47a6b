"""Hosts files: a pod's own name, its hostAliases, and the names of the pods of its subdomain that run on this node.

Where the node has no DNS responder, pods of a headless Service find each other on their node by these files, which are written
anew, in place, whenever one of them comes or goes. A pod gets one if its network is its own, or if it asks for names.
"""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from app.agent.pods.sandbox_config import domain, hostname
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.runtimes.base import Mount, RuntimeInfo

TARGET = "/etc/hosts"
OF_THE_HOST = Path("/etc/hosts")
_LOCAL = """\
127.0.0.1\tlocalhost
::1\tlocalhost ip6-localhost ip6-loopback
fe00::0\tip6-localnet
fe00::0\tip6-mcastprefix
fe00::1\tip6-allnodes
fe00::2\tip6-allrouters
"""


class _Entry(NamedTuple):
    """`shares`: the node's network, and so its address."""

    pod: Pod
    ip: str
    shares: bool


class HostsFiles:
    """Those of all pods of the agent, under one folder. `ip` is the node's. `has_dns`: the node has a DNS responder."""

    def __init__(self, root: Path, info: RuntimeInfo, ip: str, has_dns: Callable[[], bool] = lambda: False) -> None:
        self._root, self._info, self._ip, self._has_dns = root, info, ip, has_dns
        self._pods: dict[str, _Entry] = {}

    def write(self, pod: Pod, ip: str) -> None:
        """The pod stands, at this address (empty: the node's)."""
        if not (self._info.mounts and self._info.runs_commands) or not self._needs_one(pod, ip):
            return
        named = _Entry(pod, ip or self._ip, shares=not ip)
        known = self._pods.get(pod.metadata.uid)
        self._pods[pod.metadata.uid] = named
        if known is None or known.ip != named.ip:
            self._write_all(named)

    def mount(self, pod: Pod, container: Container) -> tuple[Mount, ...]:
        """Unless the container has a file of its own there."""
        uid = pod.metadata.uid
        if uid not in self._pods or any(each.mount_path.rstrip("/") == TARGET for each in container.volume_mounts):
            return ()
        return (Mount(source=self._file(uid), target=TARGET),)

    def remove(self, uid: str) -> None:
        named = self._pods.pop(uid, None)
        if named is not None:
            for each in self._peers(named.pod):
                self._write(each)
        shutil.rmtree(self._root / uid, ignore_errors=True)

    def uids(self) -> set[str]:
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    def _needs_one(self, pod: Pod, ip: str) -> bool:
        return bool(ip or pod.spec.host_aliases or (pod.spec.subdomain and pod.spec.hostname))

    def _write_all(self, named: _Entry) -> None:
        self._write(named)
        for each in self._peers(named.pod):
            if each is not named:
                self._write(each)

    def _peers(self, pod: Pod) -> list[_Entry]:
        where = domain(pod)
        if not where or self._has_dns():
            return []
        return [each for each in self._pods.values() if domain(each.pod) == where]

    def _file(self, uid: str) -> Path:
        return self._root / uid / "hosts"

    def _write(self, named: _Entry) -> None:
        """In place, for the file is mounted."""
        file = self._file(named.pod.metadata.uid)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(self._text(named))

    def _text(self, named: _Entry) -> str:
        pod, shares = named.pod, named.shares
        lines = [f"{each.ip}\t{_names(each.pod)}" for each in self._peers(pod) if each.pod is not pod]
        aliases = ["\t".join((each.ip, *each.hostnames)) for each in pod.spec.host_aliases]
        head = "# Kubernetes-managed hosts file" + (" (host network).\n" if shares else ".\n")
        text = head + (_of_the_host() if shares else _LOCAL)
        if not shares or domain(pod):
            text += f"{named.ip}\t{_names(pod)}\n"
        if lines:
            text += "\n# Pods of the same subdomain on this node.\n" + "\n".join(lines) + "\n"
        if aliases:
            text += "\n# Entries added by HostAliases.\n" + "\n".join(aliases) + "\n"
        return text


def _names(pod: Pod) -> str:
    """The full name first, and then what a resolver would make whole."""
    name, where = hostname(pod), domain(pod)
    if not where:
        return name
    subdomain, namespace = pod.spec.subdomain, pod.metadata.namespace
    shorter = (f"{subdomain}.{namespace}.svc", f"{subdomain}.{namespace}", subdomain)
    return "\t".join((f"{name}.{where}", *(f"{name}.{each}" for each in shorter), name))


def _of_the_host() -> str:
    try:
        text = OF_THE_HOST.read_text(errors="replace")
    except OSError:
        return _LOCAL
    return text if text.endswith("\n") else text + "\n"
