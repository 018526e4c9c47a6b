"""Jobs to live through: each shape is a family of specs that `draw` picks one of."""

from collections.abc import Callable
from datetime import datetime
from random import Random
from typing import Any

from app.kinds.batch.job import (
    Job,
    JobStatus,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
)
from tests.build import a_job, a_template

MAX_INT32 = 2**31 - 1
EXIT_CODES = (1, 1, 7, 13, 42, 137)

Spec = dict[str, Any]


def draw(shape: str, rng: Random, now: datetime) -> Job:
    spec = _anything(rng) | SHAPES[shape](rng)
    if spec.get("completion_mode") != "Indexed" or "pod_failure_policy" in spec:
        spec.pop("success_policy", None)
    return a_job(JobStatus(), {"creation_timestamp": now, "generation": 1}, **spec)


def _anything(rng: Random) -> Spec:
    """What any Job may have, whatever its shape."""
    spec: Spec = {
        "parallelism": rng.choice((1, 1, 2, 2, 3, 4)),
        "completions": rng.choice((0, 1, 2, 3, 4, 6)),
        "backoff_limit": rng.choice((0, 1, 2, 3, 6, 40)),
        "pod_replacement_policy": rng.choice(("Failed", "TerminatingOrFailed")),
        "suspend": rng.random() < 0.1,
    }
    if rng.random() < 0.1:
        spec["active_deadline_seconds"] = rng.choice((0, 5, 60, 400))
    if rng.random() < 0.2:
        spec["ttl_seconds_after_finished"] = rng.choice((0, 30))
    return spec


def _queue(_: Random) -> Spec:
    return {"completions": None}


def _indexed(rng: Random) -> Spec:
    return {"completion_mode": "Indexed", "completions": rng.randint(0, 5)}


def _elastic(rng: Random) -> Spec:
    size = rng.randint(0, 4)
    return {"completion_mode": "Indexed", "completions": size, "parallelism": size}


def _per_index(rng: Random) -> Spec:
    return {
        "completion_mode": "Indexed",
        "completions": rng.randint(1, 5),
        "backoff_limit": rng.choice((3, MAX_INT32, MAX_INT32)),
        "backoff_limit_per_index": rng.choice((0, 1, 1, 2, 9)),
        "max_failed_indexes": rng.choice((None, 0, 1, 2)),
    }


def _failure_policy(rng: Random) -> Spec:
    rules = tuple(_rule(rng, rng.choice(("FailJob", "Ignore", "Ignore", "Count"))) for _ in range(rng.randint(1, 3)))
    return {"pod_failure_policy": PodFailurePolicy(rules=rules), "pod_replacement_policy": "Failed"}


def _index_policy(rng: Random) -> Spec:
    actions = ("FailJob", "Ignore", "FailIndex", "FailIndex", "Count")
    rules = tuple(_rule(rng, rng.choice(actions)) for _ in range(rng.randint(1, 3)))
    policy = {"pod_failure_policy": PodFailurePolicy(rules=rules), "pod_replacement_policy": "Failed"}
    return _per_index(rng) | policy


def _rule(rng: Random, action: str) -> PodFailurePolicyRule:
    if rng.random() < 0.4:
        pattern = PodFailurePolicyOnPodConditionsPattern(type="DisruptionTarget", status="True")
        return PodFailurePolicyRule(action=action, on_pod_conditions=(pattern,))
    demand = PodFailurePolicyOnExitCodesRequirement(
        container_name=rng.choice(("", "main", "other")),
        operator=rng.choice(("In", "NotIn")),
        values=tuple(sorted(rng.sample((1, 7, 13, 42, 137), rng.randint(1, 3)))),
    )
    return PodFailurePolicyRule(action=action, on_exit_codes=demand)


def _success_policy(rng: Random) -> Spec:
    rules = tuple(
        rng.choice(
            (
                SuccessPolicyRule(succeeded_indexes="0,2"),
                SuccessPolicyRule(succeeded_indexes="1-3", succeeded_count=2),
                SuccessPolicyRule(succeeded_count=rng.randint(0, 3)),
                SuccessPolicyRule(succeeded_indexes="1"),
            )
        )
        for _ in range(rng.randint(1, 2))
    )
    limits = _per_index(rng) if rng.random() < 0.5 else _indexed(rng)
    return limits | {"completions": rng.randint(1, 5), "success_policy": SuccessPolicy(rules=rules)}


def _restarts(rng: Random) -> Spec:
    spec = {"template": a_template(restart_policy="OnFailure"), "backoff_limit": rng.choice((0, 1, 2, 4, 40, 40))}
    return (
        spec
        | {"parallelism": rng.randint(1, 4), "completions": rng.randint(1, 8)}
        | (_indexed(rng) if rng.random() < 0.3 else {})
    )


def _hurried(rng: Random) -> Spec:
    return {
        "active_deadline_seconds": rng.choice((0, 1, 15, 60, 400)),
        "ttl_seconds_after_finished": rng.choice((0, 10, 1000)),
    } | (_indexed(rng) if rng.random() < 0.3 else {})


SHAPES: dict[str, Callable[[Random], Spec]] = {
    "plain": lambda _: {},
    "queue": _queue,
    "indexed": _indexed,
    "elastic": _elastic,
    "per_index": _per_index,
    "failure_policy": _failure_policy,
    "index_policy": _index_policy,
    "success_policy": _success_policy,
    "restarts": _restarts,
    "hurried": _hurried,
}
