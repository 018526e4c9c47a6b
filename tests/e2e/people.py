"""An administrator, and Eve, who has ClusterRole `edit` in one namespace: what tests of isolation begin with."""

from collections.abc import Collection
from typing import Any

import httpx

from tests.e2e.cluster import Cluster, until

SECONDS = 60


def a_pod(name: str, container: dict[str, Any], spec: dict[str, Any]) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container], **spec}}


class People:
    """`namespaces`: each with its Pod Security level, "" for none. Eve is the default service account of t1, and may edit `home`.

    `image`: of the containers that `run` makes.
    """

    def __init__(
        self, cluster: Cluster, namespaces: dict[str, str], home: Collection[str] = ("t1",), image: str = "none"
    ) -> None:
        self.cluster, self.image = cluster, image
        self.admin = cluster.client()
        for name, level in namespaces.items():
            labels = {"pod-security.kubernetes.io/enforce": level} if level else {}
            self.make(self.admin, "/api/v1/namespaces", {"metadata": {"name": name, "labels": labels}})
        until(lambda: all(map(self._has_account, (*namespaces, "default"))), SECONDS, "service accounts")
        subject = {"kind": "ServiceAccount", "name": "default", "namespace": "t1"}
        role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
        for name in home:
            rights = f"/apis/rbac.authorization.k8s.io/v1/namespaces/{name}/rolebindings"
            self.make(self.admin, rights, {"metadata": {"name": "eve"}, "subjects": [subject], "roleRef": role})
        made = self.make(self.admin, "/api/v1/namespaces/t1/serviceaccounts/default/token", {"spec": {}})
        self.token = str(made["status"]["token"])
        self.eve = cluster.client(self.token)

    def _has_account(self, namespace: str) -> bool:
        return self.admin.get(f"/api/v1/namespaces/{namespace}/serviceaccounts/default").is_success

    def make(self, client: httpx.Client, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = client.post(path, json=body)
        assert answer.status_code in (200, 201), answer.text
        made: dict[str, Any] = answer.json()
        return made

    def run(self, namespace: str, name: str, script: str, client: httpx.Client | None = None, **spec: Any) -> None:
        more = spec.pop("container", {})
        container = {"name": "main", "image": self.image, "command": ["sh", "-c", script], **more}
        self.make(client or self.admin, f"/api/v1/namespaces/{namespace}/pods", a_pod(name, container, spec))

    def pod(self, namespace: str, name: str) -> dict[str, Any]:
        found: dict[str, Any] = self.admin.get(f"/api/v1/namespaces/{namespace}/pods/{name}").json()
        return found

    def phase(self, namespace: str, name: str) -> str:
        return str(self.pod(namespace, name)["status"].get("phase"))

    def log(self, namespace: str, name: str) -> str:
        return self.admin.get(f"/api/v1/namespaces/{namespace}/pods/{name}/log").text

    def ended(self, namespace: str, name: str) -> str:
        """Its log, once it has ended well."""
        until(lambda: self.phase(namespace, name) in ("Succeeded", "Failed"), SECONDS, f"{name} ends")
        assert self.phase(namespace, name) == "Succeeded", self.pod(namespace, name)["status"]
        return self.log(namespace, name)

    def warnings(self, namespace: str) -> dict[str, str]:
        """Reasons and messages of warnings, by the name of what they are about."""
        events = self.admin.get(f"/api/v1/namespaces/{namespace}/events", params={"fieldSelector": "type=Warning"})
        found: dict[str, str] = {}
        for each in events.json()["items"]:
            name = each["involvedObject"]["name"]
            found[name] = f"{found.get(name, '')}{each['reason']}: {each['message']}\n"
        return found

    def close(self) -> None:
        self.admin.close()
        self.eve.close()
