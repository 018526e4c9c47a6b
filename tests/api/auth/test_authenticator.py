"""Who may do what: tokens, administrators, nodes and everyone else."""

from dataclasses import dataclass, field, replace

import pytest

from app.api.auth.authenticator import (
    AUDIENCE,
    AUTHENTICATED,
    MASTERS,
    NODES,
    Action,
    Authenticator,
    User,
    account_of,
    account_user,
    bearer,
    digest_of,
    is_for_everyone,
    may,
    refusal,
)
from app.machinery.errors import ApiError
from app.machinery.selectors import parse_fields

ADMIN = User(name="admin", groups=(MASTERS,))
NODE = User(name="system:node:n1", groups=(NODES,))
FLEET = User(name="system:node:sim", groups=(NODES,), nodes=("sim-*", "extra"))
GROUPLESS = User(name="system:node:n1")
SOMEONE = User(name="jane", groups=(AUTHENTICATED,))
STRANGER = User(name="system:anonymous")


@dataclass
class Ledger:
    """Tokens as the store would know them, counting who asked."""

    users: dict[str, User]
    asked: list[str] = field(default_factory=list)

    async def lookup(self, digest: str) -> User | None:
        self.asked.append(digest)
        return self.users.get(digest)


@dataclass
class Watch:
    now: float = 0.0

    def __call__(self) -> float:
        return self.now


async def test_a_token_is_looked_up_by_its_digest_and_remembered_for_a_moment() -> None:
    ledger, clock = Ledger({digest_of("secret"): SOMEONE}), Watch()
    authenticator = Authenticator(ledger, clock, seconds=1.0)

    assert [await authenticator.user("Bearer secret") for _ in range(3)] == [SOMEONE] * 3
    assert ledger.asked == [digest_of("secret")]
    assert "secret" not in repr(vars(authenticator))


async def test_a_revoked_token_stops_working_when_the_moment_is_over() -> None:
    ledger, clock = Ledger({digest_of("secret"): SOMEONE}), Watch()
    authenticator = Authenticator(ledger, clock, seconds=1.0)
    await authenticator.user("Bearer secret")
    ledger.users.clear()
    clock.now = 1.0

    with pytest.raises(ApiError, match=r"^Unauthorized$"):
        await authenticator.user("Bearer secret")


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer ", "Basic c2VjcmV0", "Bearer wrong", "secret"])
async def test_without_a_known_token_there_is_no_user(header: str | None) -> None:
    authenticator = Authenticator(Ledger({digest_of("secret"): SOMEONE}), Watch())

    with pytest.raises(ApiError) as refused:
        await authenticator.user(header)

    assert (refused.value.code, refused.value.reason, refused.value.message) == (401, "Unauthorized", "Unauthorized")


async def test_a_token_that_was_just_made_works_although_it_was_tried_before() -> None:
    ledger = Ledger({})
    authenticator = Authenticator(ledger, Watch())
    with pytest.raises(ApiError):
        await authenticator.user("Bearer new")
    ledger.users[digest_of("new")] = SOMEONE

    assert await authenticator.user("bearer new") == SOMEONE


async def test_a_token_for_somebody_else_is_no_token_here() -> None:
    meant = {digest_of(each): replace(SOMEONE, audiences=(each,)) for each in ("vault", AUDIENCE)}
    authenticator = Authenticator(Ledger(meant), Watch())

    assert (await authenticator.user(f"Bearer {AUDIENCE}")).name == "jane"
    with pytest.raises(ApiError, match=r"^Unauthorized$"):
        await authenticator.user("Bearer vault")


@pytest.mark.parametrize(
    ("name", "account"),
    [
        ("system:serviceaccount:lab:robot", ("lab", "robot")),
        ("system:serviceaccount:lab:", None),
        ("system:serviceaccount:lab:robot:x", None),
        ("lab:robot", None),
    ],
)
def test_a_user_may_be_a_service_account(name: str, account: tuple[str, str] | None) -> None:
    assert account_of(name) == account
    if account:
        assert account_user(*account) == User(
            name=name, groups=("system:serviceaccounts", "system:serviceaccounts:lab", "system:authenticated")
        )


async def test_no_number_of_tokens_fills_the_memory() -> None:
    ledger = Ledger({digest_of(str(each)): SOMEONE for each in range(30)})
    authenticator = Authenticator(ledger, Watch(), most=10)

    for each in range(30):
        await authenticator.user(f"Bearer {each}")

    assert len(authenticator._known) <= 10


def test_bearer_takes_any_case_of_the_scheme() -> None:
    assert [bearer(header) for header in ("Bearer a", "BEARER a", "bearer  a ")] == ["a"] * 3


LEASES = "coordination.k8s.io"
AGENTS = "agents.jobplane.dev"


@pytest.mark.parametrize(
    ("user", "action"),
    [
        pytest.param(ADMIN, Action("delete", "", "secrets", name="s", namespace="x"), id="administrators may all"),
        pytest.param(
            SOMEONE, Action("create", "authorization.k8s.io", "selfsubjectaccessreviews"), id="anyone may ask"
        ),
        pytest.param(NODE, Action("create", "", "nodes", name="n1"), id="a node may register itself"),
        pytest.param(NODE, Action("patch", "", "nodes", "status", name="n1"), id="a node may report its status"),
        pytest.param(
            NODE, Action("watch", "", "nodes", fields=parse_fields("metadata.name=n1")), id="a node may watch itself"
        ),
        pytest.param(
            NODE, Action("list", "", "pods", fields=parse_fields("spec.nodeName=n1")), id="a node may list its pods"
        ),
        pytest.param(
            NODE,
            Action("watch", "", "pods", fields=parse_fields("status.phase!=Failed,spec.nodeName==n1")),
            id="in any form",
        ),
        pytest.param(
            NODE, Action("update", LEASES, "leases", "", "kube-node-lease", "n1"), id="a node may renew its lease"
        ),
        pytest.param(NODE, Action("create", "", "events", "", "x"), id="a node may record events"),
        pytest.param(NODE, Action("create", AGENTS, "nodes", "logs", name="n1"), id="a node may use its agent's paths"),
        pytest.param(FLEET, Action("create", "", "nodes", name="sim-7"), id="a fleet may register any of its nodes"),
        pytest.param(FLEET, Action("get", "", "nodes", name="extra"), id="a fleet may read a node named in full"),
    ],
)
def test_allowed(user: User, action: Action) -> None:
    assert may(user, action)


@pytest.mark.parametrize(
    ("user", "action"),
    [
        pytest.param(SOMEONE, Action("list", "batch", "jobs", namespace="default"), id="a user without rights"),
        pytest.param(SOMEONE, Action("get", "authorization.k8s.io", "selfsubjectaccessreviews"), id="reading reviews"),
        pytest.param(
            STRANGER, Action("create", "authorization.k8s.io", "selfsubjectaccessreviews"), id="somebody unknown asking"
        ),
        pytest.param(GROUPLESS, Action("get", "", "nodes", name="n1"), id="a node's name without its group"),
        pytest.param(NODE, Action("get", "", "nodes", name="n2"), id="another node"),
        pytest.param(NODE, Action("get", "", "nodes", name="n11"), id="a node whose name begins alike"),
        pytest.param(NODE, Action("delete", "", "nodes", name="n1"), id="leaving the cluster by itself"),
        pytest.param(NODE, Action("list", "", "nodes"), id="all nodes"),
        pytest.param(NODE, Action("list", "", "pods"), id="all pods"),
        pytest.param(
            NODE, Action("list", "", "pods", fields=parse_fields("spec.nodeName=n2")), id="another node's pods"
        ),
        pytest.param(
            NODE, Action("list", "", "pods", fields=parse_fields("spec.nodeName!=n1")), id="all pods but its own"
        ),
        pytest.param(NODE, Action("list", "", "pods", fields=parse_fields("spec.nodeName=")), id="unbound pods"),
        pytest.param(
            NODE,
            Action("list", "", "pods", fields=parse_fields("metadata.name=a\\,spec.nodeName\\=n1")),
            id="a hidden term",
        ),
        pytest.param(NODE, Action("create", "", "pods", namespace="x"), id="making pods"),
        pytest.param(NODE, Action("create", "", "pods", "binding", "x", "p"), id="binding pods"),
        pytest.param(NODE, Action("get", "", "secrets", namespace="x", name="s"), id="secrets"),
        pytest.param(NODE, Action("update", LEASES, "leases", "", "default", "n1"), id="a lease elsewhere"),
        pytest.param(NODE, Action("update", LEASES, "leases", "", "kube-node-lease", "n2"), id="another's lease"),
        pytest.param(NODE, Action("get", AGENTS, "nodes", "logs", name="n2"), id="another agent's paths"),
        pytest.param(FLEET, Action("create", "", "nodes", name="sim"), id="a node outside the fleet's prefix"),
        pytest.param(FLEET, Action("create", "", "nodes", name=""), id="a node without a name"),
        pytest.param(
            NODE, Action("get", "", "pods", namespace="x", name="p"), id="a node reads pods through its watch"
        ),
        pytest.param(NODE, Action("patch", "", "pods", "status", "x", "p"), id="a node reports through its endpoint"),
        pytest.param(NODE, Action("patch", "", "events", "", "x", "e"), id="a node may not change what was said"),
    ],
)
def test_refused(user: User, action: Action) -> None:
    assert not may(user, action)


@pytest.mark.parametrize(
    ("action", "message"),
    [
        pytest.param(
            Action("list", "batch", "jobs", namespace="default"),
            'jobs.batch is forbidden: User "jane" cannot list resource "jobs" in API group "batch" '
            'in the namespace "default"',
            id="in a namespace",
        ),
        pytest.param(
            Action("get", "", "pods", "log", "x", "p"),
            'pods "p" is forbidden: User "jane" cannot get resource "pods/log" in API group "" in the namespace "x"',
            id="of a subresource",
        ),
        pytest.param(
            Action("delete", "", "nodes", name="n"),
            'nodes "n" is forbidden: User "jane" cannot delete resource "nodes" in API group "" at the cluster scope',
            id="of a cluster",
        ),
    ],
)
def test_a_refusal_reads_as_kubernetes_writes_it(action: Action, message: str) -> None:
    refused = refusal(SOMEONE, action)

    assert (refused.code, refused.message) == (403, message)
    assert refusal(SOMEONE, action, "RBAC: no role").message == f"{message}: RBAC: no role"


def test_discovery_is_for_everyone() -> None:
    everyone = (
        "/api",
        "/api/",
        "/api/v1",
        "/apis/",
        "/apis/batch",
        "/apis/batch/v1",
        "/version/",
        "/openapi/v3/api/v1",
    )
    assert all(map(is_for_everyone, everyone))
    assert not any(map(is_for_everyone, ("/", "/api/v1/pods", "/apis/batch/v1/jobs", "/versions", "/metrics")))
