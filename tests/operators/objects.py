"""What a user of an operator does with its objects, by plain requests: apply, create, wait, look."""

from collections.abc import Callable
from typing import Any

import httpx

from tests.e2e.cluster import until

Document = dict[str, Any]
SECONDS = 120
_PLURALS = {"NetworkPolicy": "networkpolicies", "PriorityClass": "priorityclasses"}


class Objects:
    """Of one Jobplane. Paths are told by API version and plural: `jobset.x-k8s.io/v1alpha2/jobsets`."""

    def __init__(self, client: httpx.Client, namespace: str = "default") -> None:
        self.client, self.namespace = client, namespace

    def path(self, resource: str, name: str = "", namespace: str | None = "") -> str:
        """Of `GROUP/VERSION/PLURAL` or `v1/PLURAL`. `namespace`: None for what has none."""
        version, _, plural = resource.rpartition("/")
        inside = "" if namespace is None else f"namespaces/{namespace or self.namespace}/"
        root = "api" if "/" not in version else "apis"
        return f"/{root}/{version}/{inside}{plural}" + (f"/{name}" if name else "")

    def apply(self, document: Document) -> Document:
        """Server-side, as `kubectl apply --server-side --force-conflicts`."""
        where = document["metadata"].get("namespace")
        path = self.path(f"{document['apiVersion']}/{_plural(document['kind'])}", document["metadata"]["name"], where)
        how = {"fieldManager": "test", "force": "true"}
        headers = {"Content-Type": "application/apply-patch+yaml"}
        return _answer(self.client.patch(path, params=how, headers=headers, json=document))

    def define(self, document: Document) -> None:
        """Apply a CustomResourceDefinition and wait until it is served."""
        self.apply(document)
        path = self.path("apiextensions.k8s.io/v1/customresourcedefinitions", document["metadata"]["name"], None)
        until(lambda: condition(self.client.get(path).json(), "Established"), SECONDS, f"{path} is served")

    def create(self, resource: str, document: Document, namespace: str | None = "") -> Document:
        """As kubectl does: a field that is not known is an error. A custom object names its kind."""
        if "kind" in document:
            document = {"apiVersion": resource.rpartition("/")[0], **document}
        how = {"fieldValidation": "Strict"}
        return _answer(self.client.post(self.path(resource, "", namespace), params=how, json=document))

    def get(self, resource: str, name: str, namespace: str | None = "") -> Document:
        return _answer(self.client.get(self.path(resource, name, namespace)))

    def list(self, resource: str, selector: str = "", namespace: str | None = "") -> list[Document]:
        found = _answer(self.client.get(self.path(resource, "", namespace), params={"labelSelector": selector}))
        items: list[Document] = found["items"]
        return items

    def delete(self, resource: str, name: str, namespace: str | None = "") -> None:
        _answer(self.client.delete(self.path(resource, name, namespace)))

    def until(self, resource: str, name: str, claim: Callable[[Document], Any], seconds: float = SECONDS) -> Document:
        """Wait until it is true of an object; the object."""
        seen: list[Document] = [{}]

        def holds() -> bool:
            seen[0] = self.client.get(self.path(resource, name)).json()
            return bool(claim(seen[0]))

        try:
            until(holds, seconds, f"what {resource} {name} should be")
        except AssertionError as error:
            error.add_note(f"it is {seen[0].get('spec')}\n{seen[0].get('status')}\n{self.events()}")
            raise
        return seen[0]

    def events(self) -> str:
        """The newest ones of the namespace, for a test that fails."""
        found = sorted(
            self.list("v1/events"), key=lambda each: each.get("lastTimestamp") or each.get("eventTime") or ""
        )
        found = found[-15:]
        return "\n".join(f"{each['involvedObject']['name']}: {each['reason']}: {each.get('message')}" for each in found)


def condition(document: Document, kind: str) -> bool:
    conditions = document.get("status", {}).get("conditions", [])
    return any(each["type"] == kind and each["status"] == "True" for each in conditions)


def _plural(kind: str) -> str:
    return _PLURALS.get(kind, kind.lower() + ("es" if kind.endswith("s") else "s"))


def _answer(response: httpx.Response) -> Document:
    assert response.is_success, f"{response.request.method} {response.request.url}: {response.text}"
    found: Document = response.json()
    return found
