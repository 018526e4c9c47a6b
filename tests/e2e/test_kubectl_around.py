"""What the server is and knows: versions, discovery, `explain`, `cluster-info`, `config`, and the way through `proxy`."""

import json
import re
import shutil

import httpx

from tests.e2e.kubectl import Kubectl, following, on_every_version, words


@on_every_version
def test_version_names_both_sides(kubectl: Kubectl) -> None:
    told = json.loads(_without_warnings(kubectl("version", "-o", "json")))
    assert told["clientVersion"]["minor"] == str(kubectl.minor)
    assert (told["serverVersion"]["major"], told["serverVersion"]["minor"]) == ("1", "33")
    assert re.search(r"^Server Version: .*v1\.33\.\d+\+jobplane", kubectl("version"), re.MULTILINE)


def _without_warnings(text: str) -> str:
    """Versions further apart than one are warned of."""
    return "\n".join(line for line in text.splitlines() if not line.startswith("WARNING: version difference"))


@on_every_version
def test_api_resources_are_listed_in_all_ways(kubectl: Kubectl) -> None:
    batch = words(kubectl("api-resources", "--api-group=batch"))
    assert (
        batch
        == "NAME SHORTNAMES APIVERSION NAMESPACED KIND\ncronjobs cj batch/v1 true CronJob\njobs batch/v1 true Job\n"
    )
    verbs = "create,delete,deletecollection,get,list,patch,update,watch"
    wide = words(kubectl("api-resources", "-o", "wide"))
    assert re.search(rf"^pods po v1 true Pod \[?{re.escape(verbs)}\]?( all)?$", wide.replace(" \n", "\n"), re.MULTILINE)
    assert {"namespaces", "nodes", "priorityclasses.scheduling.k8s.io"} <= set(
        kubectl("api-resources", "--namespaced=false", "-o", "name").split()
    )
    together = kubectl("api-resources", "--categories=all", "-o", "name").split()
    assert {"pods", "jobs.batch", "cronjobs.batch"} <= set(together)
    assert {"v1", "batch/v1", "policy/v1", "metrics.k8s.io/v1beta1"} <= set(kubectl("api-versions").split())


@on_every_version
def test_discovery_starts_anew_without_its_cache(kubectl: Kubectl) -> None:
    shutil.rmtree(kubectl.home / ".kube", ignore_errors=True)
    assert kubectl("get", "po,cj,jobs", "-l", "a=nix") == kubectl.none()
    assert list((kubectl.home / ".kube" / "cache" / "discovery").glob("*/batch/v1/serverresources.json"))


@on_every_version
def test_explain_knows_every_field(kubectl: Kubectl) -> None:
    told = kubectl("explain", "job.spec")
    assert re.search(r"^ +backoffLimit\s+<integer>$", told, re.MULTILINE)
    assert re.search(r"^ +podFailurePolicy\s+<PodFailurePolicy>$", told, re.MULTILINE)
    assert re.search(r"^ +template\s+<PodTemplateSpec> -required-$", told, re.MULTILINE)
    deep = kubectl("explain", "job", "--recursive")
    assert re.search(r"^ +terminationGracePeriodSeconds\s+<integer>$", deep, re.MULTILINE)
    assert "GROUP:      batch\nKIND:       CronJob\nVERSION:    v1\n" in kubectl(
        "explain", "cronjob.spec.jobTemplate", "--api-version=batch/v1"
    )
    assert "FIELD: containers <[]Container>" in kubectl("explain", "pod.spec.containers")
    assert kubectl("explain", "job.nix", code=1).endswith('error: field "nix" does not exist\n')
    assert 'the server doesn\'t have a resource type "frob"' in kubectl("explain", "frob", code=1)


@on_every_version
def test_explain_knows_every_resource(kubectl: Kubectl) -> None:
    for kind in ("quota", "role", "node.status"):
        assert "VERSION:" in kubectl("explain", kind)


@on_every_version
def test_cluster_info_points_to_the_server(kubectl: Kubectl) -> None:
    plain = re.sub(r"\x1b\[[0-9;]*m", "", kubectl("cluster-info"))  # coloured up to 1.30, wherever it goes
    assert f"Kubernetes control plane is running at {kubectl.cluster.url}\n" in plain


@on_every_version
def test_every_namespace_has_the_certificate_of_the_authority(kubectl: Kubectl) -> None:
    shown = kubectl("get", "cm", "kube-root-ca.crt", "-o", r"jsonpath={.data.ca\.crt}")
    assert shown == (kubectl.cluster.folder / "tls" / "ca.crt").read_text()


@on_every_version
def test_cluster_info_dump_tells_everything(kubectl: Kubectl) -> None:
    own = kubectl.apart("dump")
    own("run", "dumped", "--image=busybox", "--restart=Never", "--", "echo", "hello from dumped")
    own("wait", "--for=jsonpath={.status.phase}=Succeeded", "pod/dumped", "--timeout=60s")
    said = own("cluster-info", "dump", f"--namespaces={own.namespace}")
    for kind in ("Node", "Event", "ReplicationController", "Service", "DaemonSet", "Deployment", "ReplicaSet", "Pod"):
        assert f'"kind": "{kind}List"' in said
    start = f"==== START logs for container dumped of pod {own.namespace}/dumped ====\n"
    assert f"{start}hello from dumped\n" in said


@on_every_version
def test_config_shows_how_it_is_reached(kubectl: Kubectl) -> None:
    assert kubectl("config", "current-context") == "jobplane\n"
    shown = kubectl("config", "view", "--minify")
    assert f"server: {kubectl.cluster.url}\n" in shown
    assert "token: REDACTED\n" in shown


@on_every_version
def test_a_proxy_leads_plain_clients_through(kubectl: Kubectl) -> None:
    with following(kubectl.start("proxy", "--port=0")) as told:
        line = told(r"^Starting to serve on 127\.0\.0\.1:\d+$")
        with httpx.Client(base_url=f"http://{line.split()[-1]}", trust_env=False) as client:
            names = client.get("/api/v1/namespaces").json()["items"]
            assert kubectl.namespace in {each["metadata"]["name"] for each in names}
            made = client.post(
                f"/api/v1/namespaces/{kubectl.namespace}/configmaps", json={"metadata": {"name": "by-proxy"}}
            )
            assert made.status_code == 201
            with client.stream("GET", "/api/v1/namespaces", params={"watch": "1", "timeoutSeconds": "30"}) as watch:
                assert json.loads(next(watch.iter_lines()))["type"] == "ADDED"
    assert kubectl("get", "cm", "by-proxy", "-o", "name") == "configmap/by-proxy\n"
