"""Audit policy: which requests become events, and how much of them an event has. Pure.

A policy is a file as for kube-apiserver's --audit-policy-file, kind Policy of audit.k8s.io/v1: its first rule that matches
counts, and without one there is no event. Some requests are events whatever the policy says (`is_always_audited`), and some are
never more than metadata (`has_secrets`). Source: k8s.io/apiserver/pkg/audit/policy and pkg/apis/audit/validation.
"""

from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import Annotated, Literal, NamedTuple

import msgspec

from app.machinery.base import ObjectMeta, Struct, at
from app.machinery.decoding.decode import decode
from app.machinery.errors import ApiError, Cause, invalid, one_of, required
from app.plans.admission.rbac import Action

API_VERSION = "audit.k8s.io/v1"
Stage = Literal["RequestReceived", "ResponseStarted", "ResponseComplete"]
STAGES = ("RequestReceived", "ResponseStarted", "ResponseComplete", "Panic")


class Level(IntEnum):
    """How much of a request its event has, under Kubernetes' names (`LEVELS`)."""

    NONE = 0
    METADATA = 1
    REQUEST = 2
    REQUEST_RESPONSE = 3


LEVELS = ("None", "Metadata", "Request", "RequestResponse")


class GroupResources(Struct):
    """Resources of one API group; all of it if none is named."""

    group: Annotated[str, at(1)] = ""
    resources: Annotated[tuple[str, ...], at(2)] = ()
    resource_names: Annotated[tuple[str, ...], at(3)] = ()


class PolicyRule(Struct):
    """One rule. A list that is empty or absent matches everything."""

    level: Annotated[str, at(1)] = ""
    users: Annotated[tuple[str, ...], at(2)] = ()
    user_groups: Annotated[tuple[str, ...], at(3)] = ()
    verbs: Annotated[tuple[str, ...], at(4)] = ()
    resources: Annotated[tuple[GroupResources, ...], at(5)] = ()
    namespaces: Annotated[tuple[str, ...], at(6)] = ()
    non_resource_urls: Annotated[tuple[str, ...], at(7)] = msgspec.field(default=(), name="nonResourceURLs")
    omit_stages: Annotated[tuple[str, ...], at(8)] = ()
    omit_managed_fields: Annotated[bool | None, at(9)] = None


class Policy(Struct):
    """The whole file."""

    api_version: Annotated[str, at(0)] = ""
    kind: Annotated[str, at(0)] = ""
    metadata: Annotated[ObjectMeta, at(1)] = ObjectMeta()
    rules: Annotated[tuple[PolicyRule, ...], at(2)] = ()
    omit_stages: Annotated[tuple[str, ...], at(3)] = ()
    omit_managed_fields: Annotated[bool, at(4)] = False


DEFAULT = b"""\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
# What agents do all the time.
- level: None
  nonResourceURLs: ["/apis/agents.jobplane.dev/v1/nodes/*"]
- level: None
  userGroups: ["system:nodes"]
  verbs: [get, list, watch, update, patch]
  resources:
  - group: ""
    resources: [nodes, nodes/status]
  - group: coordination.k8s.io
- level: None
  userGroups: ["system:nodes"]
  resources:
  - group: ""
    resources: [events]
  - group: events.k8s.io
# Questions about oneself, which kubectl and the page ask.
- level: None
  resources:
  - group: authentication.k8s.io
    resources: [selfsubjectreviews]
  - group: authorization.k8s.io
    resources: [selfsubjectaccessreviews, selfsubjectrulesreviews]
# Credentials, also when they are only listed.
- level: Metadata
  resources:
  - group: agents.jobplane.dev
- level: None
  verbs: [get, list, watch, head, options]
- level: Metadata
"""
"""What holds without a policy file: metadata of writes, nothing of reads."""


class Attributes(NamedTuple):
    """What rules look at. `action` None: the request is about `path`, which is no resource. `user`: who sent it, not as whom."""

    user: str
    groups: Sequence[str]
    verb: str
    action: Action | None
    path: str


class Answer(NamedTuple):
    """What a policy says of a request."""

    level: Level
    omitted: frozenset[str]
    omits_managed_fields: bool


class _Rule(NamedTuple):
    """A rule, ready to be compared: None matches everything."""

    answer: Answer
    users: frozenset[str]
    groups: frozenset[str]
    verbs: frozenset[str]
    namespaces: frozenset[str]
    resources: tuple[GroupResources, ...]
    urls: tuple[str, ...]

    def matches(self, request: Attributes) -> bool:
        if self.verbs and request.verb not in self.verbs:
            return False
        if self.users and request.user not in self.users:
            return False
        if self.groups and self.groups.isdisjoint(request.groups):
            return False
        action = request.action
        if self.resources or self.namespaces:
            return action is not None and self._matches_resource(action)
        if self.urls:
            return action is None and any(_covers(url, request.path) for url in self.urls)
        return True

    def _matches_resource(self, action: Action) -> bool:
        if self.namespaces and action.namespace not in self.namespaces:
            return False
        return not self.resources or any(_names(each, action) for each in self.resources)


def _names(wanted: GroupResources, action: Action) -> bool:
    if wanted.group != action.group:
        return False
    if not wanted.resources:
        return True
    if wanted.resource_names and action.name not in wanted.resource_names:
        return False
    plural, part = action.resource, action.subresource
    names = ("*", f"{plural}/{part}", f"*/{part}", f"{plural}/*") if part else ("*", plural, f"{plural}/*")
    return any(each in names for each in wanted.resources)


def _covers(url: str, path: str) -> bool:
    return url in ("*", path) or (url.endswith("*") and path.startswith(url[:-1]))


_BEFORE_NAME = Action._fields.index("name")
_MOST_KNOWN = 10_000


class CompiledPolicy:
    """A policy, ready to be asked.

    has_bodies, has_answers: a rule wants bodies of requests, or of answers, too.
    omits_receipt:           no rule wants the stage RequestReceived.
    """

    def __init__(self, policy: Policy) -> None:
        self._rules = tuple(_compile(rule, policy) for rule in policy.rules)
        self._unmatched = Answer(Level.NONE, frozenset(policy.omit_stages), policy.omit_managed_fields)
        answers = [rule.answer for rule in self._rules if rule.answer.level != Level.NONE]
        self.has_bodies = any(each.level >= Level.REQUEST for each in answers)
        self.has_answers = any(each.level == Level.REQUEST_RESPONSE for each in answers)
        self.omits_receipt = all("RequestReceived" in each.omitted for each in answers)
        self._is_by_name = any(each.resource_names for rule in policy.rules for each in rule.resources)
        self._known: dict[tuple[object, ...], Answer] = {}

    def judge(self, user: str, groups: Sequence[str], verb: str, action: Action | None, path: str) -> Answer:
        """Return what the first rule that matches says; remembered for a user and what it does, as rules are compared in 5 us."""
        if action is None or self._is_by_name:
            return self._find(Attributes(user, groups, verb, action, path))
        key = (user, groups, action[:_BEFORE_NAME])
        answer = self._known.get(key)
        if answer is None:
            answer = self._find(Attributes(user, groups, verb, action, path))
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[key] = answer
        return answer

    def _find(self, request: Attributes) -> Answer:
        for rule in self._rules:
            if rule.matches(request):
                return rule.answer
        return self._unmatched


def _compile(rule: PolicyRule, policy: Policy) -> _Rule:
    omits = policy.omit_managed_fields if rule.omit_managed_fields is None else rule.omit_managed_fields
    answer = Answer(Level(LEVELS.index(rule.level)), frozenset((*policy.omit_stages, *rule.omit_stages)), omits)
    users, groups, verbs, namespaces = map(frozenset, (rule.users, rule.user_groups, rule.verbs, rule.namespaces))
    return _Rule(answer, users, groups, verbs, namespaces, rule.resources, rule.non_resource_urls)


_STREAMS = frozenset({"exec", "attach", "portforward"})


def is_always_audited(action: Action | None, code: int, *, impersonates: bool) -> bool:
    """Return whether a request is an event whatever the policy says: a denial, impersonation, exec and the like, TokenRequest, a
    read of Secrets.
    """
    if impersonates or code in (401, 403):
        return True
    if action is None or action.group:
        return False
    match action.resource:
        case "secrets":
            return action.verb in ("get", "list", "watch")
        case "pods":
            return action.subresource in _STREAMS
        case "serviceaccounts":
            return action.subresource == "token"
    return False


_TOKEN_GROUPS = frozenset({"agents.jobplane.dev", "authentication.k8s.io"})


def has_secrets(action: Action | None) -> bool:
    """Return whether a request's bodies may hold secrets, as of what is no resource, or is for a pod: its event has metadata
    only.
    """
    if action is None or action.group in _TOKEN_GROUPS:
        return True
    return not action.group and (
        action.subresource == "proxy"
        or action.resource == "secrets"
        or (action.resource == "serviceaccounts" and action.subresource == "token")
    )


def read_policy(text: bytes) -> CompiledPolicy:
    """Read a policy, YAML or JSON. ValueError with one line that says what to change."""
    try:
        policy = decode(text, Policy, api_version=API_VERSION, content_type="yaml", validation="Strict").object
    except ApiError as error:
        raise ValueError(error.message) from None
    if faults := list(_faults(policy)):
        raise ValueError("; ".join(f"{fault.field}: {fault.message}" for fault in faults))
    return CompiledPolicy(policy)


def _faults(policy: Policy) -> Iterator[Cause]:
    if not policy.rules:
        yield required(
            "rules", "a policy without rules audits nothing: to turn audit off, set JOBPLANE_AUDIT_LOG_PATH=none"
        )
    yield from _faults_in_stages(policy.omit_stages, "omitStages")
    for number, rule in enumerate(policy.rules):
        yield from _faults_in_rule(rule, f"rules[{number}]")


def _faults_in_rule(rule: PolicyRule, path: str) -> Iterator[Cause]:
    yield from one_of(f"{path}.level", rule.level, LEVELS)
    yield from _faults_in_stages(rule.omit_stages, f"{path}.omitStages")
    if rule.non_resource_urls and (rule.resources or rule.namespaces):
        why = "rules cannot apply to both regular resources and non-resource URLs"
        yield invalid(f"{path}.nonResourceURLs", rule.non_resource_urls, why)
    for url in rule.non_resource_urls:
        if url != "*" and (not url.startswith("/") or "*" in url[:-1]):
            why = "must be *, or begin with / and have a * at its end only"
            yield invalid(f"{path}.nonResourceURLs", url, why)
    for number, each in enumerate(rule.resources):
        if each.resource_names and not each.resources:
            why = "using resourceNames requires at least one resource"
            yield invalid(f"{path}.resources[{number}].resourceNames", each.resource_names, why)
        if "/" in each.group:
            why = "is a group and a version: name the group only"
            yield invalid(f"{path}.resources[{number}].group", each.group, why)


def _faults_in_stages(stages: Sequence[str], path: str) -> Iterator[Cause]:
    for stage in stages:
        yield from one_of(path, stage, STAGES)
