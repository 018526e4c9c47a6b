"""Jobs that cannot be created. Of several things that are wrong only those in question are in a manifest."""

from typing import Any

from app.machinery.name_validation import dns_subdomain, label_value, qualified_name
from tests.kinds.jobs import UID
from tests.kinds.tables import BAD_INDEXES, INDEXED, NEGATIVE, Row, Table, cause, invalid, row

MANY = {"completionMode": "Indexed", "completions": 100_001, "backoffLimitPerIndex": 1, "maxFailedIndexes": 5}
NO_POLICY = {"podFailurePolicy": {"rules": []}}
MANUAL = {"manualSelector": True, "selector": {"matchLabels": {"app": "pi"}}}
APP = {"app": "pi"}

_COUNTS = (
    "parallelism completions activeDeadlineSeconds backoffLimit ttlSecondsAfterFinished backoffLimitPerIndex "
    "maxFailedIndexes"
)
_NOT_INDEXED = "requires indexed completion mode"
_WITH_MANY = (
    "must be less than or equal to 10000 when completions are above 100000 and used with backoff limit per index"
)
_RESTARTS = 'valid values: "OnFailure", "Never"'
_PATH = r"Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')"
_UNLIKE = "`selector` does not match template `labels`"
_OTHERS = "not auto-generated"
_OWN = {
    "batch.kubernetes.io/controller-uid": UID,
    "batch.kubernetes.io/job-name": "pi",
    "controller-uid": UID,
    "job-name": "pi",
}
_LONG = 64 * "n"


def spec(field: str, message: str, /, *more: tuple[str, str], **fields: Any) -> Row:
    """What a field of the spec is refused for."""
    return row(f"spec.{field}", message, *more, spec=fields)


def _negative(field: str) -> Row:
    limits = {"backoffLimitPerIndex": 1} if field == "maxFailedIndexes" else {}
    return spec(field, NEGATIVE, **(INDEXED | limits | {field: -1}))


def _restarting(message: str, policy: str, **fields: Any) -> Row:
    return row("spec.template.spec.restartPolicy", message, spec=fields, pod={"restartPolicy": policy})


def _demand(field: str, message: str, **demand: Any) -> Row:
    selector = {"matchExpressions": [{"key": "app", **demand}]}
    return row(field, message, spec={**MANUAL, "selector": selector}, labels=APP)


def _shown(labels: dict[str, str]) -> str:
    return "{" + ",".join(f'"{key}":"{value}"' for key, value in labels.items()) + "}"


def _copied(*keys: str) -> Row:
    """A template that has labels of another Job's. That its selector rejects them is told, too."""
    found = _OWN | dict.fromkeys(keys, "another")
    causes = [
        cause(f"spec.template.metadata.labels[{key}]", invalid(_shown(found), f"must be '{_OWN[key]}'")) for key in keys
    ]
    if "batch.kubernetes.io/controller-uid" in keys:
        causes.append(cause("spec.template.metadata.labels", invalid(_shown(found), _UNLIKE)))
    return Row(tuple(causes), {"labels": dict.fromkeys(keys, "another")}, {})


def _shown_selector(labels: dict[str, str]) -> str:
    return f'{{"matchLabels":{_shown(labels)}}}'


_ANOTHER = {"batch.kubernetes.io/controller-uid": "another"}

JOBS: Table = {
    **{f"{field} is negative": _negative(field) for field in _COUNTS.split()},
    "maxFailedIndexes lacks backoffLimitPerIndex": spec(
        "backoffLimitPerIndex", "Required value: when maxFailedIndexes is specified", **INDEXED, maxFailedIndexes=1
    ),
    "managedBy is empty": spec("managedBy", "Required value", managedBy=""),
    "managedBy has no domain": spec(
        "managedBy", invalid('"foo"', 'must be a domain-prefixed path (such as "acme.io/foo")'), managedBy="foo"
    ),
    "managedBy has no path": spec(
        "managedBy",
        invalid('"acme.io/"', 'must be a domain-prefixed path (such as "acme.io/foo")'),
        managedBy="acme.io/",
    ),
    "managedBy has a bad domain": spec("managedBy", invalid('"Acme"', dns_subdomain("Acme")[0]), managedBy="Acme/foo"),
    "managedBy has a bad path": spec("managedBy", invalid('"a b"', _PATH), managedBy="acme.io/a b"),
    "managedBy is too long": spec(
        "managedBy", "Too long: may not be more than 63 bytes", managedBy="acme.io/" + 56 * "a"
    ),
    "completionMode is unknown": spec(
        "completionMode",
        'Unsupported value: "X": supported values: "NonIndexed", "Indexed"',
        completionMode="X",
    ),
    "an Indexed Job has no completions": spec(
        "completions", "Required value: when completion mode is Indexed", completionMode="Indexed", parallelism=1
    ),
    "an Indexed Job has too much parallelism": spec(
        "parallelism",
        invalid("100001", "must be less than or equal to 100000 when completion mode is Indexed"),
        **INDEXED,
        parallelism=100_001,
    ),
    "more indexes may fail than there are": spec(
        "maxFailedIndexes",
        invalid("11", "must be less than or equal to completions"),
        **INDEXED,
        backoffLimitPerIndex=1,
        maxFailedIndexes=11,
    ),
    "more indexes may fail than can be tracked": spec(
        "maxFailedIndexes",
        invalid("100001", "must be less than or equal to completions"),
        ("spec.maxFailedIndexes", invalid("100001", "must be less than or equal to 100000")),
        **(INDEXED | {"completions": 100_000}),
        backoffLimitPerIndex=1,
        maxFailedIndexes=100_001,
    ),
    "very many indexes lack maxFailedIndexes": spec(
        "maxFailedIndexes",
        "Required value: must be specified when completions is above 100000",
        **(INDEXED | {"completions": 100_001}),
        backoffLimitPerIndex=1,
    ),
    "very many indexes have too much parallelism": spec(
        "parallelism", invalid("10001", _WITH_MANY), **MANY, parallelism=10_001
    ),
    "too many of very many indexes may fail": spec(
        "maxFailedIndexes", invalid("10001", _WITH_MANY), **(MANY | {"maxFailedIndexes": 10_001})
    ),
    "backoffLimitPerIndex is not for NonIndexed": spec(
        "backoffLimitPerIndex", invalid("1", _NOT_INDEXED), backoffLimitPerIndex=1
    ),
    "maxFailedIndexes is not for NonIndexed": spec(
        "backoffLimitPerIndex",
        invalid("2", _NOT_INDEXED),
        ("spec.maxFailedIndexes", invalid("1", _NOT_INDEXED)),
        backoffLimitPerIndex=2,
        maxFailedIndexes=1,
    ),
    "successPolicy is not for NonIndexed": spec(
        "successPolicy",
        invalid('{"rules":[{"succeededCount":1}]}', _NOT_INDEXED),
        successPolicy={"rules": [{"succeededCount": 1}]},
    ),
    "podReplacementPolicy is unknown": spec(
        "podReplacementPolicy",
        'Unsupported value: "X": supported values: "Failed", "TerminatingOrFailed"',
        podReplacementPolicy="X",
    ),
    "podReplacementPolicy does not go with podFailurePolicy": spec(
        "podReplacementPolicy",
        'Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
        podReplacementPolicy="TerminatingOrFailed",
        **NO_POLICY,
    ),
    "nobody chose a restartPolicy": _restarting(f"Required value: {_RESTARTS}", ""),
    "pods never end": _restarting(f"Required value: {_RESTARTS}", "Always"),
    # The pod's own validation knows the value as little, and says so first.
    "restartPolicy is unknown": row(
        "spec.template.spec.restartPolicy",
        'Unsupported value: "X": supported values: "Always", "OnFailure", "Never"',
        ("spec.template.spec.restartPolicy", 'Unsupported value: "X": supported values: "OnFailure", "Never"'),
        pod={"restartPolicy": "X"},
    ),
    "restartPolicy hides failures from podFailurePolicy": _restarting(
        invalid('"OnFailure"', 'only "Never" is supported when podFailurePolicy is specified'), "OnFailure", **NO_POLICY
    ),
    "the template has no containers": row("spec.template.spec.containers", "Required value", pod={"containers": []}),
    "the template asks for more than it may have": row(
        "spec.template.spec.containers[0].resources.requests",
        invalid('"2"', "must be less than or equal to cpu limit of 1"),
        pod={
            "containers": [
                {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}}
            ]
        },
    ),
    "an index makes the name too long": row(
        "metadata.name",
        invalid(f'"{61 * "a"}"', f"will not able to create pod with invalid DNS label: {61 * 'a'}-10"),
        spec=INDEXED | {"completions": 11},
        metadata={"name": 61 * "a"},
    ),
    "the name of an Indexed Job has a dot": row(
        "metadata.name",
        invalid('"a.b"', "will not able to create pod with invalid DNS label: a.b-0"),
        spec=INDEXED | {"completions": 1},
        metadata={"name": "a.b"},
    ),
    # Uncertain in the reference: which words. These are of the label that the name becomes; both labels say the same.
    "the name is too long for a label": row(
        "spec.template.labels",
        invalid(f'"{_LONG}"', label_value(_LONG)[0]),
        ("spec.template.labels", invalid(f'"{_LONG}"', label_value(_LONG)[0])),
        metadata={"name": _LONG},
    ),
}

SELECTORS: Table = {
    "a selector by hand is missing": row(
        "spec.selector",
        "Required value",
        ("spec.template.metadata.labels", invalid('{"app":"pi"}', _UNLIKE)),
        spec={"manualSelector": True},
        labels=APP,
    ),
    "the template has other labels": row(
        "spec.template.metadata.labels",
        invalid('{"app":"pi"}', _UNLIKE),
        spec={**MANUAL, "selector": {"matchLabels": {"app": "e"}}},
        labels=APP,
    ),
    "it excludes the template": _demand(
        "spec.template.metadata.labels", invalid('{"app":"pi"}', _UNLIKE), operator="NotIn", values=["pi"]
    ),
    "it has no values to compare with": _demand(
        "spec.selector.matchExpressions[0].values",
        "Required value: must be specified when `operator` is 'In' or 'NotIn'",
        operator="In",
    ),
    "it has values that nothing is compared with": _demand(
        "spec.selector.matchExpressions[0].values",
        "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
        operator="Exists",
        values=["x"],
    ),
    "its operator is unknown": _demand(
        "spec.selector.matchExpressions[0].operator",
        invalid('"Like"', "not a valid selector operator"),
        operator="Like",
    ),
    **{f"{key} is another Job's": _copied(key) for key in _OWN},
    "all labels are another Job's": _copied(
        "controller-uid", "job-name", "batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"
    ),
    "the selector is another Job's": row(
        "spec.selector",
        invalid(_shown_selector(_ANOTHER), f"`selector` {_OTHERS}"),
        ("spec.template.metadata.labels", invalid(_shown(_OWN), _UNLIKE)),
        spec={"selector": {"matchLabels": _ANOTHER}},
    ),
    "the selector demands more than was made": row(
        "spec.selector",
        invalid(_shown_selector({"batch.kubernetes.io/controller-uid": UID, "tier": "x"}), f"`selector` {_OTHERS}"),
        spec={"selector": {"matchLabels": {"tier": "x"}}},
        labels={"tier": "x"},
    ),
}

_CODES = {"operator": "In", "values": [1]}
_STATUSES = '"False", "True", "Unknown"'
_ACTIONS = '"Count", "FailIndex", "FailJob", "Ignore"'


def _failure(path: str, message: str, action: str = "FailJob", **demands: Any) -> Row:
    """A second rule of a podFailurePolicy."""
    first = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}
    policy = {"rules": [first, {"action": action, **demands}]}
    return row(f"spec.podFailurePolicy.rules[1]{path}", message, spec={"podFailurePolicy": policy})


def _on_codes(path: str, message: str, **codes: Any) -> Row:
    return _failure(f".onExitCodes{path}", message, onExitCodes=_CODES | codes)


def _on_condition(path: str, message: str, **condition: Any) -> Row:
    pattern = {"type": "DisruptionTarget"} | condition
    return _failure(f".onPodConditions[0]{path}", message, "Ignore", onPodConditions=[pattern])


FAILURE_POLICIES: Table = {
    "there are too many rules": spec(
        "podFailurePolicy.rules",
        "Too many: 21: must have at most 20 items",
        podFailurePolicy={"rules": 21 * [{"action": "FailJob", "onExitCodes": _CODES}]},
    ),
    "there is no action": _failure(
        ".action", f"Required value: valid values: [{_ACTIONS.replace(',', '')}]", "", onExitCodes=_CODES
    ),
    "the action is unknown": _failure(
        ".action",
        f'Unsupported value: "X": supported values: {_ACTIONS}',
        "X",
        onExitCodes=_CODES,
    ),
    "indexes have no limit": _failure(
        ".action",
        invalid('"FailIndex"', "requires the backoffLimitPerIndex to be set"),
        "FailIndex",
        onExitCodes=_CODES,
    ),
    "both are demanded": _failure(
        "",
        "Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
        onExitCodes=_CODES,
        onPodConditions=[{"type": "DisruptionTarget"}],
    ),
    "nothing is demanded": _failure("", "Invalid value: specifying one of OnExitCodes and OnPodConditions is required"),
    "the operator is missing": _on_codes(".operator", 'Required value: valid values: ["In" "NotIn"]', operator=""),
    "the operator is unknown": _on_codes(
        ".operator", 'Unsupported value: "X": supported values: "In", "NotIn"', operator="X"
    ),
    "the container does not exist": _on_codes(
        ".containerName",
        invalid('"x"', "must be one of the container or initContainer names in the pod template"),
        containerName="x",
    ),
    "no exit codes are listed": _on_codes(".values", invalid("null", "at least one value is required"), values=[]),
    "too many exit codes are listed": _on_codes(
        ".values", "Too many: 256: must have at most 255 items", values=list(range(1, 257))
    ),
    "success is taken for failure": _on_codes(
        ".values[0]", invalid("0", "must not be 0 for the In operator"), values=[0, 1]
    ),
    "an exit code is listed twice": _on_codes(".values[2]", "Duplicate value: 3", values=[1, 3, 3]),
    "exit codes do not ascend": _on_codes(".values", invalid("[3,1]", "must be ordered"), values=[3, 1]),
    "too many conditions are listed": _failure(
        ".onPodConditions",
        "Too many: 21: must have at most 20 items",
        onPodConditions=[{"type": f"C{each}"} for each in range(21)],
    ),
    "the condition has a bad name": _on_condition(".type", invalid('"a b"', qualified_name("a b")[0]), type="a b"),
    "the condition has an unknown status": _on_condition(
        ".status", f'Unsupported value: "x": supported values: {_STATUSES}', status="x"
    ),
}

_RULE = "spec.successPolicy.rules[1]"


def _succeeding(*rules: dict[str, Any]) -> dict[str, Any]:
    return {**INDEXED, "successPolicy": {"rules": list(rules)}}


def _success(path: str, message: str, **rule: Any) -> Row:
    """A second rule of a successPolicy."""
    return row(f"{_RULE}{path}", message, spec=_succeeding({"succeededCount": 1}, rule))


_TOO_LONG = ",".join(str(each) for each in range(0, 40_000, 2))

SUCCESS_POLICIES: Table = {
    "there are no rules": spec(
        "successPolicy.rules",
        "Required value: at least one rules must be specified when the successPolicy is specified",
        **_succeeding(),
    ),
    "there are too many rules": spec(
        "successPolicy.rules", "Too many: 21: must have at most 20 items", **_succeeding(*21 * [{"succeededCount": 1}])
    ),
    "nothing is demanded": _success(
        "", "Required value: at least one of succeededCount or succeededIndexes must be specified"
    ),
    "the list is too long": spec(
        "successPolicy.rules[0].succeededIndexes",
        "Too long: may not be more than 65536 bytes",
        **(_succeeding({"succeededIndexes": _TOO_LONG}) | {"completions": 40_000}),
    ),
    **{
        f"the indexes are {text}": _success(
            ".succeededIndexes", invalid(f'"{text}"', f"error parsing succeededIndexes: {why}"), succeededIndexes=text
        )
        for text, why in BAD_INDEXES.items()
    },
    "the count is negative": _success(".succeededCount", NEGATIVE, succeededCount=-1),
    "more are counted than there are": _success(
        ".succeededCount",
        invalid("11", "must be less than or equal to 10 (the number of specified completions)"),
        succeededCount=11,
    ),
    "more are counted than are listed": _success(
        ".succeededCount",
        invalid("5", "must be less than or equal to 4 (the number of indexes in the specified succeededIndexes field)"),
        succeededIndexes="0,2-4",
        succeededCount=5,
    ),
}
