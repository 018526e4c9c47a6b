"""Disruption controller: reconciles a PodDisruptionBudget's status when it or a pod that it selects changes.

The decision is `app.plans.disruption`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import cast

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.selectors import Selector, from_label_selector
from app.plans import disruption
from app.store import Key, Mirror


class DisruptionController:
    component = "controllermanager"
    kinds = frozenset({PODS.resource, BUDGETS.resource})

    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._selectors: dict[str, dict[Key, Selector]] = {}  # by namespace and budget
        self._pods: dict[Key, dict[Key, Pod]] = {}  # by budget: the pods that it selects

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == PODS.resource:
            return self._update_pod(key, cast("Pod | None", now))
        if key.kind != BUDGETS.resource:
            return []
        old, new = cast("PodDisruptionBudget | None", before), cast("PodDisruptionBudget | None", now)
        if new is None:
            self._remove_budget(key)
        elif old is None or old.spec.selector != new.spec.selector:
            self._add_budget(key, new)
        return [key]

    def _remove_budget(self, key: Key) -> None:
        self._pods.pop(key, None)
        here = self._selectors.get(key.namespace, {})
        here.pop(key, None)
        if not here:
            self._selectors.pop(key.namespace, None)

    def _add_budget(self, key: Key, budget: PodDisruptionBudget) -> None:
        selector = from_label_selector(budget.spec.selector)
        self._selectors.setdefault(key.namespace, {})[key] = selector
        everywhere = (cast("Pod", each) for each in self._mirror.all(PODS.resource))
        here = (pod for pod in everywhere if pod.metadata.namespace == key.namespace)
        self._pods[key] = {
            Key(PODS.resource, key.namespace, pod.metadata.name): pod
            for pod in here
            if selector.matches(pod.metadata.labels)
        }

    def _update_pod(self, key: Key, pod: Pod | None) -> Iterable[Key]:
        """The budgets that select the pod, or did."""
        touched = []
        for budget, selector in self._selectors.get(key.namespace, {}).items():
            was_in = self._pods[budget].pop(key, None) is not None
            if pod is not None and selector.matches(pod.metadata.labels):
                self._pods[budget][key] = pod
                touched.append(budget)
            elif was_in:
                touched.append(budget)
        return touched

    def on_dormancy(self, key: Key, _: Object, is_dormant: bool) -> None:
        """Pods that have ended, and whose Job has, count no more."""
        if is_dormant and key.kind == PODS.resource:
            for pods in self._pods.values():
                pods.pop(key, None)

    def enqueue_all(self) -> Iterable[Key]:
        return [
            Key(BUDGETS.resource, each.metadata.namespace, each.metadata.name)
            for each in self._mirror.all(BUDGETS.resource)
        ]

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        budget = cast("PodDisruptionBudget | None", self._mirror.get(key))
        if budget is None:
            return []
        pods = list(self._pods.get(key, {}).values())
        return [PlannedWrite(disruption.plan(budget, pods, now, self._find), [budget])]

    def _find(self, resource: str, namespace: str, name: str) -> Object | None:
        return self._mirror.get(Key(resource, namespace, name))
