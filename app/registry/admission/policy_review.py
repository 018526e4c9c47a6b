"""Policy review: what the admission policies in force say of a write, before it is stored.

The registry asks for what clients write, the Job and CronJob controllers for what they create. Without a policy that is about
the resource, nothing here runs. Objects that differ only in what no policy looks at are evaluated once.
"""

from collections.abc import Mapping, Sequence
from uuid import uuid4

import msgspec

from app.kinds.admission.policy_schema import ParamRef
from app.kinds.core.configmap import KIND as CONFIG_MAPS
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.plans.admission.policies.evaluation import Findings
from app.plans.admission.policies.matching import Bound, could_match, matching
from app.plans.admission.policies.outcome import Said, conclude
from app.plans.admission.review import NOTHING, Review
from app.registry.admission.attributes import Attributes, namespace_of, target_of
from app.registry.admission.policy_evaluator import PolicyEvaluator
from app.registry.admission.policy_process import Ask
from app.registry.admission.requester import Requester, user_info
from app.registry.codec import body_of, key_of
from app.store import Mirror, Store


class PolicyReviewer:
    """Reviews writes by policies that its callers hand in."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.evaluator = PolicyEvaluator()

    async def review(
        self, bound: Sequence[Bound], mirror: Mirror, write: Attributes, requester: Requester | None
    ) -> Review:
        """Return what the policies say of a write. Raises their refusal."""
        if not could_match(bound, write.kind, write.operation, write.subresource):
            return NOTHING
        around = namespace_of(write, mirror)
        target = target_of(write, around)
        applying = matching(bound, target)
        if not applying:
            return NOTHING
        documents = _documents(write, around, requester)
        return conclude(target, await self._evaluate(applying, write, documents))

    async def _evaluate(
        self, applying: Sequence[Bound], write: Attributes, documents: Mapping[str, object]
    ) -> list[Said]:
        asks: list[Ask] = []
        said: list[Said] = []
        asked: list[Bound] = []
        for bound in applying:
            ref = bound.binding.spec.param_ref if bound.policy.spec.param_kind else None
            params = await self._params(ref, write.namespace) if ref else None
            if ref and params is None:
                said += _without_params(bound, ref)
                continue
            asks.append(Ask(bound.key, 0, params))
            asked.append(bound)
        specs = {bound.key: bound.policy.spec for bound in asked}
        found = await self.evaluator.evaluate(specs, [documents], asks) if asks else []
        answered = [Said(bound, each) for bound, each in zip(asked, found, strict=True)]
        order = {id(bound): place for place, bound in enumerate(applying)}
        return sorted((*said, *answered), key=lambda each: order[id(each.bound)])

    async def _params(self, ref: ParamRef, namespace: str) -> msgspec.Raw | None:
        head = await self._store.get(key_of(CONFIG_MAPS, ref.namespace or namespace, ref.name))
        return msgspec.Raw(head.wire) if head else None


def _without_params(bound: Bound, ref: ParamRef) -> list[Said]:
    """A policy whose parameters are absent says nothing if that is allowed, and cannot be evaluated otherwise."""
    if ref.parameter_not_found_action == "Allow":
        return []
    why = "failed to configure binding: no params found for policy binding with `Deny` parameterNotFoundAction"
    return [Said(bound, Findings(error=why))]


def _documents(write: Attributes, around: Namespace | None, requester: Requester | None) -> dict[str, object]:
    kind = write.kind
    request: dict[str, object] = {
        "uid": str(uuid4()),
        "kind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "resource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "requestKind": {"group": kind.group, "version": kind.version, "kind": kind.name},
        "requestResource": {"group": kind.group, "version": kind.version, "resource": kind.plural},
        "name": write.name,
        "operation": write.operation,
        "userInfo": user_info(requester),
        "dryRun": write.dry_run,
    }
    request |= {"namespace": write.namespace} if kind.namespaced else {}
    request |= {"subResource": write.subresource} if write.subresource else {}
    return {
        "object": msgspec.Raw(body_of(kind, write.new)) if write.new is not None else None,
        "oldObject": msgspec.Raw(body_of(kind, write.old)) if write.old is not None else None,
        "request": request,
        "namespaceObject": msgspec.Raw(body_of(NAMESPACES, around)) if around is not None else None,
    }
