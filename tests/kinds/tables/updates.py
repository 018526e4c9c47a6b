"""Updates of Jobs that are refused: `before` is the Job, and a part of it its status."""

from typing import Any

from tests.kinds.tables import IMMUTABLE, INDEXED, NEGATIVE, Row, Table, invalid, row

_ON_ONE = {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [1]}}
_ON_ONE_SHOWN = '{"rules":[{"action":"FailJob","onExitCodes":{"operator":"In","values":[1]}}]}'
_PER_INDEX = {**INDEXED, "parallelism": 3, "backoffLimitPerIndex": 1}

_MUTABLE_COUNTS = (
    "parallelism",
    "backoffLimit",
    "maxFailedIndexes",
    "activeDeadlineSeconds",
    "ttlSecondsAfterFinished",
)
NODE_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
    }
}
POD_AFFINITY = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
}
MORE_CPU = {
    "containers": [
        {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}
    ],
    "initContainers": [{"name": "first", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
}
# What of a template may change while nothing runs: before, and after.
SCHEDULING: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "node affinity is added": ({}, {"affinity": NODE_AFFINITY}),
    "node affinity is removed": ({"affinity": NODE_AFFINITY}, {}),
    "node affinity joins another": ({"affinity": POD_AFFINITY}, {"affinity": {**POD_AFFINITY, **NODE_AFFINITY}}),
    "the node selector changes": ({}, {"nodeSelector": {"disk": "ssd"}}),
    "tolerations change": ({}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}),
    "scheduling gates change": ({}, {"schedulingGates": [{"name": "acme.io/wait"}]}),
    "resources change": ({"initContainers": [{"name": "first", "image": "busybox"}]}, MORE_CPU),
}

_STARTED = {"startTime": "2026-07-24T11:00:00Z"}
_SUSPENDED = {"conditions": [{"type": "Suspended", "status": "True"}]}
NEVER_STARTED: dict[str, Any] = {}
RUNNING = _STARTED | {"active": 1}
AT_REST = _STARTED | _SUSPENDED
# When a template may not change: whether the Job is suspended, and its status.
BUSY: dict[str, tuple[bool, dict[str, Any]]] = {
    "the Job runs": (False, RUNNING),
    "the Job is about to start": (False, NEVER_STARTED),
    "the Job is about to be suspended": (True, RUNNING),
    "the suspended Job still has pods": (True, AT_REST | {"active": 1}),
}


def spec(field: str, message: str, /, before: dict[str, Any], after: dict[str, Any]) -> Row:
    return row(f"spec.{field}", message, spec=after, before={"spec": before})


def _fixed(field: str, shown: str, before: dict[str, Any], after: dict[str, Any]) -> Row:
    return spec(field, invalid(shown, IMMUTABLE), before, after)


def _template(before: dict[str, Any], after: dict[str, Any], *, suspend: bool, status: dict[str, Any]) -> Row:
    """`{...}` stands for all of the template.

    Uncertain in the reference: what later versions say of it. These are the words of 1.33, under the conditions of 1.36.
    """
    old = {"spec": {"suspend": suspend}, "pod": before, "status": status}
    return row("spec.template", invalid("{...}", IMMUTABLE), spec={"suspend": suspend}, pod=after, before=old)


def _at_rest(before: dict[str, Any], after: dict[str, Any]) -> Row:
    return _template(before, after, suspend=True, status=AT_REST)


_POLICY = {"rules": [{"succeededCount": 1}]}
_BY_HAND = {"manualSelector": True, "selector": {"matchLabels": {"app": "pi"}}}
_LABELS = {"app": "pi", "tier": "batch"}

UPDATES: Table = {
    "the selector changes": row(
        "spec.selector",
        invalid('{"matchLabels":{"tier":"batch"}}', IMMUTABLE),
        spec=_BY_HAND | {"selector": {"matchLabels": {"tier": "batch"}}},
        labels=_LABELS,
        before={"spec": _BY_HAND, "labels": _LABELS},
    ),
    "the completion mode changes": _fixed(
        "completionMode", '"Indexed"', {"completions": 1}, {"completions": 1, "completionMode": "Indexed"}
    ),
    "a failure policy is added": _fixed(
        "podFailurePolicy",
        _ON_ONE_SHOWN,
        {"podReplacementPolicy": "Failed"},
        {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [_ON_ONE]}},
    ),
    "the failure policy is removed": _fixed(
        "podFailurePolicy",
        "null",
        {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [_ON_ONE]}},
        {"podReplacementPolicy": "Failed"},
    ),
    "the limit for each index changes": _fixed(
        "backoffLimitPerIndex", "2", _PER_INDEX, _PER_INDEX | {"backoffLimitPerIndex": 2}
    ),
    "the limit for each index goes away": _fixed(
        "backoffLimitPerIndex", "null", _PER_INDEX | {"backoffLimit": 6}, {**INDEXED, "parallelism": 3}
    ),
    "the manager changes, even while suspended": _fixed(
        "managedBy", '"acme.io/foo"', {"suspend": True}, {"suspend": True, "managedBy": "acme.io/foo"}
    ),
    "the success policy changes": _fixed(
        "successPolicy",
        '{"rules":[{"succeededCount":2}]}',
        INDEXED | {"successPolicy": _POLICY},
        INDEXED | {"successPolicy": {"rules": [{"succeededCount": 2}]}},
    ),
    "the success policy is removed": _fixed("successPolicy", "null", INDEXED | {"successPolicy": _POLICY}, INDEXED),
    "completions change": _fixed("completions", "2", {}, {"completions": 2}),
    "a work queue gets completions": _fixed(
        "completions", "2", {"parallelism": 2}, {"parallelism": 2, "completions": 2}
    ),
    "completions go away": _fixed("completions", "null", {"parallelism": 2, "completions": 2}, {"parallelism": 2}),
    "completions of an Indexed Job change alone": spec(
        "completions",
        invalid("4", "can only be modified in tandem with spec.parallelism"),
        {**INDEXED, "parallelism": 3},
        {**INDEXED, "parallelism": 3, "completions": 4},
    ),
    **{
        f"{field} is negative": spec(field, NEGATIVE, _PER_INDEX, _PER_INDEX | {field: -1}) for field in _MUTABLE_COUNTS
    },
    "podReplacementPolicy is unknown": spec(
        "podReplacementPolicy",
        'Unsupported value: "X": supported values: "Failed", "TerminatingOrFailed"',
        {},
        {"podReplacementPolicy": "X"},
    ),
    **{
        f"{what} while {when}": _template(before, after, suspend=suspend, status=status)
        for when, (suspend, status) in BUSY.items()
        for what, (before, after) in SCHEDULING.items()
    },
    "an image changes": _at_rest({}, {"containers": [{"name": "main", "image": "busybox:2"}]}),
    "a container joins": _at_rest(
        {}, {"containers": [{"name": "main", "image": "busybox"}, {"name": "more", "image": "busybox"}]}
    ),
    "pod affinity comes": _at_rest({}, {"affinity": POD_AFFINITY}),
    "pod affinity goes": _at_rest({"affinity": {**POD_AFFINITY, **NODE_AFFINITY}}, {}),
    "the priority changes": _at_rest({}, {"priorityClassName": "system-node-critical"}),
}
