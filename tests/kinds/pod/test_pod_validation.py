"""Which pods are refused, and which changes of them, in which words; and that nothing makes validation raise."""

from functools import cache

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from app.kinds.pod.container import Container
from app.kinds.pod.pod import KIND, Pod, PodSpec, PodStatus, PodTemplateSpec
from app.kinds.pod.pod_defaults import default_pod, default_pod_spec
from app.kinds.pod.pod_resources import requests
from app.kinds.pod.pod_validation import CHANGEABLE, MOST_CAUSES, validate_pod, validate_pod_update, validate_template
from app.kinds.pod.pod_warnings import warnings_of_spec
from app.kinds.pod.probe_validation import SIGNALS
from tests.build import NOW
from tests.kinds.pods import MAIN, a_pod, made, said


def with_(part, **more):
    return part | more


MOUNT = {"name": "v", "mountPath": "/v"}
EMPTY = [{"name": "v", "emptyDir": {}}]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({}, [], id="nothing wrong"),
        pytest.param({"containers": []}, ["spec.containers: Required value"], id="no container"),
        pytest.param({"main": {"name": ""}}, ["spec.containers[0].name: Required value"], id="no container name"),
        pytest.param({"main": {"image": ""}}, ["spec.containers[0].image: Required value"], id="no image"),
        pytest.param(
            {"main": {"image": " a"}},
            ['spec.containers[0].image: Invalid value: " a": must not have leading or trailing whitespace'],
            id="an image with a space",
        ),
        pytest.param(
            {"initContainers": [MAIN]},
            ['spec.initContainers[0].name: Duplicate value: "main"'],
            id="one name for two containers",
        ),
        pytest.param(
            {"restartPolicy": "Sometimes"},
            ['spec.restartPolicy: Unsupported value: "Sometimes": supported values: "Always", "OnFailure", "Never"'],
            id="a restart policy",
        ),
        pytest.param(
            {"main": {"imagePullPolicy": "Daily"}},
            [
                'spec.containers[0].imagePullPolicy: Unsupported value: "Daily": '
                'supported values: "Always", "IfNotPresent", "Never"'
            ],
            id="a pull policy",
        ),
        pytest.param(
            {"main": {"ports": [{"containerPort": 70000}]}},
            ["spec.containers[0].ports[0].containerPort: Invalid value: 70000: must be between 1 and 65535, inclusive"],
            id="a port",
        ),
        pytest.param(
            {"main": {"resources": {"limits": {"cpu": "1"}, "requests": {"cpu": "2"}}}},
            ['spec.containers[0].resources.requests: Invalid value: "2": must be less than or equal to cpu limit of 1'],
            id="more requested than allowed",
        ),
        pytest.param(
            {"main": {"resources": {"requests": {"memory": "much"}}}},
            [
                'spec.containers[0].resources.requests[memory]: Invalid value: "much": quantities must match the '
                "regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
            ],
            id="no quantity",
        ),
        pytest.param(
            {"main": {"resources": {"requests": {"cpu": "-1"}}}},
            ['spec.containers[0].resources.requests[cpu]: Invalid value: "-1": must be greater than or equal to 0'],
            id="less than nothing",
        ),
        pytest.param(
            {"main": {"resources": {"requests": {"example.com/gpu": "1"}}}},
            ["spec.containers[0].resources.limits: Required value: Limit must be set for non overcommitable resources"],
            id="a device without limit",
        ),
        pytest.param(
            {"volumes": EMPTY * 2}, ['spec.volumes[1].name: Duplicate value: "v"'], id="one name for two volumes"
        ),
        pytest.param(
            {"volumes": [{"name": "v", "emptyDir": {}, "secret": {"secretName": "s"}}]},
            ["spec.volumes[0].secret: Forbidden: may not specify more than 1 volume type"],
            id="two sources",
        ),
        pytest.param(
            {"main": {"volumeMounts": [MOUNT]}},
            ['spec.containers[0].volumeMounts[0].name: Not found: "v"'],
            id="a mount without volume",
        ),
        pytest.param(
            {"main": {"volumeMounts": [MOUNT, MOUNT]}, "volumes": EMPTY},
            ['spec.containers[0].volumeMounts[1].mountPath: Invalid value: "/v": must be unique'],
            id="two mounts in one place",
        ),
        pytest.param(
            {"main": {"volumeMounts": [with_(MOUNT, subPath="a/../../b")]}, "volumes": EMPTY},
            ["spec.containers[0].volumeMounts.subPath: Invalid value: \"a/../../b\": must not contain '..'"],
            id="a path out of the volume",
        ),
        pytest.param(
            {"main": {"env": [{"name": "A", "valueFrom": {}}]}},
            [
                'spec.containers[0].env[0].valueFrom: Invalid value: "": must specify one of: '
                "`fieldRef`, `resourceFieldRef`, `configMapKeyRef` or `secretKeyRef`"
            ],
            id="a variable from nowhere",
        ),
        pytest.param(
            {"main": {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "spec.secret"}}}]}},
            [
                'spec.containers[0].env[0].valueFrom.fieldRef.fieldPath: Invalid value: "spec.secret": '
                "error converting fieldPath: field label not supported: spec.secret"
            ],
            id="a field that cannot be read",
        ),
        pytest.param(
            {"main": {"livenessProbe": {}}},
            ["spec.containers[0].livenessProbe: Required value: must specify a handler type"],
            id="a probe that does nothing",
        ),
        pytest.param(
            {"main": {"lifecycle": {"stopSignal": "SIGNAL"}}},
            [
                'spec.containers[0].lifecycle.stopSignal: Unsupported value: "SIGNAL": '
                + "supported values: "
                + ", ".join(f'"{each}"' for each in SIGNALS)
            ],
            id="a signal that there is not",
        ),
        pytest.param(
            {"initContainers": [{"name": "i", "image": "a", "livenessProbe": {"exec": {"command": ["a"]}}}]},
            [
                "spec.initContainers[0].livenessProbe: Forbidden: "
                "may not be set for init containers without restartPolicy=Always"
            ],
            id="an init container with a probe",
        ),
        pytest.param(
            {"activeDeadlineSeconds": 0},
            ["spec.activeDeadlineSeconds: Invalid value: 0: must be between 1 and 2147483647, inclusive"],
            id="no time at all",
        ),
        pytest.param(
            {"tolerations": [{"operator": "Exists", "tolerationSeconds": 1}]},
            [
                'spec.tolerations[0].effect: Invalid value: "": '
                "effect must be 'NoExecute' when `tolerationSeconds` is set"
            ],
            id="a toleration with a time",
        ),
        pytest.param(
            {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {}}}},
            [
                "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms: "
                "Required value: must have at least one node selector term"
            ],
            id="affinity to nothing",
        ),
        pytest.param(
            {"hostname": "a.b"}, ['spec.hostname: Invalid value: "a.b": must not contain dots'], id="a host name"
        ),
        pytest.param(
            {"ephemeralContainers": [{"name": "e", "image": "a", "tty": True, "stdin": True}]}, [], id="a debugger"
        ),
    ],
)
def test_validation(parts, expected):
    assert said(validate_pod(made(**parts))) == expected


def test_a_template_may_not_hold_a_debugger_and_says_where():
    spec = default_pod_spec(a_pod(main={"image": ""}, ephemeralContainers=[{"name": "e", "image": "a"}]).spec)

    assert said(validate_template(PodTemplateSpec(spec=spec))) == [
        "spec.template.spec.containers[0].image: Required value",
        "spec.template.spec.ephemeralContainers: Forbidden: ephemeral containers not allowed in pod template",
    ]


def test_a_hostile_pod_is_answered_briefly():
    assert len(validate_pod(made(main={"ports": [{}] * 20_000}))) == MOST_CAUSES
    assert said(validate_pod(made(containers=[{}] * 20_000))) == [
        "spec.containers: Too many: 20000: must have at most 512 items"
    ]


WORDS = some.sampled_from(["", "a", "A b", "..", "/x/../y", "v", "x.io/y", "Always", "-1", "1Gi", "1e9999"])


@cache
def anything(type_):
    """Values that decode as `type_`, in wire form, mostly odd ones."""
    return _of(msgspec.inspect.type_info(type_))


def _of(info):
    match info:
        case msgspec.inspect.StructType():
            parts = {each.encode_name: some.deferred(lambda each=each: _of(each.type)) for each in info.fields}
            names = some.lists(some.sampled_from(sorted(parts)), max_size=4, unique=True)
            return names.flatmap(lambda chosen: some.fixed_dictionaries({name: parts[name] for name in chosen}))
        case msgspec.inspect.UnionType():
            return some.one_of([_of(each) for each in info.types if not isinstance(each, msgspec.inspect.NoneType)])
        case msgspec.inspect.VarTupleType():
            return some.lists(_of(info.item_type), max_size=2)
        case msgspec.inspect.DictType():
            return some.dictionaries(WORDS, some.just({}) if "Any" in repr(info) else _of(info.value_type), max_size=2)
        case msgspec.inspect.Metadata():
            return _of(info.type)
        case msgspec.inspect.IntType():
            return some.sampled_from([0, 1, -1, 80, 2**31 - 1])
        case msgspec.inspect.FloatType():
            return some.sampled_from([0.5, -1.0, 1e300])
        case msgspec.inspect.BoolType():
            return some.booleans()
        case msgspec.inspect.DateTimeType():
            return some.just("2030-01-01T00:00:00Z")
        case _:
            return WORDS


@given(spec=anything(PodSpec), container=anything(Container), status=anything(PodStatus))
def test_nothing_that_decodes_makes_it_raise(spec, container, status):
    spec = {"containers": [container]} | spec
    pod = default_pod(msgspec.convert({"spec": spec, "status": status}, Pod))

    assert default_pod(pod) is pod
    assert all(cause.message and cause.field for cause in validate_pod(pod))
    assert isinstance(validate_pod_update(pod, made()), list)
    assert isinstance(warnings_of_spec(pod.spec, "spec"), list)
    assert len(KIND.row(pod, NOW)) == len(KIND.columns)
    assert min(requests(pod).values(), default=0) is not None
    assert all(isinstance(read(pod), str) for read in KIND.fields.values())


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        pytest.param({}, {}, [], id="nothing"),
        pytest.param({}, {"main": {"image": "busybox:2", "imagePullPolicy": "Always"}}, [], id="an image"),
        pytest.param({}, {"activeDeadlineSeconds": 9}, [], id="a deadline is set"),
        pytest.param({"activeDeadlineSeconds": 9}, {"activeDeadlineSeconds": 8}, [], id="a deadline is lowered"),
        pytest.param(
            {"activeDeadlineSeconds": 8},
            {"activeDeadlineSeconds": 9},
            ["spec.activeDeadlineSeconds: Invalid value: 9: must be less than or equal to previous value"],
            id="a deadline is raised",
        ),
        pytest.param({}, {"tolerations": [{"key": "a", "operator": "Exists"}]}, [], id="a toleration is added"),
        pytest.param(
            {"tolerations": [{"key": "a", "operator": "Exists"}]},
            {},
            ["spec.tolerations: Forbidden: existing toleration can not be modified except its tolerationSeconds"],
            id="a toleration is taken away",
        ),
        pytest.param(
            {"terminationGracePeriodSeconds": -1}, {"terminationGracePeriodSeconds": 1}, [], id="grace is mended"
        ),
        pytest.param({"schedulingGates": [{"name": "g"}]}, {}, [], id="a gate is opened"),
        pytest.param(
            {},
            {"schedulingGates": [{"name": "g"}]},
            ["spec.schedulingGates[0].name: Forbidden: only deletion is allowed, but found new scheduling gate 'g'"],
            id="a gate is added",
        ),
        pytest.param({}, {"nodeName": "n"}, [f"spec: Forbidden: {CHANGEABLE}"], id="the node"),
        pytest.param(
            {},
            {"containers": [MAIN, MAIN]},
            ["spec.containers: Forbidden: pod updates may not add or remove containers"],
            id="a container is added",
        ),
    ],
)
def test_update(before, after, expected):
    assert said(validate_pod_update(made(**after), made(**before))) == expected
