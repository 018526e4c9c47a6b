"""Rights, limits and surroundings of containers, from specs."""

import os
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from app.agent.pods import sandbox_config
from app.agent.pods import security_context as rights
from app.agent.pods.environment import ContainerConfigError
from app.agent.pods.hosts_file import HostsFiles
from app.kinds.pod.container import Container, ContainerPort, ResourceRequirements
from app.kinds.pod.pod import HostAlias, Pod, PodDNSConfig, PodDNSConfigOption, PodSpec
from app.kinds.pod.security import Capabilities, PodSecurityContext, SeccompProfile, SecurityContext
from app.kinds.pod.volume import VolumeMount
from app.machinery.base import ObjectMeta
from app.runtimes.base import CreateError, Dns, Port, ResourceLimits, RuntimeInfo, Security

ABLE = RuntimeInfo(name="able", version="1", survives_agent=True, images=True, security=True, pod_network=True)
BARE = RuntimeInfo(name="bare", version="1", survives_agent=True)
PROFILES = Path("/profiles")
MAIN = Container(name="main", image="i")
OTHER = os.geteuid() + 1


def a_pod(name: str = "web", uid: str = "u-1", **spec: Any) -> Pod:
    meta = ObjectMeta(name=name, namespace="default", uid=uid)
    return Pod(metadata=meta, spec=PodSpec(**{"containers": (MAIN,), **spec}))


def merged(pod: PodSecurityContext | None, own: SecurityContext | None) -> Security:
    return rights.security(a_pod(security_context=pod), Container(name="main", security_context=own), PROFILES)


@pytest.mark.parametrize(
    ("pod", "own", "expected"),
    [
        pytest.param(None, None, Security(), id="nothing asks for nothing"),
        pytest.param(PodSecurityContext(run_as_user=1), None, Security(user=1), id="the pod speaks for containers"),
        pytest.param(
            PodSecurityContext(run_as_user=1, run_as_group=2),
            SecurityContext(run_as_user=0),
            Security(user=0, group=2),
            id="the container's own word wins",
        ),
        pytest.param(
            PodSecurityContext(supplemental_groups=(3, 4), fs_group=4),
            None,
            Security(groups=(3, 4)),
            id="groups add up",
        ),
        pytest.param(
            None,
            SecurityContext(capabilities=Capabilities(add=("NET_ADMIN",), drop=("ALL",)), privileged=False),
            Security(add=("NET_ADMIN",), drop=("ALL",)),
            id="capabilities come and go",
        ),
        pytest.param(
            None,
            SecurityContext(allow_privilege_escalation=False, read_only_root_filesystem=True),
            Security(no_new_privileges=True, read_only_root=True),
            id="restrictions hold",
        ),
        pytest.param(
            PodSecurityContext(seccomp_profile=SeccompProfile(type="Localhost", localhost_profile="a/b.json")),
            None,
            Security(seccomp="/profiles/a/b.json"),
            id="a profile is a file",
        ),
        pytest.param(
            PodSecurityContext(seccomp_profile=SeccompProfile(type="RuntimeDefault")),
            None,
            Security(seccomp="RuntimeDefault"),
            id="a profile is the runtime's",
        ),
    ],
)
def test_security(pod: PodSecurityContext | None, own: SecurityContext | None, expected: Security) -> None:
    assert merged(pod, own) == expected


def test_a_profile_may_not_lead_out_of_its_folder() -> None:
    profile = SeccompProfile(type="Localhost", localhost_profile="../x")
    with pytest.raises(ContainerConfigError):
        merged(None, SecurityContext(seccomp_profile=profile))


NON_ROOT = SecurityContext(run_as_non_root=True)


@pytest.mark.parametrize(
    ("own", "info", "user", "refusal"),
    [
        pytest.param(NON_ROOT, ABLE, "", "container has runAsNonRoot and image will run as root", id="root by default"),
        pytest.param(NON_ROOT, ABLE, "0:0", "image will run as root", id="root by number"),
        pytest.param(NON_ROOT, ABLE, "me", r"image has non-numeric user \(me\)", id="a name, which may be root's"),
        pytest.param(
            SecurityContext(run_as_non_root=True, run_as_user=0), ABLE, "", "breaks non-root policy", id="root by wish"
        ),
        pytest.param(SecurityContext(run_as_user=OTHER), BARE, "", "cannot run it as user", id="somebody else"),
        pytest.param(SecurityContext(run_as_group=os.getegid() + 1), BARE, "", "as group", id="another group"),
    ],
)
def test_is_refused_as(own: SecurityContext, info: RuntimeInfo, user: str, refusal: str) -> None:
    with pytest.raises(ContainerConfigError, match=refusal):
        _check(own, info, user)


@pytest.mark.parametrize(
    ("own", "info", "user"),
    [
        pytest.param(NON_ROOT, ABLE, "1000:1000", id="the image's user is another"),
        pytest.param(SecurityContext(run_as_non_root=True, run_as_user=7), ABLE, "", id="its user is another"),
        pytest.param(SecurityContext(run_as_user=os.geteuid()), BARE, "", id="it is what the agent is"),
        pytest.param(SecurityContext(read_only_root_filesystem=True), BARE, "", id="it is only a restriction"),
    ],
)
def test_may_run_if(own: SecurityContext, info: RuntimeInfo, user: str) -> None:
    _check(own, info, user)


def _check(own: SecurityContext, info: RuntimeInfo, user: str) -> None:
    container = Container(name="main", security_context=own)
    rights.check(a_pod(), container, rights.security(a_pod(), container, PROFILES), info, user)


def test_restrictions_that_will_not_hold_are_named() -> None:
    wanted = Security(drop=("ALL",), read_only_root=True, seccomp="Unconfined")
    assert rights.find_unenforced(wanted, BARE) == ["capabilities.drop", "readOnlyRootFilesystem"]
    assert rights.find_unenforced(wanted, ABLE) == []


def test_limits() -> None:
    resources = ResourceRequirements(limits={"cpu": "1.5", "memory": "64Mi"}, requests={"cpu": "100m"})
    assert rights.limits(Container(resources=resources)) == ResourceLimits(cpu=1500, memory=64 << 20, cpu_request=100)
    assert rights.limits(Container()) == ResourceLimits()


class TestSurroundings:
    def test_the_host_name_is_full_if_asked_for(self) -> None:
        pod = a_pod(hostname="a", subdomain="b", set_hostname_as_fqdn=True)
        assert sandbox_config.sandbox(pod).hostname == "a.b.default.svc.cluster.local"

    def test_a_full_name_that_is_too_long_is_refused(self) -> None:
        with pytest.raises(CreateError, match="is too long"):
            sandbox_config.sandbox(a_pod(hostname="a" * 60, subdomain="b", set_hostname_as_fqdn=True))

    def test_host_ports_are_published_but_for_pods_on_the_node_s_network(self) -> None:
        web = Container(ports=(ContainerPort(container_port=80, host_port=8080), ContainerPort(container_port=81)))
        dns = ContainerPort(container_port=53, host_port=53, host_ip="10.0.0.1", protocol="UDP")
        sidecar = Container(restart_policy="Always", ports=(dns,))
        first = Container(ports=(ContainerPort(container_port=1, host_port=1),))
        pod = a_pod(containers=(web,), init_containers=(first, sidecar))

        assert sandbox_config.sandbox(pod).ports == [Port("UDP", 53, 53, "10.0.0.1"), Port("TCP", 80, 8080)]
        shared = replace(pod, spec=replace(pod.spec, host_network=True))
        assert sandbox_config.sandbox(shared).ports == []

    def test_name_servers_are_the_pods_own(self) -> None:
        config = PodDNSConfig(
            nameservers=("1.1.1.1",), searches=("x",), options=(PodDNSConfigOption(name="ndots", value="2"),)
        )
        pod = a_pod(dns_policy="None", dns_config=config)
        assert sandbox_config.sandbox(pod).dns == Dns(servers=("1.1.1.1",), searches=("x",), options=("ndots:2",))

    def test_name_servers_are_left_to_the_runtime(self) -> None:
        assert sandbox_config.sandbox(a_pod(dns_policy="ClusterFirst")).dns is None

    def test_resolv_conf_is_read(self) -> None:
        text = "# hello\nnameserver 10.0.0.2 ; it\nsearch a b\noptions ndots:5 rotate\n"
        expected = Dns(servers=["10.0.0.2"], searches=["a", "b"], options=["ndots:5", "rotate"])
        assert sandbox_config.read_resolv_conf(text) == expected


class TestHosts:
    def test_a_pod_of_its_own_network_has_its_name_and_aliases(self, tmp_path: Path) -> None:
        hosts = HostsFiles(tmp_path, ABLE, "10.0.0.1")
        pod = a_pod(host_aliases=(HostAlias(ip="1.2.3.4", hostnames=("a", "b")),))
        hosts.write(pod, "10.1.0.5")
        (mount,) = hosts.mount(pod, MAIN)

        assert mount.target == "/etc/hosts"
        lines = mount.source.read_text().splitlines()
        assert "10.1.0.5\tweb" in lines
        assert "1.2.3.4\ta\tb" in lines

    def test_peers_of_a_subdomain_know_each_other_while_they_are_there(self, tmp_path: Path) -> None:
        hosts = HostsFiles(tmp_path, ABLE, "10.0.0.1")
        first, second = (a_pod(f"p{n}", f"u-{n}", hostname=f"p{n}", subdomain="ring") for n in (0, 1))
        hosts.write(first, "10.1.0.1")
        hosts.write(second, "10.1.0.2")
        file = hosts.mount(first, MAIN)[0].source
        assert "10.1.0.2\tp1.ring.default.svc.cluster.local" in file.read_text()

        hosts.remove("u-1")
        assert "p1.ring" not in file.read_text()
        assert hosts.uids() == {"u-0"}

    def test_a_pod_that_shares_everything_needs_none(self, tmp_path: Path) -> None:
        hosts = HostsFiles(tmp_path, BARE, "10.0.0.1")
        hosts.write(a_pod(), "")
        assert hosts.mount(a_pod(), MAIN) == ()

    def test_a_container_may_have_a_file_of_its_own(self, tmp_path: Path) -> None:
        hosts = HostsFiles(tmp_path, ABLE, "10.0.0.1")
        hosts.write(a_pod(), "10.1.0.1")
        own = Container(name="main", volume_mounts=(VolumeMount(name="v", mount_path="/etc/hosts"),))
        assert hosts.mount(a_pod(), own) == ()
