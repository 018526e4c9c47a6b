"""RBAC authorizer: the rules that a user has, whether they allow an action, and escalation checks. Pure.

`app.registry.authorization.rbac_cache` caches the access of each user until the policy changes; `app.api.auth.authenticator`
authorizes requests by it, and `app.api.auth.rbac_escalation` checks that no user grants more than they have. Rules only add
rights; none takes a right away.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, product
from math import prod
from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.auth.cluster_role import ClusterRole
from app.kinds.auth.rbac import ALL, GROUP, SERVICE_ACCOUNT, USER, USER_GROUP, Binding, PolicyRule, RoleRef, Subject
from app.kinds.auth.role import Role
from app.machinery.errors import format_value
from app.machinery.selectors import EVERY_FIELD, FieldSelector, from_label_selector

ACCOUNT_PREFIX = "system:serviceaccount:"
EVERYTHING = (
    PolicyRule(verbs=(ALL,), api_groups=(ALL,), resources=(ALL,)),
    PolicyRule(verbs=(ALL,), non_resource_urls=(ALL,)),
)


class Action(NamedTuple):
    """What a request is about to do. For a create of nodes and leases, `name` is the name in the body.

    `fields` is the very selector by which a list or watch will be executed.
    """

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    fields: FieldSelector = EVERY_FIELD


_BEFORE_NAME = Action._fields.index("name")
_MOST_KNOWN = 1_000  # actions remembered of a user


class Grant(NamedTuple):
    """A rule that a user has, and the binding that it comes from."""

    rule: PolicyRule
    through: str


@dataclass(frozen=True)
class Access:
    """All that one user may do. `within` and `dangling` are by namespace; `dangling`: bindings to roles that do not exist."""

    everywhere: Sequence[Grant] = ()
    within: Mapping[str, Sequence[Grant]] = field(default_factory=dict)
    dangling: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # A request does what one has done before: to go through all rules is a tenth of what a GET costs.
    _known: dict[tuple[object, ...], tuple[Grant, ...]] = field(default_factory=dict, compare=False, repr=False)

    def grants(self, namespace: str) -> Iterator[Grant]:
        return chain(self.everywhere, self.within.get(namespace, ()) if namespace else ())

    def rules(self, namespace: str) -> list[PolicyRule]:
        return [grant.rule for grant in self.grants(namespace)]

    def allowing(self, action: Action) -> Grant | None:
        """The first grant that allows the action."""
        for grant in self._allowing_some_name(action):
            if not grant.rule.resource_names or action.name in grant.rule.resource_names:
                return grant
        return None

    def _allowing_some_name(self, action: Action) -> tuple[Grant, ...]:
        """The grants that allow the action on an object, whatever its name may have to be."""
        key = action[:_BEFORE_NAME]
        found = self._known.get(key)
        if found is None:
            found = tuple(grant for grant in self.grants(action.namespace) if _allows_some_name(grant.rule, action))
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = found
        return found

    def allowing_path(self, verb: str, path: str) -> Grant | None:
        """The first grant that allows `verb` on a non-resource URL."""
        return next((grant for grant in self.everywhere if allows_path(grant.rule, verb, path)), None)

    def complaint(self, namespace: str) -> str:
        """Return what a refusal adds if bindings of the user name roles that do not exist."""
        missing = [*self.dangling.get("", ()), *(self.dangling.get(namespace, ()) if namespace else ())]
        if not missing:
            return ""
        return f"RBAC: {missing[0] if len(missing) == 1 else '[' + ', '.join(missing) + ']'}"


def allows(rule: PolicyRule, action: Action) -> bool:
    return _allows_some_name(rule, action) and (not rule.resource_names or action.name in rule.resource_names)


def _allows_some_name(rule: PolicyRule, action: Action) -> bool:
    if not (action.verb in rule.verbs or ALL in rule.verbs):
        return False
    if not (action.group in rule.api_groups or ALL in rule.api_groups):
        return False
    part = action.subresource
    whole = f"{action.resource}/{part}" if part else action.resource
    return any(each in (ALL, whole) or bool(part and each == f"*/{part}") for each in rule.resources)


def allows_path(rule: PolicyRule, verb: str, path: str) -> bool:
    if not (verb in rule.verbs or ALL in rule.verbs):
        return False
    return any(_url_covers(url, path) for url in rule.non_resource_urls)


def _url_covers(url: str, path: str) -> bool:
    return url == path or (url.endswith(ALL) and path.startswith(url.rstrip(ALL)))


# --- rules of a user


class Policies:
    """The RBAC objects of a cluster at one moment, indexed by subject."""

    def __init__(
        self, roles: Iterable[Role], cluster_roles: Iterable[ClusterRole], bindings: Iterable[Binding]
    ) -> None:
        self._roles = {(role.metadata.namespace, role.metadata.name): role for role in roles}
        self.cluster_roles = {role.metadata.name: role for role in cluster_roles}
        self._bindings: dict[tuple[bool, str], list[tuple[Binding, Subject]]] = {}
        for binding in sorted(bindings, key=lambda each: (each.metadata.namespace, each.metadata.name)):
            for subject in binding.subjects:
                self._index(binding, subject)

    def _index(self, binding: Binding, subject: Subject) -> None:
        name = subject.name
        if subject.kind == SERVICE_ACCOUNT:
            namespace = subject.namespace or binding.metadata.namespace
            name = f"{ACCOUNT_PREFIX}{namespace}:{name}"
        elif subject.kind not in (USER, USER_GROUP):
            return
        self._bindings.setdefault((subject.kind == USER_GROUP, name), []).append((binding, subject))

    def access(self, user: str, groups: Iterable[str]) -> Access:
        """All that the user may do, by name and by groups."""
        everywhere: list[Grant] = []
        within: dict[str, list[Grant]] = {}
        dangling: dict[str, list[str]] = {}
        for binding, subject in self._of(user, groups):
            namespace = binding.metadata.namespace
            rules = self.rules(binding.role_ref, namespace)
            if rules is None:
                dangling.setdefault(namespace, []).append(_describe_missing_role(binding.role_ref))
                continue
            through = _describe_binding(binding, subject)
            grants = within.setdefault(namespace, []) if namespace else everywhere
            grants += [Grant(rule, through) for rule in rules]
        return Access(everywhere, within, dangling)

    def _of(self, user: str, groups: Iterable[str]) -> Iterator[tuple[Binding, Subject]]:
        """Each binding once, however many of its subjects are the user."""
        seen = set()
        for key in ((False, user), *((True, group) for group in groups)):
            for binding, subject in self._bindings.get(key, ()):
                identity = (binding.metadata.namespace, binding.metadata.name)
                if identity not in seen:
                    seen.add(identity)
                    yield binding, subject

    def rules(self, role_ref: RoleRef, namespace: str) -> Sequence[PolicyRule] | None:
        """The rules of the role of a binding in `namespace`; None if it does not exist."""
        if role_ref.kind == "Role":
            role = self._roles.get((namespace, role_ref.name))
            return None if role is None else role.rules
        cluster_role = self.cluster_roles.get(role_ref.name)
        return None if cluster_role is None else rules_of(cluster_role, self.cluster_roles)


def rules_of(role: ClusterRole, cluster_roles: Mapping[str, ClusterRole]) -> tuple[PolicyRule, ...]:
    """A cluster role's own rules, or those of all roles that it aggregates, directly or through others."""
    if role.aggregation_rule is None:
        return role.rules
    found: dict[PolicyRule, None] = {}
    waiting, seen = [role], {role.metadata.name}
    while waiting:
        collected = waiting.pop()
        if collected.aggregation_rule is None:
            found.update(dict.fromkeys(collected.rules))
            continue
        selectors = [from_label_selector(each) for each in collected.aggregation_rule.cluster_role_selectors]
        for name, other in sorted(cluster_roles.items(), reverse=True):
            if name not in seen and any(each.matches(other.metadata.labels) for each in selectors):
                seen.add(name)
                waiting.append(other)
    return tuple(found)


def _describe_missing_role(role_ref: RoleRef) -> str:
    return f"{role_ref.kind.lower()}.{GROUP} {format_value(role_ref.name)} not found"


def _describe_binding(binding: Binding, subject: Subject) -> str:
    meta, role_ref = binding.metadata, binding.role_ref
    kind, name = (
        ("RoleBinding", f"{meta.name}/{meta.namespace}") if meta.namespace else ("ClusterRoleBinding", meta.name)
    )
    name_of_subject = subject.name
    if subject.kind == SERVICE_ACCOUNT:
        name_of_subject = f"{subject.name}/{subject.namespace or meta.namespace}"
    return f'{kind} "{name}" of {role_ref.kind} "{role_ref.name}" to {subject.kind} "{name_of_subject}"'


# --- escalation


def cost(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> int:
    """About how many steps `find_uncovered` takes: the pieces of `wanted`, each compared with all rules in `held`."""
    pieces = sum(prod(max(len(each), 1) for each in _lists(rule)) for rule in wanted)
    return pieces * (_STEPS + sum(len(each) for rule in held for each in _lists(rule)))


_STEPS = 100  # to make a piece, in steps of comparing it with one word


def _lists(rule: PolicyRule) -> tuple[Sequence[str], ...]:
    return rule.verbs, rule.api_groups, rule.resources, rule.resource_names, rule.non_resource_urls


def find_uncovered(held: Sequence[PolicyRule], wanted: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Return what of `wanted` is not covered by what is held, in pieces of one group and resource each."""
    pieces = (piece for rule in wanted for piece in _split_rule(rule))
    return _merge_verbs(piece for piece in pieces if not any(_covers(rule, piece) for rule in held))


def _split_rule(rule: PolicyRule) -> Iterator[PolicyRule]:
    """A rule in its smallest parts: any rule covers such a part whole or not at all."""
    names: list[tuple[str, ...]] = [(name,) for name in rule.resource_names] or [()]
    for group, resource, verb, name in product(rule.api_groups, rule.resources, rule.verbs, names):
        yield PolicyRule(verbs=(verb,), api_groups=(group,), resources=(resource,), resource_names=name)
    for url, verb in product(rule.non_resource_urls, rule.verbs):
        yield PolicyRule(verbs=(verb,), non_resource_urls=(url,))


def _covers(rule: PolicyRule, piece: PolicyRule) -> bool:
    if not _covers_all(piece.verbs, rule.verbs):
        return False
    if piece.non_resource_urls:
        return any(_url_covers(url, piece.non_resource_urls[0]) for url in rule.non_resource_urls)
    if not (_covers_all(piece.api_groups, rule.api_groups) and _covers_resource(rule, piece.resources[0])):
        return False
    return not rule.resource_names or (
        bool(piece.resource_names) and set(piece.resource_names) <= set(rule.resource_names)
    )


def _covers_all(wanted: Sequence[str], held: Sequence[str]) -> bool:
    return ALL in held or set(wanted) <= set(held)


def _covers_resource(rule: PolicyRule, resource: str) -> bool:
    _, slash, part = resource.partition("/")
    return any(each in (ALL, resource) or bool(slash and each == f"*/{part}") for each in rule.resources)


def _merge_verbs(pieces: Iterable[PolicyRule]) -> list[PolicyRule]:
    """Pieces that differ only in their verb, as one."""
    verbs: dict[PolicyRule, dict[str, None]] = {}
    for piece in pieces:
        verbs.setdefault(replace(piece, verbs=()), {}).update(dict.fromkeys(piece.verbs))
    return [replace(rule, verbs=tuple(each)) for rule, each in verbs.items()]


def describe_escalation(user: str, groups: Sequence[str], missing: Sequence[PolicyRule]) -> str:
    """Return why a grant of what the grantor does not have is refused."""
    listed = "\n".join(sorted({_text(rule) for rule in missing}))
    who = f"user {format_value(user)} (groups={quote(groups)})"
    return f"{who} is attempting to grant RBAC permissions not currently held:\n{listed}"


def _text(rule: PolicyRule) -> str:
    parts = {
        "APIGroups": rule.api_groups,
        "Resources": rule.resources,
        "NonResourceURLs": rule.non_resource_urls,
        "ResourceNames": rule.resource_names,
        "Verbs": rule.verbs,
    }
    return "{" + ", ".join(f"{name}:{quote(values)}" for name, values in parts.items() if values) + "}"


def quote(values: Iterable[str]) -> str:
    """A list as Go prints one of quoted strings."""
    return f"[{' '.join(map(format_value, values))}]"
