"""Custom kinds through kubectl: define, apply, explain, wait, scale, watch, delete. Each version has a kind of its own."""

from tests.api.custom.definitions import definition, path, widget
from tests.e2e.kubectl import Kubectl, on_every_version


@on_every_version
def test_a_custom_kind_is_a_kind(kubectl: Kubectl) -> None:
    plural, kind = f"widgets{kubectl.minor}", f"Widget{kubectl.minor}"
    crd = definition(plural, kind)
    name = f"customresourcedefinition.apiextensions.k8s.io/{crd['metadata']['name']}"
    assert kubectl.send("apply", crd) == f"{name} created\n"
    assert kubectl("wait", "--for=condition=established", name) == f"{name} condition met\n"

    full = f"{kind.lower()}.lab.example.com"
    made = widget(kind=kind, tags=["a"])
    assert kubectl.send("apply", made) == f"{full}/w created\n"
    assert kubectl.send("apply", made) == f"{full}/w unchanged\n"
    assert kubectl("get", plural).splitlines() == ["NAME   COLOR   REPLICAS", "w      red     1"]
    assert "weight\t<integer>" in kubectl("explain", f"{plural}.spec.parts")
    typo = widget(kind=kind, colour="red")
    assert 'unknown field "spec.colour"' in kubectl.send("apply", typo, code=1)
    wrong = widget(kind=kind, color="green")
    assert kubectl.send("apply", wrong, code=1) == (
        f'The {kind} "w" is invalid: spec.color: Unsupported value: "green": supported values: "red", "blue"\n'
    )
    assert kubectl("scale", f"{plural}/w", "--replicas=3") == f"{full}/w scaled\n"
    assert kubectl("label", f"{plural}/w", "a=b") == f"{full}/w labeled\n"
    assert kubectl("get", plural, "-l", "a=b", "-o", "jsonpath={.items[*].spec.replicas}") == "3"
    assert kubectl.send("apply", made, options=["--server-side", "--force-conflicts"]) == (
        f"{full}/w serverside-applied\n"
    )
    assert kubectl("delete", name).endswith(f'"{crd["metadata"]["name"]}" deleted\n')
    assert kubectl.api.get(path(plural, namespace=kubectl.namespace)).status_code == 404
