"""Two nodes of the runtime oci that pull from a registry of stand-ins, and Kubernetes' website: where its pages are run.

Used by `test_website`. Nodes are network namespaces; their agents find the registry by a registries.conf in a home of their own.
"""

import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from app.runtimes.linux import folder_removal
from app.runtimes.oci import user_namespace
from tests.conformance import documents, stand_ins, website
from tests.conformance.website import Website
from tests.e2e import kubectl as kubectls
from tests.e2e.cluster import surprises, until
from tests.e2e.kubectl import Kubectl
from tests.e2e.machines import Network, Server, agent, jobplane, laid, ready
from tests.needs import lacking
from tests.runtimes import oci_images
from tests.runtimes.registry import registry

MACHINES = ("left", "right")
PODS = "10.217.0.0/16"


class Machines(Network):
    """Entered without `ip netns exec`, which hides the cgroups."""

    def into(self, machine: str) -> list[str]:
        return ["nsenter", f"--net=/run/netns/{self.space(machine)}"]


class Lab:
    """The website, a kubectl, and a registry that takes images."""

    def __init__(self, site: Website, kubectl: Kubectl, push: Callable[[str, str, str], str]) -> None:
        self.site, self._kubectl, self.push = site, kubectl, push

    def space(self, name: str) -> Kubectl:
        """A kubectl in a namespace of its own."""
        return self._kubectl.apart(name)


@contextmanager
def folder_of_nodes() -> Iterator[Path]:
    """With images and pods of the nodes, whose files belong to users of their own."""
    made = Path(tempfile.mkdtemp(prefix="jobplane-website-"))
    made.chmod(0o755)
    try:
        yield made
    finally:
        folder_removal.remove([made], user_namespace.find().inside)


@contextmanager
def a_lab() -> Iterator[Lab]:
    site, newest = website.find(), kubectls.newest()
    if missing := [
        *oci_images.missing(),
        *[each for each in ("amqp-consume", "redis-cli", "nsenter") if not shutil.which(each)],
    ]:
        lacking(f"needs {', '.join(missing)}")
    documents.require_pi()
    documents.require_rabbitmq()
    with ExitStack() as stack:
        folder = stack.enter_context(folder_of_nodes())
        network = stack.enter_context(laid(Machines("jpsite", "10.213.86", MACHINES)))
        images = stack.enter_context(registry(network.host))
        stand_ins.add_hub(images)
        home = folder / "home"
        (home / ".config" / "containers").mkdir(parents=True)
        (home / ".config" / "containers" / "registries.conf").write_text(stand_ins.registries(images))
        server = stack.enter_context(Server(folder / "server", network.host, JOBPLANE_POD_CIDR=PODS))
        with server.client() as client:
            for node in ready(client):
                cordon = {"spec": {"unschedulable": True}}
                how = {"Content-Type": "application/merge-patch+json"}
                client.patch(f"/api/v1/nodes/{node}", json=cordon, headers=how).raise_for_status()
            _, *given = jobplane("token", "create", "--uses", "2", "--data-dir", str(server.folder)).split()
            for each in MACHINES:
                stack.enter_context(
                    agent(network, each, each, [*given, "--runtime", "oci"], folder / each, HOME=str(home))
                )
            until(lambda: set(MACHINES) <= ready(client).keys(), 60, "both are ready")

            def push(name: str, base: str, dockerfile: str) -> str:
                return stand_ins.add_ours(images, name, base, site.dockerfile(dockerfile))

            kubectl = Kubectl.at(newest, server, folder)
            stack.callback(kubectl.api.close)
            kubectl.api.post("/api/v1/namespaces", json={"metadata": {"name": kubectl.namespace}}).raise_for_status()
            yield Lab(site, kubectl, push)
            client.delete("/apis/batch/v1/cronjobs")
            server.empty()
        for each in ("server", *MACHINES):
            assert surprises(folder / f"{each}.log") == ""
