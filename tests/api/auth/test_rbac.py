"""Rights over HTTP: who is let in, who may grant what, whose tokens end when, and who may act as somebody else."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import User
from app.api.auth.tokens import issue
from app.registry.authorization import default_roles
from app.registry.bootstrap import bootstrap
from app.registry.verbs.objects import Registry
from tests.api.people import RBAC, People, bind, cluster_role, meeting, rule
from tests.conftest import NO_TLS, Clock

PODS = "/api/v1/namespaces/default/pods"
ACCOUNTS = "/api/v1/namespaces/default/serviceaccounts"


@pytest.fixture
async def people(registry: Registry, url: str) -> AsyncIterator[People]:
    async with meeting(registry, url) as found:
        yield found


def refused(answer: httpx.Response, message: str) -> None:
    said = answer.json()
    assert (answer.status_code, said["reason"], said["message"]) == (403, "Forbidden", message), said


async def made(answer: httpx.Response) -> dict[str, Any]:
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


async def test_a_user_may_what_a_binding_says_and_not_a_moment_longer(people: People, admin: httpx.AsyncClient) -> None:
    ada = await people.user("ada")
    cannot = 'cannot list resource "pods" in API group "" in the namespace "default"'
    refused(await ada.get(PODS), f'pods is forbidden: User "ada" {cannot}')

    await made(await bind(admin, "view", ["User:ada"], "default"))
    assert (await ada.get(PODS)).status_code == 200
    assert (await ada.get("/api/v1/namespaces/default")).status_code == 200
    assert (await ada.get("/api/v1/namespaces/kube-system/pods")).status_code == 403
    assert (await ada.get("/api/v1/pods")).status_code == 403
    assert (await ada.get("/api/v1/namespaces/default/secrets")).status_code == 403
    assert (await ada.post(PODS, json={})).status_code == 403

    await made(await admin.delete(f"{RBAC}/namespaces/default/rolebindings/b"))
    refused(await ada.get(PODS), f'pods is forbidden: User "ada" {cannot}')


async def test_whoever_may_see_one_object_may_watch_and_list_it_by_name(
    people: People, admin: httpx.AsyncClient
) -> None:
    await made(await cluster_role(admin, "one", rule("get,list", "configmaps", resourceNames=["mine"])))
    await made(await bind(admin, "one", ["Group:readers"]))
    ada = await people.user("ada", "readers")
    maps = "/api/v1/namespaces/default/configmaps"

    assert (await ada.get(f"{maps}/mine")).status_code == 404
    assert (await ada.get(maps, params={"fieldSelector": "metadata.name=mine"})).status_code == 200
    for name in ("", "other"):
        assert (await ada.get(maps, params={"fieldSelector": f"metadata.name={name}"})).status_code == 403
    assert (await ada.get(f"{maps}/other")).status_code == 403


async def test_a_binding_to_a_role_that_is_not_there_is_told_with_the_refusal(
    people: People, admin: httpx.AsyncClient
) -> None:
    await made(await bind(admin, "nowhere", ["User:ada"]))
    ada = await people.user("ada")

    answer = await ada.get("/api/v1/nodes")

    assert answer.json()["message"].endswith(
        'at the cluster scope: RBAC: clusterrole.rbac.authorization.k8s.io "nowhere" not found'
    )


async def test_a_cluster_starts_with_the_roles_that_everybody_knows(
    registry: Registry, admin: httpx.AsyncClient
) -> None:
    roles = {each["metadata"]["name"]: each for each in (await admin.get(f"{RBAC}/clusterroles")).json()["items"]}
    revision = await registry.store.revision()

    assert roles.keys() >= {"cluster-admin", "admin", "edit", "view", "system:basic-user", "system:discovery"}
    assert all(role["rules"] for role in roles.values())
    assert "secrets" not in str(roles["view"]["rules"])
    await bootstrap(registry)
    assert await registry.store.revision() == revision  # nothing to do, nothing written


async def test_a_default_role_gets_back_what_it_lacks_unless_it_is_to_be_left_alone(
    registry: Registry, admin: httpx.AsyncClient
) -> None:
    for name, kept in (("system:discovery", "true"), ("system:basic-user", "false")):
        patch = {"metadata": {"annotations": {default_roles.UPDATED: kept}}, "rules": [rule("get", "pods")]}
        headers = {"Content-Type": "application/merge-patch+json"}
        await made(await admin.patch(f"{RBAC}/clusterroles/{name}", json=patch, headers=headers))

    await bootstrap(registry)

    roles = {each["metadata"]["name"]: each for each in (await admin.get(f"{RBAC}/clusterroles")).json()["items"]}
    assert roles["system:basic-user"]["rules"] == [rule("get", "pods")]
    assert "/openapi" in str(roles["system:discovery"]["rules"])


@pytest.fixture
async def grantor(people: People, admin: httpx.AsyncClient) -> httpx.AsyncClient:
    """May write roles and bindings, and read pods."""
    everything = rule("*", "roles,rolebindings,clusterroles,clusterrolebindings", "rbac.authorization.k8s.io")
    writes = everything | {"verbs": ["get", "list", "create", "update", "patch", "delete"]}
    await made(await cluster_role(admin, "grantor", writes, rule("get,list", "pods")))
    await made(await bind(admin, "grantor", ["User:ada"], name="grantor"))
    return await people.user("ada", "dev")


BEYOND = (
    'user "ada" (groups=["dev" "system:authenticated"]) is attempting to grant RBAC permissions not currently held:\n'
    '{APIGroups:[""], Resources:["secrets"], Verbs:["get"]}'
)


async def test_nobody_makes_a_role_that_may_more_than_they_may(grantor: httpx.AsyncClient) -> None:
    refused(
        await cluster_role(grantor, "big", rule("get", "pods,secrets")),
        f'clusterroles.rbac.authorization.k8s.io "big" is forbidden: {BEYOND}',
    )
    small = await made(await cluster_role(grantor, "small", rule("get", "pods")))

    small["rules"] = [rule("get", "secrets")]
    message = f'clusterroles.rbac.authorization.k8s.io "small" is forbidden: {BEYOND}'
    path = f"{RBAC}/clusterroles/small"
    refused(await grantor.put(path, json=small), message)
    for form in ("merge-patch", "strategic-merge-patch"):
        headers = {"Content-Type": f"application/{form}+json"}
        refused(await grantor.patch(path, json={"rules": small["rules"]}, headers=headers), message)


async def test_a_role_is_refused_whose_check_would_stop_the_server(
    grantor: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    many = {"verbs": ["a"] * 300, "resources": ["a"] * 300, "apiGroups": ["a"] * 300, "resourceNames": ["a"] * 300}
    await made(await cluster_role(admin, "many", many))
    for answer in (await cluster_role(grantor, "mine", many), await bind(grantor, "many", ["User:ada"], "default")):
        assert (answer.status_code, answer.json()["message"].partition("rules have ")[2]) == (
            403,
            "too many combinations of verb, API group, resource and name to be checked: split them up",
        )
    await made(await bind(admin, "cluster-admin", ["User:ada"], name="all"))
    await made(await cluster_role(grantor, "mine", many))


async def test_nobody_binds_a_role_that_may_more_than_they_may(
    grantor: httpx.AsyncClient, admin: httpx.AsyncClient
) -> None:
    await made(await cluster_role(admin, "big", rule("get", "secrets")))
    refused(
        await bind(grantor, "big", ["User:ada"], "default"),
        f'rolebindings.rbac.authorization.k8s.io "b" is forbidden: {BEYOND}',
    )
    answer = await bind(grantor, "nowhere", ["User:ada"])
    assert (answer.status_code, answer.json()["message"]) == (
        404,
        'clusterroles.rbac.authorization.k8s.io "nowhere" not found',
    )
    await made(await bind(grantor, "grantor", ["User:bob"]))


async def test_only_an_administrator_makes_a_role_that_collects(grantor: httpx.AsyncClient) -> None:
    collects = {"clusterRoleSelectors": [{"matchLabels": {"a": "b"}}]}

    refused(
        await cluster_role(grantor, "all", rule("get", "pods"), aggregationRule=collects),
        'clusterroles.rbac.authorization.k8s.io "all" is forbidden: '
        "must have cluster-admin privileges to use the aggregationRule",
    )


async def test_the_verbs_escalate_and_bind_lift_the_limit(grantor: httpx.AsyncClient, admin: httpx.AsyncClient) -> None:
    group = "rbac.authorization.k8s.io"
    lifted = [rule("escalate", "roles", group), rule("bind", "clusterroles", group, resourceNames=["big"])]
    await made(await cluster_role(admin, "big", rule("get", "secrets")))
    await made(await cluster_role(admin, "huge", rule("get", "secrets")))
    await made(await cluster_role(admin, "lifted", *lifted))
    await made(await bind(admin, "lifted", ["User:ada"], "default", "lifted"))

    role = {"metadata": {"name": "r"}, "rules": [rule("*", "*")]}
    await made(await grantor.post(f"{RBAC}/namespaces/default/roles", json=role))
    assert (await grantor.post(f"{RBAC}/namespaces/kube-system/roles", json=role)).status_code == 403
    await made(await bind(grantor, "big", ["User:bob"], "default", "one"))
    assert (await bind(grantor, "huge", ["User:bob"], "default", "two")).status_code == 403


async def test_a_role_counts_with_what_it_collects(people: People, admin: httpx.AsyncClient) -> None:
    ada = await people.user("ada")
    await made(await bind(admin, "view", ["User:ada"]))
    assert (await ada.get("/api/v1/nodes")).status_code == 403

    label = {"rbac.authorization.k8s.io/aggregate-to-view": "true"}
    await made(await cluster_role(admin, "nodes-too", rule("list", "nodes"), labels=label))

    assert (await ada.get("/api/v1/nodes")).status_code == 200


# --- tokens of service accounts


async def token_of(admin: httpx.AsyncClient, name: str, **spec: Any) -> dict[str, Any]:
    return await made(await admin.post(f"{ACCOUNTS}/{name}/token", json={"spec": spec}))


async def test_a_service_account_gets_a_token_that_is_it(
    people: People, admin: httpx.AsyncClient, clock: Clock
) -> None:
    account = await made(await admin.post(ACCOUNTS, json={"metadata": {"name": "robot"}}))
    given = await token_of(admin, "robot")

    assert given["kind"] == "TokenRequest"
    assert given["metadata"]["name"] == "robot"
    assert given["spec"] == {"audiences": ["https://kubernetes.default.svc.cluster.local"], "expirationSeconds": 3600}
    ends = clock.move(hours=1).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert given["status"]["expirationTimestamp"] == ends
    clock.move(seconds=-1)
    robot = await people.holder(given["status"]["token"])
    answer = await made(await robot.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}))
    info = answer["status"]["userInfo"]
    assert info["extra"].pop("authentication.kubernetes.io/credential-id")[0].startswith("JTI=")
    assert info == {
        "username": "system:serviceaccount:default:robot",
        "uid": account["metadata"]["uid"],
        "groups": ["system:serviceaccounts", "system:serviceaccounts:default", "system:authenticated"],
        "extra": {},
    }
    assert (await robot.get(PODS)).status_code == 403
    await made(await bind(admin, "view", ["ServiceAccount:robot"], "default"))
    assert (await robot.get(PODS)).status_code == 200


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        pytest.param(
            {"expirationSeconds": 599},
            "spec.expirationSeconds: Invalid value: 599: may not specify a duration less than 10 minutes",
            id="too short",
        ),
        pytest.param(
            {"expirationSeconds": 2**32 + 1},
            "spec.expirationSeconds: Invalid value: 4294967297: may not specify a duration larger than 2^32 seconds",
            id="too long",
        ),
    ],
)
async def test_a_token_is_refused_that_would_live(admin: httpx.AsyncClient, spec: dict, message: str) -> None:
    answer = await admin.post(f"{ACCOUNTS}/default/token", json={"spec": spec})

    assert answer.status_code == 422
    assert answer.json()["message"] == f'TokenRequest.authentication.k8s.io "" is invalid: {message}'


async def test_there_is_no_token_for_an_account_that_is_not_there(admin: httpx.AsyncClient) -> None:
    answer = await admin.post(f"{ACCOUNTS}/nobody/token", json={})

    assert (answer.status_code, answer.json()["message"]) == (404, 'serviceaccounts "nobody" not found')
    assert (await admin.get(f"{ACCOUNTS}/default/token")).status_code == 404


async def knows(url: str, token: str) -> bool:
    """Asked of an API that has not seen the token before: others may remember it for a second."""
    async with httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=NO_TLS) as holder:
        return (await holder.get("/version")).status_code == 200


async def test_a_token_ends_with_its_account(registry: Registry, url: str, admin: httpx.AsyncClient) -> None:
    for _ in range(2):
        await made(await admin.post(ACCOUNTS, json={"metadata": {"name": "robot"}}))
        token = (await token_of(admin, "robot"))["status"]["token"]
        await made(await admin.delete(f"{ACCOUNTS}/robot"))
        assert not await knows(url, token)

        # Another account of the same name is another account.
        await made(await admin.post(ACCOUNTS, json={"metadata": {"name": "robot"}}))
        assert not await knows(url, token)
        await made(await admin.delete(f"{ACCOUNTS}/robot"))


async def test_a_token_ends_at_its_time(url: str, admin: httpx.AsyncClient, clock: Clock) -> None:
    token = (await token_of(admin, "default", expirationSeconds=600))["status"]["token"]
    clock.move(seconds=600)

    assert not await knows(url, token)


async def test_a_token_ends_with_what_it_is_bound_to(url: str, admin: httpx.AsyncClient) -> None:
    secrets = "/api/v1/namespaces/default/secrets"
    secret = await made(await admin.post(secrets, json={"metadata": {"name": "s"}}))
    reference = {"kind": "Secret", "apiVersion": "v1", "name": "s"}

    wrong = await admin.post(
        f"{ACCOUNTS}/default/token", json={"spec": {"boundObjectRef": {**reference, "uid": "other"}}}
    )
    assert (wrong.status_code, wrong.json()["reason"]) == (409, "Conflict")
    right = {**reference, "uid": secret["metadata"]["uid"]}
    tokens = [(await token_of(admin, "default", boundObjectRef=right))["status"]["token"] for _ in range(2)]
    assert await knows(url, tokens[0])
    await made(await admin.delete(f"{secrets}/s"))
    assert not await knows(url, tokens[1])


async def test_a_token_bound_to_a_pod_says_so_and_is_for_the_pods_account_only(
    url: str, admin: httpx.AsyncClient
) -> None:
    await made(await admin.post(ACCOUNTS, json={"metadata": {"name": "robot"}}))
    spec = {"serviceAccountName": "robot", "containers": [{"name": "c", "image": "i"}]}
    pod = await made(await admin.post(PODS, json={"metadata": {"name": "p"}, "spec": spec}))
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}

    answer = await admin.post(f"{ACCOUNTS}/default/token", json={"spec": {"boundObjectRef": reference}})
    assert (answer.status_code, answer.json()["message"]) == (
        400,
        'cannot bind token for serviceaccount "default" to pod running with serviceaccount "robot"',
    )
    token = (await token_of(admin, "robot", boundObjectRef=reference))["status"]["token"]
    review = await made(
        await admin.post("/apis/authentication.k8s.io/v1/tokenreviews", json={"spec": {"token": token}})
    )
    extra = review["status"]["user"]["extra"]
    assert extra["authentication.kubernetes.io/pod-name"] == ["p"]
    assert extra["authentication.kubernetes.io/pod-uid"] == [pod["metadata"]["uid"]]


async def test_nothing_else_can_be_what_a_token_is_bound_to(admin: httpx.AsyncClient) -> None:
    reference = {"kind": "Job", "apiVersion": "batch/v1", "name": "j"}

    answer = await admin.post(f"{ACCOUNTS}/default/token", json={"spec": {"boundObjectRef": reference}})

    assert (answer.status_code, answer.json()["message"]) == (
        400,
        "cannot bind token to object of type batch/v1, Kind=Job",
    )


# --- acting as somebody else


async def whoami(asking: httpx.AsyncClient, *headers: tuple[str, str]) -> httpx.Response:
    return await asking.post("/apis/authentication.k8s.io/v1/selfsubjectreviews", json={}, headers=list(headers))


@pytest.mark.parametrize(
    ("headers", "info"),
    [
        pytest.param(
            [("Impersonate-User", "ada")], {"username": "ada", "groups": ["system:authenticated"]}, id="a user"
        ),
        pytest.param(
            [("Impersonate-User", "ada"), ("Impersonate-Group", "a"), ("Impersonate-Group", "b")],
            {"username": "ada", "groups": ["a", "b", "system:authenticated"]},
            id="with groups",
        ),
        pytest.param(
            [("Impersonate-User", "system:serviceaccount:lab:robot")],
            {
                "username": "system:serviceaccount:lab:robot",
                "groups": ["system:serviceaccounts", "system:serviceaccounts:lab", "system:authenticated"],
            },
            id="a service account",
        ),
        pytest.param(
            [("Impersonate-User", "ada"), ("Impersonate-Uid", "7"), ("Impersonate-Extra-Acme.com%2FTeam", "x")],
            {"username": "ada", "uid": "7", "groups": ["system:authenticated"], "extra": {"acme.com/team": ["x"]}},
            id="with all there is",
        ),
    ],
)
async def test_an_administrator_may_act_as(admin: httpx.AsyncClient, headers: list, info: dict) -> None:
    assert (await made(await whoami(admin, *headers)))["status"]["userInfo"] == info


async def test_whoever_acts_as_somebody_has_their_rights_and_no_others(admin: httpx.AsyncClient) -> None:
    answer = await admin.get(PODS, headers={"Impersonate-User": "ada"})

    assert answer.status_code == 403
    assert 'User "ada" cannot list' in answer.json()["message"]
    # Somebody unknown may not even ask about themselves.
    assert (await whoami(admin, ("Impersonate-User", "system:anonymous"))).status_code == 403


async def test_acting_as_somebody_is_a_right(people: People, admin: httpx.AsyncClient) -> None:
    ada = await people.user("ada")
    refused(
        await whoami(ada, ("Impersonate-User", "bob")),
        'users "bob" is forbidden: User "ada" cannot impersonate resource "users" in API group "" at the cluster scope',
    )
    await made(await cluster_role(admin, "as-bob", rule("impersonate", "users", resourceNames=["bob"])))
    await made(await bind(admin, "as-bob", ["User:ada"]))

    assert (await whoami(ada, ("Impersonate-User", "bob"))).status_code == 201
    for more in (("Impersonate-Group", "system:masters"), ("Impersonate-Uid", "1"), ("Impersonate-Extra-a", "b")):
        assert (await whoami(ada, ("Impersonate-User", "bob"), more)).status_code == 403
    assert (await whoami(ada, ("Impersonate-User", "system:serviceaccount:a:b"))).status_code == 403


@pytest.mark.parametrize("path", ["/api", "/apis", "/apis/batch/v1", "/openapi/v3", "/version"])
async def test_discovery_is_read_as_somebody_too(people: People, admin: httpx.AsyncClient, path: str) -> None:
    anybody, nobody = {"Impersonate-User": "bob"}, {"Impersonate-User": "system:anonymous"}
    assert (await admin.get(path, headers=anybody)).status_code == 200
    refused(
        await (await people.user("ada")).get(path, headers=anybody),
        'users "bob" is forbidden: User "ada" cannot impersonate resource "users" in API group "" at the cluster scope',
    )
    assert (await admin.get(path, headers={"Impersonate-Group": "a"})).status_code == 400

    # Kubernetes tells everybody its version, and nothing else.
    answer = await admin.get(path, headers=nobody)
    if path == "/version":
        assert answer.status_code == 200
    else:
        refused(answer, f'forbidden: User "system:anonymous" cannot get path "{path}"')


async def test_a_path_that_is_not_there_is_judged_by_itself_and_not_by_the_host_header(people: People) -> None:
    ada = await people.user("ada")
    for host in ("x", "x/livez?"):
        assert (await ada.get("/nowhere", headers={"Host": host})).status_code == 403


async def test_groups_alone_are_nobody(admin: httpx.AsyncClient) -> None:
    assert (await whoami(admin, ("Impersonate-Group", "a"))).status_code == 400


async def test_a_node_gets_nothing_by_impersonation(registry: Registry, people: People) -> None:
    token = await issue(registry, User(name="system:node:n1", groups=("system:nodes",), nodes=("n1",)))
    node = await people.holder(token)
    answer = await whoami(node, ("Impersonate-User", "admin"), ("Impersonate-Group", "system:masters"))

    assert answer.status_code == 403
