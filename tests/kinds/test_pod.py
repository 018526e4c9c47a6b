"""The Pod kind: defaults, validation, updates, warnings, the table row, resources."""

from datetime import timedelta
from functools import cache

import msgspec
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as some
from msgspec.structs import fields, replace

from app.kinds.base import Condition
from app.kinds.container import Container, ContainerState, ContainerStatus
from app.kinds.durations import age, duration_text
from app.kinds.pod import KIND, Pod, PodSpec, PodStatus, PodTemplateSpec, condition, is_active, is_ready, is_terminal
from app.kinds.pod_defaults import default_pod, default_pod_spec
from app.kinds.pod_resources import qos_class, requests
from app.kinds.pod_validation import CHANGEABLE, MOST_CAUSES, validate_pod, validate_pod_update, validate_template
from app.kinds.pod_warnings import TEXT, warnings_of_spec
from tests.build import NOW

MAIN = {"name": "main", "image": "busybox"}


def a_pod(main=None, status=None, metadata=None, **spec):
    """In wire form: `main` adds to the one container, the rest to the spec."""
    body = {"restartPolicy": "Never", "containers": [MAIN | (main or {})]} | spec
    meta = {"name": "p", "namespace": "default"} | (metadata or {})
    return msgspec.convert({"metadata": meta, "spec": body, "status": status or {}}, Pod)


def made(**parts):
    return default_pod(a_pod(**parts))


def said(causes):
    return [f"{cause.field}: {cause.message}" for cause in causes]


def wire(part):
    return msgspec.json.decode(msgspec.json.encode(part))


def test_defaults_of_a_template():
    spec = default_pod_spec(a_pod(main={"resources": {"limits": {"cpu": "0.5"}}}, restartPolicy="").spec)

    assert wire(spec) == {
        "restartPolicy": "Always",
        "dnsPolicy": "ClusterFirst",
        "schedulerName": "default-scheduler",
        "terminationGracePeriodSeconds": 30,
        "securityContext": {},
        "containers": [
            {
                "name": "main",
                "image": "busybox",
                "imagePullPolicy": "Always",
                "terminationMessagePath": "/dev/termination-log",
                "terminationMessagePolicy": "File",
                "resources": {"limits": {"cpu": "500m"}},
            }
        ],
    }


def test_defaults_of_a_pod():
    pod = wire(made(main={"resources": {"limits": {"cpu": 1, "memory": "1Gi"}, "requests": {"cpu": "0.5"}}}))

    assert pod["status"] == {"phase": "Pending", "qosClass": "Burstable"}
    assert pod["spec"]["containers"][0]["resources"] == {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m", "memory": "1Gi"},
    }
    assert [each["key"] for each in pod["spec"]["tolerations"]] == [
        "node.kubernetes.io/not-ready",
        "node.kubernetes.io/unreachable",
    ]
    expected = {"priority": 0, "enableServiceLinks": True, "serviceAccountName": "default", "serviceAccount": "default"}
    assert pod["spec"].items() >= expected.items()


@pytest.mark.parametrize(
    ("main", "expected"),
    [
        pytest.param({"image": "a"}, {"imagePullPolicy": "Always"}, id="no tag is pulled always"),
        pytest.param({"image": "h:5000/a"}, {"imagePullPolicy": "Always"}, id="a registry's port is no tag"),
        pytest.param({"image": "a:latest"}, {"imagePullPolicy": "Always"}, id="latest is pulled always"),
        pytest.param({"image": "a:1"}, {"imagePullPolicy": "IfNotPresent"}, id="a tag is pulled once"),
        pytest.param({"image": "a@sha256:0"}, {"imagePullPolicy": "IfNotPresent"}, id="a digest is pulled once"),
        pytest.param(
            {"ports": [{"containerPort": 80}]},
            {"ports": [{"containerPort": 80, "protocol": "TCP"}]},
            id="ports speak TCP",
        ),
        pytest.param(
            {"livenessProbe": {"httpGet": {"port": 80}}},
            {
                "livenessProbe": {
                    "httpGet": {"port": 80, "path": "/", "scheme": "HTTP"},
                    "timeoutSeconds": 1,
                    "periodSeconds": 10,
                    "successThreshold": 1,
                    "failureThreshold": 3,
                }
            },
            id="probes",
        ),
        pytest.param(
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]},
            {"env": [{"name": "A", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}}]},
            id="fields are of v1",
        ),
    ],
)
def test_defaults_of_a_container(main, expected):
    container = wire(default_pod_spec(a_pod(main=main).spec))["containers"][0]

    assert container.items() >= expected.items()


def test_defaults_of_volumes():
    volumes = [{"name": "a"}, {"name": "b", "secret": {"secretName": "s"}}, {"name": "c", "configMap": {"name": "m"}}]

    assert wire(default_pod_spec(a_pod(volumes=volumes).spec))["volumes"] == [
        {"name": "a", "emptyDir": {}},
        {"name": "b", "secret": {"secretName": "s", "defaultMode": 420}},
        {"name": "c", "configMap": {"name": "m", "defaultMode": 420}},
    ]


def test_a_pod_that_tolerates_everything_gets_no_tolerations():
    assert len(made(tolerations=[{"operator": "Exists"}]).spec.tolerations) == 1


def test_what_needs_no_defaults_is_the_same_object():
    pod = made(main={"resources": {"limits": {"cpu": "1"}}, "env": [{"name": "A", "value": "b"}]}, volumes=[{"name": "v"}])
    template = default_pod_spec(a_pod(volumes=[{"name": "v"}]).spec)

    assert default_pod(pod) is pod
    assert default_pod_spec(template) is template
    assert default_pod(Pod(spec=template)).spec.volumes is template.volumes


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
            [
                'spec.containers[0].resources.requests: Invalid value: "2": '
                "must be less than or equal to cpu limit of 1"
            ],
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
            [
                'spec.containers[0].resources.requests[cpu]: Invalid value: "-1": '
                "must be greater than or equal to 0"
            ],
            id="less than nothing",
        ),
        pytest.param(
            {"main": {"resources": {"requests": {"example.com/gpu": "1"}}}},
            [
                "spec.containers[0].resources.limits: Required value: "
                "Limit must be set for non overcommitable resources"
            ],
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


@settings(max_examples=150, deadline=None)
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


def test_a_client_neither_sets_nor_changes_the_status():
    claimed = made(status={"phase": "Succeeded", "qosClass": "Guaranteed", "podIP": "1.2.3.4"})
    created = KIND.on_create(claimed, NOW)
    updated = KIND.on_update(claimed, created)

    assert wire(created.status) == {"phase": "Pending", "qosClass": "BestEffort"}
    assert created.metadata.generation == 1
    assert updated.status == created.status
    assert updated.metadata.generation == 1
    assert KIND.on_update(made(activeDeadlineSeconds=1), created).metadata.generation == 2


def test_a_gated_pod_is_born_with_a_condition():
    pod = KIND.on_create(made(schedulingGates=[{"name": "g"}]), NOW)

    assert condition(pod.status.conditions, "PodScheduled").reason == "SchedulingGated"


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"nodeName": "n"}, 30, id="thirty seconds"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": 5}, 5, id="as the spec says"),
        pytest.param({"nodeName": "n", "terminationGracePeriodSeconds": -5}, 1, id="never less than none"),
        pytest.param({}, 0, id="none without a node"),
        pytest.param({"nodeName": "n", "status": {"phase": "Failed"}}, 0, id="none after the end"),
    ],
)
def test_grace(parts, expected):
    assert KIND.grace(made(**parts)) == expected


def test_warns_of_what_has_no_effect_and_only_once():
    pod = made(
        main={"livenessProbe": {"exec": {"command": ["a"]}}, "env": [{"name": "A", "valueFrom": {"secretKeyRef": {}}}]},
        volumes=[{"name": "v", "emptyDir": {}}, {"name": "w", "hostPath": {"path": "/"}}],
        hostUsers=False,
        hostNetwork=True,
    )

    assert warnings_of_spec(pod.spec, "spec.template.spec") == [
        f"spec.template.spec.{path}: {TEXT}"
        for path in (
            "volumes[1].hostPath",
            "containers[0].env[0].valueFrom.secretKeyRef",
            "containers[0].livenessProbe",
            "hostNetwork",
            "hostUsers",
        )
    ]
    assert KIND.warnings(pod, None)
    assert KIND.warnings(pod, pod) == []


def test_the_example_is_valid_and_without_warnings():
    pod = default_pod(msgspec.convert(yaml.safe_load(KIND.example), Pod))

    assert said(validate_pod(pod)) == []
    assert KIND.warnings(pod, None) == []


ENDED = {"terminated": {"exitCode": 0, "reason": "Completed"}}
UP = {"running": {"startedAt": "2026-07-24T11:00:00Z"}}


def state(state_=None, name="main", **more):
    return {"name": name, "state": state_ or {}} | more


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({}, ["0/1", "Pending", "0"], id="waits for a node"),
        pytest.param(
            {"status": {"phase": "Running", "containerStatuses": [state(UP, ready=True)]}},
            ["1/1", "Running", "0"],
            id="runs",
        ),
        pytest.param(
            {"status": {"phase": "Succeeded", "containerStatuses": [state(ENDED)]}},
            ["0/1", "Completed", "0"],
            id="is done",
        ),
        pytest.param(
            {"status": {"phase": "Failed", "containerStatuses": [state({"terminated": {"exitCode": 3}})]}},
            ["0/1", "ExitCode:3", "0"],
            id="failed without a reason",
        ),
        pytest.param({"status": {"phase": "Failed", "reason": "Evicted"}}, ["0/1", "Evicted", "0"], id="was evicted"),
        pytest.param(
            {
                "status": {
                    "phase": "Running",
                    "containerStatuses": [
                        state(
                            {"waiting": {"reason": "CrashLoopBackOff"}},
                            restartCount=4,
                            lastState={"terminated": {"exitCode": 1, "finishedAt": "2026-07-24T11:55:00Z"}},
                        )
                    ],
                }
            },
            ["0/1", "CrashLoopBackOff", "4 (5m ago)"],
            id="crashes again and again",
        ),
        pytest.param(
            {
                "initContainers": [{"name": "i", "image": "a"}, {"name": "j", "image": "a"}],
                "status": {
                    "phase": "Pending",
                    "initContainerStatuses": [state(ENDED, "i"), state(UP, "j")],
                    "containerStatuses": [state({"waiting": {"reason": "PodInitializing"}})],
                },
            },
            ["0/1", "Init:1/2", "0"],
            id="initialises",
        ),
        pytest.param(
            {
                "initContainers": [{"name": "i", "image": "a"}],
                "status": {"initContainerStatuses": [state({"terminated": {"exitCode": 1, "reason": "Error"}}, "i")]},
            },
            ["0/1", "Init:Error", "0"],
            id="failed to initialise",
        ),
        pytest.param(
            {
                "initContainers": [{"name": "i", "image": "a", "restartPolicy": "Always"}],
                "status": {
                    "phase": "Running",
                    "initContainerStatuses": [state(UP, "i", started=True, ready=True)],
                    "containerStatuses": [state(UP, ready=True)],
                },
            },
            ["2/2", "Running", "0"],
            id="has a sidecar",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-07-24T12:00:30Z"}, "status": {"phase": "Running"}},
            ["0/1", "Terminating", "0"],
            id="is being stopped",
        ),
        pytest.param(
            {"metadata": {"deletionTimestamp": "2026-07-24T12:00:30Z"}, "status": {"phase": "Succeeded"}},
            ["0/1", "Succeeded", "0"],
            id="ended before it was stopped",
        ),
    ],
)
def test_row(parts, expected):
    assert KIND.row(made(**parts), NOW)[1:4] == expected


def test_wide_row():
    pod = made(
        metadata={"creationTimestamp": "2026-07-24T11:58:30Z"},
        nodeName="n",
        readinessGates=[{"conditionType": "a"}],
        status={"podIPs": [{"ip": "10.0.0.1"}], "conditions": [{"type": "a", "status": "True"}]},
    )

    assert KIND.row(pod, NOW) == ["p", "0/1", "Pending", "0", "90s", "10.0.0.1", "n", "<none>", "1/1"]


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        *((-5, "<invalid>"), (-1, "0s"), (119, "119s"), (120, "2m"), (599, "9m59s"), (600, "10m"), (10799, "179m")),
        *((10800, "3h"), (12060, "3h21m"), (28800, "8h"), (172800, "2d"), (176400, "2d1h"), (8 * 86400, "8d")),
        *((730 * 86400, "2y"), (765 * 86400, "2y35d"), (8 * 365 * 86400, "8y")),
    ],
)
def test_durations(seconds, text):
    assert duration_text(timedelta(seconds=seconds)) == text
    assert age(None, NOW) == "<unknown>"


def of(limits=None, name="main", **requested):
    return {"name": name, "image": "a", "resources": {"limits": limits or {}, "requests": requested}}


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        pytest.param({"containers": [of(), of()]}, {}, id="nothing said"),
        pytest.param(
            {"containers": [of(cpu="100m", memory="1Ki"), of(cpu=1)]}, {"cpu": 1100, "memory": 1024}, id="a sum"
        ),
        pytest.param({"containers": [of({"cpu": "2"})]}, {"cpu": 2000}, id="limits stand in"),
        pytest.param(
            {"containers": [of(cpu=1)], "initContainers": [of(cpu=2, memory="5"), of(cpu=3)]},
            {"cpu": 3000, "memory": 5},
            id="the neediest step of initialisation",
        ),
        pytest.param(
            {"containers": [of(cpu=1)], "initContainers": [of(cpu=2) | {"restartPolicy": "Always"}, of(cpu=2)]},
            {"cpu": 4000},
            id="sidecars run beside it",
        ),
        pytest.param({"containers": [of(cpu=1)], "overhead": {"cpu": "0.5"}}, {"cpu": 1500}, id="overhead"),
        pytest.param({"containers": [of(cpu="lots")]}, {"cpu": 0}, id="what does not parse"),
    ],
)
def test_requests(parts, expected):
    assert requests(a_pod(**parts)) == expected


@pytest.mark.parametrize(
    ("containers", "expected"),
    [
        pytest.param([of()], "BestEffort", id="nothing said"),
        pytest.param([of({"cpu": "0"})], "BestEffort", id="zero said"),
        pytest.param([of({"cpu": "1", "memory": "1Gi"})], "Guaranteed", id="limited to what is requested"),
        pytest.param([of({"cpu": "1"})], "Burstable", id="memory without limit"),
        pytest.param([of({"cpu": "1", "memory": "1Gi"}, cpu="0.5")], "Burstable", id="more allowed than requested"),
        pytest.param([of({"cpu": "1", "memory": "1"}), of(name="b")], "Burstable", id="one container without limits"),
    ],
)
def test_quality_of_service(containers, expected):
    assert qos_class(made(containers=containers).spec) == expected


def test_states():
    ready = a_pod(status={"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]})
    ended = a_pod(status={"phase": "Failed"})
    leaving = a_pod(status={"phase": "Running"}, metadata={"deletionTimestamp": "2030-01-01T00:00:00Z"})

    assert [is_terminal(each) for each in (ready, ended, leaving)] == [False, True, False]
    assert [is_active(each) for each in (ready, ended, leaving)] == [True, False, False]
    assert [is_ready(each) for each in (ready, ended, leaving)] == [True, False, False]


def test_every_field_of_every_part_has_a_description():
    def described(struct, seen):
        for each in fields(struct):
            assert "description=" in repr(struct.__annotations__.get(each.name, "")) or each.name in ("metadata",), (
                struct,
                each.name,
            )
        seen.add(struct)

    described(PodSpec, set())
    assert replace(ContainerStatus(name="a"), state=ContainerState()).name == "a"
    assert Condition().type == ""
