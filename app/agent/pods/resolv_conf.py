"""resolv.conf files of pods on the process runtime, which is not told of name servers: a mount brings them. Called by `starts`.

A mount costs a start some milliseconds; container engines write the file by themselves. So only a pod gets one that may ask for
names: its namespace has a Service as the pod starts, or its spec says something about DNS. Once written, it stays.
"""

from pathlib import Path

from app.agent.pods import sandbox_config
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.runtimes.base import Mount, RuntimeInfo

TARGET = "/etc/resolv.conf"
_NAME = "resolv.conf"


class ResolvConfFiles:
    """Those of all pods of the agent, beside their hosts files, with which they are removed."""

    def __init__(self, root: Path, info: RuntimeInfo) -> None:
        self._root = root
        self._is_needed = info.mounts and info.host_programs

    def write(self, pod: Pod, cluster_dns: str, *, has_services: bool) -> None:
        """The pod starts. `cluster_dns` as in `sandbox_config.dns`; `has_services`: its namespace has Services."""
        if self._is_needed and _asks_for_names(pod, has_services) and sandbox_config.has_own_dns(pod, cluster_dns):
            file = self._file(pod)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(sandbox_config.format_resolv_conf(sandbox_config.dns(pod, cluster_dns)))

    def mount(self, pod: Pod, container: Container) -> tuple[Mount, ...]:
        """Unless the container has a file of its own there."""
        if not self._is_needed or any(each.mount_path.rstrip("/") == TARGET for each in container.volume_mounts):
            return ()
        file = self._file(pod)
        return (Mount(source=file, target=TARGET, read_only=True),) if file.exists() else ()

    def _file(self, pod: Pod) -> Path:
        return self._root / pod.metadata.uid / _NAME


def _asks_for_names(pod: Pod, has_services: bool) -> bool:
    spec = pod.spec
    says_so = spec.dns_policy in ("ClusterFirstWithHostNet", "None") or spec.dns_config is not None
    return has_services or says_so or bool(spec.subdomain)
