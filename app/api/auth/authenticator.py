"""Authentication and authorization: `Authenticator.user` once a request, then `check` with what is to be done.

Tokens exist here only as SHA-256 digests, so that a look-up compares nothing secret byte by byte and no log or cache
can give one away. Some rights are fixed: administrators may all, nodes what concerns them, and everyone known may ask
about themselves. All others come from roles and bindings.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from hashlib import sha256
from typing import Protocol

from app.api.http.connection import Peer
from app.client.protocol import CERTIFICATE_REQUEST_PREFIX, CERTIFICATE_REQUESTS, CERTIFICATE_REQUIRED
from app.kinds.core.lease import NODE_NAMESPACE
from app.kinds.storage.persistentvolume import RECLAIM_NODE
from app.machinery.errors import ApiError, forbidden_error
from app.plans.admission import rbac
from app.plans.admission.rbac import ACCOUNT_PREFIX
from app.registry.verbs.objects import Registry

MASTERS = "system:masters"
NODES = "system:nodes"
AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
ACCOUNTS = "system:serviceaccounts"
NODE_PREFIX = "system:node:"
AUDIENCE = "https://kubernetes.default.svc.cluster.local"  # of tokens for this API
HEALTH = frozenset({"/livez", "/readyz", "/healthz"})
Action = rbac.Action


@dataclass(frozen=True, kw_only=True)
class User:
    """The user that a token stands for.

    nodes:     the nodes that it speaks for; a `*` at the end takes every suffix.
    extra:     what else is known, for whoever asks.
    audiences: whom the token is meant for; none if for this API.
    expires_at: when a credential ends that is in no database: an identity provider's token.
    """

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    nodes: tuple[str, ...] = ()
    extra: Mapping[str, tuple[str, ...]] = field(default_factory=dict, hash=False)
    audiences: tuple[str, ...] = ()
    expires_at: datetime | None = None

    def is_node(self, name: str) -> bool:
        """Return whether the user speaks for the node `name`, as an agent for its own or a simulator for its fleet."""
        if NODES not in self.groups or not name:
            return False
        own = self.nodes or ((self.name[len(NODE_PREFIX) :],) if self.name.startswith(NODE_PREFIX) else ())
        return any(name.startswith(each[:-1]) if each.endswith("*") else name == each for each in own)


class Tokens(Protocol):
    """Knows the users behind tokens."""

    async def lookup(self, digest: str) -> User | None:
        """The user whose token has this digest; None if there is none, or no longer."""
        ...


class IdentityProvider(Protocol):
    """Knows the users behind tokens that an identity provider has issued."""

    def is_issuer_of(self, token: str) -> bool:
        """Return whether a token says that it is the provider's; nothing of it is proven yet."""
        ...

    async def lookup(self, token: str) -> User | None:
        """The user of such a token, with its end; None if it is not accepted."""
        ...


def account_user(namespace: str, name: str) -> User:
    """A service account as a user."""
    groups = (ACCOUNTS, f"{ACCOUNTS}:{namespace}", AUTHENTICATED)
    return User(name=f"{ACCOUNT_PREFIX}{namespace}:{name}", groups=groups)


def account_of(name: str) -> tuple[str, str] | None:
    """Namespace and name of the service account that a user is, if it is one."""
    parts = name.removeprefix(ACCOUNT_PREFIX).split(":") if name.startswith(ACCOUNT_PREFIX) else []
    return (parts[0], parts[1]) if len(parts) == 2 and all(parts) else None


class Clock(Protocol):
    """Seconds that only rise, such as `time.monotonic`."""

    def __call__(self) -> float: ...


class Authenticator:
    """Finds the user of a request; asks `tokens` at most once in `seconds` about one: so long a revoked one lives on.

    Unknown tokens are not remembered: one that was just made must work at once, and guesses may not fill the memory.
    """

    def __init__(
        self,
        tokens: Tokens,
        clock: Clock,
        seconds: float = 1.0,
        most: int = 10_000,
        provider: IdentityProvider | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        certificate_user: "Callable[[Peer], User] | None" = None,
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._provider = provider
        self._now = now
        self._certificate_user = certificate_user
        self.requires_node_certificates = False
        self._known: dict[str, tuple[float, User]] = {}
        self._asked: dict[str, asyncio.Future[User | None]] = {}

    async def user(self, authorization: str | None) -> User:
        """The user behind an Authorization header; 401 if it has no token, or one that is unknown."""
        token = bearer(authorization)
        found = await self._lookup(token) if token else None
        if found is None or (found.audiences and AUDIENCE not in found.audiences):
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return found

    def check_node_certificate(self, user: User, peer: Peer | None, path: str) -> None:
        """Raise 403 if an agent has to show a client certificate of its node, and does not. It may ask for one without."""
        if NODES not in user.groups or MASTERS in user.groups or path.startswith(CERTIFICATE_REQUESTS):
            return
        try:
            shown = self._shown_user(peer) if peer is not None else None
        except ApiError:  # it has ended; a 401 would tell the agent that its token has
            shown = None
        name = shown.name if shown is not None and NODES in shown.groups else ""
        if not (name.startswith(NODE_PREFIX) and user.is_node(name.removeprefix(NODE_PREFIX))):
            why = (
                f'User "{user.name}" must show a client certificate: set JOBPLANE_CLIENT_CERTIFICATE=true for its agent'
            )
            raise ApiError(403, CERTIFICATE_REQUIRED, why)

    def certificate_user(self, peer: Peer) -> User:
        """The user of a connection whose client has shown a certificate; 401 if it is not accepted.

        403 for a node: its certificate counts besides its token only, which `jobplane node reset` revokes.
        """
        user = self._shown_user(peer)
        if NODES in user.groups:
            raise ApiError(403, "Forbidden", f'User "{user.name}" must send its token besides its certificate')
        return user

    def _shown_user(self, peer: Peer) -> User:
        if self._certificate_user is None:
            raise ApiError(401, "Unauthorized", "Unauthorized")
        return self._certificate_user(peer)

    async def lookup(self, token: str) -> User | None:
        """The user of a token as it is known this moment, whatever its audience; None if there is none."""
        if self._provider is not None and self._provider.is_issuer_of(token):
            return await self._provider.lookup(token)
        return await self._tokens.lookup(digest_of(token))

    async def _lookup(self, token: str) -> User | None:
        digest = digest_of(token)
        now = self._clock()
        until, user = self._known.get(digest, (0.0, None))
        if user is not None and now < until and (user.expires_at is None or self._now() < user.expires_at):
            return user
        self._known.pop(digest, None)
        asked = self._asked.get(digest)
        if asked is None:  # requests that come meanwhile share the answer
            asked = self._asked[digest] = asyncio.ensure_future(self._ask(token, digest, now))
            asked.add_done_callback(lambda done: self._answered(digest, done))
        return await asyncio.shield(asked)

    def _answered(self, digest: str, done: "asyncio.Future[User | None]") -> None:
        del self._asked[digest]
        if not done.cancelled():
            done.exception()  # marks it as seen: its waiters may have been cancelled

    async def _ask(self, token: str, digest: str, now: float) -> User | None:
        found = await self.lookup(token)
        if found is not None:
            if len(self._known) >= self._most:
                self._known.clear()
            self._known[digest] = (now + self._seconds, found)
        return found


def digest_of(token: str) -> str:
    """Return what is stored and looked up in place of a token."""
    return sha256(token.encode(errors="surrogatepass")).hexdigest()


def bearer(authorization: str | None) -> str | None:
    """The token in an Authorization header."""
    scheme, _, token = (authorization or "").partition(" ")
    return token.strip() or None if scheme.lower() == "bearer" else None


async def check(registry: Registry, user: User, action: Action) -> rbac.Grant | None:
    """Return the rule that allows it, None if fixed rights do. 403 unless the user may."""
    if may(user, action):
        return None
    rights = await registry.policy.rights.of(user.name, user.groups)
    if (grant := rights.allowing(action)) is None:
        raise refusal(user, action, rights.complaint(action.namespace))
    return grant


def may(user: User, action: Action) -> bool:
    """Whether fixed rights allow it, without roles. Callers add what the pods of an agent need (`registry.node_authorizer`)."""
    if MASTERS in user.groups:
        return True
    if AUTHENTICATED in user.groups and _for_everyone(action):
        return True
    return NODES in user.groups and _for_nodes(user, action)


async def check_path(registry: Registry, user: User, verb: str, path: str) -> rbac.Grant | None:
    """Return the rule that allows this with a path that is no resource, None if fixed rights do. 403 unless the user may."""
    if may_path(user, verb, path):
        return None
    rights = await registry.policy.rights.of(user.name, user.groups)
    if (grant := rights.allowing_path(verb, path)) is None:
        raise path_refusal(user, verb, path)
    return grant


def may_path(user: User, verb: str, path: str) -> bool:
    """Return whether fixed rights allow it for a path that is no resource."""
    if MASTERS in user.groups:
        return True
    return AUTHENTICATED in user.groups and verb in ("get", "head") and (is_for_everyone(path) or path in HEALTH)


_SELF_REVIEWS = {
    ("authentication.k8s.io", "selfsubjectreviews"),
    ("authorization.k8s.io", "selfsubjectaccessreviews"),
    ("authorization.k8s.io", "selfsubjectrulesreviews"),
}


def _for_everyone(action: Action) -> bool:
    return action.verb == "create" and (action.group, action.resource) in _SELF_REVIEWS


def _for_nodes(user: User, action: Action) -> bool:
    match action.group, action.resource:
        case "", "nodes":
            return _own_node(user, action)
        case "", "pods":
            return _own_pods(user, action)
        case "", "persistentvolumes":
            return _own_released_volumes(user, action)
        case "coordination.k8s.io", "leases":
            own = action.namespace == NODE_NAMESPACE and user.is_node(action.name)
            return own and action.verb in ("get", "create", "update", "patch")
        case "node.k8s.io", "runtimeclasses":
            return action.verb in ("get", "list", "watch")
        case (("" | "events.k8s.io"), "events"):
            return action.verb == "create"
        case "certificates.k8s.io", "certificatesigningrequests":
            return action.verb in ("create", "get") and _is_own_request(user, action.name)
        case "agents.jobplane.dev", "nodes":
            return user.is_node(action.name)
    return False


def _is_own_request(user: User, name: str) -> bool:
    """Return whether a CertificateSigningRequest is an agent's own, by its name. It has nothing secret."""
    return user.is_node(name.removeprefix(CERTIFICATE_REQUEST_PREFIX).rpartition("-")[0])


def _own_node(user: User, action: Action) -> bool:
    if action.verb in ("list", "watch"):
        return user.is_node(action.fields.requirement("metadata.name") or "")
    if not user.is_node(action.name):
        return False
    if action.subresource:
        return action.subresource == "status" and action.verb in ("get", "update", "patch")
    return action.verb in ("get", "create", "update", "patch")


def _own_pods(user: User, action: Action) -> bool:
    """An agent reads its pods here; it reports their statuses to an endpoint of its own."""
    return action.verb in ("list", "watch") and user.is_node(action.fields.requirement("spec.nodeName") or "")


def _own_released_volumes(user: User, action: Action) -> bool:
    """An agent finds the volumes whose data its node is to remove; it reports to an endpoint of its own."""
    return action.verb in ("list", "watch") and user.is_node(action.fields.requirement(RECLAIM_NODE) or "")


def refusal(user: User, action: Action, complaint: str = "") -> ApiError:
    """403, in Kubernetes' words."""
    part = f"{action.resource}/{action.subresource}" if action.subresource else action.resource
    where = f'in the namespace "{action.namespace}"' if action.namespace else "at the cluster scope"
    what = f'cannot {action.verb} resource "{part}" in API group "{action.group}" {where}'
    resource = f"{action.resource}.{action.group}" if action.group else action.resource
    why = f'User "{user.name}" {what}'
    return forbidden_error(resource, action.name, f"{why}: {complaint}" if complaint else why)


def path_refusal(user: User, verb: str, path: str) -> ApiError:
    """403 for a path that is no resource."""
    return ApiError(403, "Forbidden", f'forbidden: User "{user.name}" cannot {verb} path "{path}"')


def is_for_everyone(path: str) -> bool:
    """Return whether any known user may GET `path`: version, OpenAPI, and discovery down to one group's version."""
    parts = path.strip("/").split("/", 3)  # no more are counted
    if parts[0] in ("api", "apis"):
        return len(parts) <= (2 if parts[0] == "api" else 3)
    return _at_or_under(path, ("/version", "/openapi"))


def _at_or_under(path: str, roots: tuple[str, ...]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
