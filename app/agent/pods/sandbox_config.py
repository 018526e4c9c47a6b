"""Sandbox configuration from a pod's spec: host name, name servers, shared namespaces. Called by `starts`."""

import re
from collections.abc import Iterator
from pathlib import Path

from app.kinds.pod.pod import Pod, PodDNSConfig
from app.runtimes.base import CreateError, Dns, Port, SandboxSpec

LABEL = 63
LONGEST_HOSTNAME = 64  # that Linux takes
DOMAIN = "cluster.local"
MOST_SERVERS, MOST_SEARCHES = 3, 32
RESOLV_CONF = Path("/etc/resolv.conf")


def sandbox(pod: Pod, namespace_uid: str | None = "", cluster_dns: str = "") -> SandboxSpec:
    """`namespace_uid` as in `SandboxSpec`; `cluster_dns` as in `dns`. Raises CreateError."""
    meta, spec = pod.metadata, pod.spec
    return SandboxSpec(
        pod_uid=meta.uid,
        namespace_uid=namespace_uid,
        namespace=meta.namespace,
        name=meta.name,
        hostname=kernel_hostname(pod),
        annotations=meta.annotations,
        host_network=spec.host_network,
        host_pid=spec.host_pid,
        host_ipc=spec.host_ipc,
        share_pid=bool(spec.share_process_namespace),
        privileged=any(
            each.security_context is not None and bool(each.security_context.privileged)
            for each in (*spec.init_containers, *spec.containers)
        ),
        dns=dns(pod, cluster_dns) if has_own_dns(pod, cluster_dns) else None,
        ports=[] if spec.host_network else [*_ports(pod)],
    )


def _ports(pod: Pod) -> Iterator[Port]:
    """Yield the ports that its containers have published on the node, sidecars among them."""
    sidecars = (each for each in pod.spec.init_containers if each.restart_policy == "Always")
    for container in (*sidecars, *pod.spec.containers):
        for port in container.ports:
            if port.host_port:
                yield Port(port.protocol or "TCP", port.container_port, port.host_port, port.host_ip)


def hostname(pod: Pod) -> str:
    return pod.spec.hostname or pod.metadata.name[:LABEL].rstrip("-.")


def domain(pod: Pod) -> str:
    """Of a pod that has a subdomain; else empty."""
    return f"{pod.spec.subdomain}.{pod.metadata.namespace}.svc.{DOMAIN}" if pod.spec.subdomain else ""


def kernel_hostname(pod: Pod) -> str:
    """Return what `hostname` prints. Raises CreateError."""
    name = hostname(pod)
    if not (pod.spec.set_hostname_as_fqdn and pod.spec.subdomain):
        return name
    full = f"{name}.{domain(pod)}"
    if len(full) > LONGEST_HOSTNAME:
        raise CreateError(
            "Failed to construct FQDN from pod hostname and cluster domain, "
            f"FQDN {full} is too long ({LONGEST_HOSTNAME} characters is the max, {len(full)} characters requested)"
        )
    return full


def wants_cluster_dns(pod: Pod) -> bool:
    """As Kubernetes: ClusterFirst means the node's own name servers for a pod on the node's network."""
    policy = pod.spec.dns_policy or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not pod.spec.host_network)


def has_own_dns(pod: Pod, cluster_dns: str) -> bool:
    """Return whether the pod's name servers are others than the node's."""
    own = pod.spec.dns_policy == "None" or pod.spec.dns_config is not None
    return own or (bool(cluster_dns) and wants_cluster_dns(pod))


def dns(pod: Pod, cluster_dns: str = "") -> Dns:
    """`cluster_dns` is the address of the node's DNS responder; empty: there is none, and the node's name servers stand in."""
    base = Dns() if pod.spec.dns_policy == "None" else read_resolv_conf(_text(RESOLV_CONF))
    if cluster_dns and wants_cluster_dns(pod):
        searches = (f"{pod.metadata.namespace}.svc.{DOMAIN}", f"svc.{DOMAIN}", DOMAIN, *base.searches)
        base = Dns(servers=(cluster_dns,), searches=searches, options=("ndots:5",))
    more = pod.spec.dns_config or PodDNSConfig()
    options = dict(each.partition(":")[::2] for each in base.options)
    options.update({each.name: each.value for each in more.options})
    return Dns(
        servers=tuple(dict.fromkeys((*base.servers, *more.nameservers)))[:MOST_SERVERS],
        searches=tuple(dict.fromkeys((*base.searches, *more.searches)))[:MOST_SEARCHES],
        options=tuple(f"{name}:{value}" if value else name for name, value in options.items()),
    )


def read_resolv_conf(text: str) -> Dns:
    servers: list[str] = []
    searches: list[str] = []
    options: list[str] = []
    for line in text.splitlines():
        words = re.split(r"\s+", re.split(r"[#;]", line, maxsplit=1)[0].strip())
        if words[0] == "nameserver":
            servers += words[1:2]
        elif words[0] in ("search", "domain"):
            searches = words[1:]
        elif words[0] == "options":
            options += words[1:]
    return Dns(servers=servers, searches=searches, options=options)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""


def node_servers() -> tuple[str, ...]:
    """Return the node's own name servers."""
    return tuple(read_resolv_conf(_text(RESOLV_CONF)).servers)


def format_resolv_conf(dns: Dns) -> str:
    lines = [f"nameserver {each}" for each in dns.servers]
    lines += [f"search {' '.join(dns.searches)}"] if dns.searches else []
    lines += [f"options {' '.join(dns.options)}"] if dns.options else []
    return "".join(f"{line}\n" for line in lines)
